"""MX instructions before encoding: operands as access patterns, and what no byte carries.

``check`` judges them at level ``verifier`` with every assertion of the compiler's verifier, and at
the other levels by the bundles that they become.  Sources: "MX-Matmul Legality Contract & Dequant",
"Codegen Leaves: NcMatMul, MatMulMX, and the QuantizeMX DVE Op".
"""

from __future__ import annotations

from dataclasses import dataclass

from hardware.arch import Arch, ArchLike, Engine
from hardware.dtypes import WireDtype
from hardware.pe import row_group

from .access import AccessPattern, pack_3d, pack_mx
from .bundle import Bundle
from .mx import LdWeightMx, MatmultMx, QuantizeMx

Tiles = tuple[int, ...]
_DERIVED: Tiles = (-1,)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmultMxOp:
    """An MX matmul of the compiler: one LdWeightMx and one MatmultMx.

    Attributes:
      moving: packed elements that stream through (argument 0).
      stationary: packed elements that the latches hold (argument 1).
      moving_scale: E8M0 scales of the moving operand (argument 2).
      stationary_scale: E8M0 scales of the stationary operand (argument 3).
      out: destination in PSUM.
      accumulate_flags: bits START, STOP and ACCUMULATE.
      psum_zero_region: banks that START clears.
      engine: the engine that the instruction is bound to.
      replication_shift: must stay 0.
      row_tile_pos: rows where its tiles start, -1 to derive them.
      row_tile_size: rows of its tiles.
      col_tile_pos: columns where its tiles start.
      col_tile_size: columns of its tiles.
    """

    moving: AccessPattern
    stationary: AccessPattern
    moving_scale: AccessPattern
    stationary_scale: AccessPattern
    out: AccessPattern
    accumulate_flags: int = 3
    psum_zero_region: int = 0
    engine: Engine = Engine.PE
    replication_shift: int = 0
    row_tile_pos: Tiles = _DERIVED
    row_tile_size: Tiles = _DERIVED
    col_tile_pos: Tiles = _DERIVED
    col_tile_size: Tiles = _DERIVED

    def bundles(self, arch: ArchLike = Arch.MARIANA) -> list[Bundle]:
        """Return the load and the multiplication.

        Raises:
          AddressError: when an address leaves its memory.
          CapabilityError: when the generation lacks an element type.
          EncodeError: when a descriptor does not fit.
        """
        arch = Arch.parse(arch)
        weights = self.stationary
        group = row_group(weights.partition, weights.partitions)
        load = LdWeightMx(
            src=pack_mx(weights, self.stationary_scale),
            dtype=weights.dtype.tag(arch),
            num_active_rows=weights.partitions,
            num_active_cols=weights.count,
            row_group=group,
        )
        multiply = MatmultMx(
            src=pack_mx(self.moving, self.moving_scale),
            dtype=self.moving.dtype.tag(arch),
            num_active_rows=weights.partitions,
            num_active_cols=weights.count,
            out_dtype=WireDtype(self.out.dtype.tag(arch)),
            accumulate_flags=self.accumulate_flags,
            row_group=group,
            psum_zero_region=self.psum_zero_region,
            dst=pack_3d(self.out),
        )
        return [load, multiply]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizeMxOp:
    """An MX quantization of the compiler: one QuantizeMx.

    Attributes:
      source: bfloat16 or float16 elements.
      out: packed elements.
      scale: E8M0 scales.
      engine: the engine that the instruction is bound to.
      saturate_bit: ask for saturation in the header (D7).
    """

    source: AccessPattern
    out: AccessPattern
    scale: AccessPattern
    engine: Engine = Engine.DVE
    saturate_bit: bool = False

    def bundles(self, arch: ArchLike = Arch.MARIANA) -> list[Bundle]:
        """Return the one bundle.

        Raises:
          AddressError: when an address leaves its memory.
          CapabilityError: when the generation lacks an element type.
          EncodeError: when a descriptor does not fit.
        """
        arch = Arch.parse(arch)
        return [
            QuantizeMx(
                src=pack_3d(self.source),
                num_active_channels=self.source.partitions,
                src_dtype=self.source.dtype.tag(arch),
                dst_dtype=self.out.dtype.tag(arch),
                dst=pack_mx(self.out, self.scale),
                saturate_bit=self.saturate_bit,
            )
        ]


AbstractInstruction = MatmultMxOp | QuantizeMxOp
