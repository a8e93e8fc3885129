"""The wire rules as data, one row per rule: what the bytes alone decide, and the runtime's extra.

Source: "The L2 Wire Validator - the Silicon Legality Cascade" and the runtime library's validators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hardware.arch import Arch
from hardware.dtypes import WireDtype
from hardware.memory import (
    PARTITIONS,
    PSUM_BANK_BYTES,
    QUADRANT_PARTITIONS,
    Space,
)
from hardware.pe import (
    ACCUMULATE_VALUES,
    LANE_GROUPS,
    RUNTIME_ACCUMULATE_VALUES,
    ZERO_REGION_BANKS,
)

from .mx import LdWeightMx, MatmultMx, QuantizeMx
from .rules import Finding, Rule, address_fault, byte_span, pattern_of, static


def _mx_data(slot: str, dtype: str) -> Callable[[Any, Arch], Finding]:
    def test(instruction: Any, arch: Arch) -> Finding:
        word = pattern_of(instruction, slot).data
        fault = address_fault(word, WireDtype.UINT32, arch, write=False, space=Space.SBUF)
        if fault and getattr(instruction, dtype) == WireDtype.FP4_EXP2:
            fault = address_fault(word, WireDtype.UINT16, arch, write=False, space=Space.SBUF)
        return (str(word), fault) if fault else None

    return test


def _mx_scale(slot: str) -> Callable[[Any, Arch], Finding]:
    def test(instruction: Any, arch: Arch) -> Finding:
        word = pattern_of(instruction, slot).scale
        fault = address_fault(word, WireDtype.UINT8, arch, write=False, space=Space.SBUF)
        return (str(word), fault) if fault else None

    return test


def _source_start(instruction: QuantizeMx, arch: Arch) -> Finding:
    word = instruction.src.start
    fault = address_fault(word, WireDtype.UINT32, arch, write=False, space=Space.SBUF)
    return (str(word), fault) if fault else None


def _psum_start(instruction: MatmultMx, arch: Arch) -> Finding:
    # A bf16 destination has its own predicate: any 2- or 4-byte type, inside the PSUM window.
    narrow = instruction.out_dtype == WireDtype.BFLOAT16
    tag = WireDtype.BFLOAT16 if narrow else WireDtype.FP32
    word = instruction.dst.start
    fault = address_fault(word, tag, arch, write=not narrow, space=Space.PSUM)
    return (str(word), fault) if fault else None


def _row_tile(instruction: LdWeightMx | MatmultMx, arch: Arch) -> Finding:
    group = LANE_GROUPS.get(instruction.row_group)
    if group is None or instruction.num_active_rows == group.lanes:
        return None
    return instruction.num_active_rows, f"{group.lanes} with row group {group.code:#x}"


def _row_start(instruction: LdWeightMx | MatmultMx, arch: Arch) -> Finding:
    group, word = LANE_GROUPS.get(instruction.row_group), instruction.src.data
    if group is None or not static(word, Space.SBUF) or word.partition == group.start:
        return None
    return word.partition, f"partition {group.start} with row group {group.code:#x}"


def _column_start(instruction: MatmultMx, arch: Arch) -> Finding:
    word = instruction.dst.start
    start = LANE_GROUPS[instruction.col_group].start
    if not static(word, Space.PSUM) or word.partition == start:
        return None
    return word.partition, f"partition {start} with all columns"


def _zero_region(instruction: MatmultMx, arch: Arch) -> Finding:
    dst, region = instruction.dst, instruction.psum_zero_region
    if not static(dst.start, Space.PSUM) or region >= len(ZERO_REGION_BANKS):
        return None
    low, high = byte_span(dst, instruction.out_dtype.size)
    banks = high // PSUM_BANK_BYTES - low // PSUM_BANK_BYTES + 1
    if banks <= ZERO_REGION_BANKS[region]:
        return None
    return region, f"a region of at least the {banks} banks that the destination spans"


def _channels_start(slot: str) -> Callable[[QuantizeMx, Arch], Finding]:
    def test(instruction: QuantizeMx, arch: Arch) -> Finding:
        word = instruction.src.start if slot == "src" else instruction.dst.data
        if not static(word, Space.SBUF):
            return None
        size = instruction.num_active_channels
        step = next((s for s in (32, 64) if size <= s), PARTITIONS)
        if word.partition % step == 0:
            return None
        return word.partition, f"a multiple of {step} for {size} partitions"

    return test


def _same_quadrant_wire(instruction: QuantizeMx, arch: Arch) -> Finding:
    data, scale = instruction.dst.data, instruction.dst.scale
    if not (static(data, Space.SBUF) and static(scale, Space.SBUF)):
        return None
    if data.partition == scale.partition and data.partition % QUADRANT_PARTITIONS == 0:
        return None
    return scale.partition, f"the data's partition {data.partition}, at the head of a quadrant"


def _runtime_flags(instruction: MatmultMx, arch: Arch) -> Finding:
    legal, got = RUNTIME_ACCUMULATE_VALUES[arch], instruction.accumulate_flags
    narrowed = got in ACCUMULATE_VALUES and got not in legal
    return (got, ", ".join(map(str, sorted(legal)))) if narrowed else None


def _no_saturate(instruction: QuantizeMx, arch: Arch) -> Finding:
    return (0x11, "0x10") if instruction.saturate_bit else None


def _fp8_only(instruction: QuantizeMx, arch: Arch) -> Finding:
    got = instruction.dst_dtype
    return (got.name, "FP8_EXP4 or FP8_EXP5") if got == WireDtype.FP4_EXP2 else None


_LD, _MM, _Q = (LdWeightMx,), (MatmultMx,), (QuantizeMx,)
_PE = (LdWeightMx, MatmultMx)

# fmt: off
WIRE: tuple[Rule, ...] = (
    Rule("wire.src.data", "src.data", "MX elements live in SBUF, aligned to 4 bytes (FP4: 2)",
         _PE, _mx_data("src", "dtype")),
    Rule("wire.src.scale", "src.scale", "MX scales live in SBUF",
         _PE, _mx_scale("src")),
    Rule("wire.row_tile", "num_active_rows", "active rows are those of the row group",
         _PE, _row_tile),
    Rule("wire.src.partition", "src.data", "the operand starts at its row group's first partition",
         _PE, _row_start),
    Rule("wire.dst.start", "dst.start", "the destination lies in PSUM, aligned for its type",
         _MM, _psum_start),
    Rule("wire.dst.partition", "dst.start", "all columns: the destination starts at partition 0",
         _MM, _column_start),
    Rule("wire.zero_region_span", "psum_zero_region", "the zero region covers the banks spanned",
         _MM, _zero_region),
    Rule("wire.src.start", "src.start", "the source lies in SBUF, aligned to 4 bytes",
         _Q, _source_start),
    Rule("wire.src.partition", "src.start", "the start partition can hold the active channels",
         _Q, _channels_start("src")),
    Rule("wire.dst.data", "dst.data", "MX elements live in SBUF, aligned to 4 bytes (FP4: 2)",
         _Q, _mx_data("dst", "dst_dtype")),
    Rule("wire.dst.scale", "dst.scale", "MX scales live in SBUF",
         _Q, _mx_scale("dst")),
    Rule("wire.dst.partition", "dst.data", "the start partition can hold the active channels",
         _Q, _channels_start("dst")),
    Rule("wire.dst.quadrant", "dst.scale", "data and scales start in the same quadrant",
         _Q, _same_quadrant_wire),
)

RUNTIME: tuple[Rule, ...] = (
    Rule("runtime.inst_word_len", "saturate_bit", "byte 1 is exactly 16",
         _Q, _no_saturate),
    Rule("runtime.dst_dtype", "dst_dtype", "QuantizeMx makes no FP4",
         _Q, _fp8_only),
    Rule("runtime.accumulate_flags", "accumulate_flags", "flags of this generation",
         _MM, _runtime_flags),
)
# fmt: on
