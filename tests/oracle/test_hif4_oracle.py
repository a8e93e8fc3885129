"""The HiF4 oracle against public worked examples, spelled out by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest

from mxref.oracle import hif4
from mxref.oracle.values import INF, NAN, NEG_INF, NEG_ZERO, ZERO, Value, from_float32_bits

MIXED = ["7", "1/2", "5/2", "-3/2", "1/4", "3/8", "0", "0", "-1/8", "5/8"]


def group(lanes: dict[int, str] | list[str]) -> list[Value]:
    items = lanes.items() if isinstance(lanes, dict) else enumerate(lanes)
    data = [ZERO] * 64
    for lane, text in items:
        data[lane] = Value.of(Fraction(text))
    return data


@pytest.mark.parametrize(
    ("data", "ties", "word", "codes"),
    [
        ([], "away", 0x0000_0000, {}),
        (["7"], "away", 0x0001_01C0, {0: 7}),
        (MIXED, "away", 0x0001_01C0, dict(enumerate([7, 1, 3, 0xA, 1, 1, 0, 0, 9, 3]))),
        (MIXED, "even", 0x0001_01C0, dict(enumerate([7, 0, 2, 0xA, 0, 1, 0, 0, 8, 2]))),
        ({0: "448", 40: "-224"}, "away", 0x0401_01D8, {0: 7, 40: 0xF}),
        ({0: "14", 40: "-7"}, "away", 0x0401_01C4, {0: 7, 40: 0xF}),
        ({0: "7/2", 40: "-7/4"}, "away", 0x0401_01BC, {0: 7, 40: 0xF}),
        ({0: "1/100000000000000000000", 40: "-1/100000000000000000000"}, "away", 0, {40: 8}),
    ],
)
def test_worked_examples(data, ties, word, codes):
    got_word, got_codes = hif4.quantize_group(group(data), ties)
    assert hex(got_word) == hex(word)
    assert {i: c for i, c in enumerate(got_codes) if c} == {i: c for i, c in codes.items() if c}


@pytest.mark.parametrize(
    ("word", "lane", "value"),
    [
        (0x0000_00C0, 0, "7/4"),
        (0x0000_00C0, 63, "7/4"),
        (0x0000_01C0, 7, "7/2"),
        (0x0000_01C0, 8, "7/4"),
        (0x0001_01C0, 3, "7"),
        (0x0001_01C0, 4, "7/2"),
        (0x0001_01C0, 8, "7/4"),
        (0x8000_80C0, 63, "7"),
        (0x8000_80C0, 0, "7/4"),
        (0xFFFF_FFFE, 17, "344064"),
    ],
)
def test_decoding_examples(word, lane, value):
    assert hif4.lane_value(7, word, lane) == Value.of(Fraction(value))
    assert hif4.lane_value(15, word, lane) == Value.of(-Fraction(value))


def test_e6m2_examples():
    codes = {0x00: Fraction(1, 2**48), 0xBF: "7/8", 0xC0: 1, 0xC1: "5/4", 0xC2: "3/2", 0xC3: "7/4"}
    for code, value in (codes | {0xFE: 49152}).items():
        assert hif4.e6m2_value(code).magnitude == Fraction(value)
    assert hif4.e6m2_value(0xFF).is_nan


def test_the_constants_are_the_published_bfloat16_words():
    assert hif4.bf16(Fraction(1, 7)) == from_float32_bits(0x3E12_0000).magnitude
    words = [0x3F80_0000, 0x3F4D_0000, 0x3F2B_0000, 0x3F12_0000]
    for m, word in enumerate(words):
        assert hif4.reciprocal(0xC0 + m) == from_float32_bits(word).magnitude


def test_zero_lanes_keep_their_sign():
    word, codes = hif4.quantize_group([NEG_ZERO, ZERO, Value.of(Fraction(-1, 2**140))])
    assert (word, codes) == (0, [8, 0, 8])
    assert hif4.dequantize_group(word, codes) == [NEG_ZERO, ZERO, NEG_ZERO]


@pytest.mark.parametrize("special", [NAN, INF, NEG_INF])
def test_one_special_makes_the_group_nan_and_counts_as_zero(special):
    data = group(["7", "1/2"])
    data[9] = special
    assert hif4.quantize_group(data)[0] == 0x0001_01FF
    assert hif4.quantize_group(data)[1][:10] == [7, 1, 0, 0, 0, 0, 0, 0, 0, 0]
    assert all(v.is_nan for v in hif4.dequantize_group(0x0001_01FF, [7] * 64))


def test_a_scale_below_a_seventh_saturates_the_top_lane():
    # 19/16 * 0x3E12 = 0.1693 goes down to S = 1.25 * 2^-3, R = 6.40625; 19/16 * R = 7.61 quarters
    # of 4 would round to 8.
    word, codes = hif4.quantize_group([Value.of(Fraction(19, 16))])
    assert (word & 0xFF, codes) == (0xB5, [7])
    assert hif4.dequantize_group(word, codes)[0].magnitude == Fraction(35, 32)


def test_the_source_may_be_rounded_to_bf16_first():
    # 1/2 - 2^-20 becomes 1/2, which lies halfway between the lane codes 0 and 1 beside a 7.
    near = [Value.of(Fraction(7)), Value.of(Fraction(1, 2) - Fraction(1, 2**20))]
    assert hif4.quantize_group(near, source="bf16", product="exact")[1] == [7, 1]
    assert hif4.quantize_group(near, source="exact", product="exact")[1] == [7, 0]


def test_the_product_may_be_rounded_to_bf16():
    # A peak of 10.5 gives S = 1.5 and R = 171/256.  215/128 * R = 1.12201 lies below the tie at
    # 1.125; bfloat16 has 1.1171875 and 1.125 around it, the latter nearer.
    data = [ZERO] * 64
    data[0], data[8] = Value.of(Fraction(21, 2)), Value.of(Fraction(215, 128))
    for product, code in (("bf16", 5), ("exact", 4)):
        word, codes = hif4.quantize_group(data, product=product)
        assert (word, codes[0], codes[8]) == (0x0001_01C2, 7, code)
