"""Bit-exact, differentiable low-precision matrix arithmetic in JAX, from the wire format up.

Everyday names are all here (``import mxref as mx``).  The rooms behind them are ``hardware``
(facts), ``encoding`` (bytes) and the modules of ``mxref`` (meaning).
"""

# The guard has to run before anything that needs the siblings is imported.
# ruff: noqa: E402, I001

from mxref.siblings import verify as _verify

_verify("hardware")
_verify("encoding")

from encoding import (
    AccessPattern as AccessPattern,
    Addr4 as Addr4,
    AssemblyError as AssemblyError,
    BundleStream as BundleStream,
    DecodeError as DecodeError,
    EncodeError as EncodeError,
    Indirect16 as Indirect16,
    Indirect20 as Indirect20,
    LdWeightMx as LdWeightMx,
    LegalityError as LegalityError,
    LoadStationary as LoadStationary,
    LoadTagsSparse as LoadTagsSparse,
    Matmul as Matmul,
    MatmultMx as MatmultMx,
    MatmultSparse as MatmultSparse,
    MxIndirect as MxIndirect,
    MxPattern as MxPattern,
    QuantizeMx as QuantizeMx,
    Tensor1D as Tensor1D,
    Tensor2D as Tensor2D,
    Tensor3D as Tensor3D,
    Tensor4D as Tensor4D,
    Violation as Violation,
    assemble as assemble,
    check as check,
    decode as decode,
    decode_all as decode_all,
    decode_stream as decode_stream,
    disassemble as disassemble,
    encode as encode,
    encode_all as encode_all,
    encode_stream as encode_stream,
)
from hardware import (
    Arch as Arch,
    Dtype as Dtype,
    Space as Space,
    WireDtype as WireDtype,
)
from mxref.block import (
    dequantize as dequantize,
    quantize as quantize,
)
from mxref.blockshape import (
    BlockShape as BlockShape,
)
from mxref.e8m0 import (
    decode_e8m0 as decode_e8m0,
    encode_e8m0 as encode_e8m0,
    floor_log2 as floor_log2,
)
from mxref.errors import (
    AddressError as AddressError,
    CapabilityError as CapabilityError,
    ExecutionError as ExecutionError,
    FormatError as FormatError,
    GradientError as GradientError,
    MxrefError as MxrefError,
    PolicyError as PolicyError,
    ProgramError as ProgramError,
    ShapeError as ShapeError,
    UninitialisedError as UninitialisedError,
    Unmodelled as Unmodelled,
)
from mxref.fake_quantize import (
    fake_quantize as fake_quantize,
)
from mxref.formats import (
    BF16 as BF16,
    E2M1FN as E2M1FN,
    E2M3FN as E2M3FN,
    E3M2FN as E3M2FN,
    E3M4 as E3M4,
    E4M3_IEEE as E4M3_IEEE,
    E4M3FN as E4M3FN,
    E5M2 as E5M2,
    E8M0 as E8M0,
    FORMATS as FORMATS,
    FP16 as FP16,
    FP32 as FP32,
    FormatSpec as FormatSpec,
    format as format,
)
from mxref.interleave import (
    deinterleave as deinterleave,
    interleave as interleave,
)
from mxref.lower import (
    lower_matmul as lower_matmul,
    lower_quantize as lower_quantize,
)
from mxref.machine import (
    State as State,
    run as run,
)
from mxref.matmul import (
    matmul as matmul,
)
from mxref.mxarray import (
    MXArray as MXArray,
)
from mxref.narrow import (
    narrow as narrow,
)
from mxref.pack import (
    pack_fp4 as pack_fp4,
    pack_x4 as pack_x4,
    unpack_fp4 as unpack_fp4,
    unpack_x4 as unpack_x4,
)
from mxref.policy import (
    BACKEND as BACKEND,
    BLOCK as BLOCK,
    C_FIRST as C_FIRST,
    NEURON_2_24 as NEURON_2_24,
    NEURON_2_31 as NEURON_2_31,
    NVIDIA as NVIDIA,
    OCP as OCP,
    ORDERS as ORDERS,
    POLICIES as POLICIES,
    SEQUENTIAL as SEQUENTIAL,
    SYSTOLIC as SYSTOLIC,
    SYSTOLIC_DENSE as SYSTOLIC_DENSE,
    SYSTOLIC_MX as SYSTOLIC_MX,
    Accumulate as Accumulate,
    E8M0Rounding as E8M0Rounding,
    NumericPolicy as NumericPolicy,
    Rounding as Rounding,
    ScaleRule as ScaleRule,
)
from mxref.program import (
    Program as Program,
)
from mxref.quantized_matmul import (
    quantized_matmul as quantized_matmul,
)
from mxref.widen import (
    widen as widen,
)
from mxref import hif4 as hif4
from mxref import testing as testing

__version__ = "0.1.0"
