"""Programs made by hand, and the oracle's executor as a second opinion on all of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import encoding
from mxref.machine import State, run
from mxref.oracle.executor import execute
from mxref.oracle.memory import Memory
from mxref.policy import NEURON_2_24, SYSTOLIC_MX


def _runs(mask: np.ndarray) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.r_[False, mask, False].astype(np.int8)))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def to_oracle(state: State) -> Memory:
    memory = Memory()
    for space in ("SBUF", "PSUM"):
        raw = np.asarray(getattr(state, space.lower()))
        written = np.asarray(getattr(state, space.lower() + "_written"))
        for partition in np.flatnonzero(written.any(axis=1)):
            for low, high in _runs(written[partition]):
                memory.write(space, int(partition), low, raw[partition, low:high].tobytes())
    return memory


def assert_same_memories(state: State, memory: Memory) -> None:
    """Compare every written byte, and which bytes are written."""
    for space in ("SBUF", "PSUM"):
        raw = np.asarray(getattr(state, space.lower()))
        written = np.asarray(getattr(state, space.lower() + "_written"))
        for partition in range(128):
            held = memory._bytes[space, partition]
            mine = set(np.flatnonzero(written[partition]).tolist())
            assert held.keys() == mine, (space, partition)
            for low, high in _runs(written[partition]):
                want = memory.read(space, partition, low, high - low)
                assert raw[partition, low:high].tobytes() == want, (space, partition, low)


@pytest.fixture
def agree() -> Callable[..., State]:
    """Run instructions in the machine and in the oracle; every byte must be the same."""

    def both(
        bundles,
        state: State,
        *,
        policy=NEURON_2_24,
        order=SYSTOLIC_MX,
        zero="written",
        uninitialised="nan",
    ) -> State:
        data = b"".join(encoding.encode(b) for b in bundles)
        options = {"zero": zero, "uninitialised": uninitialised}
        mine = run(data, state, policy=policy, accumulate=order, **options)
        theirs = execute(data, to_oracle(state), policy, order, **options)
        assert_same_memories(mine, theirs)
        return mine

    return both


WIRE = {"float8_e4m3fn": 0x0E, "float8_e5m2": 0x0F, "float4_e2m1fn": 0x10}


class Bench:
    """Builds a memory and a program by hand, one operand and one bundle at a time."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.bundles: list[encoding.Bundle] = []
        self._arrays = [
            np.zeros((128, n), t) for t in (np.uint8, np.bool_) for n in (1 << 18, 1 << 14)
        ]

    @property
    def state(self) -> State:
        """The memory so far; State.write would copy all of it for every operand."""
        return State(*self._arrays)

    def put(self, space: str, partition: int, offset: int, array: np.ndarray) -> None:
        raw = np.ascontiguousarray(array).view(np.uint8)
        where = slice(partition, partition + raw.shape[0]), slice(offset, offset + raw.shape[1])
        chosen = self._arrays[0::2] if space == "sbuf" else self._arrays[1::2]
        for memory, value in zip(chosen, (raw, True), strict=True):
            memory[where] = value

    def operand(
        self,
        partition: int,
        rows: int,
        columns: int,
        fmt: str = "float8_e4m3fn",
        *,
        data: int = 0,
        scale: int = 0x8000,
        slot: int = 0,
        step: int = 1,
    ) -> tuple[encoding.MxPattern, int]:
        """Write random codes without specials and scales near 1; return pattern and dtype."""
        size = 2 if fmt == "float4_e2m1fn" else 4
        low = data - (columns - 1) * size if step < 0 else data
        raw = self.rng.integers(0, 256, (rows, columns * size), np.uint8)
        if size == 4:
            # Clearing bit 6 keeps E5M2 and E4M3 finite and the magnitudes below 2.
            raw &= np.uint8(0xBF)
        self.put("sbuf", partition, low, raw)
        low = scale - (columns - 1) if step < 0 else scale
        for i in range(rows // 8):
            at = partition + slot + 32 * (i // 4) + i % 4
            codes = self.rng.integers(122, 133, (1, columns)).astype(np.uint8)
            self.put("sbuf", at, low, codes)
        pattern = encoding.MxPattern(
            encoding.Addr4.sbuf(partition, data),
            encoding.Addr4.scale(partition, scale),
            4 * columns,
            step,
            slot,
        )
        return pattern, WIRE[fmt]

    def load(self, operand: tuple[encoding.MxPattern, int], rows: int, group: int) -> None:
        self.bundles.append(
            encoding.LdWeightMx(
                src=operand[0],
                dtype=operand[1],
                num_active_rows=rows,
                num_active_cols=operand[0].extent // 4,
                row_group=group,
            )
        )

    def multiply(
        self,
        operand: tuple[encoding.MxPattern, int],
        rows: int,
        group: int,
        columns: int,
        *,
        dst: encoding.Tensor3D | None = None,
        flags: int = 1,
        zero: int = 0,
        out: int = 0x0A,
        **rest,
    ) -> None:
        n = operand[0].extent // 4
        where = dst or encoding.Tensor3D(encoding.Addr4.psum(0, 0, 0), 1, 1, 1, n, 1, 1)
        self.bundles.append(
            encoding.MatmultMx(
                src=operand[0],
                dtype=operand[1],
                num_active_rows=rows,
                num_active_cols=columns,
                out_dtype=out,
                accumulate_flags=flags,
                row_group=group,
                psum_zero_region=zero,
                dst=where,
                **rest,
            )
        )


@pytest.fixture
def bench() -> Bench:
    return Bench()
