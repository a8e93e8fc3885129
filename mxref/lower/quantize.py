"""Quantization as QuantizeMx bundles."""

from __future__ import annotations

from typing import Any

from hardware import Arch, ArchLike, CapabilityError
from mxref.errors import FormatError, ShapeError
from mxref.mxarray import MXArray
from mxref.policy import NEURON_2_24, SYSTOLIC_MX, NumericPolicy
from mxref.policy import policy as resolve_policy
from mxref.program import HostRead, Output, Program
from mxref.program.layout import BLOCK, k_tiles

from .build import Builder, Need
from .operands import operand, wire_format

#: Columns quantized by one bundle: 4 x 512 values a partition.
_COLUMNS = 512


def lower_quantize(
    x: object,
    fmt: object,
    *,
    axis: int = -1,
    arch: ArchLike = Arch.MARIANA,
    policy: NumericPolicy | str = NEURON_2_24,
    source: object = None,
    names: tuple[str, str, str] = ("x", "codes", "scales"),
) -> Program:
    """Return the program that quantizes ``x`` in blocks of 32 along ``axis``.

    The axis is laid over partitions and lanes like the K axis of a matmul, so that a block of the
    engine, 8 partitions x 4 elements, holds 32 consecutive elements (D22).

    Args:
      x: bf16 or fp16 array of any rank.
      fmt: E4M3FN or E5M2; the engine writes no FP4 (D11).
      axis: the axis the blocks run along.
      arch: the generation; MARIANA is the first with QuantizeMx.
      policy: the reading of the arithmetic (D19).
      source: bfloat16 or float16: round ``x`` to it first, as float32 needs (D25c).
      names: names of the input and of the two outputs, ``uint8`` codes and scales.

    Raises:
      CapabilityError: on a generation without MX bundles.
      FormatError, PolicyError, ShapeError: when ``x`` cannot be lowered.

    Exactness:
      ``run`` gives the codes and scales of ``quantize(x, fmt, axis=axis, policy=policy)``:
      test_lowered_quantize_equals_direct.
    Gradient:
      None; ``fake_quantize`` is the differentiable form of the same numbers.
    """
    arch = Arch.parse(arch)
    if arch < Arch.MARIANA:
        raise CapabilityError("QuantizeMx", arch.label, Arch.MARIANA.label)
    spec = wire_format(fmt)
    if spec.bits != 8:
        raise FormatError(spec, "QuantizeMx writes float8_e4m3fn and float8_e5m2 only")
    if isinstance(x, MXArray):
        raise ShapeError("x", "an MXArray", "an array; it is quantized already")
    shared = resolve_policy(policy)
    ndim = getattr(x, "ndim", 0)
    if not -ndim <= axis < ndim:
        raise ShapeError("axis", axis, f"an axis of an array of {ndim} axes")
    axis = axis if axis < 0 else axis - ndim
    item = operand(names[0], x, spec, axis=axis, policy=shared, source=source, kmap="adjacent")
    scales_shape = list(item.shape)
    scales_shape[axis] = -(-item.k // BLOCK)
    builder = Builder(arch)
    for tile in k_tiles(item.k):
        for column in range(0, item.columns, _COLUMNS):
            valid = min(_COLUMNS, item.columns - column)
            (placed,) = builder.tiles(Need(item, tile, column, valid, valid))
            common: dict[str, Any] = {
                "space": "SBUF",
                "column": column,
                "rows": tile.partitions,
                "columns": valid,
            }
            builder.close(
                (
                    HostRead(
                        names[1], "codes", row=tile.start, partition=0,
                        offset=placed.data_offset, bits=spec.bits, **common,
                    ),
                    HostRead(
                        names[2], "scales", row=tile.start // BLOCK,
                        partition=placed.scale_partition, offset=placed.scale_offset, **common,
                    ),
                )
            )  # fmt: skip
    outputs = {
        names[1]: Output(names[1], item.shape, "uint8", axis),
        names[2]: Output(names[2], tuple(scales_shape), "uint8", axis),
    }
    return Program(arch, shared, SYSTOLIC_MX, tuple(builder.segments), {item.name: item}, outputs)
