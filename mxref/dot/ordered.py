"""Ordered products of whole operands: MXArrays or float arrays, two axes or a batch of them."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from mxref.bits import dtype_codes, to_bits
from mxref.dot import exact, kernel
from mxref.errors import PolicyError
from mxref.formats import FP32, FormatSpec
from mxref.formats import format as resolve_format
from mxref.mxarray import MXArray
from mxref.narrow import narrow_bits
from mxref.policy import BLOCK, OCP, SEQUENTIAL, Accumulate, NumericPolicy, Order, Rounding

Operand = MXArray | Array


def default_order(lhs: Operand, rhs: Operand) -> Accumulate:
    """BLOCK for two MX operands, else SEQUENTIAL (D23)."""
    return BLOCK if isinstance(lhs, MXArray) and isinstance(rhs, MXArray) else SEQUENTIAL


def check_order(order: Accumulate, lhs: Operand, rhs: Operand) -> None:
    """Refuse BLOCK where an operand has no blocks."""
    if order.order is Order.BLOCK and default_order(lhs, rhs) != BLOCK:
        raise PolicyError(
            "accumulate", order, "SEQUENTIAL, SYSTOLIC, C_FIRST or BACKEND with a plain operand"
        )


def common_policy(lhs: Operand, rhs: Operand) -> NumericPolicy:
    """The policy the MX operands carry (D23d)."""
    carried = [side.policy for side in (lhs, rhs) if isinstance(side, MXArray)]
    if len(set(carried)) > 1:
        raise PolicyError(
            "policy", f"{carried[0]} and {carried[1]}", "one policy for both operands"
        )
    # Products of plain operands are rounded once under every policy.
    return carried[0] if carried else OCP


def values(side: Operand) -> Float[Array, "..."]:
    """An operand as float32."""
    return side.dequantize() if isinstance(side, MXArray) else side.astype(jnp.float32)


def backend(lhs: Float[Array, "..."], rhs: Float[Array, "..."]) -> Float[Array, "..."]:
    """The BACKEND order: whatever the platform's float32 matmul gives."""
    return jnp.matmul(lhs, rhs, precision=lax.Precision.HIGHEST)


def product(
    lhs: Operand, rhs: Operand, order: Accumulate, init: Float[Array, "..."] | None = None
) -> Float[Array, "..."]:
    """``[M, K] @ [K, N]`` or a batch of them, plus ``init``, in the named order."""
    if order.order is Order.BACKEND:
        out = backend(values(lhs), values(rhs))
        return out if init is None else out + init
    left, right = _data(lhs), _data(rhs)
    k = lhs.shape[-1]
    blocks = (min(k, _block(lhs)), min(k, _block(rhs)))  # padding behind the end is virtual (D23g)
    plan = kernel.Plan(left[2], right[2], common_policy(lhs, rhs), order, *blocks)
    start = init if order.order is Order.C_FIRST else None
    run: Any = partial(kernel.run, plan)
    if lhs.ndim == 3:
        run = jax.vmap(run)
    out = run(left[0], left[1], right[0], right[1], start)
    return out if init is None or start is not None else add_float32(out, init)


def _data(side: Operand) -> tuple[Array, Array | None, FormatSpec]:
    if isinstance(side, MXArray):
        return side.codes, side.scales, side.format
    spec = resolve_format(side.dtype)
    return dtype_codes(side, spec).astype(f"uint{spec.storage_bits}"), None, spec


def _block(side: Operand) -> int:
    return side.block if isinstance(side, MXArray) and isinstance(side.block, int) else 1


@jax.jit
def add_float32(a: Float[Array, "*s"], b: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """fl32(a + b) with gradual underflow and canonical NaN (D17): test_init_is_added_last."""
    with exact.x64():
        return exact.release(exact.add(exact.carry(to_bits(a)), exact.carry(to_bits(b))))


def cast(x: Float[Array, "..."], target: FormatSpec) -> Float[Array, "..."]:
    """Round float32 to the result dtype, to nearest even, overflowing to Inf (D23e)."""
    if target == FP32:
        return x
    codes = narrow_bits(to_bits(x), target, Rounding.RNE, saturate=False)
    return lax.bitcast_convert_type(codes, jnp.dtype(target.name))
