"""The layouts of a record: its rows on one generation, with one choice of descriptors.

One decode is a struct unpack, one masked compare that proves every constant and reserved bit, and
the slot stores; a failure takes the slow path, :meth:`Layout.problems`, which reads the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

from hardware.arch import Arch

from .address import INDIRECT_BIT, SHAPE_REGISTER_BIT
from .generate import Decode, Encode, generate
from .rows import GATHER_REFUSAL, INDEX_REFUSAL, Kind, Leaf, Row, members, values_of

_MARKER = INDIRECT_BIT | SHAPE_REGISTER_BIT


@dataclass(frozen=True, slots=True)
class Problem:
    """Why bytes are not a record: the leaf, what it holds, what is allowed."""

    leaf: Leaf
    got: int
    allowed: str


@dataclass(frozen=True, eq=False)
class Layout:
    """Everything derived from the rows of one record class, on one generation, in one form.

    The form says which descriptor stands in each slot that has a choice.
    """

    record: type
    arch: Arch
    size: int
    rows: tuple[Row, ...]
    leaves: tuple[Leaf, ...]
    const_mask: int
    const_match: int
    reserved_mask: int

    @property
    def opcode(self) -> int:
        """The constant of the first byte; -1 for a record that is no bundle."""
        first = self.rows[0]
        return first.value if first.kind is Kind.CONST and first.lo == 0 else -1

    @cached_property
    def form(self) -> tuple[type, ...]:
        """The descriptors in the slots, in wire order."""
        return tuple(row.record for row in self.rows if row.record is not None)

    @cached_property
    def absent(self) -> tuple[Row, ...]:
        """The reserved rows that stand for a field of another generation."""
        return tuple(row for row in self.rows if row.absent)

    @cached_property
    def encode(self) -> Encode:
        """Return the bytes of a record."""
        return self._codec[0]

    @cached_property
    def decode(self) -> Decode:
        """Return the record of bytes, also given as one little-endian integer."""
        return self._codec[1]

    @cached_property
    def _codec(self) -> tuple[Encode, Decode]:
        return generate(
            self.record, self.size, self.rows, self.leaves, self.const_match, self.reserved_mask,
            rows_of,
        )  # fmt: skip

    def problems(self, word: int, strict: bool = True) -> Iterator[Problem]:
        """Yield every reason why the record cannot be decoded, in wire order."""
        for leaf in self.leaves:
            problem = leaf_problem(leaf, word, strict)
            if problem is not None:
                yield problem


@dataclass(frozen=True, eq=False)
class Family:
    """The layouts of a record class on one generation, one per choice of descriptors.

    ``slots`` holds, for every slot with a choice, the weight of the choice in the number of the
    form, the name of the slot, the byte with the gather marker, and the gather descriptor.
    """

    slots: tuple[tuple[int, str, int, type], ...]
    layouts: tuple[Layout, ...]

    def match(self, data: bytes) -> Layout:
        """Return the layout that the gather markers of the bytes announce."""
        form = 0
        for weight, _, at, _ in self.slots:
            if data[at] & 0x60 == 0x20:
                form += weight
        return self.layouts[form]

    def of(self, instruction: Any) -> Layout:
        """Return the layout that the descriptors of a record ask for."""
        form = 0
        for weight, name, _, gather in self.slots:
            if type(getattr(instruction, name)) is gather:
                form += weight
        return self.layouts[form]


TABLES: dict[type, tuple[Row, ...]] = {}
"""The rows of every record class as declared, for all generations."""
LAYOUTS: dict[type, Layout] = {}
"""The layout of every record class on the newest generation, with static descriptors."""
FAMILIES: dict[tuple[type, Arch], Family] = {}
"""The layouts of every record class by generation."""


def table_of(cls: type) -> tuple[Row, ...]:
    """Return the rows of a record class as declared; nothing for any other class."""
    return TABLES.get(cls, ())


def rows_of(cls: type, arch: Arch = Arch.MARIANA) -> tuple[Row, ...]:
    """Return the rows of a record class on a generation; nothing for any other class."""
    family = FAMILIES.get((cls, arch))
    return family.layouts[0].rows if family else ()


def leaves_of(cls: type, arch: Arch = Arch.MARIANA) -> tuple[Leaf, ...]:
    """Return the rows of a record class with nested records opened, in wire order."""
    return FAMILIES[cls, arch].layouts[0].leaves


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
    if row.index and raw & _MARKER != INDIRECT_BIT:
        return Problem(leaf, raw, INDEX_REFUSAL)
    return None


def enter(cls: type, size: int, rows: list[Row], partial: bool) -> None:
    """Prove a record's rows on every generation and in every form, and enter its layouts.

    Raises:
      TypeError: when rows overlap, leave the record, or (unless ``partial``) leave a bit unnamed.
    """
    table = tuple(sorted(rows, key=lambda row: row.lo))
    TABLES[cls] = table
    for arch in Arch:
        here = [row.on(arch) for row in table]
        slots = [row for row in here if row.others]
        layouts: list[Layout] = []
        for choice in product(*(row.records for row in slots)):
            picked = {
                id(row): replace(row, record=cls) for row, cls in zip(slots, choice, strict=True)
            }
            form = tuple(picked.get(id(row), row) for row in here)
            layouts.append(build_layout(cls, arch, size, form, partial))
        weights = [2 ** (len(slots) - 1 - i) for i in range(len(slots))]
        FAMILIES[cls, arch] = Family(
            tuple(
                (weight, row.name, row.lo // 8 + 3, row.others[0])
                for weight, row in zip(weights, slots, strict=True)
            ),
            tuple(layouts),
        )
    newest = LAYOUTS[cls] = FAMILIES[cls, Arch.MARIANA].layouts[0]
    # The codec of the form that nearly every bundle has is made now, the others when first used.
    _ = newest.decode


def build_layout(cls: type, arch: Arch, size: int, rows: tuple[Row, ...], partial: bool) -> Layout:
    """Prove that the rows cover the record once.

    Raises:
      TypeError: when rows overlap, leave the record, or (unless ``partial``) leave a bit unnamed.
    """
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
    return Layout(
        cls, arch, size, rows, tuple(leaves),
        const_mask=sum(leaf.mask for leaf in constants),
        const_match=sum(leaf.row.value << leaf.lo for leaf in constants),
        reserved_mask=sum(leaf.mask for leaf in leaves if leaf.row.kind is Kind.RESERVED),
    )  # fmt: skip
