"""The verifier's assertions on abstract instructions: one accepted, one field away one refused."""

from __future__ import annotations

import dataclasses

import pytest

from encoding import (
    AccessPattern,
    LdWeightMx,
    MatmultMx,
    MatmultMxOp,
    QuantizeMx,
    QuantizeMxOp,
    check,
)
from encoding.abstract_rules import ABSTRACT
from hardware import Arch, Dtype, Engine, Space

X4, FP4 = Dtype.FLOAT8_E4M3FN_X4, Dtype.FLOAT4_E2M1FN_X4
BYTE, BF16, FP32 = Dtype.UINT8, Dtype.BFLOAT16, Dtype.FLOAT32


def walk(dtype, partition, partitions, count, **more):
    return AccessPattern(dtype, partition, ((1, partitions), (1, count)), **more)


MULTIPLY = MatmultMxOp(
    moving=walk(X4, 32, 32, 200, offset=0x1000),
    stationary=walk(X4, 32, 32, 96, offset=0x100),
    moving_scale=walk(BYTE, 40, 4, 200, offset=0x40),
    stationary_scale=walk(BYTE, 36, 4, 96, offset=0x2000),
    out=walk(FP32, 0, 96, 200, space=Space.PSUM, offset=0x1800),
)
QUANTIZE = QuantizeMxOp(
    source=AccessPattern(BF16, 64, ((1, 64), (256, 2), (1, 128)), offset=0x400),
    out=walk(X4, 64, 64, 64, offset=0x800),
    scale=walk(BYTE, 76, 8, 64, offset=0xC00),
)


def change(instruction, path, value):
    """Return the instruction with one field, possibly of an operand, replaced."""
    head, _, rest = path.partition(".")
    if rest:
        value = change(getattr(instruction, head), rest, value)
    return dataclasses.replace(instruction, **{head: value})


def dims(partitions, count):
    return ((1, partitions), (1, count))


BIG = change(change(change(MULTIPLY, "moving.dims", dims(32, 4096)), "moving_scale.dims",
                    dims(4, 4096)), "out.dims", dims(96, 4096))  # fmt: skip
WIDE = change(change(change(MULTIPLY, "stationary.dims", dims(32, 128)), "stationary_scale.dims",
                     dims(4, 128)), "out.dims", dims(128, 200))  # fmt: skip
# rule, an accepted instruction, the one field that differs, the refused value
CASES = [
    ("V4.204", MULTIPLY, "replication_shift", 1),
    ("V4.205", MULTIPLY, "engine", Engine.DVE),
    ("V4.212", MULTIPLY, "moving_scale.partition", 64),
    ("V4.213", MULTIPLY, "stationary_scale.partition", 0),
    ("V4.214", MULTIPLY, "moving_scale.partition", 42),
    ("V4.214", MULTIPLY, "stationary_scale.partition", 37),
    ("V4.228", MULTIPLY, "moving_scale.dims", dims(4, 199)),
    ("V4.229", MULTIPLY, "stationary_scale.dims", dims(4, 24)),
    ("V4.230", MULTIPLY, "moving_scale.partition", 48),
    ("V4.231", MULTIPLY, "stationary_scale.partition", 60),
    ("V4.232", change(BIG, "out.dtype", FP32), "moving.dims", dims(32, 4097)),
    ("V4.232", change(BIG, "out.dtype", BF16), "moving.dims", dims(32, 8193)),
    ("V4.233", WIDE, "stationary.dims", dims(32, 130)),
    ("V4.234", MULTIPLY, "moving.dims", dims(96, 200)),
    ("V4.235", MULTIPLY, "moving.dims", dims(64, 200)),
    ("V4.236", MULTIPLY, "out.dims", dims(95, 200)),
    ("V4.237", MULTIPLY, "out.dims", dims(96, 199)),
    ("V4.240", MULTIPLY, "row_tile_size", (64,)),
    ("V4.241", MULTIPLY, "col_tile_size", (64,)),
    ("V4.241", MULTIPLY, "col_tile_pos", (32,)),
    ("V4.289", MULTIPLY, "stationary.dims", dims(32, 95)),
    ("verifier.tile_vectors", MULTIPLY, "row_tile_pos", (-1, -1)),
    ("verifier.tile_position", MULTIPLY, "row_tile_pos", (64,)),
    ("verifier.partitions", MULTIPLY, "moving.dims", dims(129, 200)),
    ("verifier.partitions", MULTIPLY, "stationary.dims", dims(64, 96)),
    ("verifier.partitions", MULTIPLY, "out.partition", 32),
    ("verifier.memory", MULTIPLY, "out.space", Space.SBUF),
    ("verifier.memory", MULTIPLY, "moving_scale.space", Space.PSUM),
    ("verifier.memory", MULTIPLY, "stationary_scale.space", Space.PSUM),
    ("V4.207", QUANTIZE, "engine", Engine.PE),
    ("V4.209", QUANTIZE, "source.dims", ((1, 64), (256, 2), (2, 128))),
    ("V4.209", QUANTIZE, "source.dims", ((1, 64), (256, 2), (1, 126))),
    ("V4.210", QUANTIZE, "source.dims", ((1, 64), (255, 2), (1, 128))),
    ("V4.211", QUANTIZE, "out.dims", dims(64, 63)),
    ("V4.215", QUANTIZE, "source.dims", ((1, 48), (256, 2), (1, 128))),
    ("V4.264", QUANTIZE, "scale.partition", 80),
    ("V4.264", QUANTIZE, "scale.partition", 77),
    ("V4.270", QUANTIZE, "scale.dims", dims(8, 16)),
    ("V4.310", QUANTIZE, "source.space", Space.PSUM),
    ("V4.310", QUANTIZE, "out.space", Space.PSUM),
    ("V4.310", QUANTIZE, "scale.space", Space.PSUM),
    ("V4.400", QUANTIZE, "engine", Engine.SP),
    ("V4.1821", QUANTIZE, "scale.partition", 36),
    ("verifier.source_dtype", QUANTIZE, "source.dtype", FP32),
    ("verifier.out_dtype", QUANTIZE, "out.dtype", Dtype.FLOAT8_E4M3FN),
    ("verifier.scale_dtype", QUANTIZE, "scale.dtype", Dtype.INT8),
]


def ids(found):
    return [violation.id for violation in found]


@pytest.mark.parametrize("level", ["wire", "verifier", "runtime"])
@pytest.mark.parametrize("instruction", [MULTIPLY, QUANTIZE, BIG, WIDE])
def test_the_base_instructions_are_legal(level, instruction):
    if instruction is BIG and level != "verifier":
        # 4096 words of 4 bytes are eight banks: legal for the verifier, not for one bank.
        assert ids(check(instruction, level=level)) == ["wire.zero_region_span"]
        instruction = dataclasses.replace(change(instruction, "out.offset", 0), psum_zero_region=3)
    assert check(instruction, level=level) == []


@pytest.mark.parametrize(("rule", "instruction", "path", "value"), CASES)
def test_each_assertion_accepts_and_refuses(rule, instruction, path, value):
    assert rule not in ids(check(instruction, level="verifier"))
    found = check(change(instruction, path, value), level="verifier")
    hit = next(violation for violation in found if violation.id == rule)
    assert hit.field in {field.name for field in dataclasses.fields(instruction)}
    assert hit.allowed
    assert hit.message


def test_every_assertion_has_a_case():
    covered = {case[0] for case in CASES} | {"V4.366"}
    assert {rule.id for rule in ABSTRACT} == covered
    assert ids(check(QUANTIZE, Arch.CAYMAN, level="verifier")) == ["V4.366"]


def test_they_become_the_bundles_of_the_packer():
    load, multiply = MULTIPLY.bundles()
    assert isinstance(load, LdWeightMx)
    assert isinstance(multiply, MatmultMx)
    assert (load.num_active_rows, load.num_active_cols, load.row_group) == (32, 96, 2)
    assert (load.src.extent, load.src.scale_partition) == (384, 4)
    assert (multiply.src.extent, multiply.src.scale_partition, multiply.dst.count) == (800, 8, 200)
    assert check([load, multiply], level="verifier") == []
    (quantize,) = dataclasses.replace(QUANTIZE, saturate_bit=True).bundles()
    assert isinstance(quantize, QuantizeMx)
    assert (quantize.src.num0, quantize.src.step1, quantize.dst.extent) == (128, 256, 256)
    assert quantize.saturate_bit
    assert check(quantize, level="verifier") == []
    assert change(MULTIPLY, "moving.dtype", FP4).bundles()[1].dtype == 0x10
