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
    check,
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


def values(row, arch):
    """Every value that fits a row, its legal ones more often."""
    if row.record is not None:
        return st.one_of([records(record, arch) for record in row.records])
    if row.kind is Kind.ADDRESS:
        words = st.integers(0, 0xFFFF_FFFF).map(Addr4)
        if row.index:
            return words.map(lambda word: Addr4(word.word & ~0x4000_0000 | 0x2000_0000))
        return words if row.gather else words.filter(lambda word: not word.is_gather)
    if row.enum is not None:
        return st.sampled_from(list(row.enum))
    fitting = st.integers(row.lowest, row.highest)
    return fitting if row.legal is None else st.sampled_from(list(row.legal)) | fitting


def records(cls, arch):
    """Strategy of a record class on a generation, derived from its table."""
    rows = [row for row in rows_of(cls, arch) if row.kind not in (Kind.CONST, Kind.RESERVED)]
    return st.builds(cls, **{row.name: values(row, arch) for row in rows})


STRATEGIES = {
    (cls, arch): records(cls, arch)
    for cls in bundle_types()
    for arch in Arch
    if arch >= cls.first_arch
}


@st.composite
def instructions(draw, residue=False):
    """A generation, and an instruction that it has."""
    cls, arch = draw(st.sampled_from(list(STRATEGIES)))
    instruction = draw(STRATEGIES[cls, arch])
    if not residue:
        return arch, instruction
    kept = draw(st.integers(0, (1 << 512) - 1)) & layout_of(instruction, arch).reserved_mask
    data = int.from_bytes(encode(instruction, arch), "little") | kept
    return arch, decode(data.to_bytes(64, "little"), arch, strict=False)


@given(instructions())
def test_text_and_bytes_are_inverse(drawn):
    arch, instruction = drawn
    data = encode(instruction, arch)
    assert decode(data, arch) == instruction
    text = disassemble(data, arch)
    assert assemble(text, arch) == data
    assert disassemble(assemble(text, arch), arch) == text
    assert text.count("\n") == 1


@given(st.sampled_from(list(Arch)), st.data())
def test_programs_are_inverse_too(arch, data):
    known = [strategy for (_, of), strategy in STRATEGIES.items() if of == arch]
    program = data.draw(st.lists(st.one_of(known), max_size=4))
    stream = encode_all(program, arch)
    text = disassemble(stream, arch)
    assert assemble(text, arch) == stream
    assert text.count("\n") == len(program)


@given(instructions(residue=True))
def test_kept_reserved_bits_have_a_spelling(drawn):
    arch, instruction = drawn
    data = encode(instruction, arch)
    text = disassemble(data, arch, strict=False)
    assert assemble(text, arch) == data
    assert str(instruction) == text.rstrip("\n")


def test_gather_descriptors_are_named():
    line = LINE[: LINE.index("src=")] + (
        "src=MxIndirect{index=word(0x20000100) data=sbuf(32, 0x100) scale=sbuf(32, 0x2040) "
        "extent=16 scale_partition=4} " + REST + "\n"
    )
    data = assemble(line)
    assert data[0x10:0x20].hex(" ", 4) == "00010020 00018000 40208000 10000004"
    assert disassemble(data) == line
    # The static descriptor may be named as well.
    assert assemble(LINE.replace("src={", "src=MxPattern{")) == assemble(LINE)


def test_fields_of_the_old_generations_have_a_spelling():
    line = (
        "LoadStationary src={start=sbuf(0, 0x0) step0=1 step1=1 step2=1 num0=64 num1=1 num2=1} "
        "dtype=BFLOAT16 replication0=7 replication1=7 num_active_rows=128 num_active_cols=64 "
        "row_group=15 col_group=3 xbus_sel=1\n"
    )
    data = assemble(line, Arch.SUNDA)
    assert (data[0x24:0x26], data[0x2E]) == (b"\x07\x07", 1)
    assert disassemble(data, Arch.SUNDA) == line
    with pytest.raises(CapabilityError, match=r"LoadStationary\.replication0 .*cayman.*sunda"):
        assemble(line, Arch.CAYMAN)


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
    (LINE.replace("sbuf(32, 0x100)", "sbuf(200, 0)"), 1, 22, "sbuf", "partition 0..127"),
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
    (LINE.replace("src={", "src=Tensor3D{"), 1, 16, "Tensor3D", "{ or MxPattern, MxIndirect"),
    (LINE.replace("src={", "src=MxIndirect{"), 1, LINE.index("}") + 11, "}", "also index"),
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


def test_reserved_bits_of_another_generation_are_refused_where_they_stand():
    line = (
        "LoadStationary src={start=sbuf(0, 0x0) step0=1 step1=1 step2=1 num0=64 num1=1 num2=1} "
        "dtype=BFLOAT16 num_active_rows=128 num_active_cols=64 row_group=15 col_group=3 "
    )
    kept = line + f"residue={1 << 0x24 * 8:#x}"
    assert assemble(kept, Arch.CAYMAN)[0x24] == 1
    with pytest.raises(AssemblyError, match="reserved on this generation") as caught:
        assemble("\n" + kept, Arch.SUNDA)
    assert (caught.value.line, caught.value.column) == (2, 1)
    (instruction,) = parse_text(kept)
    assert [v.id for v in check(instruction, Arch.CAYMAN)] == ["decode.reserved_24"]
    assert [v.id for v in check(instruction, Arch.SUNDA)] == ["decode.residue"]


def test_generation_and_type_are_refused_by_name():
    with pytest.raises(CapabilityError):
        assemble(LINE, Arch.CAYMAN)
    with pytest.raises(AssemblyError):
        assemble(b"LdWeightMx")
    with pytest.raises(DecodeError) as caught:
        disassemble(assemble(LINE) + bytes(64))
    assert caught.value.index == 1
