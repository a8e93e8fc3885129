"""Block scaling in exact arithmetic: the largest magnitude, its scale, the elements, and back.

Source: OCP MX v1.0 section 6.3; D19, D20.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from mxref.errors import ShapeError
from mxref.formats import FormatSpec
from mxref.oracle.rounding import encode, float32_bits
from mxref.oracle.values import INF, NAN, Value, decode, floor_log2, power_of_two
from mxref.policy import NonFinite, NumericPolicy, Rounding, ScaleCodes, ScaleRule


def ceil_log2(x: Fraction) -> int:
    """The integer e with ``2**(e - 1) < x <= 2**e``, for positive x."""
    e = floor_log2(x)
    return e if power_of_two(e) == x else e + 1


def scale_exponent(amax: Fraction, fmt: FormatSpec, rule: ScaleRule) -> int:
    """The unclamped exponent a rule derives from a positive block maximum."""
    emax = floor_log2(fmt.max_value)
    match rule:
        case ScaleRule.FLOOR:
            return floor_log2(amax) - emax
        case ScaleRule.CEIL:
            return ceil_log2(amax) - emax
        case ScaleRule.EVEN:
            return floor_log2(_round_significand(amax, fmt.mantissa_bits)) - emax
        case ScaleRule.RCEIL:
            return ceil_log2(amax / fmt.max_value)
        case ScaleRule.HEADROOM:
            return floor_log2(amax) - (emax - 1)


def _round_significand(x: Fraction, mantissa_bits: int) -> Fraction:
    """Round to ``mantissa_bits`` explicit bits, ties up; no exponent limits.

    Ties up and ties to even carry into the next binade for the same values, because the last
    significand of a binade is odd; only that carry matters here.
    """
    spacing = power_of_two(floor_log2(x) - mantissa_bits)
    return (x / spacing + Fraction(1, 2)).__floor__() * spacing


def scale_code(amax: Value, fmt: FormatSpec, policy: NumericPolicy) -> int:
    """Give the E8M0 code of a block from its largest magnitude.

    Args:
      amax: the largest magnitude; any sign.  NaN or Inf stands for a block that holds one.
      fmt: element format.
      policy: scale rule, lowest code and treatment of non-finite blocks.

    Returns:
      ``policy.min_scale_code``..254, or 255 for a poisoned block.

    Exactness:
      Exact for every rational.
    """
    if not amax.is_finite:
        if policy.nonfinite is NonFinite.POISON:
            return 0xFF
        # Exponent field 255 is used like any other: the maximum counts as 2**128.
        amax = Value.of(power_of_two(128))
    if amax.magnitude == 0:
        return policy.min_scale_code
    code = scale_exponent(amax.magnitude, fmt, policy.scale_rule) + 127
    return min(max(code, policy.min_scale_code), 254)


def block_amax(values: Sequence[Value]) -> Value:
    """The largest magnitude of a block; NaN before Inf before every number."""
    if any(v.is_nan for v in values):
        return NAN
    if any(v.is_infinite for v in values):
        return INF
    return Value.of(max(v.magnitude for v in values))


def quantize_block(
    values: Sequence[Value], fmt: FormatSpec, policy: NumericPolicy
) -> tuple[int, list[int]]:
    """Quantize one block.

    Args:
      values: the elements of the block; a short block is complete as it is, because padding zeros
        never change the maximum.
      fmt: element format.
      policy: every choice of D19.

    Returns:
      The scale code and one code an element.

    Exactness:
      Exact: elements are divided by the power of two before the one rounding.
    """
    if not values:
        raise ShapeError("values", 0, "at least one element")
    scale = scale_code(block_amax(values), fmt, policy)
    if scale == 0xFF:
        return scale, [encode(NAN, fmt)] * len(values)
    codes = [
        encode(v.scaled(127 - scale), fmt, Rounding.RNE, policy.saturate, policy.nan_element)
        for v in values
    ]
    return scale, codes


def scaled_value(code: int, scale: int | None, fmt: FormatSpec, policy: NumericPolicy) -> Value:
    """One element times its scale, before any rounding; ``None`` means unscaled."""
    element = decode(code, fmt)
    if scale is None:
        return element
    if scale == 0xFF and policy.scale_codes is ScaleCodes.OCP:
        return NAN
    return element.scaled(scale - 127)


def dequantize_block(
    scale: int, codes: Sequence[int], fmt: FormatSpec, policy: NumericPolicy
) -> list[int]:
    """Give the float32 words of a block: element times ``2**(scale - 127)``, rounded once.

    Exactness:
      Exact; subnormal words are kept, overflow gives Inf, NaN is canonical.
    """
    return [float32_bits(scaled_value(code, scale, fmt, policy)) for code in codes]
