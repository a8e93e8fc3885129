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
from functools import cache
from operator import index
from typing import Any, TypeVar, dataclass_transform

from hardware.arch import Arch

from .address import Addr4
from .codec import FAMILIES, LAYOUTS, enter, table_of
from .docs import with_fields
from .errors import EncodeError
from .rows import (
    GATHER_REFUSAL,
    INDEX_REFUSAL,
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
        rows = [row for base in cls.__mro__[1:] for row in table_of(base)]
        annotations = dict(inspect.get_annotations(cls))
        for name, row in [(n, v) for n, v in vars(cls).items() if isinstance(v, Row)]:
            sizes = {LAYOUTS[inner].size * 8 for inner in row.records} or {row.width}
            if len(sizes) != 1:
                raise TypeError(f"{cls.__name__}.{name}: descriptors of different sizes")
            (width,) = sizes
            page = row.source or source
            rows.append(dataclasses.replace(row, name=name, width=width, source=page))
            if row.kind in (Kind.CONST, Kind.RESERVED):
                del annotations[name]
            if row.kind is Kind.CONST:
                setattr(cls, name, row.value)
            elif row.default is REQUIRED and row.fill is not REQUIRED:
                setattr(cls, name, row.fill)
            elif row.default is REQUIRED:
                delattr(cls, name)
            else:
                setattr(cls, name, row.default)
        cls.__annotations__ = annotations
        cls.__doc__ = with_fields(cls.__doc__ or "", rows)
        # dataclass() looks the hook up by name; no static type of cls can show it.
        cls.__post_init__ = _validate  # type: ignore[attr-defined]
        made = dataclass(frozen=True, slots=True, kw_only=kw_only)(cls)
        enter(made, size, rows, partial)
        return made

    return make


def _validate(self: object) -> None:
    """Check every field against its row and store it in its canonical type."""
    owner = type(self)
    for row in table_of(owner):
        if row.kind is Kind.CONST or row.kind is Kind.RESERVED:
            continue
        given = getattr(self, row.name)
        value = _canonical(owner.__name__, row, given)
        if value is not given:
            object.__setattr__(self, row.name, value)
    residue = getattr(self, "residue", 0)
    if residue and (not isinstance(residue, int) or residue & ~_reservable(owner)):
        raise EncodeError(owner.__name__, "residue", residue, "reserved bits only")


def _article(cls: type) -> str:
    """Return the name of a class as messages give it, with the way to make an address."""
    if cls is Addr4:
        return "an Addr4, made by Addr4.sbuf, Addr4.psum, Addr4.scale or Addr4.register"
    # M is read as its letter's name: an MxPattern.
    return f"{'an' if cls.__name__[0] in 'AIM' else 'a'} {cls.__name__}"


@cache
def _reservable(cls: type) -> int:
    """Return the bits that are reserved on some generation, in some form."""
    mask = 0
    for arch in Arch:
        for layout in FAMILIES[cls, arch].layouts:
            mask |= layout.reserved_mask
    return mask


def _canonical(owner: str, row: Row, value: Any) -> Any:
    where = row.lo // 8
    if row.record is not None or row.kind is Kind.ADDRESS:
        wanted = row.records or (Addr4,)
        if type(value) not in wanted:
            raise EncodeError(owner, row.name, value, " or ".join(map(_article, wanted)), where)
        if isinstance(value, Addr4) and value.is_gather and not row.gather:
            raise EncodeError(owner, row.name, value.word, GATHER_REFUSAL, where)
        if isinstance(value, Addr4) and row.index and not value.is_gather:
            raise EncodeError(owner, row.name, value.word, INDEX_REFUSAL, where)
        return value
    if row.enum is not None and isinstance(value, str):
        if value.upper() not in row.enum.__members__:
            raise EncodeError(owner, row.name, value, members(row.enum), where)
        return row.enum[value.upper()]
    try:
        number = value if type(value) is int else index(value)
    except TypeError:
        allowed = "an integer" if row.enum is None else members(row.enum)
        raise EncodeError(owner, row.name, value, allowed, where) from None
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
