"""What the machine refuses, that a refusal changes nothing, and the options of run."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

import encoding
from encoding import Addr4, DecodeError, LegalityError, MxPattern, QuantizeMx, Tensor3D
from hardware import Arch
from mxref.errors import (
    ExecutionError,
    PolicyError,
    ProgramError,
    UninitialisedError,
    Unmodelled,
)
from mxref.machine import State, run
from mxref.policy import BACKEND, OCP, SYSTOLIC
from mxref.program import Program, Segment

M, N = 2, 3


@pytest.fixture
def pair(bench):
    """A legal program whose first matmul has run when the second bundle pair is reached."""
    bench.load(bench.operand(0, 32, M), 32, 1)
    bench.multiply(bench.operand(0, 32, N, data=0x80, slot=4), 32, 1, M)
    bench.load(bench.operand(0, 32, M), 32, 1)
    bench.multiply(bench.operand(0, 32, N, data=0x80, slot=4), 32, 1, M, flags=4)
    return bench


def changed(bundle, path: str, value):
    """Replace a field, through one nested record."""
    head, _, tail = path.partition(".")
    return replace(bundle, **{head: changed(getattr(bundle, head), tail, value) if tail else value})


FAULTS = [
    # bundle, field, value, error, field named
    (2, "wait_mode", 5, Unmodelled, "wait_mode"),
    (3, "update_mode", 0x13, Unmodelled, "update_mode"),
    (2, "src.data", Addr4.register(3), Unmodelled, "src.data"),
    (3, "dst.start", Addr4.register(3), Unmodelled, "dst.start"),
    (2, "src.data", Addr4(0x40000000), Unmodelled, "src.data"),
    (3, "dst.num0", N + 1, ExecutionError, "dst"),
    (3, "dst.num0", 0, ExecutionError, "dst"),
    (2, "num_active_rows", 0, ExecutionError, "num_active_rows"),
    (3, "num_active_rows", 4, ExecutionError, "num_active_rows"),
    (3, "num_active_cols", 0, ExecutionError, "num_active_cols"),
    (3, "psum_zero_region", 255, ExecutionError, "psum_zero_region"),
    (2, "src.extent", 4 * M + 4, ExecutionError, "num_active_cols"),
    (2, "src.extent", 4 * M + 1, ExecutionError, "src.extent"),
    (3, "num_active_cols", M + 2, ExecutionError, "row_group"),
    (2, "src.scale", Addr4.scale(32, 0), ExecutionError, "src.scale"),
    (2, "src.scale", Addr4.sbuf(4, 0), ExecutionError, "src.scale"),
    (2, "src.data", Addr4.sbuf(0, 0x3FFFC), ExecutionError, "src.data"),
    (2, "src.scale", Addr4.scale(0, 0x3FFFF), ExecutionError, "src.scale"),
    (2, "src.step", -1, ExecutionError, "src.data"),
    (3, "dst.step0", -1, ExecutionError, "dst"),
    (3, "dst.start", Addr4.psum(0, 7, 2044), ExecutionError, "dst"),
]


@pytest.mark.parametrize(("index", "path", "value", "error", "field"), FAULTS)
@pytest.mark.parametrize("as_bytes", [False, True])
def test_a_fault_names_the_bundle_and_changes_nothing(
    pair, index, path, value, error, field, as_bytes
) -> None:
    state = pair.state
    before = jax.tree.map(np.copy, state)
    bundles = list(pair.bundles)
    bundles[index] = changed(bundles[index], path, value)
    program = b"".join(map(encoding.encode, bundles)) if as_bytes else bundles
    with pytest.raises(error) as caught:
        run(program, state, check=False)
    assert caught.value.index == index
    assert caught.value.field == field
    assert jax.tree.all(jax.tree.map(np.array_equal, state, before))
    with pytest.raises((error, LegalityError)):
        run(program, state)


def test_latches_must_fit(bench) -> None:
    right = bench.operand(0, 64, N, data=0x80, slot=4)
    bench.multiply(right, 64, 3, M)
    with pytest.raises(ExecutionError, match="no LdWeightMx has filled quadrant 0"):
        run(bench.bundles, bench.state)
    bench.bundles.clear()
    bench.load(bench.operand(0, 32, M), 32, 1)
    bench.multiply(right, 64, 3, M)
    with pytest.raises(ExecutionError, match="no LdWeightMx has filled quadrant 1"):
        run(bench.bundles, bench.state)
    bench.bundles.clear()
    bench.load(bench.operand(0, 32, M), 32, 1)
    bench.load(bench.operand(32, 32, M, "float8_e5m2"), 32, 2)
    bench.multiply(right, 64, 3, M)
    with pytest.raises(ExecutionError, match="different formats: float8_e4m3fn, float8_e5m2"):
        run(bench.bundles, bench.state)


def test_row_groups_must_fit(pair) -> None:
    for change in ({"row_group": 2}, {"num_active_rows": 64}, {"row_group": 5}):
        bundles = [replace(pair.bundles[0], **change), *pair.bundles[1:]]
        with pytest.raises(ExecutionError):
            run(bundles, pair.state, check=False)
        with pytest.raises(LegalityError):
            run(bundles, pair.state)


def test_quantize_must_fit(bench) -> None:
    bench.put("sbuf", 0, 0, np.zeros((32, 64), np.float16))
    good = QuantizeMx(
        src=Tensor3D(Addr4.sbuf(0, 0), 1, 1, 1, 12, 1, 1),
        num_active_channels=32,
        src_dtype=0x07,
        dst_dtype=0x0E,
        dst=MxPattern(Addr4.sbuf(0, 0x100), Addr4.scale(0, 0x200), 12, 1, 0),
    )
    run([good], bench.state)
    for path, value, error in (
        ("dst.extent", 8, ExecutionError),
        ("src.start", Addr4.psum(0, 0), ExecutionError),
        ("src.step0", -1, ExecutionError),
        ("src_dtype", 0x0A, Unmodelled),
        ("dst_dtype", 0x0D, Unmodelled),
        ("num_active_channels", 128, UninitialisedError),
    ):
        with pytest.raises(error):
            run([changed(good, path, value)], bench.state, check=False, uninitialised="raise")


@pytest.mark.parametrize("channels", [0, 4, 36])
def test_channels_of_quantize_are_whole_blocks(channels) -> None:
    bundle = QuantizeMx(
        src=Tensor3D(Addr4.sbuf(0, 0), 1, 1, 1, 24, 1, 1),
        num_active_channels=channels,
        src_dtype=0x07,
        dst_dtype=0x0E,
        dst=MxPattern(Addr4.sbuf(0, 0x100), Addr4.scale(0, 0x200), 24, 1, 0),
    )
    with pytest.raises(ExecutionError, match=f"num_active_channels: {channels} partitions"):
        run([bundle], check=False, uninitialised="zero")


def test_unmodelled_result_types(pair) -> None:
    bundles = [pair.bundles[0], replace(pair.bundles[1], out_dtype=0x07)]
    with pytest.raises(Unmodelled, match="modelled: bfloat16, float32"):
        run(bundles, pair.state, check=False)


def test_illegal_bundles_are_refused_before_anything_runs(pair) -> None:
    bundles = [*pair.bundles[:3], replace(pair.bundles[3], accumulate_flags=5)]
    with pytest.raises(LegalityError) as caught:
        run(bundles, pair.state)
    (violation,) = caught.value.violations
    assert (violation.index, violation.field) == (3, "accumulate_flags")
    run(bundles, pair.state, check=False)


def test_undecodable_bytes(pair) -> None:
    data = bytearray(b"".join(map(encoding.encode, pair.bundles)))
    for position, value in ((0, 0xFF), (64 + 2, 1), (64 + 1, 0)):
        bad = bytearray(data)
        bad[position] = value
        with pytest.raises(DecodeError):
            run(bytes(bad), pair.state)
    with pytest.raises(DecodeError):
        run(bytes(data[:-1]), pair.state)
    with pytest.raises(DecodeError, match="mariana"):
        run(bytes(data), State.empty(Arch.CAYMAN), arch=Arch.CAYMAN)
    reserved = bytearray(data)
    reserved[0x3F] = 1
    run(bytes(reserved), pair.state, check=False)


def test_uninitialised_memory_can_raise(pair) -> None:
    with pytest.raises(UninitialisedError) as caught:
        run(pair.bundles, None, uninitialised="raise")
    assert (caught.value.index, caught.value.field) == (0, "src")
    with pytest.raises(UninitialisedError) as caught:
        run([pair.bundles[0], pair.bundles[3]], pair.state, uninitialised="raise")
    assert (caught.value.index, caught.value.field) == (1, "dst")


def test_poison_travels_through_quantize(bench) -> None:
    """A block with an unwritten source element is not written either: loud in every policy."""
    bench.put("sbuf", 0, 0, np.ones((32, 16), np.float16))
    src = Tensor3D(Addr4.sbuf(0, 4), 1, 1, 1, 16, 1, 1)
    dst = MxPattern(Addr4.sbuf(0, 0x100), Addr4.scale(0, 0x200), 16, 1, 0)
    bundle = QuantizeMx(src=src, num_active_channels=32, src_dtype=0x07, dst_dtype=0x0E, dst=dst)
    bench.put("sbuf", 0, 0x100, np.zeros((32, 16), np.uint8))
    state = run([bundle], bench.state)
    known = np.asarray(state.sbuf_written)
    assert known[:32, 0x100:0x10C].all()
    assert not known[:32, 0x10C:0x110].any()
    assert known[:4, 0x200:0x203].all()
    assert not known[:4, 0x203].any()
    zero = run([bundle], bench.state, uninitialised="zero")
    assert np.asarray(zero.sbuf_written)[:32, 0x10C:0x110].all()


def test_options_are_checked(pair) -> None:
    for options in (
        {"accumulate": BACKEND},
        {"accumulate": SYSTOLIC(4, 1024)},
        {"accumulate": "fast"},
        {"policy": "fast"},
        {"uninitialised": "maybe"},
        {"zero": "maybe"},
        {"state": State.empty(Arch.SUNDA)},
    ):
        options = {"state": pair.state} | options
        with pytest.raises(PolicyError):
            run(pair.bundles, **options)


def test_arguments_of_another_kind_are_refused(pair) -> None:
    program = Program(Arch.MARIANA, OCP, SYSTOLIC(4, 128), ())
    with pytest.raises(PolicyError, match="inputs=1, x: allowed no inputs"):
        run(program, inputs={"x": 0, 1: 0})
    with pytest.raises(PolicyError, match="inputs=list"):
        run(program, inputs=["x"])
    with pytest.raises(PolicyError, match="state=str"):
        run(b"", state="x")
    with pytest.raises(ProgramError, match="NoneType"):
        run(None)


def test_a_program_brings_its_own_policy_and_order(pair) -> None:
    data = b"".join(map(encoding.encode, pair.bundles[:2]))
    program = Program(Arch.MARIANA, OCP, SYSTOLIC(4, 128), (Segment(bundles=data),))
    mine = run(program, pair.state)
    named = run(data, pair.state, policy="OCP", accumulate="SYSTOLIC(4, 128)")
    assert jax.tree.all(jax.tree.map(np.array_equal, mine, named))
    assert mine.outputs == {}


@pytest.mark.parametrize("n", [0, 4])
def test_a_run_leaves_the_callers_arrays_writeable(pair, n) -> None:
    state = pair.state
    after = run(pair.bundles[:n], state)
    given = jax.tree.leaves(state)
    assert all(array.flags.writeable for array in given)
    for array, result in zip(given, jax.tree.leaves(after), strict=True):
        assert not result.flags.writeable
        assert not np.shares_memory(array, result)
    again = run(pair.bundles[:n], after)
    assert again.sbuf is after.sbuf


def test_trace_tells_what_each_bundle_did(pair) -> None:
    state = run(pair.bundles[:2], pair.state, trace=True)
    assert [str(step) for step in state.trace] == [
        "    0  LdWeightMx   float8_e4m3fn[32, 2 x 4] sbuf(0, 0x0)  ->  latches 0x1",
        "    1  MatmultMx    float8_e4m3fn[32, 3 x 4] sbuf(0, 0x80), latches 0x1  ->  "
        "float32[2, 3] psum(0, 0, 0x0)",
    ]
    assert run(pair.bundles[:2], pair.state).trace == ()


def test_the_given_state_is_never_written(pair) -> None:
    state = pair.state
    before = jax.tree.map(np.copy, state)
    after = run(pair.bundles, state)
    assert jax.tree.all(jax.tree.map(np.array_equal, state, before))
    assert np.asarray(after.psum_written).sum() == M * N * 4
    assert np.array_equal(after.sbuf, state.sbuf)


def test_an_empty_program_does_nothing(pair) -> None:
    for program in (b"", []):
        state = pair.state
        after = run(program, state)
        assert jax.tree.all(jax.tree.map(np.array_equal, after, state))
        assert run(program, after).psum is after.psum
