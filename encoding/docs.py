"""Docstrings of records: the sentence of the class, then its fields as the byte map has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .rows import REQUIRED, Kind, Row

_HEADING = "Attributes:"


def with_fields(doc: str, rows: Iterable[Row]) -> str:
    """Return a class's docstring with a section that lists the fields in wire order."""
    shown = [row for row in rows if row.kind not in (Kind.CONST, Kind.RESERVED)]
    ordered = sorted(shown, key=lambda row: row.lo)
    lines = [_HEADING, *(f"  {row.name}: {_field(row)}" for row in ordered)]
    return doc.rstrip() + "\n\n    " + "\n    ".join(lines) + "\n    "


def without_fields(doc: str) -> str:
    """Return a docstring as its class wrote it."""
    return doc.partition(_HEADING)[0].rstrip()


def _field(row: Row) -> str:
    facts = [row.doc]
    if row.enum is not None:
        # A field's legal values say which members make sense; the others can be written all the
        # same, so that illegal bundles can be built and judged.
        legal = () if isinstance(row.legal, Mapping) else row.legal or ()
        names = [member.name for member in row.enum if member in legal]
        facts.append(
            f"{row.enum.__name__}, its number or its name"
            + (f" ({', '.join(names)})" if names else "")
        )
    elif row.records:
        facts.append(" or ".join(cls.__name__ for cls in row.records))
    default = row.fill if row.default is REQUIRED else row.default
    if default is not REQUIRED:
        facts.append(f"default {getattr(default, 'name', default)}")
    return "; ".join(facts) + "."
