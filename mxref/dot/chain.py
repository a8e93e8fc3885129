"""SEQUENTIAL and SYSTOLIC sums: one float32 addition after another, in the order of D23.

The whole output is updated by one rank-1 product after another.  The same code runs in float32
where a guard shows that nothing can be flushed, and on carried float64 words otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from mxref.bits import INF_BITS, NAN_BITS, from_bits, to_bits
from mxref.dot import exact

_COLUMNS = 512  # columns updated together: their rows of rhs stay in the first-level cache
_SIGNALLING = INF_BITS + 1
_STEPS = 8  # products per element and pass over the output; more spill vector registers


class Arithmetic(NamedTuple):
    """How one product and one sum are formed.

    Attributes:
      product: fl32 of the product of two broadcast rows.
      rounded: fl32 of a sum of two float32 values.
      steps: products fused into one pass over the output.
    """

    product: Callable[[Array, Array], Array]
    rounded: Callable[[Array], Array]
    steps: int


def carried() -> Arithmetic:
    """Float32 carried in float64 (:mod:`mxref.dot.exact`).

    Lemma: two significands of at most 24 bits give at most 48: the float64 product is exact.
    """
    return Arithmetic(lambda a, b: exact.round_value(a * b), exact.round_sum, 1)


def native() -> Arithmetic:
    """Float32 as the backend adds it, for products that float32 holds exactly.

    Lemma: with an exact product that neither overflows nor underflows, fma(a, b, c) is
    fl32(c + fl32(a * b)): a compiler may contract or not.  test_fast_and_exact_agree.
    """
    return Arithmetic(lambda a, b: a * b, lambda x: x, _STEPS)


def separate() -> Arithmetic:
    """Float32 with each product rounded before it is added.

    A compiler may contract ``c + a * b`` to one fma, whose result differs when the product is
    inexact.  Passing the product's bits through a comparison with a signalling NaN, which no
    multiplication gives but no compiler may assume away, keeps the two apart; adding an integer
    zero does not, since a compiler that sees where it came from drops it.  test_product_is_rounded.
    """

    def product(a: Array, b: Array) -> Array:
        bits = to_bits(a * b)
        return from_bits(jnp.where(bits == jnp.uint32(_SIGNALLING), jnp.uint32(NAN_BITS), bits))

    return Arithmetic(product, lambda x: x, _STEPS)


def sequential(
    a: Float[Array, "K M"], b: Float[Array, "K N"], acc: Float[Array, "M N"], how: Arithmetic
) -> Float[Array, "M N"]:
    """Add x_k to acc, k ascending, each sum rounded.

    The padding is -0 times +0: adding -0 changes no float, not even -0.
    """
    steps = min(how.steps, a.shape[0])

    def update(acc: Array, left: Array, right: Array) -> Array:
        for u in range(steps):
            acc = how.rounded(acc + how.product(left[u][:, None], right[u][None, :]))
        return acc

    def columns(b: Array, acc: Array) -> Array:
        return _pipeline(update, acc, _groups(a, steps, -0.0), _groups(b, steps, 0.0))

    return _by_columns(columns, b, acc)


def systolic(
    a: Float[Array, "K M"],
    b: Float[Array, "K N"],
    psum: Float[Array, "M N"],
    how: Arithmetic,
    *,
    lanes: int,
    tile_k: int,
) -> Float[Array, "M N"]:
    """Tiles of K, one partition row after another, ``lanes`` products summed pairwise per row.

    A short last tile is padded with zeros.  Lemma: a row of zeros leaves acc as it is, because a
    sum that starts at +0 is never -0 when rounding to nearest.
    """
    rows = max(1, min(how.steps, tile_k, a.shape[0]) // lanes)
    whole = a.shape[0] // tile_k

    def update(acc: Array, left: Array, right: Array) -> Array:
        for u in range(0, rows * lanes, lanes):
            x = [how.product(left[u + c][:, None], right[u + c][None, :]) for c in range(lanes)]
            t = (
                x[0]
                if lanes == 1
                else how.rounded(how.rounded(x[0] + x[1]) + how.rounded(x[2] + x[3]))
            )
            acc = how.rounded(acc + t)
        return acc

    def tile(psum: Array, left: Array, right: Array) -> Array:
        groups = (_groups(left, rows * lanes, 0.0), _groups(right, rows * lanes, 0.0))
        acc = from_positive_zero(_pipeline(update, jnp.zeros_like(psum), *groups))
        return how.rounded(psum + acc)

    def columns(b: Array, psum: Array) -> Array:
        if whole:
            tiles = tuple(x[: whole * tile_k].reshape(whole, tile_k, x.shape[1]) for x in (a, b))
            psum = lax.scan(lambda s, t: (tile(s, *t), None), psum, tiles)[0]
        if a.shape[0] % tile_k:
            psum = tile(psum, a[whole * tile_k :], b[whole * tile_k :])
        return psum

    return _by_columns(columns, b, psum)


def from_positive_zero(total: Float[Array, "M N"]) -> Float[Array, "M N"]:
    """Give a sum that began at +0 the sign it must have when it is zero.

    Lemma: +0 plus anything is never -0 when rounding to nearest, and neither is a later sum.  A
    compiler that sees the constant start drops the addition and can let a -0 through; only the
    sign of a zero result can tell.  test_a_sum_from_plus_zero_is_never_minus_zero.
    """
    return jnp.where(total == 0, jnp.zeros_like(total), total)


def _groups(x: Float[Array, "K R"], steps: int, fill: float) -> Float[Array, "G S R"]:
    short = -x.shape[0] % steps
    padded = jnp.pad(x, ((0, short), (0, 0)), constant_values=jnp.asarray(fill, x.dtype))
    return padded.reshape(-1, steps, x.shape[1])


def _pipeline(
    update: Callable[[Array, Array, Array], Array],
    acc: Float[Array, "M N"],
    left: Float[Array, "G S M"],
    right: Float[Array, "G S N"],
) -> Float[Array, "M N"]:
    """Apply ``update`` for each group in turn, fetching a group one step before it is used.

    Rows that arrive in the loop's carry are plain buffers; rows sliced in the same step would be
    fused into the update, which then no longer vectorises (5x slower on CPU).
    """

    def step(carry: tuple[Array, Array, Array], ahead: tuple[Array, Array]) -> tuple:
        return (update(*carry), *ahead), None

    def rotate(x: Array) -> Array:
        return jnp.concatenate([x[1:], x[:1]])

    return lax.scan(step, (acc, left[0], right[0]), (rotate(left), rotate(right)))[0][0]


def _by_columns(
    kernel: Callable[[Array, Array], Array], b: Float[Array, "K N"], acc: Float[Array, "M N"]
) -> Float[Array, "M N"]:
    """Run ``kernel`` on tiles of columns; columns never meet, so the bits do not depend on this."""
    n = b.shape[1]
    if n <= _COLUMNS:
        return kernel(b, acc)
    tiles = -(-n // _COLUMNS)
    width = -(-n // tiles)
    pad = ((0, 0), (0, tiles * width - n))

    def split(x: Array) -> Array:
        return jnp.pad(x, pad).reshape(x.shape[0], tiles, width).swapaxes(0, 1)

    out = lax.map(lambda pair: kernel(*pair), (split(b), split(acc)))
    return out.swapaxes(0, 1).reshape(acc.shape[0], tiles * width)[:, :n]
