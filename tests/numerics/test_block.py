"""Quantize and dequantize against the rational oracle, block by block."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from mxref import oracle
from mxref.block import dequantize, quantize
from mxref.errors import FormatError, GradientError, PolicyError, ShapeError
from mxref.formats import E2M1FN, E4M3FN, E5M2, E8M0, FORMATS, FormatSpec
from mxref.mxarray import BlockShape, MXArray
from mxref.policy import NEURON_2_24, NEURON_2_31, OCP, POLICIES, NonFinite, ScaleRule
from mxref.testing import assert_bits_equal

ELEMENTS = [f for f in FORMATS.values() if f.bits <= 8 and f != E8M0]
RULES = [dataclasses.replace(OCP, name=r.value, scale_rule=r) for r in ScaleRule]
# Every rule where NaN and Inf are exponents: HEADROOM of an FP4 Inf block reaches code 254.
OTHERS = [
    *(
        dataclasses.replace(r, name=f"{r.name}/exponent", nonfinite=NonFinite.EXPONENT)
        for r in RULES
    ),
    dataclasses.replace(OCP, name="overflow", saturate=False),
    dataclasses.replace(NEURON_2_24, name="headroom24", scale_rule=ScaleRule.HEADROOM),
    dataclasses.replace(NEURON_2_31, name="unsaturated31", saturate=False),
]


@functools.cache
def blocks(fmt: FormatSpec, count: int = 128) -> np.ndarray:
    """float32[count, 32] patterns: every scale range, ties, subnormals, zeros, NaN and Inf."""
    rng = np.random.default_rng(fmt.bits * 100 + fmt.mantissa_bits)
    step = np.uint32(1 << (22 - fmt.mantissa_bits))
    # Significands on the grid, on its midpoints, and one unit beside them.
    grid = rng.integers(0, 2 << fmt.mantissa_bits, (count, 32), dtype=np.uint32) * step
    jitter = rng.choice(np.array([0, 0, 1, -1], np.int64), (count, 32))
    top = rng.integers(1, 255, (count, 1))
    exponent = np.maximum(top - rng.integers(0, 12 + fmt.mantissa_bits, (count, 32)), 0)
    bits = (exponent.astype(np.int64) << 23) + grid + jitter
    bits = np.clip(bits, 0, 0x7F7FFFFF).astype(np.uint32)
    bits[:10] = np.minimum(bits[:10], 0x7FFFFF)  # subnormals only
    bits[10:20] = rng.integers(0, 0x02000000, (10, 32), dtype=np.uint32)  # scale code near 0
    bits[20] = 0
    bits[21:24, 5] = [0x7FC00000, 0x7F800000, 0x7FA00001]
    bits[24, :2] = [0x7F800000, 0x7FC00000]
    bits[25, 9] = 0xFFC00000
    bits[26] = rng.integers(0x7D000000, 0x7F800000, 32, dtype=np.uint32)  # beside Inf: code 254
    bits[26, 7] = 0x7F800000
    bits[40] = rng.integers(0, 2**32, 32, dtype=np.uint32)
    bits[27:40, 0] = (bits[27:40, 0] & 0x7F800000) | 0x600000  # block maxima at 1.75 and beside
    return bits | (rng.integers(0, 2, (count, 32), dtype=np.uint32) << 31)


def by_oracle(bits: np.ndarray, fmt, policy) -> tuple[np.ndarray, np.ndarray]:
    """Codes and scales of rows that are one block each."""
    done = [
        oracle.quantize_block([oracle.from_float32_bits(int(b)) for b in row], fmt, policy)
        for row in bits
    ]
    codes = np.array([c for _, c in done], np.uint8).reshape(bits.shape)
    return codes, np.array([s for s, _ in done], np.uint8)


EVERYWHERE = [(f, p) for f in ELEMENTS for p in POLICIES.values()]
SOMEWHERE = [(f, p) for f in (E2M1FN, E4M3FN, E5M2) for p in (*RULES, *OTHERS)]


@pytest.mark.parametrize(("fmt", "policy"), EVERYWHERE + SOMEWHERE, ids=str)
def test_quantize_equals_oracle(fmt, policy):
    bits = blocks(fmt, 44)
    codes, scales = quantize(jnp.asarray(bits.view(np.float32)), fmt, policy=policy)
    want_codes, want_scales = by_oracle(bits, fmt, policy)
    assert_bits_equal(np.asarray(scales[:, 0]), want_scales)
    assert_bits_equal(np.asarray(codes), want_codes)


@pytest.mark.parametrize("source", [ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("policy", [OCP, NEURON_2_24], ids=str)
@pytest.mark.parametrize("fmt", [E2M1FN, E4M3FN, E5M2], ids=str)
def test_sixteen_bit_sources_equal_the_oracle(fmt, policy, source):
    raw = (blocks(fmt, 64) >> 16).astype(np.uint16)
    raw[:16] &= 0x83FF  # subnormals of both sources
    x = raw.view(source)
    with np.errstate(invalid="ignore"):
        exact = x.astype(np.float32).view(np.uint32)
    codes, scales = quantize(jnp.asarray(x), fmt, policy=policy)
    want_codes, want_scales = by_oracle(exact, fmt, policy)
    assert_bits_equal(np.asarray(scales[:, 0]), want_scales)
    assert_bits_equal(np.asarray(codes), want_codes)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES.values(), ids=str)
@pytest.mark.parametrize("fmt", [E2M1FN, E4M3FN, E5M2], ids=str)
def test_many_blocks_equal_the_oracle(fmt, policy):
    bits = blocks(fmt, 2000)
    codes, scales = quantize(jnp.asarray(bits.view(np.float32)), fmt, policy=policy)
    want_codes, want_scales = by_oracle(bits, fmt, policy)
    assert_bits_equal(np.asarray(scales[:, 0]), want_scales)
    assert_bits_equal(np.asarray(codes), want_codes)


TRACED = [
    (E2M1FN, OCP, np.float32),
    (E4M3FN, OCP, np.float32),
    (E5M2, NEURON_2_24, np.float32),
    (E4M3FN, NEURON_2_31, ml_dtypes.bfloat16),
]


@pytest.mark.parametrize(("fmt", "policy", "dtype"), TRACED, ids=str)
def test_eager_jit_and_vmap_agree(fmt, policy, dtype):
    bits = blocks(fmt)
    with np.errstate(over="ignore", invalid="ignore"):
        x = jnp.asarray(bits.view(np.float32).astype(dtype)).reshape(8, 16, 32)
    eager = quantize(x, fmt, policy=policy)
    assert_bits_equal(jax.jit(lambda v: quantize(v, fmt, policy=policy))(x), eager)
    mapped = jax.vmap(lambda v: quantize(v, fmt, policy=policy))(x)
    assert mapped.axis == eager.axis
    assert_bits_equal(mapped, eager)
    values = dequantize(eager)
    assert_bits_equal(jax.jit(dequantize)(eager), values, "payload")
    assert_bits_equal(jax.vmap(dequantize)(eager), values, "payload")


def test_block_max_sees_subnormals():
    # A float maximum reads them as zero and would keep only the sign of the last one.
    x = np.zeros(32, np.uint32)
    x[3] = 0x00400000
    q = quantize(jnp.asarray(x.view(np.float32)), "e4m3fn")
    assert (int(q.scales[0]), int(q.codes[3])) == (0, 0x38)
    assert int(np.asarray(q.dequantize()).view(np.uint32)[3]) == 0x00400000


@pytest.mark.parametrize("shape", [(70,), (40, 5), (2, 31, 3)])
@pytest.mark.parametrize("block", [32, 7])
def test_any_axis_and_a_partial_last_block(shape, block):
    rng = np.random.default_rng(1)
    x = (rng.normal(size=shape) * 2.0 ** rng.integers(-9, 9, shape)).astype(np.float32)
    for axis in (*range(-len(shape), 0), 0):
        q = quantize(x, "e4m3fn", axis=axis, block=block)
        assert q.shape == shape
        moved = np.moveaxis(x, axis, -1)
        n = moved.shape[-1]
        codes = np.empty(moved.shape, np.uint8)
        scales = np.empty((*moved.shape[:-1], -(-n // block)), np.uint8)
        for start in range(0, n, block):
            part = moved[..., start : start + block]
            flat = np.ascontiguousarray(part.reshape(-1, part.shape[-1])).view(np.uint32)
            got, scale = by_oracle(flat, E4M3FN, OCP)
            codes[..., start : start + block] = got.reshape(part.shape)
            scales[..., start // block] = scale.reshape(part.shape[:-1])
        assert_bits_equal(np.asarray(q.codes), np.ascontiguousarray(np.moveaxis(codes, -1, axis)))
        assert_bits_equal(np.asarray(q.scales), np.ascontiguousarray(np.moveaxis(scales, -1, axis)))


@pytest.mark.parametrize("shape", [(8, 4), (16, 8), (9, 7), (2, 10, 5)])
def test_block_shape_is_a_tile_of_the_last_two_axes(shape):
    x = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    x = (x * 2.0 ** np.arange(x.size).reshape(shape)[::-1] ** 0.5).astype(np.float32)
    q = quantize(x, "e5m2", block=BlockShape(8, 4), policy=NEURON_2_24)
    p, f = -(-shape[-2] // 8), -(-shape[-1] // 4)
    assert q.scales.shape == (*shape[:-2], p, f)
    for index in np.ndindex(*shape[:-2], p, f):
        i, j = index[-2] * 8, index[-1] * 4
        where = (*index[:-2], slice(i, i + 8), slice(j, j + 4))
        tile = np.ascontiguousarray(x[where]).reshape(1, -1).view(np.uint32)
        codes, scale = by_oracle(tile, E5M2, NEURON_2_24)
        assert int(q.scales[index]) == scale[0]
        assert_bits_equal(np.asarray(q.codes[where]).reshape(1, -1), codes)
    back = quantize(q.dequantize(), "e5m2", block=BlockShape(8, 4), policy=NEURON_2_24)
    assert_bits_equal(back.dequantize(), q.dequantize())


EVERY_CODE = [(f, OCP) for f in ELEMENTS] + [(E2M1FN, NEURON_2_24), (E5M2, NEURON_2_24)]


@pytest.mark.parametrize(("fmt", "policy"), EVERY_CODE, ids=str)
def test_dequantize_every_code_and_scale(fmt, policy):
    codes = np.tile(np.arange(1 << fmt.bits, dtype=np.uint8), (256, 1))
    scales = np.arange(256, dtype=np.uint8)[:, None]
    q = MXArray(jnp.asarray(codes), jnp.asarray(scales), format=fmt, block=256, policy=policy)
    row = list(range(1 << fmt.bits))
    want = [oracle.dequantize_block(s, row, fmt, policy) for s in range(256)]
    assert_bits_equal(np.asarray(q.dequantize()).view(np.uint32), np.array(want, np.uint32))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_dequantize_to_sixteen_bits_rounds_once(dtype):
    codes = np.tile(np.arange(256, dtype=np.uint8), (64, 1))
    scales = np.arange(0, 256, 4, dtype=np.uint8)[:, None]
    q = MXArray(jnp.asarray(codes), jnp.asarray(scales), format=E4M3FN, block=256)
    bits = np.asarray(q.dequantize()).view(np.uint32)
    target = FORMATS[np.dtype(dtype).name]
    want = [oracle.encode(oracle.from_float32_bits(int(b)), target) for b in bits.ravel()]
    got = np.asarray(q.dequantize(dtype)).view(np.uint16).ravel()
    assert_bits_equal(got, np.array(want, np.uint16))
    assert q.dequantize(dtype).dtype == dtype


@pytest.mark.parametrize("shape", [(0,), (0, 5), (3, 0, 40)])
@pytest.mark.parametrize("block", [32, BlockShape()])
def test_empty_arrays(shape, block):
    if isinstance(block, BlockShape) and len(shape) < 2:
        return
    q = quantize(np.zeros(shape, np.float32), "e2m1fn", block=block)
    assert q.shape == shape
    assert q.dequantize().shape == shape
    assert jax.jit(lambda v: quantize(v, "e2m1fn", block=block))(jnp.zeros(shape)).shape == shape


def test_float64_is_rounded_to_odd_first():
    x = np.full(32, 1 + 2.0**-4 + 2.0**-40)
    assert (
        int(quantize(x, "e4m3fn").codes[0]) == int(quantize(np.float32(x), "e4m3fn").codes[0]) + 1
    )
    with jax.enable_x64(True):
        assert_bits_equal(quantize(jnp.asarray(x), "e4m3fn"), quantize(x, "e4m3fn"))


@pytest.mark.parametrize("x64", [False, True])
def test_bits_do_not_depend_on_x64(x64):
    bits = blocks(E4M3FN, 64)
    with jax.enable_x64(x64):
        q = quantize(jnp.asarray(bits.view(np.float32)), "e4m3fn")
        values = q.dequantize()
    assert (q.codes.dtype, q.scales.dtype, values.dtype) == (jnp.uint8, jnp.uint8, jnp.float32)
    assert_bits_equal(np.asarray(q.codes), by_oracle(bits, E4M3FN, OCP)[0])


def test_refusals():
    x = jnp.ones((4, 32), jnp.float32)
    with pytest.raises(FormatError, match="element"):
        quantize(x, "bfloat16")
    with pytest.raises(FormatError, match="element"):
        quantize(x, "e8m0fnu")
    with pytest.raises(ShapeError, match="axis"):
        quantize(x, "e4m3fn", axis=2)
    with pytest.raises(ShapeError, match="2 for a BlockShape"):
        quantize(x[0], "e4m3fn", block=BlockShape())
    with pytest.raises(ShapeError):
        quantize(jnp.float32(1), "e4m3fn")
    with pytest.raises(PolicyError, match="positive"):
        quantize(x, "e4m3fn", block=0)
    with pytest.raises(PolicyError, match="policy"):
        quantize(x, "e4m3fn", policy="none")
    with pytest.raises(ShapeError, match="floating"):
        quantize(x.astype(jnp.int32), "e4m3fn")
    with pytest.raises(FormatError, match="float32"):
        quantize(x, "e4m3fn").dequantize(jnp.float64)


def test_a_derivative_is_refused():
    def loss(x):
        return dequantize(quantize(x, "e4m3fn")).sum()

    for transform in (
        jax.grad,
        lambda f: lambda x: jax.jvp(f, (x,), (x,)),
        lambda f: jax.grad(jax.jit(f)),
    ):
        with pytest.raises(GradientError, match="fake_quantize"):
            transform(loss)(jnp.ones(32, jnp.float32))


def test_a_stopped_gradient_passes_by():
    x = jnp.linspace(-3, 3, 32, dtype=jnp.float32)
    value = quantize(x, "e4m3fn").dequantize()
    got = jax.grad(lambda v: (quantize(jax.lax.stop_gradient(v), "e4m3fn").dequantize() * v).sum())(
        x
    )
    assert_bits_equal(got, value)
