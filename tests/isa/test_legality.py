"""Every rule of every level: a bundle it accepts, and one field away a bundle it refuses."""

from __future__ import annotations

import dataclasses

import pytest

from encoding import (
    Addr4,
    EncodeError,
    LdWeightMx,
    LegalityError,
    MatmultMx,
    MxPattern,
    QuantizeMx,
    Tensor3D,
    check,
    encode,
    encode_all,
)
from encoding.bundle import layout_of
from encoding.pack import ScaleModulus, Walk, mx_operand, quantize_mx
from encoding.verifier_rules import VERIFIER
from encoding.wire_rules import RUNTIME, WIRE
from hardware import Arch, WireDtype

FP8, FP4 = WireDtype.FP8_EXP4, WireDtype.FP4_EXP2
LOAD = LdWeightMx(
    src=MxPattern(Addr4.sbuf(32, 0x100), Addr4.scale(32, 0x2001), 384, 1, 4),
    dtype=FP8,
    num_active_rows=32,
    num_active_cols=96,
    row_group=2,
)
MULTIPLY = MatmultMx(
    src=MxPattern(Addr4.sbuf(32, 0x1000), Addr4.scale(32, 0x40), 1024, 1, 8),
    dtype=FP8,
    num_active_rows=32,
    num_active_cols=96,
    out_dtype=WireDtype.FP32,
    accumulate_flags=3,
    row_group=2,
    dst=Tensor3D(Addr4.psum(0, 3, 0), 1, 64, 1, 64, 4, 1),
)
QUANTIZE = QuantizeMx(
    src=Tensor3D(Addr4.sbuf(64, 0x400), 1, 256, 1, 128, 2, 1),
    num_active_channels=64,
    src_dtype=WireDtype.BFLOAT16,
    dst_dtype=FP8,
    dst=MxPattern(Addr4.sbuf(64, 0x800), Addr4.scale(64, 0xC00), 256, 1, 12),
)


def change(instruction, path, value):
    """Return the instruction with one field, possibly nested, replaced."""
    head, _, rest = path.partition(".")
    if rest:
        value = change(getattr(instruction, head), rest, value)
    return dataclasses.replace(instruction, **{head: value})


SBUF32, PSUM0 = Addr4.sbuf(32, 0x100), Addr4.psum(0, 3, 0)
BEYOND = Addr4(0x0240_0000)
# rule id, an accepted instruction, the one field that differs, the refused value
WIRE_CASES = [
    ("wire.src.data", LOAD, "src.data", Addr4.sbuf(32, 0x102)),
    ("wire.src.data", LOAD, "src.data", Addr4.psum(32, 0, 0)),
    ("wire.src.data", LOAD, "src.data", BEYOND),
    ("wire.src.data", LOAD, "src.data", Addr4(0x8000_0040)),
    ("wire.src.data", LOAD, "src.data", Addr4(0x8000_0105)),
    ("wire.src.data", change(LOAD, "dtype", FP4), "src.data", Addr4.sbuf(32, 0x101)),
    ("wire.src.scale", MULTIPLY, "src.scale", Addr4.psum(0, 0, 0)),
    ("wire.row_tile", LOAD, "num_active_rows", 64),
    ("wire.src.partition", MULTIPLY, "src.data", Addr4.sbuf(64, 0x1000)),
    ("wire.src.partition", QUANTIZE, "src.start", Addr4.sbuf(32, 0x400)),
    ("wire.dst.partition", MULTIPLY, "dst.start", Addr4.psum(32, 3, 0)),
    ("wire.dst.partition", QUANTIZE, "dst.data", Addr4.sbuf(96, 0x800)),
    ("wire.dst.start", MULTIPLY, "dst.start", Addr4.sbuf(0, 0)),
    ("wire.dst.start", MULTIPLY, "dst.start", Addr4.psum(0, 3, 2)),
    ("wire.dst.start", MULTIPLY, "dst.start", BEYOND),
    ("wire.zero_region_span", MULTIPLY, "dst.start", Addr4.psum(0, 3, 0x408)),
    ("wire.zero_region_span", change(MULTIPLY, "dst.num0", 1), "dst.step1", 512),
    ("wire.src.start", QUANTIZE, "src.start", Addr4.sbuf(64, 0x402)),
    ("wire.src.start", QUANTIZE, "src.start", Addr4.psum(64, 0, 0)),
    ("wire.dst.data", QUANTIZE, "dst.data", Addr4.sbuf(64, 0x802)),
    ("wire.dst.scale", QUANTIZE, "dst.scale", BEYOND),
    ("wire.dst.quadrant", QUANTIZE, "dst.scale", Addr4.scale(96, 0xC00)),
    ("wire.wait_mode", LOAD, "wait_mode", 2),
    ("wire.update_mode", LOAD, "update_mode", 1),
    ("wire.src.extent", LOAD, "src.extent", 0),
    ("wire.src.step", LOAD, "src.step", 0),
    ("wire.src.step", LOAD, "src.step", -2),
    ("wire.src.scale_partition", LOAD, "src.scale_partition", 16),
    ("wire.src.scale_partition", LOAD, "src.scale_partition", 6),
    ("wire.dtype", LOAD, "dtype", WireDtype.UINT8),
    ("wire.num_active_rows", LOAD, "num_active_rows", 96),
    ("wire.num_active_cols", LOAD, "num_active_cols", 0),
    ("wire.num_active_cols", LOAD, "num_active_cols", 129),
    ("wire.row_group", LOAD, "row_group", 6),
    ("wire.out_dtype", MULTIPLY, "out_dtype", WireDtype.FP16),
    ("wire.accumulate_flags", MULTIPLY, "accumulate_flags", 5),
    ("wire.accumulate_flags", MULTIPLY, "accumulate_flags", 8),
    ("wire.psum_zero_region", MULTIPLY, "psum_zero_region", 4),
    ("wire.dst.num0", MULTIPLY, "dst.num0", 0),
    ("wire.dst.num1", MULTIPLY, "dst.num1", 0),
    ("wire.dst.num2", MULTIPLY, "dst.num2", 0),
    ("wire.src.num0", QUANTIZE, "src.num0", 0),
    ("wire.src.num1", QUANTIZE, "src.num1", 0),
    ("wire.src.num2", QUANTIZE, "src.num2", 0),
    ("wire.num_active_channels", QUANTIZE, "num_active_channels", 48),
    ("wire.src_dtype", QUANTIZE, "src_dtype", WireDtype.FP32),
    ("wire.dst_dtype", QUANTIZE, "dst_dtype", WireDtype.FP8_EXP3),
    ("wire.dst.extent", QUANTIZE, "dst.extent", 0),
    ("wire.dst.step", QUANTIZE, "dst.step", 3),
    ("wire.dst.scale_partition", QUANTIZE, "dst.scale_partition", 13),
]
RUNTIME_CASES = [
    ("runtime.inst_word_len", QUANTIZE, "saturate_bit", True),
    ("runtime.dst_dtype", QUANTIZE, "dst_dtype", FP4),
]
VERIFIER_CASES = [
    ("V4.212", MULTIPLY, "src.scale", Addr4.scale(64, 0x40)),
    ("V4.213", LOAD, "src.scale", Addr4.scale(0, 0x40)),
    ("V4.214", LOAD, "src.scale_partition", 2),
    ("V4.214", MULTIPLY, "src.scale_partition", 9),
    ("V4.228", MULTIPLY, "src.extent", 1022),
    ("V4.229", LOAD, "src.extent", 386),
    ("V4.230", MULTIPLY, "src.scale_partition", 16),
    ("V4.231", LOAD, "src.scale_partition", 28),
    ("V4.232", MULTIPLY, "src.extent", 16388),
    ("V4.232", change(MULTIPLY, "out_dtype", WireDtype.BFLOAT16), "src.extent", 32772),
    ("V4.233", LOAD, "src.extent", 520),
    ("V4.234", LOAD, "num_active_rows", 96),
    ("V4.236", LOAD, "num_active_cols", 95),
    ("V4.237", MULTIPLY, "dst.num2", 2),
    ("V4.289", LOAD, "src.extent", 380),
    ("V4.209", QUANTIZE, "src.step0", 2),
    ("V4.209", QUANTIZE, "src.num0", 126),
    ("V4.210", QUANTIZE, "src.step1", 255),
    ("V4.210", change(change(QUANTIZE, "src.num2", 2), "src.step2", 512), "src.step2", 259),
    ("V4.211", QUANTIZE, "dst.extent", 252),
    ("V4.215", QUANTIZE, "num_active_channels", 127),
    ("V4.264", QUANTIZE, "dst.scale_partition", 20),
    ("V4.270", QUANTIZE, "dst.extent", 255),
    ("V4.1821", QUANTIZE, "dst.scale", Addr4.scale(32, 0)),
    ("V4.310", QUANTIZE, "src.start", Addr4.psum(0, 0, 0)),
    ("V4.310", QUANTIZE, "dst.data", Addr4.psum(64, 0, 0)),
    ("V4.310", QUANTIZE, "dst.scale", Addr4(0x0240_0000)),
    ("verifier.src.bounds", LOAD, "src.step", -1),
    ("verifier.src.bounds", LOAD, "src.data", Addr4.sbuf(32, 0x3FFFC)),
    ("verifier.src.bounds", QUANTIZE, "src.start", Addr4.sbuf(64, 0x3FF00)),
    ("verifier.dst.bounds", QUANTIZE, "dst.data", Addr4.sbuf(64, 0x3FFFC)),
    ("verifier.dst.bounds", MULTIPLY, "dst.start", Addr4(PSUM0.word + 0x3000)),
    ("verifier.dst.bounds", MULTIPLY, "dst.step1", -4000),
]
CASES = [
    *(("wire", *case) for case in WIRE_CASES),
    *(("runtime", *case) for case in RUNTIME_CASES),
    *(("verifier", *case) for case in VERIFIER_CASES),
]


def ids(found):
    return [violation.id for violation in found]


@pytest.mark.parametrize("level", ["wire", "verifier", "runtime"])
@pytest.mark.parametrize("instruction", [LOAD, MULTIPLY, QUANTIZE])
def test_the_base_bundles_are_legal(level, instruction):
    assert check(instruction, level=level) == []
    assert check(encode(instruction), level=level) == []


@pytest.mark.parametrize(("level", "rule", "instruction", "path", "value"), CASES)
def test_each_rule_accepts_and_refuses(level, rule, instruction, path, value):
    assert rule not in ids(check(instruction, level=level))
    refused = change(instruction, path, value)
    found = check(refused, level=level)
    assert rule in ids(found)
    assert check(encode(refused), level=level) == found
    hit = next(violation for violation in found if violation.id == rule)
    leaf = {leaf.path: leaf for leaf in layout_of(refused).leaves}[hit.field]
    assert hit.offset == leaf.offset
    assert hit.allowed
    assert hit.message


MX = (LdWeightMx, MatmultMx, QuantizeMx)


def test_every_rule_on_a_static_mx_bundle_has_a_case():
    covered = {(case[1], type(case[2])) for case in CASES}
    paths = {cls: {leaf.path for leaf in layout_of(cls).leaves} for cls in MX}
    for rule in (*WIRE, *VERIFIER):
        bound = [cls for cls in MX if cls in rule.applies and rule.field in paths[cls]]
        assert not bound or any((rule.id, cls) in covered for cls in bound), rule.id
    # On MARIANA the runtime's flags are those of the wire, so only the other two can be shown.
    shown = {case[0] for case in RUNTIME_CASES} | {"runtime.accumulate_flags"}
    assert {rule.id for rule in RUNTIME if set(rule.applies) & set(MX)} == shown
    fields = {
        f"wire.{leaf.path}"
        for cls in MX
        for leaf in layout_of(cls).leaves
        if leaf.row.legal is not None
    }
    assert fields <= {case[0] for case in WIRE_CASES}


def test_rule_ids_are_stable():
    assert list(dict.fromkeys(rule.id for rule in WIRE)) == [
        "wire.src.data", "wire.src.scale", "wire.row_tile", "wire.col_tile", "wire.src.partition",
        "wire.dst.start", "wire.dst.partition", "wire.zero_region_span", "wire.src.start",
        "wire.dst.data", "wire.dst.scale", "wire.dst.quadrant", "wire.src.index",
        "wire.src.gathered", "wire.src.plain", "wire.src.gather_quadrant", "wire.dst.index",
        "wire.dst.gathered", "wire.dst.plain", "wire.dst.gather_quadrant", "wire.fp32_mode",
        "wire.xbus", "wire.dual_fp8", "wire.force_tag_bits", "wire.tag_count",
    ]  # fmt: skip
    assert [rule.id for rule in RUNTIME] == [
        "runtime.inst_word_len", "runtime.dst_dtype", "runtime.accumulate_flags", "runtime.xbus",
    ]  # fmt: skip
    assert list(dict.fromkeys(rule.id for rule in VERIFIER)) == [
        "V4.212", "V4.213", "V4.214", "V4.228", "V4.229", "V4.230", "V4.231", "V4.232", "V4.233",
        "V4.289", "V4.234", "V4.236", "V4.237", "verifier.src.bounds", "verifier.dst.bounds",
        "V4.209", "V4.210", "V4.211", "V4.215", "V4.264", "V4.270", "V4.1821", "V4.310",
        "verifier.src.partitions", "verifier.num_active_cols", "verifier.replication",
        "verifier.tag_columns",
        "verifier.sparse_rows", "verifier.sparse_columns", "verifier.fmaps",
    ]  # fmt: skip


# Public cases B60 and B61: the legal sets of the accumulate byte and the scale partition byte.
def test_accumulate_byte_legal_set():
    legal = [not check(change(MULTIPLY, "accumulate_flags", v)) for v in range(8)]
    assert legal == [True, True, True, True, True, False, True, False]
    assert not any(check(change(MULTIPLY, "accumulate_flags", v)) == [] for v in range(8, 256))


@pytest.mark.parametrize(
    ("instruction", "slot"), [(LOAD, 0x10), (MULTIPLY, 0x10), (QUANTIZE, 0x30)]
)
def test_scale_partition_byte_legal_set(instruction, slot):
    data = bytearray(encode(instruction))
    legal = set()
    for value in range(256):
        data[slot + 0xB] = value
        if not check(data):
            legal.add(value)
    assert legal == {0, 4, 8, 12}


def test_the_seeds_modulus_gives_bytes_the_validator_refuses():
    operand = mx_operand(
        partition=32, offset=0, scale_partition=36, scale_offset=0, containers=96, dtype=FP8
    )
    assert operand.scale_partition == 4
    literal = mx_operand(
        partition=32, offset=0, scale_partition=36, scale_offset=0, containers=96, dtype=FP8,
        modulus=ScaleModulus.ARRAY,
    )  # fmt: skip
    assert literal.scale_partition == 36
    assert check(change(LOAD, "src", operand)) == []
    assert ids(check(change(LOAD, "src", literal))) == ["wire.src.scale_partition"]


def test_reversed_walk_folds_start_and_step_together():
    operand = mx_operand(
        partition=32, offset=0x100, scale_partition=32, scale_offset=0, containers=96, dtype=FP8,
        walk=Walk.REVERSED,
    )  # fmt: skip
    assert (operand.data, operand.step) == (Addr4.sbuf(32, 0x100 + 95 * 4), -1)
    assert encode(change(LOAD, "src", operand))[0x1A] == 0xFF
    for level in ("wire", "verifier"):
        assert check(change(LOAD, "src", operand), level=level) == []


def test_all_violations_are_collected_with_their_index():
    bad = change(change(MULTIPLY, "accumulate_flags", 7), "psum_zero_region", 9)
    found = check([LOAD, bad, LOAD, bad])
    assert [(v.index, v.id) for v in found] == [
        (1, "wire.accumulate_flags"), (1, "wire.psum_zero_region"),
        (3, "wire.accumulate_flags"), (3, "wire.psum_zero_region"),
    ]  # fmt: skip
    assert check(encode_all([LOAD, bad, LOAD, bad])) == found
    error = LegalityError(found)
    assert error.violations == tuple(found)
    assert "and 3 more" in str(error)
    assert "got 7, allowed 0, 1, 2, 3, 4, 6" in str(found[0])


def test_undecodable_bytes_are_violations_here():
    data = bytearray(encode(LOAD))
    data[0x20], data[0x29], data[0x2D] = 0x55, 1, 7
    assert ids(check(data)) == ["decode.dtype", "decode.reserved_28", "decode.col_group"]
    assert ids(check(bytes(64))) == ["decode.opcode"]
    assert ids(check(encode(LOAD) + b"\x00")) == ["decode.length"]
    assert ids(check([b"short"])) == ["decode.length"]
    assert ids(check(LOAD, Arch.CAYMAN)) == ["decode.opcode"]
    assert ids(check(encode(LOAD), Arch.SUNDA)) == ["decode.opcode"]
    kept = dataclasses.replace(LOAD, residue=1 << 0x28 * 8)
    assert ids(check(kept)) == ["decode.reserved_28"]


def test_fp4_containers_are_aligned_to_two_bytes():
    fp4 = change(LOAD, "dtype", FP4)
    assert check(change(fp4, "src.data", Addr4.sbuf(32, 0x102))) == []
    assert ids(check(change(LOAD, "src.data", Addr4.sbuf(32, 0x102)))) == ["wire.src.data"]


def test_levels_are_kept_apart():
    saturating = change(QUANTIZE, "saturate_bit", True)
    assert check(saturating) == check(saturating, level="verifier") == []
    packed = change(change(QUANTIZE, "dst_dtype", FP4), "num_active_channels", 64)
    assert check(packed) == check(packed, level="verifier") == []
    # Neither implies the other: a flag the wire refuses is none of the verifier's business.
    flags = change(MULTIPLY, "accumulate_flags", 5)
    assert ids(check(flags)) == ids(check(flags, level="runtime")) == ["wire.accumulate_flags"]
    assert check(flags, level="verifier") == []
    uneven = change(change(LOAD, "src.extent", 380), "num_active_cols", 95)
    assert check(uneven) == []
    assert ids(check(uneven, level="verifier")) == ["V4.289"]


def test_verifier_rules_on_a_pair():
    assert check([LOAD, MULTIPLY], level="verifier") == []
    cols = change(MULTIPLY, "num_active_cols", 64)
    assert ids(check([LOAD, cols], level="verifier")) == ["V4.236"]
    rows = change(change(MULTIPLY, "num_active_rows", 64), "row_group", 3)
    assert ids(check([LOAD, rows], level="verifier")) == ["V4.235"]
    # An interleaved load of another row group belongs to another multiplication.
    other = change(change(LOAD, "row_group", 4), "num_active_cols", 64)
    other = change(other, "src.extent", 256)
    assert check([LOAD, other, MULTIPLY], level="verifier") == []
    assert check([MULTIPLY], level="verifier") == []


def test_96_partitions_are_for_quantize_only():
    wide = change(change(QUANTIZE, "num_active_channels", 96), "src.start", Addr4.sbuf(0, 0x400))
    wide = change(change(wide, "dst.data", Addr4.sbuf(0)), "dst.scale", Addr4.scale(0))
    assert check(wide) == check(wide, level="verifier") == []
    refused = change(MULTIPLY, "num_active_rows", 96)
    assert "wire.num_active_rows" in ids(check(refused))
    assert "V4.234" in ids(check(refused, level="verifier"))


def test_registers_and_register_shapes_waive_what_bytes_cannot_decide():
    register = change(LOAD, "src.data", Addr4.register(63))
    assert check(register) == []
    assert check(change(register, "src.scale_partition", 7)) == []
    assert ids(check(change(register, "src.extent", 0))) == ["wire.src.extent"]
    shaped = change(LOAD, "src.data", Addr4(SBUF32.word | 0x4000_0000))
    assert check(change(change(shaped, "src.extent", 0), "src.step", 0)) == []
    assert ids(check(change(shaped, "src.scale_partition", 7))) == ["wire.src.scale_partition"]
    target = change(MULTIPLY, "dst.start", Addr4(PSUM0.word | 0x4000_0000))
    assert check(change(target, "dst.num0", 0)) == []
    assert check(change(target, "dst.num0", 0), level="verifier") == []


def test_row_tiles_of_every_size_and_quadrant_are_legal():
    for group, start, rows in [
        (1, 0, 32), (2, 32, 32), (4, 64, 32), (8, 96, 32), (3, 0, 64), (12, 64, 64), (15, 0, 128),
    ]:  # fmt: skip
        src = MxPattern(Addr4.sbuf(start, 0x100), Addr4.scale(start, 0), 384, 1, 0)
        load = dataclasses.replace(LOAD, src=src, num_active_rows=rows, row_group=group)
        assert check(load) == check(load, level="verifier") == []


def test_fixed_block_size_and_scale_method():
    make = {
        "src": QUANTIZE.src,
        "src_dtype": QUANTIZE.src_dtype,
        "dst": QUANTIZE.dst,
        "dst_dtype": FP8,
        "channels": 64,
    }
    assert quantize_mx(**make) == QUANTIZE
    with pytest.raises(LegalityError, match="block_size must be 32") as caught:
        quantize_mx(**make, block_size=16, scale_method="MEAN")
    assert ids(caught.value.violations) == ["verifier.block_size", "verifier.scale_method"]


def test_check_refuses_what_it_cannot_judge():
    with pytest.raises(EncodeError):
        check("text")
    with pytest.raises(EncodeError):
        check([LOAD, 5])
    with pytest.raises(EncodeError):
        check(LOAD, level="strict")
