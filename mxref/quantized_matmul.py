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
from mxref.blockshape import block_length, element_format
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
      PolicyError: when an option is unknown, or the block is no positive integer.
      ShapeError: when shapes disagree.

    Exactness:
      The bits of ``matmul`` of the quantized operands: test_forward_equals_matmul_of_quantized.
    Gradient:
      d/dx = mask(x) * (g @ w'^T) and d/dw = mask(w) * (x'^T @ g) with w', x' dequantized and mask
      1 where abs(x) <= max * scale; never narrowed.  jvp and vjp of any degree (the masks are
      constants), products in BACKEND order (D30).  With ``backward`` jvp is JAX's TypeError about
      custom_vjp, and the second derivative through a policy is a GradientError.

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
    length = block_length(block)
    how = _How(
        reverse.Blocks(left, length),
        reverse.Blocks(right, length),
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

    def quantize(self, x: Array, axis: int) -> MXArray:
        """One operand, blocked along its contraction axis: -1 for x, -2 for w."""
        side = self._side(axis)
        return quantize(x, side.format, axis=axis, block=side.block, policy=self.policy)

    def through(self, x: Array, axis: int) -> Array:
        """The fake-quantized operand, whose derivative is the straight-through estimator."""
        side = self._side(axis)
        return fake_quantize(
            x, side.format, axis=axis, block=side.block, policy=self.policy, ste=self.ste
        )

    def _side(self, axis: int) -> reverse.Blocks:
        return self.left if axis == -1 else self.right


@partial(jax.jit, static_argnums=0)
def _forward(how: _How, x: Array, w: Array) -> Array:
    return ordered.product(how.quantize(x, -1), how.quantize(w, -2), how.order)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _product(how: _How, x: Array, w: Array) -> Array:
    return _forward(how, x, w)


@partial(_product.defjvp, symbolic_zeros=True)
def _product_jvp(how: _How, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    # Differentiable functions throughout: a second derivative differentiates this rule.
    values: list[Array] = []
    moved: list[Array | None] = []
    for axis, primal, tangent in zip((-1, -2), primals, tangents, strict=True):
        if isinstance(tangent, SymbolicZero):
            values.append(_values(how, axis, primal))
            moved.append(None)
        else:
            value, change = jax.jvp(partial(_values, how, axis), (primal,), (tangent,))
            values.append(value)
            moved.append(change)
    out = _product(how, *primals)
    terms = []
    if moved[0] is not None:
        terms.append(ordered.backend(moved[0], values[1]))
    if moved[1] is not None:
        terms.append(ordered.backend(values[0], moved[1]))
    return out, sum(terms[1:], terms[0]) if terms else jnp.zeros_like(out)


def _values(how: _How, axis: int, x: Array) -> Array:
    """A quantized operand in float32, with the straight-through derivative."""
    return how.through(x, axis) if x.dtype == jnp.float32 else _widened(how, axis, x)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _widened(how: _How, axis: int, x: Array) -> Array:
    # Not fake_quantize, which rounds to the narrow dtype: float16 has no room for every scale.
    return how.quantize(x, axis).dequantize()


@_widened.defjvp
def _widened_jvp(how: _How, axis: int, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    _, tangent = jax.jvp(lambda v: how.through(v, axis), primals, tangents)
    return _widened(how, axis, *primals), tangent.astype(jnp.float32)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _reverse_product(how: _How, x: Array, w: Array) -> Array:
    return _forward(how, x, w)


def _reverse_forward(how: _How, x: Array, w: Array) -> tuple[Array, tuple[Array, Array]]:
    # The function itself: a second derivative of ``_forward`` would be a silent zero.
    return _reverse_product(how, x, w), (x, w)


def _reverse_backward(
    how: _How, saved: tuple[Array, Array], cotangent: Array
) -> tuple[Array, Array]:
    x, w = saved
    assert how.backward is not None
    if how.backward.policy is None:
        factors = (_values(how, -1, x), _values(how, -2, w))
    else:
        # Each reverse product has its own blocks, made from the values before quantization.
        factors = (x.astype(jnp.float32), w.astype(jnp.float32))
    to_x, to_w = reverse.pull(cotangent, *factors, how.backward, how.left, how.right)
    assert to_x is not None
    assert to_w is not None
    _, pull_x = jax.vjp(lambda v: how.through(v, -1), x)
    _, pull_w = jax.vjp(lambda v: how.through(v, -2), w)
    return pull_x(to_x.astype(x.dtype))[0], pull_w(to_w.astype(w.dtype))[0]


_reverse_product.defvjp(_reverse_forward, _reverse_backward)
