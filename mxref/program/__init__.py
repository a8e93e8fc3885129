"""Programs: bundles with the placement of their inputs and outputs, as one value and as one file.

A Program is an ordered list of segments; each writes pieces of named inputs, runs bundles in one
total order, and reads pieces of named outputs, because no bundle drains PSUM (D25d).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import encoding
from encoding import Bundle
from hardware import Arch, Engine
from hardware.opcodes import BUNDLE_BYTES, OPCODES
from mxref.errors import ProgramError
from mxref.policy import Accumulate, NumericPolicy

from . import arrays, file, sealed
from .layout import LANES, padded_k
from .parts import HostRead, HostWrite, Input, Output, Segment

__all__ = ["HostRead", "HostWrite", "Input", "Output", "Program", "Segment", "engine_of"]


def engine_of(bundle: bytes) -> Engine:
    """Return the engine whose stream a bundle belongs to.

    Raises:
      ProgramError: when no engine has that opcode.
    """
    row = OPCODES.get(bundle[0])
    if row is None:
        raise ProgramError("bundles", f"opcode {bundle[0]:#04x} belongs to no engine")
    return row.engine


@dataclass(frozen=True, eq=False)
class Program:
    """Bundles and everything needed to run them.

    Attributes:
      arch: the generation.
      policy: the reading of the arithmetic.
      order: the accumulation order.
      segments: writes, bundles and reads, in order.
      inputs: operands by name, with their data unless every run brings its own.
      outputs: results by name.
    """

    arch: Arch
    policy: NumericPolicy
    order: Accumulate
    segments: tuple[Segment, ...]
    inputs: Mapping[str, Input] = field(default_factory=dict)
    outputs: Mapping[str, Output] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "arch", Arch.parse(self.arch))
        object.__setattr__(self, "inputs", MappingProxyType(dict(self.inputs)))
        object.__setattr__(self, "outputs", MappingProxyType(dict(self.outputs)))
        for segment in self.segments:
            for write in segment.writes:
                _check_write(write, self.inputs.get(write.input))
            for read in segment.reads:
                _check_read(read, self.outputs.get(read.output))

    def __len__(self) -> int:
        return sum(len(segment.bundles) for segment in self.segments) // BUNDLE_BYTES

    def __bytes__(self) -> bytes:
        """Return :meth:`bytes`, so that ``check`` and ``disassemble`` take programs as they are."""
        return self.bytes()

    def __repr__(self) -> str:
        return (
            f"Program({len(self)} bundles in {len(self.segments)} segments, {self.arch!r}, "
            f"policy={self.policy}, order={self.order}, inputs={list(self.inputs)}, "
            f"outputs={list(self.outputs)})"
        )

    def bytes(self, engine: Engine | None = None) -> bytes:
        """Return the bundles of one engine's stream, or of all in their total order."""
        whole = b"".join(segment.bundles for segment in self.segments)
        if engine is None:
            return whole
        return b"".join(b for b in split(whole) if engine_of(b) is engine)

    def engines(self) -> tuple[Engine, ...]:
        """Return the engine of every bundle, in their total order."""
        return tuple(engine_of(b) for b in split(self.bytes()))

    def instructions(self) -> list[Bundle]:
        """Return every bundle decoded, in their total order.

        Raises:
          DecodeError: when bytes are not an instruction of the generation.
        """
        return [bundle for segment in self.decoded for bundle in segment]

    @cached_property
    def decoded(self) -> tuple[tuple[Bundle, ...], ...]:
        """The bundles of every segment, decoded once."""
        return tuple(
            tuple(encoding.decode_all(segment.bundles, self.arch)) for segment in self.segments
        )

    @cached_property
    def prepared(self) -> dict[str, Any]:
        """Operands of this program's own data in machine layout, filled by the first run."""
        return {}

    def with_bundles(self, data: bytes) -> Program:
        """Return the program with other bundles: as many, in the same total order.

        Raises:
          ProgramError: when the length differs.
        """
        if len(data) != BUNDLE_BYTES * len(self):
            raise ProgramError("bundles", f"{len(data)} bytes for {len(self)} bundles")
        segments, at = [], 0
        for segment in self.segments:
            end = at + len(segment.bundles)
            segments.append(replace(segment, bundles=data[at:end]))
            at = end
        return replace(self, segments=tuple(segments))

    def to_bytes(self) -> bytes:
        """Return the program file as bytes; equal programs give equal bytes."""
        return sealed.seal(file.to_members(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> Program:
        """Return the program of a file's bytes.

        Raises:
          ProgramError: when they are damaged, of another version, or no program.
        """
        return file.from_members(cls, sealed.unseal(data))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program file, whole or not at all."""
        arrays.write_atomically(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Program:
        """Read a program file; see :meth:`from_bytes`.

        Raises:
          ProgramError: also when the file cannot be read, with the OSError as its cause.
        """
        return cls.from_bytes(arrays.read_file(path))


def split(data: bytes) -> list[bytes]:
    """Cut bundles apart."""
    return [data[i : i + BUNDLE_BYTES] for i in range(0, len(data), BUNDLE_BYTES)]


def _check_write(write: HostWrite, source: Input | None) -> None:
    if source is None:
        raise ProgramError("segments", f"a write names the input {write.input!r}, which is missing")
    if (write.part == "values") != (source.kind == "array"):
        raise ProgramError("segments", f"input {write.input!r} has no {write.part}")
    if write.k + LANES * write.rows > padded_k(source.k):
        raise ProgramError("segments", f"a write passes the end of K of input {write.input!r}")
    if write.column + write.valid > source.columns:
        raise ProgramError("segments", f"a write passes the last column of {write.input!r}")


def _check_read(read: HostRead, target: Output | None) -> None:
    if target is None:
        raise ProgramError("segments", f"a read names the output {read.output!r}, which is missing")
    rows, columns = target.matrix_shape
    if read.column + read.columns > columns or read.row >= rows:
        raise ProgramError("segments", f"a read passes the edge of output {read.output!r}")
    if (read.part != "values") != (target.dtype == "uint8"):
        raise ProgramError("segments", f"output {read.output!r} cannot take {read.part}")
