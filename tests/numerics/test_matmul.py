"""The public matrix product: operands, shapes, init, result dtypes, derivatives and refusals."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxref import oracle
from mxref.block import quantize
from mxref.blockshape import BlockShape
from mxref.errors import FormatError, GradientError, PolicyError, ShapeError
from mxref.formats import BF16, E2M1FN, E4M3FN, FP16, FP32, format
from mxref.matmul import matmul
from mxref.mxarray import MXArray
from mxref.narrow import narrow
from mxref.policy import (
    BACKEND,
    BLOCK,
    C_FIRST,
    NEURON_2_24,
    OCP,
    SEQUENTIAL,
    SYSTOLIC_MX,
)
from mxref.testing import assert_bits_equal


def rows(x):
    """Nested lists of codes of a float array, for the oracle."""
    x = np.asarray(x)
    return x.view(f"u{x.dtype.itemsize}").tolist()


def oracle_matmul(lhs, rhs, order, init=None):
    sides, formats, policy = [], [], OCP
    for side in (lhs, rhs):
        if isinstance(side, MXArray):
            sides += [np.asarray(side.codes).tolist(), np.asarray(side.scales).tolist()]
            formats.append(side.format)
            policy = side.policy
        else:
            sides += [rows(side), None]
            formats.append(format(side.dtype))
    start = None if init is None else rows(init)
    out = oracle.matmul(*sides, *formats, policy, order, init=start)
    return np.array(out, np.uint32).view(np.float32)


def normal(seed, shape, dtype=jnp.float32, scale=1.0):
    x = jax.random.normal(jax.random.key(seed), shape) * jnp.float32(scale)
    return x.astype(dtype)


@pytest.mark.parametrize(
    "policy", [OCP, pytest.param(NEURON_2_24, marks=pytest.mark.slow)], ids=str
)
@pytest.mark.parametrize("order", [BLOCK, SEQUENTIAL, SYSTOLIC_MX, C_FIRST], ids=str)
def test_matmul_equals_oracle(order, policy):
    for scale in (1.0, 2.0**-62, 2.0**-66):
        a = quantize(normal(0, (3, 70), scale=scale), E4M3FN, policy=policy)
        b = quantize(normal(1, (70, 4), scale=scale), E4M3FN, axis=-2, policy=policy)
        init = normal(2, (3, 4), scale=scale * scale)
        got = matmul(a, b, accumulate=order, init=init)
        assert_bits_equal(np.asarray(got), oracle_matmul(a, b, order, init), "payload")


@pytest.mark.parametrize(
    "dtype", [jnp.float32, jnp.bfloat16, pytest.param(jnp.float16, marks=pytest.mark.slow)]
)
def test_plain_and_mixed_operands_equal_oracle(dtype):
    a, b = normal(0, (3, 40), dtype), normal(1, (40, 4), dtype)
    q = quantize(normal(1, (40, 4)), E2M1FN, axis=-2)
    for rhs in (b, q):
        assert_bits_equal(np.asarray(matmul(a, rhs)), oracle_matmul(a, rhs, SEQUENTIAL))
    got = matmul(a, q, accumulate=SYSTOLIC_MX)
    assert_bits_equal(np.asarray(got), oracle_matmul(a, q, SYSTOLIC_MX))


def test_different_formats_and_numpy_operands():
    a = quantize(normal(0, (3, 64)), E4M3FN)
    b = quantize(normal(1, (64, 4)), E2M1FN, axis=-2)
    assert_bits_equal(np.asarray(matmul(a, b)), oracle_matmul(a, b, BLOCK))
    x, w = np.asarray(normal(0, (3, 8))), np.asarray(normal(1, (8, 2)))
    assert_bits_equal(np.asarray(matmul(x, w)), oracle_matmul(x, w, SEQUENTIAL))
    narrow8 = x.astype(ml_dtypes.float8_e4m3fn)
    assert_bits_equal(np.asarray(matmul(narrow8, w)), oracle_matmul(narrow8, w, SEQUENTIAL))


@pytest.mark.parametrize(
    "k", [1, 9, *(pytest.param(k, marks=pytest.mark.slow) for k in (2, 7, 8, 40))]
)
def test_constants_do_not_contract(k):
    """Float32 products are rounded before they are added, whatever the compiler can see (D17)."""
    x = np.float32(1 + 2.0**-12) * np.ones((2, k), np.float32)
    w = np.float32(1 + 2.0**-12) * np.ones((k, 3), np.float32)
    init = np.full((2, 3), -(1 + 2.0**-11), np.float32)
    want = oracle_matmul(x, w, C_FIRST, init)
    assert np.all(want == np.float32((1 + 2.0**-11) * (k - 1)))
    roads = [
        lambda: matmul(x, w, accumulate=C_FIRST, init=init),
        jax.jit(lambda: matmul(x, w, accumulate=C_FIRST, init=init)),
        lambda: jax.jit(lambda i: matmul(x, w, accumulate=C_FIRST, init=i))(init),
        lambda: jax.jit(lambda x, w, i: matmul(x, w, accumulate=C_FIRST, init=i))(x, w, init),
    ]
    for road in roads:
        assert_bits_equal(np.asarray(road()), want)


bad_words = st.sampled_from(
    [0, 0x80000000, 1, 0x807FFFFF, 0x00800000, 0x3F800000, 0xFF7FFFFF, 0x7F800000, 0x7FC12345]
)


@settings(max_examples=25)
@given(st.lists(st.one_of(bad_words, st.integers(0, 2**32 - 1)), min_size=24, max_size=24))
def test_any_float32_words(words):
    a = np.array(words[:12], np.uint32).view(np.float32).reshape(2, 6)
    b = np.array(words[12:], np.uint32).view(np.float32).reshape(6, 2)
    assert_bits_equal(np.asarray(matmul(a, b)), oracle_matmul(a, b, SEQUENTIAL), "payload")


# --- shapes -------------------------------------------------------------------------------------


KERNEL_SHAPES = [((5, 8), (8, 6)), ((8,), (8,)), ((2, 1, 5, 8), (3, 8, 6)), ((0, 8), (8, 6))]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((5, 8), (8, 6)),
        ((8,), (8, 6)),
        ((5, 8), (8,)),
        ((8,), (8,)),
        ((2, 3, 5, 8), (8, 6)),
        ((3, 5, 8), (3, 8, 6)),
        ((2, 1, 5, 8), (3, 8, 6)),
        ((5, 8), (3, 8, 6)),
        ((8,), (3, 8, 6)),
        ((3, 5, 8), (1, 8, 6)),
        ((3, 5, 8), (8,)),
        ((0, 8), (8, 6)),
        ((0, 5, 8), (0, 8, 6)),
        ((5, 8), (8, 0)),
    ],
)
def test_shapes_follow_numpy(left, right):
    a = np.arange(np.prod(left), dtype=np.float32).reshape(left)
    b = np.arange(np.prod(right), dtype=np.float32).reshape(right)
    want = np.matmul(a, b)  # small integers: every order gives the exact sum
    # Operands are shaped before an order is looked at; one case of each rank compiles a kernel.
    order = SEQUENTIAL if (left, right) in KERNEL_SHAPES else BACKEND
    assert_bits_equal(np.asarray(matmul(a, b, accumulate=order)), want)


@pytest.mark.parametrize(
    ("left", "right"), [((8,), (8,)), ((5, 8), (3, 8, 6)), ((2, 1, 5, 8), (3, 8, 6))]
)
def test_shapes_of_mxarrays_follow_numpy(left, right):
    a = np.arange(np.prod(left), dtype=np.float32).reshape(left) % 4
    b = np.arange(np.prod(right), dtype=np.float32).reshape(right) % 4
    qa = quantize(a, E4M3FN, block=4)
    qb = quantize(b, E4M3FN, block=4, axis=-2 if b.ndim > 1 else -1)
    assert_bits_equal(np.asarray(matmul(qa, qb)), np.matmul(a, b))


def test_batch_equals_each_alone():
    a, b = normal(0, (3, 5, 64)), normal(1, (3, 64, 6))
    qa, qb = quantize(a, E4M3FN), quantize(b, E4M3FN, axis=-2)
    want = np.stack([matmul(qa[i], qb[i]) for i in range(3)])
    assert_bits_equal(np.asarray(matmul(qa, qb)), want)
    assert_bits_equal(np.asarray(jax.vmap(matmul)(qa, qb)), want)
    assert_bits_equal(np.asarray(jax.jit(jax.vmap(matmul))(qa, qb)), want)
    one = jax.vmap(matmul, in_axes=(0, None))(qa, qb[0])
    assert_bits_equal(np.asarray(one), np.asarray(matmul(qa, qb[0])))
    _, scanned = jax.lax.scan(lambda c, q: (c, matmul(q[0], q[1])), 0, (qa, qb))
    assert_bits_equal(np.asarray(scanned), want)


# --- init and result dtype ----------------------------------------------------------------------


def test_init_is_added_last():
    # In float32, with gradual underflow, and after the sum: 2^-126 - 2^-127 is subnormal.
    a = np.array([[2.0**-126]], np.float32)
    init = np.array([[-(2.0**-127)]], np.float32)
    got = matmul(a, np.ones((1, 1), np.float32), init=init)
    assert int(np.asarray(got).view(np.uint32)[0, 0]) == 0x00400000
    assert_bits_equal(
        np.asarray(got), oracle_matmul(a, np.ones((1, 1), np.float32), SEQUENTIAL, init)
    )
    big = np.full((2, 2), 2.0**24, np.float32)
    ones = np.ones((2, 3), np.float32)
    got = matmul(ones, ones.T, init=big)
    assert np.all(np.asarray(got) == 2.0**24 + 4)  # 2^24 + 3, rounded to even once
    row = matmul(ones, ones.T, init=jnp.array([1.0, 2.0], jnp.float32))
    assert np.asarray(row).tolist() == [[4.0, 5.0], [4.0, 5.0]]
    assert np.asarray(matmul(ones, ones.T, init=2.0)).tolist() == [[5.0, 5.0], [5.0, 5.0]]


@pytest.mark.parametrize("fmt", [BF16, FP16], ids=str)
def test_result_dtype_is_one_rounding(fmt):
    a, b = normal(0, (6, 33), scale=300.0), normal(1, (33, 6), scale=300.0)
    wide = matmul(a, b)
    got = matmul(a, b, out_dtype=fmt.name if fmt is BF16 else jnp.float16)
    want = np.asarray(narrow(wide, fmt, saturate=False))
    np.testing.assert_array_equal(np.asarray(got).view(np.uint16), want)
    tiny = matmul(np.float32([[2.0**-130]]), np.float32([[1.0]]), out_dtype=jnp.bfloat16)
    assert int(np.asarray(tiny).view(np.uint16)[0, 0]) == 0x0008


def test_backend_order_is_the_platforms():
    a, b = normal(0, (9, 40)), normal(1, (40, 7))
    want = jnp.matmul(a, b, precision="highest")
    assert_bits_equal(np.asarray(matmul(a, b, accumulate=BACKEND)), np.asarray(want))
    assert matmul(a, b, accumulate=BACKEND, init=1.0).shape == (9, 7)


# --- derivatives --------------------------------------------------------------------------------


def integers(seed, shape):
    """Small integers: all sums are exact in every order, so gradients have one right value."""
    return jax.random.randint(jax.random.key(seed), shape, -3, 4).astype(jnp.float32)


@pytest.mark.parametrize("order", [SEQUENTIAL, SYSTOLIC_MX, C_FIRST, BACKEND], ids=str)
def test_gradient_of_plain_operands(order):
    a, b, c, g = (integers(i, s) for i, s in enumerate([(4, 9), (9, 5), (4, 5), (4, 5)]))
    out, pull = jax.vjp(lambda a, b, c: matmul(a, b, accumulate=order, init=c), a, b, c)
    assert_bits_equal(np.asarray(out), np.asarray(a @ b + c))
    da, db, dc = pull(g)
    assert_bits_equal(np.asarray(da), np.asarray(g @ b.T))
    assert_bits_equal(np.asarray(db), np.asarray(a.T @ g))
    assert_bits_equal(np.asarray(dc), np.asarray(g))
    ta, tb = integers(8, (4, 9)), integers(9, (9, 5))
    _, tangent = jax.jvp(lambda a, b: matmul(a, b, accumulate=order), (a, b), (ta, tb))
    assert_bits_equal(np.asarray(tangent), np.asarray(ta @ b + a @ tb))


@pytest.mark.parametrize("backward", [None, BACKEND], ids=str)
def test_second_derivatives_of_plain_operands(backward):
    """Never the silent zero that differentiating bit patterns gives."""
    a, b, c = (integers(i, s) for i, s in enumerate([(4, 9), (9, 5), (4, 5)]))

    def of(product):
        def loss(a, b, c):
            return (product(a, b, c) ** 2).sum()

        def pushed(*at):
            return sum(g.sum() for g in jax.grad(loss, (0, 1, 2))(*at))

        return jax.grad(pushed, (0, 1, 2))(a, b, c)

    how = {"accumulate": C_FIRST, "backward": backward}
    got = of(lambda a, b, c: matmul(a, b, init=c, **how))
    for g, want in zip(got, of(lambda a, b, c: a @ b + c), strict=True):
        assert np.asarray(want).any()
        assert_bits_equal(np.asarray(g), np.asarray(want))


def test_gradient_beside_an_mxarray():
    x, w, g = integers(0, (4, 32)), integers(1, (32, 5)), integers(2, (4, 5))
    q = quantize(w, E4M3FN, axis=-2)
    _, pull = jax.vjp(lambda x: matmul(x, q), x)
    assert_bits_equal(np.asarray(pull(g)[0]), np.asarray(g @ w.T))
    with pytest.raises(GradientError, match="quantized_matmul"):
        jax.grad(lambda w: matmul(x, quantize(w, E4M3FN, axis=-2)).sum())(w)


def test_gradient_dtypes_batches_and_transforms():
    x, w = integers(0, (2, 3, 8)).astype(jnp.bfloat16), integers(1, (8, 4)).astype(jnp.float16)

    def loss(x, w):
        return matmul(x, w, out_dtype=jnp.bfloat16).astype(jnp.float32).sum()

    dx, dw = jax.grad(loss, argnums=(0, 1))(x, w)
    assert (dx.dtype, dw.dtype) == (x.dtype, w.dtype)
    ones = jnp.ones((2, 3, 4), jnp.float32)
    want = jnp.einsum("bmn,kn->bmk", ones, w.astype(jnp.float32))
    assert_bits_equal(np.asarray(dx), np.asarray(want.astype(jnp.bfloat16)))
    for transformed in (jax.jit(jax.grad(loss)), jax.grad(jax.checkpoint(loss))):
        assert_bits_equal(np.asarray(transformed(x, w)), np.asarray(dx))
    each = jax.vmap(jax.grad(loss), in_axes=(0, None))(x, w)
    assert_bits_equal(np.asarray(each), np.asarray(dx))


def test_backward_orders_and_policies():
    x, w, g = normal(0, (4, 33)), normal(1, (33, 5)), normal(2, (4, 5))
    _, pull = jax.vjp(lambda x, w: matmul(x, w, backward=SEQUENTIAL), x, w)
    dx, dw = pull(g)
    assert_bits_equal(np.asarray(dx), np.asarray(matmul(g, w.T)))
    assert_bits_equal(np.asarray(dw), np.asarray(matmul(x.T, g)))
    q = quantize(w, E4M3FN, axis=-2)
    _, pull = jax.vjp(lambda x: matmul(x, q, backward=(OCP, BLOCK)), x)
    want = matmul(
        quantize(g, E4M3FN), quantize(q.dequantize().T, E4M3FN, axis=-2), accumulate=BLOCK
    )
    assert_bits_equal(np.asarray(pull(g)[0]), np.asarray(want))
    with pytest.raises(PolicyError, match="two plain operands"):
        matmul(x, w, backward=OCP)
    with pytest.raises(PolicyError, match="BLOCK only"):
        matmul(x, w, backward=BLOCK)


# --- refusals -----------------------------------------------------------------------------------


def test_refusals_name_the_fix():
    x, w = normal(0, (4, 64)), normal(1, (64, 5))
    qx, qw = quantize(x, E4M3FN), quantize(w, E4M3FN, axis=-2)
    with pytest.raises(ShapeError, match=r"quantize\(rhs, axis=-2\)"):
        matmul(qx, quantize(w, E4M3FN))
    with pytest.raises(ShapeError, match="deinterleave"):
        matmul(quantize(x, E4M3FN, block=BlockShape(8, 4)), qw)
    with pytest.raises(PolicyError, match="one policy"):
        matmul(qx, quantize(w, E4M3FN, axis=-2, policy=NEURON_2_24))
    with pytest.raises(PolicyError, match="plain operand"):
        matmul(x, qw, accumulate=BLOCK)
    with pytest.raises(PolicyError, match="accumulate"):
        matmul(x, w, accumulate="pairwise")
    with pytest.raises(ShapeError, match="K"):
        matmul(x, x)
    with pytest.raises(ShapeError, match="at least 1"):
        matmul(x[:, :0], w[:0])
    with pytest.raises(ShapeError, match="broadcast"):
        matmul(x[None].repeat(2, 0), w[None].repeat(3, 0))
    with pytest.raises(ShapeError, match="scalar"):
        matmul(jnp.float32(1), w)
    with pytest.raises(FormatError, match=r"lhs\.astype\(jnp\.float32\)"):
        matmul(np.ones((2, 64)), w)
    with pytest.raises(FormatError, match="bfloat16 or float16"):
        matmul(x, w, out_dtype=jnp.float8_e5m2)
    with pytest.raises(ShapeError, match="float"):
        matmul(np.ones((2, 64), np.int32), w)
    with pytest.raises(ShapeError, match="init"):
        matmul(x, w, init=np.ones((3, 3), np.float32))
    with pytest.raises(ShapeError, match="init"):
        matmul(x, w, init=np.ones((4, 5), np.int32))
    assert FP32.bits == 32
