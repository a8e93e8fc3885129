"""The door between values and patterns."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from mxref import oracle
from mxref.bits import FP64, as_float, canonical, float32_bits, from_bits, to_bits
from mxref.errors import ShapeError
from mxref.formats import BF16, FP16, FP32
from mxref.policy import Rounding
from mxref.testing import assert_bits_equal

PATTERNS = np.array([0, 1, 0x807FFFFF, 0x00800000, 0x7F7FFFFF, 0xFF800000], np.uint32)


def test_patterns_survive_the_round_trip():
    for wrap in (lambda f: f, jax.jit):
        back = wrap(lambda b: to_bits(from_bits(b)))(jnp.asarray(PATTERNS))
        assert_bits_equal(np.asarray(back), PATTERNS)


def test_canonical_changes_nan_only():
    bits = np.concatenate([PATTERNS, [0x7F800001, 0xFFC00000, 0xFFFFFFFF]]).astype(np.uint32)
    want = np.concatenate([PATTERNS, [0x7FC00000] * 3]).astype(np.uint32)
    assert_bits_equal(np.asarray(canonical(jnp.asarray(bits))), want)


@pytest.mark.parametrize(("spec", "dtype"), [(BF16, ml_dtypes.bfloat16), (FP16, np.float16)])
def test_sixteen_bit_sources_are_exact(spec, dtype):
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    finite = np.array([c not in spec.nan_codes for c in range(1 << 16)])
    want = [oracle.float32_bits(oracle.decode(c, spec)) for c in range(1 << 16)]
    for source in (x, jnp.asarray(x)):
        got = np.asarray(float32_bits(source))
        assert_bits_equal(got[finite], np.array(want, np.uint32)[finite])
        assert ((got[~finite] & 0x7FFFFFFF) == 0x7FC00000).all()


def test_the_sign_of_nan_is_kept_for_the_policies():
    x = np.array([0x7E00, 0xFE00], np.uint16).view(np.float16)
    assert np.asarray(float32_bits(x)).tolist() == [0x7FC00000, 0xFFC00000]
    assert float32_bits(np.array([np.nan, -np.nan])).tolist() == [0x7FC00000, 0xFFC00000]


def test_float64_is_rounded_to_odd():
    rng = np.random.default_rng(0)
    raw = rng.integers(0, 2**64, 400, dtype=np.uint64)
    raw[:200] = (raw[:200] & 0x800FFFFFFFFFFFFF) | (
        rng.integers(850, 1200, 200).astype(np.uint64) << 52
    )
    raw[200:220] = rng.integers(0, 2**32, 20, dtype=np.uint64) << np.uint64(29)
    values = [oracle.decode(int(u), FP64) for u in raw]
    kept = [n for n, v in enumerate(values) if not v.is_nan]
    want = [oracle.encode(values[n], FP32, Rounding.TO_ODD, saturate=False) for n in kept]
    got = np.asarray(float32_bits(raw.view(np.float64)))
    assert_bits_equal(got[kept], np.array(want, np.uint32))
    with jax.enable_x64(True):
        traced = jax.jit(float32_bits)(jnp.asarray(raw.view(np.float64)))
        assert_bits_equal(np.asarray(traced), got)


def test_as_float_refuses_what_is_no_float():
    assert as_float(0.1).dtype == np.float64
    assert as_float([0.5, 1.0]).dtype == np.float64
    assert as_float(1).dtype == as_float([1, 2**53]).dtype == np.float64
    for bad in (
        np.int64(1),
        np.arange(3),
        jnp.arange(3),
        np.array([object()]),
        np.array(["a"]),
        1j,
        None,
        True,
    ):
        with pytest.raises(ShapeError, match="floating"):
            as_float(bad)
    with pytest.raises(ShapeError, match="float64"):
        as_float(np.zeros(3, np.longdouble))
