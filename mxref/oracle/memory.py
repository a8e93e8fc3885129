"""On-chip memory as bytes and, beside every byte, whether anything wrote it.

Geometry of the fourth generation, as its own numbers: 128 partitions, 256 KiB of SBUF and eight
2048-byte PSUM banks each.  Source: "SBUF / PSUM Bank Geometry"; D13, D25a.
"""

from __future__ import annotations

from mxref.errors import AddressError

PARTITIONS = 128
PARTITION_BYTES = {"SBUF": 0x40000, "PSUM": 0x4000}


class Memory:
    """SBUF and PSUM, one dictionary entry for every byte that something wrote."""

    def __init__(self) -> None:
        self._bytes: dict[tuple[str, int], dict[int, int]] = {
            (space, partition): {} for space in PARTITION_BYTES for partition in range(PARTITIONS)
        }

    def copy(self) -> Memory:
        """An independent copy."""
        other = Memory()
        other._bytes = {key: dict(value) for key, value in self._bytes.items()}
        return other

    def _partition(self, space: str, partition: int, offset: int, count: int) -> dict[int, int]:
        if space not in PARTITION_BYTES:
            raise AddressError(space, offset, "spaces SBUF and PSUM")
        if not 0 <= partition < PARTITIONS:
            raise AddressError(space, partition, f"partitions 0..{PARTITIONS - 1}")
        limit = PARTITION_BYTES[space]
        if offset < 0 or count < 0 or offset + count > limit:
            raise AddressError(space, offset, f"{count} bytes inside 0..{limit - 1:#x}")
        return self._bytes[space, partition]

    def write(self, space: str, partition: int, offset: int, data: bytes) -> None:
        """Store bytes inside one partition."""
        held = self._partition(space, partition, offset, len(data))
        held.update(enumerate(data, offset))

    def read(self, space: str, partition: int, offset: int, count: int) -> bytes:
        """Load bytes of one partition; unwritten bytes read as 0, ask :meth:`written`."""
        held = self._partition(space, partition, offset, count)
        return bytes([held.get(at, 0) for at in range(offset, offset + count)])

    def forget(self, space: str, partition: int, offset: int, count: int) -> None:
        """Make bytes as if nothing had written them."""
        held = self._partition(space, partition, offset, count)
        for at in range(offset, offset + count):
            held.pop(at, None)

    def written(self, space: str, partition: int, offset: int, count: int) -> bool:
        """Whether every one of the bytes was written."""
        held = self._partition(space, partition, offset, count)
        return all(at in held for at in range(offset, offset + count))
