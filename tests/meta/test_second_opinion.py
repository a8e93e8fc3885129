"""The replay through the oracle: agreement on small programs, and that it can disagree."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import mxref as mx
from mxref import second_opinion as room
from mxref.second_opinion import second_opinion
from mxref.testing import assert_bits_equal

RNG = np.random.default_rng(11)
X = RNG.standard_normal((3, 100), np.float32)
W = RNG.standard_normal((100, 5), np.float32)


def lowered(fmt: mx.FormatSpec, **options: object) -> mx.Program:
    return mx.lower_matmul(mx.quantize(X, fmt), mx.quantize(W, fmt, axis=-2), **options)


def quantizing(**options: object) -> mx.Program:
    x, w = (np.asarray(jnp.asarray(a, jnp.bfloat16)) for a in (X, W))
    return mx.lower_matmul(x, w, mx.E5M2, **options)


@pytest.mark.parametrize(
    "program",
    [
        lowered(mx.E4M3FN),
        lowered(mx.E2M1FN),
        lowered(mx.E5M2, out_dtype=jnp.bfloat16),
        quantizing(),
    ],
    ids=["E4M3FN", "E2M1FN", "bfloat16 out", "QuantizeMx"],
)
def test_it_agrees_with_the_machine(program):
    ran = mx.run(program).outputs
    opinion = second_opinion(program)
    assert ran.keys() == opinion.keys()
    for name, bits in opinion.items():
        assert_bits_equal(np.asarray(ran[name]).view(bits.dtype), bits)


def _flip_scale_rows(memory, write, source, parts):
    """Place the scales one partition off, as a wrong layout would."""
    if write.part == "scales":
        write = dataclasses.replace(write, partition=write.partition ^ 1)
    PLACE(memory, write, source, parts)


def _swap_lanes(memory, write, source, parts):
    """Exchange neighbouring lanes of the codes."""
    if write.part == "codes":
        codes = parts["codes"]
        pairs = np.arange(len(codes)) ^ 1
        parts = parts | {"codes": codes[np.minimum(pairs, len(codes) - 1)]}
    PLACE(memory, write, source, parts)


PLACE = room._place


@pytest.mark.parametrize("wrong", [_flip_scale_rows, _swap_lanes])
def test_a_wrong_layout_is_another_opinion(monkeypatch, wrong):
    """Only the left operand is misplaced: a mistake on both sides of the product would cancel."""
    program = lowered(mx.E4M3FN)
    truth = second_opinion(program)["out"]

    def place(memory, write, source, parts):
        (wrong if write.input == "lhs" else PLACE)(memory, write, source, parts)

    monkeypatch.setattr(room, "_place", place)
    assert (second_opinion(program)["out"] != truth).mean() > 0.9


def test_what_it_cannot_judge():
    with pytest.raises(mx.ProgramError, match="adjacent k map"):
        second_opinion(quantizing(kmap="strided"))
    program = lowered(mx.E4M3FN)
    empty = {n: dataclasses.replace(i, data=None) for n, i in program.inputs.items()}
    with pytest.raises(mx.ProgramError, match="needs its data"):
        second_opinion(dataclasses.replace(program, inputs=empty))
    x = np.asarray(jnp.asarray(X, jnp.bfloat16))
    with pytest.raises(mx.ProgramError, match="an output of uint8"):
        second_opinion(mx.lower_quantize(x, mx.E4M3FN))
