"""The oracle's decode: tables from the documents, and ml_dtypes as a third opinion."""

from __future__ import annotations

import struct
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from mxref.errors import FormatError
from mxref.formats import BF16, E2M1FN, E4M3FN, E5M2, E8M0, FORMATS, FP16, FP32
from mxref.oracle import INF, NAN, NEG_INF, NEG_ZERO, ZERO, Value, decode, floor_log2
from mxref.oracle.values import power_of_two

NUMPY_TYPES = {
    "float4_e2m1fn": ml_dtypes.float4_e2m1fn,
    "float6_e2m3fn": ml_dtypes.float6_e2m3fn,
    "float6_e3m2fn": ml_dtypes.float6_e3m2fn,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e4m3": ml_dtypes.float8_e4m3,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "float8_e3m4": ml_dtypes.float8_e3m4,
    "float8_e8m0fnu": ml_dtypes.float8_e8m0fnu,
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
}


def test_e2m1_is_the_table_of_the_specification():
    grid = [0, Fraction(1, 2), 1, Fraction(3, 2), 2, 3, 4, 6]
    assert [decode(c, E2M1FN).exact for c in range(8)] == grid
    assert [decode(c, E2M1FN).exact for c in range(9, 16)] == [-x for x in grid[1:]]
    assert decode(8, E2M1FN) == NEG_ZERO


@pytest.mark.parametrize(
    ("code", "fmt", "value"),
    [
        (0x7E, E4M3FN, Fraction(448)),
        (0x08, E4M3FN, Fraction(1, 64)),
        (0x01, E4M3FN, Fraction(1, 512)),
        (0x07, E4M3FN, Fraction(7, 512)),
        (0x78, E4M3FN, Fraction(256)),
        (0x7B, E5M2, Fraction(57344)),
        (0x04, E5M2, Fraction(1, 1 << 14)),
        (0x01, E5M2, Fraction(1, 1 << 16)),
        (0x00, E8M0, Fraction(1, 1 << 127)),
        (0xFE, E8M0, Fraction(1 << 127)),
        (0x0001, BF16, Fraction(1, 1 << 133)),
        (0x0001, FP16, Fraction(1, 1 << 24)),
        (0x7BFF, FP16, Fraction(65504)),
        (0x00000001, FP32, Fraction(1, 1 << 149)),
        (0x00800000, FP32, Fraction(1, 1 << 126)),
        (0x7F7FFFFF, FP32, Fraction((1 << 24) - 1) * (1 << 104)),
    ],
)
def test_corner_codes(code, fmt, value):
    assert decode(code, fmt).exact == value


def test_special_codes():
    assert decode(0x7F, E4M3FN).is_nan
    assert decode(0xFF, E4M3FN).is_nan
    assert decode(0xFF, E4M3FN).negative
    assert decode(0x7C, E5M2) == INF
    assert decode(0xFC, E5M2) == NEG_INF
    assert all(decode(c, E5M2).is_nan for c in (0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF))
    assert decode(0xFF, E8M0) == NAN
    assert decode(0x80000000, FP32) == NEG_ZERO
    assert decode(0, FP32) == ZERO


@pytest.mark.parametrize("name", NUMPY_TYPES)
def test_every_code_agrees_with_ml_dtypes(name):
    fmt, dtype = FORMATS[name], np.dtype(NUMPY_TYPES[name])
    codes = np.arange(1 << fmt.bits, dtype=np.uint8 if fmt.bits <= 8 else np.uint16)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        doubles = codes.view(dtype).astype(np.float64)
    for code, double in zip(codes.tolist(), doubles.tolist(), strict=True):
        value = decode(code, fmt)
        if double != double:
            assert value.is_nan, hex(code)
        elif double in (float("inf"), float("-inf")):
            assert value == (INF if double > 0 else NEG_INF), hex(code)
        else:
            assert value.exact == Fraction(double), hex(code)
            assert value.negative == (struct.pack(">d", double)[0] >> 7 == 1), hex(code)


def test_the_facts_of_every_format_agree_with_its_codes():
    for fmt in FORMATS.values():
        if fmt is FP32:
            continue
        values = [decode(c, fmt) for c in range(1 << fmt.bits)]
        finite = [v.exact for v in values if v.is_finite]
        assert max(finite) == fmt.max_value
        assert min(x for x in finite if x > 0) == Fraction(fmt.min_subnormal)
        assert [c for c, v in enumerate(values) if v.is_nan] == list(fmt.nan_codes)
        infinite = [c for c, v in enumerate(values) if v == INF]
        assert infinite == ([] if fmt.inf_code is None else [fmt.inf_code])


@pytest.mark.parametrize("exponent", [-149, -127, -1, 0, 1, 127])
def test_floor_log2_at_and_beside_a_power(exponent):
    x = power_of_two(exponent)
    assert floor_log2(x) == exponent
    assert floor_log2(x * Fraction(999, 1000)) == exponent - 1
    assert floor_log2(x * Fraction(1999, 1000)) == exponent


def test_refusals():
    with pytest.raises(FormatError):
        decode(16, E2M1FN)
    with pytest.raises(FormatError):
        decode(-1, E2M1FN)
    with pytest.raises(FormatError):
        floor_log2(Fraction(0))
    with pytest.raises(FormatError):
        _ = NAN.exact
    assert Value.of(0, negative=True) == NEG_ZERO
    assert Value.of(-3, negative=False) == Value.of(-3)
