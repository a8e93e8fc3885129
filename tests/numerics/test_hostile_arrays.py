"""Foreign byte order and absurd block lengths: the right bits or a typed error."""

from __future__ import annotations

import numpy as np
import pytest

import mxref as mx
from mxref.policy import order
from mxref.testing import assert_bits_equal

A = np.linspace(-3, 500, 2 * 40, dtype=np.float32).reshape(2, 40)


@pytest.mark.parametrize("dtype", [">f2", ">f4", ">f8"])
def test_byte_order_does_not_matter(dtype):
    native = A.astype(np.dtype(dtype).newbyteorder("="))
    foreign = native.astype(dtype)
    for got, want in zip(
        mx.quantize(foreign, "e4m3fn"), mx.quantize(native, "e4m3fn"), strict=True
    ):
        assert_bits_equal(got, want)
    assert_bits_equal(mx.narrow(foreign, "e5m2"), mx.narrow(native, "e5m2"))
    assert_bits_equal(mx.fake_quantize(foreign, "e4m3fn"), mx.fake_quantize(native, "e4m3fn"))
    if dtype != ">f8":
        assert_bits_equal(
            mx.matmul(foreign, foreign.T.copy(), accumulate="SEQUENTIAL"),
            mx.matmul(native, native.T.copy(), accumulate="SEQUENTIAL"),
        )


def test_codes_in_foreign_byte_order_are_read_right():
    codes = np.array([0x3F80, 0x0001, 0xC000], np.uint16)
    assert_bits_equal(mx.widen(codes.astype(">u2"), "bf16"), mx.widen(codes, "bf16"))


@pytest.mark.parametrize("block", [41, 2**31, 2**62, 2**80])
def test_a_block_longer_than_its_axis_is_one_block(block):
    q, whole = mx.quantize(A, "e4m3fn", block=block), mx.quantize(A, "e4m3fn", block=40)
    assert q.block == block
    assert_bits_equal(q.codes, whole.codes)
    assert_bits_equal(q.scales, whole.scales)
    assert_bits_equal(q.dequantize(), whole.dequantize())
    w = mx.quantize(A.T.copy(), "e4m3fn", axis=-2, block=block)
    short = mx.quantize(A.T.copy(), "e4m3fn", axis=-2, block=40)
    for name in ("BLOCK", "SEQUENTIAL"):
        got = mx.matmul(q, w, accumulate=name)
        assert_bits_equal(got, mx.matmul(whole, short, accumulate=name))
    assert_bits_equal(
        mx.fake_quantize(A, "e4m3fn", block=block), mx.fake_quantize(A, "e4m3fn", block=40)
    )


def test_blocks_of_a_product_are_positive_integers():
    w = A.T.copy()
    assert_bits_equal(
        mx.quantized_matmul(A, w, "e4m3fn", block=np.int64(32)),
        mx.quantized_matmul(A, w, "e4m3fn", block=32),
    )
    for block in (0, -1, 1.5, [32], mx.BlockShape(), None, True):
        with pytest.raises(mx.PolicyError):
            mx.quantized_matmul(A, w, "e4m3fn", block=block)


@pytest.mark.parametrize("text", ["SYSTOLIC(4,\N{SUPERSCRIPT TWO})", f"SYSTOLIC(4,{'9' * 5000})"])
def test_odd_digits_are_no_order(text):
    with pytest.raises(mx.PolicyError):
        order(text)
