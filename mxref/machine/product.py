"""The product of a stationary and a moving operand, and operands kept on the device.

A moving tile usually meets several stationary tiles, so what was taken out of SBUF is kept, in the
kernel's layout, until something is written over it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mxref.dot import dot_codes
from mxref.formats import FormatSpec
from mxref.policy import Accumulate, NumericPolicy
from mxref.program import layout
from mxref.program.arrays import NAN_BITS

from .memory import Memory
from .operands import Packed, PackedPlace


@dataclass(frozen=True)
class Side:
    """One operand as the kernel takes it: ``[M, K]`` codes on the left, ``[K, N]`` on the right."""

    codes: jax.Array
    scales: jax.Array
    format: FormatSpec
    lost: np.ndarray | None


def left_side(value: Packed, fmt: FormatSpec) -> Side:
    """Return a stationary operand in the kernel's layout."""
    # The four lanes of a container move as one word.
    words = np.ascontiguousarray(value.codes).view(np.uint32)[..., 0]
    return _side(np.ascontiguousarray(words.T).view(np.uint8), value.scales.T, fmt, value.poison)


def right_side(value: Packed, fmt: FormatSpec) -> Side:
    """Return a moving operand in the kernel's layout."""
    return _side(layout.from_containers(value.codes), value.scales, fmt, value.poison)


def _side(codes: Any, scales: Any, fmt: FormatSpec, poison: np.ndarray | None) -> Side:
    lost = None if poison is None else np.asarray(poison.any(axis=0))
    codes, scales = (jax.device_put(np.ascontiguousarray(a)) for a in (codes, scales))
    return Side(codes, scales, fmt, lost)


class Product:
    """A product ready to be added to starting values, in the machine's order."""

    def __init__(self, left: Side, right: Side, policy: NumericPolicy, order: Accumulate) -> None:
        self._left = left
        self._right = right
        self._how: dict[str, Any] = {
            "lhs_format": left.format,
            "rhs_format": right.format,
            "policy": policy,
            "order": order,
            "block": layout.BLOCK,
        }

    def add(self, chosen: Any, start: np.ndarray | None) -> np.ndarray:
        """Return ``start``, or zero, plus the product's ``chosen`` columns.

        A row or column whose operand nothing wrote is NaN as a whole (D25a).
        """
        left, right = self._left, self._right
        codes, scales, lost = right.codes, right.scales, right.lost
        if not isinstance(chosen, slice):
            codes, scales = codes[:, chosen], scales[:, chosen]
            lost = None if lost is None else lost[chosen]
        shape = left.codes.shape[0], codes.shape[1]
        begin = _zeros(*shape) if start is None else jnp.asarray(start)
        out = dot_codes(left.codes, left.scales, codes, scales, start=begin, **self._how)
        if left.lost is None and lost is None:
            return np.asarray(out)
        bits = np.array(out).view(np.uint32)
        if left.lost is not None:
            bits[left.lost] = NAN_BITS["float32"]
        if lost is not None:
            bits[:, lost] = NAN_BITS["float32"]
        return bits.view(np.float32)


@cache
def _zeros(rows: int, columns: int) -> jax.Array:
    return jnp.zeros((rows, columns), jnp.float32)


class Kept:
    """Moving operands by place, each valid until a byte that it lies in is written."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._sides: dict[Any, tuple[int, Side]] = {}

    def get(self, at: PackedPlace, fmt: FormatSpec, make: Callable[[], Side]) -> Side:
        """Return the operand at a place, taken out of memory again only when it may differ."""
        windows = at.windows()
        key = windows, at.partition, at.reverse, fmt
        since, side = self._sides.get(key, (0, None))
        changes = self._memory.changes
        if side is None or any(w.meets(c) for c in changes[since:] for w in windows):
            side = make()
        self._sides[key] = len(changes), side
        return side
