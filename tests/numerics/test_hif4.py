"""HiF4 on arrays against the rational oracle and against public worked examples."""

from __future__ import annotations

import itertools
from fractions import Fraction

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxref import hif4
from mxref.errors import FormatError, GradientError, PolicyError, ShapeError
from mxref.formats import BF16
from mxref.hif4 import thresholds
from mxref.oracle import hif4 as oracle
from mxref.oracle.values import decode, floor_log2, from_float32_bits
from mxref.testing import assert_bits_equal

OPTIONS = list(itertools.product(("away", "even"), ("bf16", "exact"), ("bf16", "exact")))


def options(values):
    return dict(zip(("ties", "source", "product"), values, strict=True))


def floats(bits) -> np.ndarray:
    return np.asarray(bits, np.uint32).view(np.float32)


def expect(bits: np.ndarray, **chosen) -> tuple[np.ndarray, np.ndarray]:
    """Words and codes of rows of up to 64 patterns, by the oracle."""
    rows = [
        oracle.quantize_group([from_float32_bits(int(b)) for b in row], **chosen) for row in bits
    ]
    words, codes = zip(*rows, strict=True)
    return np.array(words, np.uint32), np.array(codes, np.uint8)


def check_rows(bits: np.ndarray, **chosen) -> None:
    words, codes = expect(bits, **chosen)
    got = hif4.quantize(floats(bits), **chosen)
    assert_bits_equal(got.metadata[..., 0], words)
    assert_bits_equal(got.codes, codes)


def edge_weighted(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Rows of 64 patterns: clustered exponents, short mantissas, zeros, subnormals, specials."""
    centre = rng.integers(60, 160, (rows, 1))
    centre[::7] = rng.integers(0, 256, centre[::7].shape)
    exponent = np.clip(centre + rng.integers(-7, 4, (rows, 64)), 0, 254)
    mantissa = rng.integers(0, 1 << 23, (rows, 64))
    short = rng.random((rows, 64)) < 0.6
    mantissa = np.where(short, mantissa & 0x7F_0000, mantissa)
    near = rng.random((rows, 64)) < 0.2
    mantissa = np.where(near, (mantissa & 0x7F_0000) + rng.integers(-2, 3, (rows, 64)), mantissa)
    bits = (exponent << 23) + np.clip(mantissa, 0, 0x7F_FFFF)
    bits = np.where(rng.random((rows, 64)) < 0.1, 0, bits)
    special = np.where(rng.random((rows, 64)) < 0.5, 0x7F80_0000, 0x7F80_1234)
    poisoned = (np.arange(rows) % 11 == 0)[:, None] & (rng.random((rows, 64)) < 0.05)
    bits = np.where(poisoned, special, bits)
    return (bits | rng.integers(0, 2, (rows, 64)) << 31).astype(np.uint32)


@pytest.mark.parametrize("chosen", OPTIONS, ids="-".join)
def test_quantize_equals_the_oracle_on_edge_weighted_groups(chosen):
    check_rows(edge_weighted(np.random.default_rng(1), 96), **options(chosen))


@pytest.mark.slow
@pytest.mark.parametrize("chosen", OPTIONS, ids="-".join)
def test_quantize_equals_the_oracle_on_many_groups(chosen):
    check_rows(edge_weighted(np.random.default_rng(2), 3000), **options(chosen))


def test_the_scale_of_every_bfloat16_maximum():
    bits = np.arange(0x7F80, dtype=np.uint32) << 16
    groups = np.zeros((bits.size, 64), np.uint32)
    groups[np.arange(bits.size), np.arange(bits.size) % 64] = bits
    got = np.asarray(hif4.quantize(floats(groups)).levels.e6m2)[:, 0]
    want = [oracle.scale_code(decode(code, BF16).magnitude) for code in range(0x7F80)]
    assert_bits_equal(got, np.array(want, np.uint8))


def reach() -> np.ndarray:
    """Per scale mantissa, 64 lanes a row: every bfloat16 value of nine binades in every doubling.

    Lane 0 pins the scale.  The other octets hold values under test, with or without a pin that
    sets one doubling or both, so that each value meets each of the four combinations.
    """
    rows = []
    for m, peak in enumerate((7.0, 8.75, 10.5, 12.25)):
        values = np.arange(0x3E00 - 4 * 128, 0x3E00 + 6 * 128).astype(np.uint16)
        values = values.view(ml_dtypes.bfloat16).astype(np.float32)
        values = values[values * float(thresholds.RECIPROCALS[m]) < 8]
        for wide, narrow in itertools.product((0, 1), repeat=2):
            limit = 2.0 * (1 + wide) * (1 + narrow) / float(thresholds.RECIPROCALS[m])
            fits = values[values < limit]
            pin = np.float32(limit * 0.98).astype(ml_dtypes.bfloat16).astype(np.float32)
            for chunk in np.array_split(fits, -(-fits.size // 21)):
                row = np.zeros(64, np.float32)
                row[0] = peak
                lanes = [8 * o + j for o in range(1, 8) for j in (1, 2, 3)][: chunk.size]
                row[lanes] = chunk
                row[8::8] = pin if narrow else 0.0
                row[12::8] = (4.5 if narrow else 4.0) * wide / float(thresholds.RECIPROCALS[m])
                rows.append(row)
    return np.array(rows, np.float32).view(np.uint32)


@pytest.mark.parametrize("chosen", OPTIONS, ids="-".join)
def test_every_bfloat16_lane_in_every_doubling(chosen):
    bits = reach()
    check_rows(bits, **options(chosen))
    levels = hif4.quantize(floats(bits)).levels
    eight = np.asarray(levels.e1_8)[:, 0] >> 1 & 1
    four = np.asarray(levels.e1_16)[:, 0] >> 2 & 1
    assert set(zip(eight.tolist(), four.tolist(), strict=True)) == {(0, 0), (0, 1), (1, 0), (1, 1)}


def neighbours(value: Fraction) -> list[int]:
    """Patterns around a positive rational: the float32 next to it, two on each side."""
    centre = int(np.float32(float(value)).view(np.uint32))
    return [centre + d for d in (-2, -1, 0, 1, 2)]


def edges(mark: Fraction) -> list[Fraction]:
    """A rational and the ends of the interval that bfloat16 rounds to it."""
    half_ulp = Fraction(2) ** (floor_log2(mark) - 8)
    return [mark, mark - half_ulp, mark - half_ulp / 2, mark + half_ulp]


@pytest.mark.parametrize("chosen", OPTIONS, ids="-".join)
def test_thresholds_are_where_the_definition_changes(chosen):
    """Both sides of every decision, from rationals that owe nothing to the tables."""
    rows = []
    for scale in (0x00, 0xC1, 0xC2, 0x7F, 0xFE):
        s, r = oracle.e6m2_value(scale).magnitude, oracle.reciprocal(scale)
        peak = int(np.float32(float(7 * s)).view(np.uint32))
        for mark in [Fraction(k, 8) for k in range(1, 16, 2)] + [Fraction(2), Fraction(4)]:
            for edge in edges(mark):
                for pattern in neighbours(edge / r):
                    row = [0] * 64
                    row[0], row[8], row[16], row[20] = peak, pattern, pattern, pattern + 1
                    row[24], row[25] = pattern, neighbours(4 / r)[4]
                    rows.append(row)
    check_rows(np.array(rows, np.uint32), **options(chosen))


@pytest.mark.parametrize("source", ["bf16", "exact"])
def test_scale_thresholds_from_both_sides(source):
    rows = []
    for code in range(1, 0xFF):
        low, high = (oracle.e6m2_value(c).magnitude for c in (code - 1, code))
        middle = (low + high) / 2
        for edge in edges(middle):
            rows += [[pattern] for pattern in neighbours(edge / Fraction(73, 512))]
    check_rows(np.array(rows, np.uint32), source=source)


def test_float16_and_bfloat16_inputs_are_their_float32_values():
    rng = np.random.default_rng(3)
    for dtype in (np.float16, ml_dtypes.bfloat16):
        codes = np.arange(1 << 16, dtype=np.uint16)
        rng.shuffle(codes)
        x = codes.view(dtype).reshape(-1, 64)
        # The host widens exactly; NaN and Inf stay what they are.
        with np.errstate(invalid="ignore"):
            wide = x.astype(np.float32)
        got, want = hif4.quantize(jnp.asarray(x)), hif4.quantize(jnp.asarray(wide))
        assert_bits_equal(got.codes, want.codes)
        assert_bits_equal(got.metadata, want.metadata)
        finite = np.where(np.isfinite(wide), wide, np.float32(0)).astype(dtype)
        check_rows(finite.astype(np.float32).view(np.uint32)[:50])
        assert_bits_equal(
            hif4.quantize(jnp.asarray(finite)).codes,
            hif4.quantize(jnp.asarray(finite.astype(np.float32))).codes,
        )


def test_the_bf16_source_is_an_explicit_cast():
    bits = edge_weighted(np.random.default_rng(4), 256)
    with np.errstate(invalid="ignore"):
        cast = floats(bits).astype(ml_dtypes.bfloat16)
    direct, via = hif4.quantize(floats(bits)), hif4.quantize(jnp.asarray(cast))
    assert_bits_equal(direct.codes, via.codes)
    assert_bits_equal(direct.metadata, via.metadata)


def test_a_float32_beyond_bfloat16_is_infinite_there():
    row = np.zeros((2, 64), np.uint32)
    row[:, 0] = 0x7F7F_7FFF, 0x7F7F_8000
    assert hif4.quantize(floats(row)).levels.e6m2[:, 0].tolist() == [0xFE, 0xFF]
    assert hif4.quantize(floats(row), source="exact").levels.e6m2[:, 0].tolist() == [0xFE, 0xFE]
    check_rows(row)
    check_rows(row, source="exact")


def test_subnormals_are_tiny_not_zero_signed_and_never_flushed():
    bits = np.array([[0x8000_0001, 0x0000_0001, 0x807F_FFFF, 0x8000_0000] * 16], np.uint32)
    q = hif4.quantize(floats(bits))
    assert q.codes[0, :4].tolist() == [8, 0, 8, 8]
    assert q.metadata.tolist() == [[0]]
    assert_bits_equal(q.dequantize()[0, :4], floats([0x8000_0000, 0, 0x8000_0000, 0x8000_0000]))


def test_worked_example():
    x = np.zeros(64, np.float32)
    x[:10] = 7, 0.5, 2.5, -1.5, 0.25, 0.375, 0, 0, -0.125, 0.625
    away, even = hif4.quantize(x), hif4.quantize(x, ties="even")
    assert [hex(int(q.metadata[0])) for q in (away, even)] == ["0x101c0"] * 2
    assert away.codes[:10].tolist() == [7, 1, 3, 0xA, 1, 1, 0, 0, 9, 3]
    assert even.codes[:10].tolist() == [7, 0, 2, 0xA, 0, 1, 0, 0, 8, 2]
    assert away.dequantize()[:10].tolist() == [7, 1, 3, -2, 0.5, 0.5, 0, 0, -0.25, 0.75]
    assert np.signbit(even.dequantize()[8])


def test_every_lane_value():
    """All E6M2 codes, doublings, lane codes and positions that matter, in every dtype."""
    e6m2 = np.repeat(np.arange(256, dtype=np.uint32), 3)
    doubling = np.tile(np.array([0x0000_0000, 0x0F0F_3300, 0xFFFF_FF00], np.uint32), 256)
    words = jnp.asarray((e6m2 | doubling)[:, None])
    codes = jnp.asarray(np.tile(np.arange(16, dtype=np.uint8), (768, 4)))
    q = hif4.HiF4Array(codes, words)
    values = [
        [oracle.lane_value(lane % 16, int(word), lane) for lane in range(64)]
        for word in np.asarray(words)[:, 0]
    ]
    flat = [
        float("nan") if v.is_nan else (-1.0 if v.negative else 1.0) * float(v.magnitude)
        for row in values
        for v in row
    ]
    # Every value has at most six significant bits: the host's conversions are exact or one RNE.
    host = np.array(flat, np.float64).reshape(768, 64)
    assert_bits_equal(q.dequantize(), host.astype(np.float32), nan="class")
    with np.errstate(over="ignore"):
        assert_bits_equal(q.dequantize(jnp.float16), host.astype(np.float16), nan="class")
    assert_bits_equal(q.dequantize("bfloat16"), host.astype(ml_dtypes.bfloat16), nan="class")
    for dtype, nan in ((jnp.float32, 0x7FC0_0000), (jnp.bfloat16, 0x7FC0), (jnp.float16, 0x7E00)):
        raw = np.asarray(q.dequantize(dtype))[e6m2 == 0xFF]
        assert set(raw.view(f"u{raw.dtype.itemsize}").ravel().tolist()) == {nan}


def test_metadata_bits_reach_their_lanes():
    for bit in range(24):
        q = hif4.HiF4Array(
            jnp.full((64,), 4, jnp.uint8), jnp.array([0xC0 | 1 << (8 + bit)], jnp.uint32)
        )
        lanes = np.flatnonzero(np.asarray(q.dequantize()) == 2.0).tolist()
        width, b = (8, bit) if bit < 8 else (4, bit - 8)
        assert lanes == list(range(width * b, width * b + width))


def test_metadata_levels_come_apart_and_together():
    words = jnp.asarray(np.random.default_rng(5).integers(0, 1 << 32, 500, dtype=np.uint32))
    levels = hif4.split_metadata(words)
    assert [a.dtype.itemsize for a in levels] == [1, 1, 2]
    assert_bits_equal(hif4.join_metadata(*levels), words)
    assert hif4.split_metadata(jnp.uint32(0x8421_5AC3)) == (0xC3, 0x5A, 0x8421)


def test_e6m2_values():
    got = hif4.decode_e6m2(jnp.arange(256, dtype=jnp.uint8))
    want = [float(oracle.e6m2_value(c).magnitude) for c in range(255)]
    assert_bits_equal(got, np.array([*want, np.nan], np.float32), nan="payload")


@pytest.mark.parametrize("n", [1, 3, 63, 64, 65, 100, 128])
def test_short_last_groups_are_filled_with_zeros(n):
    bits = edge_weighted(np.random.default_rng(6), 4).reshape(-1)[:n]
    filled = np.zeros(-(-n // 64) * 64, np.uint32)
    filled[:n] = bits
    q, full = hif4.quantize(floats(bits)), hif4.quantize(floats(filled))
    assert (q.shape, q.metadata.shape) == ((n,), (-(-n // 64),))
    assert_bits_equal(q.codes, full.codes[:n])
    assert_bits_equal(q.metadata, full.metadata)
    assert_bits_equal(q.dequantize(), full.dequantize()[:n])


@pytest.mark.parametrize("axis", [-1, 0, 1, 2])
def test_axes_jit_and_vmap_give_the_same_bits(axis):
    bits = edge_weighted(np.random.default_rng(7), 128).reshape(32, 2, 128)
    x = jnp.asarray(floats(bits)).swapaxes(-1, axis)
    eager = hif4.quantize(x, axis=axis)
    assert eager.axis == (axis if axis < 0 else axis - 3)
    reference = hif4.quantize(jnp.moveaxis(x, axis, -1))
    assert_bits_equal(jnp.moveaxis(eager.codes, axis, -1), reference.codes)
    assert_bits_equal(jnp.moveaxis(eager.metadata, axis, -1), reference.metadata)
    for other in (
        jax.jit(lambda v: hif4.quantize(v, axis=axis))(x),
        jax.vmap(lambda v: hif4.quantize(v, axis=eager.axis), in_axes=3, out_axes=0)(x[..., None]),
    ):
        assert_bits_equal(other.codes.reshape(x.shape), eager.codes)
        assert_bits_equal(other.dequantize().reshape(x.shape), eager.dequantize())
    assert_bits_equal(jax.jit(hif4.dequantize)(eager), eager.dequantize())
    scanned = jax.lax.scan(
        lambda c, v: (c, v.dequantize()), 0, hif4.quantize(x[None], axis=axis + (axis >= 0))
    )
    assert_bits_equal(scanned[1][0], eager.dequantize())


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 64), (0, 3, 0)])
def test_empty_arrays(shape):
    for axis in range(len(shape)):
        q = hif4.quantize(jnp.zeros(shape, jnp.float32), axis=axis)
        assert q.shape == q.dequantize().shape == shape
        assert hif4.fake_quantize(jnp.zeros(shape, jnp.float32), axis=axis).shape == shape


@pytest.mark.parametrize(("source", "excess"), [("bf16", 2.0**-9), ("exact", 0.0)])
def test_float64_is_rounded_to_odd_once(source, excess):
    """A value that rounding to nearest would first move onto a tie, then to the even side of it."""
    x = np.zeros(64)
    x[0], x[1] = 7.0, 0.5 + excess + 2.0**-40
    chosen = {"source": source, "product": "exact", "ties": "even"}
    q = hif4.quantize(x, **chosen)
    assert q.codes[:2].tolist() == [7, 1]
    assert hif4.quantize(x.astype(np.float32), **chosen).codes[:2].tolist() == [7, 0]
    fake = hif4.fake_quantize(x, **chosen)
    assert fake.dtype == jnp.asarray(x).dtype
    assert fake[:2].tolist() == [7.0, 1.0]
    with jax.enable_x64(True):
        traced = jnp.asarray(x)
        assert_bits_equal(hif4.quantize(traced, **chosen).codes, q.codes)
        fake = hif4.fake_quantize(traced, **chosen)
        assert fake.dtype == np.float64
        assert fake[:2].tolist() == [7.0, 1.0]


@settings(max_examples=50)
@given(st.lists(st.floats(width=32), min_size=70, max_size=70), st.sampled_from(OPTIONS))
def test_signs_mirror_and_values_are_those_of_the_definition(data, chosen):
    x = np.array(data, np.float32)
    q = hif4.quantize(x, **options(chosen))
    mirrored = hif4.quantize(-x, **options(chosen))
    assert_bits_equal(q.metadata, mirrored.metadata)
    assert_bits_equal(q.codes & np.uint8(7), mirrored.codes & np.uint8(7))
    codes, words = np.asarray(q.codes).tolist(), np.asarray(q.metadata).tolist()
    for lane, got in enumerate(np.asarray(q.dequantize())):
        want = oracle.lane_value(codes[lane], words[lane // 64], lane % 64)
        assert np.isnan(got) if want.is_nan else Fraction(float(got)) == want.exact


def test_scaling_by_powers_of_two_moves_only_the_scale():
    bits = edge_weighted(np.random.default_rng(8), 64)
    x = np.where(np.isfinite(floats(bits)), floats(bits), np.float32(0))
    x = (x / np.maximum(np.abs(x).max(-1, keepdims=True), np.float32(1e-30))).astype(np.float32)
    x[:, 0] = 1
    base = hif4.quantize(x)
    for k in (-20, -3, 1, 10):
        moved = hif4.quantize(x * np.float32(2.0**k))
        assert_bits_equal(moved.metadata, base.metadata + np.uint32(4 * k & 0xFFFF_FFFF))
        assert_bits_equal(moved.codes & np.uint8(7), base.codes & np.uint8(7))


def test_pytree_and_validation():
    q = hif4.quantize(jnp.ones((2, 70), jnp.float32))
    codes, metadata = q
    assert (q.ndim, q.axis, repr(q)) == (2, -1, "HiF4Array([2, 70], axis=-1)")
    assert jax.tree.structure(q) == jax.tree.structure(
        jax.tree.map(lambda a: None, q), is_leaf=lambda a: a is None
    )
    assert jax.tree.unflatten(jax.tree.structure(q), [object(), None]).axis == -1
    assert q.mT.axis == -2
    assert q.mT.metadata.shape == (2, 2)
    assert_bits_equal(q.mT.dequantize(), q.dequantize().T)
    assert q.swapaxes(0, 0).axis == -1
    numpy_made = hif4.HiF4Array(np.asarray(codes), np.asarray(metadata), axis=1)
    assert isinstance(numpy_made.codes, jax.Array)
    assert numpy_made.axis == -1
    with pytest.raises(ShapeError, match="metadata"):
        hif4.HiF4Array(codes, metadata[:, :1])
    with pytest.raises(ShapeError, match="uint32"):
        hif4.HiF4Array(codes, codes)
    with pytest.raises(ShapeError, match="codes"):
        hif4.HiF4Array([1, 2], metadata)
    with pytest.raises(ShapeError, match="axis"):
        hif4.HiF4Array(codes, metadata, axis=2)
    with pytest.raises(ShapeError, match="axis"):
        hif4.quantize(np.float32(1))
    with pytest.raises(ShapeError, match="floating"):
        hif4.quantize(np.arange(3))
    for name in ("ties", "source", "product"):
        with pytest.raises(PolicyError, match=name):
            hif4.quantize(np.ones(3, np.float32), **{name: "odd"})
    with pytest.raises(FormatError):
        q.dequantize(jnp.float8_e4m3fn)
    with pytest.raises(GradientError, match="fake_quantize"):
        jax.grad(lambda v: hif4.quantize(v).dequantize().sum())(jnp.ones(64, jnp.float32))


def test_enumerations_name_the_same_options():
    x = np.linspace(-9, 9, 64, dtype=np.float32)
    a = hif4.quantize(x, ties=hif4.Ties.EVEN, source=hif4.Carrier.EXACT, product=hif4.Carrier.EXACT)
    b = hif4.quantize(x, ties="even", source="exact", product="exact")
    assert_bits_equal(a.codes, b.codes)
