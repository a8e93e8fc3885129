"""The dense bundles of all generations: LoadStationary and Matmul.

A row with ``since`` or ``until`` is there on those generations and reserved on the others.  SUNDA
writes two bundles of its own; MARIANA takes CAYMAN's (D11) and adds fields that its headers name.
Sources: "PE Matmul Encoding - Dense / Sparse / MX & Quantize" and, for the fields that only the
headers have, "Cross-Generation Arch-ISA Header Diff".
"""

from __future__ import annotations

from hardware.arch import Arch
from hardware.dtypes import DENSE_DTYPES, WireDtype
from hardware.evidence import Evidence
from hardware.opcodes import BUNDLE_BYTES, INST_WORD_LEN
from hardware.pe import (
    ACCUMULATE_VALUES,
    LANE_GROUPS,
    LANES,
    XBUS_DEFAULT,
    XBUS_SELECT,
    ZERO_REGIONS,
    Fp32Mode,
    PerfMode,
)

from .bundle import Bundle, register
from .patterns import Indirect16, Tensor3D
from .wire import bits, coded, const, nested, record, reserved

_SUNDA, _CAYMAN, _MARIANA = Arch.SUNDA, Arch.CAYMAN, Arch.MARIANA
_HEADER = "Cross-Generation Arch-ISA Header Diff"
_STRONG = Evidence.STRONG
_LANES = range(1, LANES + 1)
_GROUPS = tuple(LANE_GROUPS)
_OLD = tuple(PerfMode)[:4]
_PERF = {_SUNDA: _OLD, _CAYMAN: _OLD, _MARIANA: tuple(PerfMode)}
_XBUS = (XBUS_DEFAULT, *sorted(set(XBUS_SELECT.values()) - {XBUS_DEFAULT}))
_OUT = {
    _SUNDA: (WireDtype.INVALID,),
    _CAYMAN: (WireDtype.INVALID,),
    _MARIANA: (WireDtype.INVALID, WireDtype.FP32, WireDtype.BFLOAT16),
}
_FP32_DOC = "pass over float32: 0 none, 1 low, 2 high (also fp32r), 3 both (D5, D24)"
_PERF_DOC = "performance mode (D5)"
_ROWS_DOC = "active partitions of the stationary operand (D5)"
_COLS_DOC = "elements per partition of the stationary operand (D8)"


# fmt: off
@register
@record(size=BUNDLE_BYTES, source="PE Matmul Encoding", kw_only=True)
class LoadStationary(Bundle):
    """Load a stationary tile into the latches of a row and column group."""

    opcode: int          = const(0x00, 0x01,          doc="LoadStationary")
    inst_word_len: int   = const(0x01, INST_WORD_LEN, doc="length in 4-byte words")
    bg_xpose_mode: int   = bits(0x0C, default=0, since=_MARIANA,
                                doc="2: transpose in the background (D16a)")
    reserved_0d: int     = reserved(0x0D, width=3)
    src: Tensor3D | Indirect16 = nested(0x10, Tensor3D, Indirect16,
                                        doc="stationary elements, in SBUF")
    dtype: WireDtype     = coded(0x20, WireDtype, legal=DENSE_DTYPES, doc="element type")
    fp32_mode: int       = bits(0x21, default=0, legal=tuple(Fp32Mode), doc=_FP32_DOC)
    transpose_mode: int  = bits(0x22, default=0, since=_CAYMAN, source=_HEADER, evidence=_STRONG,
                                doc="transposition of the tile; the compiler writes 0")
    perf_mode: int       = bits(0x23, default=0, legal=_PERF, evidence=_STRONG, doc=_PERF_DOC)
    replication0: int    = bits(0x24, default=0, until=_SUNDA, doc="replication code, first copy")
    replication1: int    = bits(0x25, default=0, until=_SUNDA, doc="replication code, second copy")
    num_active_rows: int = bits(0x26, legal=_LANES, doc=_ROWS_DOC)
    num_active_cols: int = bits(0x27, legal=_LANES, doc=_COLS_DOC)
    reserved_28: int     = reserved(0x28, width=4)
    row_group: int       = bits(0x2C, legal=_GROUPS, doc="row tile: mask of quadrants")
    col_group: int       = bits(0x2D, legal=_GROUPS, doc="column tile: mask of quadrants")
    xbus_sel: int        = bits(0x2E, default=XBUS_DEFAULT, until=_SUNDA, legal=_XBUS,
                                doc="crossbar select; the compiler writes 0x10 (D13)")
    load_flags: int      = bits(0x2F, default=0, since=_MARIANA, legal=range(0x20), source=_HEADER,
                                evidence=_STRONG, doc="load flags; bits 5 to 7 are zero")
    reserved_30: int     = reserved(0x30, width=16)


@register
@record(size=BUNDLE_BYTES, source="PE Matmul Encoding", kw_only=True)
class Matmul(Bundle):
    """Stream the moving operand through the latched stationary one and write PSUM."""

    opcode: int           = const(0x00, 0x02,          doc="Matmul")
    inst_word_len: int    = const(0x01, INST_WORD_LEN, doc="length in 4-byte words")
    reserved_0c: int      = reserved(0x0C, width=4)
    src: Tensor3D | Indirect16 = nested(0x10, Tensor3D, Indirect16, doc="moving elements, in SBUF")
    dtype: WireDtype      = coded(0x20, WireDtype, legal=DENSE_DTYPES, doc="element type")
    fp32_mode: int        = bits(0x21, default=0, legal=tuple(Fp32Mode), doc=_FP32_DOC)
    transpose_mode: int   = bits(0x22, default=0, since=_CAYMAN, source=_HEADER, evidence=_STRONG,
                                 doc="transposition of the tile; the compiler writes 0")
    perf_mode: int        = bits(0x23, default=0, legal=_PERF, doc=_PERF_DOC)
    replication0: int     = bits(0x24, default=0, until=_SUNDA, doc="replication code, first copy")
    replication1: int     = bits(0x25, default=0, until=_SUNDA, doc="replication code, second copy")
    num_active_rows: int  = bits(0x26, legal=_LANES, doc=_ROWS_DOC)
    num_active_cols: int  = bits(0x27, legal=_LANES, doc=_COLS_DOC)
    out_dtype: WireDtype  = coded(0x28, WireDtype, default=WireDtype.INVALID, since=_CAYMAN,
                                  legal=_OUT, source=_HEADER, evidence=_STRONG,
                                  doc="PSUM element type; INVALID means FP32")
    reserved_29: int      = reserved(0x29, width=1)
    scalar_mode: int      = bits(0x2A, bit=0, width=2, default=0, since=_MARIANA, source=_HEADER,
                                 evidence=_STRONG, doc="scalar mode; the compiler writes 0")
    seed_mode: int        = bits(0x2A, bit=2, width=2, default=0, since=_MARIANA, source=_HEADER,
                                 evidence=_STRONG, doc="seed mode; the compiler writes 0")
    accumulate_mode: int  = bits(0x2A, bit=4, width=1, default=0, since=_MARIANA, source=_HEADER,
                                 evidence=_STRONG, doc="accumulate flag; the compiler writes 0")
    xpose_mode: int       = bits(0x2A, bit=5, width=1, default=0, since=_MARIANA, source=_HEADER,
                                 evidence=_STRONG, doc="transpose flag; the compiler writes 0")
    reserved_flags: int   = reserved(0x2A, bit=6, bits=2, source=_HEADER)
    accumulate_flags: int = bits(0x2B, legal=tuple(sorted(ACCUMULATE_VALUES)),
                                 doc="bit 0 START, bit 1 STOP, bit 2 ACCUMULATE (D12, D25)")
    row_group: int        = bits(0x2C, legal=_GROUPS, doc="row tile: mask of quadrants")
    col_group: int        = bits(0x2D, legal=_GROUPS, doc="column tile: mask of quadrants")
    xbus_sel: int         = bits(0x2E, default=XBUS_DEFAULT, until=_SUNDA, legal=_XBUS,
                                 doc="crossbar select; the compiler writes 0x10 (D13)")
    psum_zero_region: int = bits(0x2F, default=0, legal=ZERO_REGIONS, source=_HEADER,
                                 evidence=_STRONG,
                                 doc="banks that START clears: 1, 2, 4, 8 for 0..3 (D25)")
    dst: Tensor3D | Indirect16 = nested(0x30, Tensor3D, Indirect16, doc="destination, in PSUM")
# fmt: on
