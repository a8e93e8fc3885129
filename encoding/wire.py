"""The table language: a record is a class whose body is its byte map.

Every line of a record's body is one row: offset, width, meaning, evidence, source and legal values.
Everything else is derived from the rows when the class is made: coverage, range checks, the codec,
text, the byte map of ``explain``.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from operator import index
from typing import Any, TypeVar, dataclass_transform

from .address import Addr4
from .codec import LAYOUTS, build_layout, rows_of
from .errors import EncodeError
from .rows import (
    GATHER_REFUSAL,
    REQUIRED,
    Kind,
    Row,
    address,
    bits,
    coded,
    const,
    flag,
    members,
    nested,
    reserved,
)

__all__ = ["address", "bits", "coded", "const", "flag", "nested", "record", "reserved"]

T = TypeVar("T")


@dataclass_transform(
    frozen_default=True,
    field_specifiers=(bits, flag, coded, address, nested, const, reserved),
)
def record(
    *, size: int, source: str, kw_only: bool = False, partial: bool = False
) -> Callable[[type[T]], type[T]]:
    """Turn a class body of rows into a frozen record of ``size`` bytes.

    ``source`` is the page that rows come from unless they name another.

    Raises:
      TypeError: when rows overlap, leave the record, or (unless ``partial``) leave a bit unnamed.
    """

    def make(cls: type[T]) -> type[T]:
        rows = [row for base in cls.__mro__[1:] for row in rows_of(base)]
        annotations = dict(inspect.get_annotations(cls))
        for name, row in [(n, v) for n, v in vars(cls).items() if isinstance(v, Row)]:
            width = LAYOUTS[row.record].size * 8 if row.record else row.width
            page = row.source or source
            rows.append(dataclasses.replace(row, name=name, width=width, source=page))
            if row.kind in (Kind.CONST, Kind.RESERVED):
                del annotations[name]
            if row.kind is Kind.CONST:
                setattr(cls, name, row.value)
            elif row.default is REQUIRED:
                delattr(cls, name)
            else:
                setattr(cls, name, row.default)
        cls.__annotations__ = annotations
        cls.__post_init__ = _validate  # type: ignore[attr-defined]
        made = dataclass(frozen=True, slots=True, kw_only=kw_only)(cls)
        LAYOUTS[made] = build_layout(made, size, rows, partial)
        return made

    return make


def _validate(self: Any) -> None:
    """Check every field against its row and store it in its canonical type."""
    for row in LAYOUTS[type(self)].rows:
        if row.kind is Kind.CONST or row.kind is Kind.RESERVED:
            continue
        given = getattr(self, row.name)
        value = _canonical(type(self).__name__, row, given)
        if value is not given:
            object.__setattr__(self, row.name, value)
    residue = getattr(self, "residue", 0)
    if residue and (not isinstance(residue, int) or residue & ~LAYOUTS[type(self)].reserved_mask):
        raise EncodeError(type(self).__name__, "residue", residue, "reserved bits only")


def _canonical(owner: str, row: Row, value: Any) -> Any:
    where = row.lo // 8
    if row.record is not None or row.kind is Kind.ADDRESS:
        wanted = row.record or Addr4
        if type(value) is not wanted:
            raise EncodeError(owner, row.name, value, f"a {wanted.__name__}", where)
        if isinstance(value, Addr4) and not row.gather and value.is_gather:
            raise EncodeError(owner, row.name, value.word, GATHER_REFUSAL, where)
        return value
    try:
        number = value if type(value) is int else index(value)
    except TypeError:
        raise EncodeError(owner, row.name, value, "an integer", where) from None
    if not row.lowest <= number <= row.highest:
        raise EncodeError(owner, row.name, number, f"{row.lowest}..{row.highest}", where)
    if row.enum is not None:
        if type(value) is row.enum:
            return value
        try:
            return row.enum(number)
        except ValueError:
            raise EncodeError(owner, row.name, number, members(row.enum), where) from None
    return bool(number) if row.kind is Kind.FLAG else number
