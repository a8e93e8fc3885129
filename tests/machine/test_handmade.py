"""Programs that no lowering made: every byte equals the oracle's executor."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from encoding import Addr4, MxPattern, QuantizeMx, Tensor3D
from mxref.formats import BF16
from mxref.machine.accumulate import round_to_bfloat16
from mxref.oracle import encode as oracle_encode
from mxref.oracle import from_float32_bits
from mxref.policy import BLOCK, NEURON_2_31, OCP, SEQUENTIAL

E4M3, E5M2, E2M1 = "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"
M, N = 2, 3
TILES = [(32, 1, 0), (32, 2, 32), (32, 4, 64), (32, 8, 96), (64, 3, 0), (64, 12, 64), (128, 15, 0)]


def psum(bank: int, offset: int, *shape: int) -> Tensor3D:
    """``shape``: three steps, then three counts."""
    return Tensor3D(Addr4.psum(0, bank, offset), *shape)


@pytest.mark.parametrize(("rows", "group", "base"), TILES)
def test_row_tiles_at_every_position(bench, agree, rows, group, base) -> None:
    left = bench.operand(base, rows, M, data=0x1234 & ~3, scale=0x777, slot=4)
    right = bench.operand(base, rows, N, E5M2, data=0x3FFE0, scale=0x3FFF0, slot=12)
    bench.load(left, rows, group)
    bench.multiply(right, rows, group, M, dst=psum(7, 2036, 1, 1, 1, N, 1, 1), flags=3)
    state = agree(bench.bundles, bench.state)
    out = state.read("psum", 0, 7 * 2048 + 2036, (M, N), "float32")
    assert np.isfinite(out).all()
    assert len(np.unique(out)) == M * N


@pytest.mark.parametrize(
    ("order", "policy"),
    [
        (BLOCK, OCP),
        (SEQUENTIAL, NEURON_2_31),
        pytest.param(BLOCK, NEURON_2_31, marks=pytest.mark.slow),
        pytest.param(SEQUENTIAL, OCP, marks=pytest.mark.slow),
    ],
)
def test_other_orders_and_policies(bench, agree, order, policy) -> None:
    for base, group in ((0, 1), (32, 2)):
        left = bench.operand(base, 32, M, E2M1, data=0x100, scale=0x200)
        right = bench.operand(base, 32, N, E5M2, data=0x400, scale=0x600)
        bench.load(left, 32, group)
        bench.multiply(right, 32, group, M, flags=1 if base == 0 else 4)
    agree(bench.bundles, bench.state, order=order, policy=policy)


def test_interleaved_tiles(bench, agree) -> None:
    """Two tiles are loaded before either is used, then both again in the other order."""
    a = bench.operand(0, 32, M), bench.operand(0, 32, N, data=0x40, scale=0x8010)
    b = bench.operand(32, 32, M), bench.operand(32, 32, N, data=0x40, scale=0x8010)
    bench.load(a[0], 32, 1)
    bench.load(b[0], 32, 2)
    for bank, (first, second) in enumerate((((a, 1), (b, 2)), ((b, 2), (a, 1)))):
        for flags, ((_, right), group) in zip((1, 2), (first, second), strict=True):
            bench.multiply(right, 32, group, M, dst=psum(bank, 0, 1, 1, 1, N, 1, 1), flags=flags)
    agree(bench.bundles, bench.state)


def test_a_tile_made_of_two_loads(bench, agree) -> None:
    """Latches belong to quadrants: two loads of 32 rows serve one matmul of 64."""
    whole = bench.operand(64, 64, N, data=0x80)
    bench.load(bench.operand(64, 32, M, slot=8), 32, 4)
    bench.load(bench.operand(96, 32, M + 2, slot=8), 32, 8)
    bench.multiply(whole, 64, 12, M)
    agree(bench.bundles, bench.state)


def test_a_reload_replaces_only_its_quadrants(bench, agree) -> None:
    bench.load(bench.operand(0, 64, M), 64, 3)
    bench.load(bench.operand(32, 32, M, data=0x20, scale=0x8020), 32, 2)
    bench.multiply(bench.operand(0, 64, N, data=0x80, slot=4), 64, 3, M)
    agree(bench.bundles, bench.state)


def test_a_second_load_of_the_same_group_counts(bench, agree) -> None:
    right = bench.operand(0, 32, N, data=0x80, slot=4)
    for bank, at in enumerate((0, 0x20)):
        bench.load(bench.operand(0, 32, M, data=at, scale=0x8000 + at), 32, 1)
        bench.multiply(right, 32, 1, M, dst=psum(bank, 0, 1, 1, 1, N, 1, 1))
    state = agree(bench.bundles, bench.state)
    first, second = (state.read("psum", 0, 2048 * bank, (M, N), "float32") for bank in (0, 1))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("data", [0x80, 0x800], ids=["data and scales", "scales only"])
def test_a_moving_operand_written_over_is_read_again(bench, agree, data) -> None:
    right = bench.operand(0, 32, N, data=0x80, slot=4)
    bench.put("sbuf", 0, 0x4000, np.full((32, 4 * N), 24, np.float16))
    bench.load(bench.operand(0, 32, M), 32, 1)
    bench.multiply(right, 32, 1, M)
    bench.bundles.append(
        QuantizeMx(
            src=Tensor3D(Addr4.sbuf(0, 0x4000), 1, 1, 1, 4 * N, 1, 1),
            num_active_channels=32,
            src_dtype=0x07,
            dst_dtype=0x0E,
            dst=replace(right[0], data=Addr4.sbuf(0, data)),
        )
    )
    bench.multiply(right, 32, 1, M, dst=psum(1, 0, 1, 1, 1, N, 1, 1))
    state = agree(bench.bundles, bench.state)
    first, second = (state.read("psum", 0, 2048 * bank, (M, N), "float32") for bank in (0, 1))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("zero", ["written", "bank"])
@pytest.mark.parametrize("region", [0, 1, 2, 3])
@pytest.mark.parametrize("flags", [0, 1, 2, 3, 4, 6])
def test_every_flag_and_zero_region(bench, agree, flags, region, zero) -> None:
    """All of PSUM holds a value first, so that what START clears shows in every bank."""
    bench.put("psum", 0, 0, np.full((4, 4096), 1.5, np.float32))
    bench.load(bench.operand(32, 32, M), 32, 2)
    right = bench.operand(32, 32, N, data=0x80, slot=4)
    bench.multiply(right, 32, 2, M, dst=psum(5, 64, 1, 1, 1, N, 1, 1), flags=flags, zero=region)
    state = agree(bench.bundles, bench.state, zero=zero)
    banks = state.read("psum", 0, 0, (4, 4096), "float32").reshape(4, 8, 512)
    cleared = {int(b) for b in np.flatnonzero((banks[0, :, 500:] == 0).all(axis=1))}
    window = {(1, 0): {4, 5}, (2, 0): {4, 5, 6, 7}, (3, 0): set(range(8))}.get((region, 0), set())
    if region == 0 and zero == "bank":
        window = {5}
    assert cleared == (window if flags & 1 else set())
    assert (banks[2:] == 1.5).all()


DESTINATIONS = {
    "3-D": psum(0, 256, 1, 8, 20, 2, 1, 3),
    "backwards": psum(1, 40, -1, 1, 1, 6, 1, 1),
    "outer backwards": psum(1, 400, 3, -7, 1, 2, 3, 1),
    "all in one": psum(2, 0, 0, 1, 1, 6, 1, 1),
    "pairs in one": psum(2, 0, 1, 0, 1, 2, 3, 1),
    "half overlapping": psum(2, 0, 1, 1, 1, 3, 2, 1),
    "across banks": psum(3, 2044, 1, 1, 1, 6, 1, 1),
}


@pytest.mark.parametrize("out", [0x0A, 0x06], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", DESTINATIONS)
def test_destinations(bench, agree, name, out) -> None:
    """Elements that share bytes are added one after the other, in element order (D25a)."""
    dst = DESTINATIONS[name]
    bench.put("psum", 0, 0, bench.rng.random((128, 4096), np.float32))
    left = bench.operand(32, 32, M)
    right = bench.operand(32, 32, 6, E2M1, data=0x80, slot=4)
    bench.load(left, 32, 2)
    for flags in (1, 4):
        region = 1 if name == "across banks" else 0
        bench.multiply(right, 32, 2, M, dst=dst, flags=flags, zero=region, out=out)
    agree(bench.bundles, bench.state)


@pytest.mark.parametrize("fmt", [E4M3, E2M1])
def test_a_reversed_walk_reverses_data_and_scales(bench, agree, fmt) -> None:
    """D9, D25b: with step -1 both addresses name the last column."""
    from mxref.machine import run

    size = 2 if fmt == E2M1 else 4
    forward = bench.operand(0, 32, N, fmt, data=0x100, scale=0x300)
    last = replace(
        forward[0],
        data=Addr4.sbuf(0, 0x100 + size * (N - 1)),
        scale=Addr4.sbuf(0, 0x300 + N - 1),
        step=-1,
    )
    left = bench.operand(0, 32, M, data=0x200, scale=0x400)
    bench.load(left, 32, 1)
    bench.multiply((last, forward[1]), 32, 1, M)
    state = agree(bench.bundles, bench.state)
    bench.bundles.pop()
    bench.multiply(forward, 32, 1, M)
    plain = run(bench.bundles, bench.state)
    got, want = (s.read("psum", 0, 0, (M, N), "float32") for s in (state, plain))
    assert np.array_equal(got[:, ::-1], want)


def test_results_of_quantize_feed_a_matmul(bench, agree) -> None:
    """QuantizeMx from a 3-D fp16 source with 96 channels, written backwards; FP4 too (D11)."""
    values = bench.rng.standard_normal((96, 64)).astype(np.float16)
    bench.put("sbuf", 0, 0x1000, values)
    src = Tensor3D(Addr4.sbuf(0, 0x1000 + 2 * 60), 1, -20, 2, 4, 3, 1)
    for fmt, data, step in ((0x0E, 0x20, 1), (0x0F, 0x60, -1), (0x10, 0x80, 1)):
        bench.bundles.append(
            QuantizeMx(
                src=src,
                num_active_channels=96,
                src_dtype=0x07,
                dst_dtype=fmt,
                saturate_bit=fmt == 0x0F,
                dst=MxPattern(Addr4.sbuf(0, data), Addr4.scale(0, 0x200 + data), 12, step, 8),
            )
        )
    bench.load(bench.operand(0, 32, M, data=0x400, scale=0x500), 32, 1)
    moved = MxPattern(Addr4.sbuf(0, 0x20), Addr4.scale(0, 0x220), 12, 1, 8)
    bench.multiply((moved, 0x0E), 32, 1, M)
    agree(bench.bundles, bench.state)


@pytest.mark.parametrize("policy", [OCP, NEURON_2_31])
def test_quantize_of_specials(bench, agree, policy) -> None:
    values = np.float32([[0, -0.0, 1, -1, np.inf, 2, 3, 4, np.nan, 1e-40, 2**-126, 448]] * 32)
    values[::3] *= np.float32(-0.75)
    bench.put("sbuf", 32, 0, values.astype(ml_dtypes.bfloat16))
    bench.bundles.append(
        QuantizeMx(
            src=Tensor3D(Addr4.sbuf(32, 0), 1, 1, 1, 12, 1, 1),
            num_active_channels=32,
            src_dtype=0x06,
            dst_dtype=0x0E,
            dst=MxPattern(Addr4.sbuf(64, 0), Addr4.scale(64, 64), 12, 1, 0),
        )
    )
    agree(bench.bundles, bench.state, policy=policy)


@pytest.mark.parametrize("uninitialised", ["nan", "zero"])
@pytest.mark.parametrize("hole", ["left data", "left scale", "right data", "right scale", "psum"])
def test_reading_what_nothing_wrote(bench, agree, hole, uninitialised) -> None:
    """D25a: one missing byte makes its whole output row or column NaN, or counts as zero."""
    from mxref.machine import State

    left = bench.operand(0, 32, M)
    right = bench.operand(0, 32, N, data=0x80, scale=0x8080)
    place = {"left data": (5, 6), "left scale": (2, 0x8001), "right data": (31, 0x80 + 11)}
    place["right scale"] = (3, 0x8081)
    bench.load(left, 32, 1)
    bench.multiply(right, 32, 1, M, flags=4 if hole == "psum" else 1)
    written = np.array(bench.state.sbuf_written)
    if hole != "psum":
        written[place[hole]] = False
    sbuf = np.where(written, bench.state.sbuf, np.uint8(0))
    holed = State(sbuf, bench.state.psum, written, bench.state.psum_written)
    state = agree(bench.bundles, holed, uninitialised=uninitialised)
    out = state.read("psum", 0, 0, (M, N), "float32")
    lost = np.zeros((M, N), np.bool_)
    if uninitialised == "nan":
        where = {"left data": (1,), "left scale": (1,), "right data": (slice(None), 2)}
        where |= {"right scale": (slice(None), 1), "psum": (slice(None),)}
        lost[where[hole]] = True
    assert np.array_equal(np.isnan(out), lost)
    assert (out.view(np.uint32)[lost] == 0x7FC00000).all()


def test_random_programs(bench, agree) -> None:
    """Tiles, addresses, slots, flags and destinations drawn at random; shapes are kept few."""
    for seed in range(3):
        bench = type(bench)(seed)
        rng = bench.rng
        base = rng.random((128, 4096), np.float32)
        bench.put("psum", 0, 0, base)
        loaded: dict[int, int] = {}
        for turn in range(8):
            quadrant = int(rng.integers(4))
            group, at = 1 << quadrant, 0x400 * turn
            slot = int(rng.choice([0, 4, 8, 12]))
            if quadrant not in loaded or rng.random() < 0.4:
                fmt = E4M3
                left = bench.operand(32 * quadrant, 32, M, fmt, data=at, scale=at + 64, slot=slot)
                bench.load(left, 32, group)
                loaded[quadrant] = turn
            right = bench.operand(
                32 * quadrant, 32, N, E4M3, data=at + 128, scale=at + 256, slot=slot
            )
            step = int(rng.integers(-3, 4))
            start = psum(int(rng.integers(8)), 4 * int(rng.integers(50, 100)), step, 1, 1, N, 1, 1)
            bench.multiply(
                right,
                32,
                group,
                M,
                dst=start,
                flags=int(rng.choice([0, 1, 2, 3, 4, 6])),
                zero=int(rng.integers(4)),
                out=int(rng.choice([0x0A, 0x06])),
            )
        agree(bench.bundles, bench.state)


def test_bfloat16_rounding_equals_oracle() -> None:
    """Every exponent, the halfway points and their neighbours, carries into Inf, NaN."""
    high = np.arange(0, 1 << 16, 37, dtype=np.uint32) << np.uint32(16)
    low = np.uint32([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF])
    bits = np.r_[
        (high[:, None] | low).reshape(-1),
        np.uint32([0x7F7FFFFF, 0x7F7F8000, 0x7F7F7FFF, 0xFFFFFFFF, 0x7F800001, 0xFF800000]),
    ]
    got = round_to_bfloat16(bits)
    want = [oracle_encode(from_float32_bits(int(b)), BF16) for b in bits]
    assert got.tolist() == want


def test_loads_are_copied_when_they_happen(bench, agree) -> None:
    """A later write to SBUF does not reach the latches."""
    left = bench.operand(0, 32, M)
    right = bench.operand(0, 32, N, data=0x80, slot=4)
    values = bench.rng.standard_normal((32, 8)).astype(ml_dtypes.bfloat16)
    bench.put("sbuf", 0, 0x4000, values)
    bench.load(left, 32, 1)
    bench.bundles.append(
        QuantizeMx(
            src=Tensor3D(Addr4.sbuf(0, 0x4000), 1, 1, 1, 8, 1, 1),
            num_active_channels=32,
            src_dtype=0x06,
            dst_dtype=0x0E,
            dst=left[0],
        )
    )
    bench.multiply(right, 32, 1, M)
    agree(bench.bundles, bench.state)
