"""E8M0 codes and exponents against the rational oracle."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mxref import oracle
from mxref.e8m0 import decode_e8m0, encode_e8m0, floor_log2
from mxref.errors import GradientError
from mxref.narrow import narrow
from mxref.policy import E8M0Rounding, Rounding
from mxref.testing import assert_bits_equal


def edges() -> np.ndarray:
    """Both sides of every power of two, of 1.5 times it and of its square-root-of-two multiple."""
    rng = np.random.default_rng(0)
    binade = np.arange(255, dtype=np.uint32)[:, None] << 23
    near = [0x3504F3, 0x400000, 0x5A8279, 0x600000]
    near = [n + d for n in near for d in (-1, 0, 1)]
    inside = np.array([0, 1, 2, *near, 0x7FFFFF], np.uint32)
    bits = np.concatenate([(binade | inside).ravel(), [0x7F800000, 0x7FC00000]]).astype(np.uint32)
    random = rng.integers(0, 2**31, 2000, dtype=np.uint32)
    bits = np.concatenate([bits, random])
    return np.concatenate([bits, bits[::9] | 0x80000000]).astype(np.uint32)


@pytest.mark.parametrize("rounding", E8M0Rounding)
def test_encode_equals_oracle(rounding):
    bits = edges()
    want = [oracle.encode_e8m0(oracle.from_float32_bits(int(b)), rounding) for b in bits]
    x = jnp.asarray(bits.view(np.float32))
    eager = encode_e8m0(x, rounding)
    assert_bits_equal(np.asarray(eager), np.array(want, np.uint8))
    assert_bits_equal(jax.jit(lambda v: encode_e8m0(v, rounding))(x), eager)
    assert_bits_equal(jax.vmap(lambda v: encode_e8m0(v, rounding))(x), eager)


@pytest.mark.parametrize(
    ("rounding", "same"),
    [
        (Rounding.RNE, E8M0Rounding.NEAREST_EVEN),
        (Rounding.HALF_UP, E8M0Rounding.NEAREST_UP),
        (Rounding.NEAREST_AWAY, E8M0Rounding.NEAREST_UP),
        (Rounding.UP, E8M0Rounding.CEIL),
        (Rounding.DOWN, E8M0Rounding.FLOOR),
        (Rounding.TOWARD_ZERO, E8M0Rounding.FLOOR),
    ],
)
def test_narrow_to_e8m0_is_the_same_rule(rounding, same):
    x = jnp.asarray(edges().view(np.float32))
    assert_bits_equal(narrow(x, "e8m0fnu", rounding=rounding), encode_e8m0(x, same))


def test_narrow_to_e8m0_other_rules():
    x = jnp.asarray([1.5, 3.0, 4.0, 2.0**-127 * 1.5], jnp.float32)
    assert narrow(x, "e8m0fnu", rounding=Rounding.TO_ODD).tolist() == [127, 129, 129, 1]
    key = jax.random.key(1)
    up = np.asarray(jax.random.bits(key, (4,), jnp.uint32)) < 2**31
    got = narrow(x, "e8m0fnu", rounding=Rounding.STOCHASTIC, key=key)
    assert got.tolist() == [127 + up[0], 128 + up[1], 129, 0 + up[3]]
    assert int(narrow(jnp.float32(3e38), "e8m0fnu")) == 254
    assert int(narrow(jnp.float32(3e38), "e8m0fnu", saturate=False)) == 255


def test_decode_every_code():
    got = np.asarray(decode_e8m0(np.arange(256, dtype=np.uint8))).view(np.uint32)
    want = [0x00400000, *(c << 23 for c in range(1, 255)), 0x7FC00000]
    assert_bits_equal(got, np.array(want, np.uint32))


def test_floor_log2_equals_oracle():
    bits = edges() & 0x7FFFFFFF
    finite = bits[(bits > 0) & (bits < 0x7F800000)]
    want = [oracle.floor_log2(oracle.from_float32_bits(int(b)).magnitude) for b in finite]
    x = jnp.asarray(finite.view(np.float32))
    assert_bits_equal(np.asarray(floor_log2(x)), np.array(want, np.int32))
    assert_bits_equal(jax.jit(floor_log2)(-x), floor_log2(x))
    special = jnp.asarray([0.0, -0.0, np.inf, np.nan], jnp.float32)
    assert floor_log2(special).tolist() == [-(2**31), -(2**31), 2**31 - 1, 2**31 - 1]


@pytest.mark.parametrize("function", [encode_e8m0, floor_log2])
def test_derivatives_are_refused(function):
    with pytest.raises(GradientError):
        jax.grad(lambda x: function(x).astype(jnp.float32))(jnp.float32(3))
