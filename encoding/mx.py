"""The microscaling bundles of MARIANA: LdWeightMx, MatmultMx and QuantizeMx.

Sources: "PE Matmul Encoding - Dense / Sparse / MX & Quantize" and "Byte-Decode of the MX Device
Bodies".  One MX matmul is always the pair LdWeightMx, MatmultMx; QuantizeMx runs on the DVE engine.
"""

from __future__ import annotations

from hardware.dtypes import MX_CONTAINER_BYTES, WireDtype
from hardware.evidence import Evidence
from hardware.opcodes import BUNDLE_BYTES, INST_WORD_LEN
from hardware.pe import (
    ACCUMULATE_VALUES,
    ALL_LANES,
    LANE_GROUPS,
    LANES,
    MX_ROWS,
    QUANTIZE_CHANNELS,
    ZERO_REGION_BANKS,
)

from .bundle import Bundle, register
from .patterns import Indirect16, MxIndirect, MxPattern, Tensor3D
from .wire import bits, coded, const, flag, nested, record, reserved

_DEV = "Byte-Decode of the MX Device Bodies"
_FP4_OR_FP8 = tuple(MX_CONTAINER_BYTES)
_SURE = Evidence.CONFIRMED
_COLS = range(1, LANES + 1)
_ROWS_DOC = "active partitions of the stationary operand (D5)"
_COLS_DOC = "containers per partition of the stationary operand: output partitions (D8)"


# fmt: off
@register
@record(size=BUNDLE_BYTES, source="PE Matmul Encoding", kw_only=True)
class LdWeightMx(Bundle):
    """Load packed stationary elements and their scales into the latches of a row group."""

    opcode: int           = const(0x00, 0x09,          doc="LdWeightMx")
    inst_word_len: int    = const(0x01, INST_WORD_LEN, doc="length in 4-byte words")
    reserved_0c: int      = reserved(0x0C, width=4, evidence=_SURE)
    src: MxPattern | MxIndirect = nested(0x10, MxPattern, MxIndirect,
                                         doc="stationary elements and scales, in SBUF")
    dtype: WireDtype      = coded(0x20, WireDtype, legal=_FP4_OR_FP8, doc="stationary element type")
    reserved_21: int      = reserved(0x21, width=5, evidence=_SURE)
    num_active_rows: int  = bits(0x26, legal=MX_ROWS, doc=_ROWS_DOC)
    num_active_cols: int  = bits(0x27, legal=_COLS, evidence=Evidence.STRONG, doc=_COLS_DOC)
    reserved_28: int      = reserved(0x28, width=4, evidence=_SURE)
    row_group: int        = bits(0x2C, legal=tuple(LANE_GROUPS), doc="row tile: mask of quadrants")
    col_group: int        = const(0x2D, ALL_LANES, doc="all columns")
    reserved_2e: int      = reserved(0x2E, width=18, evidence=_SURE)


@register
@record(size=BUNDLE_BYTES, source="PE Matmul Encoding", kw_only=True)
class MatmultMx(Bundle):
    """Stream the moving operand through the latched stationary one and add into PSUM."""

    opcode: int           = const(0x00, 0x0A,          doc="MatmultMx")
    inst_word_len: int    = const(0x01, INST_WORD_LEN, doc="length in 4-byte words")
    reserved_0c: int      = reserved(0x0C, width=4, evidence=_SURE)
    src: MxPattern | MxIndirect = nested(0x10, MxPattern, MxIndirect,
                                         doc="moving elements and scales, in SBUF")
    dtype: WireDtype      = coded(0x20, WireDtype, legal=_FP4_OR_FP8, doc="moving element type")
    reserved_21: int      = reserved(0x21, width=5, evidence=_SURE)
    num_active_rows: int  = bits(0x26, legal=MX_ROWS, doc=_ROWS_DOC)
    num_active_cols: int  = bits(0x27, legal=_COLS, evidence=Evidence.STRONG, doc=_COLS_DOC)
    out_dtype: WireDtype  = coded(0x28, WireDtype, legal=(WireDtype.BFLOAT16, WireDtype.FP32),
                                  doc="PSUM element type")
    reserved_29: int      = reserved(0x29, width=2, evidence=_SURE)
    accumulate_flags: int = bits(0x2B, legal=tuple(sorted(ACCUMULATE_VALUES)),
                                 doc="bit 0 START, bit 1 STOP, bit 2 ACCUMULATE (D12, D25)")
    row_group: int        = bits(0x2C, legal=tuple(LANE_GROUPS), doc="row tile: mask of quadrants")
    col_group: int        = const(0x2D, ALL_LANES, doc="all columns")
    reserved_2e: int      = reserved(0x2E, width=1, evidence=_SURE)
    psum_zero_region: int = bits(0x2F, default=0, legal=range(len(ZERO_REGION_BANKS)),
                                 doc="banks that START clears: 1, 2, 4, 8 for 0..3 (D25)")
    dst: Tensor3D | Indirect16 = nested(0x30, Tensor3D, Indirect16, doc="destination, in PSUM")


@register
@record(size=BUNDLE_BYTES, source="PE Matmul Encoding", kw_only=True)
class QuantizeMx(Bundle):
    """Narrow bf16 or fp16 elements to packed elements and one E8M0 scale per 8 x 4 block."""

    opcode: int              = const(0x00, 0xE3, doc="QuantizeMx")
    saturate_bit: bool       = flag(0x01, bit=0, default=False,
                                    doc="ask for saturation, which FP8 does anyway (D7)")
    inst_word_len: int       = const(0x01, INST_WORD_LEN >> 1, bit=1, width=7,
                                     doc="length in 4-byte words, without bit 0")
    reserved_0c: int         = reserved(0x0C, width=4)
    src: Tensor3D | Indirect16 = nested(0x10, Tensor3D, Indirect16, doc="source elements, in SBUF")
    reserved_20: int         = reserved(0x20, width=1, evidence=_SURE, source=_DEV)
    num_active_channels: int = bits(0x21, legal=QUANTIZE_CHANNELS, doc="source partitions")
    src_dtype: WireDtype     = coded(0x22, WireDtype, legal=(WireDtype.BFLOAT16, WireDtype.FP16),
                                     doc="source element type")
    dst_dtype: WireDtype     = coded(0x23, WireDtype, legal=_FP4_OR_FP8,
                                     doc="result element type; FP4 by the encoder's guard (D11)")
    reserved_24: int         = reserved(0x24, width=12, source=_DEV)
    dst: MxPattern | MxIndirect = nested(0x30, MxPattern, MxIndirect,
                                         doc="packed elements and scales, in SBUF")
# fmt: on
