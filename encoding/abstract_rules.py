"""The verifier's assertions on abstract MX instructions, one row per code.

Sources: "MX-Matmul Legality Contract & Dequant", "birverifier Per-Op Verification" and "Codegen
Leaves: NcMatMul, MatMulMX, and the QuantizeMX DVE Op".
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

from hardware.arch import Arch, Engine
from hardware.dtypes import Dtype
from hardware.memory import PSUM_BANK_BYTES, QUADRANT_PARTITIONS, Space
from hardware.pe import LANES, MX_MAX_STATIONARY, MX_ROWS, QUANTIZE_CHANNELS, tile_starts

from .abstract import AbstractInstruction, MatmultMxOp, QuantizeMxOp
from .errors import Violation
from .rules import Finding, Rule, Test


def abstract_rules(instruction: AbstractInstruction, arch: Arch) -> Iterator[Violation]:
    """Yield every assertion that an abstract instruction breaks."""
    for rule in ABSTRACT:
        if rule.binds(type(instruction), arch):
            finding = rule.test(instruction, arch)
            if finding is not None:
                got, allowed = finding
                yield Violation(rule.id, rule.field, 0, got, allowed, rule.message)


def _equal(path: str, want: str, factor: int = 1) -> Test:
    def test(instruction: Any, arch: Arch) -> Finding:
        got, wanted = attrgetter(path)(instruction), factor * attrgetter(want)(instruction)
        return None if got == wanted else (got, f"{wanted}, {factor} x {want}")

    return test


def _one_of(path: str, values: tuple[Any, ...]) -> Test:
    def test(instruction: Any, arch: Arch) -> Finding:
        got = attrgetter(path)(instruction)
        names = ", ".join(getattr(v, "name", str(v)) for v in values)
        return None if got in values else (getattr(got, "name", got), names)

    return test


def _moving_limit(instruction: MatmultMxOp, arch: Arch) -> Finding:
    most = 32 * PSUM_BANK_BYTES // instruction.out.dtype.fact.storage
    got = instruction.moving.logical
    return None if got <= most else (got, f"at most {most}")


def _stationary_limit(instruction: MatmultMxOp, arch: Arch) -> Finding:
    got = instruction.stationary.logical
    return None if got <= MX_MAX_STATIONARY else (got, f"at most {MX_MAX_STATIONARY}")


def _even_columns(instruction: MatmultMxOp, arch: Arch) -> Finding:
    got = instruction.stationary.logical
    return None if got & 4 == 0 else (got, "an even number of containers")


def _low_half(path: str) -> Test:
    def test(instruction: Any, arch: Arch) -> Finding:
        got = attrgetter(path)(instruction)
        return None if got & 16 == 0 else (got, "a partition below 16 in its quadrant")

    return test


def _aligned(path: str) -> Test:
    def test(instruction: Any, arch: Arch) -> Finding:
        got = attrgetter(path)(instruction)
        return None if got % 4 == 0 else (got, "a multiple of 4")

    return test


def _same_quadrant(data: str, scale: str) -> Test:
    def test(instruction: Any, arch: Arch) -> Finding:
        want = attrgetter(data)(instruction).partition // QUADRANT_PARTITIONS
        got = attrgetter(scale)(instruction).partition // QUADRANT_PARTITIONS
        return None if got == want else (got, f"quadrant {want}, as the data")

    return test


def _row_tiles(instruction: MatmultMxOp, arch: Arch) -> Finding:
    rows, sizes = instruction.stationary.partitions, instruction.row_tile_size
    return None if set(sizes) <= {-1, rows} else (str(sizes), f"-1 or {rows}")


def _tile_position(instruction: MatmultMxOp, arch: Arch) -> Finding:
    base, where = instruction.stationary.partition, instruction.row_tile_pos
    return None if set(where) <= {-1, base} else (str(where), f"-1 or {base}")


def _col_tiles(instruction: MatmultMxOp, arch: Arch) -> Finding:
    where, sizes = instruction.col_tile_pos, instruction.col_tile_size
    if set(where) <= {-1, 0} and set(sizes) <= {-1, LANES}:
        return None
    return f"{where}, {sizes}", f"positions -1 or 0 and sizes -1 or {LANES}"


def _tile_vectors(instruction: MatmultMxOp, arch: Arch) -> Finding:
    vectors = (
        instruction.row_tile_pos, instruction.row_tile_size,
        instruction.col_tile_pos, instruction.col_tile_size,
    )  # fmt: skip
    lengths = tuple(len(vector) for vector in vectors)
    return None if len(set(lengths)) == 1 else (str(lengths), "four equal lengths")


def _partition_access(path: str) -> Test:
    def test(instruction: Any, arch: Arch) -> Finding:
        access = attrgetter(path)(instruction)
        if access.partitions > LANES:
            return access.partitions, f"at most {LANES} partitions"
        starts = tile_starts(access.partitions)
        if access.partition in starts:
            return None
        return access.partition, f"{', '.join(map(str, starts))} for {access.partitions} partitions"

    return test


def _arch(instruction: QuantizeMxOp, arch: Arch) -> Finding:
    return None if arch >= Arch.MARIANA else (arch.label, Arch.MARIANA.label)


def _inner_step(instruction: QuantizeMxOp, arch: Arch) -> Finding:
    step, num = instruction.source.free[-1] if instruction.source.free else (1, 1)
    if step == 1 and (instruction.out.logical == 4 or num % 4 == 0):
        return None
    return f"step {step}, count {num}", "step 1 and a count that 4 divides"


def _outer_steps(instruction: QuantizeMxOp, arch: Arch) -> Finding:
    odd = [step for step, num in instruction.source.free[:-1] if num != 1 and step % 2]
    return (odd[0], "an even step, or a count of 1") if odd else None


def _scale_start(instruction: QuantizeMxOp, arch: Arch) -> Finding:
    got = instruction.scale.partition
    return None if got % 32 in (0, 4, 8, 12) else (got, "0, 4, 8 or 12 of its quadrant")


_M, _Q = (MatmultMxOp,), (QuantizeMxOp,)
_PACKED = (Dtype.FLOAT4_E2M1FN_X4, Dtype.FLOAT8_E4M3FN_X4, Dtype.FLOAT8_E5M2_X4)
_SCALES = (Dtype.UINT8, Dtype.FLOAT8_E8M0FNU)
_HALVES = (Dtype.BFLOAT16, Dtype.FLOAT16)
_SBUF, _PSUM = (Space.SBUF,), (Space.PSUM,)

# fmt: off
ABSTRACT: tuple[Rule, ...] = (
    Rule("V4.204", "replication_shift", "MX does not replicate",
         _M, _one_of("replication_shift", (0,))),
    Rule("V4.205", "engine", "an MX matmul runs on the PE array",
         _M, _one_of("engine", (Engine.PE,))),
    Rule("V4.212", "moving_scale", "moving data and scales share a quadrant",
         _M, _same_quadrant("moving", "moving_scale")),
    Rule("V4.213", "stationary_scale", "stationary data and scales share a quadrant",
         _M, _same_quadrant("stationary", "stationary_scale")),
    Rule("V4.214", "moving_scale", "scales start at a multiple of 4",
         _M, _aligned("moving_scale.partition")),
    Rule("V4.214", "stationary_scale", "scales start at a multiple of 4",
         _M, _aligned("stationary_scale.partition")),
    Rule("V4.228", "moving", "moving elements are 4 per scale",
         _M, _equal("moving.logical", "moving_scale.logical", 4)),
    Rule("V4.229", "stationary", "stationary elements are 4 per scale",
         _M, _equal("stationary.logical", "stationary_scale.logical", 4)),
    Rule("V4.230", "moving_scale", "moving scales start in the lower half quadrant",
         _M, _low_half("moving_scale.partition")),
    Rule("V4.231", "stationary_scale", "stationary scales start in the lower half quadrant",
         _M, _low_half("stationary_scale.partition")),
    Rule("V4.232", "moving", "the moving operand fits the accumulation banks",
         _M, _moving_limit),
    Rule("V4.233", "stationary", "the stationary operand fits the array",
         _M, _stationary_limit),
    Rule("V4.234", "moving", "32, 64 or 128 partitions (D26)",
         _M, _one_of("moving.partitions", MX_ROWS)),
    Rule("V4.235", "moving", "both operands have the same partitions",
         _M, _equal("moving.partitions", "stationary.partitions")),
    Rule("V4.236", "stationary", "output partitions times 4 is the stationary extent",
         _M, _equal("stationary.logical", "out.partitions", 4)),
    Rule("V4.237", "moving", "output elements times 4 is the moving extent",
         _M, _equal("moving.logical", "out.logical", 4)),
    Rule("V4.240", "row_tile_size", "a row tile is the operand's partitions, or derived",
         _M, _row_tiles),
    Rule("V4.241", "col_tile_size", "a column tile is all columns, or derived",
         _M, _col_tiles),
    Rule("V4.289", "stationary", "the stationary operand has an even number of columns",
         _M, _even_columns),
    Rule("verifier.tile_position", "row_tile_pos", "a row tile starts at the operand, or derived",
         _M, _tile_position),
    Rule("verifier.tile_vectors", "row_tile_pos", "the four tile vectors have one length",
         _M, _tile_vectors),
    Rule("verifier.partitions", "moving", "no access crosses its tile's partitions",
         _M, _partition_access("moving")),
    Rule("verifier.partitions", "stationary", "no access crosses its tile's partitions",
         _M, _partition_access("stationary")),
    Rule("verifier.partitions", "out", "no access crosses its tile's partitions",
         _M, _partition_access("out")),
    Rule("verifier.memory", "out", "results go to PSUM",
         _M, _one_of("out.space", _PSUM)),
    Rule("verifier.memory", "moving_scale", "scales live in SBUF",
         _M, _one_of("moving_scale.space", _SBUF)),
    Rule("verifier.memory", "stationary_scale", "scales live in SBUF",
         _M, _one_of("stationary_scale.space", _SBUF)),
    Rule("V4.207", "engine", "QuantizeMx runs on the DVE engine",
         _Q, _one_of("engine", (Engine.DVE,))),
    Rule("V4.209", "source", "the innermost dimension is contiguous, in fours",
         _Q, _inner_step),
    Rule("V4.210", "source", "outer dimensions step by even numbers",
         _Q, _outer_steps),
    Rule("V4.211", "source", "as many elements are packed as are read (D16a)",
         _Q, _equal("source.count", "out.logical")),
    Rule("V4.215", "source", "32, 64, 96 or 128 partitions (D26)",
         _Q, _one_of("source.partitions", QUANTIZE_CHANNELS)),
    Rule("V4.264", "scale", "scales start at 0, 4, 8 or 12 of the quadrant",
         _Q, _scale_start),
    Rule("V4.270", "source", "one scale per four elements of a partition",
         _Q, _equal("source.count", "scale.count", 4)),
    Rule("V4.310", "source", "the source lies in SBUF",
         _Q, _one_of("source.space", _SBUF)),
    Rule("V4.310", "out", "packed elements lie in SBUF",
         _Q, _one_of("out.space", _SBUF)),
    Rule("V4.310", "scale", "scales lie in SBUF",
         _Q, _one_of("scale.space", _SBUF)),
    Rule("V4.366", "arch", "MX needs MARIANA",
         _Q, _arch),
    Rule("V4.400", "engine", "an engine that has the instruction",
         _Q, _one_of("engine", (Engine.DVE,))),
    Rule("V4.1821", "scale", "data and scales share a quadrant",
         _Q, _same_quadrant("out", "scale")),
    Rule("verifier.source_dtype", "source", "bfloat16 or float16",
         _Q, _one_of("source.dtype", _HALVES)),
    Rule("verifier.out_dtype", "out", "a type packed with 4 elements into 1 (D11)",
         _Q, _one_of("out.dtype", _PACKED)),
    Rule("verifier.scale_dtype", "scale", "uint8 or E8M0",
         _Q, _one_of("scale.dtype", _SCALES)),
)
# fmt: on
