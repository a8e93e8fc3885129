"""What callers may give for a generation, a tag, an address or a program, and the refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest

import encoding as e
from encoding.codec import table_of
from encoding.docs import without_fields
from encoding.rows import Kind
from hardware import AddressError, Arch, CapabilityError, WireDtype, geometry

LOAD = e.LdWeightMx(
    src=e.MxPattern(e.Addr4.sbuf(0), e.Addr4.scale(0, 0x400), 64),
    dtype=WireDtype.FP8_EXP4, num_active_rows=32, num_active_cols=16, row_group=1,
)  # fmt: skip
BYTES = e.encode(LOAD)


@pytest.mark.parametrize("arch", [Arch.MARIANA, "mariana", "MARIANA", "CoreV4", "40", 40])
def test_every_name_of_a_generation_is_taken(arch):
    assert e.encode(LOAD, arch) == e.encode_all([LOAD], arch) == BYTES
    assert e.decode(BYTES, arch) == LOAD
    assert e.decode_all(BYTES, arch) == [LOAD]
    assert e.decode_stream(BYTES, arch)[0] == LOAD
    assert e.encode_stream([LOAD], arch) == BYTES
    assert e.assemble(e.disassemble(BYTES, arch), arch) == BYTES
    assert e.check(LOAD, arch) == []
    assert e.byte_map(BYTES, arch) == e.byte_map(BYTES)
    assert geometry(arch) == geometry(Arch.MARIANA)
    assert e.Emitter(arch).arch is Arch.MARIANA


@pytest.mark.parametrize("arch", ["trn9", 41, None, 2.5])
@pytest.mark.parametrize(
    "call",
    [
        lambda arch: e.encode(LOAD, arch),
        lambda arch: e.decode(BYTES, arch),
        lambda arch: e.decode_stream(BYTES, arch),
        lambda arch: e.check(LOAD, arch),
        lambda arch: e.disassemble(LOAD, arch),
        lambda arch: e.assemble("", arch),
        lambda arch: e.byte_map(BYTES, arch),
    ],
)
def test_an_unknown_generation_names_the_known_ones(call, arch):
    with pytest.raises(CapabilityError, match="sunda, cayman, mariana"):
        call(arch)


@pytest.mark.parametrize("given", [WireDtype.FP4_EXP2, 0x10, "FP4_EXP2", "fp4_exp2"])
def test_a_tag_is_taken_as_member_number_or_name(given):
    made = replace(LOAD, dtype=given)
    assert made.dtype is WireDtype.FP4_EXP2
    assert made == replace(LOAD, dtype=WireDtype.FP4_EXP2)


@pytest.mark.parametrize("given", ["FP4", "", 1.5, None])
def test_another_tag_is_refused_with_the_members(given):
    with pytest.raises(e.EncodeError) as caught:
        replace(LOAD, dtype=given)
    assert "0x10 (FP4_EXP2)" in caught.value.allowed
    assert caught.value.offset == 0x20


def test_a_missing_address_is_told_how_to_make_one():
    with pytest.raises(e.EncodeError, match=r"an Addr4, made by Addr4\.sbuf, Addr4\.psum"):
        e.Tensor3D(start=0)  # pyright: ignore[reportArgumentType] - the mistake under test
    with pytest.raises(e.EncodeError, match="allowed a Tensor3D or an Indirect16"):
        e.MatmultMx(
            src=LOAD.src, dtype=LOAD.dtype, num_active_rows=32, num_active_cols=16, row_group=1,
            out_dtype=WireDtype.FP32, accumulate_flags=3, dst=e.Addr4(0),  # pyright: ignore
        )  # fmt: skip


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: e.Addr4.sbuf(200), "SBUF partition 200: allowed 0..127"),
        (lambda: e.Addr4.psum(0, 8), "PSUM bank 8: allowed 0..7"),
        (lambda: e.Addr4.sbuf(0, 0x40000), "SBUF offset 0x40000: allowed 0..0x3ffff"),
        (lambda: e.Addr4.register(64), "address register 64: allowed 0..63"),
    ],
)
def test_a_partition_is_not_called_an_address(make, message):
    with pytest.raises(AddressError) as caught:
        make()
    assert str(caught.value) == message


@pytest.mark.parametrize("kind", [e.Tensor1D, e.Tensor2D, e.Tensor3D, e.Tensor4D])
def test_unused_dimensions_are_one_step_and_one_element(kind):
    start = e.Addr4.sbuf(3, 0x40)
    whole = kind(start)
    assert set(whole.steps) == set(whole.nums) == {1}
    assert kind(start, num0=7).count == 7
    # Only the constructor fills in: wire and text state every step and count.
    data = bytearray(e.encode_pattern(whole))
    data[-2:] = b"\0\0"
    assert e.decode_pattern(bytes(data), kind).nums[-1] == 0


def test_text_states_every_step_and_count():
    multiply = e.QuantizeMx(
        src=e.Tensor3D(e.Addr4.sbuf(0), num0=4), num_active_channels=32,
        src_dtype=WireDtype.BFLOAT16, dst_dtype=WireDtype.FP8_EXP4, dst=LOAD.src,
    )  # fmt: skip
    text = e.disassemble(multiply)
    assert "step0=1 step1=1 step2=1 num0=4 num1=1 num2=1" in text
    with pytest.raises(e.AssemblyError, match="also num2"):
        e.assemble(text.replace(" num2=1", ""))


@pytest.mark.parametrize("kind", e.bundle_types())
def test_a_docstring_lists_every_field(kind):
    fields = [r for r in table_of(kind) if r.kind not in (Kind.CONST, Kind.RESERVED)]
    listed = [
        line.split(":")[0].strip() for line in kind.__doc__.partition("Attributes:")[2].split("\n")
    ]
    assert [name for name in listed if name] == [row.name for row in fields]
    assert without_fields(kind.__doc__).endswith(".")


class Held:
    """What check and disassemble ask of a program: its bytes and its generation."""

    arch = Arch.MARIANA

    def __bytes__(self) -> bytes:
        return BYTES


def test_programs_bring_their_bytes_and_their_generation():
    assert e.check(Held()) == e.check(Held(), "sunda") == []
    for form in (Held(), LOAD, [LOAD], (LOAD,), BYTES, e.decode_stream(BYTES)):
        assert e.disassemble(form) == e.disassemble(BYTES)
    assert e.check(e.decode_stream(BYTES)) == []
    with pytest.raises(CapabilityError, match="LdWeightMx"):
        e.disassemble([LOAD], "cayman")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: e.check(LOAD, level="foo"), e.EncodeError, "check.level: got foo, allowed wire"),
        (lambda: e.check("x"), e.EncodeError, "check.data: got str, allowed bytes, an instruction"),
        (lambda: e.encode("x"), e.EncodeError, "encode.instruction: got x, allowed an instr"),
        (lambda: e.disassemble([3]), e.EncodeError, "encode.instruction: got 3, allowed an instr"),
        (lambda: e.disassemble("x"), e.DecodeError, "data: got str, allowed bytes"),
        (lambda: e.decode(b"x"), e.DecodeError, "bundle 0, length: got 1, allowed 64 bytes"),
    ],
)
def test_arguments_have_no_byte_offset(call, error, message):
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value).startswith(message)
    assert "byte 0x" not in str(caught.value)
