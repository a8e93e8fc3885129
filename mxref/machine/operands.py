"""Operand descriptors against memory: addresses, walks, packed elements and their scales.

Data of P partitions based at partition b is packed four lanes to a container; scale row i of the
P / 8 rows lies at partition b + p + 32 (i >> 2) + (i & 3), one byte per container column, where b
comes with the scale address and p is the descriptor's scale partition (D25b).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int, UInt8

from encoding import Addr4, Indirect16, MxIndirect, MxPattern, Tensor3D
from hardware import Space, WireDtype
from mxref.errors import Unmodelled
from mxref.formats import BF16, E2M1FN, E4M3FN, E5M2, FP16, FP32, FormatSpec
from mxref.program import layout

from .memory import Memory, Where, Window, partition_mask

#: Partitions that share a scale (D22).
BLOCK_ROWS = 8
#: Wire tags in MX bundles; the wire cannot tell E4M3FN from the IEEE-like E4M3 (D18).
MX_FORMATS: dict[int, FormatSpec] = {
    WireDtype.FP8_EXP4: E4M3FN,
    WireDtype.FP8_EXP5: E5M2,
    WireDtype.FP4_EXP2: E2M1FN,
}
SOURCE_FORMATS: dict[int, FormatSpec] = {WireDtype.BFLOAT16: BF16, WireDtype.FP16: FP16}
RESULT_FORMATS: dict[int, FormatSpec] = {WireDtype.BFLOAT16: BF16, WireDtype.FP32: FP32}


def format_of(table: dict[int, FormatSpec], tag: int, where: Where) -> FormatSpec:
    """Return the format of a wire tag.

    Raises:
      Unmodelled: for a tag whose arithmetic no source gives.
    """
    if tag not in table:
        names = ", ".join(str(f) for f in table.values())
        raise Unmodelled(where.index, where.field, f"element type {tag:#04x}; modelled: {names}")
    return table[tag]


def locate(address: Addr4, space: Space, where: Where) -> tuple[int, int]:
    """Return the partition and byte offset of a static address.

    Raises:
      Unmodelled: when the address or the shape is in a register, or the word is a gather index.
      ExecutionError: when the address lies in another memory.
    """
    for is_set, what in (
        (address.is_register, "an address in a register"),
        (address.is_indirect, "an index vector of a gather"),
        (address.is_shape_register, "a shape in a register"),
    ):
        if is_set:
            reason = f"{what} ({address.word:#010x}) is not executed yet"
            raise Unmodelled(where.index, where.field, reason)
    if address.space is not space:
        raise where.error(f"the operand must lie in {space.value}", address.word)
    return address.partition, address.offset


def packed_slot(operand: MxPattern | MxIndirect, where: Where) -> MxPattern:
    """Return the static descriptor of an MX slot.

    Raises:
      Unmodelled: for a gather.
    """
    if isinstance(operand, MxIndirect):
        raise Unmodelled(where.index, where.field, _gather(operand.index))
    return operand


def tensor_slot(operand: Tensor3D | Indirect16, where: Where) -> Tensor3D:
    """Return the static descriptor of a tensor slot.

    Raises:
      Unmodelled: for a gather.
    """
    if isinstance(operand, Indirect16):
        raise Unmodelled(where.index, where.field, _gather(operand.index))
    return operand


def _gather(index: Addr4) -> str:
    return f"a gather with index vector {index.word:#010x} is not executed yet"


def packed_rows(rows: int, where: Where) -> int:
    """Return a number of partitions that have scale rows: eight to a row.

    Raises:
      ExecutionError: for any other number.
    """
    if rows <= 0 or rows % BLOCK_ROWS:
        raise where.error(f"{rows} partitions are not whole blocks of {BLOCK_ROWS}")
    return rows


@dataclass(frozen=True)
class Packed:
    """A packed operand taken out of memory.

    Attributes:
      codes: one code per element: partition, container, lane.
      scales: one scale code per block of 8 partitions x 4 lanes.
      poison: blocks of which nothing wrote some byte; None when there are none.
    """

    codes: UInt8[np.ndarray, "P n 4"]
    scales: UInt8[np.ndarray, "B n"]
    poison: Bool[np.ndarray, "B n"] | None


@dataclass(frozen=True)
class PackedPlace:
    """Where a packed operand lies: checked, static, and in walk order."""

    partition: int
    rows: int
    data: slice
    scale_rows: Int[np.ndarray, "B"]
    scale: slice
    containers: int
    bits: int
    reverse: bool

    def windows(self) -> tuple[Window, Window]:
        """The bytes of the elements and of the scales."""
        rows = partition_mask(slice(self.partition, self.partition + self.rows))
        return (
            Window(rows, self.data.start, self.data.stop),
            Window(partition_mask(self.scale_rows), self.scale.start, self.scale.stop),
        )


def place(
    memory: Memory,
    operand: MxPattern | MxIndirect,
    fmt: FormatSpec,
    rows: int,
    where: Where,
) -> PackedPlace:
    """Resolve a descriptor to bytes.

    Raises:
      ExecutionError: when it walks no whole containers or leaves the memory.
      Unmodelled: for a gather.
    """
    pattern = packed_slot(operand, where)
    data_at = Where(where.index, f"{where.field}.data")
    scale_at = Where(where.index, f"{where.field}.scale")
    partition, offset = locate(pattern.data, Space.SBUF, data_at)
    base, scale_offset = locate(pattern.scale, Space.SBUF, scale_at)
    n, rest = divmod(pattern.extent, layout.LANES)
    if rest or n == 0:
        reason = f"{pattern.extent} elements are not whole containers of {layout.LANES}"
        raise Where(where.index, f"{where.field}.extent").error(reason)
    if pattern.step not in (1, -1):
        raise Where(where.index, f"{where.field}.step").error(f"{pattern.step}, allowed 1 and -1")
    if base % 32:
        raise scale_at.error(f"partition {base} is not the base of a quadrant")
    if base // 32 != partition // 32:
        # "MX-Matmul Legality Contract & Dequant", codes 212 and 213.
        raise scale_at.error(f"partition {base} is not in the quadrant of the data at {partition}")
    size = fmt.bits * layout.LANES // 8
    back = (n - 1) if pattern.step < 0 else 0
    low, scale_low = offset - back * size, scale_offset - back
    memory.check(Space.SBUF, data_at, partition, rows, low, low + n * size)
    scale_rows = np.array(layout.scale_partitions(base + pattern.scale_partition, rows))
    span = int(scale_rows[-1] - scale_rows[0]) + 1
    memory.check(Space.SBUF, scale_at, int(scale_rows[0]), span, scale_low, scale_low + n)
    return PackedPlace(
        partition,
        rows,
        slice(low, low + n * size),
        scale_rows,
        slice(scale_low, scale_low + n),
        n,
        fmt.bits,
        pattern.step < 0,
    )


def fetch(memory: Memory, at: PackedPlace, where: Where) -> Packed:
    """Read a packed operand."""
    rows = slice(at.partition, at.partition + at.rows)
    raw, unknown = memory.read(Space.SBUF, where, rows, at.data, rows_hint=at.partition)
    scales, scale_unknown = memory.read(
        Space.SBUF, where, at.scale_rows, at.scale, rows_hint=int(at.scale_rows[0])
    )
    poison = None
    if unknown is not None or scale_unknown is not None:
        poison = np.zeros(scales.shape, np.bool_)
        if unknown is not None:
            poison |= unknown.reshape(at.rows // 8, 8, at.containers, -1).any(axis=(1, 3))
        if scale_unknown is not None:
            poison |= scale_unknown
    codes = layout.unpack(np.ascontiguousarray(raw), at.bits)
    if at.reverse:
        codes, scales = codes[:, ::-1], scales[:, ::-1]
        poison = None if poison is None else poison[:, ::-1]
    return Packed(codes, scales, poison)


def store(memory: Memory, at: PackedPlace, value: Packed) -> None:
    """Write a packed operand; poisoned containers and their scales end up as not written."""
    codes, scales, poison = value.codes, value.scales, value.poison
    if at.reverse:
        codes, scales = codes[:, ::-1], scales[:, ::-1]
        poison = None if poison is None else poison[:, ::-1]
    rows = slice(at.partition, at.partition + at.rows)
    memory.write(Space.SBUF, rows, at.data, layout.pack(codes, at.bits))
    columns = np.arange(at.scale.start, at.scale.stop)
    memory.write(Space.SBUF, at.scale_rows[:, None], columns, scales)
    if poison is not None:
        known = np.repeat(~poison, 8, axis=0)
        memory.forget(Space.SBUF, rows, at.data, np.repeat(known, at.bits // 2, axis=1))
        memory.forget(Space.SBUF, at.scale_rows[:, None], columns, ~poison)


def walk(pattern: Tensor3D, size: int) -> Int[np.ndarray, "n"]:
    """Return the byte displacements of a 3-D walk, innermost index fastest (D14)."""
    steps = [np.arange(num) * step for num, step in zip(pattern.nums, pattern.steps, strict=True)]
    inner, middle, outer = steps
    return (outer[:, None, None] + middle[:, None] + inner).reshape(-1) * size


def byte_columns(offsets: Int[np.ndarray, "n"], size: int) -> slice | Int[np.ndarray, "n size"]:
    """Return the byte columns of elements: a slice (so views) where they are neighbours."""
    low, n = int(offsets[0]), len(offsets)
    if n == 1 or np.array_equal(offsets, low + size * np.arange(n)):
        return slice(low, low + n * size)
    return offsets[:, None] + np.arange(size)
