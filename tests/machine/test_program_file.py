"""Program files: deterministic, sealed, and rebuilt without trust."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import encoding
from hardware import Arch, CapabilityError, Engine
from mxref.errors import ExecutionError, MxrefError, PolicyError, ProgramError, ShapeError
from mxref.lower import lower_matmul, lower_quantize
from mxref.machine import State, run
from mxref.mxarray import MXArray
from mxref.policy import NEURON_2_24, OCP, NumericPolicy, ScaleRule
from mxref.program import HostRead, HostWrite, Program, Segment, sealed
from mxref.testing import assert_bits_equal

RNG = np.random.default_rng(5)
X = RNG.standard_normal((3, 40)).astype(ml_dtypes.bfloat16)
W = RNG.standard_normal((40, 5)).astype(np.float32)


@pytest.fixture(scope="module")
def program() -> Program:
    """FP8 from values through QuantizeMx, FP4 from codes: every kind of member."""
    return lower_matmul(X, W, "e4m3fn", "e2m1fn")


def rebuilt(program: Program, **changes) -> dict[str, bytes]:
    """The members with the manifest changed and its sums made right again."""
    members = sealed.unseal(program.to_bytes())
    manifest = json.loads(members["manifest.json"]) | changes
    members["manifest.json"] = json.dumps(manifest).encode()
    return members


def test_round_trip_keeps_everything(program, tmp_path) -> None:
    path = tmp_path / "p.mxp"
    program.save(path)
    loaded = Program.load(path)
    assert loaded.to_bytes() == program.to_bytes() == path.read_bytes()
    assert loaded.bytes() == program.bytes()
    assert loaded.policy == program.policy
    assert loaded.order == program.order
    assert dict(loaded.inputs) == dict(program.inputs)
    assert dict(loaded.outputs) == dict(program.outputs)
    assert loaded.segments == program.segments
    assert_bits_equal(run(loaded).outputs["out"], run(program).outputs["out"])
    assert [p.name for p in tmp_path.iterdir()] == ["p.mxp"]


def test_streams_by_engine_rebuild_the_total_order(program) -> None:
    assert [e.name for e in program.engines()] == ["DVE", "PE", "PE"]
    dve, pe = program.bytes(Engine.DVE), program.bytes(Engine.PE)
    assert dve + pe == program.bytes()
    assert program.bytes(Engine.POOL) == b""
    assert [type(i).__name__ for i in program.instructions()] == [
        "QuantizeMx",
        "LdWeightMx",
        "MatmultMx",
    ]


def test_a_custom_policy_survives(program) -> None:
    policy = NumericPolicy("mine", ScaleRule.RCEIL, min_scale_code=3)
    again = Program.from_bytes(lower_matmul(X, X.T, "e5m2", policy=policy).to_bytes())
    assert again.policy == policy


def test_equal_content_gives_equal_bytes(program) -> None:
    assert lower_matmul(X, W, "e4m3fn", "e2m1fn").to_bytes() == program.to_bytes()


def test_every_flipped_byte_is_refused(program) -> None:
    data = bytearray(program.to_bytes())
    for position in range(len(data)):
        bit = 1 << (position % 8)
        data[position] ^= bit
        with pytest.raises(ProgramError):
            sealed.unseal(bytes(data))
        data[position] ^= bit
    sealed.unseal(bytes(data))


def test_every_bit_of_the_seal_counts(program) -> None:
    data = bytearray(program.to_bytes())
    for position in range(len(data) - 71, len(data)):
        for bit in range(8):
            data[position] ^= 1 << bit
            with pytest.raises(ProgramError):
                Program.from_bytes(bytes(data))
            data[position] ^= 1 << bit


def test_truncated_longer_and_foreign_files_are_refused(program, tmp_path) -> None:
    data = program.to_bytes()
    for bad in (b"", b"PK", data[:-1], data[:100], data + b"x", b"\0" * 500):
        with pytest.raises(ProgramError):
            Program.from_bytes(bad)
    body = b"no zip at all sha256:"
    with pytest.raises(ProgramError, match="not a zip"):
        Program.from_bytes(body + hashlib.sha256(body).hexdigest().encode())
    with pytest.raises(ProgramError, match="not a program file"):
        Program.from_bytes(sealed.seal({"x": b""}))


def test_a_failed_save_leaves_the_old_file(program, tmp_path, monkeypatch) -> None:
    path = tmp_path / "p.mxp"
    path.write_bytes(b"old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        program.save(path)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["p.mxp"]


BAD_INPUT = {
    "name": "lhs",
    "kind": "mx",
    "shape": [3, 40],
    "axis": -1,
    "kmap": "adjacent",
    "format": "float4_e2m1fn",
    "dtype": "",
    "cast": False,
    "data": ["codes", "scales"],
}


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "other"},
        {"version": 2},
        {"sha256": {}},
        {"sha256": 3},
        {"arch": "VAX"},
        {"arch": None},
        {"order": "BEST"},
        {"order": 7},
        {"policy": {}},
        {"policy": None},
        {"inputs": 3},
        {"inputs": [3]},
        {"inputs": [BAD_INPUT]},
        {"inputs": [BAD_INPUT | {"format": "int8"}]},
        {"inputs": [BAD_INPUT | {"shape": 3}]},
        {"inputs": [BAD_INPUT | {"shape": [3, 0]}]},
        {"inputs": [BAD_INPUT | {"axis": 1}]},
        {"inputs": [BAD_INPUT | {"data": ["values"]}]},
        {"inputs": []},
        {"outputs": []},
        {"outputs": [{"name": "out", "shape": [3], "dtype": "float32", "axis": None}]},
        {"outputs": [{"name": "out", "shape": [1 << 20, 1 << 20], "dtype": "uint8", "axis": None}]},
        {"outputs": [{"name": 3, "shape": [3, 5], "dtype": "float32", "axis": None}]},
        {"segments": None},
        {"segments": []},
        {"segments": [{"writes": [], "engines": [["PE", 3]], "reads": []}]},
        {"segments": [{"writes": [], "engines": [["DVE", -1]], "reads": []}]},
        {"segments": [{"writes": [], "engines": [["GPU", 1]], "reads": []}]},
        {"segments": [{"writes": [[]], "engines": [["DVE", 1], ["PE", 2]], "reads": []}]},
        {"segments": [{"writes": [["lhs"] * 9], "engines": [], "reads": []}]},
    ],
)
def test_hostile_manifests_give_a_typed_error(program, changes) -> None:
    with pytest.raises(ProgramError):
        Program.from_bytes(sealed.seal(rebuilt(program, **changes)))


def test_members_are_checked_against_the_manifest(program) -> None:
    members = sealed.unseal(program.to_bytes())
    with pytest.raises(ProgramError, match=r"PE\.bin: checksum"):
        Program.from_bytes(sealed.seal(members | {"PE.bin": bytes(128)}))
    with pytest.raises(ProgramError, match="list of members"):
        Program.from_bytes(sealed.seal(members | {"extra": b""}))
    with pytest.raises(ProgramError, match="not JSON"):
        Program.from_bytes(sealed.seal(members | {"manifest.json": b"{"}))


def test_records_check_themselves(program) -> None:
    write = HostWrite("lhs", "values", 0, 32, 0, 3, 4, 0, 0)
    read = HostRead("out", "values", "PSUM", 0, 0, 3, 5, 0, 0)
    good = {"inputs": program.inputs, "outputs": program.outputs}
    base = (program.arch, program.policy, program.order)
    Program(*base, (Segment((write,), b"", (read,)),), **good)
    fields = {name: getattr(write, name) for name in write.__dataclass_fields__}
    for change in (
        {"input": "other"},
        {"part": "codes"},
        {"k": 32},
        {"rows": 128},
        {"column": 1},
    ):
        bad = HostWrite(**fields | change)
        with pytest.raises(ProgramError):
            Program(*base, (Segment((bad,)),), **good)
    for change in ({"k": 5}, {"rows": 33}, {"valid": 5}, {"part": "x"}, {"offset": -1}):
        with pytest.raises(ProgramError):
            HostWrite(**fields | change)
    for change in ({"output": "other"}, {"column": 1}, {"row": 3}, {"part": "scales"}):
        row = {name: getattr(read, name) for name in read.__dataclass_fields__}
        with pytest.raises(ProgramError):
            Program(*base, (Segment((), b"", (HostRead(**row | change),)),), **good)
    with pytest.raises(ProgramError, match="whole bundles"):
        Segment(bundles=b"x")
    with pytest.raises(ProgramError):
        program.with_bundles(b"")


@pytest.mark.parametrize("part", ["values", "codes", "scales"])
def test_a_host_write_is_bounded_before_anything_is_made(program, part, monkeypatch) -> None:
    (old,) = program.segments
    writes = [replace(w, columns=(1 << 31) - 1) if w.part == part else w for w in old.writes]
    bad = replace(program, segments=(replace(old, writes=tuple(writes)),))
    loaded = Program.from_bytes(bad.to_bytes())
    pad = np.pad

    def small(array, width, **options):
        assert np.max([np.max(pair) for pair in width]) < 1 << 18
        return pad(array, width, **options)

    monkeypatch.setattr(np, "pad", small)
    with pytest.raises(ExecutionError, match=f"write of .hs {part} at .* leave SBUF"):
        run(loaded)


def test_inputs_can_be_replaced(program) -> None:
    x, w = -X, 2 * W
    fresh = run(lower_matmul(x, w, "e4m3fn", "e2m1fn")).outputs["out"]
    assert_bits_equal(run(program, inputs={"lhs": x, "rhs": w}).outputs["out"], fresh)
    assert not np.array_equal(run(program).outputs["out"], fresh)
    quantized = lower_matmul(x, w, "e4m3fn", "e2m1fn").inputs["rhs"].data
    assert isinstance(quantized, MXArray)
    assert_bits_equal(run(program, inputs={"lhs": x, "rhs": quantized}).outputs["out"], fresh)


def test_replaced_inputs_must_fit(program) -> None:
    from mxref.block import quantize

    cases: list[tuple[dict[str, object], type[MxrefError]]] = [
        ({"x": X}, PolicyError),
        ({"lhs": X[:2]}, ShapeError),
        ({"lhs": X.astype(np.float32)}, ShapeError),
        ({"rhs": quantize(W, "e2m1fn", axis=-2, policy=OCP)}, PolicyError),
        ({"rhs": quantize(W, "e5m2", axis=-2, policy=NEURON_2_24)}, ShapeError),
        ({"lhs": quantize(W.T[:3], "e4m3fn", policy=NEURON_2_24)}, ShapeError),
    ]
    for inputs, error in cases:
        with pytest.raises(error):
            run(program, inputs=inputs)
    with pytest.raises(PolicyError, match="only with a Program"):
        run(program.bytes(), inputs={"lhs": X})


def test_quantize_programs_have_files_too() -> None:
    program = lower_quantize(X, "e5m2")
    again = Program.from_bytes(program.to_bytes())
    assert_bits_equal(run(again).outputs["codes"], run(program).outputs["codes"])


def test_a_file_that_cannot_be_read_is_a_program_error(tmp_path) -> None:
    for path in (tmp_path / "none.mxp", tmp_path):
        with pytest.raises(ProgramError, match="cannot be read") as caught:
            Program.load(path)
        assert isinstance(caught.value.__cause__, OSError)


def test_programs_are_judged_and_read_as_they_are(program) -> None:
    assert encoding.check(program) == []
    assert encoding.disassemble(program) == encoding.disassemble(program.bytes())
    assert bytes(program) == program.bytes()


@pytest.mark.parametrize(
    ("given", "shown"),
    [("demo.mxp", "got str"), (5, "got int"), (None, "got NoneType"), ([1], "got list of int")],
)
def test_what_is_no_program_is_refused(given, shown) -> None:
    with pytest.raises(ProgramError, match=shown + ", allowed a Program"):
        run(given)


def test_generations_go_by_name(program) -> None:
    named = lower_matmul(X, W, "e4m3fn", "e2m1fn", arch="mariana")
    assert (named.arch, named.to_bytes()) == (Arch.MARIANA, program.to_bytes())
    assert State.empty("CoreV4").arch is Arch.MARIANA
    assert run(program.instructions()[0], check=False, arch=40).arch is Arch.MARIANA
    for call in (State.empty, lambda arch: run(b"", arch=arch)):
        with pytest.raises(CapabilityError, match="sunda, cayman, mariana"):
            call("trn9")
