"""The rows of a byte map and the words that declare them.

Bytes are little-endian, bit 0 is the least significant bit, and ``lo`` counts bits from the first
byte of the record.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import cache
from typing import Any, Final, Literal

from hardware.evidence import Evidence

from .address import INDIRECT_BIT, SHAPE_REGISTER_BIT

REQUIRED: Final = object()
"""Default of a field that must be given."""


class Kind(Enum):
    """How the bits of a row are read."""

    UINT = "unsigned"
    SINT = "signed"
    FLAG = "flag"
    CODED = "enumeration"
    ADDRESS = "address word"
    RECORD = "record"
    CONST = "constant"
    RESERVED = "reserved"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a byte map."""

    kind: Kind
    lo: int
    width: int
    doc: str
    evidence: Evidence
    source: str
    name: str = ""
    default: Any = REQUIRED
    value: int = 0
    enum: type[IntEnum] | None = None
    record: type | None = None
    legal: Collection[int] | None = None
    unless: str = ""
    gather: bool = True

    @property
    def lowest(self) -> int:
        """Smallest value that fits."""
        return -(1 << (self.width - 1)) if self.kind is Kind.SINT else 0

    @property
    def highest(self) -> int:
        """Largest value that fits."""
        return (1 << (self.width - (self.kind is Kind.SINT))) - 1


def bits(
    offset: int,
    *,
    doc: str,
    source: str = "",
    evidence: Evidence = Evidence.CONFIRMED,
    width: int = 8,
    bit: int = 0,
    signed: bool = False,
    default: Any = REQUIRED,
    legal: Collection[int] | None = None,
    unless: str = "",
) -> Any:
    """Declare an integer; ``legal`` is what the wire validator takes, waived by ``unless``."""
    kind = Kind.SINT if signed else Kind.UINT
    return Row(
        kind, offset * 8 + bit, width, doc, evidence, source,
        default=default, legal=legal, unless=unless,
    )  # fmt: skip


def flag(
    offset: int,
    *,
    bit: int,
    doc: str,
    source: str = "",
    evidence: Evidence = Evidence.CONFIRMED,
    default: Any = REQUIRED,
) -> Any:
    """Declare one bit that reads as a boolean."""
    return Row(Kind.FLAG, offset * 8 + bit, 1, doc, evidence, source, default=default)


def coded(
    offset: int,
    enum: type[IntEnum],
    *,
    doc: str,
    source: str = "",
    evidence: Evidence = Evidence.CONFIRMED,
    legal: Collection[int] | None = None,
    default: Any = REQUIRED,
) -> Any:
    """Declare a byte whose values are the members of an enumeration."""
    return Row(
        Kind.CODED, offset * 8, 8, doc, evidence, source, default=default, enum=enum, legal=legal
    )


def address(
    offset: int,
    *,
    doc: str,
    source: str = "",
    evidence: Evidence = Evidence.CONFIRMED,
    gather: bool = True,
) -> Any:
    """Declare an address word; ``gather=False`` where the marker would announce another layout."""
    return Row(Kind.ADDRESS, offset * 8, 32, doc, evidence, source, gather=gather)


def nested(
    offset: int,
    record: type,
    *,
    doc: str,
    source: str = "",
    evidence: Evidence = Evidence.CONFIRMED,
) -> Any:
    """Declare an operand descriptor inside a bundle."""
    # The width follows from the nested record's own table when the outer record is made.
    return Row(Kind.RECORD, offset * 8, 0, doc, evidence, source, record=record)


def const(
    offset: int,
    value: int,
    *,
    doc: str,
    source: str = "",
    evidence: Evidence = Evidence.CONFIRMED,
    width: int = 8,
    bit: int = 0,
    init: Literal[False] = False,
) -> Any:
    """Declare bits that always hold ``value``; the class carries it as an attribute."""
    return Row(Kind.CONST, offset * 8 + bit, width, doc, evidence, source, value=value)


def reserved(
    offset: int,
    *,
    width: int,
    source: str = "",
    evidence: Evidence = Evidence.INFERRED,
    doc: str = "reserved, zero",
    init: Literal[False] = False,
) -> Any:
    """Declare ``width`` bytes that strict decoding requires to be zero."""
    return Row(Kind.RESERVED, offset * 8, width * 8, doc, evidence, source)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A row of the outermost record, nested records opened: dotted path and absolute bits."""

    path: str
    lo: int
    row: Row

    @property
    def offset(self) -> int:
        """Byte offset in the outermost record."""
        return self.lo // 8

    @property
    def mask(self) -> int:
        """The leaf's bits in the record read as one little-endian integer."""
        return ((1 << self.row.width) - 1) << self.lo

    def raw(self, word: int) -> int:
        """Return the leaf's bits of a record read as one little-endian integer."""
        return word >> self.lo & (1 << self.row.width) - 1

    def number(self, word: int) -> int:
        """Return the leaf's bits with their sign, if the row has one."""
        raw = self.raw(word)
        return raw - (1 << self.row.width) if raw > self.row.highest else raw


GATHER_REFUSAL = (
    f"a word whose bits 29 and 30 are not the gather marker "
    f"(word & {INDIRECT_BIT | SHAPE_REGISTER_BIT:#x} != {INDIRECT_BIT:#x}): "
    f"gather descriptors have another layout"
)


@cache
def values_of(enum: type[IntEnum]) -> frozenset[int]:
    """Return the numbers of an enumeration."""
    return frozenset(int(member) for member in enum)


@cache
def members(enum: type[IntEnum]) -> str:
    """Return the members of an enumeration as error messages list them."""
    return ", ".join(f"{int(m):#x} ({m.name})" for m in enum)
