"""The verifier's rules as data, one row per rule, under its public assertion codes.

These are the rules that a bundle's own bytes can decide.  Rules on what no byte carries (engine
binding, tile vectors, replication shift) are in :mod:`encoding.abstract_rules`; those on two
bundles are in :mod:`encoding.pair_rules`.  Sources: "MX-Matmul Legality Contract & Dequant",
"birverifier Per-Op Verification", "SB-size legalization" and "SparsityCompress".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from hardware.arch import Arch
from hardware.memory import (
    PSUM_BANK_BYTES,
    QUADRANT_PARTITIONS,
    Space,
    geometry,
)
from hardware.pe import (
    LANES,
    MX_MAX_STATIONARY,
    MX_ROWS,
    QUANTIZE_CHANNELS,
    SPARSE_FMAPS,
    SPARSE_ROWS,
    TAGS_PER_WORD,
    PerfMode,
    tile_starts,
)

from .dense import LoadStationary, Matmul
from .mx import LdWeightMx, MatmultMx, QuantizeMx
from .patterns import MxIndirect, Tensor3D
from .rules import Finding, Rule, Static, Test, byte_span, pattern_of, static, value_at
from .sparse import LoadTagsSparse, MatmultSparse


def _same_quadrant(slot: str) -> Test:
    def test(instruction: Any, arch: Arch) -> Finding:
        pattern = pattern_of(instruction, slot)
        if not (static(pattern.data, Space.SBUF) and static(pattern.scale, Space.SBUF)):
            return None
        want = pattern.data.partition // QUADRANT_PARTITIONS
        got = pattern.scale.partition // QUADRANT_PARTITIONS
        return None if got == want else (got, f"quadrant {want}, as the data")

    return test


def _one_of(path: str, values: tuple[int, ...]) -> Test:
    def test(instruction: Any, arch: Arch) -> Finding:
        got = value_at(instruction, path)
        return None if got in values else (got, ", ".join(map(str, values)))

    return test


def _multiple(path: str, factor: int) -> Test:
    def test(instruction: Any, arch: Arch) -> Finding:
        got = value_at(instruction, path)
        return None if got % factor == 0 else (got, f"a multiple of {factor}")

    return test


def _scale_low(slot: str) -> Test:
    def test(instruction: Any, arch: Arch) -> Finding:
        got = pattern_of(instruction, slot).scale_partition
        return None if got & 16 == 0 else (got, "partition modulo 32 below 16")

    return test


def _at_most(path: str, limit: Callable[[Any], int]) -> Test:
    def test(instruction: Any, arch: Arch) -> Finding:
        got, most = value_at(instruction, path), limit(instruction)
        return None if got <= most else (got, f"at most {most}")

    return test


def _equal(path: str, want: Callable[[Any], int], words: str) -> Test:
    def test(instruction: Any, arch: Arch) -> Finding:
        got, wanted = value_at(instruction, path), want(instruction)
        return None if got == wanted else (got, f"{wanted}, {words}")

    return test


def _inner_steps(instruction: QuantizeMx, arch: Arch) -> Finding:
    src, packed = cast(Tensor3D, instruction.src), instruction.dst.extent
    if src.step0 == 1 and (packed == 4 or src.num0 % 4 == 0):
        return None
    return f"step {src.step0}, count {src.num0}", "step 1 and a count that 4 divides"


def _outer_step(dim: int) -> Test:
    def test(instruction: QuantizeMx, arch: Arch) -> Finding:
        src = cast(Tensor3D, instruction.src)
        step, num = src.steps[dim], src.nums[dim]
        return (step, "an even step, or a count of 1") if num != 1 and step % 2 else None

    return test


def _mx_bounds(slot: str, dtype: str) -> Test:
    def test(instruction: Any, arch: Arch) -> Finding:
        pattern = pattern_of(instruction, slot)
        if isinstance(pattern, MxIndirect) or not static(pattern.data, Space.SBUF):
            return None
        reach = (pattern.containers - 1) * getattr(instruction, dtype).container_bytes
        start = pattern.data.offset
        low, high = (start - reach, start) if pattern.step < 0 else (start, start + reach)
        high += getattr(instruction, dtype).container_bytes - 1
        limit = geometry(arch).sbuf_bytes
        return None if low >= 0 and high < limit else (f"bytes {low}..{high}", f"0..{limit - 1}")

    return test


def _tensor_bounds(slot: str, size_of: Callable[[Any], int], space: Space) -> Test:
    def test(instruction: Any, arch: Arch) -> Finding:
        tensor: Static = getattr(instruction, slot)
        if not static(tensor.start, space):
            return None
        low, high = byte_span(tensor, size_of(instruction))
        sizes = geometry(arch)
        limit = sizes.sbuf_bytes if space is Space.SBUF else sizes.psum_bytes
        return None if low >= 0 and high < limit else (f"bytes {low}..{high}", f"0..{limit - 1}")

    return test


def _source_size(instruction: Any) -> int:
    tag = instruction.src_dtype if isinstance(instruction, QuantizeMx) else instruction.dtype
    return tag.size or 1


def _result_size(instruction: Any) -> int:
    return instruction.out_dtype.size or 4


def _in_sbuf(path: str) -> Test:
    def test(instruction: QuantizeMx, arch: Arch) -> Finding:
        word = value_at(instruction, path)
        return None if word.is_register or word.space is Space.SBUF else (str(word), "SBUF")

    return test


def _partitions(instruction: Any, arch: Arch) -> Finding:
    word, rows = instruction.src.start, instruction.num_active_rows
    if not static(word, Space.SBUF) or not 1 <= rows <= LANES:
        return None
    starts = tile_starts(rows)
    if word.partition in starts:
        return None
    return word.partition, f"{', '.join(map(str, starts))} for {rows} partitions"


def _replication(instruction: LoadStationary | Matmul, arch: Arch) -> Finding:
    got, want = instruction.replication1, instruction.replication0
    return None if got == want else (got, f"{want}, as the first copy")


def _stationary_columns(instruction: LoadStationary, arch: Arch) -> Finding:
    got, want = instruction.num_active_cols, instruction.src.count
    if instruction.perf_mode != PerfMode.NONE or got == want:
        return None
    return got, f"{want}, the elements of a partition"


def _moving_limit(instruction: MatmultMx) -> int:
    return 32 * PSUM_BANK_BYTES // (instruction.out_dtype.size or 4)


def _columns(instruction: LdWeightMx) -> int:
    return instruction.src.containers


_LD, _MM, _Q = (LdWeightMx,), (MatmultMx,), (QuantizeMx,)
_PE = (LdWeightMx, MatmultMx)
_LW, _DM, _LT, _MS = (LoadStationary,), (Matmul,), (LoadTagsSparse,), (MatmultSparse,)
_READERS = (*_LW, *_DM, *_LT, *_MS)

# fmt: off
VERIFIER: tuple[Rule, ...] = (
    Rule("V4.212", "src.scale", "moving data and scales share a quadrant",
         _MM, _same_quadrant("src")),
    Rule("V4.213", "src.scale", "stationary data and scales share a quadrant",
         _LD, _same_quadrant("src")),
    Rule("V4.214", "src.scale_partition", "scales start at a multiple of 4",
         _PE, _multiple("src.scale_partition", 4)),
    Rule("V4.228", "src.extent", "moving elements are 4 per scale",
         _MM, _multiple("src.extent", 4), sized=True),
    Rule("V4.229", "src.extent", "stationary elements are 4 per scale",
         _LD, _multiple("src.extent", 4), sized=True),
    Rule("V4.230", "src.scale_partition", "moving scales start in the lower half quadrant",
         _MM, _scale_low("src")),
    Rule("V4.231", "src.scale_partition", "stationary scales start in the lower half quadrant",
         _LD, _scale_low("src")),
    Rule("V4.232", "src.extent", "the moving operand fits the accumulation banks",
         _MM, _at_most("src.extent", _moving_limit), sized=True),
    Rule("V4.233", "src.extent", "the stationary operand fits the array",
         _LD, _at_most("src.extent", lambda i: MX_MAX_STATIONARY), sized=True),
    Rule("V4.289", "src.extent", "the stationary operand has an even number of columns",
         _LD, _multiple("src.extent", 8), sized=True),
    Rule("V4.234", "num_active_rows", "32, 64 or 128 partitions (D26)",
         _PE, _one_of("num_active_rows", MX_ROWS)),
    Rule("V4.236", "num_active_cols", "output partitions times 4 is the stationary extent",
         _LD, _equal("num_active_cols", _columns, "a quarter of the extent"), sized=True),
    Rule("V4.237", "src.extent", "output elements times 4 is the moving extent",
         _MM, _equal("src.extent", lambda i: 4 * i.dst.count, "4 per output element"), sized=True),
    Rule("verifier.src.bounds", "src.data", "the walk stays inside SBUF",
         _PE, _mx_bounds("src", "dtype"), sized=True),
    Rule("verifier.dst.bounds", "dst.start", "the walk stays inside PSUM",
         (*_MM, *_DM, *_MS), _tensor_bounds("dst", _result_size, Space.PSUM), sized=True),
    Rule("V4.209", "src.step0", "the innermost dimension is contiguous, in fours",
         _Q, _inner_steps, sized=True),
    Rule("V4.210", "src.step1", "outer dimensions step by even numbers",
         _Q, _outer_step(1), sized=True),
    Rule("V4.210", "src.step2", "outer dimensions step by even numbers",
         _Q, _outer_step(2), sized=True),
    Rule("V4.211", "dst.extent", "as many elements are packed as are read",
         _Q, _equal("dst.extent", lambda i: i.src.count, "the elements of the source"), sized=True),
    Rule("V4.215", "num_active_channels", "32, 64, 96 or 128 partitions (D26)",
         _Q, _one_of("num_active_channels", QUANTIZE_CHANNELS)),
    Rule("V4.264", "dst.scale_partition", "scales start at 0, 4, 8 or 12 of the quadrant",
         _Q, _one_of("dst.scale_partition", (0, 4, 8, 12))),
    Rule("V4.270", "dst.extent", "one scale per four elements of a partition",
         _Q, _multiple("dst.extent", 4), sized=True),
    Rule("V4.1821", "dst.scale", "data and scales share a quadrant",
         _Q, _same_quadrant("dst")),
    Rule("verifier.src.bounds", "src.start", "the walk stays inside SBUF",
         (*_Q, *_READERS), _tensor_bounds("src", _source_size, Space.SBUF), sized=True),
    Rule("verifier.dst.bounds", "dst.data", "the walk stays inside SBUF",
         _Q, _mx_bounds("dst", "dst_dtype"), sized=True),
    Rule("V4.310", "src.start", "the source lies in SBUF",
         _Q, _in_sbuf("src.start")),
    Rule("V4.310", "dst.data", "packed elements lie in SBUF",
         _Q, _in_sbuf("dst.data")),
    Rule("V4.310", "dst.scale", "scales lie in SBUF",
         _Q, _in_sbuf("dst.scale")),
    Rule("verifier.src.partitions", "src.start", "no access crosses its tile's partitions",
         _READERS, _partitions),
    Rule("verifier.num_active_cols", "num_active_cols", "columns are stationary elements (D8)",
         _LW, _stationary_columns, sized=True),
    Rule("verifier.replication", "replication1", "both copies of the replication code are equal",
         (*_LW, *_DM), _replication, until=Arch.SUNDA),
    Rule("verifier.tag_columns", "num_active_cols", "a word of tags is four columns",
         _LT, _equal("num_active_cols", lambda i: TAGS_PER_WORD * i.src.count, "four per word"),
         sized=True),
    Rule("verifier.sparse_rows", "num_active_rows", "a sparse matmul uses the full array",
         _MS, _one_of("num_active_rows", (SPARSE_ROWS,))),
    Rule("verifier.sparse_columns", "num_active_cols", "columns come in fours",
         _MS, _multiple("num_active_cols", TAGS_PER_WORD)),
    Rule("verifier.fmaps", "src.num3", "two to four feature maps per partition",
         _MS, _one_of("src.num3", SPARSE_FMAPS), sized=True),
)
# fmt: on
