"""Every rule on dense, sparse and gather bundles: one accepted, and one field away one refused."""

from __future__ import annotations

import dataclasses

import pytest

from encoding import (
    Addr4,
    Indirect16,
    Indirect20,
    LdWeightMx,
    LoadStationary,
    LoadTagsSparse,
    Matmul,
    MatmultMx,
    MatmultSparse,
    MxIndirect,
    QuantizeMx,
    Tensor3D,
    Tensor4D,
    check,
    encode,
)
from encoding.bundle import layout_of
from encoding.verifier_rules import VERIFIER
from encoding.wire_rules import RUNTIME, WIRE
from hardware import Arch, WireDtype
from hardware.pe import FORCE_TAG_BITS, LANE_GROUPS, XBUS_SELECT

SUNDA, CAYMAN, MARIANA = Arch.SUNDA, Arch.CAYMAN, Arch.MARIANA
BF16, FP32, FP8 = WireDtype.BFLOAT16, WireDtype.FP32, WireDtype.FP8_EXP4
LOAD = LoadStationary(
    src=Tensor3D(Addr4.sbuf(64, 0x100), 1, 1, 1, 60, 1, 1),
    dtype=BF16,
    num_active_rows=50,
    num_active_cols=60,
    row_group=0xC,
    col_group=0x3,
)
MULTIPLY = Matmul(
    src=Tensor3D(Addr4.sbuf(64, 0x1000), 1, 64, 1, 32, 8, 1),
    dtype=BF16,
    num_active_rows=50,
    num_active_cols=60,
    accumulate_flags=3,
    row_group=0xC,
    col_group=0x3,
    dst=Tensor3D(Addr4.psum(0, 3, 0), 1, 1, 1, 256, 1, 1),
)
TAGS = LoadTagsSparse(
    src=Tensor3D(Addr4.sbuf(64, 0x40), 1, 0, 0, 24, 1, 1),
    force_tag_bits=8,
    num_active_rows=64,
    num_active_cols=96,
    row_group=0xC,
)
SPARSE = MatmultSparse(
    src=Tensor4D(Addr4.sbuf(0, 0x1000), 1, 64, 128, 512, 32, 2, 4, 2),
    dtype=BF16,
    num_active_rows=128,
    num_active_cols=96,
    row_group=0xF,
    dst=Tensor3D(Addr4.psum(0, 1, 0), 1, 1, 1, 512, 1, 1),
)
INDEX64, INDEX0 = Addr4(Addr4.sbuf(64, 0x800).word | 0x2000_0000), Addr4(0x2000_0800)
GATHER = Indirect16(INDEX64, Addr4.sbuf(64, 0x100), 60)
SCATTER = Indirect16(INDEX0, Addr4.psum(0, 3, 0), 256)
MX_GATHER = MxIndirect(INDEX0, Addr4.sbuf(0, 0x100), Addr4.scale(0, 0x2000), 256, 4)
LOAD_GATHER = dataclasses.replace(LOAD, src=GATHER)
MULTIPLY_SCATTER = dataclasses.replace(MULTIPLY, dst=SCATTER)
SPARSE_GATHER = dataclasses.replace(SPARSE, src=Indirect20(INDEX0, Addr4.sbuf(0, 0x100), 9))
LD_MX = LdWeightMx(src=MX_GATHER, dtype=FP8, num_active_rows=32, num_active_cols=64, row_group=1)
MM_MX = MatmultMx(
    src=MX_GATHER, dtype=FP8, num_active_rows=32, num_active_cols=64, out_dtype=FP32,
    accumulate_flags=3, row_group=1, dst=SCATTER,
)  # fmt: skip
QUANTIZE = QuantizeMx(
    src=Indirect16(INDEX0, Addr4.sbuf(0, 0x400), 256), num_active_channels=32, src_dtype=BF16,
    dst_dtype=FP8, dst=MX_GATHER,
)  # fmt: skip


def change(instruction, path, value):
    """Return the instruction with one field, possibly nested, replaced."""
    head, _, rest = path.partition(".")
    if rest:
        value = change(getattr(instruction, head), rest, value)
    return dataclasses.replace(instruction, **{head: value})


DOUBLE = change(change(change(LOAD, "dtype", FP8), "col_group", 0xF), "src.num2", 2)
DOUBLE = change(change(DOUBLE, "src.step2", 32), "perf_mode", 1)
INTERLEAVED = change(DOUBLE, "perf_mode", 4)
WIDE = change(change(MULTIPLY, "fp32_mode", 3), "dtype", FP32)
BEYOND, LOOSE = Addr4(0x0240_0000), Addr4.sbuf(64, 0x101)
# level, rule id, generation, an accepted instruction, the one field that differs, refused value
CASES = [
    ("wire", "wire.wait_mode", SUNDA, LOAD, "wait_mode", 2),
    ("wire", "wire.update_mode", SUNDA, LOAD, "update_mode", 4),
    ("wire", "wire.dtype", CAYMAN, LOAD, "dtype", WireDtype.INT32),
    ("wire", "wire.dtype", CAYMAN, MULTIPLY, "dtype", WireDtype.FP32R),
    ("wire", "wire.dtype", MARIANA, LOAD, "dtype", WireDtype.FP4_EXP2),
    ("wire", "wire.dtype", CAYMAN, TAGS, "dtype", WireDtype.BFLOAT16),
    ("wire", "wire.dtype", CAYMAN, SPARSE, "dtype", WireDtype.UINT8),
    ("wire", "wire.fp32_mode", SUNDA, LOAD, "fp32_mode", 1),
    ("wire", "wire.fp32_mode", SUNDA, LOAD, "fp32_mode", 0x80),
    ("wire", "wire.fp32_mode", SUNDA, WIDE, "fp32_mode", 0),
    ("wire", "wire.fp32_mode", CAYMAN, SPARSE, "fp32_mode", 3),
    ("wire", "wire.perf_mode", SUNDA, LOAD, "perf_mode", 4),
    ("wire", "wire.perf_mode", CAYMAN, MULTIPLY, "perf_mode", 5),
    ("wire", "wire.perf_mode", CAYMAN, SPARSE, "perf_mode", 5),
    ("wire", "wire.num_active_rows", SUNDA, LOAD, "num_active_rows", 0),
    ("wire", "wire.num_active_rows", SUNDA, MULTIPLY, "num_active_rows", 129),
    ("wire", "wire.num_active_rows", CAYMAN, TAGS, "num_active_rows", 0),
    ("wire", "wire.num_active_rows", CAYMAN, SPARSE, "num_active_rows", 0),
    ("wire", "wire.num_active_cols", SUNDA, LOAD, "num_active_cols", 0),
    ("wire", "wire.num_active_cols", SUNDA, MULTIPLY, "num_active_cols", 129),
    ("wire", "wire.num_active_cols", CAYMAN, TAGS, "num_active_cols", 0),
    ("wire", "wire.num_active_cols", CAYMAN, SPARSE, "num_active_cols", 0),
    ("wire", "wire.row_group", SUNDA, LOAD, "row_group", 6),
    ("wire", "wire.row_group", SUNDA, MULTIPLY, "row_group", 0),
    ("wire", "wire.row_group", CAYMAN, TAGS, "row_group", 5),
    ("wire", "wire.row_group", CAYMAN, SPARSE, "row_group", 0x1F),
    ("wire", "wire.col_group", SUNDA, LOAD, "col_group", 9),
    ("wire", "wire.col_group", SUNDA, MULTIPLY, "col_group", 7),
    ("wire", "wire.col_group", CAYMAN, TAGS, "col_group", 3),
    ("wire", "wire.col_group", CAYMAN, SPARSE, "col_group", 1),
    ("wire", "wire.active_row_mode", CAYMAN, TAGS, "active_row_mode", 1),
    ("wire", "wire.active_row_mode", CAYMAN, SPARSE, "active_row_mode", 1),
    ("wire", "wire.xbus_sel", SUNDA, LOAD, "xbus_sel", 8),
    ("wire", "wire.xbus_sel", SUNDA, MULTIPLY, "xbus_sel", 0),
    ("wire", "wire.xbus", SUNDA, LOAD, "xbus_sel", 4),
    ("wire", "wire.xbus", SUNDA, MULTIPLY, "xbus_sel", 2),
    ("wire", "wire.load_flags", MARIANA, LOAD, "load_flags", 0x20),
    ("wire", "wire.out_dtype", CAYMAN, MULTIPLY, "out_dtype", FP32),
    ("wire", "wire.out_dtype", MARIANA, MULTIPLY, "out_dtype", WireDtype.FP16),
    ("wire", "wire.out_dtype", CAYMAN, SPARSE, "out_dtype", FP32),
    ("wire", "wire.accumulate_flags", SUNDA, MULTIPLY, "accumulate_flags", 5),
    ("wire", "wire.accumulate_flags", CAYMAN, MULTIPLY, "accumulate_flags", 7),
    ("wire", "wire.pass_bits", CAYMAN, SPARSE, "pass_bits", 4),
    ("wire", "wire.psum_zero_region", SUNDA, MULTIPLY, "psum_zero_region", 1),
    ("wire", "wire.psum_zero_region", CAYMAN, MULTIPLY, "psum_zero_region", 3),
    ("wire", "wire.psum_zero_region", MARIANA, MULTIPLY, "psum_zero_region", 4),
    ("wire", "wire.psum_zero_region", CAYMAN, SPARSE, "psum_zero_region", 1),
    ("wire", "wire.force_tag_bits", CAYMAN, TAGS, "force_tag_bits", 1),
    ("wire", "wire.force_tag_bits", CAYMAN, TAGS, "force_tag_bits", 4),
    ("wire", "wire.tag_count", CAYMAN, TAGS, "src.num0", 33),
    ("wire", "wire.row_tile", SUNDA, LOAD, "num_active_rows", 65),
    ("wire", "wire.row_tile", MARIANA, MULTIPLY, "num_active_rows", 65),
    ("wire", "wire.row_tile", CAYMAN, TAGS, "num_active_rows", 65),
    ("wire", "wire.row_tile", CAYMAN, SPARSE, "row_group", 3),
    ("wire", "wire.col_tile", SUNDA, LOAD, "num_active_cols", 65),
    ("wire", "wire.col_tile", SUNDA, MULTIPLY, "num_active_cols", 65),
    ("wire", "wire.col_tile", CAYMAN, TAGS, "col_group", 1),
    ("wire", "wire.col_tile", CAYMAN, SPARSE, "col_group", 1),
    ("wire", "wire.src.start", SUNDA, LOAD, "src.start", LOOSE),
    ("wire", "wire.src.start", SUNDA, LOAD, "src.start", Addr4(0x8040_0001)),
    ("wire", "wire.src.start", MARIANA, LOAD, "src.start", Addr4(0x8000_0140)),
    ("wire", "wire.src.start", CAYMAN, MULTIPLY, "src.start", Addr4.psum(0, 0)),
    ("wire", "wire.src.start", CAYMAN, TAGS, "src.start", LOOSE),
    ("wire", "wire.src.start", CAYMAN, SPARSE, "src.start", BEYOND),
    ("wire", "wire.src.partition", SUNDA, LOAD, "src.start", Addr4.sbuf(0, 0x100)),
    ("wire", "wire.src.partition", CAYMAN, MULTIPLY, "src.start", Addr4.sbuf(32, 0x100)),
    ("wire", "wire.src.partition", CAYMAN, TAGS, "src.start", Addr4.sbuf(65, 0x100)),
    ("wire", "wire.src.partition", CAYMAN, SPARSE, "src.start", Addr4.sbuf(32, 0x100)),
    *(
        ("wire", f"wire.src.num{i}", arch, instruction, f"src.num{i}", 0)
        for arch, instruction, rank in (
            (SUNDA, LOAD, 3), (CAYMAN, MULTIPLY, 3), (CAYMAN, TAGS, 3), (MARIANA, SPARSE, 4),
        )
        for i in range(rank)
    ),
    *(
        ("wire", f"wire.dst.num{i}", MARIANA, instruction, f"dst.num{i}", 0)
        for instruction in (MULTIPLY, SPARSE)
        for i in range(3)
    ),
    ("wire", "wire.dst.start", SUNDA, MULTIPLY, "dst.start", Addr4.sbuf(0)),
    ("wire", "wire.dst.start", MARIANA, change(MULTIPLY, "out_dtype", BF16), "dst.start",
     Addr4.psum(0, 3, 1)),
    ("wire", "wire.dst.start", CAYMAN, SPARSE, "dst.start", Addr4.psum(0, 3, 2)),
    ("wire", "wire.dst.partition", CAYMAN, MULTIPLY, "dst.start", Addr4.psum(64, 3, 0)),
    ("wire", "wire.dst.partition", CAYMAN, SPARSE, "dst.start", Addr4.psum(32, 3, 0)),
    ("wire", "wire.zero_region_span", SUNDA, MULTIPLY, "dst.num0", 513),
    ("wire", "wire.zero_region_span", MARIANA, change(MULTIPLY, "psum_zero_region", 1),
     "dst.num0", 1025),
    ("wire", "wire.dual_fp8", MARIANA, DOUBLE, "perf_mode", 2),
    ("wire", "wire.dual_fp8", MARIANA, DOUBLE, "dtype", BF16),
    ("wire", "wire.dual_fp8", MARIANA, DOUBLE, "dtype", WireDtype.FP8_EXP3),
    ("wire", "wire.dual_fp8", MARIANA, DOUBLE, "col_group", 3),
    ("wire", "wire.dual_fp8", MARIANA, DOUBLE, "transpose_mode", 1),
    ("wire", "wire.dual_fp8", MARIANA, DOUBLE, "src", GATHER),
    ("wire", "wire.dual_fp8", MARIANA, DOUBLE, "src.num2", 3),
    ("wire", "wire.dual_fp8", MARIANA, DOUBLE, "src.step2", 40),
    ("wire", "wire.dual_fp8", MARIANA, INTERLEAVED, "src.start", Addr4.sbuf(64, 0x101)),
    ("wire", "wire.src.index", SUNDA, LOAD_GATHER, "src.index", Addr4(0xA000_0001)),
    ("wire", "wire.src.index", CAYMAN, LOAD_GATHER, "src.index", Addr4(INDEX64.word + 2)),
    ("wire", "wire.src.index", CAYMAN, SPARSE_GATHER, "src.index", Addr4(0x2200_0000)),
    ("wire", "wire.src.index", MARIANA, LD_MX, "src.index", Addr4(0xA000_0040)),
    ("wire", "wire.src.index", MARIANA, QUANTIZE, "src.index", Addr4(0x2000_0801)),
    ("wire", "wire.src.gathered", SUNDA, LOAD_GATHER, "src.data", LOOSE),
    ("wire", "wire.src.gathered", CAYMAN, SPARSE_GATHER, "src.data", Addr4.psum(0, 0)),
    ("wire", "wire.src.gathered", MARIANA, QUANTIZE, "src.data", Addr4.sbuf(0, 2)),
    ("wire", "wire.src.plain", CAYMAN, LOAD_GATHER, "src.data", Addr4(0x4100_0100)),
    ("wire", "wire.src.plain", CAYMAN, SPARSE_GATHER, "src.data", Addr4.register(3)),
    ("wire", "wire.src.plain", MARIANA, QUANTIZE, "src.data", Addr4(0x2000_0400)),
    ("wire", "wire.src.gather_quadrant", CAYMAN, LOAD_GATHER, "src.data", Addr4.sbuf(32, 0)),
    ("wire", "wire.src.gather_quadrant", CAYMAN, SPARSE_GATHER, "src.data", Addr4.sbuf(96, 0)),
    ("wire", "wire.src.gather_quadrant", MARIANA, QUANTIZE, "src.data", Addr4.sbuf(32, 0)),
    ("wire", "wire.src.num", CAYMAN, LOAD_GATHER, "src.num", 0),
    ("wire", "wire.src.num", CAYMAN, SPARSE_GATHER, "src.num", 0),
    ("wire", "wire.src.num", MARIANA, QUANTIZE, "src.num", 0),
    ("wire", "wire.dst.index", MARIANA, MULTIPLY_SCATTER, "dst.index", Addr4(0x2000_0801)),
    ("wire", "wire.dst.index", MARIANA, MM_MX, "dst.index", Addr4(0x2300_0000)),
    ("wire", "wire.dst.index", MARIANA, QUANTIZE, "dst.index", Addr4(0x2200_0000)),
    ("wire", "wire.dst.gathered", MARIANA, MULTIPLY_SCATTER, "dst.data", Addr4.sbuf(0, 0)),
    ("wire", "wire.dst.gathered", MARIANA, MM_MX, "dst.data", Addr4.psum(0, 0, 2)),
    ("wire", "wire.dst.gathered", CAYMAN, change(SPARSE, "dst", SCATTER), "dst.data", BEYOND),
    ("wire", "wire.dst.plain", MARIANA, MULTIPLY_SCATTER, "dst.data", Addr4(0x4200_1800)),
    ("wire", "wire.dst.gather_quadrant", MARIANA, MULTIPLY_SCATTER, "dst.data",
     Addr4.sbuf(32, 0)),
    ("wire", "wire.dst.num", MARIANA, MULTIPLY_SCATTER, "dst.num", 0),
    ("wire", "wire.src.data", MARIANA, LD_MX, "src.data", Addr4.psum(0, 0)),
    ("wire", "wire.src.data", MARIANA, change(LD_MX, "dtype", WireDtype.FP4_EXP2), "src.data",
     Addr4.sbuf(0, 0x102)),
    ("wire", "wire.src.scale", MARIANA, MM_MX, "src.scale", Addr4.psum(0, 0)),
    ("wire", "wire.src.extent", MARIANA, MM_MX, "src.extent", 0),
    ("wire", "wire.src.scale_partition", MARIANA, MM_MX, "src.scale_partition", 16),
    ("wire", "wire.dst.scale_partition", MARIANA, QUANTIZE, "dst.scale_partition", 5),
    ("runtime", "runtime.accumulate_flags", SUNDA, MULTIPLY, "accumulate_flags", 4),
    ("runtime", "runtime.accumulate_flags", CAYMAN, MULTIPLY, "accumulate_flags", 6),
    ("runtime", "runtime.xbus", SUNDA, change(LOAD, "xbus_sel", 1), "xbus_sel", 0x10),
    ("runtime", "runtime.xbus", SUNDA, change(MULTIPLY, "xbus_sel", 1), "col_group", 8),
    ("verifier", "verifier.src.bounds", SUNDA, LOAD, "src.start", Addr4.sbuf(64, 0x2FFF0)),
    ("verifier", "verifier.src.bounds", CAYMAN, MULTIPLY, "src.step1", -0x1000),
    ("verifier", "verifier.src.bounds", CAYMAN, TAGS, "src.start", Addr4.sbuf(64, 0x37FF0)),
    ("verifier", "verifier.src.bounds", MARIANA, SPARSE, "src.start", Addr4.sbuf(0, 0x3FFF0)),
    ("verifier", "verifier.dst.bounds", CAYMAN, MULTIPLY, "dst.step0", 0x7000),
    ("verifier", "verifier.dst.bounds", CAYMAN, SPARSE, "dst.step0", -2),
    ("verifier", "verifier.src.partitions", SUNDA, LOAD, "src.start", Addr4.sbuf(32, 0x100)),
    ("verifier", "verifier.src.partitions", SUNDA, MULTIPLY, "num_active_rows", 65),
    ("verifier", "verifier.src.partitions", CAYMAN, TAGS, "src.start", Addr4.sbuf(96, 0x100)),
    ("verifier", "verifier.src.partitions", CAYMAN, SPARSE, "src.start", Addr4.sbuf(64, 0x100)),
    ("verifier", "verifier.num_active_cols", SUNDA, LOAD, "num_active_cols", 59),
    ("verifier", "verifier.replication", SUNDA, LOAD, "replication1", 1),
    ("verifier", "verifier.replication", SUNDA, MULTIPLY, "replication0", 1),
    ("verifier", "verifier.tag_columns", CAYMAN, TAGS, "num_active_cols", 24),
    ("verifier", "verifier.sparse_rows", CAYMAN, SPARSE, "num_active_rows", 64),
    ("verifier", "verifier.sparse_columns", CAYMAN, SPARSE, "num_active_cols", 98),
    ("verifier", "verifier.fmaps", CAYMAN, SPARSE, "src.num3", 1),
    ("verifier", "verifier.fmaps", CAYMAN, SPARSE, "src.num3", 5),
]  # fmt: skip
DENSE = (LoadStationary, Matmul)
LEGAL = [
    *((arch, i) for arch in Arch for i in (LOAD, MULTIPLY, LOAD_GATHER)),
    *((arch, i) for arch in (CAYMAN, MARIANA) for i in (TAGS, SPARSE, SPARSE_GATHER)),
    *((MARIANA, i) for i in (DOUBLE, INTERLEAVED, MULTIPLY_SCATTER, LD_MX, MM_MX, QUANTIZE)),
]


def ids(found):
    return [violation.id for violation in found]


@pytest.mark.parametrize(("arch", "instruction"), LEGAL)
def test_the_base_bundles_are_legal_on_the_wire(arch, instruction):
    assert check(instruction, arch) == []
    assert check(encode(instruction, arch), arch) == []


@pytest.mark.parametrize("instruction", [LOAD, MULTIPLY, TAGS, SPARSE])
def test_the_static_base_bundles_are_legal_at_every_level(instruction):
    for arch in Arch:
        if arch >= instruction.first_arch:
            assert check(instruction, arch, level="verifier") == []
            runtime = ids(check(instruction, arch, level="runtime"))
            assert runtime == (["runtime.xbus"] if arch is SUNDA else [])


@pytest.mark.parametrize(("level", "rule", "arch", "instruction", "path", "value"), CASES)
def test_each_rule_accepts_and_refuses(level, rule, arch, instruction, path, value):
    assert rule not in ids(check(instruction, arch, level=level))
    refused = change(instruction, path, value)
    found = check(refused, arch, level=level)
    assert rule in ids(found)
    assert check(encode(refused, arch), arch, level=level) == found
    hit = next(violation for violation in found if violation.id == rule)
    leaf = {leaf.path: leaf for leaf in layout_of(refused, arch).leaves}[hit.field]
    assert hit.offset == leaf.offset
    assert hit.allowed
    assert hit.message


def test_every_rule_has_a_case():
    covered = {case[1] for case in CASES}
    mx_only = {LdWeightMx, MatmultMx, QuantizeMx}
    for rule in (*WIRE, *RUNTIME, *VERIFIER):
        assert rule.id in covered or set(rule.applies) <= mx_only, rule.id
    pairs = {(case[1], type(case[3])) for case in CASES}
    for cls in (LoadStationary, Matmul, LoadTagsSparse, MatmultSparse):
        for arch in Arch:
            if arch >= cls.first_arch:
                for leaf in layout_of(cls, arch).leaves:
                    if leaf.row.legal is not None and not leaf.path.startswith(("wait", "upd")):
                        assert (f"wire.{leaf.path}", cls) in pairs, (cls, leaf.path)


def test_remap_of_the_row_group():
    for group, tile in LANE_GROUPS.items():
        src = dataclasses.replace(TAGS.src, start=Addr4.sbuf(tile.start, 0x40))
        tags = dataclasses.replace(TAGS, src=src, row_group=group, num_active_rows=tile.lanes)
        legal = [bits for bits in range(256) if not check(change(tags, "force_tag_bits", bits))]
        assert legal == [FORCE_TAG_BITS[group]]
    assert FORCE_TAG_BITS == {1: 0, 3: 0, 15: 0, 2: 4, 4: 8, 12: 8, 8: 12}


def test_crossbar_select_of_the_column_group():
    for group, tile in LANE_GROUPS.items():
        load = dataclasses.replace(
            LOAD, col_group=group, num_active_cols=min(60, tile.lanes), xbus_sel=0x10
        )
        for level, want in (
            ("wire", {0x10, XBUS_SELECT.get(group, 0x10)}),
            ("runtime", {XBUS_SELECT[group]} if group in XBUS_SELECT else set()),
        ):
            legal = {x for x in range(256) if not check(change(load, "xbus_sel", x), SUNDA, level)}
            assert legal == want


def test_group_and_start_partition_table():
    table = {0xF: (0, 128), 3: (0, 64), 0xC: (64, 64), 1: (0, 32), 2: (32, 32), 4: (64, 32),
             8: (96, 32)}  # fmt: skip
    for group, (start, most) in table.items():
        for rows, partition in ((most, start), (most + 1, start), (most, (start + 32) % 128)):
            src = change(LOAD.src, "start", Addr4.sbuf(partition, 0))
            load = dataclasses.replace(LOAD, src=src, row_group=group, num_active_rows=rows % 256)
            legal = rows <= most and partition == start
            assert (check(load, CAYMAN) == []) == legal
            dst = change(MULTIPLY.dst, "start", Addr4.psum(partition, 0))
            sums = dataclasses.replace(MULTIPLY, dst=dst, col_group=group, num_active_cols=rows)
            assert (check(sums, CAYMAN) == []) == legal


def test_generation_differences_are_refused_by_name():
    for field, value, arch in [
        ("bg_xpose_mode", 2, CAYMAN), ("transpose_mode", 1, SUNDA), ("replication0", 3, CAYMAN),
        ("replication1", 3, MARIANA), ("xbus_sel", 1, CAYMAN), ("load_flags", 1, CAYMAN),
    ]:  # fmt: skip
        found = check(change(LOAD, field, value), arch)
        assert ids(found) == [f"decode.{field}"]
        assert found[0].got == value


def test_fp32_does_not_mix():
    assert check([LOAD, MULTIPLY], CAYMAN, level="verifier") == []
    assert ids(check([LOAD, WIDE], CAYMAN, level="verifier")) == ["verifier.fp32_mix"]
    heavy = change(change(LOAD, "dtype", FP32), "fp32_mode", 2)
    assert check([heavy, WIDE], CAYMAN, level="verifier") == []
    assert ids(check([heavy, MULTIPLY], CAYMAN, level="verifier")) == ["verifier.fp32_mix"]


def test_register_addresses_and_register_shapes():
    for arch in Arch:
        register = change(LOAD, "src.start", Addr4.register(63))
        assert check(register, arch) == []
        # SUNDA wants bits 24..30 clear as well.
        loose = change(LOAD, "src.start", Addr4(0x9000_0005))
        assert ids(check(loose, arch)) == (["wire.src.start"] if arch is SUNDA else [])
        shaped = change(LOAD, "src.start", Addr4(LOAD.src.start.word | 0x4000_0000))
        assert check(change(shaped, "src.num0", 0), arch) == []
        # One bit more than the marker: the validators compare under 0x70 (D14).
        other = change(LOAD, "src.start", Addr4(0xD000_0005))
        assert "wire.src.num0" in ids(check(change(other, "src.num0", 0), arch))
