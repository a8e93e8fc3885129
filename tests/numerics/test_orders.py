"""The named orders are different functions, and each is the function its name says (D23, D23b)."""

from __future__ import annotations

from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mxref import oracle
from mxref.block import quantize
from mxref.dot import dot_codes
from mxref.formats import E2M1FN, E4M3FN, E5M2
from mxref.matmul import matmul
from mxref.policy import (
    BLOCK,
    C_FIRST,
    OCP,
    ORDERS,
    SEQUENTIAL,
    SYSTOLIC,
    SYSTOLIC_DENSE,
    SYSTOLIC_MX,
    order,
)

K, M, N = 1056, 6, 8  # two whole tiles of 512 and a short one
DISTINCT = {
    "BLOCK": BLOCK,
    "SEQUENTIAL": SEQUENTIAL,
    "SYSTOLIC_MX": SYSTOLIC_MX,
    "SYSTOLIC_DENSE": SYSTOLIC_DENSE,
    "tiles of 256": SYSTOLIC(4, 256),
    "tiles of 1024": SYSTOLIC(4, 1024),
}


def spread_operands(fmt, seed=1):
    """Whole-format finite codes, block scales spread by 2^+-8 (D23b)."""
    rng = np.random.default_rng(seed)

    def draw(shape):
        codes = rng.integers(0, 1 << fmt.bits, shape).astype(np.uint8)
        codes[(codes & fmt.magnitude_mask) > fmt.max_code] = fmt.max_code
        return codes

    a, b = draw((M, K)), draw((K, N))
    sa = rng.integers(119, 136, (M, K // 32)).astype(np.uint8)
    sb = rng.integers(119, 136, (K // 32, N)).astype(np.uint8)
    return a, sa, b, sb


def bits(fmt, name, data):
    out = dot_codes(*data, lhs_format=fmt, rhs_format=fmt, policy=OCP, order=name)
    return np.asarray(out).view(np.uint32)


def reverse_k(data):
    a, sa, b, sb = data
    return a[:, ::-1], sa[:, ::-1], b[::-1], sb[::-1]


def test_every_pair_of_orders_differs():
    data = spread_operands(E4M3FN)
    got = {name: bits(E4M3FN, which, data) for name, which in DISTINCT.items()}
    for first, second in combinations(got, 2):
        share = np.mean(got[first] != got[second])
        assert share >= 0.3, (first, second, share)


def test_one_tile_of_one_lane_is_sequential():
    data = spread_operands(E4M3FN)
    got = bits(E4M3FN, SYSTOLIC(1, 2048), data)
    np.testing.assert_array_equal(got, bits(E4M3FN, SEQUENTIAL, data))


@pytest.mark.parametrize(
    "fmt", [E4M3FN, *(pytest.param(f, marks=pytest.mark.slow) for f in (E2M1FN, E5M2))], ids=str
)
def test_walking_k_backwards_differs(fmt):
    data = spread_operands(fmt)
    for which in (SEQUENTIAL, SYSTOLIC_MX):
        assert np.mean(bits(fmt, which, data) != bits(fmt, which, reverse_k(data))) >= 0.3


def test_lanes_are_summed_in_pairs():
    # (x0 + x1) + (x2 + x3): exchanging lanes within a pair is nothing, across pairs it is not.
    # Lanes 0 and 2 cancel and are 2^20 times larger: paired with 1 and 3 they swallow their bits.
    a, _, b, _ = (np.array(x) for x in spread_operands(E4M3FN))
    a[:, 2::4], b[2::4] = a[:, 0::4], b[0::4] ^ 0x80
    ones, large = np.full(a.shape, 127, np.uint8), np.full(b.shape, 127, np.uint8)
    large[0::2] = 147

    def run(lanes):
        index = np.arange(K).reshape(-1, 4)[:, lanes].reshape(-1)
        how = {"lhs_format": E4M3FN, "rhs_format": E4M3FN, "policy": OCP, "block": 1}
        data = (a[:, index], ones, b[index], large[index])
        return np.asarray(dot_codes(*data, order=SYSTOLIC_MX, **how)).view(np.uint32)

    got = run([0, 1, 2, 3])
    lists = [x.tolist() for x in (a[:2], ones[:2], b[:, :2], large[:, :2])]
    want = oracle.matmul(*lists, E4M3FN, E4M3FN, OCP, SYSTOLIC_MX, block=1)
    np.testing.assert_array_equal(got[:2, :2], np.array(want, np.uint32))
    np.testing.assert_array_equal(got, run([1, 0, 3, 2]))
    np.testing.assert_array_equal(got, run([2, 3, 0, 1]))
    assert np.mean(got != run([0, 2, 1, 3])) >= 0.3


@pytest.mark.parametrize("name", DISTINCT)
def test_order_equals_oracle(name):
    data = spread_operands(E4M3FN, seed=2)
    got = bits(E4M3FN, DISTINCT[name], data)
    lists = [x.tolist() for x in (data[0][:2], data[1][:2], data[2][:, :4], data[3][:, :4])]
    want = oracle.matmul(*lists, E4M3FN, E4M3FN, OCP, DISTINCT[name])
    np.testing.assert_array_equal(got[:2, :4], np.array(want, np.uint32))


def test_order_of_named_sums():
    # 2^24 + 1 is a tie and loses the one; -2^24 + 1 is exact; a block's sum is never rounded.
    a = jnp.array([[2.0**24, 1.0, -(2.0**24)]], jnp.float32)
    one = jnp.ones((3, 1), jnp.float32)
    assert matmul(a, one).item() == 0.0
    assert matmul(a[:, ::-1], one).item() == 1.0
    assert matmul(a[:, jnp.array([0, 2, 1])], one).item() == 1.0
    assert matmul(a, one, accumulate="SYSTOLIC(4, 4)").item() == 0.0
    assert matmul(a, one, accumulate="SYSTOLIC(1, 1)").item() == 0.0
    q = quantize(jnp.array([[256.0, 1.0, -256.0]], jnp.float32), "e5m2")
    p = quantize(jnp.array([[65536.0], [1.0], [65536.0]], jnp.float32), "e5m2", axis=-2)
    assert matmul(q, p, accumulate=BLOCK).item() == 1.0
    assert matmul(q, p, accumulate=SEQUENTIAL).item() == 0.0


def test_c_first_starts_and_others_end_with_init():
    one = jnp.ones((1, 2), jnp.float32)
    big = jnp.full((1, 1), 2.0**24, jnp.float32)
    assert matmul(one, one.T, accumulate=C_FIRST, init=big).item() == 2.0**24
    assert matmul(one, one.T, accumulate=SEQUENTIAL, init=big).item() == 2.0**24 + 2


@pytest.mark.parametrize(
    "fmt",
    [
        E4M3FN,
        pytest.param(E2M1FN, marks=pytest.mark.slow),
        pytest.param(E5M2, marks=pytest.mark.slow),
    ],
    ids=str,
)
@pytest.mark.parametrize("which", [BLOCK, SEQUENTIAL, SYSTOLIC_MX], ids=str)
def test_rows_columns_and_transforms_do_not_meet(fmt, which):
    """No output depends on tiling, batch, jit or vmap; a scale of 0 takes the exact road."""
    a, sa, b, sb = spread_operands(fmt, seed=3)
    sa[0, 0] = 0
    how = {"lhs_format": fmt, "rhs_format": fmt, "policy": OCP, "order": which}

    def f(a, sa, b, sb):
        return dot_codes(a, sa, b, sb, **how)

    want = np.asarray(f(a, sa, b, sb)).view(np.uint32)
    row = np.asarray(f(a[3:4], sa[3:4], b[:, 2:5], sb[:, 2:5])).view(np.uint32)
    np.testing.assert_array_equal(row, want[3:4, 2:5])
    stack = [np.stack([x, x[..., ::-1].copy()]) for x in (a, sa)]
    both = jax.jit(jax.vmap(f, in_axes=(0, 0, None, None)))(*stack, b, sb)
    np.testing.assert_array_equal(np.asarray(both[0]).view(np.uint32), want)
    pair = [np.stack([x, x]) for x in (b, sb)]
    both = jax.vmap(f, in_axes=(None, None, 0, 0))(a, sa, *pair)
    np.testing.assert_array_equal(np.asarray(both[1]).view(np.uint32), want)
    with jax.enable_x64(True):
        wide = np.asarray(jax.jit(f)(a, sa, b, sb))
    assert wide.dtype == np.float32
    np.testing.assert_array_equal(wide.view(np.uint32), want)


@pytest.mark.parametrize("which", [BLOCK, SEQUENTIAL, SYSTOLIC_MX], ids=str)
def test_panels_and_column_tiles_leave_no_trace(which):
    # Wider than a column tile and larger than a row panel, neither dividing evenly.
    rng = np.random.default_rng(4)
    m, k, n = 1031, 64, 523
    a = rng.integers(0, 0x7F, (m, k)).astype(np.uint8)
    b = rng.integers(0, 0x7F, (k, n)).astype(np.uint8) | (rng.integers(0, 2, (k, n)) << 7).astype(
        np.uint8
    )
    sa = rng.integers(119, 136, (m, 2)).astype(np.uint8)
    sb = rng.integers(119, 136, (2, n)).astype(np.uint8)
    how = {"lhs_format": E4M3FN, "rhs_format": E4M3FN, "policy": OCP, "order": which}
    whole = np.asarray(dot_codes(a, sa, b, sb, **how)).view(np.uint32)
    rows, columns = slice(-40, None), slice(-30, None)
    part = dot_codes(a[rows], sa[rows], b[:, columns], sb[:, columns], **how)
    np.testing.assert_array_equal(whole[rows, columns], np.asarray(part).view(np.uint32))
    part = dot_codes(a[:40], sa[:40], b[:, :30], sb[:, :30], **how)
    np.testing.assert_array_equal(whole[:40, :30], np.asarray(part).view(np.uint32))
    middle = dot_codes(a[500:540], sa[500:540], b[:, 250:280], sb[:, 250:280], **how)
    np.testing.assert_array_equal(whole[500:540, 250:280], np.asarray(middle).view(np.uint32))


def test_names_resolve():
    for name, value in ORDERS.items():
        assert order(name) == value
    assert order("systolic(4, 512)") == SYSTOLIC_MX
