"""Building segments: space in SBUF, operand tiles that stay resident, bundles in order.

Tiles and scales are handed out upward from byte 0 of every partition, the values that QuantizeMx
reads downward from the end.  Tiles stay for later segments until space runs out; then everything is
evicted and placed again where it is next used.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import encoding
from encoding import Addr4, Bundle, MxPattern, QuantizeMx, Tensor3D
from hardware import Arch, WireDtype, geometry
from mxref.formats import BF16, E2M1FN, E4M3FN, E5M2, FP16
from mxref.program import HostRead, HostWrite, Segment
from mxref.program.layout import LANES, KTile
from mxref.program.parts import Input, Part

#: Bytes at the end of every partition that the compiler keeps for itself
#: ("SBUF / PSUM Bank Geometry", reservedSize), here rounded up to a container.
RESERVED = 0x4008

WIRE_TAGS = {
    E4M3FN: WireDtype.FP8_EXP4,
    E5M2: WireDtype.FP8_EXP5,
    E2M1FN: WireDtype.FP4_EXP2,
    BF16: WireDtype.BFLOAT16,
    FP16: WireDtype.FP16,
}
#: Scale partition bytes: four tensors can share the same scale columns (D25b).
SCALE_SLOTS = (0, 4, 8, 12)


@dataclass(frozen=True)
class Tile:
    """A packed operand tile in SBUF."""

    pattern: MxPattern
    dtype: WireDtype
    partitions: int
    columns: int
    data_offset: int
    scale_partition: int
    scale_offset: int


@dataclass(frozen=True)
class Need:
    """A tile that a step needs: machine rows of one K tile, and some columns."""

    item: Input
    k: KTile
    column: int
    valid: int
    columns: int

    @property
    def key(self) -> tuple[str, int, int]:
        """Names the tile among the resident ones."""
        return self.item.name, self.k.start, self.column

    @property
    def data_bytes(self) -> int:
        """Bytes per partition of the packed elements, up to the next container of four."""
        return -(-self.columns * self.item.format.bits * LANES // 8 // 4) * 4

    @property
    def source_bytes(self) -> int:
        """Bytes per partition of the values that QuantizeMx narrows; 0 when the host has codes."""
        return self.columns * LANES * 2 if self.item.kind == "array" else 0


@dataclass
class Builder:
    """Collects segments."""

    arch: Arch
    segments: list[Segment] = field(default_factory=list)
    _resident: dict[tuple[str, int, int], Tile] = field(default_factory=dict)
    _slots: dict[int, tuple[int, int]] = field(default_factory=dict)
    _writes: list[HostWrite] = field(default_factory=list)
    _bundles: list[bytes] = field(default_factory=list)
    _low: int = 0
    _high: int = 0

    def __post_init__(self) -> None:
        self._limit = geometry(self.arch).sbuf_bytes - RESERVED
        self._high = self._limit

    def emit(self, bundle: Bundle) -> None:
        """Append a bundle."""
        self._bundles.append(encoding.encode(bundle, self.arch))

    def close(self, reads: tuple[HostRead, ...] = ()) -> None:
        """End the segment; resident tiles stay, values already narrowed make room."""
        if self._writes or self._bundles or reads:
            self.segments.append(Segment(tuple(self._writes), b"".join(self._bundles), reads))
        self._writes, self._bundles, self._high = [], [], self._limit

    def tiles(self, *needs: Need) -> list[Tile]:
        """Return tiles that are all in SBUF at once, placing those that are not."""
        missing = [need for need in needs if need.key not in self._resident]
        if not self._fits(missing):
            self.close()
            if not self._fits(missing):
                self._resident, self._slots, self._low = {}, {}, 0
                missing = list(needs)
        for need in missing:
            self._resident[need.key] = self._place(need)
        return [self._resident[need.key] for need in needs]

    def _fits(self, needs: list[Need]) -> bool:
        # Four slots share their columns, so counting each tile's own is never too little.
        up = sum(need.data_bytes + -(-need.columns // 4) * 4 for need in needs)
        return self._low + up <= self._high - sum(need.source_bytes for need in needs)

    def _place(self, need: Need) -> Tile:
        data_offset = self._low
        self._low += need.data_bytes
        scale_offset, slot = self._scale_space(need.columns)
        pattern = MxPattern(
            data=Addr4.sbuf(0, data_offset),
            scale=Addr4.scale(0, scale_offset),
            extent=LANES * need.columns,
            step=1,
            scale_partition=slot,
        )
        dtype = WIRE_TAGS[need.item.format]
        tile = Tile(
            pattern, dtype, need.k.partitions, need.columns, data_offset, slot, scale_offset
        )
        if need.item.kind == "mx":
            self._write(need, "codes", 0, data_offset)
            self._write(need, "scales", slot, scale_offset)
            return tile
        self._high -= need.source_bytes
        self._write(need, "values", 0, self._high)
        self.emit(
            QuantizeMx(
                src=contiguous(Addr4.sbuf(0, self._high), LANES * need.columns),
                num_active_channels=need.k.partitions,
                src_dtype=WireDtype.BFLOAT16 if need.item.dtype == BF16.name else WireDtype.FP16,
                dst_dtype=dtype,
                dst=pattern,
            )
        )
        return tile

    def _write(self, need: Need, part: Part, partition: int, offset: int) -> None:
        self._writes.append(
            HostWrite(
                need.item.name,
                part,
                need.k.start,
                need.k.partitions,
                need.column,
                need.valid,
                need.columns,
                partition,
                offset,
            )
        )

    def _scale_space(self, columns: int) -> tuple[int, int]:
        offset, used = self._slots.get(columns, (0, len(SCALE_SLOTS)))
        if used == len(SCALE_SLOTS):
            offset, used = self._low, 0
            self._low += -(-columns // 4) * 4
        self._slots[columns] = offset, used + 1
        return offset, SCALE_SLOTS[used]


def contiguous(start: Addr4, count: int) -> Tensor3D:
    """Return the pattern of ``count`` neighbouring elements, spare dimensions at 1."""
    return Tensor3D(start, 1, 1, 1, count, 1, 1)
