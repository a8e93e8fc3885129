"""Matrix multiplication as segments of bundles."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from encoding import Addr4, LdWeightMx, MatmultMx
from hardware import AccumulateFlag, Arch, ArchLike, CapabilityError, WireDtype
from hardware.memory import PSUM_BANK_BYTES, PSUM_BANKS
from hardware.pe import LANES, row_group
from mxref.errors import PolicyError, ShapeError
from mxref.machine.executor import machine_order
from mxref.mxarray import MXArray
from mxref.policy import SYSTOLIC_MX, Accumulate, NumericPolicy
from mxref.program import HostRead, Output, Program, Segment, arrays
from mxref.program.layout import BLOCK, K_MAPS, KMap, k_tiles
from mxref.program.parts import Input

from .build import Builder, Need, Tile, contiguous
from .operands import common_policy, operand

_RESULT_TAGS = {"float32": WireDtype.FP32, "bfloat16": WireDtype.BFLOAT16}
#: Output tiles side by side in one pass over K; more of them reload stationary tiles less often.
_PASS_COLUMNS = 4


def lower_matmul(
    lhs: object,
    rhs: object,
    fmt: object = None,
    rhs_fmt: object = None,
    *,
    arch: ArchLike = Arch.MARIANA,
    policy: NumericPolicy | str | None = None,
    accumulate: Accumulate | str | None = None,
    source: object = None,
    out_dtype: object = "float32",
    block: int = BLOCK,
    kmap: KMap = "adjacent",
    names: tuple[str, str, str] = ("lhs", "rhs", "out"),
) -> Program:
    """Return the program that computes ``lhs @ rhs`` on the array.

    K is cut in tiles of 512, the last one padded to 128, 256 or 512 rows, M in tiles of 128 (an odd
    one padded to even), N in tiles of one PSUM bank (D25b, D26).  Each pass accumulates up to eight
    output tiles, one a bank, over all of K.  FP8 operands given as bf16 or fp16 arrays are narrowed
    by QuantizeMx; everything else is placed as codes and scales (D25c).

    Args:
      lhs: ``[M, K]``, an array or an MXArray with blocks of 32 along axis -1; becomes the
        stationary operand.
      rhs: ``[K, N]``, likewise along axis -2; becomes the moving operand.
      fmt: element format of arrays: E4M3FN, E5M2 or E2M1FN.
      rhs_fmt: element format of ``rhs``; default ``fmt``.
      arch: the generation; MARIANA is the first with MX bundles.
      policy: the reading of the arithmetic; default the MXArrays', else NEURON_2_24 (D19).
      accumulate: the order of additions; default SYSTOLIC_MX (D23, ASSUMED).
      source: bfloat16 or float16: round array operands to it first.  FP8 needs it for float32.
      out_dtype: element type in PSUM.  bfloat16 rounds at every K tile (D25).
      block: elements per scale; the array has 32 and nothing else.
      kmap: which logical rows share a partition and a block (D22).  ``strided`` equals the direct
        road on operands whose rows are permuted by :func:`mxref.program.layout.k_order`.
      names: names of the two inputs and the output.

    Raises:
      CapabilityError: on a generation without MX bundles.
      FormatError, PolicyError, ShapeError: when the operands cannot be lowered.

    Exactness:
      ``run`` of the program gives the bits of ``matmul`` in the same order: with a float32 result
      always, with bfloat16 when K fits one tile: test_lowered_equals_direct.
    Gradient:
      None; ``quantized_matmul`` is the differentiable form of the same numbers.
    """
    arch = Arch.parse(arch)
    if arch < Arch.MARIANA:
        raise CapabilityError("an MX matmul", arch.label, Arch.MARIANA.label)
    if block != BLOCK:
        raise PolicyError("block", block, f"{BLOCK}, what the array has")
    if kmap not in K_MAPS:
        raise PolicyError("kmap", kmap, ", ".join(K_MAPS))
    if len(set(names)) != 3:
        raise PolicyError("names", names, "three different names")
    result = arrays.dtype_name(out_dtype, "out_dtype")
    if result not in _RESULT_TAGS:
        raise PolicyError("out_dtype", result, ", ".join(_RESULT_TAGS))
    order = SYSTOLIC_MX if accumulate is None else machine_order(accumulate)
    shared = common_policy(policy, lhs, rhs)
    given = isinstance(lhs, MXArray), isinstance(rhs, MXArray)
    # One format and one MXArray: the format is the array's.
    left_fmt = None if given == (True, False) and rhs_fmt is None else fmt
    right_fmt = rhs_fmt if rhs_fmt is not None or given[1] else fmt
    left = operand(names[0], lhs, left_fmt, axis=-1, policy=shared, source=source, kmap=kmap)
    right = operand(names[1], rhs, right_fmt, axis=-2, policy=shared, source=source, kmap=kmap)
    _check_shapes(left, right)
    output = Output(names[2], (left.shape[0], right.shape[1]), result)
    return Program(
        arch=arch,
        policy=shared,
        order=order,
        segments=tuple(_segments(left, right, output, arch)),
        inputs={left.name: left, right.name: right},
        outputs={output.name: output},
    )


def _check_shapes(left: Input, right: Input) -> None:
    for item in (left, right):
        if len(item.shape) != 2:
            raise ShapeError(item.name, list(item.shape), "two axes")
    if left.k != right.k:
        raise ShapeError(right.name, list(right.shape), f"[{left.k}, N] to fit {list(left.shape)}")


@dataclass(frozen=True)
class _Part:
    """A piece of M or N: where it starts, how much of it is real, how much is placed."""

    start: int
    valid: int
    columns: int


def _parts(extent: int, tile: int, multiple: int = 1) -> list[_Part]:
    cuts = [(s, min(tile, extent - s)) for s in range(0, extent, tile)]
    return [_Part(s, n, n + -n % multiple) for s, n in cuts]


def _segments(left: Input, right: Input, output: Output, arch: Arch) -> list[Segment]:
    size = arrays.DTYPES[output.dtype].itemsize
    # D25b: an odd number of stationary columns is padded to even (verifier code 289).
    rows = _parts(left.shape[0], LANES, 2)
    columns = _parts(right.shape[1], PSUM_BANK_BYTES // size)
    tiles = list(k_tiles(left.k))
    builder = Builder(arch)
    for outputs in _passes(rows, columns):
        for tile in tiles:
            flags = _flags(tile is tiles[0], tile is tiles[-1])
            loaded: _Part | None = None
            for bank, (row, column) in enumerate(outputs):
                stationary, moving = builder.tiles(
                    Need(left, tile, row.start, row.valid, row.columns),
                    Need(right, tile, column.start, column.valid, column.columns),
                )
                if row is not loaded:
                    builder.emit(_load(stationary))
                    loaded = row
                builder.emit(_multiply(stationary, moving, bank, flags, output))
        builder.close(_reads(outputs, output))
    return builder.segments


def _reads(outputs: list[tuple[_Part, _Part]], output: Output) -> tuple[HostRead, ...]:
    return tuple(
        HostRead(
            output=output.name,
            part="values",
            space="PSUM",
            row=row.start,
            column=column.start,
            rows=row.valid,
            columns=column.valid,
            partition=0,
            offset=bank * PSUM_BANK_BYTES,
        )
        for bank, (row, column) in enumerate(outputs)
    )


def _passes(rows: list[_Part], columns: list[_Part]) -> Iterator[list[tuple[_Part, _Part]]]:
    """Cut the output tiles in groups of at most eight, one PSUM bank each, rows outermost."""
    wide = min(len(columns), _PASS_COLUMNS)
    high = PSUM_BANKS // wide
    for r in range(0, len(rows), high):
        for c in range(0, len(columns), wide):
            yield list(itertools.product(rows[r : r + high], columns[c : c + wide]))


def _flags(first: bool, last: bool) -> int:
    return AccumulateFlag.START * first | AccumulateFlag.STOP * last


def _load(stationary: Tile) -> LdWeightMx:
    return LdWeightMx(
        src=stationary.pattern,
        dtype=stationary.dtype,
        num_active_rows=stationary.partitions,
        num_active_cols=stationary.columns,
        row_group=row_group(0, stationary.partitions),
    )


def _multiply(stationary: Tile, moving: Tile, bank: int, flags: int, output: Output) -> MatmultMx:
    return MatmultMx(
        src=moving.pattern,
        dtype=moving.dtype,
        num_active_rows=moving.partitions,
        num_active_cols=stationary.columns,
        out_dtype=_RESULT_TAGS[output.dtype],
        accumulate_flags=flags,
        row_group=row_group(0, moving.partitions),
        dst=contiguous(Addr4.psum(0, bank, 0), moving.columns),
    )
