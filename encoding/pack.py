"""Build instructions the way the compiler's packer does, from partitions, offsets and counts.

The records take wire fields; these helpers derive them: logical extents from containers, scale
partition bytes, group codes, reversed walks.  Every departure is a named option.
"""

from __future__ import annotations

from collections.abc import Sequence

from hardware.dtypes import WireDtype
from hardware.pe import row_group

from .access import ScaleModulus as ScaleModulus
from .access import Walk as Walk
from .access import pack_dims
from .address import Addr4
from .errors import EncodeError, LegalityError, Violation
from .mx import LdWeightMx, MatmultMx, QuantizeMx
from .patterns import MxPattern, Tensor3D


def tensor_operand(start: Addr4, dims: Sequence[tuple[int, int]]) -> Tensor3D:
    """Pack ``(step, num)`` free dimensions, outermost first, as the packer does.

    Unit dimensions are dropped, the rest stored innermost first, unused places filled with step 1
    and count 1.

    Raises:
      EncodeError: when more than three dimensions remain or a number does not fit.
    """
    return pack_dims(Tensor3D, start, tuple(dims))


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
