"""Dequantize HiF4 exactly, and the straight-through form of quantizing."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Float32, UInt8, UInt32

from mxref.bits import MAGNITUDE, NAN_BITS, as_float, float32_bits, from_bits, to_bits
from mxref.errors import FormatError, PolicyError
from mxref.formats import BF16, FP16, FP32, format
from mxref.hif4.array import HiF4Array, negative_axis
from mxref.hif4.encode import check_options, join_groups, quantize_bits, split_groups
from mxref.hif4.metadata import doublings
from mxref.hif4.thresholds import E6M2_BIAS, E6M2_NAN, Carrier, Ties


def dequantize(q: HiF4Array, dtype: Any = jnp.float32) -> Float[Array, "..."]:
    """The values of a HiF4 array.

    Args:
      q: the array.
      dtype: float32 or bfloat16, which hold every value, or float16, which rounds to nearest even
        with gradual underflow and overflows to Inf from 65520 up.

    Returns:
      Floats; the canonical NaN where the group's E6M2 code is 0xFF (D33, D23c), -0 for code 8.

    Raises:
      FormatError: for another dtype.

    Exactness:
      Exact in float32 and bfloat16 for every code and word, correctly rounded in float16
      (test_every_lane_value).  Lemma: magnitude * (4 + m) <= 49 is an integer, and its product with
      a power of two in [2^-52, 2^13] is a normal float32, so no step rounds and none is flushed.
    Gradient:
      None; codes are integers.
    """
    target = format(dtype)
    if target not in (FP32, BF16, FP16):
        raise FormatError(target, "dequantize gives float32, bfloat16 or float16")
    return _dequantize(q.codes, q.metadata, q.axis).astype(jnp.dtype(target.name))


@partial(jax.jit, static_argnums=2)
def _dequantize(
    codes: UInt8[Array, "..."], words: UInt32[Array, "..."], axis: int
) -> Float32[Array, "..."]:
    code = split_groups(codes, axis).astype(jnp.uint32)
    groups, *_, after = code.shape
    word = words.reshape(groups, 1, after)
    e6m2 = word & np.uint32(0xFF)
    # Magnitude and mantissa both count quarters, hence the 4.
    field = (e6m2 >> np.uint32(2)) + np.uint32(127 - E6M2_BIAS - 4)
    field += doublings(word)
    power = from_bits(field << np.uint32(23)).reshape(groups, 8, 2, 1, after)
    e6m2 = e6m2[:, :, None, None]
    whole = (code & np.uint32(7)) * (np.uint32(4) + (e6m2 & np.uint32(3)))
    bits = to_bits(whole.astype(jnp.float32) * power)
    bits |= (code & np.uint32(8)) << np.uint32(28)
    bits = jnp.where(e6m2 == np.uint32(E6M2_NAN), np.uint32(NAN_BITS), bits)
    return from_bits(join_groups(bits, codes.shape, axis))


def fake_quantize(
    x: object,
    *,
    axis: int = -1,
    ties: Ties | str = Ties.AWAY,
    source: Carrier | str = Carrier.BF16,
    product: Carrier | str = Carrier.BF16,
    ste: str = "clip",
) -> Float[Array, "..."]:
    """Quantize to HiF4 and back, with a straight-through gradient.

    Args:
      x: floats.
      axis: the axis the groups run along.
      ties: see :func:`quantize`.
      source: see :func:`quantize`.
      product: see :func:`quantize`.
      ste: ``"clip"`` or ``"identity"``.

    Returns:
      The values in the dtype of ``x``.

    Raises:
      ShapeError: when x is not floating, or lacks the axis.
      PolicyError: when an option is unknown.

    Exactness:
      The bits of ``quantize(x).dequantize(x.dtype)``; float64 holds the float32 values.
    Gradient:
      Straight-through (D29): with ``"clip"`` 1 where |x| <= 7/4 * S * 2^(E1_8 + E1_16), the bound
      included, else 0, also in groups that decode to NaN; with ``"identity"`` 1 everywhere.  The
      tangent is never narrowed.  jvp and vjp both work.
    """
    array = as_float(x)
    options = check_options(ties, source, product)
    if ste not in ("clip", "identity"):
        raise PolicyError("hif4.ste", ste, "clip, identity")
    axis = negative_axis(axis, array.ndim)
    if jax.dtypes.canonicalize_dtype(array.dtype) != array.dtype:
        # JAX cannot hold float64 here; odd rounding keeps the codes right (D23e).
        array = from_bits(jnp.asarray(float32_bits(array)))
    return _fake_quantize(jnp.asarray(array), axis, *options, ste)


@partial(jax.custom_jvp, nondiff_argnums=(1, 2, 3, 4, 5))
@partial(jax.jit, static_argnums=(1, 2, 3, 4, 5))
def _fake_quantize(x, axis, ties, source, product, ste):
    codes, words = quantize_bits(float32_bits(x), axis, ties, source, product)
    return _dequantize(codes, words, axis).astype(x.dtype)


@_fake_quantize.defjvp
def _fake_quantize_jvp(axis, ties, source, product, ste, primals, tangents):
    (x,), (tangent,) = primals, tangents
    out = _fake_quantize(x, axis, ties, source, product, ste)
    if ste == "identity":
        return out, tangent
    inside = _in_range(lax.stop_gradient(x), axis, ties, source, product)
    return out, jnp.where(inside, tangent, jnp.zeros_like(tangent))


@partial(jax.jit, static_argnums=(1, 2, 3, 4))
def _in_range(x, axis, ties, source, product):
    bits = float32_bits(x)
    codes, words = quantize_bits(bits, axis, ties, source, product)
    bound = to_bits(_dequantize(jnp.full_like(codes, 7), words, axis))
    return ((bits & np.uint32(MAGNITUDE)) <= bound) & (bound != np.uint32(NAN_BITS))
