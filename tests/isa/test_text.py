"""Assembly text: inverse of disassembly, comments, and errors with line and column."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoding import (
    Addr4,
    AssemblyError,
    DecodeError,
    LdWeightMx,
    assemble,
    decode,
    disassemble,
    encode,
    encode_all,
)
from encoding.bundle import bundle_types, layout_of
from encoding.codec import rows_of
from encoding.rows import Kind
from encoding.text import parse_text
from hardware import Arch, CapabilityError

SRC = "src={data=sbuf(32, 0x100) scale=sbuf(32, 0x2040) extent=384 scale_partition=4}"
REST = "dtype=FP4_EXP2 num_active_rows=32 num_active_cols=96 row_group=2"
LINE = f"LdWeightMx {SRC} {REST}"


def values(row):
    """Every value that fits a row, its legal ones more often."""
    if row.record is not None:
        return records(row.record)
    if row.kind is Kind.ADDRESS:
        words = st.integers(0, 0xFFFF_FFFF).map(Addr4)
        return words if row.gather else words.filter(lambda word: not word.is_gather)
    if row.enum is not None:
        return st.sampled_from(list(row.enum))
    fitting = st.integers(row.lowest, row.highest)
    return fitting if row.legal is None else st.sampled_from(list(row.legal)) | fitting


def records(cls):
    """Strategy of a record class, derived from its table."""
    rows = [row for row in rows_of(cls) if row.kind not in (Kind.CONST, Kind.RESERVED)]
    return st.builds(cls, **{row.name: values(row) for row in rows})


@st.composite
def instructions(draw, residue=False):
    cls = draw(st.sampled_from(bundle_types()))
    instruction = draw(records(cls))
    if not residue:
        return instruction
    kept = draw(st.integers(0, (1 << 512) - 1)) & layout_of(cls).reserved_mask
    data = int.from_bytes(encode(instruction), "little") | kept
    return decode(data.to_bytes(64, "little"), strict=False)


@given(st.lists(instructions(), max_size=4))
def test_text_and_bytes_are_inverse(program):
    data = encode_all(program)
    text = disassemble(data)
    assert assemble(text) == data
    assert disassemble(assemble(text)) == text
    assert text.count("\n") == len(program)


@given(instructions(residue=True))
def test_kept_reserved_bits_have_a_spelling(instruction):
    data = encode(instruction)
    text = disassemble(data, strict=False)
    assert assemble(text) == data
    assert str(instruction) == text.rstrip("\n")


def test_the_text_form():
    assert disassemble(assemble(LINE)) == LINE + "\n"


def test_comments_blanks_commas_and_line_breaks_in_braces():
    text = f"""
    # the whole program
    LdWeightMx src={{ data = sbuf(32,256), scale=sbuf(32 0x2040)  # scales
        extent=0x180
        scale_partition=0b100 }}, {REST}   # done

    """
    assert assemble(text) == assemble(LINE)
    assert assemble("") == assemble("\n # nothing\n") == b""


def test_numbers_for_names_and_words_for_addresses():
    text = LINE.replace("FP4_EXP2", "16").replace("sbuf(32, 0x100)", "word(0x800100)")
    assert assemble(text) == assemble(LINE)
    assert "register(63)" in disassemble(assemble(LINE.replace("sbuf(32, 0x100)", "register(63)")))


ERRORS = [
    ("Foo", 1, 1, "Foo", "LdWeightMx, MatmultMx, QuantizeMx"),
    ("\n\n  $", 3, 3, "'$'", "a name"),
    ("LdWeightMx", 1, 11, "the end of the text", "also src, dtype"),
    (f"LdWeightMx {REST}\n", 1, 12 + len(REST), "the end of the line", "also src"),
    (LINE.replace("extent=384", "extent=70000"), 1, LINE.index("384") + 1, "70000", "0..65535"),
    (LINE.replace("extent=384", "extent=x"), 1, LINE.index("384") + 1, "x", "a number"),
    (LINE.replace("FP4_EXP2", "FP3"), 1, LINE.index("FP4") + 1, "FP3", "FP4_EXP2"),
    (LINE.replace("FP4_EXP2", "0x17"), 1, LINE.index("FP4") + 1, "0x17", "FP4_EXP2"),
    (LINE.replace("sbuf(32, 0x100)", "sbuf(200, 0)"), 1, 22, "sbuf", "partition 0..0x7f"),
    (LINE.replace("sbuf(32, 0x100)", "word(0x100000000)"), 1, 22, "word", "0..0xffffffff"),
    (LINE.replace("sbuf(32, 0x100)", "word(0x20000000)"), 1, 22, "word", "gather"),
    (LINE.replace("sbuf(32, 0x100)", "ram(1)"), 1, 22, "ram", "sbuf(..)"),
    (LINE.replace("sbuf(32, 0x100)", "sbuf(32)"), 1, 29, ")", "a number"),
    (LINE + " row_group=2", 1, len(LINE) + 2, "row_group", "wait_mode"),
    (LINE + " colour=2", 1, len(LINE) + 2, "colour", "wait_mode"),
    (LINE + " wait_mode 2", 1, len(LINE) + 12, "2", "'='"),
    (LINE + " residue=1", 1, len(LINE) + 10, "1", "reserved bits only"),
    (LINE + " wait_semaphore=" + "9" * 5000, 1, len(LINE) + 17, "9" * 40, "a number"),
    (LINE + " wait_semaphore=-1", 1, len(LINE) + 17, "-1", "0..255"),
    (LINE + " saturate_bit=1", 1, len(LINE) + 2, "saturate_bit", "wait_mode"),
    (LINE.replace("}", ""), 1, len(LINE) - len(REST), "dtype", "step"),
    ("# fine\n" + LINE + "\n  MatmultMx src=3", 3, 17, "3", "'{'"),
]


@pytest.mark.parametrize(("text", "line", "column", "got", "allowed"), ERRORS)
def test_errors_name_line_column_found_and_allowed(text, line, column, got, allowed):
    with pytest.raises(AssemblyError) as caught:
        assemble(text)
    error = caught.value
    assert (error.line, error.column, error.got) == (line, column, got)
    assert allowed in error.allowed
    assert str(error).startswith(f"line {line}, column {column}: got {got}, allowed ")


@given(st.text(alphabet="LdWeightMx srcd=a{}()0x1,-#\n$é", max_size=60) | st.text(max_size=40))
def test_any_text_gives_instructions_or_an_assembly_error(text):
    try:
        good = isinstance(parse_text(text), list)
    except AssemblyError as error:
        good = error.line >= 1
    assert good


@given(st.integers(0, len(LINE)), st.text(max_size=3))
def test_damaged_lines_give_instructions_or_an_assembly_error(at, text):
    try:
        program = parse_text(LINE[:at] + text + LINE[at + len(text) :])
        good = all(isinstance(i, LdWeightMx) for i in program)
    except AssemblyError as error:
        good = bool(error.allowed)
    assert good


def test_generation_and_type_are_refused_by_name():
    with pytest.raises(CapabilityError):
        assemble(LINE, Arch.CAYMAN)
    with pytest.raises(AssemblyError):
        assemble(b"LdWeightMx")
    with pytest.raises(DecodeError) as caught:
        disassemble(assemble(LINE) + bytes(64))
    assert caught.value.index == 1
