"""Packing: which bits go where, and back."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mxref import oracle
from mxref.block import quantize
from mxref.errors import FormatError, PolicyError, ShapeError
from mxref.interleave import deinterleave, interleave
from mxref.mxarray import BlockShape
from mxref.pack import pack_fp4, pack_x4, unpack_fp4, unpack_x4
from mxref.testing import assert_bits_equal

NIBBLES = np.random.default_rng(0).integers(0, 16, (3, 64), dtype=np.uint8)
BYTES = np.random.default_rng(1).integers(0, 256, (3, 64), dtype=np.uint8)


@pytest.mark.parametrize("order", ["linear", "ggml"])
def test_pack_fp4_equals_oracle(order):
    halves = NIBBLES.reshape(3, 2, 32).tolist()
    want = [[b for block in row for b in oracle.pack_fp4(block, order)] for row in halves]
    packed = pack_fp4(NIBBLES, order)
    assert_bits_equal(np.asarray(packed), np.array(want, np.uint8))
    assert_bits_equal(np.asarray(unpack_fp4(packed, order)), NIBBLES)
    assert_bits_equal(jax.vmap(lambda c: pack_fp4(c, order))(jnp.asarray(NIBBLES)), packed)


def test_the_two_orders_by_hand():
    codes = np.arange(32, dtype=np.uint8) % 16
    assert pack_fp4(codes)[:2].tolist() == [0x10, 0x32]
    assert pack_fp4(codes, "ggml")[:2].tolist() == [0x00, 0x11]


@pytest.mark.parametrize("n", [1 << 15, (1 << 15) + 2])
def test_large_arrays_take_the_loop_and_give_the_same(n):
    codes = np.random.default_rng(2).integers(0, 256, n, dtype=np.uint8)
    low = codes & 15
    want = low[0::2] | (low[1::2] << 4)
    assert_bits_equal(np.asarray(pack_fp4(low)), want)
    # Nobody can look at traced codes: their high nibbles are ignored.
    assert_bits_equal(np.asarray(jax.jit(pack_fp4)(jnp.asarray(codes))), want)


@pytest.mark.parametrize("kind", [list, np.array, jnp.array])
def test_codes_wider_than_their_format_are_refused(kind):
    codes = [[1, 2, 3, 4], [5, 17, 18, 6]]
    codes = codes if kind is list else kind(codes, dtype=np.uint8)
    for pack in (pack_fp4, lambda c: pack_x4(c, "e2m1fn")):
        with pytest.raises(FormatError, match=r"float4_e2m1fn: codes\[1\]\[1\] is 0x11"):
            pack(codes)
    with pytest.raises(FormatError, match="codes"):
        pack_fp4([1, -1])
    assert pack_fp4([1, 2]).tolist() == [0x21]


@pytest.mark.parametrize(
    ("fmt", "codes"), [("e4m3fn", BYTES), ("e5m2", BYTES), ("e2m1fn", NIBBLES)]
)
def test_pack_x4_equals_oracle(fmt, codes):
    words = pack_x4(codes, fmt)
    bits = 4 if fmt == "e2m1fn" else 8
    want = [
        [sum(int(c) << (bits * k) for k, c in enumerate(row[i : i + 4])) for i in range(0, 64, 4)]
        for row in codes
    ]
    assert_bits_equal(np.asarray(words), np.array(want, np.uint16 if bits == 4 else np.uint32))
    assert_bits_equal(np.asarray(unpack_x4(words, fmt)), codes)


def test_x4_words_lie_in_memory_as_bytes():
    little = np.asarray(pack_x4(BYTES)).astype("<u4")
    assert little.tobytes() == BYTES.tobytes()


def test_refusals():
    with pytest.raises(ShapeError, match="multiple of 2"):
        pack_fp4(NIBBLES[:, :3])
    with pytest.raises(ShapeError, match="multiple of 32"):
        pack_fp4(NIBBLES[:, :34], "ggml")
    with pytest.raises(ShapeError, match="multiple of 16"):
        unpack_fp4(NIBBLES[:, :8], "ggml")
    with pytest.raises(PolicyError, match="linear"):
        pack_fp4(NIBBLES, "zigzag")
    with pytest.raises(ShapeError, match="uint8"):
        pack_fp4(NIBBLES.astype(np.int32))
    with pytest.raises(ShapeError, match="multiple of 4"):
        pack_x4(BYTES[:, :6])
    with pytest.raises(FormatError):
        pack_x4(BYTES, "e2m3fn")
    with pytest.raises(ShapeError, match="uint16"):
        unpack_x4(pack_x4(BYTES), "e2m1fn")


@pytest.mark.parametrize("kmap", ["adjacent", "strided"])
def test_interleave_is_its_formula(kmap):
    k, n = 40, 3
    x = np.arange(2 * k * n, dtype=np.float32).reshape(2, k, n)
    got = np.asarray(interleave(x, kmap))
    for p in range(k // 4):
        for c in range(4):
            row = 4 * p + c if kmap == "adjacent" else c * (k // 4) + p
            assert_bits_equal(np.ascontiguousarray(got[:, p, c::4]), x[:, row])
    assert_bits_equal(np.asarray(deinterleave(got, kmap)), x)


@pytest.mark.parametrize("k", [64, 40, 4])
def test_interleaved_blocks_are_the_blocks_of_the_interleaved(k):
    x = np.random.default_rng(3).normal(size=(k, 6)).astype(np.float32)
    x = (x * 2.0 ** (np.arange(k)[:, None] // 4)).astype(np.float32)
    along = quantize(x, "e4m3fn", axis=-2)
    tiles = quantize(interleave(x), "e4m3fn", block=BlockShape(8, 4))
    assert_bits_equal(interleave(along), tiles)
    assert interleave(along).block == BlockShape(8, 4)
    assert_bits_equal(deinterleave(tiles), along)
    assert deinterleave(tiles).axis == -2
    assert_bits_equal(np.asarray(deinterleave(tiles.dequantize())), np.asarray(along.dequantize()))


def test_interleave_refusals():
    q = quantize(np.ones((32, 4), np.float32), "e4m3fn")
    with pytest.raises(ShapeError, match="axis=-2"):
        interleave(q)
    with pytest.raises(ShapeError, match="adjacent"):
        interleave(quantize(np.ones((32, 4), np.float32), "e4m3fn", axis=-2), "strided")
    with pytest.raises(ShapeError, match="multiple of 4"):
        interleave(np.ones((6, 4), np.float32))
    with pytest.raises(PolicyError, match="adjacent"):
        interleave(np.ones((8, 4), np.float32), "random")
    with pytest.raises(ShapeError):
        deinterleave(q)
    with pytest.raises(ShapeError, match="2 axes"):
        interleave(np.ones(8, np.float32))
