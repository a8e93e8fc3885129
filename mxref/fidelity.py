"""How far a low-precision result is from the float64 one: three numbers people ask for.

Ordinary numpy arithmetic: these are measurements for people, never compared bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Fidelity:
    """Error of a result against its reference, over the elements where both are finite.

    Attributes:
      max: largest absolute error.
      rms: root of the mean squared error.
      sqnr: signal to quantization noise ratio in dB; infinite when nothing differs.
      nonfinite: elements left out because one side is NaN or Inf.
    """

    max: float
    rms: float
    sqnr: float
    nonfinite: int

    @classmethod
    def of(cls, got: Any, want: Any) -> Fidelity:
        """Measure ``got`` against ``want``."""
        got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
        finite = np.isfinite(got) & np.isfinite(want)
        if not finite.any():
            return cls(float("nan"), float("nan"), float("nan"), got.size)
        signal, noise = want[finite], got[finite] - want[finite]
        power, lost = float(np.mean(signal**2)), float(np.mean(noise**2))
        if lost == 0:
            sqnr = float("inf")
        else:
            sqnr = 10 * float(np.log10(power / lost)) if power else float("-inf")
        worst = float(np.abs(noise).max())
        return cls(worst, lost**0.5, sqnr, int(got.size - finite.sum()))


def reference(lhs: Any, rhs: Any) -> np.ndarray:
    """``lhs @ rhs`` in float64, NaN and Inf passing through quietly."""
    with np.errstate(all="ignore"):
        return np.asarray(lhs, np.float64) @ np.asarray(rhs, np.float64)
