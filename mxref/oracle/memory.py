"""On-chip memory as bytes and, beside every byte, whether anything wrote it.

Geometry of the fourth generation, as its own numbers: 128 partitions, 256 KiB of SBUF and eight
2048-byte PSUM banks each.  Source: "SBUF / PSUM Bank Geometry"; D13, D25a.
"""

from __future__ import annotations

from mxref.errors import AddressError

PARTITIONS = 128
PARTITION_BYTES = {"SBUF": 0x40000, "PSUM": 0x4000}


class Memory:
    """SBUF and PSUM.  Only partitions that something wrote take up space.

    Attributes:
      data: bytes by (space, partition); absent means nothing was written.
      flags: one byte for each byte of ``data``, 1 where it was written.
    """

    def __init__(self) -> None:
        self.data: dict[tuple[str, int], bytearray] = {}
        self.flags: dict[tuple[str, int], bytearray] = {}

    def copy(self) -> Memory:
        """An independent copy."""
        other = Memory()
        other.data = {key: bytearray(value) for key, value in self.data.items()}
        other.flags = {key: bytearray(value) for key, value in self.flags.items()}
        return other

    def _range(self, space: str, partition: int, offset: int, count: int) -> slice:
        if space not in PARTITION_BYTES:
            raise AddressError(space, offset, "spaces SBUF and PSUM")
        if not 0 <= partition < PARTITIONS:
            raise AddressError(space, partition, f"partitions 0..{PARTITIONS - 1}")
        limit = PARTITION_BYTES[space]
        if offset < 0 or count < 0 or offset + count > limit:
            raise AddressError(space, offset, f"{count} bytes inside 0..{limit - 1:#x}")
        return slice(offset, offset + count)

    def write(self, space: str, partition: int, offset: int, data: bytes) -> None:
        """Store bytes inside one partition and mark them written."""
        where = self._range(space, partition, offset, len(data))
        key = (space, partition)
        if key not in self.data:
            self.data[key] = bytearray(PARTITION_BYTES[space])
            self.flags[key] = bytearray(PARTITION_BYTES[space])
        self.data[key][where] = data
        self.flags[key][where] = b"\x01" * len(data)

    def read(self, space: str, partition: int, offset: int, count: int) -> bytes:
        """Load bytes of one partition; unwritten bytes read as 0, ask :meth:`written`."""
        where = self._range(space, partition, offset, count)
        key = (space, partition)
        return bytes(self.data[key][where]) if key in self.data else bytes(count)

    def written(self, space: str, partition: int, offset: int, count: int) -> bool:
        """Whether every one of the bytes was written."""
        where = self._range(space, partition, offset, count)
        key = (space, partition)
        return key in self.flags and all(self.flags[key][where])
