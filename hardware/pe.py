"""The PE array: lane groups, accumulate flags and the PSUM zero region.

Sources: "PE Matmul Encoding", "Matmul Tile Ordering and Accumulation-Group Legalization" and
"PE Matrix-Multiply Path".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag

from .arch import Arch
from .errors import AddressError, CapabilityError

LANES = 128


@dataclass(frozen=True, slots=True)
class LaneGroup:
    """A tile of the array: where it starts and how many lanes it has.

    The code is a mask over the four 32-lane quadrants.
    """

    code: int
    start: int
    lanes: int

    @property
    def quadrants(self) -> tuple[int, ...]:
        """The quadrants that the code's mask selects, ascending."""
        return tuple(q for q in range(4) if self.code >> q & 1)


# fmt: off
LANE_GROUPS: dict[int, LaneGroup] = {
    group.code: group
    for group in (
        LaneGroup(0b0001,  0,  32), LaneGroup(0b0010, 32, 32),
        LaneGroup(0b0100, 64,  32), LaneGroup(0b1000, 96, 32),
        LaneGroup(0b0011,  0,  64), LaneGroup(0b1100, 64, 64),
        LaneGroup(0b1111,  0, 128),
    )
}
# fmt: on
ALL_LANES = 0b1111


def row_group(position: int, size: int) -> int:
    """Return the row group code of a tile of ``size`` rows that contains row ``position``.

    Raises:
      AddressError: for a position of 128 or more (D16a) or a size outside 1..128.
    """
    if not 0 <= position < LANES:
        raise AddressError("PE", position, f"0..{LANES - 1}", "lane")
    if not 1 <= size <= LANES:
        raise AddressError("PE", size, f"1..{LANES}", "tile size")
    extent = next(lanes for lanes in (32, 64, 128) if size <= lanes)
    return next(
        group.code
        for group in LANE_GROUPS.values()
        if group.lanes == extent and group.start <= position < group.start + extent
    )


def col_group(position: int, size: int, *, force: bool = False) -> int:
    """Return the column group code; ``force`` (and every MX bundle) takes all the columns."""
    return ALL_LANES if force else row_group(position, size)


# Row group to the force_tag_bits byte of LoadTagsSparse; other codes are unreachable.
FORCE_TAG_BITS = {0x1: 0x0, 0x3: 0x0, 0xF: 0x0, 0x2: 0x4, 0x4: 0x8, 0xC: 0x8, 0x8: 0xC}


class PerfMode(IntEnum):
    """How the array is fed; byte +0x23 of the dense bundles (D5)."""

    NONE = 0
    DOUBLE_ROW = 1
    DOUBLE_COLUMN = 2
    DOUBLE_PIXEL = 3
    DOUBLE_ROW_SW_INTERLEAVE = 4
    """Only MARIANA's validator knows it."""


class Fp32Mode(IntEnum):
    """Which part of a float32 operand a pass works on; byte +0x21 (D5, D24)."""

    NONE = 0
    LOW = 1
    HIGH = 2
    """With FP32 before it, also the fp32r marker: bytes ``0A 02``."""
    LOW_HIGH = 3


FP32R_WORD = 0x020A
"""The 16-bit store at +0x20 that marks float32r: tag FP32 and mode HIGH (D16a)."""

# Crossbar select of SUNDA by column group.  The compiler always writes 0x10 (D13); the header's
# predicate wants one value per group and knows none for the last quadrant.
XBUS_DEFAULT = 0x10
XBUS_SELECT = {0xF: 0x10, 0x3: 1, 0xC: 4, 0x1: 1, 0x2: 2, 0x4: 4}


def tile_starts(size: int) -> tuple[int, ...]:
    """Return the partitions at which an access of ``size`` partitions may start.

    More than 64 start at 0, more than 32 at 0 or 64, fewer at any quadrant: the reading of the
    partition-start rule under which all its messages are true.
    """
    extent = next((lanes for lanes in (32, 64) if size <= lanes), LANES)
    return tuple(range(0, LANES, extent))


class AccumulateFlag(IntFlag):
    """Bits of the accumulate byte."""

    START = 1
    """Clear before adding: the head of an accumulation group."""
    STOP = 2
    """The tail of the group; changes no bits (D25)."""
    ACCUMULATE = 4
    """Add into what is there."""


# The encoders of all three generations write ACCUMULATE; clearing and adding at once is refused.
ACCUMULATE_VALUES = frozenset({0, 1, 2, 3, 4, 6})
RUNTIME_ACCUMULATE_VALUES = {
    Arch.SUNDA: frozenset({0, 1, 2, 3}),
    Arch.CAYMAN: frozenset({0, 1, 2, 3}),
    Arch.MARIANA: ACCUMULATE_VALUES,
}

# Banks that START clears, by the value of the zero region byte.
ZERO_REGION_BANKS = (1, 2, 4, 8)
ZERO_REGIONS = {
    Arch.SUNDA: range(1),
    Arch.CAYMAN: range(1),
    Arch.MARIANA: range(len(ZERO_REGION_BANKS)),
}


def zero_region(banks: int) -> int:
    """Return the smallest zero region value that covers ``banks`` spanned banks.

    Raises:
      AddressError: when more than eight banks are spanned.
    """
    for value, covered in enumerate(ZERO_REGION_BANKS):
        if banks <= covered:
            return value
    raise AddressError("PSUM", banks, f"at most {ZERO_REGION_BANKS[-1]} banks", "bank count")


# Sparse matmul, 4 of 16: one 16-bit word holds the tags of four columns.
TAGS_PER_WORD = 4
SPARSE_ROWS = 128
SPARSE_FMAPS = (2, 3, 4)
"""Feature maps per partition: the outermost count of the moving operand."""

# MX matmul tiles: 96 partitions are refused here although QuantizeMx takes them (D26).
MX_ROWS = (32, 64, 128)
QUANTIZE_CHANNELS = (32, 64, 96, 128)
MX_MAX_STATIONARY = 512
"""Logical elements of one stationary row: 128 columns of four."""


def require(arch: Arch, first: Arch, feature: str) -> None:
    """Refuse a feature on a generation before its first.

    Raises:
      CapabilityError: naming the first generation that has it.
    """
    if arch < first:
        raise CapabilityError(feature, arch.label, first.label)
