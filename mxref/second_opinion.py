"""Replay a program through the oracle's executor, placing and fetching with code of its own.

The oracle reads the same bytes but shares nothing with the machine: not the decoder, not the field
tables, not the arithmetic.  What the host does before and after is written out here once more, from
the layout rules and not from the machine's code, so that one mistake cannot hide on both roads.
"""

from __future__ import annotations

import numpy as np

from mxref.errors import ProgramError
from mxref.formats import FORMATS
from mxref.mxarray import MXArray
from mxref.oracle.executor import execute
from mxref.oracle.memory import Memory
from mxref.program import HostRead, HostWrite, Input, Program

_CELL = {"float32": np.dtype("<u4"), "bfloat16": np.dtype("<u2")}


def second_opinion(program: Program) -> dict[str, np.ndarray]:
    """Run a program that keeps its inputs through the oracle and return its outputs as bits.

    Slow on purpose: every number is an exact rational.  Outputs of elements only (codes and scales
    of quantizing programs are not fetched).

    Args:
      program: a lowered program with ``adjacent`` k maps that carries its operands.

    Returns:
      By output name: uint32 patterns of float32, uint16 patterns of bfloat16.

    Raises:
      ProgramError: when an operand is missing or an output holds codes.

    Exactness:
      Exact by definition; no floating-point arithmetic is used.
    Gradient:
      None: the result is bits.
    """
    memory = Memory()
    outputs: dict[str, np.ndarray] = {}
    for name, output in program.outputs.items():
        if output.dtype not in _CELL:
            raise ProgramError(name, f"an output of {output.dtype}, expected {', '.join(_CELL)}")
        outputs[name] = np.zeros(output.matrix_shape, _CELL[output.dtype])
    operands = {name: _columns_of(source) for name, source in program.inputs.items()}
    for segment in program.segments:
        for write in segment.writes:
            _place(memory, write, program.inputs[write.input], operands[write.input])
        memory = execute(segment.bundles, memory, program.policy, program.order)
        for read in segment.reads:
            _fetch(memory, read, outputs[read.output])
    return outputs


def _columns_of(source: Input) -> dict[str, np.ndarray]:
    """The parts of an operand as ``[K, columns]`` matrices of unsigned integers."""
    data = source.data
    if data is None or source.kmap != "adjacent":
        raise ProgramError(source.name, "needs its data and the adjacent k map")
    if isinstance(data, MXArray):
        parts = {"codes": np.asarray(data.codes), "scales": np.asarray(data.scales)}
    else:
        wide = np.asarray(data)
        parts = {"values": wide.view("<u2")}
        if wide.dtype.name != source.dtype or FORMATS[source.dtype].bits != 16:
            raise ProgramError(source.name, f"holds {wide.dtype}, expected {source.dtype}")
    return {
        part: np.moveaxis(values, source.axis, 0).reshape(values.shape[source.axis], -1)
        for part, values in parts.items()
    }


def _place(memory: Memory, write: HostWrite, source: Input, parts: dict[str, np.ndarray]) -> None:
    """Lay one piece of an operand into SBUF: k = 4 p + c for partition p, lane c (D23)."""
    matrix = parts[write.part]
    if write.part == "scales":
        # One row per 32 k, that is per 8 partitions; rows 4 apart lie a quadrant apart (D25b).
        for i in range(write.rows // 8):
            line = [_cell(matrix, write.k // 32 + i, write, m) for m in range(write.columns)]
            where = write.partition + 32 * (i >> 2) + (i & 3)
            memory.write("SBUF", where, write.offset, bytes(line))
        return
    for p in range(write.rows):
        line = bytearray()
        for m in range(write.columns):
            lanes = [_cell(matrix, write.k + 4 * p + c, write, m) for c in range(4)]
            if write.part == "values":
                for lane in lanes:
                    line += lane.to_bytes(2, "little")
            elif source.format.bits == 8:
                line += bytes(lanes)
            else:
                line += bytes([lanes[0] | lanes[1] << 4, lanes[2] | lanes[3] << 4])
        memory.write("SBUF", write.partition + p, write.offset, bytes(line))


def _cell(matrix: np.ndarray, row: int, write: HostWrite, m: int) -> int:
    """One element; beyond the operand's edges there is zero."""
    if row >= matrix.shape[0] or m >= write.valid:
        return 0
    return int(matrix[row, write.column + m])


def _fetch(memory: Memory, read: HostRead, matrix: np.ndarray) -> None:
    """Copy a piece of an output out of its memory."""
    size = matrix.dtype.itemsize
    rows = min(read.rows, matrix.shape[0] - read.row)
    for r in range(rows):
        line = memory.read(read.space, read.partition + r, read.offset, size * read.columns)
        cells = np.frombuffer(line, matrix.dtype)
        matrix[read.row + r, read.column : read.column + read.columns] = cells
