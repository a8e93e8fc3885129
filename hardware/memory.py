"""On-chip memories: sizes, strides and the address formulas of the 32-bit address word.

Sources: "SBUF / PSUM Bank Geometry", "Per-Generation Hardware-Constant Matrix" and "ADDR4 - the
32-Bit Address Word".  Bank count and size follow D13.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from .arch import Arch, ArchLike
from .errors import AddressError


class Space(Enum):
    """An on-chip memory."""

    SBUF = "SBUF"
    """The state buffer: operands and results, 128 partitions."""
    PSUM = "PSUM"
    """The accumulation memory of the PE array, 128 partitions of 8 banks."""

    def __repr__(self) -> str:
        return f"Space.{self.name}"


PARTITIONS = 128
QUADRANT_PARTITIONS = 32
QUADRANTS = PARTITIONS // QUADRANT_PARTITIONS

# Address map, the same on every generation here: a 29-bit byte address.
SBUF_PARTITION_SHIFT = 18
SBUF_PARTITION_STRIDE = 1 << SBUF_PARTITION_SHIFT
SBUF_END = PARTITIONS * SBUF_PARTITION_STRIDE
PSUM_BASE = 0x200_0000
PSUM_PARTITION_SHIFT = 15
PSUM_PARTITION_STRIDE = 1 << PSUM_PARTITION_SHIFT
PSUM_END = PSUM_BASE + PARTITIONS * PSUM_PARTITION_STRIDE
PSUM_BANK_SHIFT = 11
PSUM_BANK_BYTES = 1 << PSUM_BANK_SHIFT
PSUM_BANKS = 8
PSUM_BYTES = PSUM_BANKS * PSUM_BANK_BYTES

# The mask that the compiler applies to a scale's partition term: only the quadrant survives.
SCALE_PARTITION_MASK = 0xFF80_0000
REGISTERS = 64


@dataclass(frozen=True, slots=True)
class Geometry:
    """Populated bytes per partition of one generation."""

    sbuf_bytes: int
    psum_bytes: int
    psum_bank_bytes: int
    psum_banks: int
    partitions: int = PARTITIONS


_GEOMETRY = {
    Arch.SUNDA: Geometry(0x30000, PSUM_BYTES, PSUM_BANK_BYTES, PSUM_BANKS),
    Arch.CAYMAN: Geometry(0x38000, PSUM_BYTES, PSUM_BANK_BYTES, PSUM_BANKS),
    Arch.MARIANA: Geometry(0x40000, PSUM_BYTES, PSUM_BANK_BYTES, PSUM_BANKS),
}


def geometry(arch: ArchLike) -> Geometry:
    """Return the memory sizes of a generation."""
    return _GEOMETRY[Arch.parse(arch)]


def quadrant(partition: int) -> int:
    """Return which 32-partition quadrant a partition lies in."""
    return partition // QUADRANT_PARTITIONS


def _bounded(space: str, value: int, limit: int, what: str) -> int:
    if not 0 <= value < limit:
        last = f"{limit - 1:#x}" if "offset" in what else f"{limit - 1}"
        raise AddressError(space, value, f"0..{last}", what)
    return value


def sbuf_address(partition: int, offset: int) -> int:
    """Return the byte address ``(partition << 18) + offset``.

    Raises:
      AddressError: when either part leaves the SBUF window.
    """
    _bounded("SBUF", partition, PARTITIONS, "partition")
    _bounded("SBUF", offset, SBUF_PARTITION_STRIDE, "offset")
    return (partition << SBUF_PARTITION_SHIFT) + offset


def psum_address(partition: int, bank: int, offset: int) -> int:
    """Return the byte address ``0x2000000 + (partition << 15) + (bank << 11) + offset``.

    Raises:
      AddressError: when a part leaves the populated banks.
    """
    _bounded("PSUM", partition, PARTITIONS, "partition")
    _bounded("PSUM", bank, PSUM_BANKS, "bank")
    _bounded("PSUM", offset, PSUM_BANK_BYTES, "offset in the bank")
    return PSUM_BASE + (partition << PSUM_PARTITION_SHIFT) + (bank << PSUM_BANK_SHIFT) + offset


def scale_address(partition: int, offset: int) -> int:
    """Return the address of a scale row: the quadrant's base partition and the byte offset.

    The partition inside the quadrant does not fit here; it travels in the descriptor's scale
    partition byte (D3).

    Raises:
      AddressError: when either part leaves the SBUF window.
    """
    _bounded("SBUF", partition, PARTITIONS, "partition")
    _bounded("SBUF", offset, SBUF_PARTITION_STRIDE, "offset")
    return ((partition << SBUF_PARTITION_SHIFT) & SCALE_PARTITION_MASK) + offset
