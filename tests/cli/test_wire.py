"""dis, asm, check, explain: text and bytes both ways, violations, and bad input in one line."""

from __future__ import annotations

import json

import pytest

import mxref as mx

TEXT = (
    "LdWeightMx src={data=sbuf(0, 0x0) scale=sbuf(0, 0x400) extent=64} dtype=FP8_EXP4 "
    "num_active_rows=128 num_active_cols=16 row_group=15\n"
    "MatmultMx src={data=sbuf(0, 0x1000) scale=sbuf(0, 0x2000) extent=128} dtype=FP8_EXP4 "
    "num_active_rows=128 num_active_cols=16 out_dtype=FP32 accumulate_flags=3 row_group=15 "
    "dst={start=psum(0, 0, 0x0) step0=1 step1=0 step2=0 num0=32 num1=1 num2=1}\n"
)


@pytest.fixture
def bundles(room) -> bytes:
    data = mx.assemble(TEXT)
    (room / "p.bin").write_bytes(data)
    (room / "p.hex").write_text(data[:64].hex(" ") + "\n" + data[64:].hex())
    (room / "p.s").write_text("# a pair\n" + TEXT)
    return data


@pytest.mark.parametrize("file", ["p.bin", "p.hex"])
def test_dis(call, bundles, file):
    assert call("dis", file).out == TEXT


def test_dis_reads_standard_input(call, bundles):
    assert call("dis", stdin=bundles).out == TEXT


def test_asm(call, bundles, room):
    assert bytes.fromhex(call("asm", "p.s").out) == bundles
    assert call("asm", "p.s", "--out", "again.bin").code == 0
    assert (room / "again.bin").read_bytes() == bundles
    assert call("dis", "p.bin", "--out", "again.s").code == 0
    assert (room / "again.s").read_text() == TEXT


def test_check_legal(call, bundles):
    done = call("check", "p.bin", "--level", "verifier")
    assert (done.code, done.out) == (0, "legal  2 bundles for mariana at level verifier\n")


def test_check_as_json(call, bundles, room):
    assert call("check", "p.bin", "--json").out == "[]\n"
    bad = bytearray(bundles)
    bad[0x20], bad[64 + 0x2B] = 0x06, 5
    (room / "bad.bin").write_bytes(bad)
    done = call("check", "bad.bin", "--json")
    assert done.code == 1
    dtype, flags = json.loads(done.out)
    assert (dtype["id"], dtype["got"], dtype["index"]) == ("wire.dtype", 6, 0)
    assert flags == {
        "id": "wire.accumulate_flags", "field": "accumulate_flags", "offset": 0x2B, "got": 5,
        "allowed": "0, 1, 2, 3, 4, 6", "index": 1,
        "message": "bit 0 START, bit 1 STOP, bit 2 ACCUMULATE (D12, D25)",
    }  # fmt: skip


def test_check_lists_everything(call, bundles, room):
    bad = bytearray(bundles)
    bad[0x2C] = 0x05
    bad[64 + 0x2B] = 5
    (room / "bad.bin").write_bytes(bad)
    done = call("check", "bad.bin")
    assert done.code == 1
    assert "0x2C" in done.out
    assert "0x2B" in done.out
    assert "violations in 2 bundles" in done.out


@pytest.mark.parametrize("width", [60, 80, 300])
def test_check_cuts_nothing(call, bundles, room, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    bad = bytearray(bundles)
    bad[0x2C] = 0x05
    bad[64 + 0x2B] = 5
    (room / "bad.bin").write_bytes(bad)
    out = call("check", "bad.bin").out
    assert "…" not in out
    assert all(len(line) <= width for line in out.splitlines())
    # Text that is folded keeps its characters, whatever the line ends do.
    letters = "".join(out.split())
    for v in mx.check(bytes(bad)):
        for text in (v.id, v.field, v.allowed, v.message, f"0x{v.offset:02X}"):
            assert "".join(text.split()) in letters or width == 300, text
            assert all(word in out for word in text.split()), text


def test_check_of_an_older_generation(call, bundles):
    done = call("check", "p.bin", "--arch", "CoreV3")
    assert done.code == 1
    assert "LdWeightMx needs mariana" in " ".join(done.out.split())


def test_explain(call, bundles):
    done = call("explain", bundles[64:].hex())
    assert done.code == 0
    for words in ("MatmultMx", "accumulate_flags", "3 (START|STOP)", "confirmed", "18 reserved"):
        assert words in done.out
    assert (
        call("explain", "p.bin", "--index", 1).out.split("bytes,")[1]
        == (done.out.split("bytes,")[1])
    )


def test_explain_shows_reserved_bytes_on_request(call, bundles):
    assert "reserved_2e" in call("explain", "p.bin", "--all").out
    assert "reserved_2e" not in call("explain", "p.bin").out


def test_explain_points_at_the_broken_byte(call, bundles):
    bad = bytearray(bundles[:64])
    bad[0x28] = 1
    done = call("explain", bad.hex())
    assert done.code == 1
    assert "broken  decode.reserved_28  reserved_28 at byte 0x28: got 1, allowed 0" in done.out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("dis", "nope.bin"), "nope.bin: no such file"),
        (("dis", "."), "is a directory"),
        (("check", "nope.bin"), "no such file"),
        (("explain", "nope.bin"), "no such file"),
        (("explain", "09zz"), "'z' at digit 2 is not hexadecimal"),
        (("explain", "091"), "an odd number"),
        (("explain", "0910"), "2 bytes are not whole bundles"),
        (("explain", "00" * 64), "opcode"),
        (("explain",), "Missing argument"),
        (("explain", "p.bin", "--index", "2"), "allowed 0..1"),
        (("asm", "p.bin"), "not a text file"),
        (("dis", "p.bin", "--arch", "trn9"), "sunda, cayman, mariana"),
        (("dis", "p.bin", "--arch", "sunda"), "mariana"),
        (("check", "p.bin", "--level", "all"), "--level"),
    ],
)
def test_bad_input(refused, bundles, args, words):
    assert words in refused(*args)


@pytest.mark.parametrize("keep", [1, 63, 65, 127])
def test_truncated_bundles(refused, bundles, room, keep):
    (room / "p.bin").write_bytes(bundles[:keep])
    for command in ("dis", "check", "explain", "run"):
        assert "not whole bundles" in refused(command, "p.bin")


def test_empty_input(refused, room):
    (room / "empty").write_bytes(b"")
    for command in ("dis", "check", "explain", "run"):
        assert "empty: empty" in refused(command, "empty")
    assert "no instruction" in refused("asm", "empty")


def test_assembly_errors_name_line_and_column(refused, room):
    (room / "p.s").write_text(TEXT.replace("num_active_rows=128", "num_active_rows=300", 1))
    assert "p.s: line 1, column " in refused("asm", "p.s", "--out", "p.bin")
