"""Dense and sparse matmuls as the code generator gets them.

A dense one is ``[LoadStationary, Matmul]``, in float32 on request twice that; a sparse one is
``[LoadTagsSparse, LoadStationary, MatmultSparse]``, in float32 with a second pair.
Sources: "PE Matmul Encoding - Dense / Sparse / MX & Quantize", "Codegen Driver and the CodeGenMode
Mechanism".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hardware.arch import Arch
from hardware.dtypes import Dtype, WireDtype
from hardware.pe import (
    ALL_LANES,
    FORCE_TAG_BITS,
    TAGS_PER_WORD,
    XBUS_DEFAULT,
    XBUS_SELECT,
    AccumulateFlag,
    Fp32Mode,
    PerfMode,
    col_group,
    row_group,
)

from .bundle import Bundle
from .dense import LoadStationary, Matmul
from .errors import CapabilityError, EncodeError
from .operations import LongTensor, Tensor
from .patterns import Tensor3D
from .sparse import LoadTagsSparse, MatmultSparse

BACKGROUND_TRANSPOSE = 2
"""The one value of ``bg_xpose_mode`` that the compiler writes, for MARIANA (D16a)."""


@dataclass(frozen=True, kw_only=True)
class Multiply:
    """A dense matmul.

    Attributes:
      stationary: elements for the latches; ``partitions`` is the contraction length.
      moving: elements that stream through.
      out: where the sums go, in PSUM.
      accumulate_flags: START, STOP, ACCUMULATE as the group needs them.
      perf_mode: how the array is fed; DoubleRow halves the columns.
      two_pass: split float32 into its high and low part (D24), START with the first, STOP with the
        second; otherwise one pass takes the whole word.
      tile: rows and columns of the tile where they exceed the operand; 0 where they do not.
      psum_zero_region: banks that START clears, from MARIANA on.
      all_columns: take every column whatever the tile (a transpose does).
      background_transpose: transpose while loading, on MARIANA.
      replication: replication code, on SUNDA.
      xbus_by_group: on SUNDA, select the crossbar by column group as the runtime library wants;
        the compiler always writes 0x10 (D13).
    """

    opcodes: ClassVar[tuple[int, ...]] = (LoadStationary.opcode, Matmul.opcode)
    stationary: Tensor
    moving: Tensor
    out: Tensor
    accumulate_flags: int
    perf_mode: PerfMode = PerfMode.NONE
    two_pass: bool = False
    tile: tuple[int, int] = (0, 0)
    psum_zero_region: int = 0
    all_columns: bool = False
    background_transpose: bool = False
    replication: int = 0
    xbus_by_group: bool = False

    def bundles(self, arch: Arch) -> list[Bundle]:
        """Return the load and the multiplication, or the pair of pairs.

        Raises:
          EncodeError: when operands do not go together or the array has no such tile.
          CapabilityError: when the generation lacks an element type or an option.
        """
        _same_kind(self.stationary, self.moving)
        if self.two_pass and self.stationary.dtype is not Dtype.FLOAT32:
            raise EncodeError("Multiply", "two_pass", True, "False for a type other than float32")
        flags = AccumulateFlag(self.accumulate_flags)
        if not self.two_pass:
            mode = one_pass(self.stationary.dtype)
            return [self._load(arch, mode), self._multiply(arch, mode, flags)]
        first, second = flags & ~AccumulateFlag.STOP, flags & ~AccumulateFlag.START
        return [
            self._load(arch, Fp32Mode.HIGH),
            self._multiply(arch, Fp32Mode.LOW_HIGH, first),
            self._load(arch, Fp32Mode.LOW),
            self._multiply(arch, Fp32Mode.LOW_HIGH, second),
        ]

    def _load(self, arch: Arch, mode: Fp32Mode) -> LoadStationary:
        weights = self.stationary
        columns = self._columns()
        return LoadStationary(
            src=weights.pattern,
            dtype=dense_tag(weights.dtype, arch),
            fp32_mode=mode,
            bg_xpose_mode=BACKGROUND_TRANSPOSE if self.background_transpose else 0,
            perf_mode=self.perf_mode,
            replication0=self.replication,
            replication1=self.replication,
            num_active_rows=weights.partitions,
            num_active_cols=columns,
            row_group=self._row_group(),
            col_group=self._col_group(columns),
            xbus_sel=self._xbus(arch, columns),
        )

    def _multiply(self, arch: Arch, mode: Fp32Mode, flags: AccumulateFlag) -> Matmul:
        columns = self._columns()
        if self.perf_mode is PerfMode.DOUBLE_PIXEL:
            columns //= 2
        narrow = self.out.dtype is not Dtype.FLOAT32
        return Matmul(
            src=self.moving.pattern,
            dtype=dense_tag(self.moving.dtype, arch),
            fp32_mode=mode,
            perf_mode=self.perf_mode,
            replication0=self.replication,
            replication1=self.replication,
            num_active_rows=self.stationary.partitions,
            num_active_cols=columns,
            out_dtype=dense_tag(self.out.dtype, arch) if narrow else WireDtype.INVALID,
            accumulate_flags=int(flags),
            row_group=self._row_group(),
            col_group=self._col_group(columns),
            xbus_sel=self._xbus(arch, columns),
            psum_zero_region=self.psum_zero_region,
            dst=self.out.pattern,
        )

    def _columns(self) -> int:
        """Elements per partition of the stationary operand; two rows share a column if fed so."""
        double = self.perf_mode in (PerfMode.DOUBLE_ROW, PerfMode.DOUBLE_ROW_SW_INTERLEAVE)
        return self.stationary.pattern.count // (2 if double else 1)

    def _row_group(self) -> int:
        return row_group(self.stationary.partition, max(self.tile[0], self.stationary.partitions))

    def _col_group(self, columns: int) -> int:
        force = self.all_columns or self.background_transpose
        return col_group(self.out.partition, max(self.tile[1], columns), force=force)

    def _xbus(self, arch: Arch, columns: int) -> int:
        if not self.xbus_by_group or arch is not Arch.SUNDA:
            return XBUS_DEFAULT
        group = self._col_group(columns)
        if group not in XBUS_SELECT:
            raise CapabilityError(f"a crossbar select for column group {group:#x}", "sunda", "0x10")
        return XBUS_SELECT[group]


@dataclass(frozen=True, kw_only=True)
class SparseMultiply:
    """A matmul with structured sparsity; always a fresh accumulation with one drain (D10).

    Attributes:
      stationary: the compressed elements.
      moving: the feature maps, padded to four dimensions.
      tags: which feature map each element meets, four 4-bit tags to a 16-bit word.
      out: where the sums go, in PSUM.
      tile_rows: rows of the tile where they exceed the operand.
    """

    opcodes: ClassVar[tuple[int, ...]] = (
        LoadTagsSparse.opcode, LoadStationary.opcode, MatmultSparse.opcode,
    )  # fmt: skip
    stationary: Tensor
    moving: LongTensor
    tags: Tensor
    out: Tensor
    tile_rows: int = 0

    def bundles(self, arch: Arch) -> list[Bundle]:
        """Return tags, load and multiplication; float32 has a low and a high pass.

        Raises:
          EncodeError: when operands do not go together or the array has no such tile.
          CapabilityError: when the generation lacks an element type.
        """
        _same_kind(self.stationary, self.moving)
        rows = max(self.tile_rows, self.stationary.partitions)
        group = row_group(self.stationary.partition, rows)
        found: list[Bundle] = [self._tags(arch, group)]
        wide = self.stationary.dtype is Dtype.FLOAT32
        mode = one_pass(self.stationary.dtype)
        for number, part in enumerate((Fp32Mode.LOW, Fp32Mode.HIGH) if wide else (mode,), 1):
            load = LoadStationary(
                src=self.stationary.pattern,
                dtype=dense_tag(self.stationary.dtype, arch),
                fp32_mode=part,
                num_active_rows=self.stationary.partitions,
                num_active_cols=self.stationary.pattern.count,
                row_group=group,
                col_group=ALL_LANES,
            )
            multiply = MatmultSparse(
                src=self.moving.pattern,
                dtype=dense_tag(self.moving.dtype, arch),
                fp32_mode=mode,
                num_active_rows=self.stationary.partitions,
                num_active_cols=self.stationary.pattern.count,
                pass_bits=number if wide else 0,
                row_group=group,
                dst=self.out.pattern,
            )
            found += [load, multiply]
        return found

    def _tags(self, arch: Arch, group: int) -> LoadTagsSparse:
        tags = self.tags
        if isinstance(tags.pattern, Tensor3D):
            # The compiler fills this descriptor by hand: one dimension, spare steps 0.
            words = tags.pattern.count
            src = Tensor3D(
                tags.pattern.start, step0=1, step1=0, step2=0, num0=words, num1=1, num2=1
            )
        else:
            raise EncodeError("SparseMultiply", "tags", "a gather", "a static access pattern")
        return LoadTagsSparse(
            src=src,
            dtype=dense_tag(tags.dtype, arch),
            force_tag_bits=FORCE_TAG_BITS[group],
            num_active_rows=max(self.tile_rows, tags.partitions),
            num_active_cols=TAGS_PER_WORD * words,
            row_group=group,
        )


def dense_tag(dtype: Dtype, arch: Arch) -> WireDtype:
    """Return the tag in a dense or sparse bundle: CAYMAN's map from then on (D11), fp32r as FP32.

    Raises:
      CapabilityError: for the packed types, from CAYMAN on.
    """
    if dtype is Dtype.FLOAT32R:
        return WireDtype.FP32
    return dtype.tag(min(arch, Arch.CAYMAN))


def one_pass(dtype: Dtype) -> Fp32Mode:
    """Return the float32 mode of a single pass; HIGH after FP32 is the fp32r marker (D16a)."""
    modes = {Dtype.FLOAT32: Fp32Mode.LOW_HIGH, Dtype.FLOAT32R: Fp32Mode.HIGH}
    return modes.get(dtype, Fp32Mode.NONE)


def _same_kind(stationary: Tensor, moving: Tensor | LongTensor) -> None:
    """Refuse float32 beside another type: both operands are float32, or float32r, or neither is."""
    wide = (Dtype.FLOAT32, Dtype.FLOAT32R)
    one, other = stationary.dtype, moving.dtype
    if one is not other and (one in wide or other in wide):
        raise EncodeError("operand", "moving.dtype", other.name, f"{one.name} on both sides")
