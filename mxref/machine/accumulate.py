"""The accumulation memory: what START clears, what a write adds to, and how it rounds (D25, D25a).

Every write adds; START only clears first.  A bfloat16 destination is read up to float32, added in
float32, and rounded to nearest even at every write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32, Int

from encoding import MatmultMx
from hardware import AccumulateFlag, Space
from hardware.memory import PSUM_BANK_BYTES
from hardware.pe import ZERO_REGION_BANKS
from mxref.errors import ExecutionError
from mxref.formats import FormatSpec
from mxref.program.arrays import NAN_BITS

from .memory import Memory, Where
from .operands import RESULT_FORMATS, byte_columns, format_of, locate, tensor_slot, walk

ZeroScope = Literal["written", "bank"]
#: Adds the moving columns selected by the index to starting values (None: zeros), in the order.
Add = Callable[[Any, Float32[np.ndarray, "M n"] | None], Float32[np.ndarray, "M n"]]


@dataclass(frozen=True)
class Destination:
    """Where the results of one bundle go.

    Attributes:
      partition: first output partition.
      rows: output partitions.
      format: element type in PSUM.
      offsets: byte offset of every element in its partition, in element order.
    """

    partition: int
    rows: int
    format: FormatSpec
    offsets: Int[np.ndarray, "n"]

    @property
    def size(self) -> int:
        """Bytes per element."""
        return self.format.bits // 8

    @property
    def partitions(self) -> slice:
        """The output partitions."""
        return slice(self.partition, self.partition + self.rows)

    def groups(self) -> Iterator[tuple[Any, Any]]:
        """Yield element selections and the bytes they occupy, in element order.

        The elements of one selection occupy different bytes, so they can be added at once; an
        element that meets an earlier one's bytes comes in a later selection.
        """
        n = len(self.offsets)
        columns = byte_columns(self.offsets, self.size)
        if isinstance(columns, slice):
            yield slice(0, n), columns
            return
        order = np.argsort(self.offsets, kind="stable")
        ranked = self.offsets[order]
        first = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]])
        turn = np.empty(n, np.int64)
        turn[order] = np.arange(n) - np.repeat(first, np.diff(np.r_[first, n]))
        for t in range(int(turn.max()) + 1):
            chosen = np.flatnonzero(turn == t)
            yield chosen, columns[chosen]


def destination(memory: Memory, bundle: MatmultMx, index: int) -> Destination:
    """Resolve the destination of a bundle.

    Raises:
      ExecutionError: when it leaves the populated banks, or has another number of elements than the
        moving operand has containers, or has no rows, or the zero region is none.
    """
    where = Where(index, "dst")
    fmt = format_of(RESULT_FORMATS, bundle.out_dtype, Where(index, "out_dtype"))
    dst = tensor_slot(bundle.dst, where)
    partition, offset = locate(dst.start, Space.PSUM, Where(index, "dst.start"))
    if dst.count != bundle.src.containers:
        # "MX-Matmul Legality Contract & Dequant", code 237.
        raise where.error(f"{dst.count} elements for {bundle.src.containers} columns")
    size = fmt.bits // 8
    low, high = (offset + size * end for end in dst.span())
    rows = bundle.num_active_cols
    if rows <= 0:
        raise ExecutionError(index, "num_active_cols", f"{rows} columns, allowed 1 and above")
    if bundle.psum_zero_region not in range(len(ZERO_REGION_BANKS)):
        allowed = f"allowed 0..{len(ZERO_REGION_BANKS) - 1}"
        reason = f"{bundle.psum_zero_region:#x} is no zero region, {allowed}"
        raise ExecutionError(index, "psum_zero_region", reason)
    memory.check(Space.PSUM, where, partition, rows, low, high + size)
    return Destination(partition, rows, fmt, offset + walk(dst, size))


def clear_window(memory: Memory, bundle: MatmultMx, dst: Destination, zero: ZeroScope) -> None:
    """Clear the zero region's window, as START does besides the bytes to be written (D25a).

    The window is aligned to its own size and holds the destination's first bank; region 0 has none
    unless ``zero="bank"`` asks for the seed's reading (D25).
    """
    if bundle.psum_zero_region or zero == "bank":
        window = PSUM_BANK_BYTES * ZERO_REGION_BANKS[bundle.psum_zero_region]
        low = int(dst.offsets.min()) // window * window
        memory.write(Space.PSUM, dst.partitions, slice(low, low + window), np.uint8(0))


def accumulate(
    memory: Memory, bundle: MatmultMx, dst: Destination, add: Add, index: int, zero: ZeroScope
) -> None:
    """Add one bundle's results into PSUM."""
    fresh = bool(bundle.accumulate_flags & AccumulateFlag.START)
    if fresh:
        clear_window(memory, bundle, dst, zero)
    for chosen, columns in dst.groups():
        # The first selection holds every byte of the destination once, so starting it at zero is
        # all that START's clearing of those bytes means.
        start = None if fresh else _read(memory, dst, columns, Where(index, "dst"))
        fresh = False
        result = add(chosen, start)
        memory.write(Space.PSUM, dst.partitions, columns, _to_raw(result, dst.format, columns))


def _read(memory: Memory, dst: Destination, columns: Any, where: Where) -> np.ndarray:
    raw, unknown = memory.read(Space.PSUM, where, dst.partitions, columns, rows_hint=dst.partition)
    flat = raw.copy().reshape(dst.rows, -1)
    if dst.size == 4:
        bits = flat.view("<u4")
    else:
        bits = flat.view("<u2").astype(np.uint32) << np.uint32(16)
    if unknown is not None:
        bits[unknown.reshape(dst.rows, -1, dst.size).any(axis=-1)] = NAN_BITS["float32"]
    return bits.view(np.float32)


def _to_raw(values: np.ndarray, fmt: FormatSpec, columns: Any) -> np.ndarray:
    bits = np.ascontiguousarray(values).view(np.uint32)
    if fmt.bits == 16:
        bits = round_to_bfloat16(bits)
    raw = bits.view(np.uint8)
    if isinstance(columns, slice):
        return raw
    return raw.reshape(values.shape[0], *columns.shape)


def round_to_bfloat16(bits: np.ndarray) -> np.ndarray:
    """Round float32 patterns to bfloat16 patterns, to nearest even; NaN becomes canonical.

    Lemma: adding 0x7FFF plus the kept part's last bit carries exactly when the dropped half is
    above one half, or one half with an odd kept part; the carry out of the mantissa is the next
    exponent, up to Inf (test_bfloat16_rounding_equals_oracle).
    """
    carry = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    # A NaN's payload may carry into the sign; the mask below replaces it whole.
    rounded = ((bits.astype(np.uint64) + carry) >> np.uint64(16)).astype(np.uint16)
    return np.where(nan, np.uint16(NAN_BITS["bfloat16"]), rounded)
