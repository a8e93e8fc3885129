"""Narrow against the rational oracle, exhaustively where that is possible."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from mxref import oracle
from mxref.bits import FP64, round_magnitude
from mxref.errors import FormatError, GradientError, PolicyError, ShapeError
from mxref.formats import BF16, E2M1FN, E4M3FN, E5M2, E8M0, FORMATS, FP16, FP32, FormatSpec
from mxref.narrow import magic_round, narrow
from mxref.policy import NEURON_2_24, NanElement, Rounding
from mxref.testing import assert_bits_equal

DETERMINISTIC = [r for r in Rounding if r is not Rounding.STOCHASTIC]
TARGETS = [f for f in FORMATS.values() if f not in (E8M0, FP32)]
MAIN = [E2M1FN, E4M3FN, E5M2]
SOURCES = {"bfloat16": (BF16, ml_dtypes.bfloat16), "float16": (FP16, np.float16)}


@functools.cache
def all_inputs(source: str) -> np.ndarray:
    return np.arange(1 << 16, dtype=np.uint16).view(SOURCES[source][1])


def expected(values: list[oracle.Value], fmt: FormatSpec, **options) -> np.ndarray:
    codes = [oracle.encode(v, fmt, **options) for v in values]
    return np.array(codes, f"u{fmt.storage_bits // 8}")


@functools.cache
def edges(fmt: FormatSpec) -> np.ndarray:
    """float32: every grid value and midpoint of a format and their neighbours, and random bits."""
    rng = np.random.default_rng(fmt.bits * 100 + fmt.mantissa_bits)
    count, span = fmt.max_code + 1, 1 << fmt.mantissa_bits
    if count <= 256:
        codes = np.arange(count)
    else:
        around = [np.arange(0, span + 20, max(1, span // 40)), np.arange(count - 20, count)]
        around += [rng.integers(0, count, 100), np.array([1, 2, span, span + 1])]
        codes = np.unique(np.concatenate(around))
    exact = np.array([float(oracle.decode(int(c), fmt).magnitude) for c in codes])
    step = np.array([float(oracle.decode(int(c), fmt).magnitude) for c in np.maximum(codes, 1) - 1])
    middle = (exact + step) / 2
    top = exact[-1] + (exact[-1] - step[-1]) * np.array([0.25, 0.5, 0.75, 1, 2, 40])
    with np.errstate(over="ignore"):
        points = np.concatenate([exact, middle, top]).astype(np.float32).view(np.uint32)
    near = np.unique(np.concatenate([points, points + 1, np.maximum(points, 1) - 1]))
    special = np.array(
        [0, 1, 2, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000]
    )
    both = np.concatenate([near, special.astype(np.uint32)])
    bits = np.concatenate([both, both | 0x80000000, rng.integers(0, 2**32, 200, dtype=np.uint32)])
    return bits.astype(np.uint32)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("fmt", MAIN, ids=str)
def test_every_16_bit_input_equals_the_oracle(source, fmt):
    values = [oracle.decode(c, SOURCES[source][0]) for c in range(1 << 16)]
    assert_bits_equal(narrow(all_inputs(source), fmt), jnp.asarray(expected(values, fmt)))


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("fmt", [f for f in TARGETS if f not in MAIN], ids=str)
@pytest.mark.parametrize("saturate", [True, False])
def test_every_16_bit_input_of_the_other_formats(source, fmt, saturate):
    values = [oracle.decode(c, SOURCES[source][0]) for c in range(1 << 16)]
    got = narrow(all_inputs(source), fmt, saturate=saturate)
    assert_bits_equal(got, jnp.asarray(expected(values, fmt, saturate=saturate)))


@pytest.mark.parametrize("fmt", TARGETS, ids=str)
def test_every_rounding_equals_the_oracle_at_the_edges(fmt):
    bits = edges(fmt)
    values = [oracle.from_float32_bits(int(b)) for b in bits]
    x = jnp.asarray(bits.view(np.float32))
    for rounding in DETERMINISTIC:
        for saturate in (True, False):
            got = narrow(x, fmt, rounding=rounding, saturate=saturate)
            want = expected(values, fmt, rounding=rounding, saturate=saturate)
            assert_bits_equal(np.asarray(got), want)


@pytest.mark.parametrize("fmt", [*MAIN, FP16, E8M0], ids=str)
def test_eager_jit_and_vmap_agree(fmt):
    x = jnp.asarray(edges(fmt)[: edges(fmt).size // 4 * 4].view(np.float32)).reshape(-1, 4)
    eager = narrow(x, fmt)
    assert_bits_equal(jax.jit(lambda v: narrow(v, fmt))(x), eager)
    assert_bits_equal(jax.vmap(lambda v: narrow(v, fmt), in_axes=1, out_axes=1)(x), eager)


@pytest.mark.parametrize("fmt", TARGETS, ids=str)
def test_stochastic_rounding_is_a_comparison_with_the_random_bits(fmt):
    bits = edges(fmt)
    key = jax.random.key(7)
    random = np.asarray(jax.random.bits(key, bits.shape, jnp.uint32))
    got = narrow(jnp.asarray(bits.view(np.float32)), fmt, rounding=Rounding.STOCHASTIC, key=key)
    want = [
        oracle.encode(
            oracle.from_float32_bits(int(b)), fmt, rounding=Rounding.STOCHASTIC, random_bits=int(r)
        )
        for b, r in zip(bits, random, strict=True)
    ]
    assert_bits_equal(np.asarray(got), np.array(want, got.dtype))


def test_stochastic_threshold_is_exact_far_below_the_grid():
    # 2^-9 / 2^k is the fraction 2^-k: up exactly when the 32 random bits are below 2^(32 - k).
    for k, rest in [(1, 1), (8, 1), (24, 1), (31, 1), (32, 1), (33, 1), (40, 3)]:
        value = np.float32(rest * 2.0 ** (-9 - k))
        magnitude = value.view(np.uint32).reshape(1)
        threshold = max(1, -(-(rest << 32) // (1 << k)))
        for random in {0, threshold - 1, threshold, 2**32 - 1}:
            out = round_magnitude(
                magnitude, np.array([False]), FP32, E4M3FN, Rounding.STOCHASTIC,
                np.array([random], np.uint32),
            )  # fmt: skip
            assert out[0] == (random < threshold), (k, rest, random)


@pytest.mark.parametrize("fmt", [f for f in TARGETS if f.bits <= 8], ids=str)
def test_magic_add_is_the_integer_rounding(fmt):
    bits = edges(fmt) & 0x7FFFFFFF
    bits = bits[bits <= np.float32(2.0 ** (fmt.emax + 1)).view(np.uint32)]
    got = jax.jit(lambda u: magic_round(u, fmt))(jnp.asarray(bits.view(np.float32)))
    want = round_magnitude(bits, np.zeros(bits.shape, bool), FP32, fmt, Rounding.RNE)
    assert_bits_equal(np.asarray(got).astype(np.uint32), want)


def test_float64_is_not_rounded_twice():
    # 1 + half a unit of E4M3 + 2^-40 is above the tie; float32 in between would land on the tie.
    x = np.float64(1 + 2.0**-4 + 2.0**-40)
    assert int(narrow(np.float32(x), "e4m3fn")) == 0x38
    assert int(narrow(x, "e4m3fn")) == 0x39
    assert int(narrow(float(x), "e4m3fn")) == 0x39
    with jax.enable_x64(True):
        assert int(narrow(jnp.asarray(x), "e4m3fn")) == 0x39
        assert int(jax.jit(lambda v: narrow(v, "e4m3fn"))(jnp.asarray(x))) == 0x39


@pytest.mark.parametrize("fmt", [E2M1FN, E4M3FN, E5M2, BF16, FP16, FP32], ids=str)
def test_float64_equals_the_oracle(fmt):
    rng = np.random.default_rng(3)
    base = edges(fmt)[::7].view(np.float32)
    with np.errstate(invalid="ignore"):
        wide = base.astype(np.float64) * (
            1 + rng.choice([0, 2.0**-50, -(2.0**-40), 2.0**-25], base.size)
        )
    extra = [1e300, -1e300, 5e-324, 2.0**-150, np.inf, -np.inf, np.nan, 2.0**128, 2.0**-149 * 1.5]
    wide = np.concatenate([wide, extra])
    values = [oracle.decode(int(u), FP64) for u in wide.view(np.uint64)]
    for rounding in DETERMINISTIC:
        got = narrow(wide, fmt, rounding=rounding)
        assert_bits_equal(np.asarray(got), expected(values, fmt, rounding=rounding))


def test_float32_target_is_the_identity_with_a_canonical_nan():
    bits = np.array([0, 1, 0x80000001, 0x7F800000, 0xFF800000, 0x7F800001, 0xFFC12345], np.uint32)
    got = narrow(jnp.asarray(bits.view(np.float32)), "float32")
    assert_bits_equal(np.asarray(got), np.array([*bits[:5], 0x7FC00000, 0x7FC00000], np.uint32))


@pytest.mark.parametrize("source", [f for f in TARGETS if f.bits in (4, 8)], ids=str)
def test_narrow_formats_are_sources_too(source):
    dtype = getattr(ml_dtypes, source.name)
    codes = np.arange(1 << source.bits, dtype=np.uint8)
    want = expected([oracle.decode(int(c), source) for c in codes], E5M2)
    assert_bits_equal(np.asarray(narrow(codes.view(dtype), "e5m2")), want)
    assert_bits_equal(np.asarray(narrow(jnp.asarray(codes.view(dtype)), "e5m2")), want)


def test_nan_element_of_the_policy():
    x = jnp.asarray(np.array([0x7FC00000, 0xFFC00000], np.uint32).view(np.float32))
    assert narrow(x, "e4m3fn").tolist() == [0x7F, 0x7F]
    assert narrow(x, "e2m1fn").tolist() == [0, 0]
    assert NEURON_2_24.nan_element is NanElement.SIGNED_ZERO
    assert narrow(x, "e4m3fn", policy=NEURON_2_24).tolist() == [0, 0x80]


def test_overflow_to_nan_is_positive():
    assert narrow(jnp.float32(-480), "e4m3fn", saturate=False) == 0x7F


def test_saturation_defaults_by_width_and_the_argument_wins():
    assert int(narrow(jnp.float32(1e6), "e5m2")) == E5M2.max_code
    assert int(narrow(jnp.float32(1e6), "float16")) == FP16.inf_code
    assert int(narrow(jnp.float32(1e6), "float16", policy="OCP")) == FP16.max_code
    assert int(narrow(jnp.float32(1e6), "float16", policy="OCP", saturate=False)) == FP16.inf_code


def test_refusals():
    with pytest.raises(FormatError):
        narrow(jnp.float32(1), "e4m3")
    with pytest.raises(ShapeError, match="int32"):
        narrow(jnp.int32(1), "e4m3fn")
    with pytest.raises(PolicyError, match="key"):
        narrow(jnp.float32(1), "e4m3fn", rounding=Rounding.STOCHASTIC)
    with pytest.raises(PolicyError, match="key"):
        narrow(jnp.float32(1), "e4m3fn", key=jax.random.key(0))


def test_a_derivative_is_refused_and_stop_gradient_is_not():
    with pytest.raises(GradientError, match="fake_quantize"):
        jax.grad(lambda x: narrow(x, "e4m3fn").astype(jnp.float32))(jnp.float32(1))
    stopped = jax.grad(lambda x: x * narrow(jax.lax.stop_gradient(x), "e4m3fn").astype(jnp.float32))
    assert stopped(jnp.float32(1)) == 0x38


@pytest.mark.parametrize("x64", [False, True])
def test_dtypes_do_not_depend_on_x64(x64):
    with jax.enable_x64(x64):
        assert narrow(jnp.ones(3, jnp.float32), "e4m3fn").dtype == jnp.uint8
        assert narrow(jnp.ones(3, jnp.bfloat16), "bfloat16").dtype == jnp.uint16
        assert narrow(jnp.ones(3, jnp.float32), "float32").dtype == jnp.uint32


@pytest.mark.parametrize("x", [3, [1, -2, 448], [[2**53]], [0.5, 3]])
def test_python_integers_are_numbers(x):
    want = narrow(np.asarray(x, np.float64), "e4m3fn")
    assert_bits_equal(narrow(x, "e4m3fn"), want)


@pytest.mark.parametrize(
    ("x", "got"),
    [(2**53 + 1, "beyond 2"), ([1, -(2**60)], "beyond 2"), (2**70, "object"), (True, "bool"),
     (np.arange(3), "int64"), (np.int64(3), "int64"), ("1.0", "<U3"),
     ([[1.0, 2.0], [3.0]], "a ragged list")],
)  # fmt: skip
def test_what_is_no_number_is_refused(x, got):
    with pytest.raises(ShapeError, match=got):
        narrow(x, "e4m3fn")
