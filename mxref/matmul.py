"""Matrix product in a named accumulation order (D23, D23a, D23f)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mxref.dot import backward as reverse
from mxref.dot import linear, ordered, shapes
from mxref.dot.ordered import Operand
from mxref.errors import FormatError, PolicyError, ShapeError
from mxref.formats import BF16, FP16, FP32, FormatSpec
from mxref.formats import format as resolve_format
from mxref.mxarray import MXArray
from mxref.policy import Accumulate
from mxref.policy import order as resolve_order


def matmul(
    lhs: MXArray | Float[Array, "..."],
    rhs: MXArray | Float[Array, "..."],
    *,
    accumulate: Accumulate | str | None = None,
    init: Float[Array, "..."] | float | None = None,
    out_dtype: Any = jnp.float32,
    backward: reverse.Given = None,
) -> Float[Array, "..."]:
    """Multiply two matrices, adding the products in a named order.

    The order is part of the result (D23): ``acc = fl32(acc + x_k)`` for SEQUENTIAL, one rounding
    per block for BLOCK, the tree of a systolic column for SYSTOLIC.  Shapes follow
    ``jnp.matmul``: one-axis operands, and batch axes that broadcast.

    Args:
      lhs: MXArray with blocks along axis -1, or floats of 32 bits or less, which count as unscaled.
      rhs: MXArray with blocks along axis -2, or floats.
      accumulate: the order; None takes BLOCK for two MXArrays and SEQUENTIAL otherwise.  BLOCK
        needs two MXArrays.  BACKEND is the platform's float32 matmul, whose bits are not defined.
      init: float32 array or number, broadcast to the result and added last in one float32
        addition; with C_FIRST the sums start from it.
      out_dtype: float32, bfloat16 or float16; the float32 result is rounded to nearest even.
      backward: None; or, in reverse mode only, a policy that re-quantizes cotangent and operand
        along the new contraction axis, an order for those products, or the pair (D30).

    Returns:
      The product; NaN is canonical (D23c).

    Raises:
      FormatError: for float64 operands or another ``out_dtype``.
      PolicyError: when operands carry different policies, or the order cannot be had.
      ShapeError: when shapes disagree or blocks run along another axis; the message names the fix.

    Exactness:
      Bit-exact for every input, subnormals, Inf and NaN included (D17), in every order but
      BACKEND; the same bits in eager, jit and vmap, whatever the batch: test_matmul_equals_oracle.
    Gradient:
      That of the exact product of the (dequantized) operands, for float operands and ``init``; jvp
      and vjp of any degree, products in BACKEND order (D30).  An MXArray carries none (D29).  With
      ``backward`` jvp is JAX's TypeError about custom_vjp.

    Example:
      >>> matmul(jnp.ones((2, 3)), jnp.ones((3, 2)), accumulate="SEQUENTIAL").tolist()
      [[3.0, 3.0], [3.0, 3.0]]
    """
    left, right = shapes.operand("lhs", lhs), shapes.operand("rhs", rhs)
    order = ordered.default_order(left, right) if accumulate is None else resolve_order(accumulate)
    ordered.check_order(order, left, right)
    ordered.common_policy(left, right)
    target = resolve_format(out_dtype)
    if target not in (FP32, BF16, FP16):
        raise FormatError(target, "matmul gives float32, bfloat16 or float16")
    plan = shapes.resolve(left, right)
    start = None if init is None else _addend(init, plan)
    if 0 in plan.result:
        return jnp.zeros(plan.result, out_dtype)
    left, right = shapes.canonical(left, right, plan)
    how = _How(order, target, reverse.resolve(backward))
    if how.backward and how.backward.policy and _blocks(left, right) is None:
        raise PolicyError("backward", how.backward.policy, "an order, for two plain operands")
    if how.backward:
        product: Any = _reverse_product(how, left, right, start)
    else:
        product = linear.product(order, target, left, right, start)
    return product.reshape(plan.result)


@dataclass(frozen=True)
class _How:
    order: Accumulate
    target: FormatSpec
    backward: reverse.Backward | None


def _addend(init: Any, plan: shapes.Shapes) -> Float[Array, "..."]:
    array = init if hasattr(init, "dtype") else jnp.asarray(init, jnp.float32)
    if array.dtype != jnp.float32:
        raise ShapeError("init", array.dtype, "float32")
    try:
        return jnp.broadcast_to(array, plan.result).reshape(plan.canonical)
    except ValueError:
        raise ShapeError("init", array.shape, f"a shape that broadcasts to {plan.result}") from None


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _reverse_product(how: _How, lhs: Operand, rhs: Operand, init: Array | None) -> Array:
    return linear.forward(how.order, how.target, lhs, rhs, init)


def _reverse_forward(how: _How, lhs: Operand, rhs: Operand, init: Array | None) -> tuple:
    # The function itself: a second derivative of ``forward`` would be a silent zero.
    return _reverse_product(how, lhs, rhs, init), (lhs, rhs, init is not None)


def _reverse_backward(how: _How, saved: tuple, cotangent: Array) -> tuple:
    lhs, rhs, has_init = saved
    assert how.backward is not None
    g = cotangent.astype(jnp.float32)
    blocks = _blocks(lhs, rhs)
    left, right = (
        None if isinstance(side, MXArray) else lambda x, to=side.dtype: x.astype(to)
        for side in (lhs, rhs)
    )
    to_lhs, to_rhs = reverse.pull(
        g,
        ordered.values(lhs) if right else None,
        ordered.values(rhs) if left else None,
        how.backward,
        blocks,
        blocks,
    )
    return (
        left(to_lhs) if left else None,
        right(to_rhs) if right else None,
        g if has_init else None,
    )


_reverse_product.defvjp(_reverse_forward, _reverse_backward)


def _blocks(lhs: Operand, rhs: Operand) -> reverse.Blocks | None:
    """The MX operand's format and block length; they serve both factors of a reverse product."""
    for side in (lhs, rhs):
        if isinstance(side, MXArray) and isinstance(side.block, int):
            return reverse.Blocks(side.format, side.block)
    return None
