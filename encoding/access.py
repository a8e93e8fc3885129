"""Access patterns: what the compiler's encoders are given instead of wire fields.

An access pattern says which elements of an on-chip tensor an operand walks: partition step and
count first, then the free dimensions, outermost first.  The packers drop unit dimensions, store the
rest innermost first, fill unused places, and unpack x4 extents, as the compiler's do.
Sources: "Access-Pattern Encoder Dispatch", "TENSOR1D / 2D / 3D Descriptors - the 4+4N Rule",
"Indirect-Gather Descriptors", "MXMEM_PATTERN1D - MX Data + E8M0 Scale".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from math import prod
from typing import TypeVar

from hardware.dtypes import Dtype
from hardware.memory import PARTITIONS, PSUM_BANK_BYTES, QUADRANT_PARTITIONS, Space

from .address import INDIRECT_BIT, Addr4
from .errors import EncodeError
from .patterns import (
    Indirect16,
    Indirect20,
    MxIndirect,
    MxPattern,
    Tensor1D,
    Tensor2D,
    Tensor3D,
    Tensor4D,
)

Dims = tuple[tuple[int, int], ...]
T = TypeVar("T", Tensor1D, Tensor2D, Tensor3D, Tensor4D)


class ScaleModulus(Enum):
    """What the scale partition byte counts (D3)."""

    QUADRANT = QUADRANT_PARTITIONS
    """Partition within its quadrant, the reading that the validators accept."""
    ARRAY = PARTITIONS
    """The seed page's modulus 128; quadrants 1 to 3 give bytes that its own validator refuses."""


class Walk(Enum):
    """Direction in which an MX operand is read (D9)."""

    FORWARD = 1
    """From the first container upwards."""
    REVERSED = -1
    """From the last container down: the start address and the step are folded together."""


@dataclass(frozen=True, slots=True)
class AccessPattern:
    """A walk over an on-chip tensor.

    Attributes:
      dtype: the compiler's element type; x4 types count containers of four.
      partition: base partition.
      dims: ``(step, count)`` in elements; the first is the partition dimension, the last the
        innermost.
      offset: byte inside the partition, for PSUM bank and byte together.
      space: the memory.
      register: number of the register that holds the address instead.
      index: the vector of indices that a gather selects by.
    """

    dtype: Dtype
    partition: int
    dims: Dims
    offset: int = 0
    space: Space = Space.SBUF
    register: int | None = None
    index: AccessPattern | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.dims) <= 5:
            raise EncodeError("AccessPattern", "dims", len(self.dims), "1 to 5 dimensions")
        if self.dims[0][0] < 0:
            raise EncodeError(
                "AccessPattern", "dims", self.dims[0][0], "a partition step from 0 on"
            )
        if any(num < 1 for _, num in self.dims):
            raise EncodeError("AccessPattern", "dims", str(self.dims), "counts from 1 on")

    @property
    def partitions(self) -> int:
        """Partitions walked: the count of the first dimension."""
        return self.dims[0][1]

    @property
    def free(self) -> Dims:
        """The free dimensions, outermost first."""
        return self.dims[1:]

    @property
    def count(self) -> int:
        """Elements per partition, containers for x4 types; of a gather the number of indices."""
        return self.index.count if self.index else prod(num for _, num in self.free)

    @property
    def logical(self) -> int:
        """Elements per partition with containers opened."""
        return self.count * (4 if self.dtype.fact.packed else 1)

    def reversed(self) -> AccessPattern:
        """Return the walk over the same elements with the innermost dimension downwards.

        The start address moves to the last element and the step changes its sign, never one
        without the other (D9).
        """
        *outer, (step, num) = self.dims
        offset = self.offset + (num - 1) * step * self.dtype.fact.storage
        return replace(self, offset=offset, dims=(*outer, (-step, num)))


def start_word(access: AccessPattern, *, scale: bool = False) -> Addr4:
    """Return the start address; a scale's word keeps only the quadrant of its partition.

    Raises:
      AddressError: when the address leaves its memory.
      EncodeError: for a scale outside SBUF.
    """
    if access.register is not None:
        return Addr4.register(access.register)
    if scale:
        if access.space is not Space.SBUF:
            raise EncodeError("Addr4", "scale", access.space.value, "SBUF: scales live there only")
        return Addr4.scale(access.partition, access.offset)
    if access.space is Space.SBUF:
        return Addr4.sbuf(access.partition, access.offset)
    bank, byte = divmod(access.offset, PSUM_BANK_BYTES)
    return Addr4.psum(access.partition, bank, byte)


def pack_dims(kind: type[T], start: Addr4, dims: Dims) -> T:
    """Pack free dimensions, outermost first, into a tensor descriptor.

    Raises:
      EncodeError: when too many dimensions remain or a number does not fit.
    """
    rank = int(kind.__name__[6])
    kept = [(step, num) for step, num in reversed(dims) if num != 1]
    if len(kept) > rank:
        some = "1 dimension" if rank == 1 else f"{rank} dimensions"
        raise EncodeError(kind.__name__, "dims", len(kept), f"at most {some} of more than 1")
    kept += [(1, 1)] * (rank - len(kept))
    return kind(start, *(step for step, _ in kept), *(num for _, num in kept))


def _index_word(access: AccessPattern, index: AccessPattern) -> Addr4:
    """Return the marked word of an index vector.

    Raises:
      EncodeError: when index or data take their address from a register.
    """
    for name, one in (("index", index), ("data", access)):
        if one.register is not None:
            raise EncodeError("gather", name, one.register, "no register: offsets are static")
    return Addr4(start_word(index).word | INDIRECT_BIT)


def pack_3d(access: AccessPattern) -> Tensor3D | Indirect16:
    """Return the descriptor of a TENSOR3D or MEM_PATTERN3D slot.

    Raises:
      EncodeError: when more than three dimensions remain or a number does not fit.
      AddressError: when the address leaves its memory.
    """
    if access.index is None:
        return pack_dims(Tensor3D, start_word(access), access.free)
    index = _index_word(access, access.index)
    return Indirect16(index, start_word(access), access.count)


def pack_4d(access: AccessPattern) -> Tensor4D | Indirect20:
    """Return the descriptor of a TENSOR4D or MEM_PATTERN4D slot.

    Raises:
      EncodeError: when more than four dimensions remain or a number does not fit.
      AddressError: when the address leaves its memory.
    """
    if access.index is None:
        return pack_dims(Tensor4D, start_word(access), access.free)
    index = _index_word(access, access.index)
    return Indirect20(index, start_word(access), access.count)


def pack_mx(
    data: AccessPattern,
    scale: AccessPattern,
    *,
    modulus: ScaleModulus = ScaleModulus.QUADRANT,
) -> MxPattern | MxIndirect:
    """Return the descriptor of an MX slot; the sign of the innermost step is the direction.

    Raises:
      EncodeError: when the data is not packed, only one of the two is a gather, or their index
        vectors differ.
      AddressError: when an address leaves SBUF.
    """
    if not data.dtype.fact.packed:
        raise EncodeError("MxPattern", "dtype", data.dtype, "a type packed with 4 elements into 1")
    if data.index != scale.index:
        raise EncodeError("MxPattern", "index", str(scale.index), "the index vector of the data")
    words = start_word(data), start_word(scale, scale=True)
    part = scale.partition % modulus.value
    if data.index is not None:
        index = _index_word(data, data.index)
        return MxIndirect(index, *words, extent=data.logical, scale_partition=part)
    step = -1 if data.free and data.free[-1][0] < 0 else 1
    return MxPattern(*words, extent=data.logical, step=step, scale_partition=part)
