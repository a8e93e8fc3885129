"""ADDR4, the 32-bit address word that opens every operand.

Bits 0..28 are a byte address (bit 25 set: the PSUM window), bit 29 marks the index vector of a
gather, bit 30 a shape held in a register, bit 31 an address held in a register.
Source: "ADDR4 - the 32-Bit Address Word".
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import index

from hardware.errors import AddressError
from hardware.memory import (
    PSUM_BANK_BYTES,
    PSUM_BANKS,
    PSUM_BASE,
    PSUM_END,
    PSUM_PARTITION_STRIDE,
    REGISTERS,
    SBUF_END,
    SBUF_PARTITION_STRIDE,
    Space,
    psum_address,
    sbuf_address,
    scale_address,
)

from .errors import EncodeError

ADDRESS_MASK = 0x1FFF_FFFF
INDIRECT_BIT = 0x2000_0000
SHAPE_REGISTER_BIT = 0x4000_0000
REGISTER_BIT = 0x8000_0000


@dataclass(frozen=True, slots=True, order=True)
class Addr4:
    """A 32-bit address word, kept exactly as it is on the wire."""

    word: int

    def __post_init__(self) -> None:
        try:
            word = index(self.word)
        except TypeError:
            raise EncodeError("Addr4", "word", self.word, "an integer 0..0xffffffff") from None
        if not 0 <= word <= 0xFFFF_FFFF:
            raise EncodeError("Addr4", "word", word, "0..0xffffffff")
        object.__setattr__(self, "word", word)

    @classmethod
    def sbuf(cls, partition: int, offset: int = 0) -> Addr4:
        """Return the word of byte ``offset`` of an SBUF partition."""
        return cls(sbuf_address(partition, offset))

    @classmethod
    def psum(cls, partition: int, bank: int, offset: int = 0) -> Addr4:
        """Return the word of byte ``offset`` of a bank of a PSUM partition."""
        return cls(psum_address(partition, bank, offset))

    @classmethod
    def scale(cls, partition: int, offset: int = 0) -> Addr4:
        """Return the word of an MX scale: the quadrant of ``partition`` and a byte offset.

        The partition inside the quadrant travels in the scale partition byte instead (D25b).
        """
        return cls(scale_address(partition, offset))

    @classmethod
    def register(cls, number: int) -> Addr4:
        """Return the word that takes the address from a register."""
        if not 0 <= number < REGISTERS:
            raise AddressError("address", number, f"0..{REGISTERS - 1}", "register")
        return cls(REGISTER_BIT | number)

    @property
    def address(self) -> int:
        """The 29-bit byte address."""
        return self.word & ADDRESS_MASK

    @property
    def is_register(self) -> bool:
        """Whether the address comes from a register (bit 31)."""
        return bool(self.word & REGISTER_BIT)

    @property
    def is_indirect(self) -> bool:
        """Whether the word marks the index vector of a gather (bit 29)."""
        return bool(self.word & INDIRECT_BIT)

    @property
    def is_shape_register(self) -> bool:
        """Whether the shape comes from a register (bit 30)."""
        return bool(self.word & SHAPE_REGISTER_BIT)

    @property
    def is_gather(self) -> bool:
        """Whether validators read the descriptor as a gather: bits 29 and 30 are 1 and 0."""
        return self.word & (INDIRECT_BIT | SHAPE_REGISTER_BIT) == INDIRECT_BIT

    @property
    def space(self) -> Space | None:
        """The memory that the address names; None for a register or an unmapped address."""
        if self.is_register:
            return None
        if self.address < SBUF_END:
            return Space.SBUF
        return Space.PSUM if PSUM_BASE <= self.address < PSUM_END else None

    @property
    def partition(self) -> int:
        """The partition of the address.

        Raises:
          AddressError: when the word names no memory.
        """
        return self._split()[0]

    @property
    def offset(self) -> int:
        """The byte inside the partition; for PSUM bank and offset together.

        Raises:
          AddressError: when the word names no memory.
        """
        return self._split()[1]

    @property
    def bank(self) -> int:
        """The PSUM bank of the address.

        Raises:
          AddressError: when the word does not name PSUM.
        """
        if self.space is not Space.PSUM:
            raise AddressError("PSUM", self.word, f"{PSUM_BASE:#x}..{PSUM_END - 1:#x}")
        return self.offset // PSUM_BANK_BYTES

    def _split(self) -> tuple[int, int]:
        if self.space is Space.SBUF:
            return divmod(self.address, SBUF_PARTITION_STRIDE)
        if self.space is Space.PSUM:
            return divmod(self.address - PSUM_BASE, PSUM_PARTITION_STRIDE)
        raise AddressError("memory", self.word, "a static SBUF or PSUM address")

    def __str__(self) -> str:
        if self == Addr4(REGISTER_BIT | self.word & (REGISTERS - 1)):
            return f"register({self.word & (REGISTERS - 1)})"
        if self.word == self.address and self.space is Space.SBUF:
            return f"sbuf({self.partition}, {self.offset:#x})"
        if self.word == self.address and self.space is Space.PSUM and self.bank < PSUM_BANKS:
            return f"psum({self.partition}, {self.bank}, {self.offset % PSUM_BANK_BYTES:#x})"
        return f"word({self.word:#010x})"

    def __repr__(self) -> str:
        return f"Addr4({self.word:#010x})"
