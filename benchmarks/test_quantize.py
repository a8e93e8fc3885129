"""Quantize 16M float32 values beside the cheapest kernel that moves the same bytes.

The yardstick reads the same input and writes as many bytes by a plain conversion.  Rows are timed
in turn, so that a busy machine slows both sides.  Other processes only ever hide speed, so the
better of the ratios of medians and of minima counts, and a slow spell may be measured again.
"""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mxref as mx

SIDE = 4096
ROUNDS = 31
ATTEMPTS = 4
#: Elements per second must reach this fraction of the yardstick's.
LIMIT = 0.30


@pytest.fixture(scope="module")
def x() -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).normal(size=(SIDE, SIDE)).astype(np.float32))


def packed_fp4(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    codes, scales = mx.quantize(x, "float4_e2m1fn")
    return mx.pack_fp4(codes), scales


# One byte out per element, and half a byte; the second keeps every other converted value.
convert = {
    8: jax.jit(lambda x: x.astype(jnp.uint8)),
    4: jax.jit(lambda x: x.reshape(SIDE, SIDE // 2, 2)[..., 0].astype(jnp.uint8)),
}
KERNELS = {
    "float8_e4m3fn": (8, lambda x: tuple(mx.quantize(x, "float8_e4m3fn"))),
    "float8_e5m2": (8, lambda x: tuple(mx.quantize(x, "float8_e5m2"))),
    "float8_e4m3fn NEURON_2_24": (
        8,
        lambda x: tuple(mx.quantize(x, "float8_e4m3fn", policy=mx.NEURON_2_24)),
    ),
    "packed fp4, two calls": (4, packed_fp4),
    "packed fp4, one jit": (4, jax.jit(packed_fp4)),
}


def seconds(function, x) -> float:
    start = time.perf_counter()
    jax.block_until_ready(function(x))
    return time.perf_counter() - start


@pytest.mark.parametrize("name", KERNELS)
def test_quantize_beside_a_plain_conversion(name, x, benchmark):
    bits, kernel = KERNELS[name]
    rows = (convert[bits], kernel)
    for function in rows:
        seconds(function, x)
    ratio = 0.0
    for _ in range(ATTEMPTS):
        times = np.array([[seconds(f, x) for f in rows] for _ in range(ROUNDS)])
        typical, best = np.median(times, axis=0), times.min(axis=0)
        ratio = max(ratio, float(typical[0] / typical[1]), float(best[0] / best[1]))
        if ratio >= LIMIT:
            break
    benchmark.extra_info["ratio to conversion"] = round(ratio, 3)
    benchmark.extra_info["Gel/s"] = round(SIDE * SIDE / best[1] / 1e9, 3)
    benchmark.pedantic(lambda: jax.block_until_ready(kernel(x)), rounds=3)
    print(f"\n{name}: {ratio:.2f} of a conversion, {SIDE * SIDE / best[1] / 1e9:.2f} Gel/s")
    assert ratio >= LIMIT, f"{name}: {ratio:.2f} of a plain conversion, limit {LIMIT}"


def test_dequantize(x, benchmark):
    q = mx.quantize(x, "float8_e4m3fn")
    jax.block_until_ready(q.dequantize())
    benchmark.pedantic(lambda: jax.block_until_ready(q.dequantize()), rounds=5)
