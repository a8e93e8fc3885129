"""The structured-sparsity bundles, from CAYMAN on: LoadTagsSparse and MatmultSparse.

One sparse matmul is LoadTagsSparse, LoadStationary, MatmultSparse.  Sources: "PE Matmul Encoding -
Dense / Sparse / MX & Quantize"; for the moving operand's place "PE Matrix-Multiply Path" (D4).
"""

from __future__ import annotations

from hardware.dtypes import DENSE_DTYPES, WireDtype
from hardware.evidence import Evidence
from hardware.opcodes import BUNDLE_BYTES, INST_WORD_LEN
from hardware.pe import ALL_LANES, FORCE_TAG_BITS, LANE_GROUPS, LANES, Fp32Mode, PerfMode

from .bundle import Bundle, register
from .patterns import Indirect16, Indirect20, Tensor3D, Tensor4D
from .wire import bits, coded, const, nested, record, reserved

_PATH = "PE Matrix-Multiply Path"
_STRONG = Evidence.STRONG
_LANES = range(1, LANES + 1)
_GROUPS = tuple(LANE_GROUPS)


# fmt: off
@register
@record(size=BUNDLE_BYTES, source="PE Matmul Encoding", kw_only=True)
class LoadTagsSparse(Bundle):
    """Load the tags that say which moving row each stationary element meets."""

    opcode: int          = const(0x00, 0x06,          doc="LoadTagsSparse")
    inst_word_len: int   = const(0x01, INST_WORD_LEN, doc="length in 4-byte words")
    reserved_0c: int     = reserved(0x0C, width=4)
    src: Tensor3D        = nested(0x10, Tensor3D, doc="tags, four to a 16-bit word, in SBUF")
    dtype: WireDtype     = coded(0x20, WireDtype, default=WireDtype.INT16,
                                 legal=(WireDtype.INT16, WireDtype.UINT16),
                                 doc="type of a word of tags (D10)")
    force_tag_bits: int  = bits(0x21, legal=tuple(sorted(set(FORCE_TAG_BITS.values()))),
                                doc="bits set in every tag: remap of the row group")
    reserved_22: int     = reserved(0x22, width=4)
    num_active_rows: int = bits(0x26, legal=_LANES, doc="active partitions: extent of the row tile")
    num_active_cols: int = bits(0x27, legal=_LANES, evidence=_STRONG, doc="columns: four per word")
    reserved_28: int     = reserved(0x28, width=4)
    row_group: int       = bits(0x2C, legal=_GROUPS, doc="row tile: mask of quadrants")
    col_group: int       = bits(0x2D, default=ALL_LANES, legal=(ALL_LANES,), evidence=_STRONG,
                                doc="all columns")
    active_row_mode: int = bits(0x2E, default=0, legal=(0,), evidence=Evidence.INFERRED,
                                source=_PATH, doc="active row mode; the compiler writes 0")
    reserved_2f: int     = reserved(0x2F, width=17)


@register
@record(size=BUNDLE_BYTES, source="PE Matmul Encoding", kw_only=True)
class MatmultSparse(Bundle):
    """Stream the moving operand past tags and weights and write PSUM."""

    opcode: int           = const(0x00, 0x07,          doc="MatmultSparse")
    inst_word_len: int    = const(0x01, INST_WORD_LEN, doc="length in 4-byte words")
    src: Tensor4D | Indirect20 = nested(0x0C, Tensor4D, Indirect20, source=_PATH, evidence=_STRONG,
                                        doc="moving elements, in SBUF (D4)")
    dtype: WireDtype      = coded(0x20, WireDtype, legal=DENSE_DTYPES, doc="element type")
    fp32_mode: int        = bits(0x21, default=0, legal=(Fp32Mode.NONE, Fp32Mode.HIGH,
                                                         Fp32Mode.LOW_HIGH),
                                 doc="3 for float32, 2 marks fp32r, else 0 (D4)")
    out_dtype: WireDtype  = coded(0x22, WireDtype, default=WireDtype.INVALID,
                                  legal=(WireDtype.INVALID,), source=_PATH,
                                  evidence=Evidence.INFERRED, doc="PSUM element type; unset")
    perf_mode: int        = bits(0x23, default=0, legal=tuple(PerfMode), source=_PATH,
                                 evidence=Evidence.INFERRED, doc="performance mode (D5)")
    reserved_24: int      = reserved(0x24, width=2)
    num_active_rows: int  = bits(0x26, legal=_LANES, doc="active partitions")
    num_active_cols: int  = bits(0x27, legal=_LANES, doc="elements of the stationary operand (D8)")
    reserved_28: int      = reserved(0x28, width=3)
    pass_bits: int        = bits(0x2B, default=0, legal=range(4),
                                 doc="float32 pass: bit 0 low, bit 1 high; 0 single (D10)")
    row_group: int        = bits(0x2C, legal=_GROUPS, doc="row tile: mask of quadrants")
    col_group: int        = bits(0x2D, default=ALL_LANES, legal=(ALL_LANES,), evidence=_STRONG,
                                 doc="all columns")
    active_row_mode: int  = bits(0x2E, default=0, legal=(0,), evidence=Evidence.INFERRED,
                                 source=_PATH, doc="active row mode; the compiler writes 0")
    psum_zero_region: int = bits(0x2F, default=0, legal=(0,), evidence=Evidence.INFERRED,
                                 source=_PATH, doc="banks that are cleared; one")
    dst: Tensor3D | Indirect16 = nested(0x30, Tensor3D, Indirect16, doc="destination, in PSUM")
# fmt: on
