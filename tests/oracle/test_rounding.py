"""The oracle's encode against a search of the whole grid, the documents' vectors, and C."""

from __future__ import annotations

import itertools
import random
import struct
from fractions import Fraction
from functools import cache

import pytest

from mxref.errors import PolicyError
from mxref.formats import BF16, E2M1FN, E3M4, E4M3_IEEE, E4M3FN, E5M2, E8M0, FORMATS, FP16, FP32
from mxref.oracle import (
    INF,
    NAN,
    NEG_INF,
    NEG_ZERO,
    Value,
    decode,
    encode,
    encode_e8m0,
    float32_bits,
)
from mxref.oracle.values import power_of_two
from mxref.policy import E8M0Rounding, NanElement, Rounding

NARROW = [f for f in FORMATS.values() if f.bits <= 8 and f is not E8M0]
HALF = Fraction(1, 2)


@cache
def positive_grid(fmt) -> list[tuple[Fraction, int]]:
    return [(decode(c, fmt).exact, c) for c in range(fmt.max_code + 1)]


def search(x: Fraction, fmt) -> dict[Rounding, int]:
    """The code of an in-range value under every rule, by looking at every code there is."""
    grid = positive_grid(fmt)
    magnitude, sign = abs(x), fmt.sign_mask if x < 0 else 0
    below = max((v, c) for v, c in grid if v <= magnitude)
    above = min((v, c) for v, c in grid if v >= magnitude)
    low, high = magnitude - below[0], above[0] - magnitude
    odd = below[1] % 2 == 1
    nearer, tie = high < low, high == low
    up = {
        Rounding.RNE: nearer or (tie and odd),
        Rounding.TOWARD_ZERO: False,
        Rounding.UP: x > 0,
        Rounding.DOWN: x < 0,
        Rounding.NEAREST_AWAY: nearer or tie,
        Rounding.HALF_UP: nearer or (tie and x > 0),
        Rounding.TO_ODD: not odd,
    }
    return {rule: sign | (above if goes else below)[1] for rule, goes in up.items()}


def probes(fmt) -> list[Fraction]:
    """Every value, midpoint, quarter and near-midpoint of the positive grid."""
    values = [decode(c, fmt).exact for c in range(fmt.max_code + 1)]
    points = list(values)
    for a, b in itertools.pairwise(values):
        gap = b - a
        points += [a + gap * t for t in (HALF, Fraction(1, 4), Fraction(3, 4))]
        points += [a + gap * HALF + gap * e for e in (Fraction(1, 10**9), -Fraction(1, 10**9))]
    return points


@pytest.mark.parametrize("fmt", NARROW, ids=str)
def test_every_rounding_finds_the_code_that_a_search_finds(fmt):
    for x in probes(fmt):
        for signed in (x, -x) if x else (x,):
            want = search(signed, fmt)
            got = {rule: encode(Value.of(signed), fmt, rule) for rule in want}
            assert got == want, signed
            assert len(want) == len(Rounding) - 1  # all but STOCHASTIC


@pytest.mark.parametrize("fmt", [f for f in FORMATS.values() if f.bits <= 16], ids=str)
def test_every_value_encodes_to_its_own_code(fmt):
    for code in range(1 << fmt.bits):
        value = decode(code, fmt)
        if value.is_nan:
            assert encode(value, fmt) == fmt.nan_code
        else:
            assert encode(value, fmt, saturate=False) == code


# numerics tables of the sources, section "scalar codecs".
VECTORS = {
    E2M1FN: [
        ("0.25", 0x0),
        ("0.2500001", 0x1),
        ("0.75", 0x2),
        ("1.25", 0x2),
        ("1.75", 0x4),
        ("2.5", 0x4),
        ("3.5", 0x6),
        ("5", 0x6),
        ("5.0000005", 0x7),
        ("6.9", 0x7),
        ("8", 0x7),
        ("-5", 0xE),
    ],
    E4M3FN: [
        ("1/1024", 0x00),
        ("1.5/1024", 0x01),
        ("1/512", 0x01),
        ("1.5/512", 0x02),
        ("2.5/512", 0x02),
        ("1/128", 0x04),
        ("1/64", 0x08),
        ("1.0625", 0x38),
        ("1.1875", 0x3A),
        ("17", 0x58),
        ("19", 0x5A),
        ("240", 0x77),
        ("464", 0x7E),
        ("480", 0x7E),
        ("512", 0x7E),
    ],
    E5M2: [
        ("1/131072", 0x00),
        ("1.5/131072", 0x01),
        ("1/65536", 0x01),
        ("1.5/65536", 0x02),
        ("2.5/65536", 0x02),
        ("1/16384", 0x04),
        ("1.125", 0x3C),
        ("1.375", 0x3E),
        ("49152", 0x7A),
        ("61440", 0x7B),
        ("65536", 0x7B),
    ],
}


def test_published_scalar_vectors():
    for fmt, rows in VECTORS.items():
        for text, code in rows:
            top, _, bottom = text.partition("/")
            x = Fraction(top) / Fraction(bottom or 1)
            assert encode(Value.of(x), fmt) == code, (fmt, text)


def test_special_values():
    for fmt in NARROW:
        assert encode(NEG_ZERO, fmt) == fmt.sign_mask
        assert encode(INF, fmt) == fmt.max_code
        assert encode(NEG_INF, fmt) == fmt.sign_mask | fmt.max_code
        assert encode(NAN, fmt) == (fmt.nan_code or 0)
        negative_nan = Value(NAN.kind, True, Fraction(0))
        assert encode(negative_nan, fmt) == (fmt.nan_code or 0)
        signed = encode(negative_nan, fmt, nan_element=NanElement.SIGNED_ZERO)
        assert signed == fmt.sign_mask
    assert encode(INF, E5M2, saturate=False) == 0x7C
    assert encode(NEG_INF, E4M3_IEEE, saturate=False) == 0xF8
    assert encode(INF, E4M3FN, saturate=False) == 0x7F
    assert encode(INF, E2M1FN, saturate=False) == 0x7
    assert encode(INF, FP16) == 0x7C00


@pytest.mark.parametrize(
    ("x", "rounding", "code"),
    [
        (464, Rounding.RNE, 0x7E),
        (465, Rounding.RNE, 0x7F),
        (-465, Rounding.RNE, 0x7F),  # one positive NaN (D23c)
        (464, Rounding.NEAREST_AWAY, 0x7F),
        (-464, Rounding.HALF_UP, 0xFE),
        (500, Rounding.TOWARD_ZERO, 0x7E),
        (449, Rounding.UP, 0x7F),
        (-449, Rounding.UP, 0xFE),
        (10**6, Rounding.DOWN, 0x7E),
        (10**6, Rounding.TO_ODD, 0x7E),
    ],
)
def test_overflow_without_saturation(x, rounding, code):
    assert encode(Value.of(x), E4M3FN, rounding, saturate=False) == code
    if code != 0x7F:
        assert encode(Value.of(x), E4M3FN, rounding, saturate=True) == code


def test_overflow_of_formats_with_infinity():
    assert encode(Value.of(61440), E5M2, saturate=False) == 0x7C
    assert encode(Value.of(61439), E5M2, saturate=False) == 0x7B
    assert encode(Value.of(-65520), FP16) == 0xFC00
    assert encode(Value.of(65519), FP16) == 0x7BFF
    assert encode(Value.of(65519), FP16, Rounding.UP) == 0x7C00
    assert encode(Value.of(Fraction(63, 4)), E3M4, saturate=False) == 0x70
    assert encode(Value.of(Fraction(63, 4)), E3M4) == 0x6F


def test_float32_agrees_with_the_compilers_conversion():
    """C's double to float conversion rounds to nearest even; struct uses it."""
    rng = random.Random(5)
    doubles = [
        rng.choice((1, -1)) * rng.random() * 2.0 ** rng.randrange(-152, 128) for _ in range(4000)
    ]
    # Halfway between neighbours, and subnormal results.
    doubles += [(rng.randrange(1 << 24) + 0.5) * 2.0**e for e in range(-149, 100, 7)]
    for x in doubles:
        want = struct.unpack("<I", struct.pack("<f", x))[0]
        assert float32_bits(Value.of(Fraction(x), negative=x < 0)) == want, x
    assert float32_bits(Value.of(power_of_two(128))) == 0x7F800000
    assert float32_bits(Value.of(power_of_two(128) - power_of_two(103))) == 0x7F800000
    assert float32_bits(Value.of(power_of_two(128) - power_of_two(103) - 1)) == 0x7F7FFFFF


def test_bfloat16_vectors():
    for word, code in ((0x3F808000, 0x3F80), (0x3F818000, 0x3F82), (0x40490FDB, 0x4049)):
        assert encode(decode(word, FP32), BF16) == code
    assert encode(decode(0x7F7FFFFF, FP32), BF16) == 0x7F80
    assert encode(decode(0xFFC00001, FP32), BF16) == 0x7FC0


def test_stochastic_goes_up_exactly_as_often_as_the_discarded_fraction():
    # 1.0625 lies half way between 1 and 1.125; 1.03125 a quarter of the way.
    for x, ups in ((Fraction(17, 16), 8), (Fraction(33, 32), 4), (Fraction(1), 0)):
        for sign in (1, -1):
            codes = [
                encode(
                    Value.of(sign * x),
                    E4M3FN,
                    Rounding.STOCHASTIC,
                    random_bits=bits,
                    random_width=4,
                )
                for bits in range(16)
            ]
            base = 0x38 if sign > 0 else 0xB8
            assert codes == [base + 1] * ups + [base] * (16 - ups)
    with pytest.raises(PolicyError):
        encode(Value.of(1), E4M3FN, Rounding.STOCHASTIC)


def test_e8m0_between_two_powers():
    """Just around 1, the square root of 2, and 3/2, for an odd and an even code below."""
    rules = E8M0Rounding
    rows = [
        (Fraction(1), 0, {}),
        (Fraction(1) + Fraction(1, 10**9), 0, {rules.CEIL: 1}),
        (Fraction(141, 100), 0, {rules.CEIL: 1}),
        (Fraction(142, 100), 0, {rules.CEIL: 1, rules.LOG_RNE: 1}),
        (Fraction(15, 10), 0, dict.fromkeys((rules.CEIL, rules.LOG_RNE, rules.NEAREST_UP), 1)),
        (Fraction(16, 10), 1, {rules.FLOOR: 0}),
    ]
    for shift in (0, 1):
        low = 127 + shift
        for x, default, changed in rows:
            for rule in rules:
                up = changed.get(rule, default)
                if rule is rules.NEAREST_EVEN and x == Fraction(3, 2):
                    up = low % 2
                got = encode_e8m0(Value.of(x * 2**shift), rule)
                assert got == low + up, (x, rule)


def test_e8m0_ends_and_non_numbers():
    for rule in E8M0Rounding:
        assert encode_e8m0(NEG_ZERO, rule) == 0
        assert encode_e8m0(Value.of(power_of_two(-140)), rule) == 0
        assert encode_e8m0(Value.of(power_of_two(127) * Fraction(19, 10)), rule) == 254
        for odd in (NAN, INF, NEG_INF, Value.of(-1)):
            assert encode_e8m0(odd, rule) == 255


def test_e8m0_as_a_target_of_every_rounding():
    for code in (0, 1, 127, 128, 254):
        for rounding in Rounding:
            got = encode(decode(code, E8M0), E8M0, rounding, random_bits=0)
            assert got == code, rounding
    up = {Rounding.RNE: 1, Rounding.UP: 1, Rounding.NEAREST_AWAY: 1, Rounding.HALF_UP: 1}
    for rounding in set(Rounding) - {Rounding.STOCHASTIC}:
        # Half way above the odd code 127; above the even code 128 to-odd moves and RNE does not.
        half = Fraction(3, 2)
        assert encode(Value.of(half), E8M0, rounding) == 127 + up.get(rounding, 0)
        moved = {**up, Rounding.RNE: 0, Rounding.TO_ODD: 1}.get(rounding, 0)
        assert encode(Value.of(2 * half), E8M0, rounding) == 128 + moved
        top = Value.of(power_of_two(127) * Fraction(7, 4))
        assert encode(top, E8M0, rounding) == 254
        assert encode(top, E8M0, rounding, saturate=False) == 254 + up.get(rounding, 0)
    stochastic = [
        encode(Value.of(Fraction(5, 4)), E8M0, Rounding.STOCHASTIC, random_bits=r, random_width=2)
        for r in range(4)
    ]
    assert stochastic == [128, 127, 127, 127]
