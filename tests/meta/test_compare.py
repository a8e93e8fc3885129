"""The comparator itself: what it must refuse, what it must let pass, and what it says."""

from __future__ import annotations

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mxref as mx
from mxref.testing import assert_bits_equal, first_difference
from mxref.testing.strategies import codes, corner_codes, float32_arrays, instructions

NAN = np.array([0x7FC00000, 0xFFC00000, 0x7F800001], np.uint32).view(np.float32)


def test_zero_signs_differ():
    with pytest.raises(AssertionError, match=r"1 of 2 elements differ, first \[1\]: got 0 "):
        assert_bits_equal(np.float32([1, 0.0]), np.float32([1, -0.0]))


def test_any_nan_is_any_nan_by_class():
    assert_bits_equal(NAN, NAN[::-1])


def test_nan_payloads_differ_on_request():
    assert first_difference(NAN, NAN[::-1], "payload").count == 2


def test_a_nan_is_no_number():
    found = first_difference(NAN[:1], np.float32([1]))
    assert found is not None
    assert found.ulp is None
    assert "got nan (0x7FC00000), want 1 (0x3F800000)" in str(found)


def test_only_one_nan_side_differs_in_float8():
    nan, big = np.uint8([0x7F]), np.uint8([0x7E])
    assert "got nan (0x7F), want 448 (0x7E)" in str(first_difference(nan, big, fmt="e4m3fn"))


@pytest.mark.parametrize(
    ("got", "want", "ulp"),
    [
        (np.float32(1), np.nextafter(np.float32(1), np.float32(2)), -1),
        (np.float32(1e-45), np.float32(-1e-45), 2),
        (np.float64(1), np.nextafter(1.0, 0.0), 1),
        (np.array(2, ml_dtypes.bfloat16), np.array(3, ml_dtypes.bfloat16), -64),
    ],
)
def test_distance_counts_steps_of_the_grid(got, want, ulp):
    assert first_difference(got, want).ulp == ulp


def test_index_and_count():
    got = np.zeros((3, 4), np.float32)
    want = got.copy()
    want[1, 2] = want[2, 0] = 5
    found = first_difference(got, want)
    assert (found.index, found.count, found.size) == ((1, 2), 2, 12)


@pytest.mark.parametrize(
    ("want", "words"),
    [
        (np.zeros(3, np.float64), "dtype float32, want float64"),
        (np.zeros(4, np.float32), r"shape \(3,\), want \(4,\)"),
    ],
)
def test_dtype_and_shape_must_agree(want, words):
    with pytest.raises(AssertionError, match=words):
        assert_bits_equal(np.zeros(3, np.float32), want)


def test_objects_have_no_bits():
    with pytest.raises(AssertionError, match="no bits"):
        assert_bits_equal(np.array([None]), np.array([None]))


def test_nan_word_is_checked():
    with pytest.raises(mx.PolicyError, match="'class' or 'payload'"):
        assert_bits_equal(np.float32(1), np.float32(1), "canonical")


def test_records_compare_member_by_member():
    q = mx.quantize(jnp.arange(64.0, dtype=jnp.float32).reshape(2, 32), mx.E4M3FN)
    assert_bits_equal(q, q)
    other = mx.MXArray(
        q.codes.at[1, 3].add(jnp.uint8(1)), q.scales, format=q.format, axis=q.axis, block=32,
        policy=q.policy,
    )  # fmt: skip
    with pytest.raises(AssertionError, match=r"first \.codes\[1, 3\]: got .*-1 ulp"):
        assert_bits_equal(q, other)
    scaled = mx.MXArray(
        q.codes, q.scales + jnp.uint8(1), format=q.format, axis=q.axis, block=32, policy=q.policy
    )
    with pytest.raises(AssertionError, match=r"first \.scales\[0, 0\]"):
        assert_bits_equal(q, scaled)


def test_a_record_is_no_array():
    q = mx.quantize(jnp.ones(32, jnp.float32), mx.E4M3FN)
    with pytest.raises(AssertionError, match="MXArray, want "):
        assert_bits_equal(q, q.codes)


@given(
    st.sampled_from(list(mx.FORMATS.values())).flatmap(lambda f: st.tuples(st.just(f), codes(f)))
)
def test_reported_values_are_the_oracles(pair):
    """The message's value is computed here by a formula of its own; the oracle must agree."""
    from mxref import oracle
    from mxref.testing.compare import _value

    spec, code = pair
    want = np.array([oracle.float32_bits(oracle.decode(code, spec))], np.uint32).view(np.float32)
    assert_bits_equal(np.float32(_value(code, spec)), want[0])


def test_corners_hold_the_special_codes():
    found = corner_codes(mx.E5M2)
    assert {0x00, 0x80, 0x01, 0x03, 0x04, 0x7B, 0x7C, 0x7E, 0xFC} <= set(found)


@given(float32_arrays((4,), finite=True))
def test_finite_arrays_are_finite(array):
    assert np.isfinite(array).all()


@given(instructions())
def test_drawn_instructions_encode(instruction):
    assert mx.decode(mx.encode(instruction), strict=False) == instruction
