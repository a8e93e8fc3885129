"""Dense and sparse matmuls of the compiler before encoding: operands as access patterns.

A dense one is ``[LoadStationary, Matmul]``, in two float32 passes twice that; a sparse one is
``[LoadTagsSparse, LoadStationary, MatmultSparse]``, in float32 with a second pair.  The MX pair and
QuantizeMx are in :mod:`encoding.abstract`.  Sources: "PE Matmul Encoding - Dense / Sparse / MX &
Quantize", "Codegen Driver and the CodeGenMode Mechanism".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hardware.arch import Arch, ArchLike
from hardware.dtypes import Dtype
from hardware.pe import XBUS_SELECT, AccumulateFlag, Fp32Mode, PerfMode

from .access import AccessPattern
from .bundle import Bundle
from .dense import LoadStationary, Matmul
from .errors import CapabilityError, EncodeError
from .pack_dense import SparsePass, load_stationary, load_tags, matmul, matmult_sparse


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmultOp:
    """A dense matmul of the compiler: a load and a multiplication, or two of each.

    Attributes:
      moving: elements that stream through.
      stationary: elements for the latches.
      out: destination in PSUM.
      accumulate_flags: bits START, STOP and ACCUMULATE of the whole operation.
      perf_mode: how the array is fed.
      two_pass: split float32 into its high and its low part (D24); START goes with the first pass,
        STOP with the second.  Otherwise one pass takes the whole word.
      rows: extent of the row tile when it is larger than the active rows.
      columns: extent of the column tile when it is larger than the active columns.
      all_columns: take the whole column group, as transposes do.
      psum_zero_region: banks that START clears, on MARIANA only.
      replication: SUNDA's replication code.
      background_transpose: transpose while loading, on MARIANA only (D16a).
      xbus_by_group: on SUNDA, select the crossbar by column group as the runtime library wants;
        the compiler always writes 0x10 (D13).
    """

    moving: AccessPattern
    stationary: AccessPattern
    out: AccessPattern
    accumulate_flags: int = 3
    perf_mode: PerfMode = PerfMode.NONE
    two_pass: bool = False
    rows: int = 0
    columns: int = 0
    all_columns: bool = False
    psum_zero_region: int = 0
    replication: int = 0
    background_transpose: bool = False
    xbus_by_group: bool = False

    def bundles(self, arch: ArchLike = Arch.MARIANA) -> list[Bundle]:
        """Return the load and the multiplication, or the pair of pairs.

        Raises:
          AddressError: when an address leaves its memory.
          CapabilityError: when the generation lacks an element type or an option.
          EncodeError: when operands do not go together or a descriptor does not fit.
        """
        arch = Arch.parse(arch)
        _same_width(self.stationary, self.moving)
        flags = AccumulateFlag(self.accumulate_flags)
        if not self.two_pass:
            return self._pair(arch, None, flags)
        if self.stationary.dtype is not Dtype.FLOAT32:
            raise EncodeError("MatmultOp", "two_pass", True, "False for a type other than float32")
        # With START and ACCUMULATE apart, as they must be, both passes keep legal flags.
        high = self._pair(arch, Fp32Mode.HIGH, flags & ~AccumulateFlag.STOP)
        return high + self._pair(arch, Fp32Mode.LOW, flags & ~AccumulateFlag.START)

    def _pair(self, arch: Arch, held: Fp32Mode | None, flags: AccumulateFlag) -> list[Bundle]:
        """Return one load, of the part of the weights that the latches are to hold, and its use."""
        load = load_stationary(
            self.stationary, arch, column=self.out.partition, rows=self.rows, columns=self.columns,
            fp32_mode=held, perf_mode=self.perf_mode,
            all_columns=self.all_columns or self.background_transpose,
            replication=self.replication, background_transpose=self.background_transpose,
        )  # fmt: skip
        multiply = matmul(
            load, self.moving, self.out, arch, accumulate_flags=int(flags),
            perf_mode=self.perf_mode, psum_zero_region=self.psum_zero_region,
        )  # fmt: skip
        if self.xbus_by_group and arch is Arch.SUNDA:
            return _select_crossbar(load, multiply)
        return [load, multiply]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmultSparseOp:
    """A sparse matmul of the compiler; always a fresh accumulation with one drain (D10).

    Attributes:
      moving: feature maps, padded to four free dimensions.
      stationary: the compressed elements.
      tags: which feature map each element meets, four 4-bit tags to a 16-bit word.
      out: destination in PSUM.
      rows: extent of the row tile when it is larger than the active rows.
    """

    moving: AccessPattern
    stationary: AccessPattern
    tags: AccessPattern
    out: AccessPattern
    rows: int = 0

    def bundles(self, arch: ArchLike = Arch.MARIANA) -> list[Bundle]:
        """Return tags, load and multiplication; float32 has a low and then a high pass.

        Raises:
          AddressError: when an address leaves its memory.
          CapabilityError: when the generation lacks an element type.
          EncodeError: when operands do not go together or a descriptor does not fit.
        """
        arch = Arch.parse(arch)
        _same_width(self.stationary, self.moving)
        passes: list[tuple[Fp32Mode | None, SparsePass]] = [(None, SparsePass.SINGLE)]
        if self.stationary.dtype is Dtype.FLOAT32:
            passes = [(Fp32Mode.LOW, SparsePass.LOW), (Fp32Mode.HIGH, SparsePass.HIGH)]
        found: list[Bundle] = [load_tags(self.tags, rows=self.rows)]
        for held, part in passes:
            found += [
                load_stationary(
                    self.stationary, arch, rows=self.rows, fp32_mode=held, all_columns=True
                ),
                matmult_sparse(
                    self.stationary, self.moving, self.out, rows=self.rows, fp32_pass=part
                ),
            ]
        return found


def _same_width(stationary: AccessPattern, moving: AccessPattern) -> None:
    """Refuse float32 or float32r beside another type."""
    wide = (Dtype.FLOAT32, Dtype.FLOAT32R)
    one, other = stationary.dtype, moving.dtype
    if one is not other and (one in wide or other in wide):
        raise EncodeError("operands", "moving.dtype", other.name, f"{one.name} on both sides")


def _select_crossbar(load: LoadStationary, multiply: Matmul) -> list[Bundle]:
    group = load.col_group
    if group not in XBUS_SELECT:
        raise CapabilityError(f"a crossbar select for column group {group:#x}", "sunda", "0x10")
    select = XBUS_SELECT[group]
    return [replace(load, xbus_sel=select), replace(multiply, xbus_sel=select)]
