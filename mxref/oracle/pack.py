"""Codes into containers, one shift at a time (D21)."""

from __future__ import annotations

from collections.abc import Sequence

from mxref.errors import PolicyError, ShapeError


def pack_fp4(codes: Sequence[int], order: str = "linear") -> list[int]:
    """Two 4-bit codes a byte.

    Args:
      codes: 4-bit codes, an even number of them; for ``"ggml"`` exactly one block of 32.
      order: ``"linear"``, where byte j holds elements 2j (low nibble) and 2j + 1; or ``"ggml"``,
        where byte j of a block of 32 holds elements j (low nibble) and j + 16.
    """
    if any(not 0 <= code < 16 for code in codes):
        raise ShapeError("codes", list(codes), "values 0..15")
    if order == "linear":
        if len(codes) % 2:
            raise ShapeError("codes", len(codes), "an even number")
        return [codes[2 * j] | codes[2 * j + 1] << 4 for j in range(len(codes) // 2)]
    if order == "ggml":
        if len(codes) != 32:
            raise ShapeError("codes", len(codes), "32 for one block")
        return [codes[j] | codes[j + 16] << 4 for j in range(16)]
    raise PolicyError("order", order, "linear, ggml")


def pack_x4(codes: Sequence[int], bits: int) -> int:
    """Four codes of ``bits`` bits as one word, element 0 lowest."""
    if len(codes) != 4:
        raise ShapeError("codes", len(codes), "4")
    return sum(code << (bits * k) for k, code in enumerate(codes))
