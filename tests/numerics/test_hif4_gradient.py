"""The straight-through estimator of HiF4 (D29)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mxref import hif4
from mxref.errors import PolicyError, ShapeError
from mxref.testing import assert_bits_equal


def peaked(**lanes: float) -> jnp.ndarray:
    x = np.zeros(64, np.float32)
    for name, value in lanes.items():
        x[int(name[1:])] = value
    return jnp.asarray(x)


def gradient(x, **options):
    weight = jnp.asarray(np.linspace(0.1, 1.7, x.size, dtype=np.float32)).astype(x.dtype)
    return jax.grad(lambda v: jnp.vdot(weight, hif4.fake_quantize(v, **options)))(x), weight


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_forward_bits_are_dequantize_of_quantize(dtype):
    x = jnp.asarray(np.random.default_rng(0).standard_normal((7, 100)), dtype)
    for ties in hif4.Ties:
        got = hif4.fake_quantize(x, axis=0, ties=ties)
        assert got.dtype == dtype
        assert_bits_equal(got, hif4.quantize(x, axis=0, ties=ties).dequantize(dtype))


def test_clip_stops_beyond_the_largest_value_of_the_lane():
    # S = 1; lanes 8 and up are not doubled, so they end at 7/4; lanes 16 to 19 are doubled once.
    edge = np.nextafter(np.float32(1.75), np.float32(2))
    x = peaked(l0=7.0, l8=1.75, l12=edge, l13=-edge, l16=3.5, l17=np.float32(3.51), l24=-1.75)
    got, weight = gradient(x, source="exact")
    lost = np.flatnonzero(np.asarray(got) == 0).tolist()
    assert lost == [12, 13, 17]
    kept = np.setdiff1d(np.arange(64), lost)
    assert_bits_equal(got[kept], weight[kept])
    identity, _ = gradient(x, ste="identity")
    assert_bits_equal(identity, weight)


def test_a_maximum_above_seven_scales_is_clipped():
    x = peaked(l3=1.1875)  # S = 1.25 / 8, the lane ends at 1.09375
    assert_bits_equal(hif4.fake_quantize(x)[3], jnp.float32(1.09375))
    got, _ = gradient(x)
    assert np.flatnonzero(np.asarray(got) == 0).tolist() == [3]


@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_groups_that_become_nan_have_no_gradient_under_clip(special):
    x = jnp.concatenate([peaked(l5=special, l6=1.0), peaked(l0=1.0)])
    out = hif4.fake_quantize(x)
    assert np.isnan(out[:64]).all()
    assert not np.isnan(out[64:]).any()
    got = jax.grad(lambda v: hif4.fake_quantize(v)[64:].sum() + hif4.fake_quantize(v)[6])(x)
    assert not np.asarray(got[:64]).any()
    assert_bits_equal(got[64:], jnp.ones(64, jnp.float32))


def test_jvp_vjp_jit_vmap_scan_and_remat_agree():
    x = jnp.asarray(3 * np.random.default_rng(1).standard_normal((4, 64)), jnp.float32)
    t = jnp.asarray(np.random.default_rng(2).standard_normal((4, 64)) * 1e-6, jnp.float32)
    out, tangent = jax.jvp(hif4.fake_quantize, (x,), (t,))
    assert_bits_equal(out, hif4.fake_quantize(x))
    mask = np.asarray(tangent) != 0
    assert 0 < (~mask).sum() < mask.size
    assert_bits_equal(tangent, np.where(mask, t, np.float32(0)))  # never narrowed
    (back,) = jax.vjp(hif4.fake_quantize, x)[1](t)
    for other in (
        jax.jit(lambda v, d: jax.jvp(hif4.fake_quantize, (v,), (d,))[1])(x, t),
        jax.vmap(lambda v, d: jax.jvp(hif4.fake_quantize, (v,), (d,))[1])(x, t),
        jax.lax.scan(lambda c, a: (c, jax.jvp(hif4.fake_quantize, a[:1], a[1:])[1]), 0, (x, t))[1],
        jax.vjp(jax.checkpoint(hif4.fake_quantize), x)[1](t)[0],
        back,
    ):
        assert_bits_equal(other, tangent)


def test_refusals():
    with pytest.raises(PolicyError, match="ste"):
        hif4.fake_quantize(jnp.ones(3, jnp.float32), ste="none")
    with pytest.raises(PolicyError, match="ties"):
        hif4.fake_quantize(jnp.ones(3, jnp.float32), ties="up")
    with pytest.raises(ShapeError, match="axis"):
        hif4.fake_quantize(jnp.ones(3, jnp.float32), axis=1)
