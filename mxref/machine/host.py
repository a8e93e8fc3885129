"""The host's part of a program: operands into memory before bundles, results out after them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from hardware import Space
from mxref.block import quantize
from mxref.errors import PolicyError, ShapeError, UninitialisedError
from mxref.formats import format
from mxref.mxarray import MXArray
from mxref.narrow import narrow
from mxref.policy import NumericPolicy
from mxref.program import HostRead, HostWrite, Program, Segment, arrays, layout
from mxref.program.parts import Input

from .memory import Memory, Where

#: An operand in machine layout: containers of codes or values, and scale rows.
Operand = dict[str, np.ndarray]


def adapt(item: Input, value: object, policy: NumericPolicy) -> MXArray | np.ndarray:
    """Return an operand in the form that an input keeps: quantized or cast as it records.

    Raises:
      ShapeError: when shape or element type do not fit.
      PolicyError: when an MXArray was quantized in another way.
    """
    name = f"input {item.name!r}"
    if isinstance(value, MXArray):
        if item.kind != "mx":
            raise ShapeError(name, "an MXArray", f"an array of {item.dtype}")
        same = (value.format, value.axis, value.block) == (item.format, item.axis, layout.BLOCK)
        if not same or value.shape != item.stored_shape:
            wanted = f"{item.format}{list(item.stored_shape)}, axis={item.axis}, block=32"
            raise ShapeError(name, repr(value), wanted)
        if value.policy != policy:
            raise PolicyError("policy", value.policy, f"{policy}, the program's")
        return value
    array = value if isinstance(value, jax.Array) else np.asarray(value)
    if tuple(array.shape) != item.shape:
        raise ShapeError(name, list(array.shape), str(list(item.shape)))
    if item.kind == "mx":
        return quantize_operand(array, item, policy)
    return cast_operand(array, item)


def quantize_operand(array: Any, item: Input, policy: NumericPolicy) -> MXArray:
    """Quantize along the contraction axis, after the cast that the input asks for and the k map."""
    if item.cast:
        array = cast_operand(array, item)
    if item.kmap == "strided":
        matrix = layout.arrange(layout.to_matrix(np.asarray(array), item.axis), "strided")
        array = layout.from_matrix(matrix, item.stored_shape, item.axis)
    return quantize(array, item.format, axis=item.axis, block=layout.BLOCK, policy=policy)


def cast_operand(array: Any, item: Input) -> np.ndarray:
    """Return an array of the input's element type, rounded to it where the input says so."""
    name = str(getattr(array.dtype, "name", array.dtype))
    if name == item.dtype:
        return np.asarray(array)
    if not item.cast:
        hint = f"convert it, or lower with source={item.dtype!r}"
        raise ShapeError(f"input {item.name!r}", name, item.dtype, hint)
    codes = np.asarray(narrow(array, format(item.dtype)))
    return codes.view(arrays.DTYPES[item.dtype])


def prepare(program: Program, inputs: Mapping[str, object]) -> dict[str, Operand]:
    """Return every operand in machine layout.

    Raises:
      PolicyError: when an input is unknown, or has no data.
      ShapeError: when an operand does not fit.
    """
    unknown = inputs.keys() - program.inputs.keys()
    if unknown:
        known = ", ".join(program.inputs) or "no inputs"
        raise PolicyError("inputs", ", ".join(sorted(map(str, unknown))), known)
    operands: dict[str, Operand] = {}
    for name, item in program.inputs.items():
        if name in inputs:
            operands[name] = _machine_layout(item, adapt(item, inputs[name], program.policy))
        elif item.data is None:
            raise PolicyError("inputs", "nothing", f"an operand for input {name!r}")
        else:
            if name not in program.prepared:
                program.prepared[name] = _machine_layout(item, item.data)
            operands[name] = program.prepared[name]
    return operands


def _machine_layout(item: Input, data: MXArray | np.ndarray) -> Operand:
    if not isinstance(data, MXArray):
        matrix = layout.to_matrix(np.asarray(data), item.axis).view(np.uint16)
        return {"values": layout.to_containers(layout.arrange(matrix, item.kmap))}
    # A strided k map was applied before quantization, so the kept codes are in machine order.
    codes = layout.arrange(layout.to_matrix(np.asarray(data.codes), item.axis), "adjacent")
    scales = layout.to_matrix(np.asarray(data.scales), item.axis)
    short = codes.shape[0] // layout.BLOCK - scales.shape[0]
    pad = np.full((short, scales.shape[1]), layout.PAD_SCALE, np.uint8)
    packed = layout.pack(layout.to_containers(codes), item.format.bits)
    size = item.format.bits * layout.LANES // 8
    containers = packed.reshape(codes.shape[0] // layout.LANES, -1, size)
    return {"codes": containers, "scales": np.concatenate([scales, pad])}


def place_inputs(memory: Memory, segment: Segment, operands: dict[str, Operand]) -> None:
    """Do a segment's host writes.

    Raises:
      ExecutionError: when a write leaves SBUF.
    """
    for write in segment.writes:
        where = Where(-1, f"host write of {write.input} {write.part}")
        part = operands[write.input][write.part]
        columns = slice(write.column, write.column + write.valid)
        extra = write.columns - write.valid
        if write.part == "scales":
            _place_scales(memory, write, part[:, columns], extra, where)
            continue
        first = write.k // layout.LANES
        # The window is checked before padding makes an array of its size.
        low = write.offset
        high = low + write.columns * part.shape[2] * part.itemsize
        memory.check(Space.SBUF, where, write.partition, write.rows, low, high)
        piece = part[first : first + write.rows, columns]
        if extra:
            piece = np.pad(piece, ((0, 0), (0, extra), (0, 0)))
        raw = np.ascontiguousarray(piece).reshape(write.rows, -1).view(np.uint8)
        rows = slice(write.partition, write.partition + write.rows)
        memory.write(Space.SBUF, rows, slice(low, high), raw)


def _place_scales(
    memory: Memory, write: HostWrite, scales: np.ndarray, extra: int, where: Where
) -> None:
    rows = np.array(layout.scale_partitions(write.partition, write.rows))
    low, high = write.offset, write.offset + write.columns
    span = int(rows[-1] - rows[0]) + 1
    memory.check(Space.SBUF, where, write.partition, span, low, high)
    first = write.k // layout.BLOCK
    piece = scales[first : first + write.rows // 8]
    if extra:
        piece = np.pad(piece, ((0, 0), (0, extra)), constant_values=layout.PAD_SCALE)
    memory.write(Space.SBUF, rows[:, None], np.arange(low, high), piece)


class Outputs:
    """The named results, filled read by read."""

    def __init__(self, program: Program | None) -> None:
        self._program = program
        self._matrices: dict[str, np.ndarray] = {}

    def fetch(self, memory: Memory, segment: Segment) -> None:
        """Do a segment's host reads.

        Raises:
          ExecutionError: when a read leaves the memory.
          UninitialisedError: when codes or scales were never written.
        """
        for read in segment.reads:
            assert self._program is not None
            output = self._program.outputs[read.output]
            piece = _read(memory, read, output.dtype)
            if read.output not in self._matrices:
                dtype = arrays.DTYPES[output.dtype]
                self._matrices[read.output] = np.zeros(output.matrix_shape, dtype)
            matrix = self._matrices[read.output]
            rows = min(len(piece), matrix.shape[0] - read.row)
            columns = slice(read.column, read.column + read.columns)
            matrix[read.row : read.row + rows, columns] = piece[:rows]

    def finish(self) -> dict[str, np.ndarray]:
        """Return the results in their logical shapes."""
        done: dict[str, np.ndarray] = {}
        for name, matrix in self._matrices.items():
            assert self._program is not None
            output = self._program.outputs[name]
            if output.axis is not None:
                matrix = layout.from_matrix(matrix, output.shape, output.axis)
            done[name] = arrays.frozen(matrix)
        return done


def _read(memory: Memory, read: HostRead, dtype: str) -> np.ndarray:
    where = Where(-1, f"host read of {read.output}")
    space = Space(read.space)
    size = arrays.DTYPES[dtype].itemsize
    width = read.columns * (read.bits * layout.LANES // 8 if read.bits else size)
    rows = np.arange(read.partition, read.partition + read.rows)
    if read.part == "scales":
        rows = np.array(layout.scale_partitions(read.partition, read.rows))
    low, high = read.offset, read.offset + width
    memory.check(space, where, int(rows[0]), int(rows[-1] - rows[0]) + 1, low, high)
    raw, unknown = memory.read(space, where, rows, slice(low, high), rows_hint=read.partition)
    raw = np.ascontiguousarray(raw)
    if read.part == "values":
        values = raw.view(arrays.DTYPES[dtype])
        if unknown is not None and dtype in arrays.NAN_BITS:
            values = values.copy()
            lost = unknown.reshape(len(rows), read.columns, size).any(axis=-1)
            values.view(f"<u{size}")[lost] = arrays.NAN_BITS[dtype]
            unknown = None
    elif read.part == "codes":
        values = layout.from_containers(layout.unpack(raw, read.bits))
    else:
        values = raw
    if unknown is not None:
        raise UninitialisedError(-1, where.field, "integers that nothing wrote cannot be NaN")
    return values
