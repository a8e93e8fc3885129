"""HiF4 as bytes: lanes two to a byte, and the images in which metadata words travel.

Source: the PTO tile ISA (packed pairs, U32 scales, CUBE_M32 tiles), AMCT's packer and the A6 matmul
page of the PTO tile library; D21, D33.
"""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, UInt8, UInt32

from mxref.errors import PolicyError, ShapeError
from mxref.hif4.array import HiF4Array, negative_axis
from mxref.hif4.metadata import GROUP


class Layout(StrEnum):
    """How metadata words are laid out; rows are the axis before the groups.

    All but CUBE_M32 and A6_PATCH take any number of axes and keep them.
    """

    WORD = "word"  #: four bytes per group, little-endian: E6M2, E1_8, E1_16 low, E1_16 high.
    MSB_FIRST = "msb_first"  #: the same bytes, subgroup 0 in the top bit of the last three (AMCT).
    CUBE_M32 = "cube_m32"  #: 128-byte cells, 32 rows of one group; row blocks outermost.
    A6_PATCH = "a6_patch"  #: 64-byte patches, 16 rows of one group: E6M2 and E1_8, then E1_16.


_ROWS = {Layout.CUBE_M32: 32, Layout.A6_PATCH: 16}


class Packed(NamedTuple):
    """Bytes of a HiF4 array.

    Attributes:
      lanes: element 2i in the low nibble, 2i + 1 in the high nibble, along the grouped axis.
      metadata: the grouped axis moved to the end, then as :class:`Layout` says: [..., groups, 4],
        [row blocks, groups, 128] or [row blocks, groups, 64].
    """

    lanes: UInt8[Array, "..."]
    metadata: UInt8[Array, "..."]


def pack(q: HiF4Array, *, layout: Layout | str = Layout.WORD) -> Packed:
    """Pack a HiF4 array into bytes.

    An odd last lane leaves the high nibble of its byte 0; rows missing from the last block of a
    CUBE_M32 or A6_PATCH image are 0.

    Args:
      q: the array; CUBE_M32 and A6_PATCH want two axes.
      layout: image of the metadata.

    Returns:
      Lanes and metadata, uint8.

    Raises:
      PolicyError: when the layout is unknown.
      ShapeError: when it does not fit the number of axes.

    Exactness:
      A permutation of bits; :func:`unpack` is its inverse.
    Gradient:
      None; codes are integers.

    Example:
      >>> lanes, metadata = pack(quantize([7.0, 0.5, -1.5]))
      >>> bytes(lanes.tolist()).hex(), bytes(metadata[0].tolist()).hex()
      ('170a', 'c0010100')
    """
    return _pack(q, _layout(layout, q.ndim))


@partial(jax.jit, static_argnums=1)
def _pack(q: HiF4Array, layout: Layout) -> Packed:
    codes = jnp.moveaxis(q.codes, q.axis, -1)
    if codes.shape[-1] % 2:
        codes = jnp.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, 1)])
    pairs = codes.reshape(*codes.shape[:-1], codes.shape[-1] // 2, 2)
    lanes = jnp.moveaxis(pairs[..., 0] | pairs[..., 1] << np.uint8(4), -1, q.axis)
    words = jnp.moveaxis(q.metadata, q.axis, -1)
    data = (words[..., None] >> np.arange(0, 32, 8, dtype=np.uint32)).astype(jnp.uint8)
    if layout is Layout.MSB_FIRST:
        data = _reverse_last_three(data)
    elif layout in _ROWS:
        rows = _ROWS[layout]
        blocks = -(-data.shape[0] // rows)
        data = jnp.pad(data, ((0, blocks * rows - data.shape[0]), (0, 0), (0, 0)))
        data = data.reshape(blocks, rows, -1, 4).swapaxes(1, 2)
        if layout is Layout.A6_PATCH:
            data = data.reshape(*data.shape[:3], 2, 2).swapaxes(2, 3)
        data = data.reshape(*data.shape[:2], rows * 4)
    return Packed(lanes, data)


def unpack(
    lanes: UInt8[Array, "..."],
    metadata: UInt8[Array, "..."],
    *,
    size: int | None = None,
    axis: int = -1,
    layout: Layout | str = Layout.WORD,
) -> HiF4Array:
    """Read the bytes that :func:`pack` writes.

    Args:
      lanes: uint8, two lanes a byte along ``axis``.
      metadata: uint8 image of the metadata words.
      size: number of lanes along ``axis``; None for all nibbles of ``lanes``.
      axis: the grouped axis of ``lanes``.
      layout: image of the metadata.

    Returns:
      The HiF4 array.

    Raises:
      PolicyError: when the layout is unknown.
      ShapeError: when dtypes, shapes or the size disagree.

    Exactness:
      A permutation of bits; inverse of :func:`pack`.
    Gradient:
      None; codes are integers.
    """
    lanes, metadata = _bytes(lanes, "lanes"), _bytes(metadata, "metadata")
    layout = _layout(layout, lanes.ndim)
    axis = negative_axis(axis, lanes.ndim)
    half = lanes.shape[axis]
    size = 2 * half if size is None else size
    if not 2 * half - 1 <= size <= 2 * half:
        raise ShapeError("size", size, f"{2 * half - 1} or {2 * half}")
    lead = lanes.shape[:axis] + lanes.shape[lanes.ndim + axis + 1 :]
    groups, rows = -(-size // GROUP), _ROWS.get(layout, 0)
    expected = (-(-lead[0] // rows), groups, rows * 4) if rows else (*lead, groups, 4)
    if metadata.shape != expected:
        raise ShapeError("metadata", metadata.shape, f"{expected} in layout {layout}")
    return HiF4Array(*_unpack(lanes, metadata, size, axis, layout), axis=axis)


@partial(jax.jit, static_argnums=(2, 3, 4))
def _unpack(
    lanes: UInt8[Array, "..."], data: UInt8[Array, "..."], size: int, axis: int, layout: Layout
) -> tuple[UInt8[Array, "..."], UInt32[Array, "..."]]:
    lanes = jnp.moveaxis(lanes, axis, -1)
    *lead, half = lanes.shape
    pairs = jnp.stack([lanes & np.uint8(15), lanes >> np.uint8(4)], axis=-1)
    codes = pairs.reshape(*lead, 2 * half)[..., :size]
    if layout is Layout.MSB_FIRST:
        data = _reverse_last_three(data)
    elif layout in _ROWS:
        blocks, groups, _ = data.shape
        rows = _ROWS[layout]
        if layout is Layout.A6_PATCH:
            data = data.reshape(blocks, groups, 2, rows, 2).swapaxes(2, 3)
        data = data.reshape(blocks, groups, rows, 4).swapaxes(1, 2)
        data = data.reshape(blocks * rows, groups, 4)[: lead[0]]
    places = np.arange(0, 32, 8, dtype=np.uint32)
    words = jnp.sum(data.astype(jnp.uint32) << places, axis=-1, dtype=jnp.uint32)
    return jnp.moveaxis(codes, -1, axis), jnp.moveaxis(words, -1, axis)


_REVERSED = np.array([int(f"{byte:08b}"[::-1], 2) for byte in range(256)], np.uint8)


def _reverse_last_three(data: UInt8[Array, "... 4"]) -> UInt8[Array, "... 4"]:
    reverse = jnp.take(jnp.asarray(_REVERSED), data, mode="clip")
    return jnp.concatenate([data[..., :1], reverse[..., 1:]], axis=-1)


def _layout(layout: Layout | str, ndim: int) -> Layout:
    if layout not in tuple(Layout):
        raise PolicyError("hif4.layout", layout, ", ".join(Layout))
    layout = Layout(layout)
    if layout in _ROWS and ndim != 2:
        raise ShapeError(
            "q", f"{ndim} axes", f"2 axes for {layout}", "reshape it to rows of groups"
        )
    return layout


def _bytes(data: object, name: str) -> Array:
    array = jnp.asarray(data)
    if array.dtype != np.uint8 or not array.ndim:
        raise ShapeError(name, f"{array.dtype}{list(array.shape)}", "a uint8 array with axes")
    return array
