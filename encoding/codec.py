"""Build the codec of a record from its rows, once, when the class is made.

One decode is a struct unpack, one masked compare that proves every constant and reserved bit, and
the slot stores; a failure takes the slow path, :meth:`Layout.problems`, which reads the same rows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .address import INDIRECT_BIT, SHAPE_REGISTER_BIT, Addr4
from .rows import GATHER_REFUSAL, Kind, Leaf, Row, members, values_of

_STRUCT_CODE = {8: "B", 16: "H", 32: "I", 64: "Q"}
_MARKER = INDIRECT_BIT | SHAPE_REGISTER_BIT


@dataclass(frozen=True, slots=True)
class Problem:
    """Why bytes are not a record: the leaf, what it holds, what is allowed."""

    leaf: Leaf
    got: int
    allowed: str


@dataclass(frozen=True, slots=True)
class Layout:
    """Everything derived from the rows of one record class."""

    record: type
    size: int
    rows: tuple[Row, ...]
    leaves: tuple[Leaf, ...]
    const_mask: int
    const_match: int
    reserved_mask: int
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes, int], Any]

    @property
    def opcode(self) -> int:
        """The constant of the first byte; -1 for a record that is no bundle."""
        first = self.rows[0]
        return first.value if first.kind is Kind.CONST and first.lo == 0 else -1

    def problems(self, word: int, strict: bool = True) -> Iterator[Problem]:
        """Yield every reason why the record cannot be decoded, in wire order."""
        for leaf in self.leaves:
            problem = leaf_problem(leaf, word, strict)
            if problem is not None:
                yield problem


LAYOUTS: dict[type, Layout] = {}
"""The layout of every record class."""


def rows_of(cls: type) -> tuple[Row, ...]:
    """Return the rows of a record class in wire order; nothing for any other class."""
    layout = LAYOUTS.get(cls)
    return layout.rows if layout else ()


def leaves_of(cls: type) -> tuple[Leaf, ...]:
    """Return the rows of a record class with nested records opened, in wire order."""
    return LAYOUTS[cls].leaves


def leaf_problem(leaf: Leaf, word: int, strict: bool) -> Problem | None:
    """Return why one leaf cannot be decoded, if so."""
    row, raw = leaf.row, leaf.raw(word)
    if row.kind is Kind.CONST and raw != row.value:
        return Problem(leaf, raw, f"{row.value:#x}")
    if row.kind is Kind.RESERVED and raw and strict:
        return Problem(leaf, raw, "0")
    if row.enum is not None and raw not in values_of(row.enum):
        return Problem(leaf, raw, members(row.enum))
    if not row.gather and raw & _MARKER == INDIRECT_BIT:
        return Problem(leaf, raw, GATHER_REFUSAL)
    return None


def build_layout(cls: type, size: int, rows: list[Row], partial: bool) -> Layout:
    """Prove that the rows cover the record once, and generate its codec.

    Raises:
      TypeError: when rows overlap, leave the record, or (unless ``partial``) leave a bit unnamed.
    """
    rows = sorted(rows, key=lambda row: row.lo)
    leaves: list[Leaf] = []
    for row in rows:
        if row.record is None:
            leaves.append(Leaf(row.name, row.lo, row))
            continue
        leaves += [
            Leaf(f"{row.name}.{inner.path}", row.lo + inner.lo, inner.row)
            for inner in leaves_of(row.record)
        ]
    covered = 0
    for leaf in leaves:
        if covered & leaf.mask:
            raise TypeError(f"{cls.__name__}.{leaf.path} at byte {leaf.offset:#x} overlaps")
        covered |= leaf.mask
    full = (1 << 8 * size) - 1
    if covered & ~full:
        raise TypeError(f"{cls.__name__} has rows beyond its {size} bytes")
    if covered != full and not partial:
        hole = (~covered & full & -(~covered & full)).bit_length() - 1
        raise TypeError(f"{cls.__name__} leaves bit {hole % 8} of byte {hole // 8:#x} unnamed")
    constants = [leaf for leaf in leaves if leaf.row.kind is Kind.CONST]
    reserved = sum(leaf.mask for leaf in leaves if leaf.row.kind is Kind.RESERVED)
    match = sum(leaf.row.value << leaf.lo for leaf in constants)
    fields = [leaf for leaf in leaves if leaf.row.kind not in (Kind.CONST, Kind.RESERVED)]
    encode, decode = _generate(cls, size, rows, fields, match, reserved)
    return Layout(
        cls, size, tuple(rows), tuple(leaves), sum(leaf.mask for leaf in constants), match,
        reserved, encode, decode,
    )  # fmt: skip


def _generate(
    cls: type, size: int, rows: list[Row], fields: list[Leaf], match: int, reserved: int
) -> tuple[Callable[[Any], bytes], Callable[[bytes, int], Any]]:
    """Write and compile ``encode(record)`` and ``decode(data, word)`` of one class."""
    pattern, at, packed, spread = "<", 0, list[Leaf](), list[Leaf]()
    for leaf in fields:
        if leaf.lo % 8 or leaf.row.width not in _STRUCT_CODE:
            spread.append(leaf)
            continue
        code = _STRUCT_CODE[leaf.row.width]
        pattern += f"{leaf.offset - at}x" + (code.lower() if leaf.row.kind is Kind.SINT else code)
        at = leaf.offset + leaf.row.width // 8
        packed.append(leaf)
    wire = struct.Struct(pattern + f"{size - at}x")
    scope: dict[str, Any] = {
        "pack": wire.pack, "unpack": wire.unpack, "Addr4": Addr4, "new": object.__new__,
        "store_word": _slot(Addr4, "word"), "from_bytes": int.from_bytes,
    }  # fmt: skip
    names = {leaf.path: f"v{i}" for i, leaf in enumerate(packed)}

    def value(leaf: Leaf) -> str:
        return f"self.{leaf.path}" + (".word" if leaf.row.kind is Kind.ADDRESS else "")

    extra = [f"({value(leaf)} << {leaf.lo} & {leaf.mask:#x})" for leaf in spread]
    if match:
        extra.append(f"{match:#x}")
    has_residue = "residue" in dir(cls)
    if has_residue:
        extra.append("self.residue")
    lines = ["def encode(self):", f"    data = pack({', '.join(value(leaf) for leaf in packed)})"]
    if extra:
        lines.append(f"    word = from_bytes(data, 'little') | {' | '.join(extra)}")
        lines.append(f"    data = word.to_bytes({size}, 'little')")
    lines += ["    return data", "", "def decode(data, word):"]
    if packed:
        lines.append(f"    {', '.join(names.values())}, = unpack(data)")
    for i, leaf in enumerate(spread):
        names[leaf.path] = f"s{i}"
        sign = 1 << leaf.row.width - 1 if leaf.row.kind is Kind.SINT else 0
        mask = (1 << leaf.row.width) - 1
        lines.append(f"    s{i} = ((word >> {leaf.lo} & {mask:#x}) ^ {sign}) - {sign}")
    lines += _build(cls, "made", rows, "", names, scope)
    if has_residue:
        scope["store_residue"] = _slot(cls, "residue")
        lines.append(f"    store_residue(made, word & {reserved:#x})")
    lines.append("    return made")
    exec(compile("\n".join(lines), f"<codec of {cls.__name__}>", "exec"), scope)
    return scope["encode"], scope["decode"]


def _build(
    cls: type,
    target: str,
    rows: list[Row],
    prefix: str,
    names: dict[str, str],
    scope: dict[str, Any],
) -> list[str]:
    """Return the lines that make ``target`` and store its fields, nested records first."""
    scope[f"class_{target}"] = cls
    lines = [f"    {target} = new(class_{target})"]
    for row in rows:
        if row.kind in (Kind.CONST, Kind.RESERVED):
            continue
        path, store = prefix + row.name, f"store_{target}_{row.name}"
        scope[store] = _slot(cls, row.name)
        raw = names.get(path, "")
        if row.record is not None:
            raw = f"{target}_{row.name}"
            lines += _build(row.record, raw, list(rows_of(row.record)), path + ".", names, scope)
        elif row.kind is Kind.ADDRESS:
            raw = f"{target}_{row.name}"
            if not row.gather:
                # KeyError is the one signal of the fast path; the caller asks problems() for more.
                lines.append(f"    if {names[path]} & {_MARKER:#x} == {INDIRECT_BIT:#x}:")
                lines.append("        raise KeyError")
            lines.append(f"    {raw} = new(Addr4); store_word({raw}, {names[path]})")
        elif row.enum is not None:
            scope[f"table_{row.enum.__name__}"] = {int(m): m for m in row.enum}
            raw = f"table_{row.enum.__name__}[{raw}]"
        elif row.kind is Kind.FLAG:
            raw = f"{raw} == 1"
        lines.append(f"    {store}({target}, {raw})")
    return lines


def _slot(cls: type, name: str) -> Callable[[Any, Any], None]:
    """Return the setter of a slot; frozen records are filled through it while being decoded."""
    return getattr(cls, name).__set__
