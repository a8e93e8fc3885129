"""State: an immutable value whose every byte is known to be written or not."""

from __future__ import annotations

import io
import json
import zipfile

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from hardware import AddressError, Arch, Space
from mxref.errors import PolicyError, ProgramError, ShapeError, UninitialisedError
from mxref.machine import State
from mxref.testing import assert_bits_equal

EMPTY = State.empty()


def leaves_equal(a: State, b: State) -> bool:
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(np.asarray(x), np.asarray(y)) for x, y in pairs)


def test_sizes_of_the_memories() -> None:
    assert EMPTY.sbuf.shape == (128, 256 * 1024)
    assert EMPTY.psum.shape == (128, 8 * 2048)
    assert State.empty(Arch.SUNDA).sbuf.shape == (128, 192 * 1024)


@pytest.mark.parametrize("dtype", ["f4", "f2", "u1", ">f4", "i2", "bf16"])
def test_write_stores_little_endian_bytes(dtype: str) -> None:
    kind = ml_dtypes.bfloat16 if dtype == "bf16" else np.dtype(dtype)
    values = np.array([[1, 2, 3], [4, 5, 6]]).astype(kind)
    state = EMPTY.write(Space.SBUF, 30, 64, values)
    little = values.astype(np.dtype(kind).newbyteorder("<")) if dtype == ">f4" else values
    size = values.dtype.itemsize * 3
    assert state.sbuf[31, 64 : 64 + size].tobytes() == little[1].tobytes()
    assert state.sbuf_written.sum() == 2 * size
    assert not EMPTY.sbuf_written.any()


def test_read_gives_back_what_write_stored() -> None:
    values = jnp.arange(6, dtype=jnp.float32).reshape(2, 3)
    state = EMPTY.write("psum", 5, 2048, values)
    assert_bits_equal(state.read("PSUM", 5, 2048, (2, 3), jnp.float32), np.asarray(values))
    again = state.write("psum", 5, 2052, np.float32([9.0]))
    assert again.read("psum", 5, 2048, (1, 3), "float32").tolist() == [[0, 9, 2]]
    assert state.read("psum", 5, 2048, (1, 3), "float32").tolist() == [[0, 1, 2]]


def test_memory_that_nothing_wrote_is_loud() -> None:
    state = EMPTY.write("sbuf", 0, 4, np.float32([1.0]))
    read = state.read("sbuf", 0, 0, (1, 3), "float32")
    assert read.view(np.uint32).tolist() == [[0x7FC00000, 0x3F800000, 0x7FC00000]]
    half = state.read("sbuf", 0, 2, (1, 3), "bfloat16").view(np.uint16)
    assert half.tolist() == [[0x7FC0, 0x0000, 0x3F80]]
    for dtype, how in (("float32", "raise"), ("uint32", "nan")):
        with pytest.raises(UninitialisedError, match="SBUF partition 0 at 0x0: nothing wrote"):
            state.read("sbuf", 0, 0, (1, 3), dtype, uninitialised=how)
    zeros = state.read("sbuf", 0, 0, (1, 3), "uint32", uninitialised="zero")
    assert zeros.tolist() == [[0, 0x3F800000, 0]]


def test_addresses_and_arguments_are_checked() -> None:
    ok = np.zeros((2, 4), np.uint8)
    for space, partition, offset in (("sbuf", 127, 0), ("sbuf", -1, 0), ("psum", 0, 16381)):
        with pytest.raises(AddressError):
            EMPTY.write(space, partition, offset, ok)
        with pytest.raises(AddressError):
            EMPTY.read(space, partition, offset, (2, 4), "uint8")
    with pytest.raises(AddressError):
        EMPTY.read("sbuf", 0, 0, (-1, 4), "uint8")
    with pytest.raises(PolicyError, match="sbuf, psum"):
        EMPTY.write("hbm", 0, 0, ok)
    with pytest.raises(ShapeError):
        EMPTY.write("sbuf", 0, 0, np.zeros((1, 1, 1), np.uint8))
    with pytest.raises(ShapeError):
        EMPTY.write("sbuf", 0, 0, np.array([[object()]]))
    for shape in ((2, 0), (0, 4), (0,)):
        with pytest.raises(ShapeError):
            EMPTY.write("sbuf", 0, 0, np.zeros(shape, np.uint8))
    with pytest.raises(ShapeError, match="float64"):
        EMPTY.read("sbuf", 0, 0, (1, 1), "float64")
    with pytest.raises(ShapeError):
        EMPTY.read("sbuf", 0, 0, (1,), "uint8")  # type: ignore[arg-type] - the mistake under test


def test_arrays_are_read_only_and_the_class_is_a_pytree() -> None:
    state = EMPTY.write("sbuf", 0, 0, np.uint8([1]))
    with pytest.raises(ValueError, match="read-only"):
        state.sbuf[0, 0] = 2
    leaves, tree = jax.tree.flatten(state)
    assert len(leaves) == 4
    assert leaves_equal(jax.tree.unflatten(tree, leaves), state)
    moved = jax.jit(lambda s: s)(state)
    assert leaves_equal(moved, state)
    assert moved.read("sbuf", 0, 0, (1, 1), "uint8").tolist() == [[1]]
    assert moved.write("sbuf", 0, 1, np.uint8([7])).sbuf[0, :2].tolist() == [1, 7]


def test_image_round_trip(tmp_path) -> None:
    outputs = {"out": np.float32([[1, 2]]), "b": np.zeros((1, 3), ml_dtypes.bfloat16)}
    state = State(*jax.tree.leaves(EMPTY.write("sbuf", 9, 5, np.uint8([3, 4]))), outputs=outputs)
    path = tmp_path / "image.npz"
    state.save(path)
    loaded = State.load(path)
    assert leaves_equal(loaded, state)
    assert loaded.outputs["b"].dtype == ml_dtypes.bfloat16
    assert loaded.arch is state.arch
    first = path.read_bytes()
    loaded.save(path)
    assert path.read_bytes() == first
    assert [p.name for p in tmp_path.iterdir()] == ["image.npz"]


def _image(tmp_path, change) -> str:
    source = tmp_path / "source.npz"
    EMPTY.save(source)
    target = tmp_path / "changed.npz"
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        members = {name: old.read(name) for name in old.namelist()}
        change(members)
        for name, data in members.items():
            new.writestr(name, data, compresslevel=1)
    return str(target)


def _npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    return out.getvalue()


def _header(**changes: object) -> bytes:
    row = {"kind": "mxref memory image", "version": 1, "arch": "MARIANA", "outputs": {}}
    return _npy(np.frombuffer(json.dumps(row | changes).encode(), np.uint8))


@pytest.mark.parametrize(
    ("member", "data", "reason"),
    [
        ("sbuf.npy", None, "missing"),
        ("psum.npy", _npy(np.zeros((128, 2048), np.uint8)), "expected uint8"),
        ("psum.npy", _npy(np.zeros((128, 16384), np.int8)), "expected uint8"),
        ("psum.npy", _npy(np.ones((128, 16384), np.uint8)), "a byte that nothing wrote"),
        ("psum.npy", _npy(np.array([object()])), "expected uint8"),
        ("psum.npy", b"\x93NUMPY", "not an npy file"),
        ("psum.npy", b"junk", "not an npy file"),
        ("psum.npy", _npy(np.zeros((128, 16384), np.uint8))[:-1], "not what its header says"),
        ("psum.npy", bytes(3 << 20), "is larger than"),
        ("header.npy", None, "not a memory image"),
        ("header.npy", b"junk", "unreadable"),
        ("header.npy", _header(kind="other"), "not a memory image"),
        ("header.npy", _header(version=2), "version 2"),
        ("header.npy", _header(arch="VAX"), "unknown arch"),
        ("header.npy", _header(outputs=3), "not a table"),
        ("header.npy", _header(outputs={"x": {"dtype": "float32"}}), "no dtype or shape"),
        ("header.npy", _header(outputs={"x": {"dtype": "float32", "shape": [-1]}}), "has shape"),
        ("header.npy", _header(outputs={"x": {"dtype": "uint8", "shape": [9]}}), "missing"),
    ],
)
def test_hostile_images_give_a_typed_error(tmp_path, member, data, reason) -> None:
    def change(members: dict[str, bytes]) -> None:
        members.pop(member)
        if data is not None:
            members[member] = data

    with pytest.raises(ProgramError, match=reason):
        State.load(_image(tmp_path, change))


def test_files_that_are_no_image(tmp_path) -> None:
    path = tmp_path / "x.npz"
    EMPTY.save(path)
    whole = path.read_bytes()
    for data in (b"", b"PK", whole[: len(whole) // 2], whole[:200] + b"\xff" * 40 + whole[240:]):
        path.write_bytes(data)
        with pytest.raises(ProgramError):
            State.load(path)
    with pytest.raises(FileNotFoundError):
        State.load(tmp_path / "absent.npz")
