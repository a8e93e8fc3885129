"""Random legal programs: every byte of memory, and whether it was written, on both roads.

The programs are made of raw bytes here, not by the encoder: random places, row groups, walks,
flags, zero regions, destination shapes that overlap, NaN codes, extreme scales, unwritten bytes.
"""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

import mxref as mx
from mxref.errors import ExecutionError
from mxref.oracle import Memory
from mxref.oracle.executor import execute
from mxref.policy import (
    BLOCK,
    C_FIRST,
    NEURON_2_24,
    NEURON_2_31,
    NVIDIA,
    OCP,
    SEQUENTIAL,
    SYSTOLIC,
    SYSTOLIC_MX,
)

GROUPS = {0x1: (0, 32), 0x2: (32, 32), 0x4: (64, 32), 0x8: (96, 32), 0x3: (0, 64), 0xC: (64, 64)}
GROUPS[0xF] = (0, 128)
AREA = 0x300  # bytes of each partition that programs live in
COLUMNS, MOVING = 2, 4


def le(value: int, size: int) -> bytes:
    return (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def slot(rng: random.Random, base: int, columns: int, size: int) -> bytes:
    step = rng.choice((0x01, 0x01, 0xFF))
    data = rng.randrange(0, 0x200, size)
    scale = rng.randrange(0x200, 0x300 - columns)
    if step == 0xFF:
        data += (columns - 1) * size
        scale += columns - 1
    quadrant = base << 18
    extent = le(4 * columns, 2)
    tail = bytes([step, rng.choice((0, 4, 8, 12))]) + bytes(4)
    return le(quadrant + data, 4) + le(quadrant + scale, 4) + extent + tail


def program(rng: random.Random) -> bytes:
    group = rng.choice(list(GROUPS))
    base, rows = GROUPS[group]
    out = b""
    for _ in range(rng.randrange(1, 3)):
        tag = rng.choice((0x0E, 0x0F, 0x10))
        size = 2 if tag == 0x10 else 4
        control = bytes([tag, 0, 0, 0, 0, 0, rows, COLUMNS, 0, 0, 0, 0, group, 0x0F, 0, 0])
        out += b"\x09\x10" + bytes(14) + slot(rng, base, COLUMNS, size) + control + bytes(16)
        if rng.random() < 0.4:
            out += quantize(rng)
        for _ in range(rng.randrange(1, 3)):
            tag = rng.choice((0x0E, 0x0F, 0x10))
            size = 2 if tag == 0x10 else 4
            result, width = rng.choice(((0x0A, 4), (0x06, 2)))
            flags = rng.choice((0, 1, 2, 3, 4, 6))
            region = rng.choice((0, 0, 1, 2, 3))
            control = bytes([tag, 0, 0, 0, 0, 0, rows, COLUMNS, result, 0, 0, flags])
            control += bytes([group, 0x0F, 0, region])
            out += b"\x0a\x10" + bytes(14) + slot(rng, base, MOVING, size) + control
            out += destination(rng, width)
    return out


def destination(rng: random.Random, width: int) -> bytes:
    counts = rng.choice(((4, 1, 1), (2, 2, 1), (1, 2, 2), (1, 4, 1)))
    strides = [rng.choice((1, 1, 2, 3, -1, 0)) for _ in range(3)]
    # Stay inside one bank: the smallest zero region then always covers the writes.
    target = 0x2000000 + rng.choice((0, 1, 6)) * 2048 + 64 + width * rng.randrange(8)
    return le(target, 4) + b"".join(le(s, 2) for s in strides) + b"".join(le(n, 2) for n in counts)


def quantize(rng: random.Random) -> bytes:
    tag = rng.choice((0x0E, 0x0F))
    base, channels = rng.choice(((0, 32), (32, 32), (64, 64), (0, 96), (0, 128), (64, 32)))
    columns = rng.choice((COLUMNS, MOVING))
    target = base if channels > 32 else rng.choice((0, 32, 64, 96))
    count = {2: (4, 2, 1), 4: (4, 2, 2)}[columns]
    strides = rng.choice(((1, 4, 8), (1, 0, 6), (1, 20, 2), (1, 4, 8)))
    source = (base << 18) + rng.randrange(0x0, 0x100, 4)
    head = bytes([0xE3, rng.choice((0x10, 0x11))]) + bytes(14)
    src = le(source, 4) + b"".join(le(s, 2) for s in strides) + b"".join(le(n, 2) for n in count)
    control = bytes([0, channels, rng.choice((0x06, 0x07)), tag]) + bytes(12)
    return head + src + control + slot(rng, target, columns, 4)


def image(rng: random.Random, holes: bool) -> tuple[Memory, mx.State]:
    """The same random bytes on both roads; scales lie in the last third of the area."""
    memory = Memory()
    state = mx.State.empty(mx.Arch.MARIANA)
    data = np.array(
        [[rng.randrange(256) for _ in range(0x200)] for _ in range(128)], dtype=np.uint8
    )
    scales = np.array(
        [
            [rng.choice((0, 1, 254, 255)) if rng.random() < 0.01 else rng.randrange(115, 140)]
            for _ in range(128 * 0x100)
        ],
        dtype=np.uint8,
    ).reshape(128, 0x100)
    psum = np.zeros((128, 256), np.float32)
    psum[:COLUMNS] = [[rng.uniform(-9, 9) for _ in range(256)] for _ in range(COLUMNS)]
    chunks = [("SBUF", mx.Space.SBUF, 0, data), ("SBUF", mx.Space.SBUF, 0x200, scales)]
    chunks.append(("PSUM", mx.Space.PSUM, 0, psum.view(np.uint8)))
    for name, space, offset, array in chunks:
        # Leave out a few columns of bytes, so that both roads meet unwritten memory.
        cuts = [0, array.shape[1]]
        if holes:
            cuts = sorted({0, array.shape[1], *rng.sample(range(1, array.shape[1]), 4)})
        for first, last in itertools.pairwise(cuts):
            end = last - 1 if holes else last
            if end <= first:
                continue
            part = np.ascontiguousarray(array[:, first:end])
            state = state.write(space, 0, offset + first, part)
            for partition in range(128):
                memory.write(name, partition, offset + first, part[partition].tobytes())
    return memory, state


def assert_same_memory(memory: Memory, state: mx.State, where: object) -> None:
    spaces = (("SBUF", state.sbuf, state.sbuf_written), ("PSUM", state.psum, state.psum_written))
    for space, data, written in spaces:
        extent = AREA if space == "SBUF" else 0x4000
        for partition in range(128):
            flags = np.asarray(written[partition])
            assert not flags[extent:].any()
            ours = [memory.written(space, partition, at, 1) for at in range(AREA)]
            if space == "PSUM":
                if partition >= COLUMNS:
                    continue
                ours = [memory.written(space, partition, at, 1) for at in range(extent)]
            want = np.array(ours)
            assert np.array_equal(flags[:extent] != 0, want), (where, space, partition)
            held = np.frombuffer(memory.read(space, partition, 0, extent), np.uint8)
            got = np.asarray(data[partition, :extent])
            bad = np.flatnonzero((got != held) & want)
            assert not bad.size, (where, space, partition, hex(bad[0]), got[bad[0]], held[bad[0]])


COMBINATIONS = [
    (NEURON_2_24, SYSTOLIC_MX),
    (OCP, SEQUENTIAL),
    (NEURON_2_31, BLOCK),
    (NVIDIA, SYSTOLIC(1, 64)),
    (NEURON_2_24, C_FIRST),
    (OCP, BLOCK),
]


def compare(seed: int, policy, order) -> str:
    rng = random.Random(seed)
    holes = rng.random() < 0.3
    memory, state = image(rng, holes)
    bundles = program(rng)
    options = {
        "uninitialised": rng.choice(("nan", "zero", "raise") if holes else ("nan",)),
        "zero": rng.choice(("written", "bank")),
    }
    assert not [v for v in mx.check(bundles, mx.Arch.MARIANA, level="wire") if v], seed
    try:
        ours = execute(bundles, memory, policy, order, **options)
    except ExecutionError as ours:
        with pytest.raises(type(ours)):
            mx.run(bundles, state, policy=policy, accumulate=order, **options)
        return type(ours).__name__
    theirs = mx.run(bundles, state, policy=policy, accumulate=order, **options)
    assert_same_memory(ours, theirs, (seed, policy.name, str(order), options))
    return "equal"


def sweep(seeds: range) -> dict[str, int]:
    counts: dict[str, int] = {}
    for seed in seeds:
        result = compare(seed, *COMBINATIONS[seed % len(COMBINATIONS)])
        counts[result] = counts.get(result, 0) + 1
    return counts


def test_random_programs_leave_equal_memories():
    counts = sweep(range(6))
    assert counts["equal"] >= 4, counts


@pytest.mark.slow
def test_many_random_programs_leave_equal_memories():
    counts = sweep(range(1000, 1060))
    print(counts)
    assert counts["equal"] >= 45, counts
