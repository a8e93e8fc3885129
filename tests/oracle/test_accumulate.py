"""The oracle's sums: literal traps, the CPU's float32 as a third opinion, and distinct orders."""

from __future__ import annotations

import random
import struct
from itertools import chain

import numpy as np
import pytest

from mxref.errors import PolicyError, ShapeError
from mxref.formats import BF16, E2M1FN, E4M3FN, E5M2, FP32
from mxref.oracle import dot, float32_bits, from_float32_bits, matmul
from mxref.oracle.arithmetic import Arithmetic, bits_of, exact_multiply, lowest_bit, term_of
from mxref.policy import (
    BACKEND,
    BLOCK,
    C_FIRST,
    NEURON_2_24,
    OCP,
    SEQUENTIAL,
    SYSTOLIC,
    SYSTOLIC_DENSE,
    SYSTOLIC_MX,
)

NAN, INF = 0x7FC00000, 0x7F800000


def word(x: float) -> int:
    return struct.unpack("<I", struct.pack("<f", x))[0]


def plain(a, b, order, **kwargs) -> int:
    """A dot product of float32 numbers."""
    return dot(
        [word(x) for x in a], None, [word(x) for x in b], None, FP32, FP32, OCP, order, **kwargs
    )


def interesting_words(rng: random.Random, count: int) -> list[int]:
    corners = [0, 1, 0x007FFFFF, 0x00800000, 0x3F800000, 0x7F7FFFFF, INF, NAN, 0x4B800000]
    corners += [c | 0x80000000 for c in corners[:-2]] + [0xFF800000]
    close = [rng.randrange(0x3F000000, 0x40800000) for _ in range(count)]
    wild = [rng.randrange(1 << 32) for _ in range(count)]
    small = [rng.randrange(0x01800000) | rng.randrange(2) << 31 for _ in range(count)]
    return corners + close + wild + small


def canonical(bits: int) -> int:
    return NAN if bits & 0x7FFFFFFF > INF else bits


def test_add_and_multiply_agree_with_the_cpu():
    """numpy adds and multiplies scalars with gradual underflow."""
    rng = random.Random(11)
    words = interesting_words(rng, 60)
    checked = 0
    with np.errstate(all="ignore"):
        for x in words:
            for y in rng.sample(words, 40):
                fx, fy = np.array([x, y], np.uint32).view(np.float32)
                total = canonical(int((fx + fy).view(np.uint32)))
                product = canonical(int((fx * fy).view(np.uint32)))
                values = from_float32_bits(x), from_float32_bits(y)
                lows = [low for v in values if (low := lowest_bit(v)) is not None]
                unit = min(lows, default=0)
                a, b = (term_of(v, unit) for v in values)
                assert bits_of(Arithmetic(unit).add(a, b), unit) == total, (hex(x), hex(y))
                exact = exact_multiply(a, b)
                rounded = (
                    Arithmetic(2 * unit).round(exact) if isinstance(exact, int) and exact else exact
                )
                assert bits_of(rounded, 2 * unit) == product, (hex(x), hex(y))
                checked += 1
    assert checked > 5000


def test_the_order_of_three_terms_shows():
    ones = [1.0, 1.0, 1.0]
    assert plain([2.0**24, 1.0, -(2.0**24)], ones, SEQUENTIAL) == 0
    assert plain([1.0, -(2.0**24), 2.0**24], ones, SEQUENTIAL) == word(1.0)
    assert plain([2.0**24, 1.0, -(2.0**24)], ones, BLOCK) == word(1.0)


def test_systolic_adds_pairs_then_rows_then_tiles():
    big = 2.0**24
    ones = [1.0] * 8
    # (2^24 + 1) loses the 1; the other pair is exact; the tree differs from the chain.
    a = [big, 1.0, 1.0, 1.0, -big, 0.0, 0.0, 0.0]
    assert plain(a, ones, SYSTOLIC(4, 8)) == word(2.0)
    assert plain(a, ones, SEQUENTIAL) == 0
    assert plain(a, ones, SYSTOLIC(1, 8)) == 0
    # With tiles of one row the first tile is added to 0, the second to its result.
    b = [1.0, 0.0, 0.0, 0.0, big, 0.0, 0.0, 0.0, -big, 0.0, 0.0, 0.0]
    assert plain(b, [1.0] * 12, SYSTOLIC(4, 4)) == 0
    # In tiles of two rows the last tile is short: it is padded, not joined.
    assert plain(b, [1.0] * 12, SYSTOLIC(4, 8)) == 0
    c = [1.0, big, -big]
    assert plain(c, [1.0] * 3, SYSTOLIC(1, 1)) == 0
    start = word(big)
    assert plain([1.0, 1.0], [1.0, 1.0], SYSTOLIC(1, 2), start=start) == word(big + 2)
    assert plain([1.0, 1.0], [1.0, 1.0], SYSTOLIC(1, 1), start=start) == word(big)
    assert plain([1.0, 1.0], [1.0, 1.0], SEQUENTIAL, start=start) == word(big)


def test_init_comes_last_except_c_first():
    big = word(2.0**24)
    for order in (SEQUENTIAL, SYSTOLIC_MX, SYSTOLIC_DENSE, BLOCK):
        assert plain([1.0, 1.0], [1.0, 1.0], order, init=big) == word(2.0**24 + 2)
    assert plain([1.0, 1.0], [1.0, 1.0], C_FIRST, init=big) == big
    assert plain([1.0, 1.0], [1.0, 1.0], C_FIRST) == word(2.0)
    with pytest.raises(PolicyError):
        plain([1.0], [1.0], C_FIRST, init=big, start=big)
    with pytest.raises(PolicyError):
        plain([1.0], [1.0], BACKEND)


def test_zero_keeps_its_sign_only_where_nothing_positive_was_added():
    assert plain([-0.0], [1.0], SEQUENTIAL) == 0
    assert plain([-0.0], [1.0], C_FIRST, init=0x80000000) == 0x80000000
    assert plain([0.0], [1.0], C_FIRST, init=0x80000000) == 0
    assert plain([-(2.0**-100)], [2.0**-100], C_FIRST, init=0x80000000) == 0x80000000
    assert plain([1.0, -1.0], [1.0, 1.0], C_FIRST, init=0x80000000) == 0


def test_subnormal_products_and_sums_are_kept():
    tiny = word(2.0**-149)
    assert plain([2.0**-75], [2.0**-74], SEQUENTIAL) == tiny
    assert plain([2.0**-75], [2.0**-75], SEQUENTIAL) == 0  # half the smallest: to even
    assert plain([2.0**-75 * 1.5], [2.0**-75], SEQUENTIAL) == tiny
    assert plain([2.0**-75] * 2, [2.0**-74] * 2, SYSTOLIC_MX) == 2
    # BLOCK rounds the exact sum once, so two halves of the smallest make one.
    assert plain([2.0**-75] * 2, [2.0**-75] * 2, BLOCK) == tiny


def test_where_a_scaled_product_is_rounded():
    """448 * 2^127 times 2^-9 * 2^-127: one profile rounds the operands first (D23a)."""
    codes = ([0x7E], [0xFE], [0x01], [0x00])
    for order in (SEQUENTIAL, SYSTOLIC_MX):
        assert dot(*codes, E4M3FN, E4M3FN, OCP, order) == word(0.875)
        assert dot(*codes, E4M3FN, E4M3FN, NEURON_2_24, order) == INF
    # BLOCK has no rounded products under any profile.
    assert dot(*codes, E4M3FN, E4M3FN, NEURON_2_24, BLOCK) == word(0.875)


def test_scale_255_is_nan_or_a_power():
    zeros = [0x00] * 32
    for order in (BLOCK, SEQUENTIAL, SYSTOLIC_MX):
        assert dot(zeros, [0xFF], zeros, [0x7F], E4M3FN, E4M3FN, OCP, order) == NAN
        assert dot(zeros, [0xFF], zeros, [0x7F], E4M3FN, E4M3FN, NEURON_2_24, order) == 0
    one = [0x38]
    assert dot(one, [0xFF], [0x01], [0x7F], E4M3FN, E4M3FN, NEURON_2_24, BLOCK) == word(2.0**119)
    assert dot(one, [0xFF], [0x01], [0x7F], E4M3FN, E4M3FN, NEURON_2_24, SEQUENTIAL) == INF


def test_a_plain_operand_counts_as_unscaled():
    ones = [0x38] * 40
    bf16_ones = [0x3F80] * 40
    for order in (SEQUENTIAL, SYSTOLIC_MX, BLOCK):
        got = dot(ones, [0x80, 0x81], bf16_ones, None, E4M3FN, BF16, OCP, order)
        assert got == word(32 * 2.0 + 8 * 4.0)


def test_blocks_are_cut_where_scales_may_change():
    """2^24 + 1 + 1, a block each: the ones are lost one by one, but not in one exact sum."""
    a = [0x38] * 96
    b = [word(1.0) if k % 32 == 0 else 0 for k in range(96)]
    b[0] = word(2.0**24)
    # Equal scales in different blocks do not join them: the shape of the result is not data.
    assert dot(a, [0x7F] * 3, b, None, E4M3FN, FP32, OCP, BLOCK) == word(2.0**24)
    assert dot(b, None, a, [0x7F] * 3, FP32, E4M3FN, OCP, BLOCK) == word(2.0**24)
    # Without scales there is one run.
    assert dot([word(1.0)] * 96, None, b, None, FP32, FP32, OCP, BLOCK) == word(2.0**24 + 2)
    assert dot(a, [0x7F], b, None, E4M3FN, FP32, OCP, BLOCK, block=96) == word(2.0**24 + 2)


def test_zero_stays_zero_however_large_the_unit_is():
    """The padding lanes of a short tile are +0 beside products that all overflow."""
    for order in (SYSTOLIC_MX, SYSTOLIC_DENSE, SEQUENTIAL, BLOCK):
        assert dot([0x7], [0xFE], [0x7], [0xFE], E2M1FN, E2M1FN, OCP, order) == INF
        assert dot([0x7], [0xFE], [0x0], [0xFE], E2M1FN, E2M1FN, OCP, order) == 0
        assert dot([0xF], [0xFE], [0x7], [0xFE], E2M1FN, E2M1FN, OCP, order) == 0xFF800000
    for unit in (-298, -149, 0, 200):
        assert Arithmetic(unit).round(0) == 0


def random_operands(rng: random.Random, m: int, k: int, n: int, fmt):
    finite = [c for c in range(1 << fmt.bits) if c & fmt.magnitude_mask <= fmt.max_code]
    blocks = -(-k // 32)

    def scales(rows: int, columns: int):
        return [[rng.randrange(119, 136) for _ in range(columns)] for _ in range(rows)]

    a = [[rng.choice(finite) for _ in range(k)] for _ in range(m)]
    b = [[rng.choice(finite) for _ in range(n)] for _ in range(k)]
    return a, scales(m, blocks), b, scales(blocks, n)


def test_each_pair_of_orders_differs_on_many_outputs():
    rng = random.Random(3)
    operands = random_operands(rng, 12, 640, 12, E4M3FN)
    orders = (BLOCK, SEQUENTIAL, SYSTOLIC_MX, SYSTOLIC_DENSE, SYSTOLIC(4, 128))
    results = {
        str(order): list(chain(*matmul(*operands, E4M3FN, E4M3FN, OCP, order))) for order in orders
    }
    for x in results:
        for y in results:
            if x < y:
                different = sum(p != q for p, q in zip(results[x], results[y], strict=True))
                assert different >= 0.3 * 144, (x, y, different)


def test_matmul_is_dot_for_every_output():
    rng = random.Random(4)
    a, sa, b, sb = random_operands(rng, 3, 70, 2, E5M2)
    columns = [list(c) for c in zip(*b, strict=True)]
    scale_columns = [list(c) for c in zip(*sb, strict=True)]
    start = [[word(float(m + n)) for n in range(2)] for m in range(3)]
    for order in (BLOCK, SEQUENTIAL, SYSTOLIC_MX):
        got = matmul(a, sa, b, sb, E5M2, E5M2, NEURON_2_24, order, start=start)
        for m in range(3):
            for n in range(2):
                one = dot(
                    a[m],
                    sa[m],
                    columns[n],
                    scale_columns[n],
                    E5M2,
                    E5M2,
                    NEURON_2_24,
                    order,
                    start=start[m][n],
                )
                assert got[m][n] == one


def test_exact_sums_are_the_same_in_every_order():
    """FP4 products with one scale are multiples of 1/4 below 2^14: nothing is ever rounded."""
    rng = random.Random(9)
    a = [rng.randrange(16) for _ in range(512)]
    b = [rng.randrange(16) for _ in range(512)]
    scales = [0x7F] * 16
    results = {
        dot(a, scales, b, scales, E2M1FN, E2M1FN, OCP, order)
        for order in (BLOCK, SEQUENTIAL, SYSTOLIC_MX, SYSTOLIC_DENSE)
    }
    assert len(results) == 1
    assert float32_bits(from_float32_bits(results.pop())) != 0


def test_refusals():
    with pytest.raises(ShapeError):
        dot([], None, [], None, FP32, FP32, OCP, SEQUENTIAL)
    with pytest.raises(ShapeError):
        dot([0], None, [0, 0], None, FP32, FP32, OCP, SEQUENTIAL)
    with pytest.raises(ShapeError):
        dot([0] * 33, [0x7F], [0] * 33, [0x7F, 0x7F], E4M3FN, E4M3FN, OCP, SEQUENTIAL)
