"""Files that cannot be: names, damage, links, devices, full disks and closed streams."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import mxref as mx
from mxref.cli.output import InputError, console, write_file
from mxref.errors import ProgramError
from mxref.program import arrays

LONG = "a" * 300


def raw_npy(header: str) -> bytes:
    """An npy file of version 2 with any text for its header."""
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(header)) + header.encode()


def shaped(shape: str) -> bytes:
    return raw_npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n")


def zipped(data: bytes, method: int = zipfile.ZIP_STORED, name: str = "a.npy") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr(name, data)
    return out.getvalue()


def encrypted() -> bytes:
    data = bytearray(zipped(shaped("(0,)")))
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    return bytes(data)


def corrupt(method: int, name: str = "a.npy") -> bytes:
    data = bytearray(zipped(bytes(4000), method, name))
    start = data.index(name.encode()) + len(name)
    start += 9 if method == zipfile.ZIP_LZMA else 0
    data[start : start + 12] = b"\xff" * 12
    return bytes(data)


def test_two_bundles_of_digits_are_no_file_name(refused):
    assert "opcode" in refused("explain", "00" * 128)


@pytest.mark.parametrize("words", [
    ("quantize", f"{LONG}.npy"),
    ("quantize", "x.npy", "-o", f"{LONG}.npz"),
    ("matmul", "x.npy", "x.npy", "--save", LONG),
    ("run", "b.bin", "--expect", f"{LONG}.npz"),
    ("dis", LONG),
    ("asm", "b.s", "-o", LONG),
])  # fmt: skip
def test_names_too_long_for_a_file(refused, saved, room, words):
    saved("x.npy", np.ones((4, 4), np.float32))
    (room / "b.bin").write_bytes(bytes(64))
    (room / "b.s").write_text("Start\n")
    refused(*words)


def test_a_name_that_just_fits_is_written(room):
    path = room / ("a" * 255)
    write_file(path, lambda stream: stream.write(b"1"))
    assert path.read_bytes() == b"1"


@pytest.mark.parametrize(("name", "data"), [
    ("x.npz", zipped(b"plain")),
    ("x.npz", encrypted()),
    ("x.npz", corrupt(zipfile.ZIP_LZMA)),
    ("x.npy", raw_npy("(" * 5000 + "\n")),
    ("x.npy", raw_npy("(" * 90 + "\n")),
    ("x.npy", shaped(f"({10**22}, 4)")),
    ("x.npy", shaped("(True, 4)")),
])  # fmt: skip
def test_damaged_arrays(refused, room, name, data):
    (room / name).write_bytes(data)
    refused("quantize", name)


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_an_image_with_a_corrupt_header(room, method):
    (room / "image.npz").write_bytes(corrupt(method, "header.npy"))
    with pytest.raises(ProgramError, match="not a memory image"):
        mx.State.load("image.npz")


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """The members of an empty image but its header."""
    path = tmp_path_factory.mktemp("image") / "empty.npz"
    mx.State.empty().save(path)
    with zipfile.ZipFile(path) as archive:
        return {n: archive.read(n) for n in archive.namelist() if n != "header.npy"}


@pytest.mark.parametrize(("row", "reason"), [
    ({"dtype": [], "shape": [1]}, "no dtype"),
    ({"dtype": {}, "shape": [1]}, "no dtype"),
    ({"dtype": "uint8", "shape": [1] * 65}, "has shape"),
    ({"dtype": "uint8", "shape": [0] + [2**30] * 40}, "has shape"),
])  # fmt: skip
def test_an_image_with_impossible_outputs(room, image, row, reason):
    header = {"kind": "mxref memory image", "version": 1, "arch": "MARIANA", "outputs": {"x": row}}
    with zipfile.ZipFile(room / "image.npz", "w") as archive:
        archive.writestr("header.npy", "\n" + json.dumps(header))
        for name, data in image.items():
            archive.writestr(name, data)
    with pytest.raises(ProgramError, match=reason):
        mx.State.load("image.npz")


@pytest.mark.parametrize("header", ["(\n", "(" * 5000 + "\n", "{'shape': (1,\n"])
def test_a_member_with_an_unreadable_header(header):
    data = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
    with pytest.raises(ProgramError, match="not an npy file"):
        arrays.read_npy(data, "x.npy", "uint8", (1,))


def test_a_link_stays_and_its_target_is_written(room):
    (room / "there").mkdir()
    (room / "link").symlink_to("there/target")
    for data in (b"1", b"2"):
        write_file(room / "link", lambda stream, data=data: stream.write(data))
        assert (room / "link").is_symlink()
        assert (room / "there" / "target").read_bytes() == data


def test_a_pipe_is_written_not_replaced(room):
    os.mkfifo(room / "pipe")
    reader = os.open(room / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_file(room / "pipe", lambda stream: np.save(stream, np.arange(3)))
    assert np.load(io.BytesIO(os.read(reader, 4096))).tolist() == [0, 1, 2]
    os.close(reader)
    assert (room / "pipe").is_fifo()


def test_a_full_device(room):
    with pytest.raises(InputError, match="No space left"):
        write_file(room.joinpath("/dev/full"), lambda stream: stream.write(b"1"))


@pytest.mark.parametrize(("words", "code", "said"), [
    ("formats >&-", 2, "mxref: standard output is closed\n"),
    ("formats > /dev/full", 2, "mxref: cannot write: No space left on device\n"),
    ("dis - <&-", 2, "mxref: -: standard input is closed\n"),
    ("formats | (exec <&-; sleep 0.1); exit ${PIPESTATUS[0]}", 141, ""),
    ("--help | (exec <&-; sleep 0.1); exit ${PIPESTATUS[0]}", 141, ""),
])  # fmt: skip
def test_streams_that_end_early(room, words, code, said):
    script = f"{sys.executable} -m mxref {words}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, said)


def test_progress_without_standard_error_is_lost(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with console(stderr=True).status("working"):
        pass


def test_help_names_the_exit_codes(call):
    assert "141" in call("--help").out
