"""Write the codec of a layout as Python source and compile it.

The generated code has no loop and no lookup of names: what a row says is decided here, once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from .address import INDIRECT_BIT, SHAPE_REGISTER_BIT, Addr4
from .rows import Kind, Leaf, Row

Rows: TypeAlias = tuple[Row, ...]
Encode: TypeAlias = Callable[[Any], bytes]
Decode: TypeAlias = Callable[[bytes, int], Any]

_STRUCT_CODE = {8: "B", 16: "H", 32: "I", 64: "Q"}
_MARKER = INDIRECT_BIT | SHAPE_REGISTER_BIT


def generate(
    cls: type,
    size: int,
    rows: Rows,
    leaves: Sequence[Leaf],
    match: int,
    reserved: int,
    rows_of: Callable[[type], Rows],
) -> tuple[Encode, Decode]:
    """Write and compile ``encode(record)`` and ``decode(data, word)`` of one layout."""
    fields = [leaf for leaf in leaves if leaf.row.kind not in (Kind.CONST, Kind.RESERVED)]
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
    lines += _build(cls, "made", rows, "", names, scope, rows_of)
    if has_residue:
        scope["store_residue"] = _slot(cls, "residue")
        lines.append(f"    store_residue(made, word & {reserved:#x})")
    lines.append("    return made")
    exec(compile("\n".join(lines), f"<codec of {cls.__name__}>", "exec"), scope)
    return scope["encode"], scope["decode"]


def _build(
    cls: type,
    target: str,
    rows: Rows,
    prefix: str,
    names: dict[str, str],
    scope: dict[str, Any],
    rows_of: Callable[[type], Rows],
) -> list[str]:
    """Return the lines that make ``target`` and store its fields, nested records first."""
    scope[f"class_{target}"] = cls
    lines = [f"    {target} = new(class_{target})"]
    for row in rows:
        if row.absent:
            # A field that this generation lacks holds its default.
            scope[f"store_{target}_{row.absent}"] = _slot(cls, row.absent)
            scope[f"default_{target}_{row.absent}"] = row.default
            lines.append(
                f"    store_{target}_{row.absent}({target}, default_{target}_{row.absent})"
            )
        if row.kind in (Kind.CONST, Kind.RESERVED):
            continue
        path, store = prefix + row.name, f"store_{target}_{row.name}"
        scope[store] = _slot(cls, row.name)
        raw = names.get(path, "")
        if row.record is not None:
            raw = f"{target}_{row.name}"
            inner = rows_of(row.record)
            lines += _build(row.record, raw, inner, path + ".", names, scope, rows_of)
        elif row.kind is Kind.ADDRESS:
            raw = f"{target}_{row.name}"
            if not row.gather:
                # KeyError is the one signal of the fast path; the caller asks problems() for more.
                lines.append(f"    if {names[path]} & {_MARKER:#x} == {INDIRECT_BIT:#x}:")
                lines.append("        raise KeyError")
            # The marker of an index word is what chose this layout, so it needs no second look.
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
