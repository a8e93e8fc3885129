"""Unwritten bytes stay loud through QuantizeMx, on the machine and in the oracle (D25a)."""

from __future__ import annotations

import numpy as np
import pytest

import mxref as mx
from mxref.oracle import Memory
from mxref.oracle.executor import execute

#: 32 channels of 8 bf16 ones at 0x1000; containers to 0, scales to 0x400.
BUNDLE = mx.QuantizeMx(
    src=mx.Tensor3D(mx.Addr4.sbuf(0, 0x1000), 1, 1, 1, 8, 1, 1),
    num_active_channels=32,
    src_dtype=0x06,
    dst_dtype=0x0E,
    dst=mx.MxPattern(mx.Addr4.sbuf(0, 0), mx.Addr4.scale(0, 0x400), 8, 1, 0),
)
HOLE = (9, 0x1000 + 2 * 5 + 1)  # a byte of element 5 of channel 9: block row 1, container 1
#: Partition, offset and length of results, and whether they depend on the missing byte.
RESULTS = [
    (0, 0, 8, False),
    (9, 0, 4, False),
    (8, 4, 4, True),
    (9, 4, 4, True),
    (15, 4, 4, True),
    (16, 4, 4, False),
    (1, 0x400, 1, False),
    (1, 0x401, 1, True),
]


@pytest.mark.parametrize("policy", [mx.OCP, mx.NEURON_2_24], ids=str)
def test_quantizing_unwritten_bytes_leaves_the_block_unwritten(policy):
    ones = np.full((32, 16), [0x80, 0x3F] * 8, np.uint8)
    memory, state = Memory(), mx.State.empty()
    for p, row in enumerate(ones):
        memory.write("SBUF", p, 0x1000, row.tobytes())
        memory.write("SBUF", p, 0, bytes(8))  # written before: the result must be forgotten
    state = state.write("SBUF", 0, 0, np.zeros((32, 8), np.uint8))
    memory.forget("SBUF", *HOLE, 1)
    p, hole = HOLE[0], HOLE[1] - 0x1000
    for first, last, left, right in (
        (0, p, 0, 16),
        (p, p + 1, 0, hole),
        (p, p + 1, hole + 1, 16),
        (p + 1, 32, 0, 16),
    ):
        state = state.write("SBUF", first, 0x1000 + left, ones[first:last, left:right])
    data = mx.encode(BUNDLE)
    want = execute(data, memory, policy)
    ran = np.asarray(mx.run(data, state, policy=policy).sbuf_written)
    for p, offset, count, missing in RESULTS:
        assert want.written("SBUF", p, offset, count) is not missing
        assert ran[p, offset : offset + count].all() != missing
