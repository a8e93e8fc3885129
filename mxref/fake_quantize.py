"""Fake quantization: quantize, dequantize, and a gradient (D29)."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from mxref.bits import MAGNITUDE, as_float, float32_bits, from_bits
from mxref.blockkernel import (
    Blocking,
    blocking,
    dequantize_body,
    quantize_body,
    scale_bits,
    split,
    unsplit,
)
from mxref.blockshape import BlockShape, working_extents
from mxref.errors import FormatError, PolicyError
from mxref.formats import FP32, format
from mxref.policy import OCP, NumericPolicy

_LARGEST = 0x7F7F_FFFF


def fake_quantize(
    x: object,
    fmt: object,
    *,
    axis: int = -1,
    block: int | BlockShape = 32,
    policy: NumericPolicy | str = OCP,
    ste: str = "clip",
) -> Float[Array, "..."]:
    """Replace every element by the value its block would store; differentiable.

    Args:
      x: floats.
      fmt: element format.
      axis: the axis the blocks run along.
      block: elements per scale, or a BlockShape.
      policy: the profile.
      ste: "clip" stops the gradient where abs(x) > max * scale, even if x rounds to the largest
        value; "identity" lets it pass everywhere.

    Returns:
      An array of the shape and dtype of ``x``.

    Raises:
      PolicyError: when ``ste`` is neither word.
      FormatError: when ``x`` has a dtype of 8 bits.

    Exactness:
      The bits of ``dequantize(quantize(x, ...), dtype=x.dtype)``; float64 holds the float32 values.
    Gradient:
      Straight-through: the tangent itself, never narrowed, where abs(x) <= max * scale, the bound
      included; zero beyond it and in blocks whose scale is NaN.  jvp and vjp (D29).

    Example:
      >>> fake_quantize(jnp.array([1.1, -5.3], jnp.float32), "e2m1fn").tolist()
      [1.0, -6.0]
    """
    if ste not in ("clip", "identity"):
        raise PolicyError("ste", ste, "clip, identity")
    array = as_float(x)
    if isinstance(array, np.ndarray) and array.dtype != jax.dtypes.canonicalize_dtype(array.dtype):
        # JAX cannot hold float64 now; odd rounding keeps the codes right (D23e).
        array = from_bits(jnp.asarray(float32_bits(array)))
    if array.dtype.itemsize == 1:
        raise FormatError(array.dtype, "fake_quantize takes float16 or wider")
    return _fake(jnp.asarray(array), blocking(array, fmt, axis, block, policy), ste)


@partial(jax.custom_jvp, nondiff_argnums=(1, 2))
@partial(jax.jit, static_argnums=(1, 2))
def _fake(x: Array, how: Blocking, ste: str) -> Array:
    codes, scales = quantize_body(x, how)
    if x.dtype != jnp.float64:
        return dequantize_body(codes, scales, how, format(x.dtype))
    value = dequantize_body(codes, scales, how, FP32)
    # XLA reads a float32 subnormal as zero when it widens it: count its units instead.
    bits = float32_bits(value)
    units = (bits & np.uint32(MAGNITUDE)).astype(jnp.float64) * np.float64(2.0**-149)
    small = jnp.where((bits >> np.uint32(31)) == 1, -units, units)
    subnormal = (bits & np.uint32(MAGNITUDE)) < np.uint32(1 << 23)
    return jnp.where(subnormal, small, value.astype(jnp.float64))


@_fake.defjvp
def _fake_jvp(how, ste, primals, tangents):
    (x,), (t,) = primals, tangents
    out = _fake(x, how, ste)
    if ste == "identity":
        return out, t
    return out, jnp.where(_in_range(lax.stop_gradient(x), how), t, jnp.zeros_like(t))


def in_range(
    x: Array,
    fmt: object,
    *,
    axis: int = -1,
    block: int | BlockShape = 32,
    policy: NumericPolicy | str = OCP,
) -> Bool[Array, "..."]:
    """Where abs(x) <= max * scale of its block: the mask of the clipped straight-through estimator.

    Exactness:
      Compares patterns; the bound is exact, or Inf's neighbour where it overflows.
    Gradient:
      None; booleans.
    """
    return _in_range(lax.stop_gradient(x), blocking(x, fmt, axis, block, policy))


@partial(jax.jit, static_argnums=1)
def _in_range(x: Array, how: Blocking) -> Bool[Array, "..."]:
    _, scales = quantize_body(x, how)
    extents = working_extents(x.shape, how.axis, how.block)
    largest = jnp.float32(how.format.max)
    bound = scale_bits(float32_bits(largest), scales, how.policy.scale_codes)
    # An infinite bound admits every finite x; a NaN bound admits nothing.
    limit = jnp.minimum(bound, np.uint32(_LARGEST))
    limit = jnp.where(bound > np.uint32(0x7F80_0000), np.uint32(0), limit)
    admits = bound <= np.uint32(0x7F80_0000)
    blocked, within = split(x, extents)
    magnitude = float32_bits(blocked) & np.uint32(MAGNITUDE)
    inside = (magnitude <= jnp.expand_dims(limit, within)) & jnp.expand_dims(admits, within)
    return unsplit(inside, x.shape, extents)
