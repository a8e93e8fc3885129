"""What numpy has to know of a record: where its leaves lie, and which bits never change.

A plan is made from a layout's rows, as the codec is, and works on ``uint8[n, 64]`` instead of on
one bundle.  This and :mod:`encoding.stream` are the only modules here that import numpy.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hardware.opcodes import BUNDLE_BYTES

from .address import INDIRECT_BIT, SHAPE_REGISTER_BIT
from .bundle import Bundle
from .codec import Layout
from .errors import DecodeError, EncodeError
from .rows import GATHER_REFUSAL, INDEX_REFUSAL, REQUIRED, Kind, Leaf, members, values_of

Bytes: TypeAlias = NDArray[np.uint8]
Column: TypeAlias = NDArray[Any]

# Rows per step: two megabytes, enough to make the calls per kind cheap and still near the core.
STEP: Final = 1 << 15
_MARKER: Final = np.uint32(INDIRECT_BIT | SHAPE_REGISTER_BIT)
_INDIRECT: Final = np.uint32(INDIRECT_BIT)


@dataclass(frozen=True)
class Plan:
    """Whole-array reading, judging and writing of the bundles of one layout."""

    owner: type[Bundle]
    layout: Layout

    @cached_property
    def fields(self) -> dict[str, Leaf]:
        """The leaves that carry values, by dotted path, in wire order."""
        skipped = (Kind.CONST, Kind.RESERVED)
        return {leaf.path: leaf for leaf in self.layout.leaves if leaf.row.kind not in skipped}

    def accepts(self, rows: Bytes, strict: bool) -> NDArray[np.bool_] | None:
        """Return which rows can be decoded, or None when all can."""
        fixed = self._fixed if strict else self._constant
        agrees = (rows.view("<u8") & fixed) == self._match
        good = None if agrees.all() else agrees.all(axis=1)
        for leaf, known in self._coded:
            found = known[read(rows, leaf)]
            if not found.all():
                good = found if good is None else good & found
        for leaf in self._plain:
            found = (read(rows, leaf) & _MARKER) != _INDIRECT
            if not found.all():
                good = found if good is None else good & found
        return good

    def residue(self, rows: Bytes) -> Bytes:
        """Return the reserved bits of the rows, in place."""
        return rows & np.frombuffer(_words(self.layout.reserved_mask), np.uint8)

    @cached_property
    def template(self) -> Bytes:
        """Constants and defaults; a field without a default is zero here."""
        word = self.layout.const_match
        for leaf in self.fields.values():
            if leaf.row.default is not REQUIRED:
                word |= int(leaf.row.default) << leaf.lo & leaf.mask
        return np.frombuffer(_words(word), np.uint8)

    def cast(self, leaf: Leaf, given: Any, name: str) -> Column:
        """Return values in the dtype of their leaf.

        Raises:
          EncodeError: naming the first value that does not fit, and where it stands.
        """
        column: Column = np.asarray(given)
        wanted = dtype_of(leaf)
        if column.dtype.kind not in "biu" or column.ndim > 1:
            raise EncodeError(
                name, leaf.path, f"{column.dtype}{list(column.shape)}", "integers in one dimension",
                leaf.offset,
            )  # fmt: skip
        row = leaf.row
        if column.dtype != wanted or row.width % 8:
            self._refuse(
                leaf, column, (column < row.lowest) | (column > row.highest), name,
                f"{row.lowest}..{row.highest}",
            )  # fmt: skip
        column = column.astype(wanted, copy=False)
        if row.enum is not None:
            self._refuse(leaf, column, ~_known(leaf)[column], name, members(row.enum))
        if row.index or not row.gather:
            marked = (column & _MARKER) == _INDIRECT
            allowed = INDEX_REFUSAL if row.index else GATHER_REFUSAL
            self._refuse(leaf, column, marked != row.index, name, allowed)
        return column

    @staticmethod
    def _refuse(leaf: Leaf, column: Column, bad: Column, name: str, allowed: str) -> None:
        if not bad.any():
            return
        first = int(np.argmax(bad))
        where = f"{name} {first}" if column.ndim else name
        raise EncodeError(where, leaf.path, int(column.flat[first]), allowed, leaf.offset)

    @cached_property
    def _constant(self) -> NDArray[np.uint64]:
        return np.frombuffer(_words(self.layout.const_mask), "<u8")

    @cached_property
    def _fixed(self) -> NDArray[np.uint64]:
        return np.frombuffer(_words(self.layout.const_mask | self.layout.reserved_mask), "<u8")

    @cached_property
    def _match(self) -> NDArray[np.uint64]:
        return np.frombuffer(_words(self.layout.const_match), "<u8")

    @cached_property
    def _coded(self) -> Sequence[tuple[Leaf, NDArray[np.bool_]]]:
        coded = [leaf for leaf in self.fields.values() if leaf.row.enum is not None]
        return [(leaf, _known(leaf)) for leaf in coded]

    @cached_property
    def _plain(self) -> Sequence[Leaf]:
        return [leaf for leaf in self.fields.values() if not leaf.row.gather]


def dtype_of(leaf: Leaf) -> np.dtype[Any]:
    """Return the smallest dtype that holds every value of a leaf."""
    row = leaf.row
    if row.kind is Kind.FLAG:
        return np.dtype(np.bool_)
    size = next(bits for bits in (8, 16, 32, 64) if row.width <= bits) // 8
    return np.dtype(f"<{'i' if row.kind is Kind.SINT else 'u'}{size}")


def read(rows: Bytes, leaf: Leaf) -> Column:
    """Return one leaf of every row: a view without a copy where the leaf fills whole bytes."""
    row, wanted = leaf.row, dtype_of(leaf)
    if leaf.lo % 8 == 0 and row.width == 8 * wanted.itemsize:
        return rows[:, leaf.offset : leaf.offset + wanted.itemsize].view(wanted)[:, 0]
    last = (leaf.lo + row.width - 1) // 8
    raw: Column = np.zeros(len(rows), np.uint64)
    for byte in range(last, leaf.offset - 1, -1):
        raw = raw << np.uint64(8) | rows[:, byte]
    raw = raw >> np.uint64(leaf.lo % 8) & np.uint64((1 << row.width) - 1)
    if row.kind is Kind.SINT:
        sign = np.int64(1 << row.width - 1)
        raw = (raw.astype(np.int64) ^ sign) - sign
    return raw.astype(wanted)


def write(rows: Bytes, leaf: Leaf, column: Column) -> None:
    """Store one leaf of every row; the leaf's bits are zero or the rows come from a template."""
    row = leaf.row
    if leaf.lo % 8 == 0 and row.width == 8 * column.dtype.itemsize and row.kind is not Kind.FLAG:
        place = rows[:, leaf.offset : leaf.offset + column.dtype.itemsize]
        place.view(column.dtype)[:, 0] = column
        return
    raw = column.astype(np.int64).astype(np.uint64) & np.uint64((1 << row.width) - 1)
    raw = raw << np.uint64(leaf.lo % 8)
    clear = ((1 << row.width) - 1) << leaf.lo % 8
    for byte in range(leaf.offset, (leaf.lo + row.width - 1) // 8 + 1):
        rows[:, byte] &= np.uint8(~clear & 0xFF)
        rows[:, byte] |= (raw & np.uint64(0xFF)).astype(np.uint8)
        raw, clear = raw >> np.uint64(8), clear >> 8


def buffer_of(data: Any) -> Bytes:
    """Return bytes or a file's contents as ``uint8[n]``, without a copy, read-only.

    Raises:
      DecodeError: for what is neither.
    """
    if isinstance(data, (str, os.PathLike)):
        path = Path(os.fspath(data))
        if not path.stat().st_size:
            return np.zeros(0, np.uint8)
        return np.memmap(path, np.uint8, mode="r")
    try:
        flat = np.frombuffer(memoryview(data).cast("B"), np.uint8)
    except (TypeError, ValueError, BufferError):
        allowed = "bytes or the path of a file"
        raise DecodeError("data", 0, type(data).__name__, allowed) from None
    flat.flags.writeable = False
    return flat


def _known(leaf: Leaf) -> NDArray[np.bool_]:
    """Return for every byte value whether the leaf's enumeration has it."""
    known = np.zeros(256, np.bool_)
    if leaf.row.enum is not None:
        known[list(values_of(leaf.row.enum))] = True
    return known


def _words(word: int) -> bytes:
    return word.to_bytes(BUNDLE_BYTES, "little")
