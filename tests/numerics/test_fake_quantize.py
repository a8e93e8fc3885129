"""Fake quantization: forward bits and the straight-through estimator (D29)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mxref.block import quantize
from mxref.errors import FormatError, PolicyError
from mxref.fake_quantize import fake_quantize, in_range
from mxref.formats import E2M1FN, E4M3FN, E5M2
from mxref.mxarray import BlockShape
from mxref.policy import NEURON_2_24, NVIDIA, OCP
from mxref.testing import assert_bits_equal


def sample(seed: int, shape=(6, 64)) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = (rng.normal(size=shape) * 2.0 ** rng.integers(-140, 120, (shape[0], 1))).astype(np.float32)
    x[0, :4] = [0.0, -0.0, 1e-40, -1e-42]
    x[1, 33] = np.nan
    x[2, 5] = -np.inf
    return x


@pytest.mark.parametrize(
    ("fmt", "policy"), [(E2M1FN, OCP), (E4M3FN, NEURON_2_24), (E5M2, NVIDIA)], ids=str
)
@pytest.mark.parametrize("options", [{}, {"axis": 0, "block": 4}, {"block": BlockShape()}])
def test_forward_bits_are_those_of_quantize(fmt, policy, options):
    x = sample(1)
    want = quantize(x, fmt, policy=policy, **options).dequantize()
    for ste in ("clip", "identity"):
        got = fake_quantize(x, fmt, policy=policy, ste=ste, **options)
        assert_bits_equal(got, want, "payload")
    traced = jax.jit(lambda v: fake_quantize(v, fmt, policy=policy, **options))(x)
    assert_bits_equal(traced, want, "payload")
    if not options:
        mapped = jax.vmap(lambda v: fake_quantize(v, fmt, policy=policy))(x)
        assert_bits_equal(mapped, want, "payload")


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_the_dtype_of_x_comes_back(dtype):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(4, 32))).astype(dtype)
    got = fake_quantize(x, "e4m3fn")
    assert_bits_equal(got, quantize(x, "e4m3fn").dequantize(dtype))
    assert (
        jax.grad(lambda v: fake_quantize(v, "e4m3fn").astype(jnp.float32).sum())(x).dtype == dtype
    )


def test_float64_keeps_the_values():
    x = sample(2).astype(np.float64)
    want = np.asarray(quantize(x, "e4m3fn").dequantize()).astype(np.float64)
    with jax.enable_x64(False):
        assert_bits_equal(fake_quantize(x, "e4m3fn"), quantize(x, "e4m3fn").dequantize())
    with jax.enable_x64(True):
        got = fake_quantize(jnp.asarray(x), "e4m3fn")
        assert_bits_equal(np.asarray(got), want)
        grad = jax.grad(lambda v: fake_quantize(v, "e4m3fn").sum())(jnp.asarray(x))
        assert grad.dtype == jnp.float64


def test_gradient_passes_at_the_bound_and_stops_beyond():
    # Block maximum 449 has scale 1 (FLOOR): the bound is 448.  jnp.clip would give one half there.
    x = jnp.asarray([-449, -448, 447, 448, 449, 480], jnp.float32)
    grad = jax.grad(lambda v: fake_quantize(v, "e4m3fn").sum())
    assert grad(x).tolist() == [0, 1, 1, 1, 0, 0]
    # 449 rounds to 448, and still lies beyond the bound.
    assert fake_quantize(x, "e4m3fn").tolist() == [-448, -448, 448, 448, 448, 448]
    identity = jax.grad(lambda v: fake_quantize(v, "e4m3fn", ste="identity").sum())
    assert identity(x).tolist() == [1] * 6


def test_the_bound_holds_where_it_overflows_and_where_scales_are_subnormal():
    top = jnp.asarray([3.4e38, 2.9e38, 1.0], jnp.float32)
    assert in_range(top, "e4m3fn").tolist() == [False, True, True]
    assert in_range(top, "e4m3fn", policy="NEURON_2_31").tolist() == [True, True, True]
    tiny = np.array([1, 0x00400000, 0x04600000, 0x04600001], np.uint32).view(np.float32)
    assert in_range(tiny, "e4m3fn").tolist() == [True, True, True, False]


def test_nan_and_inf_get_no_gradient():
    x = jnp.asarray([[1.0, np.nan], [np.inf, 2.0], [1.0, 2.0]], jnp.float32)
    ocp = jax.vjp(lambda v: fake_quantize(v, "e4m3fn"), x)[1](jnp.full_like(x, 3))[0]
    assert ocp.tolist() == [[0, 0], [0, 0], [3, 3]]
    assert in_range(x, "e4m3fn").tolist() == [[False, False], [False, False], [True, True]]
    neuron = in_range(x, "e4m3fn", policy="NEURON_2_24")
    assert neuron.tolist() == [[True, False], [False, True], [True, True]]


@pytest.mark.parametrize("fmt", [E2M1FN, E4M3FN, E5M2], ids=str)
def test_the_tangent_is_never_narrowed(fmt):
    x = jnp.asarray(np.random.default_rng(4).normal(size=(4, 32)).astype(np.float32))
    t = jnp.asarray([[1.0, 1e-5, 0.3, 1000.0, -7.0, 1e-38, 3e38, -0.1] * 4] * 4, jnp.float32)
    mask = in_range(x, fmt)
    want = jnp.where(mask, t, 0.0)

    def function(v):
        return fake_quantize(v, fmt)

    out, tangent = jax.jvp(function, (x,), (t,))
    assert_bits_equal(out, function(x))
    assert_bits_equal(tangent, want)
    assert_bits_equal(jax.vjp(function, x)[1](t)[0], want)
    assert_bits_equal(jax.jit(lambda v, u: jax.jvp(function, (v,), (u,))[1])(x, t), want)
    rows = jax.vmap(lambda v, u: jax.vjp(function, v)[1](u)[0])(x, t)
    assert_bits_equal(rows, want)


def test_scan_remat_and_second_derivatives():
    x = jnp.asarray(np.random.default_rng(5).normal(size=(3, 32)).astype(np.float32))

    def total(v, wrap):
        step = wrap(lambda c, r: (c + fake_quantize(r, "e4m3fn").sum(), None))
        return jax.lax.scan(step, jnp.float32(0), v)[0]

    plain = jax.grad(lambda v: total(v, lambda f: f))(x)
    assert_bits_equal(jax.grad(lambda v: total(v, jax.checkpoint))(x), plain)
    assert_bits_equal(plain, in_range(x, "e4m3fn").astype(jnp.float32))
    hessian = jax.hessian(lambda v: fake_quantize(v, "e4m3fn").sum())(x[0])
    assert not np.asarray(hessian).any()
    cubic = jax.grad(lambda v: (fake_quantize(v, "e4m3fn", ste="identity") * v).sum())(x)
    assert_bits_equal(cubic, fake_quantize(x, "e4m3fn") + x)


def test_refusals():
    with pytest.raises(PolicyError, match="ste"):
        fake_quantize(jnp.ones(32), "e4m3fn", ste="magic")
    with pytest.raises(FormatError, match="wider"):
        fake_quantize(jnp.ones(32, jnp.float8_e5m2), "e4m3fn")
