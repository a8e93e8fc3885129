"""The wire rules as data, one row per rule: what the bytes alone decide, and the runtime's extra.

Source: "The L2 Wire Validator - the Silicon Legality Cascade" and the runtime library's validators.
"""

from __future__ import annotations

from typing import Any

from hardware.arch import Arch
from hardware.dtypes import WireDtype
from hardware.memory import (
    PSUM_BANK_BYTES,
    QUADRANT_PARTITIONS,
    Space,
)
from hardware.pe import (
    ACCUMULATE_VALUES,
    ALL_LANES,
    FORCE_TAG_BITS,
    LANE_GROUPS,
    RUNTIME_ACCUMULATE_VALUES,
    XBUS_DEFAULT,
    XBUS_SELECT,
    ZERO_REGION_BANKS,
    Fp32Mode,
    PerfMode,
    tile_starts,
)

from .dense import LoadStationary, Matmul
from .mx import LdWeightMx, MatmultMx, QuantizeMx
from .operand_rules import (
    data_of,
    gather_quadrant,
    index_word,
    mx_data,
    mx_scale,
    plain_data,
    tensor_word,
)
from .patterns import Indirect16
from .rules import Finding, Rule, Test, byte_span, pattern_of, static
from .sparse import LoadTagsSparse, MatmultSparse


def _source_tag(instruction: Any) -> WireDtype:
    # QuantizeMx reads its source through a 4-byte view.
    return WireDtype.UINT32 if isinstance(instruction, QuantizeMx) else instruction.dtype


def _result_tag(instruction: Any) -> WireDtype:
    # A bf16 destination has its own predicate: any 2- or 4-byte type, inside the PSUM window.
    narrow = instruction.out_dtype == WireDtype.BFLOAT16
    return WireDtype.BFLOAT16 if narrow else WireDtype.FP32


def _row_tile(instruction: Any, arch: Arch) -> Finding:
    group, rows = LANE_GROUPS.get(instruction.row_group), instruction.num_active_rows
    if group is None:
        return None
    if isinstance(instruction, (LdWeightMx, MatmultMx)):
        good = rows == group.lanes
        return None if good else (rows, f"{group.lanes} with row group {group.code:#x}")
    good = rows <= group.lanes
    return None if good else (rows, f"at most {group.lanes} with row group {group.code:#x}")


def _col_tile(instruction: Any, arch: Arch) -> Finding:
    group, cols = LANE_GROUPS.get(instruction.col_group), instruction.num_active_cols
    if group is None or cols <= group.lanes:
        return None
    return cols, f"at most {group.lanes} with column group {group.code:#x}"


def _row_start(slot: str) -> Test:
    def test(instruction: Any, arch: Arch) -> Finding:
        group, word = LANE_GROUPS.get(instruction.row_group), data_of(instruction, slot)
        if group is None or not static(word, Space.SBUF) or word.partition == group.start:
            return None
        return word.partition, f"partition {group.start} with row group {group.code:#x}"

    return test


def _column_start(instruction: Any, arch: Arch) -> Finding:
    group, word = LANE_GROUPS.get(instruction.col_group), data_of(instruction, "dst")
    if group is None or not static(word, Space.PSUM) or word.partition == group.start:
        return None
    columns = "all columns" if group.code == ALL_LANES else f"column group {group.code:#x}"
    return word.partition, f"partition {group.start} with {columns}"


def _zero_region(instruction: Matmul | MatmultMx, arch: Arch) -> Finding:
    dst, region = instruction.dst, instruction.psum_zero_region
    if isinstance(dst, Indirect16) or region >= len(ZERO_REGION_BANKS):
        return None
    if not static(dst.start, Space.PSUM):
        return None
    low, high = byte_span(dst, _result_tag(instruction).size)
    banks = high // PSUM_BANK_BYTES - low // PSUM_BANK_BYTES + 1
    if banks <= ZERO_REGION_BANKS[region]:
        return None
    return region, f"a region of at least the {banks} banks that the destination spans"


def _channels_start(slot: str) -> Test:
    def test(instruction: QuantizeMx, arch: Arch) -> Finding:
        word, size = data_of(instruction, slot), instruction.num_active_channels
        if not static(word, Space.SBUF) or word.partition in tile_starts(size):
            return None
        step = (*tile_starts(size), 128)[1]
        return word.partition, f"a multiple of {step} for {size} partitions"

    return test


def _same_quadrant_wire(instruction: QuantizeMx, arch: Arch) -> Finding:
    data, scale = instruction.dst.data, pattern_of(instruction, "dst").scale
    if not (static(data, Space.SBUF) and static(scale, Space.SBUF)):
        return None
    if data.partition == scale.partition and data.partition % QUADRANT_PARTITIONS == 0:
        return None
    return scale.partition, f"the data's partition {data.partition}, at the head of a quadrant"


def _fp32_mode(instruction: Any, arch: Arch) -> Finding:
    mode = instruction.fp32_mode
    if instruction.dtype == WireDtype.FP32:
        return (mode, "1, 2 or 3 with FP32 elements") if mode == Fp32Mode.NONE else None
    return (mode, f"0 with {instruction.dtype.name} elements") if mode else None


def _xbus(instruction: Any, arch: Arch) -> Finding:
    got, want = instruction.xbus_sel, XBUS_SELECT.get(instruction.col_group, XBUS_DEFAULT)
    return None if got in (XBUS_DEFAULT, want) else (got, f"{XBUS_DEFAULT:#x} or {want:#x}")


def _xbus_runtime(instruction: Any, arch: Arch) -> Finding:
    got, want = instruction.xbus_sel, XBUS_SELECT.get(instruction.col_group)
    if want is None:
        group = instruction.col_group
        return got, f"no value: column group {group:#x} is unsupported on {arch.label}"
    return None if got == want else (got, f"{want:#x} with this column group")


def _dual_fp8(instruction: LoadStationary, arch: Arch) -> Finding:
    mode, src = instruction.perf_mode, instruction.src
    if mode == PerfMode.NONE:
        return None
    if mode not in (PerfMode.DOUBLE_ROW, PerfMode.DOUBLE_ROW_SW_INTERLEAVE):
        return mode, "0, 1 or 4"
    if instruction.dtype not in (WireDtype.FP8_EXP4, WireDtype.FP8_EXP5):
        return mode, "0 unless the elements are FP8_EXP4 or FP8_EXP5"
    if instruction.col_group != ALL_LANES or instruction.transpose_mode:
        return mode, "0 unless all columns are loaded, untransposed"
    if isinstance(src, Indirect16):
        return mode, "0 with a gather"
    if mode == PerfMode.DOUBLE_ROW:
        paired = src.num2 == 2 and src.step2 % 16 == 0
        good = src.shape_in_register or paired
        return None if good else (mode, "0 unless num2 is 2 and step2 a multiple of 16")
    even = src.start.is_register or src.start.address % 2 == 0
    return None if even else (mode, "0 unless the address is even")


def _force_tag_bits(instruction: LoadTagsSparse, arch: Arch) -> Finding:
    got, want = instruction.force_tag_bits, FORCE_TAG_BITS.get(instruction.row_group)
    if want is None or got == want:
        return None
    return got, f"{want:#x} with row group {instruction.row_group:#x}"


def _tag_count(instruction: LoadTagsSparse, arch: Arch) -> Finding:
    count = instruction.src.count
    return None if count <= 32 else (count, "at most 32 words of four tags")


def _runtime_flags(instruction: Matmul | MatmultMx, arch: Arch) -> Finding:
    legal, got = RUNTIME_ACCUMULATE_VALUES[arch], instruction.accumulate_flags
    narrowed = got in ACCUMULATE_VALUES and got not in legal
    return (got, ", ".join(map(str, sorted(legal)))) if narrowed else None


def _no_saturate(instruction: QuantizeMx, arch: Arch) -> Finding:
    return (0x11, "0x10") if instruction.saturate_bit else None


def _fp8_only(instruction: QuantizeMx, arch: Arch) -> Finding:
    got = instruction.dst_dtype
    return (got.name, "FP8_EXP4 or FP8_EXP5") if got == WireDtype.FP4_EXP2 else None


def _fp32_result(instruction: Any) -> WireDtype:
    return WireDtype.FP32


_MX, _MM, _Q = (LdWeightMx, MatmultMx), (MatmultMx,), (QuantizeMx,)
_LW, _DM, _DENSE = (LoadStationary,), (Matmul,), (LoadStationary, Matmul)
_LT, _MS = (LoadTagsSparse,), (MatmultSparse,)
_READERS = (*_DENSE, *_LT, *_MS)
_TILED = (*_MX, *_READERS)
_SUMS = (*_DM, *_MM)
_SUNDA, _MARIANA = Arch.SUNDA, Arch.MARIANA

# fmt: off
WIRE: tuple[Rule, ...] = (
    Rule("wire.src.data", "src.data", "MX elements live in SBUF, aligned to 4 bytes (FP4: 2)",
         _MX, mx_data("src", "dtype")),
    Rule("wire.src.scale", "src.scale", "MX scales live in SBUF",
         _MX, mx_scale("src")),
    Rule("wire.row_tile", "num_active_rows", "active rows are those of the row group",
         _TILED, _row_tile),
    Rule("wire.col_tile", "num_active_cols", "active columns are at most those of the group",
         _READERS, _col_tile),
    Rule("wire.src.partition", "src.data", "the operand starts at its row group's first partition",
         _MX, _row_start("src")),
    Rule("wire.src.partition", "src.start", "the operand starts at its row group's first partition",
         _READERS, _row_start("src")),
    Rule("wire.dst.start", "dst.start", "the destination lies in PSUM, aligned for its type",
         _SUMS, tensor_word("dst", "start", _result_tag, Space.PSUM)),
    Rule("wire.dst.start", "dst.start", "the destination lies in PSUM, aligned for its type",
         _MS, tensor_word("dst", "start", _fp32_result, Space.PSUM)),
    Rule("wire.dst.partition", "dst.start", "the destination starts at its columns' partition",
         (*_SUMS, *_MS), _column_start),
    Rule("wire.zero_region_span", "psum_zero_region", "the zero region covers the banks spanned",
         _SUMS, _zero_region),
    Rule("wire.src.start", "src.start", "the source lies in SBUF, aligned for its type",
         (*_Q, *_READERS), tensor_word("src", "start", _source_tag, Space.SBUF)),
    Rule("wire.src.partition", "src.start", "the start partition can hold the active channels",
         _Q, _channels_start("src")),
    Rule("wire.dst.data", "dst.data", "MX elements live in SBUF, aligned to 4 bytes (FP4: 2)",
         _Q, mx_data("dst", "dst_dtype")),
    Rule("wire.dst.scale", "dst.scale", "MX scales live in SBUF",
         _Q, mx_scale("dst")),
    Rule("wire.dst.partition", "dst.data", "the start partition can hold the active channels",
         _Q, _channels_start("dst")),
    Rule("wire.dst.quadrant", "dst.scale", "data and scales start in the same quadrant",
         _Q, _same_quadrant_wire),
    # Gather descriptors.
    Rule("wire.src.index", "src.index", "the index vector is aligned to 4 bytes, in SBUF",
         (*_MX, *_DENSE, *_MS, *_Q), index_word("src", Space.SBUF)),
    Rule("wire.src.gathered", "src.data", "the data lies in SBUF, aligned for its type",
         (*_DENSE, *_MS, *_Q), tensor_word("src", "data", _source_tag, Space.SBUF)),
    Rule("wire.src.plain", "src.data", "the data word of a gather carries no marker",
         (*_DENSE, *_MS, *_Q), plain_data("src")),
    Rule("wire.src.gather_quadrant", "src.data", "index and data lie in the same quadrant",
         (*_DENSE, *_MS, *_Q), gather_quadrant("src")),
    Rule("wire.dst.index", "dst.index", "the index vector is aligned to 4 bytes",
         (*_SUMS, *_MS), index_word("dst", Space.PSUM)),
    Rule("wire.dst.index", "dst.index", "the index vector is aligned to 4 bytes, in SBUF",
         _Q, index_word("dst", Space.SBUF)),
    Rule("wire.dst.gathered", "dst.data", "the data lies in PSUM, aligned for its type",
         _SUMS, tensor_word("dst", "data", _result_tag, Space.PSUM)),
    Rule("wire.dst.gathered", "dst.data", "the data lies in PSUM, aligned for its type",
         _MS, tensor_word("dst", "data", _fp32_result, Space.PSUM)),
    Rule("wire.dst.plain", "dst.data", "the data word of a gather carries no marker",
         (*_SUMS, *_MS), plain_data("dst")),
    Rule("wire.dst.gather_quadrant", "dst.data", "index and data lie in the same quadrant",
         (*_SUMS, *_MS), gather_quadrant("dst")),
    # Dense and sparse bundles.
    Rule("wire.fp32_mode", "fp32_mode", "FP32 elements need a pass, others have none",
         (*_DENSE, *_MS), _fp32_mode),
    Rule("wire.xbus", "xbus_sel", "the crossbar select is the compiler's or the group's",
         _DENSE, _xbus, until=_SUNDA),
    Rule("wire.dual_fp8", "perf_mode", "two FP8 rows at a time have a fixed shape",
         _LW, _dual_fp8, since=_MARIANA),
    Rule("wire.force_tag_bits", "force_tag_bits", "forced tag bits follow from the row group",
         _LT, _force_tag_bits),
    Rule("wire.tag_count", "src.num0", "a partition holds at most 32 words of tags",
         _LT, _tag_count, sized=True),
)

RUNTIME: tuple[Rule, ...] = (
    Rule("runtime.inst_word_len", "saturate_bit", "byte 1 is exactly 16",
         _Q, _no_saturate),
    Rule("runtime.dst_dtype", "dst_dtype", "QuantizeMx makes no FP4",
         _Q, _fp8_only),
    Rule("runtime.accumulate_flags", "accumulate_flags", "flags of this generation",
         _SUMS, _runtime_flags),
    Rule("runtime.xbus", "xbus_sel", "the crossbar select is the column group's",
         _DENSE, _xbus_runtime, until=_SUNDA),
)
# fmt: on
