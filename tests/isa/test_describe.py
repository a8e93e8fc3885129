"""The byte map as data, and what the byte layer may import."""

from __future__ import annotations

import subprocess
import sys

import pytest

from encoding import DecodeError, LdWeightMx, MatmultMx, assemble
from encoding.describe import byte_map, fields, markdown
from hardware import Arch, Evidence

DATA = assemble(
    "MatmultMx src={data=sbuf(32, 0x1000) scale=sbuf(32, 0x40) extent=1024 step=-1} dtype=FP8_EXP4"
    " num_active_rows=32 num_active_cols=96 out_dtype=FP32 accumulate_flags=3 row_group=2"
    " dst={start=psum(0, 3, 0x10) step0=1 step1=64 step2=1 num0=64 num1=4 num2=1}"
)


def test_rows_follow_one_another_and_spell_every_byte():
    rows = byte_map(DATA)
    at = 0
    for row in rows:
        assert row.offset * 8 + row.bit == at
        at += row.bits
    assert at == 512
    assert bytes.fromhex("".join(row.hex for row in rows)) == DATA
    assert not any(row.problem for row in rows)


def test_values_and_evidence():
    rows = {row.field: row for row in byte_map(DATA)}
    assert rows["src.data"].value == "sbuf(32, 0x1000)"
    assert rows["src.step"].value == "-1"
    assert rows["dtype"].value == "FP8_EXP4"
    assert rows["accumulate_flags"].value == "3 (START|STOP)"
    assert rows["row_group"].value == "2 (rows 32..63)"
    assert rows["dst.start"].value == "psum(0, 3, 0x10)"
    assert rows["col_group"].legal == "0xf"
    assert rows["psum_zero_region"].legal == "0..3"
    assert rows["num_active_cols"].evidence is Evidence.STRONG
    assert rows["dst.num0"].source == "TENSOR1D / 2D / 3D Descriptors"


def test_damaged_bundles_are_explained_too():
    data = bytearray(DATA)
    data[0x20], data[0x2D], data[0x2E] = 0x60, 0, 1
    problems = {row.field: row.problem for row in byte_map(data) if row.problem}
    assert set(problems) == {"dtype", "col_group", "reserved_2e"}
    assert problems["reserved_2e"] == "allowed 0"


@pytest.mark.parametrize("data", [b"", bytes(64), DATA + DATA, DATA[:-1]])
def test_what_cannot_be_explained(data):
    with pytest.raises(DecodeError):
        byte_map(data)


def test_older_generations_do_not_explain():
    with pytest.raises(DecodeError):
        byte_map(DATA, Arch.SUNDA)


def test_tables_of_classes():
    rows = fields(LdWeightMx)
    assert all(row.raw is None and not row.hex for row in rows)
    text = markdown(MatmultMx)
    assert "| 0x2b | 8 | accumulate_flags | bit 0 START" in text
    assert len(text.splitlines()) == 2 + len(fields(MatmultMx))


def test_the_byte_layer_imports_the_standard_library_only():
    code = (
        "import sys; before = set(sys.modules); import encoding, hardware, encoding.sample;"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "print(sorted(new - set(sys.stdlib_module_names) - {'encoding', 'hardware'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
