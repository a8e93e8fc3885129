"""Matrix instructions as the code generator gets them, and the bundles that each becomes.

One instruction of the compiler's IR is one to five bundles.  Here are the common parts and the MX
pair ``[LdWeightMx, MatmultMx]`` and ``[QuantizeMx]``; dense and sparse ones are in
:mod:`encoding.multiply`.  Source: "PE Matmul Encoding - Dense / Sparse / MX & Quantize".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Generic, Protocol, TypeAlias, TypeVar

from hardware.arch import Arch
from hardware.dtypes import Dtype

from .bundle import Bundle
from .errors import EncodeError
from .mx import LdWeightMx, MatmultMx, QuantizeMx
from .pack import ld_weight_mx, matmult_mx, quantize_mx
from .patterns import Indirect16, Indirect20, MxPattern, Tensor3D, Tensor4D

D_co = TypeVar("D_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Operand(Generic[D_co]):
    """A packed access pattern and what does not fit into its descriptor.

    Attributes:
      pattern: the descriptor that goes into the bundle.
      dtype: the element type, as the compiler numbers it.
      partition: first partition.
      partitions: how many of them.
    """

    pattern: D_co
    dtype: Dtype
    partition: int
    partitions: int


Tensor: TypeAlias = Operand[Tensor3D | Indirect16]
LongTensor: TypeAlias = Operand[Tensor4D | Indirect20]
MxTensor: TypeAlias = Operand[MxPattern]


class Operation(Protocol):
    """An instruction of the compiler's IR."""

    @property
    def opcodes(self) -> tuple[int, ...]:
        """Every opcode that the instruction may need, in order of first use."""
        ...

    def bundles(self, arch: Arch) -> list[Bundle]:
        """Return all its bundles in order, as if nothing were loaded yet."""
        ...


@dataclass(frozen=True, kw_only=True)
class MxMultiply:
    """An MX matmul: always a pair, without weight cache, float32 passes or performance mode."""

    opcodes: ClassVar[tuple[int, ...]] = (LdWeightMx.opcode, MatmultMx.opcode)
    stationary: MxTensor
    moving: MxTensor
    out: Tensor
    accumulate_flags: int
    psum_zero_region: int = 0

    def bundles(self, arch: Arch) -> list[Bundle]:
        """Return the load and the multiplication.

        Raises:
          CapabilityError: when the generation lacks an element type.
        """
        weights, moving, out = self.stationary, self.moving, self.out
        load = ld_weight_mx(
            weights.pattern, weights.dtype.tag(arch),
            partition=weights.partition, rows=weights.partitions,
        )  # fmt: skip
        multiply = matmult_mx(
            load, moving.pattern, moving.dtype.tag(arch), static(out.pattern),
            out_dtype=out.dtype.tag(arch), accumulate_flags=self.accumulate_flags,
            psum_zero_region=self.psum_zero_region,
        )  # fmt: skip
        return [load, multiply]


@dataclass(frozen=True, kw_only=True)
class MxQuantize:
    """A quantization to packed elements and scales, on the DVE stream; it may synchronise."""

    opcodes: ClassVar[tuple[int, ...]] = (QuantizeMx.opcode,)
    source: Tensor
    out: MxTensor
    saturate_bit: bool = False
    sync: Mapping[str, int] = field(default_factory=dict[str, int])
    """Fields of the synchronisation band, such as ``wait_mode``."""

    def bundles(self, arch: Arch) -> list[Bundle]:
        """Return the one bundle.

        Raises:
          EncodeError: when the result is not packed four elements to a container.
          CapabilityError: when the generation lacks an element type.
        """
        source, out = self.source, self.out
        if not out.dtype.fact.packed:
            raise EncodeError(
                "MxQuantize", "out.dtype", out.dtype.name, "a type packed with 4 elements into 1"
            )
        made = quantize_mx(
            static(source.pattern), source.dtype.tag(arch), out.pattern, out.dtype.tag(arch),
            channels=source.partitions, saturate_bit=self.saturate_bit,
        )  # fmt: skip
        return [replace(made, **self.sync)]


def static(pattern: Tensor3D | Indirect16) -> Tensor3D:
    """Return a descriptor that gathers nothing.

    Raises:
      EncodeError: for a gather descriptor.
    """
    if isinstance(pattern, Indirect16):
        raise EncodeError("operand", "pattern", "Indirect16", "a Tensor3D")
    return pattern
