"""Operands of any rank brought to ``[M, K] @ [K, N]``, or to a batch of it, and back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from mxref.blockshape import BlockShape
from mxref.dot.ordered import Operand
from mxref.errors import FormatError, ShapeError
from mxref.formats import Special
from mxref.formats import format as resolve_format
from mxref.mxarray import MXArray


def operand(name: str, value: Any) -> Operand:
    """Take an MXArray as it is, an array of a float dtype of at most 32 bits, or numbers.

    Raises:
      FormatError: for float64 and for dtypes without a format.
      ShapeError: for arrays that hold no floats.
    """
    if isinstance(value, MXArray):
        return value
    if not hasattr(value, "dtype"):  # Python numbers
        value = np.asarray(value)
        if value.dtype.kind in "fiu":
            value = value.astype(np.float32)
    if isinstance(value, np.ndarray) and not value.dtype.isnative:
        value = value.astype(value.dtype.newbyteorder("="))
    dtype = value.dtype
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ShapeError(name, dtype, "an MXArray or a float array")
    if dtype == np.float64:
        raise FormatError(dtype, f"cast {name} to float32 first: {name}.astype(jnp.float32)")
    if resolve_format(dtype).special is Special.SCALE:
        raise FormatError(dtype, f"{name} must hold elements, not scales")
    return jnp.asarray(value)


@dataclass(frozen=True)
class Shapes:
    """How the operands of one product relate to the canonical ones.

    Attributes:
      batch: broadcast batch axes of the result.
      m: rows of the result; None when lhs has one axis.
      n: columns of the result; None when rhs has one axis.
      k: the contracted extent.
      stacked: whether the canonical operands have a batch axis.
    """

    batch: tuple[int, ...]
    m: int | None
    n: int | None
    k: int
    stacked: bool

    @property
    def result(self) -> tuple[int, ...]:
        """Shape of the result."""
        return (*self.batch, *(extent for extent in (self.m, self.n) if extent is not None))

    @property
    def canonical(self) -> tuple[int, ...]:
        """Shape of the result of the canonical operands."""
        m, n = (1 if extent is None else extent for extent in (self.m, self.n))
        size = math.prod(self.batch)
        return (size, m, n) if self.stacked else (size * m, n)


def resolve(lhs: Operand, rhs: Operand) -> Shapes:
    """Check the operands against each other, as ``jnp.matmul`` does.

    Raises:
      ShapeError: when they cannot be contracted, or the blocks of one run along another axis
        (D23f, D23g).
    """
    for name, side, axis in (("lhs", lhs, -1), ("rhs", rhs, -2 if rhs.ndim > 1 else -1)):
        if side.ndim == 0:
            raise ShapeError(name, "a scalar", "at least one axis")
        if not isinstance(side, MXArray):
            continue
        if isinstance(side.block, BlockShape):
            raise ShapeError(f"{name}.block", side.block, "blocks along K", "mx.deinterleave")
        if side.axis != axis:
            fix = f"quantize({name}, axis={axis})"
            raise ShapeError(f"{name}.axis", side.axis, f"blocks along axis {axis}", fix)
    k = lhs.shape[-1]
    other = rhs.shape[-2] if rhs.ndim > 1 else rhs.shape[-1]
    if k != other or k == 0:
        raise ShapeError("K", (k, other), "equal and at least 1", "lhs axis -1 meets rhs axis -2")
    try:
        batch = np.broadcast_shapes(lhs.shape[:-2], rhs.shape[:-2])
    except ValueError:
        got = (lhs.shape[:-2], rhs.shape[:-2])
        raise ShapeError("batch axes", got, "shapes that broadcast") from None
    return Shapes(
        batch,
        lhs.shape[-2] if lhs.ndim > 1 else None,
        rhs.shape[-1] if rhs.ndim > 1 else None,
        k,
        stacked=math.prod(rhs.shape[:-2]) != 1,
    )


def canonical(lhs: Operand, rhs: Operand, shapes: Shapes) -> tuple[Operand, Operand]:
    """Both operands with two axes, or both with three.

    A right operand without batch axes sees all left rows at once: rows are independent.
    """
    if lhs.ndim == 1:
        lhs = _map(lhs, lambda x: x[None, :])
    if rhs.ndim == 1:
        rhs = _map(rhs, lambda x: x[:, None], axis=-2)
    if shapes.stacked:
        return _stack(lhs, shapes.batch), _stack(rhs, shapes.batch)

    def rows(x: Array) -> Array:
        return jnp.broadcast_to(x, (*shapes.batch, *x.shape[-2:])).reshape(-1, x.shape[-1])

    return _map(lhs, rows), _map(rhs, lambda x: x.reshape(x.shape[-2:]))


def _stack(side: Operand, batch: tuple[int, ...]) -> Operand:
    size = math.prod(batch)

    def stack(x: Array) -> Array:
        return jnp.broadcast_to(x, (*batch, *x.shape[-2:])).reshape(size, *x.shape[-2:])

    return _map(side, stack)


def _map(side: Operand, function, axis: int | None = None) -> Operand:
    if not isinstance(side, MXArray):
        return function(side)
    static = {} if axis is None else {"axis": axis}
    return side.with_data(function(side.codes), function(side.scales), **static)
