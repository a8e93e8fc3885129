"""Ordered products with the derivative of the exact product (D30)."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array

from mxref.dot import ordered
from mxref.dot.ordered import Operand
from mxref.formats import FormatSpec
from mxref.mxarray import MXArray
from mxref.policy import Accumulate


@partial(jax.jit, static_argnums=(0, 1))
def forward(
    order: Accumulate, target: FormatSpec, lhs: Operand, rhs: Operand, init: Array | None
) -> Array:
    """The ordered product plus ``init``, rounded to ``target``; never differentiate it.

    It works on bit patterns, whose derivative is a silent zero.
    """
    return ordered.cast(ordered.product(lhs, rhs, order, init), target)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def product(
    order: Accumulate, target: FormatSpec, lhs: Operand, rhs: Operand, init: Array | None
) -> Array:
    """``forward``, differentiable any number of times in float operands and ``init``."""
    return forward(order, target, lhs, rhs, init)


@partial(product.defjvp, symbolic_zeros=True)
def _product_jvp(
    order: Accumulate, target: FormatSpec, primals: tuple, tangents: tuple
) -> tuple[Array, Array]:
    # D30: written by hand, outside the float64 context, where differentiation would truncate.  It
    # calls ``product``, not ``forward``: a second derivative differentiates this rule.
    lhs, rhs, init = primals
    terms = []
    if _moves(lhs, tangents[0]):
        terms.append(ordered.backend(tangents[0].astype(jnp.float32), ordered.values(rhs)))
    if _moves(rhs, tangents[1]):
        terms.append(ordered.backend(ordered.values(lhs), tangents[1].astype(jnp.float32)))
    if init is not None and _moves(init, tangents[2]):
        terms.append(tangents[2])
    out = product(order, target, lhs, rhs, init)
    tangent = sum(terms[1:], terms[0]) if terms else jnp.zeros(out.shape, jnp.float32)
    return out, tangent.astype(out.dtype)


def _moves(primal: Operand, tangent: Any) -> bool:
    return not isinstance(primal, MXArray) and not isinstance(tangent, SymbolicZero)
