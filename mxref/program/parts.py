"""The parts of a program, as records that say everything and do nothing (D25d).

Placements are declarative: a write names a piece of an input and where it goes, a read names where
a piece of an output comes from.  Each record checks itself, so a damaged or hand-made program fails
when it is built.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

import numpy as np

from mxref.errors import ProgramError
from mxref.formats import FormatSpec
from mxref.mxarray import MXArray

from .layout import BLOCK, K_MAPS, KMap, padded_k

Part = Literal["values", "codes", "scales"]
ReadSpace = Literal["SBUF", "PSUM"]


def _require(ok: object, member: str, reason: str) -> None:
    if not ok:
        raise ProgramError(member, reason)


def _check_counts(record: Any, names: tuple[str, ...], least: int) -> None:
    for name in names:
        value = getattr(record, name)
        what = type(record).__name__
        _require(type(value) is int, what, f"{name} is {value!r}, not an integer")
        _require(least <= value < 1 << 31, what, f"{name} is {value}, allowed {least} and above")


@dataclass(frozen=True)
class Input:
    """A named operand.

    Attributes:
      name: key of ``run(..., inputs={name: ...})``.
      kind: ``mx`` when the host places codes and scales, ``array`` when it places bf16 or fp16
        values that a QuantizeMx narrows.
      shape: logical shape.
      axis: the contraction axis, negative; blocks of 32 run along it.
      kmap: how logical rows map to the array.
      format: element format.
      dtype: element type of the values; for ``mx`` what arrays are rounded to first, or empty.
      cast: whether values of another float type are rounded to ``dtype`` (an explicit ``source=``).
      data: the operand; None when every run must bring its own.
    """

    name: str
    kind: Literal["mx", "array"]
    shape: tuple[int, ...]
    axis: int
    kmap: KMap
    format: FormatSpec
    dtype: str = ""
    cast: bool = False
    data: MXArray | np.ndarray | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        who = f"input {self.name}"
        _require(self.kind in ("mx", "array"), who, f"kind {self.kind!r}")
        _require(self.kmap in K_MAPS, who, f"k map {self.kmap!r}")
        shape_ok = all(type(n) is int and 1 <= n < 1 << 31 for n in self.shape)
        _require(shape_ok and self.shape, who, f"shape {self.shape}")
        axis_ok = type(self.axis) is int and -len(self.shape) <= self.axis < 0
        _require(axis_ok, who, f"axis {self.axis!r}")
        wanted = ("bfloat16", "float16") if self.kind == "array" else ("bfloat16", "float16", "")
        _require(self.dtype in wanted, who, f"dtype {self.dtype!r} for kind {self.kind!r}")
        _require(self.format.bits in (4, 8), who, f"element format {self.format}")

    @property
    def k(self) -> int:
        """Extent of the contraction."""
        return self.shape[self.axis]

    @property
    def columns(self) -> int:
        """Columns of the operand seen as ``[K, C]``."""
        return math.prod(self.shape) // self.k

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Shape of the codes kept for an ``mx`` input: a strided k map is applied before blocks."""
        shape = list(self.shape)
        if self.kmap == "strided":
            shape[self.axis] = padded_k(self.k)
        return tuple(shape)


@dataclass(frozen=True)
class Output:
    """A named result: shape and type of what the host reads together."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    axis: int | None = None

    def __post_init__(self) -> None:
        who = f"output {self.name}"
        shape_ok = all(type(n) is int and 1 <= n < 1 << 31 for n in self.shape)
        _require(shape_ok and self.shape, who, f"shape {self.shape}")
        _require(math.prod(self.shape) < 1 << 31, who, f"shape {self.shape} is too large")
        _require(self.dtype in ("float32", "bfloat16", "uint8"), who, f"dtype {self.dtype!r}")
        if self.axis is None:
            _require(len(self.shape) == 2, who, f"shape {self.shape} without an axis")
        else:
            ok = type(self.axis) is int and -len(self.shape) <= self.axis < 0
            _require(ok, who, f"axis {self.axis!r}")

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """Rows and columns of the matrix that reads fill."""
        rows = self.shape[0 if self.axis is None else self.axis]
        return rows, math.prod(self.shape) // rows


@dataclass(frozen=True)
class HostWrite:
    """A piece of an input, put into SBUF before the segment's bundles.

    Attributes:
      input: the input's name.
      part: ``codes``, ``scales`` or ``values``.
      k: first machine row of the K tile.
      rows: partitions of the tile; it has ``4 rows`` machine rows.
      column: first column.
      valid: columns of the operand that it holds.
      columns: columns placed; those beyond ``valid`` are zero.
      partition: first partition.
      offset: byte offset in each partition.
    """

    input: str
    part: Part
    k: int
    rows: int
    column: int
    valid: int
    columns: int
    partition: int
    offset: int

    def __post_init__(self) -> None:
        _require(self.part in get_args(Part), "HostWrite", f"part {self.part!r}")
        _check_counts(self, ("k", "column", "partition", "offset"), 0)
        _check_counts(self, ("rows", "valid", "columns"), 1)
        _require(self.rows in (32, 64, 96, 128), "HostWrite", f"{self.rows} partitions")
        _require(self.valid <= self.columns, "HostWrite", "more valid columns than columns")
        _require(self.k % BLOCK == 0, "HostWrite", f"row {self.k} is not the start of a block")


@dataclass(frozen=True)
class HostRead:
    """A piece of an output, fetched after the segment's bundles.

    Attributes:
      output: the output's name.
      part: ``values`` for elements as they lie, ``codes`` or ``scales`` for packed operands.
      space: memory read.
      row: first row of the output's matrix.
      column: first column.
      rows: partitions read.
      columns: columns read.
      partition: first partition.
      offset: byte offset in each partition.
      bits: width of a packed code; 0 for values and scales.
    """

    output: str
    part: Part
    space: ReadSpace
    row: int
    column: int
    rows: int
    columns: int
    partition: int
    offset: int
    bits: int = 0

    def __post_init__(self) -> None:
        _require(self.part in get_args(Part), "HostRead", f"part {self.part!r}")
        _require(self.space in get_args(ReadSpace), "HostRead", f"space {self.space!r}")
        _check_counts(self, ("row", "column", "partition", "offset", "bits"), 0)
        _check_counts(self, ("rows", "columns"), 1)
        _require(self.rows <= 128, "HostRead", f"{self.rows} partitions")
        packed = self.part == "codes"
        _require(self.bits in ((4, 8) if packed else (0,)), "HostRead", f"{self.bits} bits")


@dataclass(frozen=True)
class Segment:
    """Host writes, then bundles in one total order, then host reads."""

    writes: tuple[HostWrite, ...] = ()
    bundles: bytes = b""
    reads: tuple[HostRead, ...] = ()

    def __post_init__(self) -> None:
        whole = len(self.bundles) % 64 == 0
        _require(whole, "Segment", f"{len(self.bundles)} bytes are not whole bundles")


def record_of(value: Any) -> dict[str, Any]:
    """Return a record's fields as plain data."""
    return {f.name: getattr(value, f.name) for f in fields(value)}


def build(cls: Any, row: object, what: str, **extra: Any) -> Any:
    """Make a record from plain data that came from outside.

    Raises:
      ProgramError: when a field is missing, unknown or of another type.
    """
    names = {f.name for f in fields(cls)} - extra.keys()
    if not isinstance(row, dict) or row.keys() != names:
        raise ProgramError(what, f"expected the fields {', '.join(sorted(names))}")
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
    for f in fields(cls):
        wrong = "str" in str(f.type) and not isinstance(values.get(f.name, ""), str)
        if wrong and f.name not in extra:
            raise ProgramError(what, f"{f.name} is not text")
    try:
        return cls(**values, **extra)
    except (TypeError, OverflowError) as error:
        raise ProgramError(what, f"unusable field ({error})") from None
