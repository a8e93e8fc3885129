"""Streams of millions of bundles as arrays: one column per field, no object per bundle.

:func:`decode_stream` proves constants, reserved bits and enumerations of the whole stream before it
returns, so that columns and single bundles can be read without a second look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from hardware.arch import Arch, ArchLike
from hardware.opcodes import BUNDLE_BYTES
from hardware.pe import require

from .bulk import STEP, Bytes, Column, buffer_of, dtype_of, read, write
from .bundle import Bundle, decode, encode_all
from .codec import table_of
from .errors import CapabilityError, DecodeError, EncodeError
from .kinds import UNKNOWN, classify, holders, kinds_of, number_of, plans
from .rows import REQUIRED, Leaf

Mask: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """All bundles of one type whose descriptors have the same form, field by field.

    Attributes:
      type: the bundle class.
      at: position of each bundle in its stream.
      fields: one array per field, by dotted path such as ``src.extent``; enumerations as numbers,
        addresses as words.  ``residue`` (``uint8[n, 64]``) is there when reserved bits are set.
      form: the descriptor classes in the operand slots; empty for the static ones.
    """

    type: type[Bundle]
    at: NDArray[np.intp]
    fields: Mapping[str, Column]
    form: tuple[type, ...] = ()


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
        self._present = [int(n) for n in np.flatnonzero(np.bincount(kinds))]

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

    def __bytes__(self) -> bytes:
        return self.tobytes()

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
        counts: dict[type[Bundle], int] = {}
        for plan, number in zip(plans(self.arch), np.bincount(self._kinds), strict=False):
            if number:
                counts[plan.owner] = counts.get(plan.owner, 0) + int(number)
        return counts

    def mask(self, kind: type[Bundle] | str) -> Mask:
        """Return where a type of bundle stands, named by class or mnemonic.

        Raises:
          EncodeError: when no bundle is called so.
        """
        return self._among(kinds_of(kind, self.arch))

    def having(self, name: str) -> Mask:
        """Return which bundles have a field.

        Raises:
          EncodeError: when no bundle type has it.
        """
        return self._among(holders(name, self.arch))

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
        places = holders(name, self.arch, kind)
        here = self._among(places)
        # Only what occurs decides whether one view serves all.
        places = {number: places[number] for number in self._present if number in places} or places
        leaves = list(places.values())
        if len({(leaf.lo, leaf.row.width, leaf.row.kind) for leaf in leaves}) == 1:
            column = read(self.data, leaves[0])
        else:
            column = np.zeros(len(self), np.result_type(*map(dtype_of, leaves)))
            for number, leaf in places.items():
                mine = self._kinds == number
                column[mine] = read(self.data, leaf)[mine]
        return column if here.all() else column[here]

    def columns(self, kind: type[Bundle] | str, form: tuple[type, ...] = ()) -> Columns:
        """Return all fields of all bundles of one type and form, copied out of the stream.

        Args:
          kind: class or mnemonic.
          form: the descriptor classes in the operand slots; empty for the static ones.

        Raises:
          EncodeError: when there is no such bundle or form.
        """
        return self._copy(number_of(kind, form, self.arch))

    def split(self) -> list[Columns]:
        """Return the columns of everything that occurs; :func:`encode_stream` is the inverse."""
        return [self._copy(number) for number in self._present]

    def _copy(self, number: int) -> Columns:
        plan, at = plans(self.arch)[number], np.flatnonzero(self._kinds == number)
        rows = self.data if len(at) == len(self) else self.data[at]
        fields = {path: read(rows, leaf).copy() for path, leaf in plan.fields.items()}
        if not self._strict and (residue := plan.residue(rows)).any():
            fields["residue"] = residue
        return Columns(plan.owner, at, fields, plan.layout.form)

    def _among(self, numbers: Iterable[int]) -> Mask:
        chosen = np.zeros(256, np.bool_)
        chosen[list(numbers)] = True
        return chosen[self._kinds]


def decode_stream(data: Any, arch: ArchLike = Arch.MARIANA, strict: bool = True) -> BundleStream:
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
    arch = Arch.parse(arch)
    flat = buffer_of(data)
    whole, rest = divmod(len(flat), BUNDLE_BYTES)
    if rest:
        raise DecodeError("length", 0, len(flat), f"a multiple of {BUNDLE_BYTES}", index=whole)
    rows = flat.reshape(whole, BUNDLE_BYTES)
    kinds = np.empty(whole, np.uint8)
    for start in range(0, whole, STEP):
        step = rows[start : start + STEP]
        kinds[start : start + STEP] = found = classify(step, arch)
        bad = _refused(step, found, arch, strict)
        if bad >= 0:
            at = start + bad
            decode(rows[at].tobytes(), arch, strict, index=at)
            raise AssertionError(f"bundle {at}: bulk and single decoding disagree")
    return BundleStream(rows, arch, kinds, strict)


def encode_stream(
    parts: BundleStream | Iterable[Columns] | Iterable[Bundle], arch: ArchLike | None = None
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
    if arch is not None:
        arch = Arch.parse(arch)
    if isinstance(parts, BundleStream):
        if arch is None or arch is parts.arch:
            return parts.tobytes()
        parts = parts.split()
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
        _scatter(out, at, part, target)
    if vacant.any():
        raise EncodeError(
            "encode_stream", "at", f"no bundle at {int(np.argmax(vacant))}", "every place once"
        )
    return out.tobytes()


def _scatter(out: Bytes, at: NDArray[np.intp], part: Columns, arch: Arch) -> None:
    """Write the bundles of one type to their places, some thousands at a time."""
    plan, name = plans(arch)[number_of(part.type, part.form, arch)], part.type.mnemonic
    given = dict(part.fields)
    residue: Any = given.pop("residue", None)
    for row in plan.layout.absent:
        # A field of another generation may come along as long as it says nothing.
        if (np.asarray(given.pop(row.absent, row.default)) != row.default).any():
            field = next(r for r in table_of(part.type) if r.name == row.absent)
            raise CapabilityError(f"{name}.{row.absent}", arch.label, field.generations)
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


def _refused(rows: Bytes, kinds: Bytes, arch: Arch, strict: bool) -> int:
    """Return the first row that cannot be decoded, or -1."""
    first = len(rows)
    for kind in np.flatnonzero(np.bincount(kinds)):
        at = np.flatnonzero(kinds == kind)
        if kind == UNKNOWN:
            first = min(first, int(at[0]))
            continue
        good = plans(arch)[kind].accepts(rows if len(at) == len(rows) else rows[at], strict)
        if good is not None:
            first = min(first, int(at[np.argmin(good)]))
    return first if first < len(rows) else -1
