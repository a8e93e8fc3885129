"""Operand descriptors: 16-byte records inside a bundle.

Index 0 is the innermost dimension (D14).  Steps and counts are in elements of the operand's type,
containers for the x4 types; the partition dimension is not here but in the bundle's control band.
Sources: "TENSOR1D / 2D / 3D Descriptors - the 4+4N Rule", "MXMEM_PATTERN1D - MX Data + E8M0
Scale".
"""

from __future__ import annotations

from .address import REGISTER_BIT, Addr4
from .wire import address, bits, record, reserved

_COUNT = range(1, 1 << 16)
_SHAPE = "shape_in_register"


def _shape_in_register(word: Addr4) -> bool:
    # The validators compare byte 3 under 0x70, one bit more than the marker has (D14, X-20).
    return word.word >> 24 & 0x70 == 0x40


# fmt: off
@record(size=16, source="TENSOR1D / 2D / 3D Descriptors")
class Tensor3D:
    """TENSOR3D, also the static arm of MEM_PATTERN3D: an address, three steps, three counts."""

    start: Addr4 = address(0x0, doc="first element", gather=False)
    step0: int = bits(0x4, width=16, signed=True, doc="innermost step, elements")
    step1: int = bits(0x6, width=16, signed=True, doc="middle step, elements")
    step2: int = bits(0x8, width=16, signed=True, doc="outermost step, elements")
    num0: int  = bits(0xA, width=16, doc="innermost count", legal=_COUNT, unless=_SHAPE)
    num1: int  = bits(0xC, width=16, doc="middle count", legal=_COUNT, unless=_SHAPE)
    num2: int  = bits(0xE, width=16, doc="outermost count", legal=_COUNT, unless=_SHAPE)

    @property
    def shape_in_register(self) -> bool:
        """Whether the validators skip the counts because a register holds the shape."""
        return _shape_in_register(self.start)

    @property
    def count(self) -> int:
        """Elements per partition."""
        return self.num0 * self.num1 * self.num2

    @property
    def steps(self) -> tuple[int, int, int]:
        """Steps, innermost first."""
        return self.step0, self.step1, self.step2

    @property
    def nums(self) -> tuple[int, int, int]:
        """Counts, innermost first."""
        return self.num0, self.num1, self.num2

    def span(self) -> tuple[int, int]:
        """Return the lowest and highest element offsets that the walk touches."""
        ends = [step * (num - 1) for step, num in zip(self.steps, self.nums, strict=True)]
        return sum(e for e in ends if e < 0), sum(e for e in ends if e > 0)


@record(size=16, source="MXMEM_PATTERN1D")
class MxPattern:
    """MXMEM_PATTERN1D: packed data and its E8M0 scales in one slot.

    ``extent`` counts logical elements while ``data`` points at the first container of four, so the
    walk has ``extent / 4`` containers.  A step of -1 walks down from ``data``.
    """

    data: Addr4  = address(0x0, doc="first container of packed elements", gather=False)
    scale: Addr4 = address(0x4, doc="E8M0 scales: quadrant base and byte offset")
    extent: int  = bits(0x8, width=16, doc="logical elements per partition",
                        legal=_COUNT, unless=_SHAPE)
    step: int    = bits(0xA, signed=True, default=1, doc="direction of the walk",
                        legal=(1, -1), unless=_SHAPE)
    scale_partition: int = bits(0xB, default=0, doc="first scale partition in its quadrant (D3)",
                                legal=(0, 4, 8, 12), unless="data_in_register")
    reserved_c: int = reserved(0xC, width=4)

    @property
    def shape_in_register(self) -> bool:
        """Whether the validator skips extent and step because a register holds the shape."""
        return _shape_in_register(self.data)

    @property
    def data_in_register(self) -> bool:
        """Whether the validator takes the register short-cut past the scale partition."""
        return self.data.word >> 24 & 0xA0 == REGISTER_BIT >> 24

    @property
    def containers(self) -> int:
        """Containers of four elements that the walk visits."""
        return self.extent // 4
# fmt: on
