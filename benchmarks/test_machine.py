"""Run a lowered program beside the sum of its direct tile kernels (second run: all compiled).

The yardstick is what the bundles have to compute and nothing else: one ordered dot product per
MatmultMx and one quantization per QuantizeMx, on device arrays of the tile's shape.  Decoding,
checking, placement, PSUM and the result are the machine's own cost.  Both sides are timed in turn;
other processes only ever hide speed, so the better of the ratios of medians and of minima counts.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import mxref as mx
from encoding import LdWeightMx, MatmultMx, QuantizeMx
from mxref.dot import dot_codes
from mxref.program import Program

SIZE = 1024
ROUNDS = 9
ATTEMPTS = 4
#: A run may take this many times its kernels.
LIMIT = 2.0
RNG = np.random.default_rng(0)


def program(fmt: str) -> Program:
    x, w = (RNG.standard_normal((SIZE, SIZE)).astype(ml_dtypes.bfloat16) for _ in range(2))
    return mx.lower_matmul(x, w, fmt)


def kernels(lowered: Program) -> list[tuple[Callable[[], jax.Array], int]]:
    """The distinct kernels of a program, each with how often it runs."""
    counts: Counter[tuple] = Counter()
    columns = 0
    fmt = next(iter(lowered.inputs.values())).format
    for bundle in lowered.instructions():
        match bundle:
            case LdWeightMx():
                columns = bundle.num_active_cols
            case MatmultMx():
                counts["dot", columns, 4 * bundle.num_active_rows, bundle.src.extent // 4] += 1
            case QuantizeMx():
                counts["quantize", bundle.num_active_channels, bundle.src.count] += 1
    made: list[tuple[Callable[[], jax.Array], int]] = []
    for (kind, *shape), count in counts.items():
        if kind == "quantize":
            values = jnp.asarray(RNG.standard_normal(shape), jnp.bfloat16)
            made.append((quantizer(values, fmt, lowered.policy), count))
        else:
            made.append((dot(*shape, fmt, lowered), count))
    return made


def quantizer(values: jax.Array, fmt, policy) -> Callable[[], jax.Array]:
    block = mx.BlockShape(8, 4)
    return lambda: mx.quantize(values, fmt, block=block, policy=policy).codes


def dot(m: int, k: int, n: int, fmt, lowered: Program) -> Callable[[], jax.Array]:
    a = mx.quantize(RNG.standard_normal((m, k)), fmt, policy=lowered.policy)
    b = mx.quantize(RNG.standard_normal((k, n)), fmt, axis=-2, policy=lowered.policy)
    start = jnp.zeros((m, n), jnp.float32)
    how = {"policy": lowered.policy, "order": lowered.order, "start": start}
    return lambda: dot_codes(
        a.codes, a.scales, b.codes, b.scales, lhs_format=fmt, rhs_format=fmt, **how
    )


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(function())
    return time.perf_counter() - start


def all_kernels(made: list[tuple[Callable[[], jax.Array], int]]) -> list[jax.Array]:
    return [jax.block_until_ready(kernel()) for kernel, count in made for _ in range(count)]


@pytest.mark.parametrize("fmt", ["float8_e4m3fn", "float4_e2m1fn"])
def test_run_beside_its_tile_kernels(fmt: str, benchmark) -> None:
    lowered = program(fmt)
    made = kernels(lowered)
    mx.run(lowered)
    all_kernels(made)
    for attempt in range(ATTEMPTS):
        times = [
            (seconds(lambda: mx.run(lowered).outputs), seconds(lambda: all_kernels(made)))
            for _ in range(ROUNDS)
        ]
        runs, tiles = np.array(times).T
        ratio = min(np.median(runs) / np.median(tiles), runs.min() / tiles.min())
        if ratio <= LIMIT or attempt == ATTEMPTS - 1:
            break
    benchmark.extra_info["x tile kernels"] = f"{ratio:.2f} (limit {LIMIT})"
    benchmark.pedantic(lambda: mx.run(lowered), rounds=3)
    print(f"{fmt}: {ratio:.2f} x; run {runs.min() * 1e3:.1f} ms, tiles {tiles.min() * 1e3:.1f} ms")
    assert ratio <= LIMIT
