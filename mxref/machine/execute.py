"""What each bundle does to the memories (D23-D26)."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax.numpy as jnp
import numpy as np

from encoding import Bundle, LdWeightMx, MatmultMx, QuantizeMx
from hardware import Space
from mxref.block import quantize
from mxref.blockshape import BlockShape
from mxref.errors import ExecutionError, Unmodelled
from mxref.policy import Accumulate, NumericPolicy
from mxref.program import layout
from mxref.program.arrays import DTYPES

from .accumulate import ZeroScope, accumulate, destination
from .latches import Latches, lane_group
from .memory import Memory, Where
from .operands import (
    BLOCK_ROWS,
    MX_FORMATS,
    SOURCE_FORMATS,
    Packed,
    byte_columns,
    fetch,
    format_of,
    locate,
    packed_rows,
    place,
    store,
    tensor_slot,
    walk,
)
from .product import Kept, Product, right_side
from .state import TraceStep

#: Partitions x free elements that share a scale, and its array form (D22).
BLOCK = BlockShape(BLOCK_ROWS, layout.LANES)


@dataclass
class Machine:
    """The running machine: memories, latches and the reading of the arithmetic."""

    memory: Memory
    policy: NumericPolicy
    order: Accumulate
    zero: ZeroScope
    latches: Latches = field(default_factory=Latches)
    trace: list[TraceStep] | None = None

    def __post_init__(self) -> None:
        self.kept = Kept(self.memory)

    def step(self, index: int, bundle: Bundle) -> None:
        """Execute one bundle.

        Raises:
          ExecutionError: when the state cannot give what it asks for.
          Unmodelled: when it uses something whose arithmetic no source gives (D24).
        """
        for name in ("wait_mode", "update_mode"):
            if getattr(bundle, name):
                reason = f"{getattr(bundle, name):#04x}: semaphores are not executed yet"
                raise Unmodelled(index, name, reason)
        match bundle:
            case LdWeightMx():
                reads, writes = self.load(index, bundle)
            case MatmultMx():
                reads, writes = self.matmul(index, bundle)
            case QuantizeMx():
                reads, writes = self.quantize(index, bundle)
            case _:
                reason = f"{type(bundle).__name__} is not executed yet"
                raise Unmodelled(index, "opcode", reason)
        if self.trace is not None:
            self.trace.append(TraceStep(index, type(bundle).__name__, reads, writes))

    def load(self, index: int, bundle: LdWeightMx) -> tuple[str, str]:
        """LdWeightMx: fill the latches of a row group."""
        where = Where(index, "src")
        fmt = format_of(MX_FORMATS, bundle.dtype, Where(index, "dtype"))
        rows = packed_rows(bundle.num_active_rows, Where(index, "num_active_rows"))
        at = place(self.memory, bundle.src, fmt, rows, where)
        group = lane_group(bundle.row_group, rows, at.partition, index)
        if at.containers != bundle.num_active_cols:
            # "MX-Matmul Legality Contract & Dequant", code 236: columns are output partitions.
            reason = f"{bundle.num_active_cols} columns, but {at.containers} containers are read"
            raise ExecutionError(index, "num_active_cols", reason)
        self.latches.load(group, fetch(self.memory, at, where), fmt, index)
        return (
            f"{fmt}[{at.rows}, {at.containers} x 4] {bundle.src.data}",
            f"latches {group.code:#x}",
        )

    def matmul(self, index: int, bundle: MatmultMx) -> tuple[str, str]:
        """MatmultMx: add the product of the latched and the moving operand into PSUM."""
        where = Where(index, "src")
        fmt = format_of(MX_FORMATS, bundle.dtype, Where(index, "dtype"))
        rows = packed_rows(bundle.num_active_rows, Where(index, "num_active_rows"))
        at = place(self.memory, bundle.src, fmt, rows, where)
        group = lane_group(bundle.row_group, rows, at.partition, index)
        columns = bundle.num_active_cols
        left = self.latches.use(group, columns, Where(index, "row_group"))
        dst = destination(self.memory, bundle, index)
        right = self.kept.get(at, fmt, lambda: right_side(fetch(self.memory, at, where), fmt))
        product = Product(left, right, self.policy, self.order)
        accumulate(self.memory, bundle, dst, product.add, index, self.zero)
        reads = f"{fmt}[{at.rows}, {at.containers} x 4] {bundle.src.data}, latches {group.code:#x}"
        return (
            reads,
            f"{dst.format}[{dst.rows}, {len(dst.offsets)}] {tensor_slot(bundle.dst, where).start}",
        )

    def quantize(self, index: int, bundle: QuantizeMx) -> tuple[str, str]:
        """QuantizeMx: narrow 8 x 4 blocks with one scale each; FP4 as well (D11).

        The saturate bit changes nothing, because quantization saturates anyway (D7).
        """
        where = Where(index, "src")
        source = format_of(SOURCE_FORMATS, bundle.src_dtype, Where(index, "src_dtype"))
        target = format_of(MX_FORMATS, bundle.dst_dtype, Where(index, "dst_dtype"))
        rows = packed_rows(bundle.num_active_channels, Where(index, "num_active_channels"))
        src = tensor_slot(bundle.src, where)
        partition, offset = locate(src.start, Space.SBUF, where)
        at = place(self.memory, bundle.dst, target, rows, Where(index, "dst"))
        count = src.count
        if count != bundle.dst.extent:
            # "Codegen Leaves: ... the QuantizeMX DVE Op", code 211.
            raise where.error(f"{count} elements for a destination of {bundle.dst.extent}")
        low, high = (offset + 2 * end for end in src.span())
        self.memory.check(Space.SBUF, where, partition, rows, low, high + 2)
        columns = byte_columns(offset + walk(src, 2), 2)
        raw, unknown = self.memory.read(
            Space.SBUF, where, slice(partition, partition + rows), columns, rows_hint=partition
        )
        values = np.ascontiguousarray(raw).reshape(rows, -1).view(DTYPES[source.name])
        codes, scales = quantize(jnp.asarray(values), target, block=BLOCK, policy=self.policy)
        poison = None
        if unknown is not None:
            blocks = unknown.reshape(rows // 8, 8, at.containers, -1)
            poison = np.asarray(blocks.any(axis=(1, 3)))
        value = Packed(
            np.asarray(codes).reshape(rows, -1, layout.LANES), np.asarray(scales), poison
        )
        store(self.memory, at, value)
        return f"{source}[{rows}, {count}] {src.start}", f"{target} {bundle.dst.data}"
