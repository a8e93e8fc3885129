"""BLOCK sums: the exact sum of each block, rounded once, then float32 additions (D23)."""

from __future__ import annotations

import math
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int

from mxref.dot import exact
from mxref.dot.operand import Operand, decode_table
from mxref.formats import FormatSpec

_CHUNK = 32  # products per float64 sum of digits; 16 + 32 + 5 bits fit 53
_DIGIT = 16  # bits of the low digit


def align(lhs: Operand, rhs: Operand) -> tuple[Operand, Operand]:
    """Cut both operands at the ends of either's blocks, so that both have the same runs.

    Runs shorter than the longest are filled with zero codes, which add nothing to an exact sum.
    """
    k = lhs.extent
    starts = sorted({*range(0, k, lhs.block), *range(0, k, rhs.block)})
    ends = [*starts[1:], k]
    run = max(end - start for start, end in zip(starts, ends, strict=True))
    if lhs.block == rhs.block == run and k % run == 0:
        return lhs, rhs
    index = np.full((len(starts), run), k, np.int32)
    for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
        index[row, : end - start] = np.arange(start, end)

    def cut(side: Operand) -> Operand:
        assert side.scales is not None
        codes = jnp.pad(side.codes, ((0, 1), (0, 0)))[index.reshape(-1)]
        scales = side.scales[np.asarray(starts) // side.block]
        return replace(side, codes=codes, scales=scales, block=run)

    return cut(lhs), cut(rhs)


def units(fmt: FormatSpec) -> int:
    """The largest finite value in units of the smallest."""
    return int(fmt.max_value * 2 ** (fmt.bias - 1 + fmt.mantissa_bits))


def sum_bits(lhs: Operand, rhs: Operand) -> int:
    """Bits of the largest exact sum of one run, in units of the smallest product."""
    return math.ceil(math.log2(units(lhs.fmt) * units(rhs.fmt) * lhs.block))


def runs(x: Array, run: int) -> Array:
    """``[K, R]`` to ``[K / run, run, R]``."""
    return x.reshape(-1, run, x.shape[1])


def _dot(left: Array, right: Array) -> Array:
    return lax.dot_general(
        left,
        right,
        (((0,), (0,)), ((), ())),
        precision=lax.Precision.HIGHEST,
        preferred_element_type=left.dtype,
    )


def _positive_zero(x: Array) -> Array:
    # An exact sum of zero is +0, whatever a gemm makes of products that are all -0.
    return jnp.where(x == 0, jnp.zeros_like(x), x)


def exact_blocks(lhs: Operand, rhs: Operand, acc: Float[Array, "M N"]) -> Float[Array, "M N"]:
    """BLOCK with every rounding spelled out; ``acc`` and the result are carried in float64."""
    run = lhs.block
    narrow = sum_bits(lhs, rhs) <= 53
    if narrow:
        # Lemma: each float64 product and partial sum is an integer below 2^53 in units of the
        # block's smallest product, so the sum is exact in any order.
        sides = (runs(lhs.values64(), run), runs(rhs.values64(), run))

        def total(left: Array, right: Array) -> Array:
            return _dot(left, right)
    else:
        sides = (
            (runs(lhs.codes, run), lhs.factors64()),
            (runs(rhs.codes, run), rhs.factors64()),
        )

        def total(left: tuple[Array, Array], right: tuple[Array, Array]) -> Array:
            value = _split_sum(left[0], right[0], lhs.fmt, rhs.fmt)
            return value * (left[1][:, None] * right[1][None, :])

    def step(acc: Array, rows: tuple) -> tuple[Array, None]:
        block = exact.round_value(_positive_zero(total(*rows)))
        return exact.add(acc, block), None

    return lax.scan(step, acc, sides)[0]


def _split_sum(
    left: Array, right: Array, lfmt: FormatSpec, rfmt: FormatSpec
) -> Float[Array, "M N"]:
    """The exact sum of a run of wide-range products, rounded to odd to 53 bits, or Inf or NaN.

    Each lhs element, an integer of at most 32 bits in units of the smallest, is split in two
    digits.  Lemma: a digit of 16 bits, an rhs of 32 and 32 products stay below 2^53, so both
    digit sums are exact in float64.  test_split_sum_against_integers.
    """
    a, b = (jnp.asarray(decode_table(f).astype(np.float64), jnp.float64) for f in (lfmt, rfmt))
    special = _dot(_kinds(a)[left], _kinds(b)[right])
    a, b = _integers(a, lfmt)[left], _integers(b, rfmt)[right]
    high = jnp.floor(a * 2.0**-_DIGIT)
    low = a - high * 2.0**_DIGIT
    top = jnp.zeros(special.shape, jnp.int64)
    bottom = jnp.zeros(special.shape, jnp.int64)
    for start in range(0, a.shape[0], _CHUNK):
        part = slice(start, start + _CHUNK)
        top = top + _dot(high[part], b[part]).astype(jnp.int64)
        bottom = bottom + _dot(low[part], b[part]).astype(jnp.int64)
    value = _to_odd(top + (bottom >> _DIGIT), bottom & ((1 << _DIGIT) - 1))
    unit = 2.0 ** (2 - lfmt.bias - lfmt.mantissa_bits - rfmt.bias - rfmt.mantissa_bits)
    return jnp.where(jnp.isfinite(special), value * unit, special)


def _kinds(table: Float[Array, "256"]) -> Float[Array, "256"]:
    """Each value reduced to sign, zero, Inf or NaN: their sum is finite iff the real one is."""
    return jnp.where(jnp.isfinite(table), jnp.sign(table), table)


def _integers(table: Float[Array, "256"], fmt: FormatSpec) -> Float[Array, "256"]:
    """Finite values in units of the smallest; others 0."""
    scaled = table * 2.0 ** (fmt.bias - 1 + fmt.mantissa_bits)
    return jnp.where(jnp.isfinite(table), scaled, jnp.zeros_like(table))


def _to_odd(high: Int[Array, "*s"], low: Int[Array, "*s"]) -> Float[Array, "*s"]:
    """``high * 2**16 + low`` in float64, inexact results taking the odd neighbour.

    Lemma: a value rounded to odd to at least 26 bits rounds to float32, subnormal or not, as the
    exact value would: the discarded part is never on a tie it was not on.
    """
    joined = (high << _DIGIT) | low
    small = jnp.abs(high) < (1 << 36)
    # Both arms fit 53 bits: joined below 2^52; high, at most 2^63 / 2^11, keeps at least 25 + bits.
    sticky = ((high & ((1 << 10) - 1)) | low) != 0
    large = (high >> 10) | sticky.astype(jnp.int64)
    return jnp.where(
        small,
        joined.astype(jnp.float64),
        large.astype(jnp.float64) * 2.0 ** (_DIGIT + 10),
    )
