"""Between a contraction axis K and the tensor engine's (partition, 4 lanes) layout (D22, D23g).

Layout conversion for the array API: ``interleaved[..., p, 4 n + c] = x[..., k(p, c), n]``.
"""

from __future__ import annotations

from typing import overload

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from mxref.blockshape import BlockShape
from mxref.errors import PolicyError, ShapeError
from mxref.mxarray import MXArray

LANES = 4
_TILE = BlockShape(partitions=8, free=LANES)
_BLOCK = _TILE.partitions * LANES


def _check(shape: tuple[int, ...], axis: int, kmap: str) -> None:
    if kmap not in ("adjacent", "strided"):
        raise PolicyError("kmap", kmap, "adjacent, strided")
    if len(shape) < 2:
        raise ShapeError("x", shape, "at least 2 axes")
    if shape[axis] % LANES:
        raise ShapeError("x", shape, f"axis {axis} a multiple of {LANES}", "pad with zeros")


def _forward(x: Array, kmap: str) -> Array:
    *batch, k, n = x.shape
    if kmap == "adjacent":
        lanes = jnp.swapaxes(x.reshape(*batch, k // LANES, LANES, n), -1, -2)
    else:
        lanes = jnp.moveaxis(x.reshape(*batch, LANES, k // LANES, n), -3, -1)
    return lanes.reshape(*batch, k // LANES, n * LANES)


def _backward(x: Array, kmap: str) -> Array:
    *batch, p, f = x.shape
    lanes = x.reshape(*batch, p, f // LANES, LANES)
    lanes = jnp.swapaxes(lanes, -1, -2) if kmap == "adjacent" else jnp.moveaxis(lanes, -1, -3)
    return lanes.reshape(*batch, p * LANES, f // LANES)


@overload
def interleave(x: MXArray, kmap: str = ...) -> MXArray: ...
@overload
def interleave(x: Array | np.ndarray, kmap: str = ...) -> Array: ...
def interleave(x: MXArray | Array | np.ndarray, kmap: str = "adjacent") -> MXArray | Array:
    """Lay the K axis (-2) out over partitions and lanes.

    Args:
      x: array[..., K, N], or an MXArray whose blocks of 32 run along axis -2.
      kmap: "adjacent" has k = 4 p + c and keeps 32 consecutive k in one 8 x 4 block; "strided" has
        k = c K/4 + p, as the vendor's kernels do.

    Returns:
      array[..., K/4, 4 N]; an MXArray comes back with ``BlockShape(8, 4)`` and the same scales.

    Raises:
      ShapeError: when K is no multiple of 4, or an MXArray's blocks would be torn apart.

    Exactness:
      Moves elements.
    Gradient:
      That of a permutation, for float arrays.

    Example:
      >>> interleave(np.arange(4.0, dtype=np.float32)[:, None]).tolist()
      [[0.0, 1.0, 2.0, 3.0]]
    """
    _check(tuple(x.shape), -2, kmap)
    if not isinstance(x, MXArray):
        return _forward(jnp.asarray(x), kmap)
    if kmap != "adjacent":
        raise ShapeError(
            "kmap", kmap, "adjacent for an MXArray", "interleave the array, then quantize"
        )
    if x.block != _BLOCK or x.axis != -2:
        got = f"block {x.block} along axis {x.axis}"
        raise ShapeError("x", got, f"block {_BLOCK} along axis -2", "quantize(x, fmt, axis=-2)")
    # Block (8 partitions, 4 lanes) holds k = 32 b .. 32 b + 31: the scales stay where they are.
    return x.with_data(_forward(x.codes, kmap), x.scales, axis=-1, block=_TILE)


@overload
def deinterleave(x: MXArray, kmap: str = ...) -> MXArray: ...
@overload
def deinterleave(x: Array | np.ndarray, kmap: str = ...) -> Array: ...
def deinterleave(x: MXArray | Array | np.ndarray, kmap: str = "adjacent") -> MXArray | Array:
    """Undo :func:`interleave`.

    Args:
      x: array[..., P, 4 N], or an MXArray with ``BlockShape(8, 4)``.
      kmap: the map that laid it out.

    Returns:
      array[..., 4 P, N]; an MXArray comes back with blocks of 32 along axis -2.

    Raises:
      ShapeError: when the last axis is no multiple of 4, or an MXArray has other blocks.

    Exactness:
      Moves elements.
    Gradient:
      That of a permutation, for float arrays.
    """
    _check(tuple(x.shape), -1, kmap)
    if not isinstance(x, MXArray):
        return _backward(jnp.asarray(x), kmap)
    if kmap != "adjacent" or x.block != _TILE:
        raise ShapeError("x", f"block {x.block}, kmap {kmap}", f"{_TILE} and adjacent")
    return x.with_data(_backward(x.codes, kmap), x.scales, axis=-2, block=_BLOCK)
