"""run: program files and raw bundles, comparison, damage, and bad input in one line."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import mxref as mx
from mxref.testing import assert_bits_equal

RNG = np.random.default_rng(3)
X = RNG.standard_normal((5, 70), np.float32)
W = RNG.standard_normal((70, 6), np.float32)


def quantized(x, w):
    return mx.quantize(x, mx.E4M3FN), mx.quantize(w, mx.E4M3FN, axis=-2)


@pytest.fixture
def program(room) -> mx.Program:
    made = mx.lower_matmul(*quantized(X, W))
    made.save(room / "p.mxp")
    return made


@pytest.fixture
def outcome(program, call, room):
    """The program's outputs, written by the command."""
    done = call("run", "p.mxp", "--out", "out.npz")
    assert done.code == 0, done
    with np.load(room / "out.npz") as arrays:
        return dict(arrays)


def test_outputs_are_the_direct_product(outcome, program):
    (name,) = program.outputs
    want = mx.matmul(*quantized(X, W), accumulate=mx.SYSTOLIC_MX)
    assert_bits_equal(outcome[name], np.asarray(want))


def test_expect_agrees(outcome, call):
    done = call("run", "p.mxp", "--expect", "out.npz")
    assert done.code == 0
    assert "equal    out, 960 bits" in done.out


def test_expect_differs_in_one_bit(outcome, call, room):
    outcome["out"].view(np.uint32)[2, 3] ^= 1
    np.savez(room / "out.npz", **outcome)
    done = call("run", "p.mxp", "--expect", "out.npz")
    assert done.code == 1
    assert "differs  out: 1 of 30 elements differ, first [2, 3]: got " in done.out


def test_expect_of_another_shape_or_name(outcome, call, room):
    np.savez(room / "other.npz", other=outcome["out"], out=outcome["out"][:2])
    done = call("run", "p.mxp", "--expect", "other.npz")
    assert done.code == 1
    assert "out: arrays: shape (5, 6), want (2, 6)" in done.out
    assert "other: not in the outcome" in done.out


def test_trace_names_every_bundle(call, program):
    done = call("run", "p.mxp", "--trace")
    for instruction in program.instructions():
        assert instruction.mnemonic in done.out


def test_inputs_can_be_replaced(call, program, saved, room):
    saved("x2.npy", 2 * X)
    name = next(iter(program.inputs))
    assert call("run", "p.mxp", "--input", f"{name}=x2.npy", "--out", "out.npz").code == 0
    want = mx.matmul(*quantized(2 * X, W), accumulate=mx.SYSTOLIC_MX)
    with np.load(room / "out.npz") as arrays:
        assert_bits_equal(arrays["out"], np.asarray(want))


def test_raw_bundles_work_on_a_memory_image(call, program, room):
    """The same bundles without their program: memory from a file, memory into a file."""
    (room / "raw.bin").write_bytes(program.bytes())
    state = mx.State.empty()
    state.save(room / "empty.npz")
    done = call("run", "raw.bin", "--memory", "empty.npz", "--out", "after.npz")
    assert done.code == 0, done
    after = mx.State.load(room / "after.npz")
    assert_bits_equal(after.psum, mx.run(program.bytes(), state).psum)
    assert call("run", "raw.bin", "--memory", "empty.npz", "--expect", "after.npz").code == 0
    assert call("run", "raw.bin", "--memory", "empty.npz", "--expect", "empty.npz").code == 1


def test_what_was_used_is_what_is_printed(call, program):
    assert "ran 2 bundles, OCP, SYSTOLIC_MX" in call("run", "p.mxp").out
    assert (
        "ran 2 bundles, OCP, SEQUENTIAL" in call("run", "p.mxp", "--accumulate", "SEQUENTIAL").out
    )


def test_the_policy_used_is_printed(call, room):
    """Arrays quantized on the device may be read by another policy than the program's."""
    x, w = (a.astype("bfloat16") for a in (jnp.asarray(X), jnp.asarray(W)))
    mx.lower_matmul(x, w, mx.E4M3FN).save(room / "q.mxp")
    assert "ran 4 bundles, NEURON_2_24, " in call("run", "q.mxp").out
    assert "ran 4 bundles, OCP, " in call("run", "q.mxp", "--policy", "OCP").out


def test_raw_bundles_say_what_they_ran_with_and_on(call, program, room):
    (room / "raw.bin").write_bytes(program.bytes())
    done = call("run", "raw.bin")
    assert done.code == 0
    assert "ran 2 bundles, NEURON_2_24, SYSTOLIC_MX" in done.out
    assert "--out writes the memory" in done.out
    assert done.err.startswith("mxref: warning: bundle 0, ")
    assert done.err.count("\n") == 1
    assert "it counts as NaN (fill memory with --memory" in done.err
    assert call("run", "raw.bin", "--uninitialised", "zero").err == ""
    assert call("run", "p.mxp").err == ""


def test_a_program_of_another_generation_is_refused(call, refused, program):
    words = refused("run", "--arch", "cayman", "p.mxp", "--out", "out.npz")
    assert words == "mxref: --arch cayman: p.mxp is a program for mariana\n"
    assert call("run", "--arch", "mariana", "p.mxp").code == 0


def test_expect_takes_one_bare_array(call, refused, program, outcome, room):
    np.save(room / "y.npy", outcome["out"])
    assert "equal    out, 960 bits" in call("run", "p.mxp", "--expect", "y.npy").out
    np.save(room / "y.npy", -outcome["out"])
    assert call("run", "p.mxp", "--expect", "y.npy").code == 1
    x = jnp.asarray(X).astype("bfloat16")
    mx.lower_quantize(x, mx.E4M3FN).save(room / "two.mxp")
    assert "outputs are codes, scales" in refused("run", "two.mxp", "--expect", "y.npy")


def test_unwritten_memory_can_be_an_error(refused, program, room):
    (room / "raw.bin").write_bytes(program.bytes())
    words = refused("run", "raw.bin", "--uninitialised", "raise", "--out", "out.npz")
    assert "bundle 0" in words
    assert "nothing wrote" in words


@pytest.mark.parametrize("keep", [0, 4, 100, 1000, -1])
def test_truncated_programs(refused, program, room, keep):
    (room / "p.mxp").write_bytes((room / "p.mxp").read_bytes()[:keep])
    assert "p.mxp: " in refused("run", "p.mxp", "--out", "out.npz")


def test_damaged_programs(refused, program, room):
    whole = (room / "p.mxp").read_bytes()
    for at in range(4, len(whole), len(whole) // 40):
        damaged = bytearray(whole)
        damaged[at] ^= 0x10
        (room / "p.mxp").write_bytes(damaged)
        assert "p.mxp: " in refused("run", "p.mxp", "--out", "out.npz")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("nope.mxp",), "nope.mxp: no such file"),
        (("p.mxp", "--input", "lhs"), "expected NAME=FILE.npy"),
        (("p.mxp", "--input", "zzz=x.npy"), "the program's inputs are"),
        (("p.mxp", "--input", "lhs=nope.npy"), "no such file"),
        (("p.mxp", "--input", "lhs=small.npy"), "small.npy: a single number"),
        (("p.mxp", "--input", "lhs=wrong.npy"), "[3, 3]"),
        (("p.mxp", "--expect", "nope.npz"), "no such file"),
        (("p.mxp", "--memory", "nope.npz"), "no such file"),
        (("p.mxp", "--memory", "image.npz"), "image.npz: "),
        (("p.mxp", "--out", "out.npy"), "ends in .npz"),
        (("p.mxp", "--out", "nowhere/out.npz"), "no such directory"),
        (("p.mxp", "--accumulate", "BACKEND"), "BACKEND"),
        (("p.mxp", "--accumulate", "sideways"), "--accumulate"),
        (("raw.bin", "--input", "lhs=wrong.npy"), "no named inputs"),
    ],
)
def test_bad_input(refused, program, room, saved, args, words):
    saved("small.npy", np.float32(1))
    saved("wrong.npy", np.ones((3, 3), np.float32))
    (room / "raw.bin").write_bytes(program.bytes())
    np.savez(room / "image.npz", sbuf=np.zeros((64, 8), np.uint8))
    assert words in refused("run", *args)


def test_illegal_bundles_are_refused(refused, program, room):
    data = bytearray(program.bytes())
    data[0x2C] = 0x05
    (room / "raw.bin").write_bytes(data)
    assert "0x2c" in refused("run", "raw.bin", "--out", "out.npz")
