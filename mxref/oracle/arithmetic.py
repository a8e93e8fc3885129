"""IEEE binary32 addition and multiplication on plain integers.

Within one dot product every finite number is an integer count of one common unit ``2**unit``.
Python's integers are unbounded, so sums and products are exact until the one rounding.
Source: IEEE 754-2019 section 4.3.1; D17.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from mxref.oracle.rounding import float32_bits
from mxref.oracle.values import INF, NAN, NEG_INF, NEG_ZERO, Value, power_of_two


class Odd(Enum):
    """What an integer cannot say."""

    NAN = "nan"
    INF = "inf"
    NEG_INF = "-inf"
    NEG_ZERO = "-0"


Term = int | Odd
"""A count of units (0 is +0), or one of the four odd values."""


@dataclass(frozen=True)
class Arithmetic:
    """Binary32 on counts of ``2**unit``."""

    unit: int

    def round(self, n: int) -> Term:
        """Round a count to binary32, to nearest even; subnormals kept, overflow to infinity.

        The spacing of binary32 near n is 2**(e - 23), and never below 2**-149; ``drop`` is how
        many low bits of the count lie below that spacing.  Floor and remainder are taken in two's
        complement, so negative counts need no case of their own.
        """
        drop = n.bit_length() - 24
        if drop < -149 - self.unit:
            drop = -149 - self.unit
        result = n
        if drop > 0:
            below = n >> drop
            rest = n - (below << drop)
            half = 1 << (drop - 1)
            if rest > half or (rest == half and below & 1):
                below += 1
            result = below << drop
        if result and result.bit_length() + self.unit > 128:
            return Odd.INF if n > 0 else Odd.NEG_INF
        if result == 0 and n < 0:
            return Odd.NEG_ZERO
        return result

    def add(self, x: Term, y: Term) -> Term:
        """The rounded sum.  Opposite numbers give +0; only (-0) + (-0) gives -0."""
        if isinstance(x, int):
            if isinstance(y, int):
                return self.round(x + y)
            if y is Odd.NEG_ZERO:
                return x  # already rounded
        total = exact_add(x, y)
        return self.round(total) if isinstance(total, int) else total


def exact_add(x: Term, y: Term) -> Term:
    """The sum before rounding."""
    if isinstance(x, int) and isinstance(y, int):
        return x + y
    if Odd.NAN in (x, y) or (x, y) in ((Odd.INF, Odd.NEG_INF), (Odd.NEG_INF, Odd.INF)):
        return Odd.NAN
    for infinity in (Odd.INF, Odd.NEG_INF):
        if infinity in (x, y):
            return infinity
    # What is left has at least one -0 in it, which changes no other number.
    return y if x is Odd.NEG_ZERO else x


def exact_multiply(x: Term, y: Term) -> Term:
    """The product before rounding; counts multiply, so the unit of the result is the product."""
    if isinstance(x, int) and isinstance(y, int):
        # A zero count is +0, so a zero product is negative when the other factor is.
        return x * y or (Odd.NEG_ZERO if x < 0 or y < 0 else 0)
    if x is Odd.NAN or y is Odd.NAN:
        return Odd.NAN
    infinite = x in (Odd.INF, Odd.NEG_INF) or y in (Odd.INF, Odd.NEG_INF)
    zero = x in (0, Odd.NEG_ZERO) or y in (0, Odd.NEG_ZERO)
    if infinite and zero:
        return Odd.NAN
    negative = is_negative(x) != is_negative(y)
    if infinite:
        return Odd.NEG_INF if negative else Odd.INF
    return Odd.NEG_ZERO if negative else 0


def is_negative(x: Term) -> bool:
    """The sign bit of anything but NaN."""
    return x < 0 if isinstance(x, int) else x in (Odd.NEG_INF, Odd.NEG_ZERO)


def term_of(value: Value, unit: int) -> Term:
    """Count a value in units of ``2**unit``; the unit must divide it."""
    if value.is_nan:
        return Odd.NAN
    if value.is_infinite:
        return Odd.NEG_INF if value.negative else Odd.INF
    if value.magnitude == 0:
        return Odd.NEG_ZERO if value.negative else 0
    count = value.exact * power_of_two(-unit)
    if count.denominator != 1:
        raise AssertionError(f"2**{unit} does not divide {value.exact}")
    return count.numerator


def lowest_bit(value: Value) -> int | None:
    """The exponent of the last one bit of a finite dyadic value; None where there is none."""
    if not value.is_finite or value.magnitude == 0:
        return None
    numerator, denominator = value.magnitude.numerator, value.magnitude.denominator
    trailing = (numerator & -numerator).bit_length() - 1
    return trailing - (denominator.bit_length() - 1)


def bits_of(term: Term, unit: int) -> int:
    """The binary32 word of a term that is already rounded."""
    odd = {Odd.NAN: NAN, Odd.INF: INF, Odd.NEG_INF: NEG_INF, Odd.NEG_ZERO: NEG_ZERO}
    if isinstance(term, Odd):
        return float32_bits(odd[term])
    return float32_bits(Value.of(term * power_of_two(unit)))
