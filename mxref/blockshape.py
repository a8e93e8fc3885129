"""Which elements share a scale (D22, D23g), and which formats can be elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mxref.errors import FormatError, PolicyError, ShapeError
from mxref.formats import FORMATS, FormatSpec, Special, format


@dataclass(frozen=True)
class BlockShape:
    """A block that spans the last two axes, read as (partition, free) (D22, D23g).

    Attributes:
      partitions: extent along axis -2.
      free: extent along axis -1.
    """

    partitions: int = 8
    free: int = 4

    def __post_init__(self) -> None:
        for name in ("partitions", "free"):
            _positive("block", getattr(self, name))


def _positive(option: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise PolicyError(option, value, "a positive integer")
    return int(value)


def block_extents(ndim: int, axis: int, block: int | BlockShape) -> dict[int, int]:
    """Block length per blocked axis; axes are negative.

    Raises:
      ShapeError: when the array has too few axes, or the axis does not exist.
      PolicyError: when the block is not a positive integer or a BlockShape.
    """
    if isinstance(block, BlockShape):
        if ndim < 2:
            raise ShapeError("x", f"{ndim} axes", "at least 2 for a BlockShape")
        return {-2: block.partitions, -1: block.free}
    length = _positive("block", block)
    if not -ndim <= axis < ndim:
        raise ShapeError("axis", axis, f"an axis of an array of {ndim} axes")
    return {axis if axis < 0 else axis - ndim: length}


def working_extents(shape: Sequence[int], axis: int, block: int | BlockShape) -> dict[int, int]:
    """Block length per blocked axis, none longer than its axis.

    The padding of a partial block is virtual (D23g): a block beyond the end of its axis holds the
    same elements as one that ends there, and a kernel need not lay the rest out.
    """
    found = block_extents(len(shape), axis, block)
    return {where: max(1, min(length, shape[where])) for where, length in found.items()}


def block_length(value: object, option: str = "block") -> int:
    """A block length along one axis, as a Python integer.

    Raises:
      PolicyError: when it is no positive integer.
    """
    return _positive(option, value)


def scales_shape(shape: Sequence[int], axis: int, block: int | BlockShape) -> tuple[int, ...]:
    """Shape of the scales: every blocked axis divided by its block length, rounded up."""
    out = list(shape)
    for where, length in block_extents(len(out), axis, block).items():
        out[where] = -(-out[where] // length)
    return tuple(out)


def element_format(spec: object) -> FormatSpec:
    """Resolve a format and refuse those that cannot be the elements of a block.

    Raises:
      FormatError: for E8M0 and for formats wider than 8 bits.
    """
    found = format(spec)
    if found.bits > 8 or found.special is Special.SCALE:
        names = ", ".join(
            f.name for f in FORMATS.values() if f.bits <= 8 and f.special is not Special.SCALE
        )
        raise FormatError(found, f"not an element format; these are: {names}")
    return found
