"""A second reading of MX programs: raw bundle bytes in, memory out, one byte at a time.

This module and :mod:`mxref.oracle.raw` exist to disagree with the encoder and the machine when one
of them is wrong.  Whatever they do not execute they refuse, naming the field to blame.

Source: "PE Matmul Encoding", "MXMEM_PATTERN1D", "SBUF / PSUM Bank Geometry"; D19-D26.  The order of
additions and the extent of START's clearing are ASSUMED (D23, D25).
"""

from __future__ import annotations

from dataclasses import dataclass

from mxref.errors import ExecutionError, PolicyError, UninitialisedError, Unmodelled
from mxref.formats import BF16, FP16, FP32, FormatSpec
from mxref.oracle.accumulate import Line, dot_lines, operand_line
from mxref.oracle.block import quantize_block, scaled_value
from mxref.oracle.memory import Memory
from mxref.oracle.pack import pack_x4
from mxref.oracle.raw import Operand, RawBundle
from mxref.oracle.rounding import encode
from mxref.oracle.values import NAN, Value, decode
from mxref.policy import NEURON_2_24, SYSTOLIC_MX, Accumulate, NumericPolicy, Rounding

# Dtype tags at +0x22 (quantize source) and +0x28 (matmul result, with its bytes).
_SOURCES = {0x06: BF16, 0x07: FP16}
_RESULTS = {0x0A: (FP32, 4), 0x06: (BF16, 2)}


@dataclass(frozen=True)
class Latch:
    """What the stationary latches of one 32-row quadrant hold: ``rows[row][column][lane]``."""

    fmt: FormatSpec
    columns: int
    rows: tuple[tuple[tuple[Value, ...], ...], ...]


class Executor:
    """One run over a private copy of the memory."""

    def __init__(
        self,
        memory: Memory,
        policy: NumericPolicy,
        order: Accumulate,
        zero: str,
        uninitialised: str,
    ) -> None:
        self.memory = memory
        self.policy = policy
        self.order = order
        self.zero = zero
        self.uninitialised = uninitialised
        self.latches: dict[int, Latch] = {}
        self.index = 0

    def step(self, b: RawBundle) -> None:
        """Execute one bundle."""
        self.index = b.index
        opcode = b.header()
        if opcode == 0x09:
            self.load_weights(b)
        elif opcode == 0x0A:
            self.matmul(b)
        else:
            self.quantize(b)

    def byte(self, partition: int, offset: int, name: str) -> int | None:
        """One SBUF byte; None where nothing was written and that is to poison."""
        if not self.memory.written("SBUF", partition, offset, 1):
            if self.uninitialised == "raise":
                address = (partition << 18) + offset
                raise UninitialisedError(self.index, name, "nothing wrote this byte", address)
            return 0 if self.uninitialised == "zero" else None
        return self.memory.read("SBUF", partition, offset, 1)[0]

    def lanes(self, operand: Operand, row: int, j: int) -> tuple[Value, ...]:
        """The four scaled elements of one container; unwritten bytes make them NaN."""
        scale = self.byte(*operand.scale_at(row, j), "scale")
        at, values = operand.container(j), []
        for lane in range(4):
            # Element k is byte k of a 32-bit FP8 word, nibble k of a 16-bit FP4 word, low first.
            if operand.size == 4:
                code = self.byte(operand.base + row, at + lane, "data")
            else:
                pair = self.byte(operand.base + row, at + (lane >> 1), "data")
                code = None if pair is None else (pair >> 4 if lane & 1 else pair & 0xF)
            if code is None or scale is None:
                values.append(NAN)
            else:
                values.append(scaled_value(code, scale, operand.fmt, self.policy))
        return tuple(values)

    def load_weights(self, b: RawBundle) -> None:
        """LdWeightMx: fill the latches of each quadrant of the row group."""
        operand = b.operand(0x10, 0x20)
        b.zeros(0x21, 0x25)
        b.zeros(0x28, 0x2B)
        b.zeros(0x2E, 0x3F)
        rows, columns = b.row_tile(operand), b.raw[0x27]
        b.require(1 <= columns <= 128, "num_active_cols", f"got {columns}, allowed 1..128")
        reason = f"got {columns}, the K extent holds {operand.columns} containers"
        b.require(columns == operand.columns, "num_active_cols", reason)
        held = [tuple(self.lanes(operand, row, j) for j in range(columns)) for row in range(rows)]
        for first in range(0, rows, 32):
            quadrant = (operand.base + first) // 32
            self.latches[quadrant] = Latch(operand.fmt, columns, tuple(held[first : first + 32]))

    def stationary(self, b: RawBundle, first: int, rows: int, columns: int) -> list[list[Value]]:
        """Stationary column m as its K values, rows ascending, four lanes each."""
        held: list[tuple[tuple[Value, ...], ...]] = []
        formats: set[FormatSpec] = set()
        for quadrant in range(first // 32, (first + rows) // 32):
            latch = self.latches.get(quadrant)
            if latch is None:
                raise ExecutionError(self.index, "row group", f"quadrant {quadrant} is not loaded")
            reason = f"got {columns}, quadrant {quadrant} holds {latch.columns}"
            b.require(columns <= latch.columns, "num_active_cols", reason)
            formats.add(latch.fmt)
            held.extend(latch.rows)
        b.require(len(formats) == 1, "row group", "quadrants hold different formats")
        return [[value for row in held for value in row[m]] for m in range(columns)]

    def destination(self, b: RawBundle, size: int, count: int) -> tuple[int, list[int]]:
        """Byte offset of the pattern, and of every element in element order, inside PSUM."""
        word = b.address(0x30, "destination", size)
        good = 0x2000000 <= word < 0x2400000
        b.require(good, "destination", "must lie in PSUM, 0x2000000..0x23fffff", word)
        partition, start = (word - 0x2000000) >> 15, (word - 0x2000000) & 0x7FFF
        b.require(partition == 0, "destination", "a full column group starts at partition 0", word)
        offsets = [start + size * steps for steps in b.tensor3d(0x34, count, "destination")]
        for offset in offsets:
            good = offset >= 0 and offset + size <= 0x4000
            b.require(
                good, "destination", f"element at byte {offset:#x} of a 0x4000-byte partition"
            )
        return start, offsets

    def matmul(self, b: RawBundle) -> None:
        """MatmultMx: stream the moving operand past the latches into PSUM."""
        operand = b.operand(0x10, 0x20)
        b.zeros(0x21, 0x25)
        b.zeros(0x29, 0x2A)
        b.zeros(0x2E, 0x2E)
        rows, columns, tag = b.row_tile(operand), b.raw[0x27], b.raw[0x28]
        flags, region = b.raw[0x2B], b.raw[0x2F]
        b.require(1 <= columns <= 128, "num_active_cols", f"got {columns}, allowed 1..128")
        if tag not in _RESULTS:
            raise Unmodelled(self.index, "out_dtype", f"got {tag:#04x}; models 0x0a and 0x06")
        good = flags in (0, 1, 2, 3, 4, 6)
        b.require(good, "accumulate_flags", f"got {flags}, allowed 0, 1, 2, 3, 4, 6")
        b.require(region <= 3, "psum_zero_region", f"got {region}, allowed 0..3")
        fmt, size = _RESULTS[tag]
        weights = self.stationary(b, operand.base, rows, columns)
        start, offsets = self.destination(b, size, operand.columns)

        def line(values: list[Value]) -> Line:
            return operand_line(values, scaled=True, policy=self.policy, order=self.order)

        moving = [
            line([v for row in range(rows) for v in self.lanes(operand, row, n)])
            for n in range(operand.columns)
        ]
        if flags & 1:
            self.clear(columns, start, offsets, size, region)
        for m, values in enumerate(weights):
            column = line(values)
            for n, offset in enumerate(offsets):
                held = self.psum(m, offset, fmt, size)
                word = dot_lines(column, moving[n], self.order, held)
                if size == 2:
                    word = encode(decode(word, FP32), BF16, Rounding.RNE, saturate=False)
                self.memory.write("PSUM", m, offset, word.to_bytes(size, "little"))

    def clear(
        self, partitions: int, start: int, offsets: list[int], size: int, region: int
    ) -> None:
        """START: zero what will be written, and the aligned window of banks if there is one."""
        for m in range(partitions):
            for offset in offsets:
                self.memory.write("PSUM", m, offset, bytes(size))
            if region or self.zero == "bank":
                window = 2048 << region
                self.memory.write("PSUM", m, start // window * window, bytes(window))

    def psum(self, partition: int, offset: int, fmt: FormatSpec, size: int) -> Value:
        """The value a PSUM element holds before this write."""
        if not self.memory.written("PSUM", partition, offset, size):
            if self.uninitialised == "raise":
                address = 0x2000000 + (partition << 15) + offset
                reason = "nothing wrote this element"
                raise UninitialisedError(self.index, "destination", reason, address)
            if self.uninitialised == "nan":
                return NAN
        word = int.from_bytes(self.memory.read("PSUM", partition, offset, size), "little")
        return decode(word, fmt)

    def quantize(self, b: RawBundle) -> None:
        """QuantizeMx: read the whole source, then write containers and scales."""
        operand = b.operand(0x30, 0x23)
        b.zeros(0x20, 0x20)
        b.zeros(0x24, 0x2F)
        channels, tag = b.raw[0x21], b.raw[0x22]
        good = channels in (32, 64, 96, 128)
        b.require(good, "num_active_channels", f"got {channels}, allowed 32, 64, 96, 128")
        b.require(tag in _SOURCES, "source dtype", f"got {tag:#04x}, allowed 0x06, 0x07")
        base, start = b.sbuf(0x10, "source", 4)
        for first, name in ((base, "source"), (operand.base, "data address")):
            good = first % 32 == 0 and first + channels <= 128
            b.require(good, name, f"{channels} partitions from partition {first}")
        steps = b.tensor3d(0x14, 4 * operand.columns, "source")
        for at in (start + 2 * s for s in steps):
            good = at >= 0 and at + 2 <= 0x40000
            b.require(good, "source", f"element at byte {at:#x} of a 0x40000-byte partition")
        fmt = _SOURCES[tag]
        source = [
            [self.source_value(base + row, start + 2 * s, fmt) for s in steps]
            for row in range(channels)
        ]
        for top in range(0, channels, 8):
            for j in range(operand.columns):
                block = [source[top + r][4 * j + c] for r in range(8) for c in range(4)]
                known = [value for value in block if value is not None]
                if len(known) < len(block):
                    # Unwritten bytes stay loud (D25a) although a policy may write NaN as zero.
                    self.memory.forget("SBUF", *operand.scale_at(top, j), 1)
                    for r in range(8):
                        where = operand.base + top + r
                        self.memory.forget("SBUF", where, operand.container(j), operand.size)
                    continue
                scale, codes = quantize_block(known, operand.fmt, self.policy)
                self.memory.write("SBUF", *operand.scale_at(top, j), bytes([scale]))
                for r in range(8):
                    container = pack_x4(codes[4 * r : 4 * r + 4], 2 * operand.size)
                    where = operand.base + top + r
                    self.memory.write(
                        "SBUF",
                        where,
                        operand.container(j),
                        container.to_bytes(operand.size, "little"),
                    )

    def source_value(self, partition: int, offset: int, fmt: FormatSpec) -> Value | None:
        """One 16-bit source element; None where nothing wrote it and that is to poison."""
        low = self.byte(partition, offset, "source")
        high = self.byte(partition, offset + 1, "source")
        return None if low is None or high is None else decode(low | high << 8, fmt)


def execute(
    bundles: bytes,
    memory: Memory,
    policy: NumericPolicy = NEURON_2_24,
    order: Accumulate = SYSTOLIC_MX,
    zero: str = "written",
    uninitialised: str = "nan",
) -> Memory:
    """Run raw bundles and return the memory they leave; the one given stays as it is.

    Args:
      bundles: 64 bytes an instruction: LdWeightMx, MatmultMx or QuantizeMx.
      memory: what the program starts from.
      policy: profile of QuantizeMx and of the products.
      order: accumulation order.
      zero: what START clears when the zero region is 0: ``"written"`` the bytes it will write,
        ``"bank"`` the 2048-byte bank as well.
      uninitialised: ``"nan"``, ``"zero"`` or ``"raise"``, for bytes that nothing wrote.

    Raises:
      ExecutionError: naming the field, for every bundle that it does not execute.

    Exactness:
      Exact by definition; integers and rationals only.
    """
    if zero not in ("written", "bank"):
        raise PolicyError("zero", zero, "written, bank")
    if uninitialised not in ("nan", "zero", "raise"):
        raise PolicyError("uninitialised", uninitialised, "nan, zero, raise")
    executor = Executor(memory.copy(), policy, order, zero, uninitialised)
    if len(bundles) % 64:
        index = len(bundles) // 64
        raise ExecutionError(index, "length", f"got {len(bundles)} bytes, allowed multiples of 64")
    for index in range(len(bundles) // 64):
        executor.step(RawBundle(index, bytes(bundles[64 * index : 64 * index + 64])))
    return executor.memory


__all__ = ["Executor", "Latch", "Memory", "execute"]
