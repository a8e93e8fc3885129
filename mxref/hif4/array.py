"""HiF4Array: lane codes and metadata words.

Source: the PTO tile ISA's HiF4X2 type; D33, D23g.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt8, UInt32

from mxref.errors import ShapeError
from mxref.hif4.metadata import GROUP, Metadata, split_metadata


def metadata_shape(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    """Shape of the metadata words of an array with this shape, ``axis`` negative."""
    out = list(shape)
    out[axis] = -(-out[axis] // GROUP)
    return tuple(out)


def negative_axis(axis: int, ndim: int) -> int:
    """The axis counted from the end.

    Raises:
      ShapeError: when the array has no such axis.
    """
    if not -ndim <= axis < ndim:
        raise ShapeError("axis", axis, f"an axis of an array with {ndim} axes")
    return axis - ndim if axis >= 0 else axis


@dataclass(frozen=True, eq=False)
class HiF4Array:
    """A HiF4 array: lane value = (-1)^s * magnitude / 4 * E6M2 * 2^(number of doublings).

    A frozen pytree with leaves ``codes`` and ``metadata``; it carries no gradient (D29).

    Attributes:
      codes: uint8, one lane each (sign in bit 3, magnitude in bits 2:0); the logical shape.
      metadata: uint32 words; the grouped axis has ceil(n / 64) entries.
      axis: the axis the groups run along, negative, so that it survives ``vmap``.
    """

    codes: UInt8[Array, "..."]
    metadata: UInt32[Array, "..."]
    axis: int = field(kw_only=True, default=-1)

    def __post_init__(self) -> None:
        for name, dtype in (("codes", np.uint8), ("metadata", np.uint32)):
            value = getattr(self, name)
            if isinstance(value, np.ndarray):
                value = jnp.asarray(value)
                object.__setattr__(self, name, value)
            got = getattr(value, "dtype", type(value).__name__)
            if got != dtype:
                raise ShapeError(name, got, f"an array of {np.dtype(dtype)}")
        object.__setattr__(self, "axis", negative_axis(self.axis, self.codes.ndim))
        expected = metadata_shape(self.shape, self.axis)
        if tuple(self.metadata.shape) != expected:
            raise ShapeError("metadata", tuple(self.metadata.shape), str(expected))

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical shape."""
        return tuple(self.codes.shape)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.codes.shape)

    @property
    def levels(self) -> Metadata:
        """The metadata as ``e6m2``, ``e1_8`` and ``e1_16``."""
        return split_metadata(self.metadata)

    def __iter__(self) -> Iterator[Array]:
        """Unpack as ``codes, metadata``."""
        yield self.codes
        yield self.metadata

    def __repr__(self) -> str:
        return f"HiF4Array({list(self.shape)}, axis={self.axis})"

    def dequantize(self, dtype: Any = jnp.float32) -> Float[Array, "..."]:
        """The values; see :func:`mxref.hif4.dequantize`."""
        from mxref.hif4.decode import dequantize

        return dequantize(self, dtype)

    def swapaxes(self, first: int, second: int) -> HiF4Array:
        """Exchange two axes; the groups follow theirs."""
        first, second = (negative_axis(a, self.ndim) for a in (first, second))
        axis = {first: second, second: first}.get(self.axis, self.axis)
        codes, metadata = (jnp.swapaxes(a, first, second) for a in self)
        return HiF4Array(codes, metadata, axis=axis)

    @property
    def mT(self) -> HiF4Array:
        """The last two axes exchanged."""
        return self.swapaxes(-1, -2)


def _flatten(q: HiF4Array) -> tuple[tuple[tuple[Any, Any], ...], int]:
    keys = jax.tree_util.GetAttrKey("codes"), jax.tree_util.GetAttrKey("metadata")
    return ((keys[0], q.codes), (keys[1], q.metadata)), q.axis


def _unflatten(axis: int, leaves: Iterable[Any]) -> HiF4Array:
    # JAX rebuilds pytrees with placeholders (None, object(), axis numbers): no validation here.
    q = object.__new__(HiF4Array)
    for name, value in zip(("codes", "metadata", "axis"), (*leaves, axis), strict=True):
        object.__setattr__(q, name, value)
    return q


jax.tree_util.register_pytree_with_keys(
    HiF4Array, _flatten, _unflatten, flatten_func=lambda q: ((q.codes, q.metadata), q.axis)
)
