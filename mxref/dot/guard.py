"""When plain float32 arithmetic gives the exact bits: scalar conditions on exponent ranges (D17).

XLA on CPU reads subnormal operands as zero and flushes subnormal results.  Every value on the way
is a multiple of some power of two; if that power is at least 2^-126, the smallest normal float32,
then no nonzero value can be subnormal, however the sums cancel.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from mxref.bits import MAGNITUDE, to_bits
from mxref.dot.operand import Operand, Span

_LOWEST = -126  # exponent of the smallest normal float32
_TOP = 127  # a magnitude below 2^127 cannot round to Inf


def products_exact(lhs: Operand, rhs: Operand) -> bool:
    """Whether float32 holds every product: the significands have at most 24 bits together."""
    return lhs.fmt.mantissa_bits + rhs.fmt.mantissa_bits + 2 <= 24


def start_is_coarse(start: Float[Array, "M N"] | None) -> Bool[Array, ""] | bool:
    """Whether every finite nonzero starting value is a multiple of 2^-126.

    A float32 with exponent field e is a multiple of 2^(e - 150), so field 24 and above will do.
    """
    if start is None:
        return True
    bits = to_bits(start)
    zero = (bits & jnp.uint32(MAGNITUDE)) == 0
    return (zero | ((bits >> 23) & jnp.uint32(0xFF) >= jnp.uint32(24))).all()


def _operands_normal(a: Span, b: Span) -> Bool[Array, ""]:
    normal = (a.low >= _LOWEST) & (b.low >= _LOWEST)
    return normal & (a.top <= _TOP) & (b.top <= _TOP)


def chain_is_exact(lhs: Operand, rhs: Operand, start: Array | None) -> Bool[Array, ""]:
    """SEQUENTIAL and SYSTOLIC may run in plain float32.

    Scaled operands are then exact, so both product rules of D23a agree; products are normal or
    zero and finite; every rounded sum of multiples of 2^-126 is one.  Sums may overflow to Inf,
    as they should.  test_guard_edges_chain.
    """
    a, b = lhs.span(), rhs.span()
    # A product that is rounded, of magnitude 2^e, is a multiple of 2^(e - 23).
    unit = a.unit + b.unit if products_exact(lhs, rhs) else a.low + b.low - 23
    fits = (unit >= _LOWEST) & (a.top + b.top <= _TOP)
    return fits & _operands_normal(a, b) & start_is_coarse(start)


def blocks_are_exact32(lhs: Operand, rhs: Operand, start: Array | None) -> Bool[Array, ""]:
    """BLOCK may run on float32 gemms: as above, and the sum of a run's magnitudes stays finite."""
    a, b = lhs.span(), rhs.span()
    run = (lhs.block - 1).bit_length()
    fits = (a.unit + b.unit >= _LOWEST) & (a.top + b.top + run <= _TOP)
    return fits & _operands_normal(a, b) & start_is_coarse(start)


def blocks_are_exact64(lhs: Operand, rhs: Operand, start: Array | None) -> Bool[Array, ""]:
    """BLOCK may convert float64 sums and add them with the backend's instructions."""
    return (lhs.span().unit + rhs.span().unit >= _LOWEST) & start_is_coarse(start)
