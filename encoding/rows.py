"""The rows of a byte map and the words that declare them.

Bytes are little-endian, bit 0 is the least significant bit, and ``lo`` counts bits from the first
byte of the record.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from functools import cache
from typing import Any, Final, Literal, TypeAlias

from hardware.arch import Arch
from hardware.evidence import Evidence

from .address import INDIRECT_BIT, SHAPE_REGISTER_BIT

REQUIRED: Final = object()
"""Default of a field that must be given."""


Legal: TypeAlias = "Collection[int] | Mapping[Arch, Collection[int]]"
"""What the wire validator takes: values, or values by generation."""


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
    """One line of a byte map.

    ``since`` and ``until`` bound the generations that have the row; on the others its bits are
    reserved, and ``absent`` names the field that is missing.  ``others`` are the descriptors that
    may stand in the slot instead of ``record``, told apart by the gather marker.  ``fill`` is what
    the constructor takes for a field that text and columns always state.
    """

    kind: Kind
    lo: int
    width: int
    doc: str
    evidence: Evidence
    source: str
    name: str = ""
    default: Any = REQUIRED
    fill: Any = REQUIRED
    value: int = 0
    enum: type[IntEnum] | None = None
    record: type | None = None
    legal: Any = None
    unless: str = ""
    gather: bool = True
    index: bool = False
    others: tuple[type, ...] = ()
    since: Arch = Arch.SUNDA
    until: Arch = Arch.MARIANA
    absent: str = ""

    @property
    def records(self) -> tuple[type, ...]:
        """The descriptors that may stand in this slot."""
        return () if self.record is None else (self.record, *self.others)

    def on(self, arch: Arch) -> Row:
        """Return the row as a generation has it: itself, or reserved bits in its place."""
        if self.since <= arch <= self.until:
            legal = self.legal
            return replace(self, legal=legal[arch]) if isinstance(legal, Mapping) else self
        at, bit = divmod(self.lo, 8)
        return Row(
            Kind.RESERVED, self.lo, self.width, "reserved, zero on this generation", self.evidence,
            self.source, name=f"reserved_{at:02x}" + (f"_{bit}" if bit else ""),
            default=self.default, absent=self.name,
        )  # fmt: skip

    @property
    def generations(self) -> str:
        """The generations that have the row, as messages name them."""
        if self.since is Arch.SUNDA:
            return self.until.label if self.until is Arch.SUNDA else f"up to {self.until.label}"
        return self.since.label

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
    legal: Legal | None = None,
    unless: str = "",
    since: Arch = Arch.SUNDA,
    until: Arch = Arch.MARIANA,
    stated: bool = False,
) -> Any:
    """Declare an integer; ``legal`` is what the wire validator takes, waived by ``unless``.

    The default of a ``stated`` field is the constructor's alone: text and columns always state it.
    """
    kind = Kind.SINT if signed else Kind.UINT
    return Row(
        kind, offset * 8 + bit, width, doc, evidence, source,
        default=REQUIRED if stated else default, fill=default,
        legal=legal, unless=unless, since=since, until=until,
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
    legal: Legal | None = None,
    default: Any = REQUIRED,
    since: Arch = Arch.SUNDA,
    until: Arch = Arch.MARIANA,
) -> Any:
    """Declare a byte whose values are the members of an enumeration."""
    return Row(
        Kind.CODED, offset * 8, 8, doc, evidence, source,
        default=default, enum=enum, legal=legal, since=since, until=until,
    )  # fmt: skip


def address(
    offset: int,
    *,
    doc: str,
    source: str = "",
    evidence: Evidence = Evidence.CONFIRMED,
    gather: bool = True,
    index: bool = False,
) -> Any:
    """Declare an address word.

    ``gather=False`` where the gather marker would announce another layout, ``index=True`` where it
    must stand because it announces this one.
    """
    return Row(Kind.ADDRESS, offset * 8, 32, doc, evidence, source, gather=gather, index=index)


def nested(
    offset: int,
    record: type,
    *others: type,
    doc: str,
    source: str = "",
    evidence: Evidence = Evidence.CONFIRMED,
) -> Any:
    """Declare an operand descriptor inside a bundle, with those that may stand in its place."""
    # The width follows from the nested record's own table when the outer record is made.
    return Row(Kind.RECORD, offset * 8, 0, doc, evidence, source, record=record, others=others)


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
    width: int = 0,
    bit: int = 0,
    bits: int = 0,
    source: str = "",
    evidence: Evidence = Evidence.INFERRED,
    doc: str = "reserved, zero",
    init: Literal[False] = False,
) -> Any:
    """Declare ``width`` bytes (or ``bits`` from ``bit`` on) that must be zero on the wire."""
    return Row(Kind.RESERVED, offset * 8 + bit, width * 8 + bits, doc, evidence, source)


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


INDEX_REFUSAL = (
    f"a word with the gather marker "
    f"(word & {INDIRECT_BIT | SHAPE_REGISTER_BIT:#x} == {INDIRECT_BIT:#x})"
)
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
