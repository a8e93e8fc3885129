"""Bytes against hand-written literals, round trips, and what construction refuses."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from encoding import (
    Addr4,
    DecodeError,
    EncodeError,
    Indirect16,
    LdWeightMx,
    LoadTagsSparse,
    MatmultMx,
    MxPattern,
    QuantizeMx,
    Tensor3D,
    decode,
    decode_all,
    encode,
    encode_all,
)
from encoding.sample import draw
from hardware import Arch, CapabilityError, WireDtype

LOAD = LdWeightMx(
    src=MxPattern(Addr4.sbuf(32, 0x100), Addr4.scale(36, 0x2040), 384, 1, 4),
    dtype=WireDtype.FP4_EXP2,
    num_active_rows=32,
    num_active_cols=96,
    row_group=2,
)
MULTIPLY = MatmultMx(
    src=MxPattern(Addr4.sbuf(64, 0x1FC), Addr4.scale(72, 0x40), 512, -1, 8),
    dtype=WireDtype.FP8_EXP5,
    num_active_rows=64,
    num_active_cols=96,
    out_dtype=WireDtype.BFLOAT16,
    accumulate_flags=3,
    row_group=0xC,
    psum_zero_region=1,
    dst=Tensor3D(Addr4.psum(0, 3, 0x10), 2, -64, 1, 16, 8, 1),
)
QUANTIZE = QuantizeMx(
    src=Tensor3D(Addr4.sbuf(0, 0x400), 1, 256, 1, 128, 2, 1),
    num_active_channels=96,
    src_dtype=WireDtype.FP16,
    dst_dtype=WireDtype.FP8_EXP4,
    dst=MxPattern(Addr4.sbuf(0, 0x800), Addr4.scale(12, 0xC00), 256, 1, 12),
    saturate_bit=True,
    wait_mode=5,
    wait_semaphore=7,
    update_mode=0x13,
    update_semaphore=9,
    semaphore_value=0x01020304,
)
TAGS = LoadTagsSparse(
    src=Tensor3D(Addr4.sbuf(64, 0x40), 1, 0, 0, 24, 1, 1),
    force_tag_bits=8,
    num_active_rows=64,
    num_active_cols=96,
    row_group=0xC,
)
# Worked by hand from the page's field tables: header, events, reserved | source | control | target.
GOLDEN = [
    (
        LOAD,
        "09100000 00000000 00000000 00000000  00018000 40208000 8001 01 04 00000000"
        "10 0000000000 20 60 00000000 02 0f 0000  00000000000000000000000000000000",
    ),
    (
        MULTIPLY,
        "0a100000 00000000 00000000 00000000  fc010001 40000001 0002 ff 08 00000000"
        "0f 0000000000 40 60 06 0000 03 0c 0f 00 01  10180002 0200 c0ff 0100 1000 0800 0100",
    ),
    (
        QUANTIZE,
        "e3110000 05071309 04030201 00000000  00040000 0100 0001 0100 8000 0200 0100"
        "00 60 07 0e 000000000000000000000000  00080000 000c0000 0001 01 0c 00000000",
    ),
]


@pytest.mark.parametrize(("instruction", "text"), GOLDEN)
def test_golden_bytes(instruction, text):
    data = bytes.fromhex(text)
    assert len(data) == 64
    assert encode(instruction) == data
    assert decode(data) == instruction


def test_streams_are_plain_concatenation():
    program = [instruction for instruction, _ in GOLDEN]
    data = encode_all(program)
    assert data == b"".join(bytes.fromhex(text) for _, text in GOLDEN)
    assert decode_all(data) == program
    assert decode_all(b"") == []
    assert decode_all(np.frombuffer(data, np.uint8)) == program


@pytest.mark.parametrize("cls", [LdWeightMx, MatmultMx, QuantizeMx])
def test_random_records_round_trip(cls):
    rng = random.Random(7)
    for _ in range(500):
        instruction = draw(cls, rng, wild=0.4)
        again = decode(encode(instruction))
        assert again == instruction
        assert [type(v) for v in vars_of(again)] == [type(v) for v in vars_of(instruction)]


def vars_of(record):
    return [getattr(record, f.name) for f in dataclasses.fields(record)]


def test_repr_evaluates_back():
    names = {c.__name__: c for c in (Addr4, LdWeightMx, MatmultMx, MxPattern, QuantizeMx, Tensor3D)}
    for instruction, _ in GOLDEN:
        assert eval(repr(instruction), {"WireDtype": WireDtype, **names}) == instruction


def test_fields_take_numpy_integers_and_plain_numbers_for_tags():
    load = dataclasses.replace(
        LOAD, num_active_cols=np.int32(96), dtype=0x10, row_group=np.uint8(2)
    )
    assert load == LOAD
    assert type(load.num_active_cols) is int
    assert load.dtype is WireDtype.FP4_EXP2
    assert load.col_group == 0x0F


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("num_active_cols", 256, "0..255"),
        ("num_active_cols", -1, "0..255"),
        ("num_active_cols", 1.0, "an integer"),
        ("dtype", 0x77, "0x10"),
        ("src", Addr4(0), "an MxPattern"),
        ("semaphore_value", 1 << 32, "0..4294967295"),
        ("residue", 1, "reserved bits only"),
    ],
)
def test_construction_names_field_value_and_allowed(field, value, allowed):
    with pytest.raises(EncodeError) as caught:
        dataclasses.replace(LOAD, **{field: value})
    assert caught.value.record == "LdWeightMx"
    assert caught.value.field == field
    assert caught.value.value == value
    assert allowed in caught.value.allowed


def test_the_gather_marker_belongs_to_gather_descriptors():
    marked = Addr4(0x2000_0000)
    with pytest.raises(EncodeError, match="gather"):
        dataclasses.replace(LOAD.src, data=marked)
    with pytest.raises(EncodeError, match="gather"):
        dataclasses.replace(MULTIPLY.dst, start=marked)
    with pytest.raises(EncodeError, match="gather"):
        Indirect16(index=Addr4(0), data=Addr4(0), num=1)
    assert dataclasses.replace(LOAD.src, scale=marked).scale.is_indirect
    # The marker turns the destination into a gather, whose tail is reserved.
    data = bytearray(encode(MULTIPLY))
    data[0x33] |= 0x20
    with pytest.raises(DecodeError, match=r"MatmultMx\.dst\.reserved_a \(byte 0x3a\)"):
        decode(data)
    data[0x3A:] = bytes(6)
    assert decode(data).dst == Indirect16(Addr4(0x2200_1810), Addr4(0xFFC0_0002), 1)
    # No gather stands in the place of the tags: there the marker is refused.
    tags = bytearray(encode(TAGS))
    tags[0x13] |= 0x20
    with pytest.raises(DecodeError, match=r"LoadTagsSparse\.src\.start \(byte 0x10\)"):
        decode(tags)


@pytest.mark.parametrize(
    ("offset", "value", "field", "allowed"),
    [
        (0x01, 0x11, "inst_word_len", "0x10"),
        (0x02, 0x01, "reserved_02", "0"),
        (0x0C, 0x80, "reserved_0c", "0"),
        (0x1F, 0x01, "src.reserved_c", "0"),
        (0x20, 0x18, "dtype", "FP8_EXP4"),
        (0x2D, 0x03, "col_group", "0xf"),
        (0x3F, 0x01, "reserved_2e", "0"),
    ],
)
def test_decode_names_field_offset_value_and_allowed(offset, value, field, allowed):
    data = bytearray(encode(LOAD))
    data[offset] = value
    with pytest.raises(DecodeError) as caught:
        decode(data, index=3)
    error = caught.value
    assert (error.record, error.field, error.index) == ("LdWeightMx", field, 3)
    assert error.offset <= offset
    assert allowed in error.allowed
    assert str(error).startswith(f"bundle 3, LdWeightMx.{field} (byte ")


def test_unknown_reserved_bits_survive_lenient_decoding():
    data = bytearray(encode(MULTIPLY))
    data[0x03], data[0x1D], data[0x2E] = 0x5A, 0x80, 0x01
    kept = decode(data, strict=False)
    assert encode(kept) == bytes(data)
    assert kept != MULTIPLY
    assert dataclasses.replace(kept, residue=0) == MULTIPLY
    data[0x2D] = 0x01
    with pytest.raises(DecodeError, match="col_group"):
        decode(data, strict=False)


@pytest.mark.parametrize("data", [b"", b"\x09\x10", bytes(63), bytes(65), "text", None, 3.5])
def test_wrong_sizes_and_types_are_typed_errors(data):
    with pytest.raises(DecodeError):
        decode(data)


def test_truncated_stream_names_the_incomplete_bundle():
    with pytest.raises(DecodeError) as caught:
        decode_all(encode(LOAD) + b"\x09")
    assert (caught.value.field, caught.value.index, caught.value.got) == ("length", 1, 65)


def test_unknown_opcode_lists_the_known_ones():
    with pytest.raises(DecodeError) as caught:
        decode(bytes([0x42]) + bytes(63))
    assert (caught.value.field, caught.value.got) == ("opcode", 0x42)
    assert "0xe3 (QuantizeMx)" in caught.value.allowed


@pytest.mark.parametrize("arch", [Arch.SUNDA, Arch.CAYMAN])
@pytest.mark.parametrize("instruction", [LOAD, MULTIPLY, QUANTIZE])
def test_older_generations_lack_the_bundles(instruction, arch):
    with pytest.raises(CapabilityError) as refused:
        encode(instruction, arch)
    assert refused.value.needed == "mariana"
    with pytest.raises(DecodeError) as caught:
        decode(encode(instruction), arch)
    assert caught.value.field == "opcode"
    assert "mariana" in caught.value.allowed


def test_encode_refuses_what_is_no_instruction():
    with pytest.raises(EncodeError):
        encode(LOAD.src)
