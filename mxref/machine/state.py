"""The memories of one core as an immutable value.

A State holds every byte of SBUF and PSUM, and for every byte whether anything wrote it: memory that
nothing wrote is a fact of its own, not a bit pattern (D25a).  Methods return new States; arrays are
read-only numpy arrays, and the class is a pytree like any other.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Literal

import jax
import numpy as np
from jaxtyping import Bool, UInt8

from hardware import AddressError, Arch, ArchLike, Space, geometry
from mxref.errors import PolicyError, ShapeError, UninitialisedError
from mxref.program import arrays

Uninitialised = Literal["nan", "raise", "zero"]

PARTITIONS = 128


def space_of(space: Space | str) -> Space:
    """Resolve ``"sbuf"`` or ``"psum"`` (any case) or pass a :class:`Space` through.

    Raises:
      PolicyError: when there is no such memory.
    """
    if isinstance(space, Space):
        return space
    try:
        return Space(str(space).upper())
    except ValueError:
        raise PolicyError("space", space, "sbuf, psum") from None


@dataclass(frozen=True)
class TraceStep:
    """What one bundle did, for people: recorded by ``run(..., trace=True)``.

    Attributes:
      index: position in the program.
      mnemonic: the bundle's name.
      reads: operands, with their place.
      writes: results, with their place.
    """

    index: int
    mnemonic: str
    reads: str
    writes: str

    def __str__(self) -> str:
        return f"{self.index:5d}  {self.mnemonic:<11}  {self.reads}  ->  {self.writes}"


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    """SBUF and PSUM, byte by byte, and the named outputs of the last program.

    Attributes:
      sbuf: every byte of the state buffer, by partition.
      psum: every byte of the accumulation memory, by partition; bank ``b`` starts at ``2048 b``.
      sbuf_written: which bytes of ``sbuf`` something wrote.
      psum_written: which bytes of ``psum`` something wrote.
      outputs: what the host reads of the last program fetched.
      arch: the generation whose memories these are.
      trace: one line per bundle, when asked for.
    """

    sbuf: UInt8[np.ndarray, "128 sbuf_bytes"]
    psum: UInt8[np.ndarray, "128 psum_bytes"]
    sbuf_written: Bool[np.ndarray, "128 sbuf_bytes"]
    psum_written: Bool[np.ndarray, "128 psum_bytes"]
    outputs: dict[str, np.ndarray] = field(default_factory=dict)
    arch: Arch = field(default=Arch.MARIANA, metadata={"static": True})
    trace: tuple[TraceStep, ...] = field(default=(), metadata={"static": True})

    @classmethod
    def empty(cls, arch: ArchLike = Arch.MARIANA) -> State:
        """Return memories that nothing has written."""
        arch = Arch.parse(arch)
        size = geometry(arch)
        sbuf = (PARTITIONS, size.sbuf_bytes)
        psum = (PARTITIONS, size.psum_bytes)
        return cls(
            arrays.frozen(np.zeros(sbuf, np.uint8)),
            arrays.frozen(np.zeros(psum, np.uint8)),
            arrays.frozen(np.zeros(sbuf, np.bool_)),
            arrays.frozen(np.zeros(psum, np.bool_)),
            arch=arch,
        )

    def _pair(self, space: Space) -> tuple[np.ndarray, np.ndarray]:
        if space is Space.SBUF:
            return np.asarray(self.sbuf), np.asarray(self.sbuf_written)
        return np.asarray(self.psum), np.asarray(self.psum_written)

    def write(self, space: Space | str, partition: int, offset: int, array: object) -> State:
        """Return a State in which ``array`` lies at ``offset`` of ``partition`` and the next ones.

        Args:
          space: ``Space.SBUF``, ``Space.PSUM`` or their names.
          partition: the first partition.
          offset: byte offset in each partition; bank ``b`` of PSUM starts at ``2048 b``.
          array: ``[P, n]`` elements of any fixed-size type, or ``[n]`` for one partition.  Bytes
            are stored little-endian, bit patterns unchanged.

        Raises:
          AddressError: when the array does not fit there.
          ShapeError: when the array has no bytes or another rank.
        """
        space = space_of(space)
        value = np.asarray(array)
        if value.dtype.hasobject or value.ndim not in (1, 2) or value.nbytes == 0:
            raise ShapeError("array", f"{value.dtype}{list(value.shape)}", "[P, n] numbers")
        raw = arrays.to_bytes(value.reshape(-1, value.shape[-1]))
        memory, written = (a.copy() for a in self._pair(space))
        rows, columns = _window(memory, space, partition, offset, raw.shape)
        memory[rows, columns] = raw
        written[rows, columns] = True
        arrays.frozen(memory)
        arrays.frozen(written)
        if space is Space.SBUF:
            return replace(self, sbuf=memory, sbuf_written=written)
        return replace(self, psum=memory, psum_written=written)

    def read(
        self,
        space: Space | str,
        partition: int,
        offset: int,
        shape: tuple[int, int],
        dtype: object,
        *,
        uninitialised: Uninitialised = "nan",
    ) -> np.ndarray:
        """Return ``shape = (P, n)`` elements as an array.

        Args:
          space: as for :meth:`write`.
          partition: the first partition.
          offset: byte offset in each partition.
          shape: partitions, and elements per partition.
          dtype: element type.
          uninitialised: what an element with a byte that nothing wrote gives: a canonical NaN
            (types without NaN raise), an error, or zero.

        Raises:
          AddressError: when the window leaves the memory.
          UninitialisedError: as said above.
        """
        space = space_of(space)
        name = arrays.dtype_name(dtype)
        size = arrays.DTYPES[name].itemsize
        memory, written = self._pair(space)
        if len(shape) != 2:
            raise ShapeError("shape", shape, "(partitions, elements)")
        rows, columns = _window(memory, space, partition, offset, (shape[0], shape[1] * size))
        values = arrays.from_bytes(memory[rows, columns], name).copy()
        known = written[rows, columns].reshape(*shape, size).all(axis=-1)
        if not known.all():
            if uninitialised == "raise" or (uninitialised == "nan" and name not in arrays.NAN_BITS):
                row, column = np.argwhere(~known)[0]
                where = f"{space.value} partition {partition + row}"
                raise UninitialisedError(
                    -1, where, "nothing wrote this element", int(offset + column * size)
                )
            bits = values.view(f"<u{size}")
            bits[~known] = arrays.NAN_BITS[name] if uninitialised == "nan" else 0
        return values

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a memory image (.npz), whole or not at all."""
        from . import image

        image.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> State:
        """Read a memory image.

        Raises:
          ProgramError: when the file is damaged, of another shape, or no memory image.
        """
        from . import image

        return image.load(path)


def _window(
    memory: np.ndarray, space: Space, partition: int, offset: int, shape: tuple[int, int]
) -> tuple[slice, slice]:
    if not (partition >= 0 and shape[0] >= 0 and partition + shape[0] <= memory.shape[0]):
        raise AddressError(
            space.value,
            partition,
            f"{shape[0]} partitions from here must stay in 0..127",
            "partition",
        )
    if not (offset >= 0 and shape[1] >= 0 and offset + shape[1] <= memory.shape[1]):
        raise AddressError(
            space.value, offset, f"{shape[1]} bytes from here must stay below {memory.shape[1]:#x}"
        )
    return slice(partition, partition + shape[0]), slice(offset, offset + shape[1])
