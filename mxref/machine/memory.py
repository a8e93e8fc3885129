"""The memories while a program runs: working copies that are made when first written.

A run works on copies and publishes a new State at the end, so a program that is refused half way
has changed nothing.  Every access checks its bounds first and speaks of the bundle it belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, UInt8

from hardware import Arch, Space
from mxref.errors import ExecutionError, UninitialisedError
from mxref.program import arrays

from . import state as _state
from .state import State, Uninitialised


@dataclass(frozen=True)
class Where:
    """Who is asking: position of the bundle in its program, and the operand."""

    index: int
    field: str

    def error(self, reason: str, address: int | None = None) -> ExecutionError:
        """Return the error that says so."""
        return ExecutionError(self.index, self.field, reason, address)


def partition_mask(partitions: Any) -> int:
    """Return a set of partitions as the bits of a number."""
    if isinstance(partitions, slice):
        return (1 << partitions.stop) - (1 << partitions.start)
    return sum(1 << int(p) for p in np.ravel(partitions))


@dataclass(frozen=True)
class Window:
    """Some partitions, as bits, and the byte columns ``low .. high - 1`` of each."""

    partitions: int
    low: int
    high: int

    def meets(self, other: Window) -> bool:
        """Whether the two share a byte."""
        apart = self.high <= other.low or other.high <= self.low
        return not apart and bool(self.partitions & other.partitions)


class Memory:
    """Mutable working copies of one State's memories."""

    def __init__(self, state: State | None, arch: Arch, uninitialised: Uninitialised) -> None:
        self.uninitialised = uninitialised
        #: What was written or forgotten in SBUF, in time order.
        self.changes: list[Window] = []
        self._base = State.empty(arch) if state is None else state
        # Fresh zeros are the run's own; a given State's arrays are copied when first written.
        self._owned = {Space.SBUF, Space.PSUM} if state is None else set[Space]()
        base = self._base
        self._bytes = {Space.SBUF: np.asarray(base.sbuf), Space.PSUM: np.asarray(base.psum)}
        self._written = {
            Space.SBUF: np.asarray(base.sbuf_written),
            Space.PSUM: np.asarray(base.psum_written),
        }
        if state is None:
            for table in (self._bytes, self._written):
                for array in table.values():
                    array.setflags(write=True)

    def size(self, space: Space) -> int:
        """Bytes per partition."""
        return self._bytes[space].shape[1]

    def _own(self, space: Space) -> tuple[np.ndarray, np.ndarray]:
        if space not in self._owned:
            self._bytes[space] = self._bytes[space].copy()
            self._written[space] = self._written[space].copy()
            self._owned.add(space)
        return self._bytes[space], self._written[space]

    def check(
        self, space: Space, where: Where, partition: int, rows: int, low: int, high: int
    ) -> None:
        """Refuse a window of ``rows`` partitions and bytes ``low .. high - 1``.

        Raises:
          ExecutionError: when any of it lies outside the memory.
        """
        if partition < 0 or partition + rows > _state.PARTITIONS:
            last = partition + rows - 1
            raise where.error(f"partitions {partition}..{last} leave {space.value}'s 0..127")
        if low < 0 or high > self.size(space):
            raise where.error(
                f"bytes {low:#x}..{high - 1:#x} of a partition leave {space.value}'s "
                f"0..{self.size(space) - 1:#x}",
                max(low, 0),
            )

    def read(
        self, space: Space, where: Where, partitions: Any, columns: Any, *, rows_hint: int = 0
    ) -> tuple[UInt8[np.ndarray, "P B"], Bool[np.ndarray, "P B"] | None]:
        """Return bytes and which of them nothing wrote; None when all are written.

        Args:
          space: memory.
          where: who asks.
          partitions: slice or index array.
          columns: slice or index array of bytes; index arrays may have two axes.
          rows_hint: first partition, for the message.

        Raises:
          UninitialisedError: when the run was asked to raise.
        """
        raw = _take(self._bytes[space], partitions, columns)
        written = _take(self._written[space], partitions, columns)
        if written.all():
            return raw, None
        if self.uninitialised == "raise":
            row, column = (int(i) for i in np.argwhere(~written.reshape(len(written), -1))[0])
            raise UninitialisedError(
                where.index,
                where.field,
                f"nothing wrote byte {column} of row {row} of this operand "
                f"({space.value} from partition {rows_hint})",
            )
        if self.uninitialised == "zero":
            return np.where(written, raw, np.uint8(0)), None
        return raw, ~written

    def write(self, space: Space, partitions: Any, columns: Any, raw: Any) -> None:
        """Store bytes."""
        memory, written = self._own(space)
        self._note(space, partitions, columns)
        memory[partitions, columns] = raw
        written[partitions, columns] = True

    def forget(self, space: Space, partitions: Any, columns: Any, known: np.ndarray) -> None:
        """Mark bytes as not written where ``known`` is false: a result of unwritten operands."""
        _, written = self._own(space)
        self._note(space, partitions, columns)
        written[partitions, columns] = known

    def _note(self, space: Space, partitions: Any, columns: Any) -> None:
        if space is Space.SBUF:
            if not isinstance(columns, slice):
                columns = slice(int(columns.min()), int(columns.max()) + 1)
            self.changes.append(Window(partition_mask(partitions), columns.start, columns.stop))

    def publish(self, **rest: Any) -> State:
        """Return the State that the run produced.

        Its arrays are read-only.  The given State's are left as they are: those that nobody can
        write to are shared, and the others copied.
        """
        held = [
            array.copy() if space not in self._owned and array.flags.writeable else array
            for table in (self._bytes, self._written)
            for space, array in table.items()
        ]
        sbuf, psum, sbuf_written, psum_written = map(arrays.frozen, held)
        return State(sbuf, psum, sbuf_written, psum_written, arch=self._base.arch, **rest)


def _take(memory: np.ndarray, partitions: Any, columns: Any) -> np.ndarray:
    # Slices make views, so the side with a slice goes first: whole partitions are never copied.
    if isinstance(columns, slice):
        return memory[:, columns][partitions]
    return memory[partitions][:, columns]
