"""The compiled product: one per pair of formats, policy and order, whatever transforms it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap
from jaxtyping import Bool, Float, UInt

from mxref.bits import to_bits
from mxref.dot import blocks, chain, exact, guard
from mxref.dot.operand import Operand
from mxref.formats import FormatSpec
from mxref.policy import Accumulate, NumericPolicy, Order


@dataclass(frozen=True)
class Plan:
    """Everything about a product but its data.

    Attributes:
      lhs_format: element format of the left codes.
      rhs_format: element format of the right codes.
      policy: meaning of scale codes, and where products are rounded.
      order: any order with a definition.
      lhs_block: elements per scale along K.
      rhs_block: elements per scale along K.
    """

    lhs_format: FormatSpec
    rhs_format: FormatSpec
    policy: NumericPolicy
    order: Accumulate
    lhs_block: int
    rhs_block: int


Scales = UInt[Array, "R B"] | None


@partial(jax.jit, static_argnums=0)
def run(plan: Plan, *data: Array | None) -> Float[Array, "M N"]:
    """Compute codes times codes plus the starting value, in the plan's order."""
    return _batchable(plan)(*data)


@cache
def _batchable(plan: Plan) -> Callable[..., Array]:
    """The kernel with a batching rule: a guard that became a select would run both roads."""

    @custom_vmap
    def kernel(*data: Any) -> Array:
        with exact.x64():
            return _product(plan, *data)

    @kernel.def_vmap
    def rule(size: int, batched: tuple, *data: Array | None) -> tuple[Array, bool]:
        lhs, lhs_scales, rhs, rhs_scales, start = data
        moving = [
            value is not None and bool(flag) for value, flag in zip(data, batched, strict=True)
        ]
        if not (moving[2] or moving[3]):
            # One rhs for all: rows are independent, so the batch is only more rows.
            tall = [
                None
                if x is None
                else _rows(x if moving[i] else jnp.broadcast_to(x, (size, *x.shape)))
                for i, x in ((0, lhs), (1, lhs_scales), (4, start))
            ]
            out = kernel(tall[0], tall[1], rhs, rhs_scales, tall[2])
            return out.reshape(size, -1, out.shape[-1]), True

        def one(slices: tuple) -> Array:
            rest = iter(slices)
            return kernel(*[next(rest) if m else x for m, x in zip(moving, data, strict=True)])

        return lax.map(one, tuple(x for m, x in zip(moving, data, strict=True) if m)), True

    return kernel


def _rows(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


def _product(plan: Plan, *data: Any) -> Float[Array, "M N"]:
    acc, fast, slow, safe = roads(plan, *data)
    return slow(acc) if safe is None else lax.cond(safe, fast, slow, acc)


Road = Callable[[Array], Array]
Roads = tuple[Road, Road, Bool[Array, ""] | None]


def roads(
    plan: Plan,
    lhs_codes: UInt[Array, "M K"],
    lhs_scales: Scales,
    rhs_codes: UInt[Array, "K N"],
    rhs_scales: Scales,
    start: Float[Array, "M N"] | None,
) -> tuple[Array, Road, Road, Bool[Array, ""] | None]:
    """The starting value, the fast road, the exact road, and whether the fast one is safe.

    Safe is None where no fast road exists.  Call inside :func:`mxref.dot.exact.x64`.
    """
    scales = None if lhs_scales is None else lhs_scales.T
    lhs = Operand(lhs_codes.T, scales, plan.lhs_format, plan.policy, plan.lhs_block).settle()
    rhs = Operand(rhs_codes, rhs_scales, plan.rhs_format, plan.policy, plan.rhs_block).settle()
    acc = start
    if acc is None:
        acc = jnp.zeros((lhs_codes.shape[0], rhs_codes.shape[1]), jnp.float32)
    if plan.order.order is Order.BLOCK:
        return acc, *_block_roads(*blocks.align(lhs, rhs), start)
    return acc, *_chain_roads(lhs, rhs, plan.order, start)


def _settle(start: Array | None) -> Road:
    """What a finished sum still needs: nothing, or the sign of a zero that began at +0."""
    return chain.from_positive_zero if start is None else lambda out: out


def _block_roads(lhs: Operand, rhs: Operand, start: Array | None) -> Roads:
    settle = _settle(start)

    def fast(acc: Array) -> Array:
        return exact.canonical_nan(settle(blocks.native_blocks(lhs, rhs, acc)))

    def slow(acc: Array) -> Array:
        return exact.release(settle(blocks.exact_blocks(lhs, rhs, exact.carry(to_bits(acc)))))

    bits = blocks.sum_bits(lhs, rhs)
    if bits > 53:
        return fast, slow, None
    condition = guard.blocks_are_exact64 if bits > 24 else guard.blocks_are_exact32
    return fast, slow, condition(lhs, rhs, start)


def _chain_roads(lhs: Operand, rhs: Operand, order: Accumulate, start: Array | None) -> Roads:
    def ordered(a: Array, b: Array, acc: Array, how: chain.Arithmetic) -> Array:
        if order.order is Order.SYSTOLIC:
            return chain.systolic(a, b, acc, how, lanes=order.lanes, tile_k=order.tile_k)
        return chain.sequential(a, b, acc, how)

    settle = _settle(start)

    def fast(acc: Array) -> Array:
        how = chain.native() if guard.products_exact(lhs, rhs) else chain.separate()
        return exact.canonical_nan(settle(ordered(lhs.values32(), rhs.values32(), acc, how)))

    def slow(acc: Array) -> Array:
        acc64 = exact.carry(to_bits(acc))
        out = ordered(lhs.factored64(), rhs.factored64(), acc64, chain.carried())
        return exact.release(settle(out))

    return fast, slow, guard.chain_is_exact(lhs, rhs, start)
