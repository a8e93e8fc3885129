"""SEQUENTIAL and SYSTOLIC sums: one float32 addition after another, in the order of D23."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float

from mxref.dot import exact

Product = Callable[[Array, Array], Array]
Round = Callable[[Array], Array]


def _pad(x: Float[Array, "K R"], multiple: int, fill: float) -> Float[Array, "K2 R"]:
    short = -x.shape[0] % multiple
    return jnp.pad(x, ((0, short), (0, 0)), constant_values=jnp.asarray(fill, x.dtype))


def sequential(
    a: Float[Array, "K M"],
    b: Float[Array, "K N"],
    acc: Float[Array, "M N"],
    *,
    product: Product,
    rounded: Round,
    unroll: int,
) -> Float[Array, "M N"]:
    """acc = fl32(acc + x_k), k ascending, as a chain of rank-1 updates of the whole output.

    The padding is -0 times +0: adding -0 changes no float, not even -0.
    """
    a, b = _pad(a, unroll, -0.0), _pad(b, unroll, 0.0)

    def step(acc: Array, rows: tuple[Array, Array]) -> tuple[Array, None]:
        for u in range(unroll):
            acc = rounded(acc + product(rows[0][u][:, None], rows[1][u][None, :]))
        return acc, None

    groups = (a.reshape(-1, unroll, a.shape[1]), b.reshape(-1, unroll, b.shape[1]))
    return lax.scan(step, acc, groups)[0]


def systolic(
    a: Float[Array, "K M"],
    b: Float[Array, "K N"],
    psum: Float[Array, "M N"],
    *,
    lanes: int,
    tile_k: int,
    product: Product,
    rounded: Round,
    unroll: int,
) -> Float[Array, "M N"]:
    """Tiles of K, one partition row after another, ``lanes`` products summed pairwise per row.

    A short last tile is padded with zeros.  Lemma: a row of zeros leaves acc as it is, because a
    sum that starts at +0 is never -0 when rounding to nearest.
    """
    extent = min(tile_k, a.shape[0] + (-a.shape[0] % lanes))
    group = lanes * min(unroll, extent // lanes)
    a, b = _pad(a, lanes, 0.0), _pad(b, lanes, 0.0)

    def row(acc: Array, left: Array, right: Array) -> Array:
        x = [product(left[c][:, None], right[c][None, :]) for c in range(lanes)]
        t = x[0] if lanes == 1 else rounded(rounded(x[0] + x[1]) + rounded(x[2] + x[3]))
        return rounded(acc + t)

    def step(acc: Array, rows: tuple[Array, Array]) -> tuple[Array, None]:
        for u in range(0, rows[0].shape[0], lanes):
            acc = row(acc, rows[0][u : u + lanes], rows[1][u : u + lanes])
        return acc, None

    def tile(psum: Array, left: Array, right: Array) -> Array:
        left, right = _pad(left, group, 0.0), _pad(right, group, 0.0)
        groups = tuple(x.reshape(-1, group, x.shape[1]) for x in (left, right))
        acc = lax.scan(step, jnp.zeros_like(psum), groups)[0]
        return rounded(psum + acc)

    whole = a.shape[0] // tile_k
    if whole:
        cut = whole * tile_k
        tiles = tuple(x[:cut].reshape(whole, tile_k, x.shape[1]) for x in (a, b))
        psum = lax.scan(lambda s, t: (tile(s, *t), None), psum, tiles)[0]
    if a.shape[0] % tile_k:
        psum = tile(psum, a[whole * tile_k :], b[whole * tile_k :])
    return psum


def exact_product(left: Array, right: Array) -> Array:
    """fl32 of a product of carried values.

    Lemma: two significands of at most 24 bits give at most 48: the float64 product is exact.
    """
    return exact.round_value(left * right)
