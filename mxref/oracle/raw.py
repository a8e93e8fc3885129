"""The 64 bytes of one bundle, read at literal offsets.

Every offset, mask and limit below is typed in from the vendor pages and shared with nobody.  What a
reader cannot read it refuses, naming the field.

Source: "PE Matmul Encoding", "MXMEM_PATTERN1D", "ADDR4", "TENSOR1D / 2D / 3D Descriptors"; D9, D11,
D12, D13, D21, D25b.
"""

from __future__ import annotations

from dataclasses import dataclass

from mxref.errors import ExecutionError, Unmodelled
from mxref.formats import E2M1FN, E4M3FN, E5M2, FormatSpec

# Tag at +0x20 (matmul) and +0x23 (quantize): the format, and the bytes of one x4 container.
FORMATS: dict[int, tuple[FormatSpec, int]] = {
    0x0E: (E4M3FN, 4),
    0x0F: (E5M2, 4),
    0x10: (E2M1FN, 2),
}
# Row group at +0x2C: first partition and number of partitions.
ROW_GROUPS = {
    0x01: (0, 32),
    0x02: (32, 32),
    0x04: (64, 32),
    0x08: (96, 32),
    0x03: (0, 64),
    0x0C: (64, 64),
    0x0F: (0, 128),
}


@dataclass(frozen=True)
class Operand:
    """An MX operand in SBUF: x4 containers and their scales.

    Attributes:
      fmt: element format.
      size: bytes of a container.
      base: first partition.
      data: byte offset of container 0 inside its partition.
      scale_base: partition of scale row 0.
      scale: byte offset of scale column 0 inside its partition.
      step: +1, or -1 when the walk goes down in memory.
      columns: containers per partition.
    """

    fmt: FormatSpec
    size: int
    base: int
    data: int
    scale_base: int
    scale: int
    step: int
    columns: int

    def container(self, j: int) -> int:
        """Byte offset of container j."""
        return self.data + self.step * self.size * j

    def scale_at(self, row: int, j: int) -> tuple[int, int]:
        """Partition and byte offset of the scale of relative partition ``row``, container j."""
        i = row >> 3
        return self.scale_base + 32 * (i >> 2) + (i & 3), self.scale + self.step * j


@dataclass(frozen=True)
class RawBundle:
    """One bundle and its position in the program.

    Attributes:
      index: position, for messages.
      raw: its 64 bytes.
    """

    index: int
    raw: bytes

    def u16(self, at: int) -> int:
        """Unsigned little-endian 16 bits at a byte offset of the bundle."""
        return self.raw[at] | self.raw[at + 1] << 8

    def i16(self, at: int) -> int:
        """Signed little-endian 16 bits."""
        value = self.u16(at)
        return value - 0x10000 if value & 0x8000 else value

    def u32(self, at: int) -> int:
        """Unsigned little-endian 32 bits."""
        return self.u16(at) | self.u16(at + 2) << 16

    def require(self, good: bool, field: str, reason: str, address: int | None = None) -> None:
        """Refuse the bundle unless ``good``."""
        if not good:
            raise ExecutionError(self.index, field, reason, address)

    def zeros(self, first: int, last: int) -> None:
        """The bytes ``first..last`` are reserved: nothing but 0 is known to mean anything."""
        for at in range(first, last + 1):
            self.require(
                self.raw[at] == 0, f"byte {at:#04x}", f"got {self.raw[at]:#04x}, allowed 0"
            )

    def address(self, at: int, name: str, align: int) -> int:
        """A static ADDR4: 29 address bits; the three marker bits name modes without a model."""
        word = self.u32(at)
        if word & 0xE0000000:
            reason = "register, shape-register and indirect addresses have no model"
            raise Unmodelled(self.index, name, reason, word)
        self.require(word % align == 0, name, f"must be a multiple of {align}", word)
        return word

    def sbuf(self, at: int, name: str, align: int) -> tuple[int, int]:
        """Partition and byte offset of an SBUF address: 18 bits of offset, partition above."""
        word = self.address(at, name, align)
        self.require(word < 0x2000000, name, "must lie in SBUF, below 0x2000000", word)
        return word >> 18, word & 0x3FFFF

    def operand(self, slot: int, tag_at: int) -> Operand:
        """The MXMEM_PATTERN1D at ``slot``, for the dtype tag at ``tag_at``."""
        tag = self.raw[tag_at]
        self.require(tag in FORMATS, "dtype", f"got {tag:#04x}, allowed 0x0e, 0x0f, 0x10")
        fmt, size = FORMATS[tag]
        base, data = self.sbuf(slot + 0x0, "data address", size)
        scale_quadrant, scale = self.sbuf(slot + 0x4, "scale address", 1)
        extent = self.u16(slot + 0x8)
        good = extent > 0 and extent % 4 == 0
        self.require(good, "K extent", f"got {extent}, allowed multiples of 4 from 4")
        step = self.raw[slot + 0xA]
        self.require(step in (0x01, 0xFF), "step", f"got {step:#04x}, allowed 0x01, 0xff")
        offset = self.raw[slot + 0xB]
        good = offset in (0, 4, 8, 12)
        self.require(good, "scale partition", f"got {offset}, allowed 0, 4, 8, 12")
        self.zeros(slot + 0xC, slot + 0xF)
        self.require(base % 32 == 0, "data address", f"partition {base} is no quadrant base")
        good = scale_quadrant == base
        reason = f"partition {scale_quadrant}, allowed the data's quadrant base {base}"
        self.require(good, "scale address", reason)
        walk = -1 if step == 0xFF else 1
        columns = extent // 4
        operand = Operand(fmt, size, base, data, base + offset, scale, walk, columns)
        for first, width in ((data, size), (scale, 1)):
            low = min(first, first + walk * width * (columns - 1))
            high = max(first, first + walk * width * (columns - 1)) + width
            good = low >= 0 and high <= 0x40000
            self.require(good, "K extent", f"walks over bytes {low:#x}..{high - 1:#x}")
        return operand

    def row_tile(self, operand: Operand) -> int:
        """The number of active rows, after comparing +0x26 with the group at +0x2C."""
        rows, group = self.raw[0x26], self.raw[0x2C]
        self.require(group in ROW_GROUPS, "row group", f"got {group:#04x}")
        first, size = ROW_GROUPS[group]
        self.require(rows == size, "num_active_rows", f"got {rows}, group {group:#04x} has {size}")
        reason = f"starts at partition {operand.base}, group {group:#04x} at {first}"
        self.require(operand.base == first, "data address", reason)
        self.require(
            self.raw[0x2D] == 0x0F, "col group", f"got {self.raw[0x2D]:#04x}, allowed 0x0f"
        )
        return rows

    def tensor3d(self, at: int, count: int, name: str) -> list[int]:
        """Element offsets of a TENSOR3D body: signed strides, counts, innermost first."""
        s0, s1, s2 = self.i16(at), self.i16(at + 2), self.i16(at + 4)
        n0, n1, n2 = self.u16(at + 6), self.u16(at + 8), self.u16(at + 10)
        self.require(n0 * n1 * n2 > 0, name, "counts must be at least 1")
        reason = f"counts {n0} x {n1} x {n2}, wants {count} elements"
        self.require(n0 * n1 * n2 == count, name, reason)
        return [
            i0 * s0 + i1 * s1 + i2 * s2 for i2 in range(n2) for i1 in range(n1) for i0 in range(n0)
        ]

    def header(self) -> int:
        """Check bytes +0x00..+0x0F and return the opcode."""
        raw = self.raw
        opcode = raw[0x00]
        lengths = {0x09: (0x10,), 0x0A: (0x10,), 0xE3: (0x10, 0x11)}
        if opcode not in lengths:
            self.require(False, "opcode", f"got {opcode:#04x}, executes 0x09, 0x0a, 0xe3")
        allowed = " or ".join(f"{n:#04x}" for n in lengths[opcode])
        good = raw[0x01] in lengths[opcode]
        self.require(good, "inst_word_len", f"got {raw[0x01]:#04x}, allowed {allowed}")
        self.zeros(0x02, 0x03)
        for at, name in ((0x04, "wait_event_mode"), (0x06, "update_event_mode")):
            # With both modes 0 the semaphore numbers and the value are idle.
            if raw[at]:
                raise Unmodelled(self.index, name, f"got {raw[at]:#04x}; semaphores have no model")
        self.zeros(0x0C, 0x0F)
        return opcode
