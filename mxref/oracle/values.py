"""What a code means: an exact rational, or one of the values that are not numbers.

Slow and obvious on purpose.  Zero keeps its sign, and so does NaN, because one quantizer turns a
NaN into a zero of the same sign (D19).  Source: IEEE 754-2019 section 3.4; D18, D20, D23c.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import lru_cache

from mxref.errors import FormatError
from mxref.formats import FP32, FormatSpec, Special


class Kind(Enum):
    """The three sorts of datum."""

    FINITE = "finite"
    INFINITE = "infinite"
    NAN = "nan"


@dataclass(frozen=True)
class Value:
    """One datum.

    Attributes:
      kind: finite, infinite or NaN.
      negative: the sign bit, kept for every kind.
      magnitude: the exact absolute value; 0 unless finite.
    """

    kind: Kind
    negative: bool
    magnitude: Fraction

    @classmethod
    def of(cls, number: Fraction | int, *, negative: bool | None = None) -> Value:
        """A finite value; ``negative`` gives zero a sign and otherwise agrees with ``number``."""
        exact = Fraction(number)
        sign = exact < 0 if exact or negative is None else negative
        return cls(Kind.FINITE, sign, abs(exact))

    @property
    def is_nan(self) -> bool:
        """Whether this is not a number."""
        return self.kind is Kind.NAN

    @property
    def is_infinite(self) -> bool:
        """Whether this is an infinity."""
        return self.kind is Kind.INFINITE

    @property
    def is_finite(self) -> bool:
        """Whether this is a number, zero included."""
        return self.kind is Kind.FINITE

    @property
    def exact(self) -> Fraction:
        """The signed rational; finite values only."""
        if not self.is_finite:
            raise FormatError(self.kind.value, "has no rational value")
        return -self.magnitude if self.negative else self.magnitude

    def scaled(self, exponent: int) -> Value:
        """This value times ``2**exponent``, exactly."""
        return Value(self.kind, self.negative, self.magnitude * power_of_two(exponent))


def power_of_two(exponent: int) -> Fraction:
    """``2**exponent`` as a rational, for either sign of the exponent."""
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


def floor_log2(x: Fraction) -> int:
    """The integer e with ``2**e <= x < 2**(e + 1)``, for positive x.

    The bit lengths place it within one; a comparison settles it.
    """
    if x <= 0:
        raise FormatError(x, "only a positive value has a logarithm")
    guess = x.numerator.bit_length() - x.denominator.bit_length()
    return guess if power_of_two(guess) <= x else guess - 1


NAN = Value(Kind.NAN, False, Fraction(0))
INF = Value(Kind.INFINITE, False, Fraction(0))
NEG_INF = Value(Kind.INFINITE, True, Fraction(0))
ZERO = Value(Kind.FINITE, False, Fraction(0))
NEG_ZERO = Value(Kind.FINITE, True, Fraction(0))


@lru_cache(maxsize=1 << 17)
def decode(code: int, fmt: FormatSpec) -> Value:
    """Give the value of one code, from the definition of its fields.

    Args:
      code: integer code, ``0 <= code < 2**fmt.bits``.
      fmt: the format the code belongs to.

    Returns:
      ``(-1)^s * 2^(e - bias) * (1 + m / 2^M)``, or ``(-1)^s * 2^(1 - bias) * m / 2^M`` when the
      exponent field is 0, or the special value the format gives the code.

    Raises:
      FormatError: when the code does not fit the format.

    Exactness:
      Exact for every code of every format.
    """
    if not 0 <= code < 1 << fmt.bits:
        raise FormatError(fmt, f"code {code:#x} does not fit {fmt.bits} bits")
    if fmt.special is Special.SCALE:
        return NAN if code == 0xFF else Value.of(power_of_two(code - 127))
    negative = bool(code >> (fmt.bits - 1))
    mantissa = code & ((1 << fmt.mantissa_bits) - 1)
    top = (1 << fmt.exponent_bits) - 1
    exponent = (code >> fmt.mantissa_bits) & top
    if exponent == top and fmt.special is Special.IEEE:
        kind = Kind.NAN if mantissa else Kind.INFINITE
        return Value(kind, negative, Fraction(0))
    if exponent == top and fmt.special is Special.FN and mantissa == (1 << fmt.mantissa_bits) - 1:
        return Value(Kind.NAN, negative, Fraction(0))
    bias = (1 << (fmt.exponent_bits - 1)) - 1
    fraction = Fraction(mantissa, 1 << fmt.mantissa_bits)
    if exponent == 0:
        return Value(Kind.FINITE, negative, power_of_two(1 - bias) * fraction)
    return Value(Kind.FINITE, negative, power_of_two(exponent - bias) * (1 + fraction))


def from_float32_bits(bits: int) -> Value:
    """The value of an IEEE binary32 word."""
    return decode(bits, FP32)
