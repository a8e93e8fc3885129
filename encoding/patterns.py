"""Operand descriptors: the records that stand in the slots of a bundle.

Index 0 is the innermost dimension (D14).  Steps and counts are in elements of the operand's type,
containers for the x4 types; the partition dimension is not here but in the bundle's control band.
A gather descriptor has the size of the static one it replaces and is told apart by the marker in
its first word.  Sources: "TENSOR1D / 2D / 3D Descriptors - the 4+4N Rule", "TENSOR4D /
MEM_PATTERN4D - the Spill Descriptor", "Indirect-Gather Descriptors" and "MXMEM_PATTERN1D - MX Data
+ E8M0 Scale".
"""

from __future__ import annotations

from math import prod
from typing import Any, TypeAlias

from .address import REGISTER_BIT, Addr4
from .codec import LAYOUTS
from .errors import DecodeError
from .wire import address, bits, record, reserved

_COUNT = range(1, 1 << 16)
_SHAPE = "shape_in_register"
_T123, _T4 = "TENSOR1D / 2D / 3D Descriptors", "TENSOR4D / MEM_PATTERN4D"
_IND = "Indirect-Gather Descriptors"
_INDEX = "index vector; its marker announces a gather"


def _shape_in_register(word: Addr4) -> bool:
    # The validators compare byte 3 under 0x70, one bit more than the marker has (D14, X-20).
    return word.word >> 24 & 0x70 == 0x40


class _Walk:
    """What the static tensor descriptors share; each lists its own steps and counts."""

    __slots__ = ()
    start: Addr4

    @property
    def shape_in_register(self) -> bool:
        """Whether the validators skip the counts because a register holds the shape."""
        return _shape_in_register(self.start)

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps, innermost first."""
        return ()

    @property
    def nums(self) -> tuple[int, ...]:
        """Counts, innermost first."""
        return ()

    @property
    def count(self) -> int:
        """Elements per partition."""
        return prod(self.nums)

    def span(self) -> tuple[int, int]:
        """Return the lowest and highest element offsets that the walk touches."""
        ends = [step * (num - 1) for step, num in zip(self.steps, self.nums, strict=True)]
        return sum(e for e in ends if e < 0), sum(e for e in ends if e > 0)


# fmt: off
@record(size=8, source=_T123)
class Tensor1D(_Walk):
    """TENSOR1D: an address, a step, a count."""

    start: Addr4 = address(0x0, doc="first element", gather=False)
    step0: int = bits(0x4, width=16, signed=True, default=1, stated=True,
                     doc="step, elements")
    num0: int  = bits(0x6, width=16, default=1, stated=True,
                     doc="count", legal=_COUNT, unless=_SHAPE)

    @property
    def steps(self) -> tuple[int]:
        """Steps, innermost first."""
        return (self.step0,)

    @property
    def nums(self) -> tuple[int]:
        """Counts, innermost first."""
        return (self.num0,)


@record(size=12, source=_T123)
class Tensor2D(_Walk):
    """TENSOR2D, also the static arm of MEM_PATTERN2D: an address, two steps, two counts."""

    start: Addr4 = address(0x0, doc="first element", gather=False)
    step0: int = bits(0x4, width=16, signed=True, default=1, stated=True,
                     doc="innermost step, elements")
    step1: int = bits(0x6, width=16, signed=True, default=1, stated=True,
                     doc="outermost step, elements")
    num0: int  = bits(0x8, width=16, default=1, stated=True,
                     doc="innermost count", legal=_COUNT, unless=_SHAPE)
    num1: int  = bits(0xA, width=16, default=1, stated=True,
                     doc="outermost count", legal=_COUNT, unless=_SHAPE)

    @property
    def steps(self) -> tuple[int, int]:
        """Steps, innermost first."""
        return self.step0, self.step1

    @property
    def nums(self) -> tuple[int, int]:
        """Counts, innermost first."""
        return self.num0, self.num1


@record(size=16, source=_T123)
class Tensor3D(_Walk):
    """TENSOR3D, also the static arm of MEM_PATTERN3D: an address, three steps, three counts."""

    start: Addr4 = address(0x0, doc="first element", gather=False)
    step0: int = bits(0x4, width=16, signed=True, default=1, stated=True,
                     doc="innermost step, elements")
    step1: int = bits(0x6, width=16, signed=True, default=1, stated=True,
                     doc="middle step, elements")
    step2: int = bits(0x8, width=16, signed=True, default=1, stated=True,
                     doc="outermost step, elements")
    num0: int  = bits(0xA, width=16, default=1, stated=True,
                     doc="innermost count", legal=_COUNT, unless=_SHAPE)
    num1: int  = bits(0xC, width=16, default=1, stated=True,
                     doc="middle count", legal=_COUNT, unless=_SHAPE)
    num2: int  = bits(0xE, width=16, default=1, stated=True,
                     doc="outermost count", legal=_COUNT, unless=_SHAPE)

    @property
    def steps(self) -> tuple[int, int, int]:
        """Steps, innermost first."""
        return self.step0, self.step1, self.step2

    @property
    def nums(self) -> tuple[int, int, int]:
        """Counts, innermost first."""
        return self.num0, self.num1, self.num2


@record(size=20, source=_T4)
class Tensor4D(_Walk):
    """TENSOR4D, also the static arm of MEM_PATTERN4D: an address, four steps, four counts."""

    start: Addr4 = address(0x00, doc="first element", gather=False)
    step0: int = bits(0x04, width=16, signed=True, default=1, stated=True,
                     doc="innermost step, elements")
    step1: int = bits(0x06, width=16, signed=True, default=1, stated=True,
                     doc="second step, elements")
    step2: int = bits(0x08, width=16, signed=True, default=1, stated=True,
                     doc="third step, elements")
    step3: int = bits(0x0A, width=16, signed=True, default=1, stated=True,
                     doc="outermost step, elements")
    num0: int  = bits(0x0C, width=16, default=1, stated=True,
                     doc="innermost count", legal=_COUNT, unless=_SHAPE)
    num1: int  = bits(0x0E, width=16, default=1, stated=True,
                     doc="second count", legal=_COUNT, unless=_SHAPE)
    num2: int  = bits(0x10, width=16, default=1, stated=True,
                     doc="third count", legal=_COUNT, unless=_SHAPE)
    num3: int  = bits(0x12, width=16, default=1, stated=True,
                     doc="outermost count", legal=_COUNT, unless=_SHAPE)

    @property
    def steps(self) -> tuple[int, int, int, int]:
        """Steps, innermost first."""
        return self.step0, self.step1, self.step2, self.step3

    @property
    def nums(self) -> tuple[int, int, int, int]:
        """Counts, innermost first."""
        return self.num0, self.num1, self.num2, self.num3


@record(size=16, source=_IND)
class Indirect16:
    """INDIRECT16B, the gather arm of MEM_PATTERN3D: an index vector, data, a number of indices."""

    index: Addr4 = address(0x0, doc=_INDEX, index=True)
    data: Addr4  = address(0x4, doc="data that the indices select from")
    num: int     = bits(0x8, width=16, doc="number of indices", legal=_COUNT)
    reserved_a: int = reserved(0xA, width=6)

    shape_in_register = False

    @property
    def count(self) -> int:
        """Elements per partition: one per index."""
        return self.num


@record(size=20, source=_IND)
class Indirect20:
    """INDIRECT20B, the gather arm of MEM_PATTERN4D: as INDIRECT16B with a longer tail."""

    index: Addr4 = address(0x0, doc=_INDEX, index=True)
    data: Addr4  = address(0x4, doc="data that the indices select from")
    num: int     = bits(0x8, width=16, doc="number of indices", legal=_COUNT)
    reserved_a: int = reserved(0xA, width=10)

    shape_in_register = False

    @property
    def count(self) -> int:
        """Elements per partition: one per index."""
        return self.num


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


@record(size=16, source=_IND)
class MxIndirect:
    """MXINDIRECT16B, the gather arm of the MX slot: an index vector, data, scales (D16a)."""

    index: Addr4 = address(0x0, doc=_INDEX, index=True)
    data: Addr4  = address(0x4, doc="packed elements that the indices select from")
    scale: Addr4 = address(0x8, doc="E8M0 scales: quadrant base and byte offset")
    extent: int  = bits(0xC, width=16, doc="logical elements: four per index", legal=_COUNT)
    reserved_e: int = reserved(0xE, width=1)
    scale_partition: int = bits(0xF, default=0, doc="first scale partition in its quadrant (D3)",
                                legal=(0, 4, 8, 12))

    shape_in_register = False

    @property
    def containers(self) -> int:
        """Containers of four elements that the indices select."""
        return self.extent // 4
# fmt: on


MemPattern2D: TypeAlias = Tensor2D
"""No source gives the gather arm of this union, so only the static one can be written."""
MemPattern3D: TypeAlias = Tensor3D | Indirect16
MemPattern4D: TypeAlias = Tensor4D | Indirect20
MxSlot: TypeAlias = MxPattern | MxIndirect
Pattern: TypeAlias = Tensor1D | Tensor2D | MemPattern3D | MemPattern4D | MxSlot

_GATHER: dict[type, type] = {Tensor3D: Indirect16, Tensor4D: Indirect20, MxPattern: MxIndirect}


def encode_pattern(pattern: Pattern) -> bytes:
    """Return the bytes of a descriptor that stands alone."""
    return LAYOUTS[type(pattern)].encode(pattern)


def decode_pattern(data: bytes, kind: type, strict: bool = True) -> Any:
    """Return the descriptor that a slot holds.

    Args:
      data: the bytes of the slot.
      kind: the static descriptor of the slot; the gather marker selects its other arm.
      strict: refuse non-zero reserved bytes; a descriptor has no place to keep them.

    Raises:
      DecodeError: naming the field, its byte, what was found and what is allowed.
    """
    gather = len(data) > 3 and data[3] & 0x60 == 0x20
    layout = LAYOUTS[_GATHER.get(kind, kind) if gather else kind]
    if len(data) != layout.size:
        raise DecodeError("length", 0, len(data), f"{layout.size} bytes", kind.__name__)
    word = int.from_bytes(data, "little")
    for problem in layout.problems(word, strict):
        leaf = problem.leaf
        raise DecodeError(leaf.path, leaf.offset, problem.got, problem.allowed, kind.__name__)
    return layout.decode(bytes(data), word)
