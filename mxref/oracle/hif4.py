"""HiF4 by definition: rationals, nearest-value search, one line a step.

A group is a list of up to 64 data; missing lanes are +0.  Source: the public HiFloat4 reference
quantizers and the PTO tile ISA's HiF4X2 type; D33, D18.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from mxref.formats import BF16
from mxref.oracle.rounding import encode
from mxref.oracle.values import NAN, Value, decode, power_of_two

LANES = 64
_ONE_SEVENTH = Fraction(73, 512)  # 0x3E12, the bfloat16 nearest to 1/7


def e6m2_value(code: int) -> Value:
    """Value of an E6M2 code: 2^(e - 48) * (1 + m / 4), 0xFF is NaN."""
    if code == 0xFF:
        return NAN
    return Value.of(power_of_two((code >> 2) - 48) * (1 + Fraction(code & 3, 4)))


_SCALES = [e6m2_value(code).magnitude for code in range(0xFF)]  # ascending


def lane_value(code: int, word: int, lane: int) -> Value:
    """Value of one lane.

    Args:
      code: four bits, sign in bit 3.
      word: the group's metadata.
      lane: position in the group, 0 to 63.

    Returns:
      The value; NaN when the scale is NaN.
    """
    scale = e6m2_value(word & 0xFF)
    if scale.is_nan:
        return NAN
    doubled_eight = word >> (8 + lane // 8) & 1
    doubled_four = word >> (16 + lane // 4) & 1
    value = Fraction(code & 7, 4) * scale.magnitude * power_of_two(doubled_eight + doubled_four)
    return Value.of(-value if code & 8 else value, negative=bool(code & 8))


@lru_cache(maxsize=1 << 18)
def as_bf16(value: Value) -> Value:
    """A datum rounded to bfloat16, ties to even; Inf beyond its range."""
    return decode(encode(value, BF16, saturate=False), BF16)


def bf16(x: Fraction) -> Fraction:
    """A magnitude inside bfloat16's range, rounded to it."""
    return as_bf16(Value.of(x)).magnitude


@lru_cache(maxsize=1 << 16)
def scale_code(peak: Fraction) -> int:
    """E6M2 code for the largest magnitude of a group."""
    wanted = bf16(peak * _ONE_SEVENTH)
    # The codes around the value, or the one at the end of the range; of two equally near, the even.
    above = bisect_left(_SCALES, wanted)
    around = [code for code in (above - 1, above) if 0 <= code < len(_SCALES)]
    return min(around, key=lambda code: (abs(_SCALES[code] - wanted), code & 1))


@lru_cache(maxsize=512)
def reciprocal(code: int) -> Fraction:
    """bfloat16 nearest to 1 / scale."""
    return bf16(1 / e6m2_value(code).magnitude)


@lru_cache(maxsize=1 << 18)
def lane_code(t: Fraction, ties: str) -> int:
    """The magnitude code nearest to t quarters-of-one, 0 to 7."""

    def order(code: int) -> tuple[Fraction, int]:
        return abs(Fraction(code, 4) - t), -code if ties == "away" else code & 1

    return min(range(8), key=order)


def quantize_group(
    group: Sequence[Value], ties: str = "away", source: str = "bf16", product: str = "bf16"
) -> tuple[int, list[int]]:
    """Encode up to 64 data.

    Args:
      group: the data.
      ties: ``"away"`` or ``"even"``.
      source: ``"bf16"`` rounds the data to bfloat16 first, ``"exact"`` does not.
      product: ``"bf16"`` rounds the scaled lanes to bfloat16, ``"exact"`` does not.

    Returns:
      The metadata word and as many codes as data.

    Exactness:
      Exact for every float32.
    """
    if source == "bf16":
        group = [as_bf16(v) for v in group]
    poisoned = any(not v.is_finite for v in group)
    data = [v if v.is_finite else Value.of(0) for v in group]
    a = [v.magnitude for v in data] + [Fraction(0)] * (LANES - len(data))
    max4 = [max(a[i : i + 4]) for i in range(0, LANES, 4)]
    max8 = [max(a[i : i + 8]) for i in range(0, LANES, 8)]
    scale = scale_code(max(a))
    r = reciprocal(scale)
    word = 0xFF if poisoned else scale
    doubled = [0] * LANES
    for b in range(8):
        if max8[b] * r >= 4:
            word |= 1 << (8 + b)
            doubled[8 * b : 8 * b + 8] = [1] * 8
    for b in range(16):
        if max4[b] * r / (1 << doubled[4 * b]) >= 2:
            word |= 1 << (16 + b)
            for lane in range(4 * b, 4 * b + 4):
                doubled[lane] += 1
    codes = []
    for lane, v in enumerate(data):
        t = v.magnitude * r
        if product == "bf16":
            t = bf16(t)
        codes.append(lane_code(t / (1 << doubled[lane]), ties) | (8 if v.negative else 0))
    return word, codes


def dequantize_group(word: int, codes: Sequence[int]) -> list[Value]:
    """Decode the lanes of a group."""
    return [lane_value(code, word, lane) for lane, code in enumerate(codes)]
