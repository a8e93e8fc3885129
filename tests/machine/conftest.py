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
