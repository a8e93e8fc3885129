"""The byte examples that the public pages print, one test per row."""

from __future__ import annotations

import pytest

from encoding import (
    AccessPattern,
    Addr4,
    MxPattern,
    Tensor2D,
    Tensor3D,
    bundle_types,
    check,
    decode_pattern,
    encode,
    encode_pattern,
)
from encoding.bundle import layout_of
from encoding.describe import byte_map
from encoding.pack_dense import load_stationary, load_tags, matmul
from hardware import Arch, Dtype, Space
from hardware.pe import ACCUMULATE_VALUES, FORCE_TAG_BITS, LANE_GROUPS, row_group

WEIGHTS = AccessPattern(Dtype.FLOAT32R, 0, ((1, 128), (1, 64)))
OUT = AccessPattern(Dtype.FLOAT32, 0, ((1, 64), (1, 64)), space=Space.PSUM)


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("LoadStationary", "01100000"), ("Matmul", "02100000"), ("LoadTagsSparse", "06100000"),
        ("MatmultSparse", "07100000"), ("LdWeightMx", "09100000"), ("MatmultMx", "0a100000"),
        ("QuantizeMx", "e3100000"),
    ],
)  # fmt: skip
def test_headers(name, header):
    cls = next(cls for cls in bundle_types() if cls.mnemonic == name)
    word = layout_of(cls).const_match & 0xFFFFFFFF
    assert word.to_bytes(4, "little").hex() == header
    assert word & 0xFFFF == 0x1000 | cls.opcode


def test_fp32r_marker():
    load = load_stationary(WEIGHTS, Arch.CAYMAN)
    multiply = matmul(load, WEIGHTS, OUT, Arch.CAYMAN, accumulate_flags=3)
    for bundle in (load, multiply):
        data = encode(bundle, Arch.CAYMAN)
        assert data[0x20:0x22].hex() == "0a02"
        assert int.from_bytes(data[0x20:0x22], "little") == 522
        values = {row.field: row.value for row in byte_map(data, Arch.CAYMAN)}
        assert values["fp32_mode"] == "2 (HIGH)"
        assert values["col_group"] == "3 (columns 0..63)"


def test_spare_dimensions_and_tags():
    tags = AccessPattern(Dtype.INT16, 0, ((1, 128), (1, 0x0102)))
    data = encode(load_tags(AccessPattern(Dtype.INT16, 0, ((1, 128), (1, 24)))), Arch.CAYMAN)
    assert data[0x14:0x20].hex() == "010000000000180001000100"
    pattern = Tensor3D(Addr4(0), 1, 0, 0, tags.count, 1, 1)
    assert encode_pattern(pattern)[4:].hex() == "010000000000020101000100"


def test_the_disputed_2d_example_is_a_literal_only():
    # The page gives the outer stride first; innermost first is the rule (D14).
    body = bytes.fromhex("4000010010002000")
    pattern = decode_pattern(bytes(4) + body, Tensor2D)
    assert (pattern.steps, pattern.nums) == ((64, 1), (16, 32))
    assert encode_pattern(pattern) == bytes(4) + body


def test_a_step_of_minus_one():
    assert encode_pattern(Tensor2D(Addr4(0), -1, 1, 2, 1))[4:6].hex() == "ffff"
    assert encode_pattern(MxPattern(Addr4(0), Addr4(0), 4, -1))[0xA] == 0xFF


def test_register_words_and_the_psum_base():
    for number in (0, 5, 63):
        assert Addr4.register(number).word.to_bytes(4, "little").hex() == f"{number:02x}000080"
    assert Addr4.psum(0, 0).word.to_bytes(4, "little").hex() == "00000002"


def test_group_tables():
    for table, size, shift in (
        ("01000000020000000400000008000000", 32, 5), ("030000000c000000", 64, 6),
    ):  # fmt: skip
        raw = bytes.fromhex(table)
        codes = [int.from_bytes(raw[i : i + 4], "little") for i in range(0, len(raw), 4)]
        assert [row_group(i << shift, size) for i in range(len(codes))] == codes
    assert row_group(0, 65) == 15


def test_accumulate_set_and_remap():
    seed = (0x03020100).to_bytes(4, "little") + (0x0604).to_bytes(2, "little")
    assert seed.hex() == "000102030406"
    assert set(seed) == ACCUMULATE_VALUES
    assert [FORCE_TAG_BITS.get(group) for group in range(17)] == [
        None, 0, 4, 0, 8, None, None, None, 0xC, None, None, None, 8, None, None, 0, None,
    ]  # fmt: skip
    # Every reachable remap target comes from the low two bits of the first selected quadrant.
    assert all(FORCE_TAG_BITS[g.code] == 4 * g.quadrants[0] for g in LANE_GROUPS.values())


def test_single_byte_judgements_of_the_accumulate_byte_on_every_generation():
    for arch in Arch:
        load = load_stationary(WEIGHTS, arch)
        data = bytearray(encode(matmul(load, WEIGHTS, OUT, arch, accumulate_flags=0), arch))
        legal = set()
        for value in range(256):
            data[0x2B] = value
            if not check(data, arch):
                legal.add(value)
        assert legal == {0, 1, 2, 3, 4, 6}
