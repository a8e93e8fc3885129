"""MXArray: codes, scales and everything that says what they mean.

The axis that the blocks run along is stored negative, so it still names the right axis after
``vmap``, ``scan`` or a batch dimension in front.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jaxtyping import Array, UInt8

from mxref import mxviews as _views
from mxref.blockshape import BlockShape, block_extents, element_format, scales_shape
from mxref.errors import ShapeError
from mxref.formats import FormatSpec
from mxref.policy import OCP, NumericPolicy, policy

__all__ = ["BlockShape", "MXArray", "block_extents", "element_format", "scales_shape"]


@dataclass(frozen=True, eq=False)
class MXArray:
    """A block-scaled array: value = widen(code) * 2^(scale - 127).

    A frozen pytree: ``codes`` and ``scales`` are its leaves, the rest is static metadata and
    travels with it (D23d).  It carries no gradient; use :func:`mxref.quantized_matmul` or
    :func:`mxref.fake_quantize` (D29).

    Attributes:
      codes: uint8, one element each, FP4 too; its shape is the logical shape.
      scales: uint8 E8M0 codes; the blocked axis has ceil(n / block) entries.
      format: the element format.
      axis: the axis the blocks run along, negative; -1 with a BlockShape.
      block: block length, or a BlockShape over the last two axes.
      policy: the reading of the arithmetic.
    """

    codes: UInt8[Array, "..."]
    scales: UInt8[Array, "..."]
    format: FormatSpec = field(kw_only=True)
    axis: int = field(kw_only=True, default=-1)
    block: int | BlockShape = field(kw_only=True, default=32)
    policy: NumericPolicy = field(kw_only=True, default=OCP)

    def __post_init__(self) -> None:
        setattr_ = object.__setattr__
        setattr_(self, "format", element_format(self.format))
        setattr_(self, "policy", policy(self.policy))
        for name in ("codes", "scales"):
            value = getattr(self, name)
            if not isinstance(value, jax.Array):
                if not hasattr(value, "dtype"):
                    raise ShapeError(name, type(value).__name__, "a uint8 array")
                if isinstance(value, np.ndarray) and value.dtype == np.uint8:
                    setattr_(self, name, jnp.asarray(value))
            if value.dtype != np.uint8:
                raise ShapeError(name, value.dtype, "uint8", "MXArray.from_ml_dtypes takes values")
        ndim = len(self.codes.shape)
        axis = min(block_extents(ndim, self.axis, self.block), key=abs)
        setattr_(self, "axis", axis)
        expected = scales_shape(self.codes.shape, axis, self.block)
        if tuple(self.scales.shape) != expected:
            raise ShapeError("scales", tuple(self.scales.shape), str(expected))

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical shape."""
        return tuple(self.codes.shape)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.codes.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of an MXArray without axes")
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        """Unpack as ``codes, scales``."""
        yield self.codes
        yield self.scales

    def __repr__(self) -> str:
        # A BlockShape names both of its axes, the last two.
        axis = "" if isinstance(self.block, BlockShape) else f"axis={self.axis}, "
        return (
            f"MXArray({self.format}{list(self.shape)}, {axis}block={self.block}, "
            f"policy={self.policy})"
        )

    # numpy leaves ``array @ q`` to this class.
    __array_ufunc__ = None

    def __array__(self, *args: object, **kwargs: object) -> np.ndarray:
        """Refuse: codes and values are two different arrays, and nobody should have to guess.

        Raises:
          TypeError: always.
        """
        raise TypeError(
            "an MXArray is no array of numbers: use .dequantize() for its values, .codes and "
            ".scales for its codes"
        )

    def __matmul__(self, other: MXArray | Array) -> Array:
        """Return :func:`mxref.matmul` of the two, in its default order."""
        from mxref.matmul import matmul

        return matmul(self, other)

    def __rmatmul__(self, other: MXArray | Array) -> Array:
        from mxref.matmul import matmul

        return matmul(other, self)

    def dequantize(self, dtype: Any = jnp.float32) -> Array:
        """The values; see :func:`mxref.dequantize`."""
        from mxref.block import dequantize

        return dequantize(self, dtype=dtype)

    def codes_as_ml_dtype(self) -> np.ndarray:
        """The codes as a numpy array of the ml_dtypes dtype; no value is converted."""
        return np.asarray(self.codes).view(getattr(ml_dtypes, self.format.name))

    @classmethod
    def from_ml_dtypes(
        cls,
        values: object,
        scales: object,
        *,
        axis: int = -1,
        block: int | BlockShape = 32,
        policy: NumericPolicy = OCP,
    ) -> MXArray:
        """Take element values stored in an ml_dtypes dtype and scales in uint8 or float8_e8m0fnu.

        Raises:
          FormatError: when the dtype of ``values`` is no element format.
        """
        values, scales = np.asarray(values), np.asarray(scales)
        return cls(
            jnp.asarray(values.view(np.uint8)),
            jnp.asarray(scales.view(np.uint8) if scales.dtype.itemsize == 1 else scales),
            format=element_format(values.dtype),
            axis=axis,
            block=block,
            policy=policy,
        )

    def transpose(self, *axes: int) -> MXArray:
        """Permute the axes; the blocks follow theirs.

        Raises:
          ShapeError: when a BlockShape's two axes would leave the end.
        """
        return _views.transpose(self, axes)

    @property
    def T(self) -> MXArray:
        """All axes reversed."""
        return self.transpose()

    @property
    def mT(self) -> MXArray:
        """The last two axes exchanged."""
        return self.swapaxes(-1, -2)

    def swapaxes(self, first: int, second: int) -> MXArray:
        """Exchange two axes."""
        return _views.swapaxes(self, first, second)

    def reshape(self, *shape: int | Sequence[int]) -> MXArray:
        """Reshape where every block stays whole.

        Raises:
          ShapeError: when a block would be cut or joined with another.
        """
        return _views.reshape(self, shape)

    def __getitem__(self, index: Any) -> MXArray:
        """Basic indexing; along a blocked axis only slices of whole blocks.

        Raises:
          ShapeError: when a block would be cut, or the index is not basic.
        """
        return _views.getitem(self, index)

    def with_data(self, codes: Array, scales: Array, **static: Any) -> MXArray:
        """The same meaning for other data."""
        return replace(self, codes=codes, scales=scales, **static)


_STATIC = ("format", "axis", "block", "policy")


def _flatten(q: MXArray) -> tuple[tuple[tuple[Any, Any], ...], tuple[Any, "..."]]:
    keys = jax.tree_util.GetAttrKey("codes"), jax.tree_util.GetAttrKey("scales")
    static = tuple(getattr(q, name) for name in _STATIC)
    return ((keys[0], q.codes), (keys[1], q.scales)), static


def _unflatten(static: tuple[Any, "..."], leaves: Iterable[Any]) -> MXArray:
    # JAX rebuilds pytrees with placeholders (None, object(), axis numbers): no validation here.
    q = object.__new__(MXArray)
    for name, value in zip(("codes", "scales", *_STATIC), (*leaves, *static), strict=True):
        object.__setattr__(q, name, value)
    return q


jax.tree_util.register_pytree_with_keys(
    MXArray,
    _flatten,
    _unflatten,
    flatten_func=lambda q: ((q.codes, q.scales), tuple(getattr(q, n) for n in _STATIC)),
)
