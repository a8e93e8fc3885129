"""Exact sums of products whose range exceeds float64's 53 bits (E5M2 and wider pairs)."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int, UInt

from mxref.bits import from_bits, widen_bits
from mxref.formats import FormatSpec

_CHUNK = 32  # products per float64 sum of digits
_DIGIT = 16  # bits of the low digit
_SHIFT = 10  # bits given up when a total does not fit one word


def gemm(left: Array, right: Array, left_axis: int = 0) -> Array:
    """Contract ``left``'s axis with ``right``'s axis 0 in their own precision."""
    return lax.dot_general(
        left,
        right,
        (((left_axis,), (0,)), ((), ())),
        precision=lax.Precision.HIGHEST,
        preferred_element_type=left.dtype,
    )


def sum_to_odd(
    left: UInt[Array, "R M"], right: UInt[Array, "R N"], lfmt: FormatSpec, rfmt: FormatSpec
) -> Float[Array, "M N"]:
    """The exact sum over R of products of elements, rounded to odd; or Inf or NaN.

    Each lhs element, an integer of at most 32 bits in units of the smallest, is cut in two digits.
    Lemma: a digit of 16 bits, an rhs of 32 and 32 products stay below 2^53, so both digit sums are
    exact in float64: test_split_sum_against_integers.
    """
    lvalues, rvalues = (
        from_bits(widen_bits(codes, fmt)).astype(jnp.float64)
        for codes, fmt in ((left, lfmt), (right, rfmt))
    )
    special = gemm(_kinds(lvalues), _kinds(rvalues))
    a, b = _integers(lvalues, lfmt), _integers(rvalues, rfmt)
    high = jnp.floor(a * 2.0**-_DIGIT)
    low = a - high * 2.0**_DIGIT
    top = bottom = jnp.zeros(special.shape, jnp.int64)
    for start in range(0, left.shape[0], _CHUNK):
        part = slice(start, start + _CHUNK)
        top = top + gemm(high[part], b[part]).astype(jnp.int64)
        bottom = bottom + gemm(low[part], b[part]).astype(jnp.int64)
    total = _to_odd(top + (bottom >> _DIGIT), bottom & ((1 << _DIGIT) - 1))
    unit = 2.0 ** (2 - lfmt.bias - lfmt.mantissa_bits - rfmt.bias - rfmt.mantissa_bits)
    return jnp.where(jnp.isfinite(special), total * unit, special)


def _kinds(values: Float[Array, "*s"]) -> Float[Array, "*s"]:
    # Sign, zero, Inf or NaN: a sum of such products is finite exactly when the real one is.
    return jnp.where(jnp.isfinite(values), jnp.sign(values), values)


def _integers(values: Float[Array, "*s"], fmt: FormatSpec) -> Float[Array, "*s"]:
    scaled = values * 2.0 ** (fmt.bias - 1 + fmt.mantissa_bits)
    return jnp.where(jnp.isfinite(values), scaled, jnp.zeros_like(values))


def _to_odd(high: Int[Array, "*s"], low: Int[Array, "*s"]) -> Float[Array, "*s"]:
    """``high * 2**16 + low`` as float64, with ``0 <= low < 2**16``; inexact totals become odd.

    Lemma: high stays below 2^62, so the long arm's word fits 52 bits and keeps at least 26 of the
    total's; a total rounded to odd there rounds to float32, subnormal or not, as the exact one.
    """
    fits = jnp.abs(high) < (1 << 36)
    short = ((high << _DIGIT) | low).astype(jnp.float64)
    sticky = ((high & ((1 << _SHIFT) - 1)) | low) != 0
    long = ((high >> _SHIFT) | sticky.astype(jnp.int64)).astype(jnp.float64)
    return jnp.where(fits, short, long * 2.0 ** (_DIGIT + _SHIFT))
