"""The digests of ``mxref selftest``, computed once more by the oracle."""

from __future__ import annotations

import numpy as np
import pytest

from mxref import oracle, selftest
from mxref.formats import E4M3FN, FORMATS, FP32
from mxref.oracle.executor import execute
from mxref.oracle.memory import Memory
from mxref.policy import BACKEND, NEURON_2_24, OCP, ORDERS, POLICIES, SYSTOLIC_MX

_STORAGE = {8: np.uint8, 16: np.uint16, 32: np.uint32}
NARROW_ONES = [spec for spec in FORMATS.values() if spec != FP32]
ORDER_NAMES = [name for name, order in ORDERS.items() if order != BACKEND]


@pytest.mark.parametrize("spec", NARROW_ONES, ids=str)
def test_format_digests_are_the_oracles(spec):
    parts = [
        np.array(
            [oracle.encode(oracle.from_float32_bits(int(b)), spec) for b in selftest.sources()],
            _STORAGE[spec.storage_bits],
        ),
        np.array(
            [oracle.float32_bits(oracle.decode(int(c), spec)) for c in selftest.code_points(spec)],
            np.uint32,
        ),
    ]
    if spec.bits <= 8 and spec.signed:
        for policy in POLICIES.values():
            blocks = [
                oracle.quantize_block([oracle.from_float32_bits(int(b)) for b in row], spec, policy)
                for row in selftest.block_sources()
            ]
            parts.append(np.array([codes for _, codes in blocks], np.uint8))
            parts.append(np.array([[scale] for scale, _ in blocks], np.uint8))
    assert selftest.digest(*parts) == selftest.EXPECTED[f"format {spec}"]


@pytest.mark.parametrize("name", ORDER_NAMES)
def test_order_digests_are_the_oracles(name):
    (a, sa), (b, sb) = selftest.orders_operands()
    inits = selftest.inits().tolist()
    words = [
        oracle.dot(
            a[m].tolist(), sa[m].tolist(), b[:, n].tolist(), sb[:, n].tolist(),
            E4M3FN, E4M3FN, OCP, ORDERS[name], init=inits[m][n],
        )
        for m in range(selftest.M)
        for n in range(selftest.N)
    ]  # fmt: skip
    found = selftest.digest(np.array(words, np.uint32).reshape(selftest.M, selftest.N))
    assert found == selftest.EXPECTED[f"order {name}"]


def test_bundle_digests_are_the_oracles():
    bundles = selftest.program()
    memory = Memory()
    for partition, row in enumerate(selftest.memory_words()):
        memory.write("SBUF", partition, 0, row.astype("<u2").tobytes())
    memory = execute(b"".join(bundles.values()), memory, NEURON_2_24, SYSTOLIC_MX)

    def rows(space, offset, partitions, size):
        return b"".join(memory.read(space, p, offset, size) for p in range(partitions))

    wide = 4 * selftest.COLUMNS
    data = rows("SBUF", selftest.DATA, selftest.ROWS, wide)
    scales = rows("SBUF", selftest.SCALE, selftest.ROWS // 8, selftest.COLUMNS)
    sums = rows("PSUM", 0, selftest.COLUMNS, wide)
    found = {
        "QuantizeMx": selftest.digest(bundles["QuantizeMx"], data, scales),
        "LdWeightMx": selftest.digest(bundles["LdWeightMx"]),
        "MatmultMx": selftest.digest(bundles["MatmultMx"], sums),
    }
    assert found == {name: selftest.EXPECTED[f"bundle {name}"] for name in bundles}


@pytest.mark.slow
def test_the_fast_path_gives_the_same_digests():
    found = list(selftest.checks())
    assert [c.name for c in found] == list(selftest.EXPECTED)
    assert [c.name for c in found if not c.passed] == []


def test_a_different_digest_is_not_passed():
    assert not selftest.Check("x", "0" * 16, "1" * 16).passed
