"""BLOCK sums: the exact sum of each block, rounded once, then float32 additions (D23)."""

from __future__ import annotations

import math
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from mxref.dot import exact, split
from mxref.dot.operand import Operand
from mxref.formats import FormatSpec

_PANEL = 1 << 19  # outputs updated together: accumulator and float64 sums stay in cache


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


def _runs(x: Array, run: int) -> Array:
    """``[K, R]`` to ``[K / run, run, R]``."""
    return x.reshape(-1, run, x.shape[1])


def _positive_zero(x: Array) -> Array:
    # An exact sum of zero is +0, whatever a gemm makes of products that are all -0.
    return jnp.where(x == 0, jnp.zeros_like(x), x)


def native_blocks(lhs: Operand, rhs: Operand, acc: Float[Array, "M N"]) -> Float[Array, "M N"]:
    """BLOCK with the backend's own rounding, where a guard allows it.

    Lemma: in units of a block's smallest product every partial sum is an integer of at most
    :func:`sum_bits` bits, so a gemm of 24 or 53 significant bits is exact in any order:
    test_block_sums_are_exact.
    """
    wide = sum_bits(lhs, rhs) > 24
    left, right = (
        _runs(side.values64() if wide else side.values32(), side.block) for side in (lhs, rhs)
    )
    m, n = acc.shape
    rows = m if m * n <= _PANEL else max(64, _PANEL // n)
    panels = -(-m // rows)

    def step(acc: Array, sides: tuple[Array, Array]) -> tuple[Array, None]:
        total = split.gemm(*sides, left_axis=1).astype(jnp.float32)
        return acc + _positive_zero(total), None

    def panel(args: tuple[Array, Array]) -> Array:
        return lax.scan(step, args[1], (args[0], right))[0]

    left = left.swapaxes(1, 2)  # [B, M, run]: the gemm's faster layout
    if panels == 1:
        return panel((left, acc))
    pad = (0, panels * rows - m)
    left = jnp.pad(left, ((0, 0), pad, (0, 0))).reshape(-1, panels, rows, lhs.block)
    tall = jnp.pad(acc, (pad, (0, 0))).reshape(panels, rows, n)
    return lax.map(panel, (left.swapaxes(0, 1), tall)).reshape(panels * rows, n)[:m]


def exact_blocks(lhs: Operand, rhs: Operand, acc: Float[Array, "M N"]) -> Float[Array, "M N"]:
    """BLOCK with every rounding spelled out; ``acc`` and the result are carried in float64."""

    def step(acc: Array, total: Array) -> Array:
        return exact.add(acc, exact.round_value(_positive_zero(total)))

    if sum_bits(lhs, rhs) <= 53:
        sides = (_runs(lhs.values64(), lhs.block), _runs(rhs.values64(), rhs.block))
        return lax.scan(lambda acc, s: (step(acc, split.gemm(*s)), None), acc, sides)[0]

    def wide(acc: Array, sides: tuple[Array, ...]) -> tuple[Array, None]:
        left, right, left_scale, right_scale = sides
        total = split.sum_to_odd(left, right, lhs.fmt, rhs.fmt)
        # Lemma: a power of two scales a sum rounded to odd exactly, within float64's range.
        return step(acc, total * (left_scale[:, None] * right_scale[None, :])), None

    codes = (_runs(lhs.codes, lhs.block), _runs(rhs.codes, rhs.block))
    return lax.scan(wide, acc, (*codes, lhs.factors64(), rhs.factors64()))[0]
