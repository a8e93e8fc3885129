"""Streams of millions of bundles as arrays: one column per field, no object per bundle.

:func:`decode_stream` proves constants, reserved bits and enumerations of the whole stream before it
returns, so that columns and single bundles can be read without a second look.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from hardware.arch import Arch
from hardware.opcodes import BUNDLE_BYTES
from hardware.pe import require

from .bulk import STEP, Bytes, Column, Plan, dtype_of, read, write
from .bundle import Bundle, bundle_types, decode, encode_all, layout_of
from .errors import DecodeError, EncodeError
from .rows import REQUIRED, Leaf

Mask: TypeAlias = NDArray[np.bool_]
_UNKNOWN = 255


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """All bundles of one type, field by field.

    Attributes:
      type: the bundle class.
      at: position of each bundle in its stream.
      fields: one array per field, by dotted path such as ``src.extent``; enumerations as numbers,
        addresses as words.  ``residue`` (``uint8[n, 64]``) is there when reserved bits are set.
    """

    type: type[Bundle]
    at: NDArray[np.intp]
    fields: Mapping[str, Column]


class BundleStream:
    """A decoded stream: length, bundles on demand, columns of fields, masks of types.

    Attributes:
      arch: the generation whose instruction set applies.
      data: ``uint8[n, 64]``, the bytes, read-only.
    """

    def __init__(self, data: Bytes, arch: Arch, kinds: Bytes, strict: bool) -> None:
        self.arch = arch
        self.data = data
        self._kinds = kinds
        self._strict = strict

    def __len__(self) -> int:
        return len(self.data)

    @overload
    def __getitem__(self, at: int) -> Bundle: ...
    @overload
    def __getitem__(self, at: slice) -> BundleStream: ...
    def __getitem__(self, at: int | slice) -> Bundle | BundleStream:
        """Return one bundle as a record, or a part of the stream as a stream."""
        if isinstance(at, slice):
            # Rows must stay whole and adjacent for the 8-byte views that validation takes.
            data = np.ascontiguousarray(self.data[at])
            data.flags.writeable = False
            return BundleStream(data, self.arch, self._kinds[at], self._strict)
        row = self.data[at]
        return decode(row.tobytes(), self.arch, self._strict, index=at % len(self))

    def __iter__(self) -> Iterator[Bundle]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        counts = ", ".join(f"{n} {cls.mnemonic}" for cls, n in self.counts().items())
        return f"<BundleStream of {len(self)} on {self.arch.label}: {counts or 'empty'}>"

    def tobytes(self) -> bytes:
        """Return the stream's bytes."""
        return self.data.tobytes()

    def counts(self) -> dict[type[Bundle], int]:
        """Return how many bundles of each type there are; types that do not occur are left out."""
        tally = np.bincount(self._kinds, minlength=len(_plans()))
        return {p.owner: int(n) for p, n in zip(_plans(), tally, strict=False) if n}

    def mask(self, kind: type[Bundle] | str) -> Mask:
        """Return where a type of bundle stands, named by class or mnemonic.

        Raises:
          EncodeError: when no bundle is called so.
        """
        return self._kinds == _kind_of(kind)

    def having(self, name: str) -> Mask:
        """Return which bundles have a field.

        Raises:
          EncodeError: when no bundle type has it.
        """
        has = np.zeros(_UNKNOWN + 1, np.bool_)
        has[[kind for kind, _ in _holders(name)]] = True
        return has[self._kinds]

    def column(self, name: str, kind: type[Bundle] | str | None = None) -> Column:
        """Return a field of every bundle that has it, in stream order.

        Bundles of one type share the memory of the stream; a mixed stream is gathered.  ``having``
        (or ``mask``, with ``kind``) says which bundles the entries belong to.

        Args:
          name: dotted path, for example ``dtype`` or ``src.extent``.
          kind: only bundles of this type.

        Raises:
          EncodeError: when no bundle (or not this one) has the field.
        """
        holders = _holders(name, None if kind is None else _kind_of(kind))
        here = self.having(name) if kind is None else self.mask(kind)
        leaves = [leaf for _, leaf in holders]
        if len({(leaf.lo, leaf.row.width, leaf.row.kind) for leaf in leaves}) == 1:
            column = read(self.data, leaves[0])
        else:
            column = np.zeros(len(self), np.result_type(*map(dtype_of, leaves)))
            for number, leaf in holders:
                mine = self._kinds == number
                column[mine] = read(self.data, leaf)[mine]
        return column if here.all() else column[here]

    def columns(self, kind: type[Bundle] | str) -> Columns:
        """Return all fields of all bundles of one type, copied out of the stream."""
        number = _kind_of(kind)
        plan, at = _plans()[number], np.flatnonzero(self._kinds == number)
        rows = self.data if len(at) == len(self) else self.data[at]
        fields = {path: read(rows, leaf).copy() for path, leaf in plan.fields.items()}
        if not self._strict and (residue := plan.residue(rows)).any():
            fields["residue"] = residue
        return Columns(plan.owner, at, fields)

    def split(self) -> list[Columns]:
        """Return the columns of every type that occurs; :func:`encode_stream` is the inverse."""
        return [self.columns(cls) for cls in self.counts()]


def decode_stream(data: Any, arch: Arch = Arch.MARIANA, strict: bool = True) -> BundleStream:
    """Read a whole stream and prove it decodable.

    Args:
      data: the bytes, any object with the buffer interface (kept, not copied), or the path of a
        file, which is mapped into memory.
      arch: the generation whose instruction set applies.
      strict: refuse non-zero reserved bits.

    Raises:
      DecodeError: for a truncated stream, or the first bundle that :func:`encoding.decode` refuses:
        index, field, byte, what was found and what is allowed.
    """
    flat = _buffer(data)
    whole, rest = divmod(len(flat), BUNDLE_BYTES)
    if rest:
        raise DecodeError("length", 0, len(flat), f"a multiple of {BUNDLE_BYTES}", index=whole)
    rows = flat.reshape(whole, BUNDLE_BYTES)
    known = np.full(256, _UNKNOWN, np.uint8)
    for kind, plan in enumerate(_plans()):
        if arch >= plan.owner.first_arch:
            known[plan.layout.opcode] = kind
    kinds = known[rows[:, 0]]
    for start in range(0, whole, STEP):
        bad = _refused(rows[start : start + STEP], kinds[start : start + STEP], strict)
        if bad >= 0:
            at = start + bad
            decode(rows[at].tobytes(), arch, strict, index=at)
            raise AssertionError(f"bundle {at}: bulk and single decoding disagree")
    return BundleStream(rows, arch, kinds, strict)


def encode_stream(
    parts: BundleStream | Iterable[Columns] | Iterable[Bundle], arch: Arch | None = None
) -> bytes:
    """Return the bytes of a stream.

    Args:
      parts: a stream; or columns, one entry for every bundle type, whose positions together are
        ``0..n-1`` and whose fields may be arrays or single values (fields with a default may be
        left out); or instructions.
      arch: the generation to encode for; by default the stream's own, else MARIANA.

    Raises:
      CapabilityError: when the generation lacks a bundle.
      EncodeError: naming field, byte, value and what fits, for the first value that does not; or
        when positions collide or leave gaps.
    """
    if isinstance(parts, BundleStream):
        for cls in parts.counts():
            require(parts.arch if arch is None else arch, cls.first_arch, cls.mnemonic)
        return parts.tobytes()
    target = Arch.MARIANA if arch is None else arch
    items: list[Any] = list(parts)
    if not all(isinstance(item, Columns) for item in items):
        return encode_all(items, target)
    total = sum(len(part.at) for part in items)
    out = np.empty((total, BUNDLE_BYTES), np.uint8)
    vacant = np.ones(total, np.bool_)
    for part in items:
        require(target, part.type.first_arch, part.type.mnemonic)
        at = np.asarray(part.at)
        if len(at) and not 0 <= int(at.min()) <= int(at.max()) < total:
            raise EncodeError(part.type.mnemonic, "at", int(at.max()), f"0..{total - 1}")
        vacant[at] = False
        _scatter(out, at, part)
    if vacant.any():
        raise EncodeError(
            "encode_stream", "at", f"no bundle at {int(np.argmax(vacant))}", "every place once"
        )
    return out.tobytes()


def _scatter(out: Bytes, at: NDArray[np.intp], part: Columns) -> None:
    """Write the bundles of one type to their places, some thousands at a time."""
    plan, name = _plans()[_kind_of(part.type)], part.type.mnemonic
    given = dict(part.fields)
    residue: Any = given.pop("residue", None)
    for path in given:
        if path not in plan.fields:
            raise EncodeError(name, path, "a column", ", ".join(plan.fields))
    for path, leaf in plan.fields.items():
        if path not in given and leaf.row.default is REQUIRED:
            raise EncodeError(name, path, "no column", "one value for every bundle", leaf.offset)
    columns: list[tuple[Leaf, Column]] = []
    for path, value in given.items():
        column = plan.cast(plan.fields[path], value, name)
        if column.ndim and len(column) != len(at):
            raise EncodeError(name, path, f"{len(column)} values", f"{len(at)} values")
        columns.append((plan.fields[path], np.broadcast_to(column, len(at))))
    if residue is not None and (residue != plan.residue(residue)).any():
        raise EncodeError(name, "residue", "other bits", "reserved bits only")
    # One row of 64 bytes moves as one item.
    places = out.view(f"V{BUNDLE_BYTES}")[:, 0]
    block = np.empty((STEP, BUNDLE_BYTES), np.uint8)
    for start in range(0, len(at), STEP):
        here = slice(start, start + STEP)
        rows = block[: len(at[here])]
        rows[:] = plan.template
        for leaf, column in columns:
            write(rows, leaf, column[here])
        if residue is not None:
            rows |= residue[here]
        places[at[here]] = rows.view(places.dtype)[:, 0]


def _refused(rows: Bytes, kinds: Bytes, strict: bool) -> int:
    """Return the first row that cannot be decoded, or -1."""
    first = len(rows)
    for kind in np.flatnonzero(np.bincount(kinds)):
        at = np.flatnonzero(kinds == kind)
        if kind == _UNKNOWN:
            first = min(first, int(at[0]))
            continue
        good = _plans()[kind].accepts(rows if len(at) == len(rows) else rows[at], strict)
        if good is not None:
            first = min(first, int(at[np.argmin(good)]))
    return first if first < len(rows) else -1


@cache
def _plans() -> tuple[Plan, ...]:
    return tuple(Plan(cls, layout_of(cls)) for cls in bundle_types())


def _kind_of(kind: type[Bundle] | str) -> int:
    for number, plan in enumerate(_plans()):
        if kind in (plan.owner, plan.owner.mnemonic):
            return number
    known = ", ".join(plan.owner.mnemonic for plan in _plans())
    raise EncodeError("BundleStream", "kind", kind, known)


@cache
def _holders(name: str, only: int | None = None) -> tuple[tuple[int, Leaf], ...]:
    """Return the types that have a field, each with the field's place."""
    found = [
        (kind, plan.fields[name])
        for kind, plan in enumerate(_plans())
        if name in plan.fields and only in (None, kind)
    ]
    if not found:
        plans = _plans() if only is None else (_plans()[only],)
        known = sorted({path for plan in plans for path in plan.fields})
        raise EncodeError("BundleStream", "column", name, ", ".join(known))
    return tuple(found)


def _buffer(data: Any) -> Bytes:
    """Return bytes or a file's contents as ``uint8[n]``, without a copy, read-only."""
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
