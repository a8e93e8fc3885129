"""Chip facts against the literal tables of the public pages."""

from __future__ import annotations

import pytest

from hardware import (
    AddressError,
    Arch,
    CapabilityError,
    Dtype,
    Engine,
    Space,
    WireDtype,
    geometry,
    quadrant,
)
from hardware.dtypes import DENSE_DTYPES, DTYPES, alignment
from hardware.memory import psum_address, sbuf_address, scale_address
from hardware.opcodes import OPCODES
from hardware.pe import (
    FORCE_TAG_BITS,
    FP32R_WORD,
    LANE_GROUPS,
    XBUS_SELECT,
    ZERO_REGIONS,
    Fp32Mode,
    PerfMode,
    col_group,
    require,
    row_group,
    tile_starts,
    zero_region,
)

# Raw tables as the pages print them, index 0..19.
SUNDA_TAGS = bytes.fromhex("030205 0d0e0e030f0e0f 050406070908 0a0b010c".replace(" ", ""))
MARIANA_TAGS = bytes.fromhex("030210 0d0e0e030f0e0f 050406070908 0a0b010c".replace(" ", ""))
STRIDES = [1, 1, 2, 1, 1, 1, 1, 1, 4, 4, 2, 2, 2, 2, 4, 4, 4, 4, 8, 8]


def test_generations():
    assert [int(arch) for arch in Arch] == [20, 30, 40]
    assert [arch.core for arch in Arch] == ["CoreV2", "CoreV3", "CoreV4"]
    assert Arch.parse("mariana") is Arch.parse("CoreV4") is Arch.parse(" 40 ") is Arch.MARIANA
    with pytest.raises(CapabilityError, match="sunda, cayman, mariana"):
        Arch.parse("maverick")


def test_engines():
    assert {e.name: (e.value.ir, e.value.wire) for e in Engine} == {
        "POOL": (1, 2), "ACTIVATION": (2, 1), "PE": (3, 0), "DMA": (4, None), "DVE": (5, 3),
        "SP": (6, 4),
    }  # fmt: skip
    assert Engine.DVE.stream == "DVE.bin"


def test_geometry():
    assert [geometry(arch).sbuf_bytes >> 10 for arch in Arch] == [192, 224, 256]
    for arch in Arch:
        sizes = geometry(arch)
        assert (sizes.psum_banks, sizes.psum_bank_bytes, sizes.psum_bytes) == (8, 2048, 16384)
        assert sizes.partitions == 128
    assert [quadrant(p) for p in (0, 31, 32, 127)] == [0, 0, 1, 3]
    assert [space.value for space in Space] == ["SBUF", "PSUM"]


def test_address_formulas():
    assert sbuf_address(33, 7) == (33 << 18) + 7
    assert psum_address(33, 5, 7) == 0x2000000 + (33 << 15) + (5 << 11) + 7
    assert [scale_address(p, 9) for p in (0, 31, 36, 127)] == [9, 9, 0x800009, 0x1800009]
    with pytest.raises(AddressError) as caught:
        sbuf_address(128, 0)
    assert (caught.value.space, caught.value.address) == ("SBUF", 128)


def test_dtype_tables():
    assert [int(d.tag(Arch.SUNDA)) for d in Dtype] == list(SUNDA_TAGS)
    assert [int(d.tag(Arch.MARIANA)) for d in Dtype] == list(MARIANA_TAGS)
    assert [d.fact.storage for d in Dtype] == STRIDES
    refused = []
    for dtype in Dtype:
        try:
            assert dtype.tag(Arch.CAYMAN) == dtype.tag(Arch.SUNDA)
        except CapabilityError:
            refused.append(int(dtype))
    assert refused == [int(d) for d in Dtype if DTYPES[d].packed] == [2, 8, 9]


def test_wire_enum_sizes_and_classes():
    assert [sum(tag.exists_on(arch) for tag in WireDtype) for arch in Arch] == [16, 16, 24]
    sizes = {1: [2, 3, 13, 14, 15, 16], 2: [4, 5, 6, 7], 4: [8, 9, 10, 11], 8: [1, 12]}
    for size, tags in sizes.items():
        for tag in tags:
            assert WireDtype(tag).size == size
            assert alignment(tag, Arch.MARIANA) == size
    assert alignment(0x10, Arch.CAYMAN) == alignment(0, Arch.MARIANA) == 0
    packed = {tag.name: tag.container_bytes for tag in WireDtype if tag.container_bytes}
    assert packed == {"FP8_EXP4": 4, "FP8_EXP5": 4, "FP4_EXP2": 2}


def test_row_group_table():
    expected = {32: [1, 2, 4, 8], 64: [3, 3, 12, 12], 128: [15] * 4}
    for limit, codes in expected.items():
        for size in (limit // 2 + 1, limit):
            for position in range(128):
                assert row_group(position, size) == codes[position // 32]
    assert row_group(0, 1) == 1
    assert col_group(40, 32) == 2
    assert col_group(40, 32, force=True) == 15
    for position, size in ((128, 32), (-1, 32), (0, 0), (0, 129)):
        with pytest.raises(AddressError):
            row_group(position, size)


def test_groups_are_masks_of_quadrants():
    for code, group in LANE_GROUPS.items():
        assert group.quadrants == tuple(range(group.start // 32, (group.start + group.lanes) // 32))
        assert sum(1 << q for q in group.quadrants) == code
    assert set(FORCE_TAG_BITS) == set(LANE_GROUPS)


def test_tile_positions():
    # "validTileSizes": base partition to the sizes that may start there.
    sizes = {0: {32, 64, 128}, 32: {32}, 64: {32, 64}, 96: {32}}
    for base in range(128):
        found = {size for size in (32, 64, 128) if base in tile_starts(size)}
        assert found == sizes.get(base, set())
    assert [tile_starts(n) for n in (1, 33, 65)] == [(0, 32, 64, 96), (0, 64), (0,)]


def test_modes_of_the_dense_bundles():
    assert [mode.name for mode in PerfMode] == [
        "NONE", "DOUBLE_ROW", "DOUBLE_COLUMN", "DOUBLE_PIXEL", "DOUBLE_ROW_SW_INTERLEAVE",
    ]  # fmt: skip
    assert [int(mode) for mode in PerfMode] == [0, 1, 2, 3, 4]
    assert [(int(m), m.name) for m in Fp32Mode] == [
        (0, "NONE"), (1, "LOW"), (2, "HIGH"), (3, "LOW_HIGH"),
    ]  # fmt: skip
    assert FP32R_WORD == WireDtype.FP32 | Fp32Mode.HIGH << 8 == 522
    assert XBUS_SELECT == {0xF: 0x10, 3: 1, 0xC: 4, 1: 1, 2: 2, 4: 4}
    assert [list(ZERO_REGIONS[arch]) for arch in Arch] == [[0], [0], [0, 1, 2, 3]]
    wide = {"FP32", "FP16", "BFLOAT16", "FP8_EXP3", "FP8_EXP4", "FP8_EXP5"}
    assert [{tag.name for tag in DENSE_DTYPES[arch]} for arch in Arch] == [
        wide | {"UINT8"}, wide, wide,
    ]  # fmt: skip


def test_zero_region_of_spanned_banks():
    assert [zero_region(n) for n in range(1, 9)] == [0, 1, 2, 2, 3, 3, 3, 3]
    with pytest.raises(AddressError):
        zero_region(9)


def test_opcodes_and_first_generations():
    assert {code: row.mnemonic for code, row in OPCODES.items()} == {
        1: "LoadStationary", 2: "Matmul", 6: "LoadTagsSparse", 7: "MatmultSparse",
        9: "LdWeightMx", 10: "MatmultMx", 0xE3: "QuantizeMx",
    }  # fmt: skip
    assert OPCODES[0xE3].engine is Engine.DVE
    with pytest.raises(CapabilityError) as caught:
        require(Arch.CAYMAN, OPCODES[9].first, "LdWeightMx")
    assert caught.value.needed == "mariana"
