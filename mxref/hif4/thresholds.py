"""Where the HiF4 encoder changes its mind, as float32 patterns computed with fractions.

Every decision of the encoder compares a nondecreasing function of a magnitude with a constant: the
E6M2 code of the group's maximum, the two kinds of doubling bits, the code of a lane.  So each is
one integer comparison with the pattern of the smallest magnitude that passes, and no arithmetic of
the backend can touch it.  The tables hold those patterns for scale exponent field 0; a field of k
adds k to the exponent, because powers of two commute with every rounding met here (all values are
normal bfloat16 numbers: test_thresholds_are_where_the_definition_changes).

Source: the public HiFloat4 reference quantizers; D33.
"""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction
from functools import cache

E6M2_BIAS = 48
E6M2_MAX = 0xFE
E6M2_NAN = 0xFF
_BF16_PRECISION = 8


class Ties(StrEnum):
    """What a lane halfway between two codes becomes (D33)."""

    AWAY = "away"  #: the larger magnitude, as in the official and the AMCT quantizers.
    EVEN = "even"  #: the even code, as in the PTO tile library's golden data.


class Carrier(StrEnum):
    """Precision in which a value travels before it meets the next rounding."""

    BF16 = "bf16"  #: rounded to bfloat16, ties to even.
    EXACT = "exact"  #: not rounded.


def floor_log2(value: Fraction) -> int:
    """Exponent of the largest power of two not above ``value``."""
    guess = value.numerator.bit_length() - value.denominator.bit_length()
    return guess if Fraction(2) ** guess <= value else guess - 1


def nearest(value: Fraction, precision: int) -> Fraction:
    """Round to ``precision`` significant bits, ties to even."""
    unit = Fraction(2) ** (floor_log2(value) - precision + 1)
    return round(value / unit) * unit


ONE_SEVENTH = nearest(Fraction(1, 7), _BF16_PRECISION)
"""bfloat16 nearest to 1/7: 0x3E12, 7 being the largest magnitude of a group with scale 1."""

RECIPROCALS = tuple(nearest(Fraction(4, 4 + m), _BF16_PRECISION) for m in range(4))
"""bfloat16 nearest to 1/S for the four mantissas: 0x3F80, 0x3F4D, 0x3F2B, 0x3F12."""


def pattern_from(bound: Fraction, inclusive: bool) -> int:
    """Pattern of the smallest normal float32 at or above (else above) ``bound``."""
    exponent = floor_log2(bound)
    steps = bound / Fraction(2) ** (exponent - 23)
    whole = -(-steps.numerator // steps.denominator)
    if not inclusive and whole == steps:
        whole += 1
    # A carry to 2^24 runs into the exponent field by itself.
    return ((exponent + 127) << 23) + whole - (1 << 23)


def before_bf16(bound: Fraction, inclusive: bool) -> tuple[Fraction, bool]:
    """Condition on y that equals ``bf16(y) >= bound`` (else ``bf16(y) > bound``).

    Lemma: ``bound`` has at most four significant bits, so its bfloat16 code is even and a y
    halfway to either neighbour rounds to ``bound``.
    """
    ulp = Fraction(2) ** (floor_log2(bound) - _BF16_PRECISION + 1)
    if not inclusive:
        return bound + ulp / 2, False
    below = ulp / 2 if bound == Fraction(2) ** floor_log2(bound) else ulp
    return bound - below / 2, True


def _e6m2_value(code: int) -> Fraction:
    return Fraction(4 + (code & 3), 4) * Fraction(2) ** ((code >> 2) - E6M2_BIAS)


UNIT_CODE = 181
"""E6M2 code of a group whose maximum is 1: bf16(1/7) rounds to 1.25 * 2^-3."""


@cache
def scale_steps() -> tuple[int, ...]:
    """Mantissas in [1, 2) at which the E6M2 code of the maximum passes 182, 183, 184 and 185."""
    steps = []
    for code in range(UNIT_CODE + 1, UNIT_CODE + 5):
        middle = (_e6m2_value(code - 1) + _e6m2_value(code)) / 2
        bound, inclusive = before_bf16(middle, inclusive=code % 2 == 0)
        steps.append(pattern_from(bound / ONE_SEVENTH, inclusive) & 0x7F_FFFF)
    return tuple(steps)


@cache
def doubling_steps() -> tuple[int, ...]:
    """Per mantissa of the scale: the smallest magnitude whose product with 1/S reaches 4."""
    unit = Fraction(1, 2**E6M2_BIAS)
    return tuple(pattern_from(4 / r * unit, inclusive=True) for r in RECIPROCALS)


@cache
def lane_steps(ties: Ties, product: Carrier) -> tuple[tuple[int, ...], ...]:
    """Per mantissa of the scale: the smallest magnitudes that reach lane codes 1 to 7."""
    unit = Fraction(1, 2**E6M2_BIAS)
    table = []
    for r in RECIPROCALS:
        row = []
        for code in range(1, 8):
            bound, inclusive = Fraction(2 * code - 1, 8), ties is Ties.AWAY or code % 2 == 0
            if product is Carrier.BF16:
                bound, inclusive = before_bf16(bound, inclusive)
            row.append(pattern_from(bound / r * unit, inclusive))
        table.append(tuple(row))
    return tuple(table)
