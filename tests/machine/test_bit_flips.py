"""Every bit of every bundle of the demo matters, or is on the list of bits that do nothing.

Each of the 512 bits is flipped in turn.  The program is then refused with the field named, or its
output differs, or the bit belongs to a field listed below with the reason why it has no effect.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from encoding import Bundle, DecodeError, LdWeightMx, LegalityError, MatmultMx, QuantizeMx
from encoding.codec import leaves_of
from mxref.demo import programs
from mxref.errors import ExecutionError
from mxref.machine import run
from mxref.program import Program

SYNC = ("wait_semaphore", "update_semaphore", "semaphore_value")
#: Which fields may change without changing the output, by bundle, and why.
NO_EFFECT: dict[type[Bundle], dict[str, str]] = {
    LdWeightMx: dict.fromkeys(SYNC, "idle while both modes are 0"),
    MatmultMx: {
        **dict.fromkeys(SYNC, "idle while both modes are 0"),
        "accumulate_flags": "STOP, and 0 against ACCUMULATE",
        "psum_zero_region": "clears banks that hold no result",
        "dst.step1": "count 1",
        "dst.step2": "count 1",
    },
    QuantizeMx: {
        **dict.fromkeys(SYNC, "idle while both modes are 0"),
        "num_active_channels": "more channels than the matmul reads",
        "saturate_bit": "FP8 saturates either way",
        "src.step1": "count 1",
        "src.step2": "count 1",
    },
}
STOP_OR_ACCUMULATE = 0b110


def field_of(bundle: type[Bundle], bit: int) -> str:
    """The dotted path of the field that owns a bit of the bundle."""
    (path,) = [leaf.path for leaf in leaves_of(bundle) if leaf.mask >> bit & 1]
    return path


def outcome(program: Program, want: np.ndarray, data: bytes) -> str:
    try:
        out = run(program.with_bundles(data)).outputs["out"]
    except LegalityError as error:
        named = all(v.field and v.id for v in error.violations)
    except (DecodeError, ExecutionError) as error:
        named = bool(error.field) and error.index >= 0
    else:
        same = np.array_equal(out.view(np.uint32), want.view(np.uint32))
        return "no effect" if same else "changed"
    return "refused" if named else "refused without a field"


def flip_all(name: str) -> Counter[str]:
    program = programs()[name]
    want = run(program).outputs["out"]
    data = program.bytes()
    counts: Counter[str] = Counter()
    surprises = []
    for index, instruction in enumerate(program.instructions()):
        for bit in range(512):
            flipped = bytearray(data)
            flipped[64 * index + bit // 8] ^= 1 << bit % 8
            result = outcome(program, want, bytes(flipped))
            counts[result] += 1
            path = field_of(type(instruction), bit)
            listed = path in NO_EFFECT[type(instruction)]
            if path == "accumulate_flags":
                listed = bool(1 << bit % 8 & STOP_OR_ACCUMULATE)
            if path == "num_active_channels":
                listed = flipped[64 * index + bit // 8] > data[64 * index + bit // 8]
            if result == "no effect" and not listed:
                surprises.append((index, type(instruction).__name__, path, bit))
    print(f"{name}: {dict(counts)}")
    assert not surprises, surprises
    return counts


def test_every_bit_of_the_fp4_demo() -> None:
    assert flip_all("MXFP4") == {"refused": 1605, "no effect": 263, "changed": 180}


@pytest.mark.slow
def test_every_bit_of_the_fp8_demo() -> None:
    assert flip_all("MXFP8") == {"refused": 3085, "no effect": 589, "changed": 422}
