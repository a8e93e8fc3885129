"""The differentiable road: forward bits, straight-through rule, reverse options (D29, D30)."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mxref.block import quantize
from mxref.errors import FormatError, GradientError, PolicyError, ShapeError
from mxref.fake_quantize import fake_quantize, in_range
from mxref.formats import E2M1FN, E4M3FN, E5M2
from mxref.matmul import matmul
from mxref.policy import (
    BACKEND,
    BLOCK,
    NEURON_2_24,
    NVIDIA,
    OCP,
    SEQUENTIAL,
    SYSTOLIC_MX,
    NumericPolicy,
    ScaleRule,
)
from mxref.quantized_matmul import quantized_matmul
from mxref.testing import assert_bits_equal


def normal(seed, shape, dtype=jnp.float32):
    return jax.random.normal(jax.random.key(seed), shape).astype(dtype)


def coarse(seed, shape):
    """Small integers: E4M3 and every sum of products hold them exactly."""
    return jax.random.randint(jax.random.key(seed), shape, -3, 4).astype(jnp.float32)


FORMATS = [(E4M3FN, None, OCP), (E2M1FN, E4M3FN, NEURON_2_24), (E5M2, E2M1FN, NVIDIA)]
GRID = [
    # The diagonal by default; the rest with the slow tests.
    pytest.param(*formats, order, marks=[] if i == j else pytest.mark.slow)
    for i, formats in enumerate(FORMATS)
    for j, order in enumerate([BLOCK, SEQUENTIAL, SYSTOLIC_MX, BACKEND])
]


@pytest.mark.parametrize(("fmt", "rhs_fmt", "policy", "accumulate"), GRID, ids=str)
def test_forward_equals_matmul_of_quantized(fmt, rhs_fmt, policy, accumulate):
    x, w = normal(0, (2, 3, 70)), normal(1, (70, 4))
    how = {"policy": policy, "block": 16}
    qx = quantize(x, fmt, **how)
    qw = quantize(w, rhs_fmt or fmt, axis=-2, **how)
    want = np.asarray(matmul(qx, qw, accumulate=accumulate))

    def f(x, w):
        return quantized_matmul(x, w, fmt, rhs_fmt, accumulate=accumulate, **how)

    assert_bits_equal(np.asarray(f(x, w)), want)
    assert_bits_equal(np.asarray(jax.jit(f)(x, w)), want)
    if accumulate != BACKEND:
        assert_bits_equal(np.asarray(jax.vmap(f, in_axes=(0, None))(x, w)), want)
    out, _ = jax.vjp(f, x, w)
    assert_bits_equal(np.asarray(out), want)


def test_gradient_is_the_product_of_dequantized():
    x, w, g = coarse(0, (4, 64)), coarse(1, (64, 5)), coarse(2, (4, 5))
    _, pull = jax.vjp(lambda x, w: quantized_matmul(x, w, E4M3FN), x, w)
    dx, dw = pull(g)
    assert_bits_equal(np.asarray(dx), np.asarray(g @ w.T))
    assert_bits_equal(np.asarray(dw), np.asarray(x.T @ g))
    tx, tw = coarse(3, x.shape), coarse(4, w.shape)
    _, tangent = jax.jvp(lambda x, w: quantized_matmul(x, w, E4M3FN), (x, w), (tx, tw))
    assert_bits_equal(np.asarray(tangent), np.asarray(tx @ w + x @ tw))


@pytest.mark.parametrize("ste", ["clip", "identity"])
def test_gradient_stops_where_values_were_clipped(ste):
    # amax 500 has scale 1 under "floor", so 500 lies beyond 448 and 448 does not.
    x = jnp.zeros((1, 32), jnp.float32).at[0, :4].set(jnp.array([500.0, 448.0, -449.0, 1.0]))
    w = jnp.ones((32, 1), jnp.float32)
    dx = jax.grad(lambda x: quantized_matmul(x, w, E4M3FN, ste=ste).sum())(x)
    want = [0.0, 1.0, 0.0, 1.0] if ste == "clip" else [1.0] * 4
    assert np.asarray(dx)[0, :4].tolist() == want
    dw = jax.grad(lambda w: quantized_matmul(w.T, x.T, E4M3FN, ste=ste).sum(), argnums=0)(w)
    assert np.asarray(dw)[:4, 0].tolist() == [448.0, 448.0, -448.0, 1.0]


def test_the_tangent_is_not_narrowed():
    x, w = jnp.ones((1, 32), jnp.float32), jnp.ones((32, 1), jnp.float32)
    t = jnp.zeros((1, 32), jnp.float32).at[0, 3].set(1 + 2.0**-23)
    _, tangent = jax.jvp(lambda x: quantized_matmul(x, w, E2M1FN), (x,), (t,))
    assert tangent.item() == 1 + 2.0**-23


def test_mask_follows_policy_and_axis():
    x, w, g = normal(0, (4, 64)) * 300, normal(1, (64, 5)) * 300, jnp.ones((4, 5), jnp.float32)
    for policy in (OCP, NEURON_2_24, NVIDIA):
        _, pull = jax.vjp(lambda x, w, p=policy: quantized_matmul(x, w, E4M3FN, policy=p), x, w)
        dx, dw = pull(g)
        mx = in_range(x, E4M3FN, policy=policy)
        mw = in_range(w, E4M3FN, axis=-2, policy=policy)
        np.testing.assert_array_equal(np.asarray(dx != 0), np.asarray(mx))
        np.testing.assert_array_equal(np.asarray(dw != 0), np.asarray(mw))


def test_transforms_agree():
    x, w = coarse(0, (2, 3, 64)), coarse(1, (64, 5))

    def loss(x, w):
        return quantized_matmul(x, w, E4M3FN).sum()

    dx, dw = jax.grad(loss, argnums=(0, 1))(x, w)
    for other in (jax.jit(jax.grad(loss, argnums=(0, 1))), jax.grad(jax.checkpoint(loss), (0, 1))):
        for got, want in zip(other(x, w), (dx, dw), strict=True):
            assert_bits_equal(np.asarray(got), np.asarray(want))
    each = jax.vmap(jax.grad(loss), in_axes=(0, None))(x, w)
    assert_bits_equal(np.asarray(each), np.asarray(dx))

    def scanned(w):
        return jax.lax.scan(lambda c, row: (c + loss(row, w), None), jnp.float32(0), x)[0]

    assert_bits_equal(np.asarray(jax.grad(scanned)(w)), np.asarray(dw))
    linear = jax.linearize(lambda x: quantized_matmul(x, w, E4M3FN), x)[1]
    assert_bits_equal(np.asarray(linear(x)), np.asarray(jnp.matmul(x, w)))
    with jax.enable_x64(True):
        wide = jax.grad(loss, argnums=(0, 1))(x, w)
    for got, want in zip(wide, (dx, dw), strict=True):
        assert_bits_equal(np.asarray(got), np.asarray(want))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float16], ids=str)
def test_second_derivatives_are_straight_through(dtype):
    """D29: the second derivative of the product of the dequantized operands, masks constant."""
    x, w = (coarse(i, s).at[0, 0].set(500.0) for i, s in enumerate([(2, 8), (8, 2)]))
    x, w = x.astype(dtype), w.astype(dtype)

    def through(x, w):
        a = fake_quantize(x, E4M3FN).astype(jnp.float32)
        return ((a @ fake_quantize(w, E4M3FN, axis=-2).astype(jnp.float32)) ** 2).sum()

    def loss(x, w, **how):
        return (quantized_matmul(x, w, E4M3FN, **how) ** 2).sum()

    def equal(got, want):
        for g, t in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            assert np.asarray(t).any()
            assert_bits_equal(np.asarray(g), np.asarray(t))

    both = (0, 1)

    def reverse_over_reverse(f):
        return jax.grad(lambda x, w: sum(g.sum() for g in jax.grad(f, both)(x, w)), both)(x, w)

    want = reverse_over_reverse(through)
    equal(reverse_over_reverse(loss), want)
    if dtype == jnp.float32:
        equal(reverse_over_reverse(partial(loss, backward=BACKEND)), want)
        flat = partial(loss, accumulate=BACKEND)
        equal(jax.hessian(flat, 1)(x, w), jax.hessian(through, 1)(x, w))
        with pytest.raises(GradientError, match="quantize"):
            reverse_over_reverse(partial(loss, backward=OCP))


def test_a_custom_policy_is_static():
    """D30: a hand-made policy under jit, forward, backward and both; equal ones share a compile."""
    x, w, traced = coarse(0, (2, 32)).at[0, 0].set(500.0), coarse(1, (32, 2)), []

    @partial(jax.jit, static_argnames=("policy", "backward"))
    def f(x, w, policy, backward=None):
        traced.append(policy)
        how = {"policy": policy, "backward": backward, "accumulate": BACKEND}
        return quantized_matmul(x, w, E4M3FN, **how)

    def mine(rule):
        return NumericPolicy("mine", rule, min_scale_code=130)

    policy = mine(ScaleRule.RCEIL)
    want = quantize(x, E4M3FN, policy=policy)
    assert np.asarray(want.scales).min() == 130
    want = want.dequantize() @ quantize(w, E4M3FN, axis=-2, policy=policy).dequantize()
    assert_bits_equal(np.asarray(f(x, w, policy)), np.asarray(want))
    f(x, w, mine(ScaleRule.RCEIL))
    assert len(traced) == 1
    f(x, w, mine(ScaleRule.FLOOR))
    assert len(traced) == 2
    dx = jax.jit(jax.grad(lambda x: f(x, w, policy, backward=policy).sum()))(x)
    ones = quantize(jnp.ones((2, 2), jnp.float32), E4M3FN, policy=policy).dequantize()
    other = quantize(w.T, E4M3FN, axis=-2, policy=policy).dequantize()
    assert_bits_equal(np.asarray(dx), np.asarray(ones @ other))


def test_batched_weights_and_dtypes():
    x, w = coarse(0, (2, 3, 32)).astype(jnp.bfloat16), coarse(1, (2, 32, 5)).astype(jnp.float16)
    out, pull = jax.vjp(lambda x, w: quantized_matmul(x, w, E4M3FN), x, w)
    assert out.dtype == jnp.float32
    dx, dw = pull(jnp.ones_like(out))
    assert (dx.shape, dx.dtype) == (x.shape, x.dtype)
    assert (dw.shape, dw.dtype) == (w.shape, w.dtype)
    ones = jnp.ones((2, 3, 5), jnp.float32)
    want = jnp.einsum("bmn,bkn->bmk", ones, w.astype(jnp.float32)).astype(jnp.bfloat16)
    assert_bits_equal(np.asarray(dx), np.asarray(want))


def test_backward_policy_requantizes_along_the_new_axis():
    x, w, g = normal(0, (40, 64)), normal(1, (64, 48)), normal(2, (40, 48))
    for given, order in ((NEURON_2_24, BACKEND), ((NEURON_2_24, BLOCK), BLOCK)):
        _, pull = jax.vjp(
            lambda x, w, b=given: quantized_matmul(x, w, E4M3FN, E5M2, ste="identity", backward=b),
            x,
            w,
        )
        dx, dw = pull(g)
        p = {"policy": NEURON_2_24}
        want = matmul(quantize(g, E4M3FN, **p), quantize(w.T, E5M2, axis=-2, **p), accumulate=order)
        assert_bits_equal(np.asarray(dx), np.asarray(want))
        want = matmul(quantize(x.T, E4M3FN, **p), quantize(g, E5M2, axis=-2, **p), accumulate=order)
        assert_bits_equal(np.asarray(dw), np.asarray(want))


def test_backward_order_alone_keeps_the_factors():
    x, w, g = normal(0, (4, 64)), normal(1, (64, 5)), normal(2, (4, 5))
    how = {"ste": "identity", "backward": "SYSTOLIC_MX"}
    _, pull = jax.vjp(lambda x, w: quantized_matmul(x, w, E4M3FN, **how), x, w)
    dx, dw = pull(g)
    qx, qw = quantize(x, E4M3FN), quantize(w, E4M3FN, axis=-2)
    want = matmul(g, qw.dequantize().T, accumulate=SYSTOLIC_MX)
    assert_bits_equal(np.asarray(dx), np.asarray(want))
    want = matmul(qx.dequantize().T, g, accumulate=SYSTOLIC_MX)
    assert_bits_equal(np.asarray(dw), np.asarray(want))


def test_backward_policy_keeps_the_mask():
    x = jnp.zeros((1, 32), jnp.float32).at[0, :3].set(jnp.array([500.0, 448.0, 1.0]))
    w = jnp.ones((32, 1), jnp.float32)
    dx = jax.grad(lambda x: quantized_matmul(x, w, E4M3FN, backward=OCP).sum())(x)
    assert np.asarray(dx)[0, :3].tolist() == [0.0, 1.0, 1.0]


def test_refusals():
    x, w = normal(0, (4, 64)), normal(1, (64, 5))
    with pytest.raises(PolicyError, match="ste"):
        quantized_matmul(x, w, E4M3FN, ste="soft")
    with pytest.raises(ShapeError, match="matmul multiplies"):
        quantized_matmul(quantize(x, E4M3FN), w, E4M3FN)
    with pytest.raises(FormatError, match="e4m3"):
        quantized_matmul(x, w, "e4m3")
    with pytest.raises(FormatError, match=r"x\.astype\(jnp\.float32\)"):
        quantized_matmul(np.ones((4, 64)), w, E4M3FN)
    with pytest.raises(ShapeError, match="K"):
        quantized_matmul(x, x, E4M3FN)
    with pytest.raises(PolicyError, match="BLOCK only"):
        quantized_matmul(x, w, E4M3FN, backward=BLOCK)
    with pytest.raises(TypeError, match=r"custom_vjp|forward-mode"):
        jax.jvp(lambda x: quantized_matmul(x, w, E4M3FN, backward=OCP), (x,), (x,))
