"""Ordered dot products against the oracle, and every fast road against the exact one."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxref import oracle
from mxref.dot import dot_codes, exact, kernel, split
from mxref.errors import FormatError, PolicyError, ShapeError
from mxref.formats import (
    BF16,
    E2M1FN,
    E2M3FN,
    E3M2FN,
    E3M4,
    E4M3_IEEE,
    E4M3FN,
    E5M2,
    E8M0,
    FP16,
    FP32,
)
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
from mxref.testing import assert_bits_equal

# Scale codes (left, right, spread) around which blocks are drawn: ordinary; products subnormal;
# sums subnormal; the bottom, code 0 included; overflow to Inf; the top, 254 and 255 included.
REGIMES = [(127, 127, 8), (64, 64, 6), (52, 52, 6), (3, 90, 3), (188, 188, 8), (253, 60, 2)]
ORDERS = [BLOCK, SEQUENTIAL, SYSTOLIC(4, 64)]


def codes(rng, fmt, shape, finite):
    out = rng.integers(0, 1 << fmt.bits, shape, dtype=np.uint64).astype(f"u{fmt.storage_bits // 8}")
    if finite:
        magnitude = out & fmt.magnitude_mask
        out[magnitude > fmt.max_code] &= fmt.sign_mask | 3
    # A block of zeros and a block of -0 in each operand.
    out[0, : min(shape[1], 32)] = 0
    out[-1, -min(shape[1], 16) :] = fmt.sign_mask
    return out


def scales(rng, shape, centre, spread):
    drawn = rng.integers(centre - spread, centre + spread + 1, shape)
    return np.clip(drawn, 0, 255).astype(np.uint8)


def starts(rng, shape, coarse):
    if coarse:
        return rng.standard_normal(shape).astype(np.float32).view(np.uint32)
    out = rng.integers(0, 1 << 32, shape, dtype=np.uint64).astype(np.uint32)
    out[0] = 0x80000000
    out[1] = rng.integers(0, 1 << 23, shape[1])
    return out


def check(rng, lf, rf, policy, order, regime, *, finite, start, k=80, m=4, n=4, block=32):
    left, right, spread = regime
    blocks = -(-k // block)
    a, b = codes(rng, lf, (m, k), finite), codes(rng, rf, (k, n), finite)
    sa, sb = scales(rng, (m, blocks), left, spread), scales(rng, (blocks, n), right, spread)
    first = None if start is None else starts(rng, (m, n), start == "coarse")
    got = dot_codes(
        a,
        sa,
        b,
        sb,
        lhs_format=lf,
        rhs_format=rf,
        policy=policy,
        order=order,
        start=None if first is None else first.view(np.float32),
        block=block,
    )
    want = oracle.matmul(
        a.tolist(),
        sa.tolist(),
        b.tolist(),
        sb.tolist(),
        lf,
        rf,
        policy,
        order,
        start=None if first is None else first.tolist(),
        block=block,
    )
    want = np.array(want, np.uint32).view(np.float32)
    assert_bits_equal(np.asarray(got), want, nan="payload")
    return want


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize(
    ("lf", "rf", "policy"),
    [
        (E4M3FN, E4M3FN, OCP),
        (E4M3FN, E4M3FN, NEURON_2_24),
        (E2M1FN, E2M1FN, OCP),
        (E5M2, E5M2, OCP),
        pytest.param(E5M2, E5M2, NEURON_2_24, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_dot_equals_oracle(lf, rf, policy, order):
    rng = np.random.default_rng(7)
    for regime in REGIMES:
        for finite, start in ((True, "any"), (True, "coarse"), (False, "coarse")):
            check(rng, lf, rf, policy, order, regime, finite=finite, start=start)


def test_regimes_reach_what_they_promise():
    rng = np.random.default_rng(7)
    kinds = set()
    for regime in REGIMES:
        for finite in (True, False):
            out = check(rng, E4M3FN, E4M3FN, OCP, BLOCK, regime, finite=finite, start=None)
            bits = out.view(np.uint32) & 0x7FFFFFFF
            kinds |= {"subnormal"} if ((bits > 0) & (bits < 1 << 23)).any() else set()
            kinds |= {"inf"} if (bits == 0x7F800000).any() else set()
            kinds |= {"nan"} if (bits > 0x7F800000).any() else set()
    assert kinds == {"subnormal", "inf", "nan"}


@pytest.mark.slow
@pytest.mark.parametrize("order", [*ORDERS, SYSTOLIC_MX, SYSTOLIC_DENSE, C_FIRST], ids=str)
@pytest.mark.parametrize(
    ("lf", "rf"),
    [(E4M3FN, E2M1FN), (E2M1FN, E5M2), (E5M2, E4M3FN), (E3M4, E2M3FN), (E3M2FN, E4M3_IEEE)],
    ids=str,
)
@pytest.mark.parametrize("policy", [OCP, NEURON_2_24], ids=str)
def test_dot_equals_oracle_mixed(lf, rf, policy, order):
    rng = np.random.default_rng(11)
    for regime in REGIMES:
        for finite, start in ((True, None), (True, "any"), (False, "coarse")):
            check(rng, lf, rf, policy, order, regime, finite=finite, start=start)


@pytest.mark.slow
@pytest.mark.parametrize("block", [1, 7, 16, 64, 200])
@pytest.mark.parametrize("lf", [E4M3FN, E5M2, E2M1FN], ids=str)
def test_block_lengths(lf, block):
    rng = np.random.default_rng(3)
    for order in (BLOCK, SEQUENTIAL):
        for regime in ((127, 127, 8), (52, 52, 6)):
            check(rng, lf, lf, OCP, order, regime, finite=True, start=None, block=block, k=150)


def test_runs_end_where_either_scale_changes():
    # Blocks of 32 against blocks of 24: runs 0..24..32..48..64; K = 70 leaves short last blocks.
    rng = np.random.default_rng(5)
    k, m, n = 70, 3, 4
    a, b = codes(rng, E4M3FN, (m, k), True), codes(rng, E4M3FN, (k, n), True)
    sa, sb = scales(rng, (m, 3), 127, 8), scales(rng, (3, n), 127, 8)
    got = dot_codes(
        a,
        sa,
        b,
        sb,
        lhs_format=E4M3FN,
        rhs_format=E4M3FN,
        policy=OCP,
        order=BLOCK,
        block=(32, 24),
    )
    edges = [0, 24, 32, 48, 64, 70]
    want = np.zeros((m, n), np.uint32)
    for i, j in np.ndindex(m, n):
        word = None
        for lo, hi in pairwise(edges):
            word = oracle.dot(
                a[i, lo:hi].tolist(),
                [int(sa[i, lo // 32])],
                b[lo:hi, j].tolist(),
                [int(sb[lo // 24, j])],
                E4M3FN,
                E4M3FN,
                OCP,
                BLOCK,
                start=word,
            )
        want[i, j] = word
    assert_bits_equal(np.asarray(got), want.view(np.float32))


@pytest.mark.parametrize("order", [SEQUENTIAL, SYSTOLIC(4, 16)], ids=str)
@pytest.mark.parametrize("fmt", [FP32, BF16, FP16], ids=str)
def test_plain_operands_of_wide_formats(fmt, order):
    rng = np.random.default_rng(9)
    k, m, n = 40, 3, 4
    for ordinary in (True, False):
        a, b = codes(rng, fmt, (m, k), False), codes(rng, fmt, (k, n), False)
        if ordinary:  # exponents within 16 binades of 1: the fast road
            shift = fmt.mantissa_bits
            for x in (a, b):
                field = (x >> shift) % 16 + (fmt.bias - 8)
                x[:] = (x & (fmt.sign_mask | ((1 << shift) - 1))) | (field << shift).astype(x.dtype)
        got = dot_codes(a, None, b, None, lhs_format=fmt, rhs_format=fmt, policy=OCP, order=order)
        want = oracle.matmul(a.tolist(), None, b.tolist(), None, fmt, fmt, OCP, order)
        assert_bits_equal(np.asarray(got), np.array(want, np.uint32).view(np.float32), "payload")


def test_plain_operand_times_blocks():
    rng = np.random.default_rng(10)
    k, m, n = 40, 3, 4
    b, sb = codes(rng, E4M3FN, (k, n), False), scales(rng, (2, n), 60, 60)
    for policy in (OCP, NEURON_2_24):
        a = codes(rng, FP32, (m, k), False)
        got = dot_codes(
            a, None, b, sb, lhs_format=FP32, rhs_format=E4M3FN, policy=policy, order=SEQUENTIAL
        )
        want = oracle.matmul(
            a.tolist(), None, b.tolist(), sb.tolist(), FP32, E4M3FN, policy, SEQUENTIAL
        )
        assert_bits_equal(np.asarray(got), np.array(want, np.uint32).view(np.float32), "payload")


# --- the exact arithmetic -----------------------------------------------------------------------


EDGES = [0, 1, 2, 0x007FFFFF, 0x00800000, 0x00800001, 0x3F800000, 0x4B800001, 0x7F7FFFFF]
words = st.one_of(
    st.integers(0, 0xFFFFFFFF),
    st.sampled_from([*EDGES, 0x7F800000, 0x7FC00001]).flatmap(
        lambda w: st.sampled_from([w, w | 0x80000000])
    ),
)


@jax.jit
def _carried_sum(a, b):
    with exact.x64():
        return exact.release(exact.add(exact.carry(a), exact.carry(b)))


@jax.jit
def _carried_product(a, b):
    with exact.x64():
        return exact.release(exact.round_value(exact.carry(a) * exact.carry(b)))


@given(st.lists(st.tuples(words, words), min_size=64, max_size=64))
def test_exact_sum_of_every_kind(pairs):
    a, b = np.array(pairs, np.uint32).T
    one = 0x3F800000
    got = _carried_sum(a, b)
    want = [
        oracle.dot([x, one], None, [one, y], None, FP32, FP32, OCP, SEQUENTIAL, start=0x80000000)
        for x, y in zip(a.tolist(), b.tolist(), strict=True)
    ]
    assert_bits_equal(np.asarray(got), np.array(want, np.uint32).view(np.float32), "payload")


@given(st.lists(st.tuples(words, words), min_size=64, max_size=64))
def test_exact_product_of_every_kind(pairs):
    a, b = np.array(pairs, np.uint32).T
    got = _carried_product(a, b)
    want = [
        oracle.dot([x], None, [y], None, FP32, FP32, OCP, SEQUENTIAL, start=0x80000000)
        for x, y in zip(a.tolist(), b.tolist(), strict=True)
    ]
    assert_bits_equal(np.asarray(got), np.array(want, np.uint32).view(np.float32), "payload")


def test_round_value_near_every_subnormal_tie():
    # (n + 1/2) units of 2^-149 and its neighbours, down to half a unit and below.
    values = [
        s * (Fraction(2 * n + 1) + d) / 2
        for n in (0, 1, 2, 5, 0x7FFFFE, 0x7FFFFF, 0x800000)
        for d in (Fraction(0), Fraction(1, 1 << 20), Fraction(-1, 1 << 20))
        for s in (1, -1)
    ]
    values += [Fraction(1, 1 << 30), Fraction(1, 4), -Fraction(1, 4)]
    x = np.array([float(v) * 2.0**-149 for v in values])
    with exact.x64():
        got = exact.release(jax.jit(exact.round_value)(jnp.asarray(x)))
    want = [_units(v) for v in values]
    assert_bits_equal(np.asarray(got), np.array(want, np.uint32).view(np.float32))


def _units(v):
    n, rest = divmod(abs(v), 1)
    n += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and n % 2)
    return int(n) | (0x80000000 if v < 0 else 0)


@pytest.mark.parametrize(
    "length", [1, 33, *(pytest.param(n, marks=pytest.mark.slow) for n in (32, 100))]
)
def test_split_sum_against_integers(length):
    # Cancellation and sticky ties: large terms that cancel, and a small one that decides.
    rng = np.random.default_rng(length)
    m, n = 6, 6
    left = codes(rng, E5M2, (length, m), True).astype(np.uint8)
    right = codes(rng, E5M2, (length, n), True).astype(np.uint8)
    if length > 3:
        left[0], left[1], right[0], right[1] = 0x7B, 0xFB, 0x7B, 0x7B
        left[2], right[2] = 0x01, 0x01
    with exact.x64():
        got = np.asarray(jax.jit(split.sum_to_odd, static_argnums=(2, 3))(left, right, E5M2, E5M2))
    for i, j in np.ndindex(m, n):
        total = sum(
            oracle.decode(int(x), E5M2).exact * oracle.decode(int(y), E5M2).exact
            for x, y in zip(left[:, i], right[:, j], strict=True)
        )
        value = Fraction(float(got[i, j]))
        # Rounded to odd: exact, or odd with an error below one unit of 52 bits.
        if value != total:
            size = abs(total)
            assert abs(value - total) * (1 << 25) < size
            mantissa = int(np.abs(got[i, j]).view(np.uint64))
            assert mantissa & ((1 << 52) - 1) != 0
        oracle_word = oracle.dot(
            left[:, i].tolist(),
            [127],
            right[:, j].tolist(),
            [127],
            E5M2,
            E5M2,
            OCP,
            BLOCK,
            block=length,
        )
        with exact.x64():
            word = exact.release(exact.round_value(jnp.asarray(got[i, j])))
        assert int(np.asarray(word).view(np.uint32)) == oracle_word


@pytest.mark.parametrize("swap", [False, True])
def test_sticky_tie_blocks(swap):
    # 2^21 plus half an ulp, or one and a half, is a tie that only +-2^-32, the last of 54 bits,
    # can break.
    half, quarter, tiny = 0x38, 0x34, 0x01
    one = np.full((1, 1), 127, np.uint8)
    for third in (0, half):
        for last in (0, tiny, tiny | 0x80):
            a = np.array([[0x68, half, third, tiny]], np.uint8)
            b = np.array([[0x64], [quarter], [half], [last]], np.uint8)
            left, right = (b.T, a.T) if swap else (a, b)
            got = dot_codes(
                left, one, right, one, lhs_format=E5M2, rhs_format=E5M2, policy=OCP, order=BLOCK
            )
            ulps = {0: {0: 0, tiny: 1, tiny | 0x80: 0}, half: {0: 2, tiny: 2, tiny | 0x80: 1}}
            assert float(got[0, 0]) == 2.0**21 + ulps[third][last] * 2.0**-2


# --- guards, forced both ways -------------------------------------------------------------------


@partial(jax.jit, static_argnums=0)
def _roads(plan, *data):
    with exact.x64():
        acc, fast, slow, safe = kernel.roads(plan, *data)
        return fast(acc), slow(acc), safe


def _both(plan, *data):
    """Fast bits, exact bits and the guard's verdict for the same data."""
    fast, slow, safe = _roads(plan, *data)
    return np.asarray(fast).view(np.uint32), np.asarray(slow).view(np.uint32), bool(safe)


def _plan(fmt, order, policy=OCP):
    return kernel.Plan(fmt, fmt, policy, order, 32, 32)


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("fmt", [E4M3FN, E2M1FN], ids=str)
def test_fast_and_exact_agree(fmt, order):
    rng = np.random.default_rng(2)
    for finite in (True, False):
        a, b = codes(rng, fmt, (8, 96), finite), codes(rng, fmt, (96, 8), finite)
        sa, sb = scales(rng, (8, 3), 127, 8), scales(rng, (3, 8), 127, 8)
        start = rng.standard_normal((8, 8)).astype(np.float32)
        fast, slow, safe = _both(_plan(fmt, order), a, sa, b, sb, start)
        assert safe
        np.testing.assert_array_equal(fast, slow)


def _one_product(fmt, code, sa, sb, start=None):
    a = np.zeros((1, 32), np.uint8)
    a[0, 0] = code
    return (
        a,
        np.full((1, 1), sa, np.uint8),
        a.T.copy(),
        np.full((1, 1), sb, np.uint8),
        None if start is None else np.array([[start]], np.uint32).view(np.float32),
    )


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("fmt", [E4M3FN, E2M1FN], ids=str)
def test_guard_edges_chain(fmt, order):
    unit = 2 * (1 - fmt.bias - fmt.mantissa_bits)  # exponent of the smallest product at scale 1
    total = 254 - 126 - unit  # sum of scale codes that puts it at 2^-126
    plan = _plan(fmt, order)
    fast, slow, safe = _both(plan, *_one_product(fmt, 1, total // 2, total - total // 2))
    assert safe
    assert fast[0, 0] == slow[0, 0] == 0x00800000
    fast, slow, safe = _both(plan, *_one_product(fmt, 1, total // 2, total - total // 2 - 1))
    assert not safe
    assert slow[0, 0] == 0x00400000
    assert fast[0, 0] != slow[0, 0]  # what the guard is for: XLA flushes here


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_guard_of_the_start(order):
    # Start field 24 is a multiple of 2^-126; field 23 is not, and its last bit would be lost when
    # the sum cancels down to it.
    plan = _plan(E2M1FN, order)
    for field, expected in ((24, True), (23, False), (0, False)):
        for sign in (0, 0x80000000):
            start = (field << 23) | sign | 1
            _, _, safe = _both(plan, *_one_product(E2M1FN, 2, 127, 127, start))
            assert safe is expected
    assert _both(plan, *_one_product(E2M1FN, 2, 127, 127, 0x80000000))[2]


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_sums_that_cancel_below_the_normals(order):
    # 2^-104 minus its neighbour below is 2^-128: multiples of 2^-126 would not have come to this.
    data = _one_product(E2M1FN, 2, 127 - 52, 127 - 52, 0x8B7FFFFF)
    fast, slow, safe = _both(_plan(E2M1FN, order), *data)
    assert not safe
    assert slow[0, 0] == 1 << 21
    assert fast[0, 0] != slow[0, 0]


def test_overflowing_products_leave_the_fast_road():
    # A product of 2^128.6 is Inf even where fma(a, b, -max) would be finite.
    plan = _plan(E4M3FN, SEQUENTIAL)
    code = E4M3FN.max_code
    data = _one_product(E4M3FN, code, 127 + 56, 127 + 55, 0xFF7FFFFF)
    fast, slow, safe = _both(plan, *data)
    assert not safe
    assert slow[0, 0] == 0x7F800000
    assert fast[0, 0] != slow[0, 0]
    _, _, safe = _both(plan, *_one_product(E4M3FN, code, 127 + 54, 127 + 55, 0xFF7FFFFF))
    assert safe


def test_neuron_operands_that_overflow_leave_the_fast_road():
    data = _one_product(E4M3FN, E4M3FN.max_code, 254, 1)
    for policy, want in ((OCP, None), (NEURON_2_24, 0x7F800000)):
        _, slow, safe = _both(_plan(E4M3FN, SEQUENTIAL, policy), *data)
        assert not safe
        if want:
            assert slow[0, 0] == want


def test_blocks_of_zeros_do_not_close_the_fast_road():
    a, sa, b, sb, _ = _one_product(E4M3FN, 0x38, 127, 127)
    a, b = np.concatenate([a, a * 0], 1), np.concatenate([b, b * 0], 0)
    sa, sb = np.array([[127, 0]], np.uint8), np.array([[127], [0]], np.uint8)
    for order in ORDERS:
        fast, slow, safe = _both(_plan(E4M3FN, order), a, sa, b, sb, None)
        assert safe
        assert fast[0, 0] == slow[0, 0] == 0x3F800000


@pytest.mark.parametrize("fmt", [E5M2, pytest.param(E4M3_IEEE, marks=pytest.mark.slow)], ids=str)
def test_inf_minus_inf_and_inf_times_zero_are_the_canonical_nan(fmt):
    """Processors make a negative NaN here; D23c wants 0x7FC00000 on both roads."""
    one = np.full((1, 1), 127, np.uint8)
    unit = fmt.bias << fmt.mantissa_bits
    a = np.array([[fmt.inf_code, fmt.inf_code]], np.uint8)
    for pair in ([unit, unit | fmt.sign_mask], [unit, 0]):
        b = np.array(pair, np.uint8)[:, None]
        for order in ORDERS:
            how = {"lhs_format": fmt, "rhs_format": fmt, "policy": OCP, "order": order}
            assert int(np.asarray(dot_codes(a, one, b, one, **how)).view(np.uint32)[0, 0]) == (
                0x7FC00000
            )
            if order != BLOCK:
                fast, slow, safe = _both(_plan(fmt, order), a, one, b, one, None)
                assert safe
                assert fast[0, 0] == slow[0, 0] == 0x7FC00000


@pytest.mark.parametrize("k", [3, pytest.param(9, marks=pytest.mark.slow), 40])
def test_negative_zero(k):
    """-0 stays -0 when only -0 is added, padding included; an exact block sum of zero is +0."""
    a, b = np.full((1, k), 0x80, np.uint8), np.zeros((k, 1), np.uint8)
    one = np.full((1, -(-k // 32)), 127, np.uint8)
    start = np.full((1, 1), -0.0, np.float32)
    for order, want in ((SEQUENTIAL, 0x80000000), (BLOCK, 0), (SYSTOLIC(4, 64), 0)):
        fast, slow, safe = _both(_plan(E4M3FN, order), a, one, b, one.T, start)
        assert safe
        assert fast[0, 0] == slow[0, 0] == want


def test_product_is_rounded():
    # (1 + 2^-12)^2 - (1 + 2^-11) is 2^-24 when contracted to an fma, 0 when the product is rounded.
    a = np.array([[0x3F800800]], np.uint32)
    start = np.array([[0xBF801000]], np.uint32).view(np.float32)
    for order in (SEQUENTIAL, C_FIRST):
        plan = kernel.Plan(FP32, FP32, OCP, order, 1, 1)
        fast, slow, safe = _both(plan, a, None, a, None, start)
        assert safe
        assert fast[0, 0] == slow[0, 0] == 0


def test_block_sums_are_exact():
    # Whole blocks of the largest value next to the smallest: every bit of the widest sum matters.
    for fmt, order in ((E4M3FN, BLOCK), (E2M1FN, BLOCK), (E5M2, BLOCK)):
        a = np.full((2, 32), fmt.max_code, np.uint8)
        a[:, 5] = 1
        a[1, 7::2] |= fmt.sign_mask
        one = np.full((2, 1), 127, np.uint8)
        got = dot_codes(a, one, a.T, one.T, lhs_format=fmt, rhs_format=fmt, policy=OCP, order=order)
        want = oracle.matmul(
            a.tolist(), one.tolist(), a.T.tolist(), one.T.tolist(), fmt, fmt, OCP, order
        )
        assert_bits_equal(np.asarray(got), np.array(want, np.uint32).view(np.float32))


def test_the_start_has_a_derivative():
    a, one = np.full((2, 32), 0x38, np.uint8), np.full((2, 1), 127, np.uint8)
    how = {"lhs_format": E4M3FN, "rhs_format": E4M3FN, "policy": OCP, "order": BLOCK}
    start = jnp.array([[1.0, 2.0], [-3.0, 4.0]], jnp.float32)
    grad = jax.grad(lambda c: (dot_codes(a, one, a.T, one.T, start=c, **how) ** 2).sum())(start)
    assert_bits_equal(np.asarray(grad), np.asarray(2 * (start + 32)))


# --- refusals -----------------------------------------------------------------------------------


def test_refusals():
    a, s = np.zeros((2, 32), np.uint8), np.full((2, 1), 127, np.uint8)
    how = {"lhs_format": E4M3FN, "rhs_format": E4M3FN, "policy": OCP, "order": BLOCK}
    with pytest.raises(ShapeError, match="K"):
        dot_codes(a, s, a, s.T, **how)
    with pytest.raises(ShapeError, match="K"):
        dot_codes(a[:, :0], s[:, :0], a.T[:0], s.T[:0], **how)
    with pytest.raises(ShapeError, match="lhs_scales"):
        dot_codes(a, s.T, a.T, s.T, **how)
    with pytest.raises(ShapeError, match="rhs_codes"):
        dot_codes(a, s, a.T.astype(np.int32), s.T, **how)
    with pytest.raises(ShapeError, match="start"):
        dot_codes(a, s, a.T, s.T, **how, start=np.zeros((2, 3), np.float32))
    with pytest.raises(ShapeError, match="block"):
        dot_codes(a, s, a.T, s.T, **how, block=0)
    with pytest.raises(PolicyError, match="scales"):
        dot_codes(a, None, a.T, s.T, **how)
    with pytest.raises(PolicyError, match="BACKEND"):
        dot_codes(a, s, a.T, s.T, **{**how, "order": BACKEND})
    with pytest.raises(FormatError, match="scales"):
        dot_codes(a, s, a.T, s.T, **{**how, "rhs_format": E8M0})
    with pytest.raises(FormatError, match="8 bits"):
        dot_codes(a, s, a.T.astype(np.uint16), s.T, **{**how, "rhs_format": BF16})
    assert dot_codes(a[:0], s[:0], a.T, s.T, **how).shape == (0, 2)
