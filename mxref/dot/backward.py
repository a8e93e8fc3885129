"""Reverse rules whose products are themselves ordered or re-quantized (D30)."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Array, Float

from mxref.block import quantize
from mxref.dot import linear, ordered
from mxref.errors import PolicyError
from mxref.formats import FP32, FormatSpec
from mxref.policy import BACKEND, POLICIES, Accumulate, NumericPolicy, Order
from mxref.policy import order as resolve_order
from mxref.policy import policy as resolve_policy

Given = NumericPolicy | Accumulate | str | tuple[NumericPolicy | str, Accumulate | str] | None


@dataclass(frozen=True)
class Backward:
    """How the products of a reverse pass are formed.

    Attributes:
      policy: quantizes both factors along the new contraction axis; None leaves them as they are.
      order: accumulation order of the products.
    """

    policy: NumericPolicy | None
    order: Accumulate


@dataclass(frozen=True)
class Blocks:
    """Format and block length of one side."""

    format: FormatSpec
    block: int


def resolve(given: Given) -> Backward | None:
    """Read a ``backward=`` argument: a policy, an order, or a pair of both.

    Raises:
      PolicyError: when it is none of them, or BLOCK is asked for without a policy.
    """
    if given is None:
        return None
    chosen, order = None, BACKEND
    if isinstance(given, tuple):
        chosen, order = resolve_policy(given[0]), resolve_order(given[1])
    elif isinstance(given, NumericPolicy) or str(given).upper() in POLICIES:
        chosen = resolve_policy(given)
    else:
        order = resolve_order(given)
    if order.order is Order.BLOCK and chosen is None:
        raise PolicyError("backward", order, "BLOCK only together with a policy: (policy, BLOCK)")
    return Backward(chosen, order)


def pull(
    cotangent: Float[Array, "*b M N"],
    lhs: Float[Array, "*b M K"] | None,
    rhs: Float[Array, "*b K N"] | None,
    how: Backward,
    left: Blocks | None,
    right: Blocks | None,
) -> tuple[Float[Array, "*b M K"] | None, Float[Array, "*b K N"] | None]:
    """Cotangents of both factors: g @ rhs^T and lhs^T @ g; None where the partner is None.

    The left factor of each product takes the left side's format, the right factor the right's.
    """

    def multiply(a: Array, b: Array) -> Array:
        if how.policy is None:
            return linear.product(how.order, FP32, a, b, None)
        assert left is not None
        assert right is not None
        qa = quantize(a, left.format, axis=-1, block=left.block, policy=how.policy)
        qb = quantize(b, right.format, axis=-2, block=right.block, policy=how.policy)
        return ordered.product(qa, qb, how.order)

    to_lhs = None if rhs is None else multiply(cotangent, rhs.swapaxes(-1, -2))
    to_rhs = None if lhs is None else multiply(lhs.swapaxes(-1, -2), cotangent)
    return to_lhs, to_rhs
