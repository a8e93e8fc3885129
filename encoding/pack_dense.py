"""Build dense and sparse instructions from access patterns, as each generation's encoder does.

What the encoders derive is derived here: tags and the fp32r marker, active rows and columns, group
codes, the remap of the row group.  Every departure from the default is a named option.
Source: "PE Matmul Encoding - Dense / Sparse / MX & Quantize".
"""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum

from hardware.arch import Arch
from hardware.dtypes import Dtype, WireDtype
from hardware.pe import (
    FORCE_TAG_BITS,
    TAGS_PER_WORD,
    Fp32Mode,
    PerfMode,
    col_group,
    require,
    row_group,
)

from .access import AccessPattern, pack_3d, pack_4d, start_word
from .address import REGISTER_BIT, Addr4
from .dense import LoadStationary, Matmul
from .errors import EncodeError
from .patterns import Indirect16, Tensor3D
from .sparse import LoadTagsSparse, MatmultSparse


class SparsePass(IntEnum):
    """The float32 pass of a sparse matmul (D10)."""

    SINGLE = 0
    LOW = 1
    HIGH = 2


def wire_tag(dtype: Dtype, arch: Arch) -> WireDtype:
    """Return the tag that the dense and sparse encoders of a generation write (D11).

    Raises:
      CapabilityError: from CAYMAN on for the packed types.
    """
    return dtype.tag(min(arch, Arch.CAYMAN))


def tag_and_pass(
    dtype: Dtype, arch: Arch, mode: Fp32Mode | None = None
) -> tuple[WireDtype, Fp32Mode]:
    """Return element type and float32 pass; float32r is marked by FP32 with the high pass.

    Args:
      dtype: the operand's type.
      arch: the generation.
      mode: the pass of a float32 operand, by default both halves at once (D24).
    """
    if dtype is Dtype.FLOAT32R:
        return WireDtype.FP32, Fp32Mode.HIGH
    default = Fp32Mode.LOW_HIGH if dtype is Dtype.FLOAT32 else Fp32Mode.NONE
    return wire_tag(dtype, arch), default if mode is None else mode


def load_stationary(
    weights: AccessPattern,
    arch: Arch,
    *,
    column: int = 0,
    rows: int = 0,
    columns: int = 0,
    fp32_mode: Fp32Mode | None = None,
    perf_mode: PerfMode = PerfMode.NONE,
    all_columns: bool = False,
    replication: int = 0,
    background_transpose: bool = False,
    seed_transpose: bool = False,
) -> LoadStationary:
    """Return the load of a stationary tile.

    Args:
      weights: the tile; its partitions are the active rows, its elements the active columns.
      arch: the generation to encode for.
      column: first column of the tile in the array.
      rows: extent of the row tile when it is larger than the active rows.
      columns: extent of the column tile when it is larger than the active columns.
      fp32_mode: pass over float32 weights.
      perf_mode: performance mode; double row halves the columns on SUNDA.
      all_columns: take the whole column group, as transposes do.
      replication: SUNDA's replication code, written twice.
      background_transpose: byte 0x0C, on MARIANA only (D16a).
      seed_transpose: SUNDA's store of 0x80 at byte 0x13 as the seed page reads it, a transpose
        flag.  The byte belongs to the address word, whose bit 31 means that a register holds the
        address, so ``check`` refuses what this writes over a static address (D6).

    Raises:
      CapabilityError: when the generation lacks the element type or an option.
      EncodeError: when a descriptor does not fit.
    """
    tag, mode = tag_and_pass(weights.dtype, arch, fp32_mode)
    src = pack_3d(weights)
    if seed_transpose:
        src = _with_register_bit(src)
    if background_transpose:
        require(arch, Arch.MARIANA, "background transpose")
    halves = arch is Arch.SUNDA and perf_mode is PerfMode.DOUBLE_ROW
    active = weights.count // 2 if halves else weights.count
    return LoadStationary(
        src=src,
        dtype=tag,
        fp32_mode=mode,
        perf_mode=perf_mode,
        replication0=replication,
        replication1=replication,
        num_active_rows=weights.partitions,
        num_active_cols=active,
        row_group=row_group(weights.partition, max(rows, weights.partitions)),
        col_group=col_group(column, max(columns, active), force=all_columns),
        bg_xpose_mode=2 if background_transpose else 0,
    )


def _with_register_bit(src: Tensor3D | Indirect16) -> Tensor3D:
    if isinstance(src, Indirect16):
        raise EncodeError("LoadStationary", "src", "a gather", "a static pattern")
    return replace(src, start=Addr4(src.start.word | REGISTER_BIT))


def matmul(
    load: LoadStationary,
    moving: AccessPattern,
    out: AccessPattern,
    arch: Arch,
    *,
    accumulate_flags: int,
    fp32_mode: Fp32Mode | None = None,
    perf_mode: PerfMode = PerfMode.NONE,
    psum_zero_region: int = 0,
) -> Matmul:
    """Return the multiplication that belongs to a load: same rows, columns and groups.

    Args:
      load: the load of the stationary tile.
      moving: the moving operand.
      out: the destination in PSUM; a bfloat16 one is named in the bundle, on MARIANA only.
      arch: the generation to encode for.
      accumulate_flags: bits START, STOP and ACCUMULATE.
      fp32_mode: pass over a float32 operand.
      perf_mode: performance mode; double pixel halves the columns.
      psum_zero_region: banks that START clears, on MARIANA only.

    Raises:
      CapabilityError: when the generation lacks the element type or an option.
      EncodeError: when a descriptor does not fit, or a float32r operand meets another type.
    """
    tag, mode = tag_and_pass(moving.dtype, arch, fp32_mode)
    marked = (load.dtype, load.fp32_mode) == (WireDtype.FP32, Fp32Mode.HIGH)
    if moving.dtype is Dtype.FLOAT32R and not marked:
        raise EncodeError("Matmul", "dtype", moving.dtype, "the stationary operand's type", 0x20)
    narrow = out.dtype is Dtype.BFLOAT16
    for asked, feature in ((narrow, "bfloat16 results"), (psum_zero_region, "zero regions")):
        if asked:
            require(arch, Arch.MARIANA, feature)
    return Matmul(
        src=pack_3d(moving),
        dtype=tag,
        fp32_mode=mode,
        perf_mode=perf_mode,
        replication0=load.replication0,
        replication1=load.replication1,
        num_active_rows=load.num_active_rows,
        num_active_cols=load.num_active_cols // (1 + (perf_mode is PerfMode.DOUBLE_PIXEL)),
        out_dtype=WireDtype.BFLOAT16 if narrow else WireDtype.INVALID,
        accumulate_flags=accumulate_flags,
        row_group=load.row_group,
        col_group=load.col_group,
        psum_zero_region=psum_zero_region,
        dst=pack_3d(out),
    )


def load_tags(tags: AccessPattern, *, rows: int = 0) -> LoadTagsSparse:
    """Return the load of the tags of a sparse matmul.

    The pattern is filled by hand, as the encoder does: one dimension, spare steps zero.  A reversed
    pattern gives the walk from the last word down.

    Args:
      tags: 16-bit words of four tags.
      rows: extent of the row tile when it is larger than the partitions of the tags.

    Raises:
      EncodeError: when the tags are not 16-bit integers or walk more than one dimension.
    """
    if tags.dtype not in (Dtype.INT16, Dtype.UINT16):
        raise EncodeError("LoadTagsSparse", "dtype", tags.dtype, "int16 or uint16", 0x20)
    dims = [(step, num) for step, num in tags.free if num != 1] or [(1, 1)]
    if len(dims) > 1 or abs(dims[0][0]) != 1 or tags.index is not None:
        allowed = "one dimension of step 1 or -1"
        raise EncodeError("LoadTagsSparse", "src", str(tags.free), allowed, 0x10)
    active = max(rows, tags.partitions)
    group = row_group(tags.partition, active)
    return LoadTagsSparse(
        src=Tensor3D(start_word(tags), dims[0][0], 0, 0, tags.count, 1, 1),
        dtype=wire_tag(tags.dtype, Arch.CAYMAN),
        force_tag_bits=FORCE_TAG_BITS[group],
        num_active_rows=active,
        num_active_cols=TAGS_PER_WORD * tags.count,
        row_group=group,
    )


def matmult_sparse(
    weights: AccessPattern,
    moving: AccessPattern,
    out: AccessPattern,
    *,
    rows: int = 0,
    fp32_pass: SparsePass = SparsePass.SINGLE,
    flags: int | None = None,
) -> MatmultSparse:
    """Return a sparse multiplication.

    Args:
      weights: the stationary operand, for rows and columns.
      moving: the moving operand, padded to four free dimensions.
      out: the destination in PSUM.
      rows: extent of the row tile when it is larger than the active rows.
      fp32_pass: byte 0x2B as the seed page has it, the float32 pass (D10).
      flags: byte 0x2B as accumulate flags instead, the reading of the headers (D10).

    Raises:
      EncodeError: when a descriptor does not fit.
    """
    tag, mode = tag_and_pass(moving.dtype, Arch.CAYMAN)
    return MatmultSparse(
        src=pack_4d(moving),
        dtype=tag,
        fp32_mode=mode,
        num_active_rows=weights.partitions,
        num_active_cols=weights.count,
        pass_bits=int(fp32_pass) if flags is None else flags,
        row_group=row_group(weights.partition, max(rows, weights.partitions)),
        dst=pack_3d(out),
    )
