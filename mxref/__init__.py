"""Bit-exact, differentiable low-precision matrix arithmetic in JAX, from the wire format up.

Everyday names are all here (``import mxref as mx``).  The rooms behind them are ``hardware``
(facts), ``encoding`` (bytes) and the modules of ``mxref`` (meaning).
"""

# The guard has to run before anything that needs the siblings is imported.
# ruff: noqa: E402, I001, RUF022

from mxref.siblings import verify as _verify

_verify("hardware")
_verify("encoding")

from encoding import (
    AccessPattern,
    Addr4,
    AssemblyError,
    BundleStream,
    DecodeError,
    EncodeError,
    Indirect16,
    Indirect20,
    LdWeightMx,
    LegalityError,
    LoadStationary,
    LoadTagsSparse,
    Matmul,
    MatmultMx,
    MatmultSparse,
    MxIndirect,
    MxPattern,
    QuantizeMx,
    Tensor1D,
    Tensor2D,
    Tensor3D,
    Tensor4D,
    Violation,
    assemble,
    check,
    decode,
    decode_all,
    decode_stream,
    disassemble,
    encode,
    encode_all,
    encode_stream,
)
from hardware import (
    Arch,
    Dtype,
    Space,
    WireDtype,
)
from mxref.block import (
    dequantize,
    quantize,
)
from mxref.blockshape import (
    BlockShape,
)
from mxref.e8m0 import (
    decode_e8m0,
    encode_e8m0,
    floor_log2,
)
from mxref.errors import (
    AddressError,
    CapabilityError,
    ExecutionError,
    FormatError,
    GradientError,
    MxrefError,
    PolicyError,
    ProgramError,
    ShapeError,
    UninitialisedError,
    Unmodelled,
)
from mxref.fake_quantize import (
    fake_quantize,
)
from mxref.formats import (
    BF16,
    E2M1FN,
    E2M3FN,
    E3M2FN,
    E3M4,
    E4M3_IEEE,
    E4M3FN,
    E5M2,
    E8M0,
    FORMATS,
    FP16,
    FP32,
    FormatSpec,
    format,
)
from mxref.interleave import (
    deinterleave,
    interleave,
)
from mxref.lower import (
    lower_matmul,
    lower_quantize,
)
from mxref.machine import (
    State,
    run,
)
from mxref.matmul import (
    matmul,
)
from mxref.mxarray import (
    MXArray,
)
from mxref.narrow import (
    narrow,
)
from mxref.pack import (
    pack_fp4,
    pack_x4,
    unpack_fp4,
    unpack_x4,
)
from mxref.policy import (
    BACKEND,
    BLOCK,
    C_FIRST,
    NEURON_2_24,
    NEURON_2_31,
    NVIDIA,
    OCP,
    ORDERS,
    POLICIES,
    SEQUENTIAL,
    SYSTOLIC,
    SYSTOLIC_DENSE,
    SYSTOLIC_MX,
    Accumulate,
    E8M0Rounding,
    NanElement,
    NonFinite,
    NumericPolicy,
    Products,
    Rounding,
    ScaleCodes,
    ScaleRule,
)
from mxref.program import (
    Program,
)
from mxref.quantized_matmul import (
    quantized_matmul,
)
from mxref.widen import (
    widen,
)
from mxref import hif4
from mxref import testing

__version__ = "0.1.0"

# fmt: off
__all__ = [
    "__version__", "AccessPattern", "Accumulate", "Addr4", "AddressError", "Arch", "assemble",
    "AssemblyError", "BACKEND", "BF16", "BLOCK", "BlockShape", "BundleStream", "C_FIRST",
    "CapabilityError", "check", "decode", "decode_all", "decode_e8m0", "decode_stream",
    "DecodeError", "deinterleave", "dequantize", "disassemble", "Dtype", "E2M1FN", "E2M3FN",
    "E3M2FN", "E3M4", "E4M3_IEEE", "E4M3FN", "E5M2", "E8M0", "E8M0Rounding", "encode", "encode_all",
    "encode_e8m0", "encode_stream", "EncodeError", "ExecutionError", "fake_quantize", "floor_log2",
    "format", "FormatError", "FORMATS", "FormatSpec", "FP16", "FP32", "GradientError", "hif4",
    "Indirect16", "Indirect20", "interleave", "LdWeightMx", "LegalityError", "LoadStationary",
    "LoadTagsSparse", "lower_matmul", "lower_quantize", "Matmul", "matmul", "MatmultMx",
    "MatmultSparse", "MXArray", "MxIndirect", "MxPattern", "MxrefError", "NanElement", "narrow",
    "NEURON_2_24", "NEURON_2_31", "NonFinite", "NumericPolicy", "NVIDIA", "OCP", "ORDERS",
    "pack_fp4", "pack_x4", "POLICIES", "PolicyError", "Products", "Program", "ProgramError",
    "quantize", "quantized_matmul", "QuantizeMx", "Rounding", "run", "ScaleCodes", "ScaleRule",
    "SEQUENTIAL", "ShapeError", "Space", "State", "SYSTOLIC", "SYSTOLIC_DENSE", "SYSTOLIC_MX",
    "Tensor1D", "Tensor2D", "Tensor3D", "Tensor4D", "testing", "UninitialisedError", "Unmodelled",
    "unpack_fp4", "unpack_x4", "Violation", "widen", "WireDtype",
]
# fmt: on


def __dir__() -> list[str]:
    """Return the public names; the modules behind them are an implementation's business."""
    return sorted(__all__)
