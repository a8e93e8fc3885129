"""Views of an MXArray that keep every block whole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mxref.blockshape import BlockShape, block_extents
from mxref.errors import ShapeError

if TYPE_CHECKING:
    from mxref.mxarray import MXArray


def _normal(axis: int, ndim: int) -> int:
    if not -ndim <= axis < ndim:
        raise ShapeError("axis", axis, f"an axis of an array of {ndim} axes")
    return axis % ndim


def transpose(q: MXArray, axes: Sequence[Any]) -> MXArray:
    """Permute axes of codes and scales together."""
    if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], Sequence)):
        axes = axes[0] or ()
    order = [_normal(a, q.ndim) for a in axes] if axes else list(range(q.ndim))[::-1]
    if sorted(order) != list(range(q.ndim)):
        raise ShapeError("axes", tuple(axes), f"a permutation of {q.ndim} axes")
    axis, block = q.axis, q.block
    if isinstance(block, BlockShape):
        tail = [a - q.ndim for a in order[-2:]]
        if sorted(tail) != [-2, -1]:
            raise ShapeError("axes", tuple(axes), "the last two axes to stay last (BlockShape)")
        if tail == [-1, -2]:
            block = BlockShape(block.free, block.partitions)
    else:
        axis = order.index(axis + q.ndim) - q.ndim
    return q.with_data(q.codes.transpose(order), q.scales.transpose(order), axis=axis, block=block)


def swapaxes(q: MXArray, first: int, second: int) -> MXArray:
    """Exchange two axes."""
    order = list(range(q.ndim))
    i, j = _normal(first, q.ndim), _normal(second, q.ndim)
    order[i], order[j] = order[j], order[i]
    return transpose(q, order)


def reshape(q: MXArray, shape: Sequence[Any]) -> MXArray:
    """Reshape in C order where block boundaries stay where they are.

    Along one axis the boundaries stay when the axis keeps its length and what follows it keeps its
    size, or when old and new length are both whole numbers of blocks.
    """
    if len(shape) == 1 and isinstance(shape[0], Sequence):
        shape = shape[0]
    new = [int(n) for n in shape]
    if new.count(-1) == 1:
        rest = -math.prod(new)
        new[new.index(-1)] = q.size // rest if rest else 0
    if math.prod(new) != q.size or min(new, default=0) < 0:
        raise ShapeError("shape", tuple(shape), f"{q.size} elements")
    if isinstance(q.block, BlockShape):
        if tuple(new[-2:]) != q.shape[-2:]:
            raise ShapeError("shape", tuple(shape), "the last two axes unchanged (BlockShape)")
        return q.with_data(q.codes.reshape(new), q.scales.reshape(*new[:-2], *q.scales.shape[-2:]))
    old, block = q.shape[q.axis], q.block
    after = math.prod(q.shape[q.ndim + q.axis + 1 :])
    for p in range(len(new)):
        same = new[p] == old or (new[p] % block == 0 and old % block == 0)
        if same and math.prod(new[p + 1 :]) == after:
            scales = [*new[:p], -(-new[p] // block), *new[p + 1 :]]
            return q.with_data(q.codes.reshape(new), q.scales.reshape(scales), axis=p - len(new))
    raise ShapeError(
        "shape",
        tuple(shape),
        f"blocks of {block} along axis {q.axis} of {q.shape} left whole",
        "dequantize, reshape and quantize again",
    )


def getitem(q: MXArray, index: Any) -> MXArray:
    """Basic indexing of codes and scales together."""
    items = list(index) if isinstance(index, tuple) else [index]
    if sum(i is Ellipsis for i in items) > 1:
        raise ShapeError("index", index, "one ellipsis at most")
    missing = q.ndim - sum(i is not None and i is not Ellipsis for i in items)
    if missing < 0:
        raise ShapeError("index", index, f"at most {q.ndim} axes")
    at = next((n for n, i in enumerate(items) if i is Ellipsis), len(items))
    items[at : at + 1] = [slice(None)] * missing
    extents = {a + q.ndim: n for a, n in block_extents(q.ndim, q.axis, q.block).items()}
    codes: list[Any] = []
    scales: list[Any] = []
    kept: list[int | None] = []  # the old axis of every new one
    old = 0
    for item in items:
        if item is None:
            codes.append(None)
            scales.append(None)
            kept.append(None)
            continue
        if isinstance(item, np.integer):
            item = int(item)
        if isinstance(item, bool) or not isinstance(item, int | slice):
            raise ShapeError("index", item, "integers, slices, None and an ellipsis")
        size = q.shape[old]
        if isinstance(item, int) and not -size <= item < size:
            raise ShapeError("index", item, f"below {size} on axis {old}")
        codes.append(item)
        scales.append(_block_slice(item, size, extents[old]) if old in extents else item)
        if isinstance(item, slice):
            kept.append(old)
        old += 1
    axis = kept.index(q.axis + q.ndim) - len(kept)
    if isinstance(q.block, BlockShape) and kept[-2:] != [q.ndim - 2, q.ndim - 1]:
        raise ShapeError("index", index, "no new axis among the last two (BlockShape)")
    return q.with_data(q.codes[tuple(codes)], q.scales[tuple(scales)], axis=axis)


def _block_slice(item: int | slice, size: int, block: int) -> slice:
    if isinstance(item, int):
        raise ShapeError("index", item, "a slice along a blocked axis")
    start, stop, step = item.indices(size)
    stop = max(start, stop)
    whole = start % block == 0 and (stop % block == 0 or stop == size)
    if step != 1 or not (whole or start == stop):
        raise ShapeError("index", item, f"step 1 and whole blocks of {block}")
    first = start // block
    return slice(first, first - (-(stop - start) // block))
