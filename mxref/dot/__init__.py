"""Ordered dot products from codes: the one place where an accumulation order becomes bits (D23)."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, UInt

from mxref.dot import blocks, chain, exact
from mxref.dot.operand import Operand
from mxref.errors import FormatError, PolicyError, ShapeError
from mxref.formats import FormatSpec
from mxref.formats import format as resolve
from mxref.policy import Accumulate, NumericPolicy, Order
from mxref.policy import order as resolve_order
from mxref.policy import policy as resolve_policy

__all__ = ["dot_codes"]


def dot_codes(
    lhs_codes: UInt[Array, "M K"],
    lhs_scales: UInt[Array, "M B"] | None,
    rhs_codes: UInt[Array, "K N"],
    rhs_scales: UInt[Array, "C N"] | None,
    *,
    lhs_format: FormatSpec | str,
    rhs_format: FormatSpec | str,
    policy: NumericPolicy | str,
    order: Accumulate | str,
    start: Float[Array, "M N"] | None = None,
    block: int | tuple[int, int] = 32,
) -> Float[Array, "M N"]:
    """Multiply two matrices of codes, adding in a named order."""
    left, right = block if isinstance(block, tuple) else (block, block)
    with exact.x64():
        return _kernel(
            jnp.asarray(lhs_codes),
            None if lhs_scales is None else jnp.asarray(lhs_scales),
            jnp.asarray(rhs_codes),
            None if rhs_scales is None else jnp.asarray(rhs_scales),
            None if start is None else jnp.asarray(start),
            formats=(resolve(lhs_format), resolve(rhs_format)),
            policy=resolve_policy(policy),
            order=resolve_order(order),
            block=(left, right),
        )


@partial(jax.jit, static_argnames=("formats", "policy", "order", "block"))
def _kernel(lhs_codes, lhs_scales, rhs_codes, rhs_scales, start, *, formats, policy, order, block):
    lhs = Operand(
        lhs_codes.T, None if lhs_scales is None else lhs_scales.T, formats[0], policy, block[0]
    )
    rhs = Operand(rhs_codes, rhs_scales, formats[1], policy, block[1])
    lhs, rhs = lhs.settle(), rhs.settle()
    shape = (lhs_codes.shape[0], rhs_codes.shape[1])
    acc = jnp.zeros(shape, jnp.float64)
    if start is not None:
        acc = exact.carry(lax.bitcast_convert_type(start, jnp.uint32))
    if order.order is Order.BLOCK:
        out = blocks.exact_blocks(*blocks.align(lhs, rhs), acc)
    elif order.order is Order.SYSTOLIC:
        out = chain.systolic(
            lhs.factored64(),
            rhs.factored64(),
            acc,
            lanes=order.lanes,
            tile_k=order.tile_k,
            product=chain.exact_product,
            rounded=exact.round_sum,
            unroll=1,
        )
    else:
        out = chain.sequential(
            lhs.factored64(),
            rhs.factored64(),
            acc,
            product=chain.exact_product,
            rounded=exact.round_sum,
            unroll=1,
        )
    return exact.release(out)
