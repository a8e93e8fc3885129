"""Ordered dot products from codes: the one place where an accumulation order becomes bits (D23)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, UInt

from mxref.dot import kernel
from mxref.errors import FormatError, PolicyError, ShapeError
from mxref.formats import FormatSpec, Special
from mxref.formats import format as resolve_format
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
    """Multiply two matrices of codes and add the products in a named order.

    Each product and sum is rounded where D23 and D23a say, and nowhere else.

    Args:
      lhs_codes: codes of the left operand, in the format's storage integer.
      lhs_scales: its E8M0 codes, one per block along K; None for a plain operand.
      rhs_codes: codes of the right operand.
      rhs_scales: as ``lhs_scales``, blocked along axis 0.
      lhs_format: element format of the left operand.
      rhs_format: element format of the right operand.
      policy: meaning of the scale codes, and where scaled products are rounded.
      order: BLOCK, SEQUENTIAL, C_FIRST or SYSTOLIC.
      start: float32 value that each sum (SYSTOLIC: the partial sum of tiles) starts from; +0
        when None.
      block: elements per scale, one number or one per side.

    Returns:
      The float32 product; NaN is 0x7FC00000 (D23c).

    Raises:
      FormatError: when a format cannot be multiplied or cannot carry scales.
      PolicyError: when BLOCK meets an operand without scales, or the order has no definition.
      ShapeError: when shapes or dtypes disagree.

    Exactness:
      Bit-exact for every code, scale and start, subnormals, Inf and NaN included (D17); the same
      bits in eager, jit and vmap: test_dot_equals_oracle.
    Gradient:
      That of the exact sum in ``start``; codes are integers and carry none (D29).

    Example:
      >>> one = jnp.full((1, 32), 0x38, jnp.uint8)
      >>> scale = jnp.full((1, 1), 127, jnp.uint8)
      >>> e4m3 = {"lhs_format": "e4m3fn", "rhs_format": "e4m3fn", "policy": "OCP"}
      >>> dot_codes(one, scale, one.T, scale, order="BLOCK", **e4m3).tolist()
      [[32.0]]
    """
    left, right = block if isinstance(block, tuple) else (block, block)
    plan = kernel.Plan(
        resolve_format(lhs_format),
        resolve_format(rhs_format),
        resolve_policy(policy),
        resolve_order(order),
        left,
        right,
    )
    lhs_codes, rhs_codes = jnp.asarray(lhs_codes), jnp.asarray(rhs_codes)
    _check_codes("lhs_codes", lhs_codes, plan.lhs_format)
    _check_codes("rhs_codes", rhs_codes, plan.rhs_format)
    (m, k), (k2, n) = lhs_codes.shape, rhs_codes.shape
    if k != k2 or k == 0:
        raise ShapeError("K", (k, k2), "equal and at least 1", "lhs is [M, K], rhs [K, N]")
    if plan.order.order is Order.BACKEND:
        raise PolicyError("order", plan.order, "an order with a definition")
    # The padding of a block that reaches behind the end is virtual (D23g).
    plan = replace(plan, lhs_block=min(k, left), rhs_block=min(k, right))
    scales = []
    for name, given, fmt, size, other in (
        ("lhs_scales", lhs_scales, plan.lhs_format, left, m),
        ("rhs_scales", rhs_scales, plan.rhs_format, right, n),
    ):
        if given is None:
            if plan.order.order is Order.BLOCK:
                raise PolicyError("order", plan.order, "SEQUENTIAL or SYSTOLIC without scales")
            scales.append(None)
            continue
        if fmt.bits > 8:
            raise FormatError(fmt, "only formats of 8 bits or less carry block scales")
        if size < 1:
            raise ShapeError("block", size, "at least 1")
        array, count = jnp.asarray(given), -(-k // size)
        want = (other, count) if name == "lhs_scales" else (count, other)
        if array.shape != want or array.dtype != jnp.uint8:
            raise ShapeError(name, f"{array.dtype}{list(array.shape)}", f"uint8{list(want)}")
        scales.append(array)
    if start is not None:
        start = jnp.asarray(start)
        if start.shape != (m, n) or start.dtype != jnp.float32:
            raise ShapeError("start", f"{start.dtype}{list(start.shape)}", f"float32{[m, n]}")
    if m == 0 or n == 0:
        return jnp.zeros((m, n), jnp.float32)
    return _run(plan, (lhs_codes, scales[0], rhs_codes, scales[1]), start)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _run(plan: kernel.Plan, sides: tuple, start: Array | None) -> Array:
    return kernel.run(plan, *sides, start)


@partial(_run.defjvp, symbolic_zeros=True)
def _run_jvp(plan: kernel.Plan, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    # The kernel works on bit patterns, whose derivative would be a silent zero.
    out = _run(plan, *primals)
    moved = tangents[1]
    return out, moved if isinstance(moved, Array) else jnp.zeros_like(out)


def _check_codes(name: str, codes: Array, fmt: FormatSpec) -> None:
    if fmt.special is Special.SCALE:
        raise FormatError(fmt, "holds scales, not elements")
    if codes.ndim != 2 or codes.dtype != jnp.dtype(f"uint{fmt.storage_bits}"):
        want = f"a matrix of uint{fmt.storage_bits}"
        raise ShapeError(name, f"{codes.dtype}{list(codes.shape)}", want)
