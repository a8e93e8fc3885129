"""Projections of the tables: the byte map of a bundle as data, and of a record as Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hardware.arch import Arch, ArchLike
from hardware.evidence import Evidence
from hardware.opcodes import BUNDLE_BYTES
from hardware.pe import LANE_GROUPS, AccumulateFlag, Fp32Mode, PerfMode

from .address import Addr4
from .bundle import match_layout, split
from .codec import FAMILIES, Layout, leaf_problem
from .errors import DecodeError, shown
from .rows import Kind, Leaf, values_of

_LANES = {"row_group": "rows", "col_group": "columns"}
_MODES = {"perf_mode": PerfMode, "fp32_mode": Fp32Mode}


@dataclass(frozen=True, slots=True)
class FieldRow:
    """One line of a byte map, with the value found when it describes actual bytes.

    Attributes:
      offset: byte offset in the bundle.
      bit: first bit inside that byte.
      bits: width in bits.
      field: dotted path.
      kind: how the bits are read.
      raw: the bits as an unsigned integer; None in the map of a class.
      value: the value as text; empty in the map of a class.
      meaning: what the field says.
      legal: what the wire validator takes, as text.
      evidence: how well the row is known.
      source: title of the page it comes from.
      problem: why the bits cannot be decoded, or empty.
    """

    offset: int
    bit: int
    bits: int
    field: str
    kind: Kind
    raw: int | None
    value: str
    meaning: str
    legal: str
    evidence: Evidence
    source: str
    problem: str = ""

    @property
    def hex(self) -> str:
        """The field's bytes in wire order, or its bits when it is narrower than a byte."""
        if self.raw is None:
            return ""
        if self.bits % 8 or self.bit:
            return f"0b{self.raw:0{self.bits}b}"
        return self.raw.to_bytes(self.bits // 8, "little").hex(" ")


def byte_map(data: Any, arch: ArchLike = Arch.MARIANA) -> list[FieldRow]:
    """Describe every bit of one bundle, in wire order.

    Bits that cannot be decoded are described too, with the reason in ``problem``; only an unknown
    opcode or a wrong length is refused.

    Raises:
      DecodeError: when the data is not one bundle of a known opcode.
    """
    chunks = split(data)
    if len(chunks) != 1:
        raise DecodeError("length", 0, len(chunks) * BUNDLE_BYTES, f"{BUNDLE_BYTES} bytes")
    layout = match_layout(chunks[0], Arch.parse(arch))
    word = int.from_bytes(chunks[0], "little")
    return [_describe(leaf, word) for leaf in layout.leaves]


def fields(record: type | Layout, arch: ArchLike = Arch.MARIANA) -> list[FieldRow]:
    """Describe the table of a record class (or of one of its layouts), descriptors opened."""
    return [_describe(leaf, None) for leaf in _layout(record, arch).leaves]


def _layout(record: type | Layout, arch: ArchLike) -> Layout:
    return record if isinstance(record, Layout) else FAMILIES[record, Arch.parse(arch)].layouts[0]


def markdown(record: type | Layout, arch: ArchLike = Arch.MARIANA) -> str:
    """Return the byte map of a record class (or of one of its layouts) as a Markdown table."""
    lines = [
        "| offset | bits | field | meaning | legal | evidence | source |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in fields(record, arch):
        span = f"{row.bits}" + (f" at bit {row.bit}" if row.bit or row.bits % 8 else "")
        lines.append(
            f"| {row.offset:#04x} | {span} | {row.field} | {row.meaning} | {row.legal} "
            f"| {row.evidence.name} | {row.source} |"
        )
    return "\n".join(lines) + "\n"


def coverage(record: type | Layout, arch: ArchLike = Arch.MARIANA) -> dict[int, str]:
    """Return which leaf owns each bit of a record class or of one of its layouts."""
    owners: dict[int, str] = {}
    for leaf in _layout(record, arch).leaves:
        owners |= dict.fromkeys(range(leaf.lo, leaf.lo + leaf.row.width), leaf.path)
    return owners


def _describe(leaf: Leaf, word: int | None) -> FieldRow:
    row = leaf.row
    problem = leaf_problem(leaf, word, strict=True) if word is not None else None
    return FieldRow(
        offset=leaf.offset,
        bit=leaf.lo % 8,
        bits=row.width,
        field=leaf.path,
        kind=row.kind,
        raw=None if word is None else leaf.raw(word),
        value="" if word is None else _value(leaf, word),
        meaning=row.doc,
        legal=legal_text(leaf),
        evidence=row.evidence,
        source=row.source,
        problem=f"allowed {problem.allowed}" if problem else "",
    )


def _value(leaf: Leaf, word: int) -> str:
    row, raw = leaf.row, leaf.raw(word)
    if row.kind is Kind.ADDRESS:
        return str(Addr4(raw))
    if row.enum is not None:
        known = {int(member): member.name for member in row.enum}
        return known.get(raw, f"{raw:#x}")
    if row.name == "accumulate_flags":
        named = AccumulateFlag(raw & 7).name if raw & 7 else None
        return f"{raw} ({named})" if named else f"{raw} (add)"
    if row.name in _LANES and raw in LANE_GROUPS:
        group = LANE_GROUPS[raw]
        return f"{raw} ({_LANES[row.name]} {group.start}..{group.start + group.lanes - 1})"
    if row.name in _MODES and raw in values_of(_MODES[row.name]):
        return f"{raw} ({_MODES[row.name](raw).name})"
    return str(leaf.number(word))


def legal_text(leaf: Leaf) -> str:
    """Return what a field may hold on the wire, as text."""
    row = leaf.row
    if row.kind is Kind.CONST:
        return f"{row.value:#x}"
    if row.kind is Kind.RESERVED:
        return "0"
    if row.legal is None:
        return "" if row.kind is Kind.ADDRESS else f"{row.lowest}..{row.highest}"
    return allowed_text(row.legal, row.enum)


def allowed_text(legal: Any, enum: Any = None) -> str:
    """Return a collection of values as text: a range by its ends, the rest one by one."""
    if isinstance(legal, range):
        return f"{legal.start}..{legal.stop - 1}"
    if enum is not None:
        return ", ".join(f"{enum(v).name} ({int(v):#x})" for v in legal)
    return ", ".join(shown(int(v)) for v in legal)
