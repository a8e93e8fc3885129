"""What a stream consists of: bundles by type, and the values of every field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hardware.memory import PSUM_BASE, PSUM_END, SBUF_END

from .address import ADDRESS_MASK, INDIRECT_BIT, REGISTER_BIT, SHAPE_REGISTER_BIT
from .bulk import Column
from .bundle import Bundle
from .kinds import plans
from .rows import Kind, Row
from .stream import BundleStream

_MANY = 8


@dataclass(frozen=True, slots=True)
class FieldSummary:
    """The values of one field over all bundles of one type that have it.

    Attributes:
      field: dotted path.
      bundles: how many bundles have the field.
      distinct: how many different values it takes; for an address, how many kinds of place.
      values: the values as text with their counts, most frequent first; empty when there are
        more than a few.
      lowest: smallest value (0 for addresses).
      highest: largest value (0 for addresses).
      idle: whether every bundle holds the field's default.
    """

    field: str
    bundles: int
    distinct: int
    values: tuple[tuple[str, int], ...]
    lowest: int
    highest: int
    idle: bool

    def __str__(self) -> str:
        if not self.values:
            return f"{self.lowest}..{self.highest}, {self.distinct:,} values"
        if len(self.values) == 1:
            return self.values[0][0]
        return ", ".join(f"{text} x {count:,}" for text, count in self.values)


@dataclass(frozen=True, slots=True)
class TypeSummary:
    """All bundles of one type.

    Attributes:
      type: the bundle class.
      bundles: how many there are.
      share: their part of the stream, 0..1.
      fields: the fields in wire order.
    """

    type: type[Bundle]
    bundles: int
    share: float
    fields: tuple[FieldSummary, ...]


def summarize(stream: BundleStream) -> list[TypeSummary]:
    """Return the statistics of a stream, one entry for each type that occurs, by opcode."""
    found: list[TypeSummary] = []
    for cls, count in stream.counts().items():
        here = [plan for plan in plans(stream.arch) if plan.owner is cls]
        rows = {path: leaf.row for plan in here for path, leaf in plan.fields.items()}
        summaries: list[FieldSummary] = []
        for path, row in rows.items():
            column = stream.column(path, cls)
            if len(column):
                summaries.append(_tally(path, row, column))
        found.append(TypeSummary(cls, count, count / len(stream), tuple(summaries)))
    return found


def _tally(path: str, row: Row, column: Column) -> FieldSummary:
    if row.kind is Kind.ADDRESS:
        places = _places(column)
        return FieldSummary(path, len(column), len(places), places, 0, 0, False)
    numbers, counts = _distinct(column)
    order = np.argsort(-counts, kind="stable")
    idle = len(numbers) == 1 and int(numbers[0]) == row.default
    few = order if len(order) <= _MANY else order[:0]
    values = tuple((_text(row, int(numbers[i])), int(counts[i])) for i in few)
    low, high = int(numbers[0]), int(numbers[-1])
    return FieldSummary(path, len(column), len(numbers), values, low, high, idle)


def _distinct(column: Column) -> tuple[Column, Column]:
    """Return the values that occur, ascending, and how often."""
    # Counting beats sorting where the range is small.
    if column.dtype.itemsize > 2:
        return np.unique(column, return_counts=True)
    lowest = int(column.min())
    counts = np.bincount(column.astype(np.int32) - lowest)
    found = np.flatnonzero(counts)
    return found + lowest, counts[found]


def _text(row: Row, number: int) -> str:
    if row.enum is not None:
        return row.enum(number).name
    return str(bool(number)) if row.kind is Kind.FLAG else str(number)


def _places(words: Column) -> tuple[tuple[str, int], ...]:
    """Return what kinds of place address words name."""
    address = words & np.uint32(ADDRESS_MASK)
    register = words & np.uint32(REGISTER_BIT) != 0
    psum = (address >= np.uint32(PSUM_BASE)) & (address < np.uint32(PSUM_END))
    kinds: Sequence[tuple[str, Any]] = (
        ("register", register),
        ("SBUF", ~register & (address < np.uint32(SBUF_END))),
        ("PSUM", ~register & psum),
        ("unmapped", ~register & ~psum & (address >= np.uint32(SBUF_END))),
        ("index of a gather", words & np.uint32(INDIRECT_BIT) != 0),
        ("shape in register", words & np.uint32(SHAPE_REGISTER_BIT) != 0),
    )
    tally = [(text, int(np.count_nonzero(mask))) for text, mask in kinds]
    return tuple((text, count) for text, count in tally if count)
