"""Where a contraction index lives in the array, and operands laid out that way.

The machine cuts K in tiles of 512 (the last 256, then 128 where that is enough) and a tile's row k
is lane c of partition p, k = k0 + 4 p + c (D23).  The two k maps say which logical row of the
operand that is:

* ``adjacent``: the same number, so 32 consecutive logical rows share a scale (D22, the default);
* ``strided``: logical row k0 + c P + p, rows a quarter of the tile apart in one partition.

Source: "MX Microscaling Path end-to-end", "Trainium3 architecture guide".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Int, UInt8

from mxref.errors import PolicyError

KMap = Literal["adjacent", "strided"]
K_MAPS: tuple[KMap, ...] = ("adjacent", "strided")

LANES = 4
BLOCK = 32
TILE_K = 512
#: The scale code of padding: 2^0, harmless in every policy because the elements are +0.
PAD_SCALE = 127


@dataclass(frozen=True)
class KTile:
    """One tile of the contraction: machine rows ``start .. start + 4 partitions - 1``."""

    start: int
    partitions: int

    @property
    def extent(self) -> int:
        """Rows of the tile."""
        return LANES * self.partitions


def k_tiles(k: int) -> Iterator[KTile]:
    """Cut K: full tiles of 512, then one of 128, 256 or 512 that holds the rest (D25b)."""
    for start in range(0, k, TILE_K):
        rest = min(TILE_K, k - start)
        yield KTile(start, next(p for p in (32, 64, 128) if LANES * p >= rest))


def padded_k(k: int) -> int:
    """K with its last tile padded."""
    whole = k // TILE_K * TILE_K
    return whole + sum(tile.extent for tile in k_tiles(k - whole))


def k_order(k: int, kmap: KMap) -> Int[np.ndarray, "K"]:
    """Logical row of every machine row; values of ``k`` and above are padding.

    Example:
      >>> k_order(100, "strided")[:8].tolist()
      [0, 32, 64, 96, 1, 33, 65, 97]
    """
    if kmap not in K_MAPS:
        raise PolicyError("kmap", kmap, ", ".join(K_MAPS))
    rows = [np.arange(0)]
    for tile in k_tiles(k):
        index = np.arange(tile.extent)
        if kmap == "strided":
            index = index.reshape(LANES, tile.partitions).T.reshape(-1)
        rows.append(tile.start + index)
    return np.concatenate(rows)


def to_matrix(array: np.ndarray, axis: int) -> np.ndarray:
    """View ``array`` as ``[K, C]``: the contraction axis first, the others flattened."""
    moved = np.moveaxis(array, axis, 0)
    return moved.reshape(moved.shape[0], -1)


def from_matrix(matrix: np.ndarray, shape: tuple[int, ...], axis: int) -> np.ndarray:
    """Undo :func:`to_matrix` for an array of ``shape``."""
    axis = axis % len(shape)
    rest = shape[:axis] + shape[axis + 1 :]
    return np.ascontiguousarray(np.moveaxis(matrix.reshape(shape[axis], *rest), 0, axis))


def arrange(matrix: np.ndarray, kmap: KMap, pad: int = 0) -> np.ndarray:
    """Put the rows of ``[K, C]`` in machine order, with padded rows of ``pad``."""
    order = k_order(matrix.shape[0], kmap)
    extra = len(order) - matrix.shape[0]
    if extra:
        matrix = np.concatenate([matrix, np.full((extra, matrix.shape[1]), pad, matrix.dtype)])
    return matrix if kmap == "adjacent" else matrix[order]


def to_containers(matrix: np.ndarray) -> np.ndarray:
    """Rearrange ``[4 P, C]`` in machine order as ``[P, C, 4]``: four lanes side by side."""
    k, c = matrix.shape
    return np.ascontiguousarray(matrix.reshape(k // LANES, LANES, c).transpose(0, 2, 1))


def from_containers(containers: np.ndarray) -> np.ndarray:
    """Undo :func:`to_containers`."""
    p, c, _ = containers.shape
    return np.ascontiguousarray(containers.transpose(0, 2, 1)).reshape(LANES * p, c)


def pack(codes: UInt8[np.ndarray, "P C 4"], bits: int) -> UInt8[np.ndarray, "P B"]:
    """Pack containers into bytes: one a code, or two FP4 codes with the low nibble first (D21)."""
    if bits == 4:
        codes = codes[..., 0::2] | (codes[..., 1::2] << np.uint8(4))
    return np.ascontiguousarray(codes).reshape(codes.shape[0], -1)


def unpack(raw: UInt8[np.ndarray, "P B"], bits: int) -> UInt8[np.ndarray, "P C 4"]:
    """Undo :func:`pack`."""
    if bits == 4:
        raw = np.stack([raw & np.uint8(15), raw >> np.uint8(4)], axis=-1)
    return raw.reshape(raw.shape[0], -1, LANES)


def scale_partitions(base: int, rows: int) -> list[int]:
    """Partitions of the scale rows of ``rows`` data partitions: four per 32-partition quadrant.

    ``base`` is the quadrant base plus the descriptor's scale partition byte (D25b).
    """
    return [base + 32 * (i >> 2) + (i & 3) for i in range(rows // 8)]
