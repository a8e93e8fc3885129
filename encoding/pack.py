"""Build instructions the way the compiler's packer does, from partitions, offsets and counts.

The records take wire fields; these helpers derive them: logical extents from containers, scale
partition bytes, group codes, reversed walks.  Every departure is a named option.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from hardware.dtypes import WireDtype
from hardware.memory import PARTITIONS, QUADRANT_PARTITIONS
from hardware.pe import row_group

from .address import Addr4
from .errors import EncodeError, LegalityError, Violation
from .mx import LdWeightMx, MatmultMx, QuantizeMx
from .patterns import MxPattern, Tensor3D


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


def tensor_operand(start: Addr4, dims: Sequence[tuple[int, int]]) -> Tensor3D:
    """Pack ``(step, num)`` free dimensions, outermost first, as the packer does.

    Unit dimensions are dropped, the rest stored innermost first, unused places filled with step 1
    and count 1.

    Raises:
      EncodeError: when more than three dimensions remain or a number does not fit.
    """
    kept = [(step, num) for step, num in reversed(dims) if num != 1]
    if len(kept) > 3:
        raise EncodeError("Tensor3D", "dims", len(kept), "at most 3 dimensions of more than 1")
    kept += [(1, 1)] * (3 - len(kept))
    (s0, n0), (s1, n1), (s2, n2) = kept
    return Tensor3D(start, step0=s0, step1=s1, step2=s2, num0=n0, num1=n1, num2=n2)


def mx_operand(
    *,
    partition: int,
    offset: int,
    scale_partition: int,
    scale_offset: int,
    containers: int,
    dtype: WireDtype,
    walk: Walk = Walk.FORWARD,
    modulus: ScaleModulus = ScaleModulus.QUADRANT,
) -> MxPattern:
    """Pack an MX operand of ``containers`` x4 containers per partition.

    Raises:
      EncodeError: when ``dtype`` has no x4 container or a number does not fit.
      AddressError: when an address leaves SBUF.
    """
    if not dtype.container_bytes:
        raise EncodeError("MxPattern", "dtype", dtype, "a type packed with 4 elements into 1")
    if walk is Walk.REVERSED:
        offset += (containers - 1) * dtype.container_bytes
    return MxPattern(
        data=Addr4.sbuf(partition, offset),
        scale=Addr4.scale(scale_partition, scale_offset),
        extent=4 * containers,
        step=walk.value,
        scale_partition=scale_partition % modulus.value,
    )


def ld_weight_mx(src: MxPattern, dtype: WireDtype, *, partition: int, rows: int) -> LdWeightMx:
    """Return the load of a stationary tile whose ``rows`` partitions start at ``partition``."""
    return LdWeightMx(
        src=src,
        dtype=dtype,
        num_active_rows=rows,
        num_active_cols=src.containers,
        row_group=row_group(partition, rows),
    )


def matmult_mx(
    load: LdWeightMx,
    src: MxPattern,
    dtype: WireDtype,
    dst: Tensor3D,
    *,
    out_dtype: WireDtype = WireDtype.FP32,
    accumulate_flags: int,
    psum_zero_region: int = 0,
) -> MatmultMx:
    """Return the multiplication that belongs to a load: same rows, columns and row group."""
    return MatmultMx(
        src=src,
        dtype=dtype,
        num_active_rows=load.num_active_rows,
        num_active_cols=load.num_active_cols,
        out_dtype=out_dtype,
        accumulate_flags=accumulate_flags,
        row_group=load.row_group,
        psum_zero_region=psum_zero_region,
        dst=dst,
    )


def quantize_mx(
    src: Tensor3D,
    src_dtype: WireDtype,
    dst: MxPattern,
    dst_dtype: WireDtype,
    *,
    channels: int,
    saturate_bit: bool = False,
    block_size: int = 32,
    scale_method: str = "EMAX",
) -> QuantizeMx:
    """Return a quantization; block size and scale method are fixed by the hardware (D16a).

    Raises:
      LegalityError: for another block size or scale method.
    """
    faults: list[Violation] = []
    if block_size != 32:
        message = "block_size must be 32"
        faults.append(Violation("verifier.block_size", "block_size", 0, block_size, "32", message))
    if scale_method != "EMAX":
        message = "scale_method must be EMAX"
        faults.append(
            Violation("verifier.scale_method", "scale_method", 0, scale_method, "EMAX", message)
        )
    if faults:
        raise LegalityError(faults)
    return QuantizeMx(
        src=src,
        num_active_channels=channels,
        src_dtype=src_dtype,
        dst_dtype=dst_dtype,
        dst=dst,
        saturate_bit=saturate_bit,
    )
