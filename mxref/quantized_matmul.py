"""Quantize two float matrices, multiply them, and differentiate straight through (D29, D30)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from mxref.block import quantize
from mxref.blockshape import element_format
from mxref.dot import backward as reverse
from mxref.dot import ordered, shapes
from mxref.errors import PolicyError, ShapeError
from mxref.fake_quantize import fake_quantize
from mxref.mxarray import MXArray
from mxref.policy import BLOCK, OCP, Accumulate, NumericPolicy
from mxref.policy import order as resolve_order
from mxref.policy import policy as resolve_policy


def quantized_matmul(
    x: Float[Array, "..."],
    w: Float[Array, "..."],
    fmt: object,
    rhs_fmt: object | None = None,
    *,
    block: int = 32,
    policy: NumericPolicy | str = OCP,
    accumulate: Accumulate | str = BLOCK,
    ste: str = "clip",
    backward: reverse.Given = None,
) -> Float[Array, "..."]:
    """Multiply quantized operands; differentiable in both.

    The bits are those of ``matmul(quantize(x, fmt), quantize(w, rhs_fmt, axis=-2))``; the
    gradient is that of the product of the dequantized operands, through the straight-through
    estimator of :func:`mxref.fake_quantize`.

    Args:
      x: floats, blocks along axis -1.
      w: floats, blocks along axis -2.
      fmt: element format of ``x``.
      rhs_fmt: element format of ``w``; None takes ``fmt``.
      block: elements per scale.
      policy: the profile of both operands.
      accumulate: the order (D23).
      ste: "clip" stops the gradient where abs(x) > max * scale; "identity" lets it pass.
      backward: None; or, in reverse mode only, a policy under which the cotangent and the original
        operands are quantized anew along the contraction axis of each reverse product (left
        factor in ``fmt``, right factor in ``rhs_fmt``), an order for these products, or the pair.

    Returns:
      The float32 product.

    Raises:
      FormatError: when a format cannot be an element, or an operand is float64.
      PolicyError: when an option is unknown.
      ShapeError: when shapes disagree.

    Exactness:
      The bits of ``matmul`` of the quantized operands: test_forward_equals_matmul_of_quantized.
    Gradient:
      d/dx = mask(x) * (g @ w'^T) and d/dw = mask(w) * (x'^T @ g) with w', x' dequantized and mask
      1 where abs(x) <= max * scale; never narrowed.  jvp and vjp, products in BACKEND order (D30).

    Example:
      >>> quantized_matmul(jnp.ones((1, 32)), jnp.ones((32, 1)), "e4m3fn").tolist()
      [[32.0]]
    """
    if ste not in ("clip", "identity"):
        raise PolicyError("ste", ste, "clip, identity")
    for name, side in (("x", x), ("w", w)):
        if isinstance(side, MXArray):
            raise ShapeError(name, "an MXArray", "floats", "mx.matmul multiplies MXArrays")
    sides = shapes.operand("x", x), shapes.operand("w", w)
    left = element_format(fmt)
    right = left if rhs_fmt is None else element_format(rhs_fmt)
    how = _How(
        reverse.Blocks(left, block),
        reverse.Blocks(right, block),
        resolve_policy(policy),
        resolve_order(accumulate),
        ste,
        reverse.resolve(backward),
    )
    plan = shapes.resolve(*sides)
    if 0 in plan.result:
        return jnp.zeros(plan.result, jnp.float32)
    a, b = shapes.canonical(*sides, plan)
    product: Any = _product if how.backward is None else _reverse_product
    return product(how, a, b).reshape(plan.result)


@dataclass(frozen=True)
class _How:
    left: reverse.Blocks
    right: reverse.Blocks
    policy: NumericPolicy
    order: Accumulate
    ste: str
    backward: reverse.Backward | None

    def quantize(self, x: Array, w: Array) -> tuple[MXArray, MXArray]:
        """Both operands, blocked along the contraction axis."""
        a, b = self.left, self.right
        return (
            quantize(x, a.format, axis=-1, block=a.block, policy=self.policy),
            quantize(w, b.format, axis=-2, block=b.block, policy=self.policy),
        )

    def through(self, x: Array, side: reverse.Blocks, axis: int) -> Array:
        """The fake-quantized operand, whose derivative is the straight-through estimator."""
        return fake_quantize(
            x, side.format, axis=axis, block=side.block, policy=self.policy, ste=self.ste
        )


@partial(jax.jit, static_argnums=0)
def _forward(how: _How, x: Array, w: Array) -> Array:
    return ordered.product(*how.quantize(x, w), how.order)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _product(how: _How, x: Array, w: Array) -> Array:
    return _forward(how, x, w)


@partial(_product.defjvp, symbolic_zeros=True)
def _product_jvp(how: _How, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    x, w = primals
    qx, qw = how.quantize(x, w)
    terms = []
    if not isinstance(tangents[0], SymbolicZero):
        _, dx = jax.jvp(lambda v: how.through(v, how.left, -1), (x,), (tangents[0],))
        terms.append(ordered.backend(dx.astype(jnp.float32), qw.dequantize()))
    if not isinstance(tangents[1], SymbolicZero):
        _, dw = jax.jvp(lambda v: how.through(v, how.right, -2), (w,), (tangents[1],))
        terms.append(ordered.backend(qx.dequantize(), dw.astype(jnp.float32)))
    out = _forward(how, x, w)
    return out, sum(terms[1:], terms[0]) if terms else jnp.zeros_like(out)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _reverse_product(how: _How, x: Array, w: Array) -> Array:
    return _forward(how, x, w)


def _reverse_forward(how: _How, x: Array, w: Array) -> tuple[Array, tuple[Array, Array]]:
    return _forward(how, x, w), (x, w)


def _reverse_backward(
    how: _How, saved: tuple[Array, Array], cotangent: Array
) -> tuple[Array, Array]:
    x, w = saved
    assert how.backward is not None
    if how.backward.policy is None:
        qx, qw = how.quantize(x, w)
        factors = (qx.dequantize(), qw.dequantize())
    else:
        # Each reverse product has its own blocks, made from the values before quantization.
        factors = (x.astype(jnp.float32), w.astype(jnp.float32))
    to_x, to_w = reverse.pull(cotangent, *factors, how.backward, how.left, how.right)
    assert to_x is not None
    assert to_w is not None
    _, pull_x = jax.vjp(lambda v: how.through(v, how.left, -1), x)
    _, pull_w = jax.vjp(lambda v: how.through(v, how.right, -2), w)
    return pull_x(to_x.astype(x.dtype))[0], pull_w(to_w.astype(w.dtype))[0]


_reverse_product.defvjp(_reverse_forward, _reverse_backward)
