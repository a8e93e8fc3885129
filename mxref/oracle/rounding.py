"""From an exact value to the nearest code, by looking at both neighbours.

The lower neighbour is found by division, the upper is the next code, and the place between them is
an exact fraction: every rounding rule is one comparison with it.  Source: D17, D18, D23c, D27.
"""

from __future__ import annotations

from fractions import Fraction

from mxref.errors import PolicyError
from mxref.formats import E8M0, FP32, FormatSpec
from mxref.oracle.values import Value, floor_log2, power_of_two
from mxref.policy import E8M0Rounding, NanElement, Rounding

RNE = Rounding.RNE
_HALF = Fraction(1, 2)


def neighbours(x: Fraction, fmt: FormatSpec) -> tuple[int, Fraction]:
    """Place a magnitude on the grid of a format, continued above its maximum.

    Args:
      x: magnitude, at least 0.
      fmt: a format with subnormals.

    Returns:
      The largest magnitude code whose value is not above ``x``, and how far ``x`` lies towards the
      next code, in [0, 1).  Codes beyond ``fmt.max_code`` are those the format would have if its
      exponent field were wider, which is what IEEE 754 calls rounding with unbounded exponent.
    """
    exponent = max(floor_log2(x), fmt.emin) if x else fmt.emin
    spacing = power_of_two(exponent - fmt.mantissa_bits)
    steps = x // spacing
    # Each binade above the first holds 2**M codes, and steps counts from 2**M there.
    code = ((exponent - fmt.emin) << fmt.mantissa_bits) + int(steps)
    return code, x / spacing - steps


def goes_up(
    fraction: Fraction,
    odd: bool,
    negative: bool,
    rounding: Rounding,
    random: Fraction | None = None,
) -> bool:
    """Whether the magnitude takes its upper neighbour; one line a rule."""
    tie = fraction == _HALF
    match rounding:
        case Rounding.RNE:
            return fraction > _HALF or (tie and odd)
        case Rounding.TOWARD_ZERO:
            return False
        case Rounding.UP:
            return fraction > 0 and not negative
        case Rounding.DOWN:
            return fraction > 0 and negative
        case Rounding.NEAREST_AWAY:
            return fraction >= _HALF
        case Rounding.HALF_UP:
            return fraction > _HALF or (tie and not negative)
        case Rounding.TO_ODD:
            return fraction > 0 and not odd
        case Rounding.STOCHASTIC:
            if random is None:
                raise PolicyError("random_bits", None, "an integer, with STOCHASTIC")
            return random < fraction


def _overflow_is_finite(negative: bool, rounding: Rounding) -> bool:
    """IEEE 754 section 7.4: rules that never move away from zero stop at the largest value."""
    return (
        rounding in (Rounding.TOWARD_ZERO, Rounding.TO_ODD)
        or (rounding is Rounding.UP and negative)
        or (rounding is Rounding.DOWN and not negative)
    )


def encode(
    value: Value,
    fmt: FormatSpec,
    rounding: Rounding = RNE,
    saturate: bool | None = None,
    nan_element: NanElement = NanElement.CODE,
    random_bits: int | None = None,
    random_width: int = 32,
) -> int:
    """Give the code of a value.

    Args:
      value: any value.
      fmt: target format.
      rounding: which neighbour an inexact value takes.
      saturate: clamp to the largest finite value after rounding, Inf included; ``None`` means
        True for formats of 8 bits or fewer and False for wider ones (D23e).
      nan_element: what a NaN becomes.
      random_bits: for STOCHASTIC, an integer of ``random_width`` bits; the magnitude goes up when
        ``random_bits / 2**random_width`` is below the discarded fraction (D27).
      random_width: width of ``random_bits``.

    Returns:
      The code.  A NaN is canonical and positive, code 0 where the format has none (D23c).

    Exactness:
      Exact for every rational.
    """
    saturating = fmt.bits <= 8 if saturate is None else saturate
    random = None if random_bits is None else Fraction(random_bits, 1 << random_width)
    if fmt is E8M0:
        return _encode_power(value, rounding, saturating, random)
    sign = fmt.sign_mask if value.negative else 0
    if value.is_nan:
        return sign if nan_element is NanElement.SIGNED_ZERO else _nan(fmt)
    if saturating:
        overflowed = sign | fmt.max_code
    elif fmt.inf_code is not None:
        overflowed = sign | fmt.inf_code
    else:
        overflowed = _nan(fmt) if fmt.has_nan else sign | fmt.max_code
    if value.is_infinite:
        return overflowed
    code, fraction = neighbours(value.magnitude, fmt)
    if goes_up(fraction, bool(code & 1), value.negative, rounding, random):
        code += 1
    if code <= fmt.max_code:
        return sign | code
    if _overflow_is_finite(value.negative, rounding):
        return sign | fmt.max_code
    return overflowed


def _encode_power(
    value: Value, rounding: Rounding, saturating: bool, random: Fraction | None
) -> int:
    """E8M0 has neither sign nor zero: below its range lies code 0; a negative value is NaN."""
    if not value.is_finite or (value.negative and value.magnitude):
        return 0xFF
    if value.magnitude < power_of_two(-127):
        return 0
    low = floor_log2(value.magnitude)
    code, fraction = low + 127, value.magnitude / power_of_two(low) - 1
    if goes_up(fraction, bool(code & 1), False, rounding, random):
        code += 1
    if code > 254:
        return 254 if saturating or _overflow_is_finite(False, rounding) else 0xFF
    return code


def _nan(fmt: FormatSpec) -> int:
    return 0 if fmt.nan_code is None else fmt.nan_code


def encode_e8m0(value: Value, rounding: E8M0Rounding) -> int:
    """Give the code of a power of two near a value.

    Args:
      value: any value.
      rounding: which of the two powers around the value is taken.

    Returns:
      0..254, clamped at both ends; 0 for zero; 255 for NaN, Inf and every negative value.

    Exactness:
      Exact for every rational.
    """
    if not value.is_finite or (value.negative and value.magnitude):
        return 0xFF
    x = value.magnitude
    if x < power_of_two(-127):
        return 0
    low = floor_log2(x)
    ratio = x / power_of_two(low)  # in [1, 2): where the value lies between the two powers
    match rounding:
        case E8M0Rounding.FLOOR:
            up = False
        case E8M0Rounding.CEIL:
            up = ratio > 1
        case E8M0Rounding.NEAREST_UP:
            up = ratio >= Fraction(3, 2)
        case E8M0Rounding.NEAREST_EVEN:
            up = ratio > Fraction(3, 2) or (ratio == Fraction(3, 2) and bool((low + 127) & 1))
        case E8M0Rounding.LOG_RNE:
            # The boundary is the square root of 2, so no rational ties.
            up = ratio * ratio > 2
    return min(low + 127 + up, 254)


def float32_bits(value: Value) -> int:
    """Round a value to an IEEE binary32 word, to nearest even (D17)."""
    return encode(value, FP32, RNE, saturate=False)
