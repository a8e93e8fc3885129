"""The stationary operand inside the array: one set of latches per 32-row quadrant.

LdWeightMx fills the quadrants of its row group; MatmultMx reads those of its own, so several tiles
can be loaded at once and used in any order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hardware.pe import LANE_GROUPS, LaneGroup
from mxref.errors import ExecutionError
from mxref.formats import FormatSpec

from .memory import Where
from .operands import Packed
from .product import Side, left_side


@dataclass(frozen=True)
class Latched:
    """What one quadrant holds: 32 partitions of every loaded column."""

    value: Packed
    format: FormatSpec
    index: int


def lane_group(code: int, rows: int, partition: int, index: int) -> LaneGroup:
    """Return the row group, which fixes the number of rows and the operand's first partition.

    Raises:
      ExecutionError: when code, row count and start partition do not belong together.
    """
    group = LANE_GROUPS.get(code)
    if group is None or group.lanes != rows:
        raise ExecutionError(index, "row_group", f"{code:#x} is no group of {rows} rows")
    if group.start != partition:
        # "PE Matrix-Multiply Path": the group's lanes are fed by the partitions of the same number.
        reason = f"partition {partition}, but row group {code:#x} starts at {group.start}"
        raise ExecutionError(index, "src.data", reason)
    return group


class Latches:
    """The four quadrants' latches."""

    def __init__(self) -> None:
        self._quadrants: list[Latched | None] = [None] * 4
        self._used: tuple[object, Side] | None = None

    def load(self, group: LaneGroup, value: Packed, fmt: FormatSpec, index: int) -> None:
        """Fill the quadrants of a row group."""
        self._used = None
        for i, quadrant in enumerate(group.quadrants):
            rows, blocks = slice(32 * i, 32 * i + 32), slice(4 * i, 4 * i + 4)
            poison = None if value.poison is None else value.poison[blocks]
            part = Packed(value.codes[rows], value.scales[blocks], poison)
            self._quadrants[quadrant] = Latched(part, fmt, index)

    def use(self, group: LaneGroup, columns: int, where: Where) -> Side:
        """Return the first ``columns`` columns of a row group.

        Raises:
          ExecutionError: when a quadrant is empty or narrower, or quadrants differ in format.
        """
        key = group.code, columns
        if self._used is not None and self._used[0] == key:
            return self._used[1]
        side = self._collect(group, columns, where)
        self._used = key, side
        return side

    def _collect(self, group: LaneGroup, columns: int, where: Where) -> Side:
        parts: list[Latched] = []
        for quadrant in group.quadrants:
            part = self._quadrants[quadrant]
            if part is None:
                raise where.error(f"no LdWeightMx has filled quadrant {quadrant}")
            if part.value.codes.shape[1] < columns:
                raise where.error(
                    f"{columns} columns, but bundle {part.index} loaded "
                    f"{part.value.codes.shape[1]} into quadrant {quadrant}"
                )
            parts.append(part)
        formats = {part.format for part in parts}
        if len(formats) > 1:
            names = ", ".join(sorted(str(f) for f in formats))
            raise where.error(f"the row group's quadrants hold different formats: {names}")
        values = [part.value for part in parts]
        codes = np.concatenate([v.codes[:, :columns] for v in values])
        scales = np.concatenate([v.scales[:, :columns] for v in values])
        poison = None
        if any(v.poison is not None for v in values):
            blank = np.zeros((4, columns), np.bool_)
            poison = np.concatenate(
                [blank if v.poison is None else v.poison[:, :columns] for v in values]
            )
        return left_side(Packed(codes, scales, poison), parts[0].format)
