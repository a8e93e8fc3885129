"""Hypothesis strategies for codes, arrays and instructions (needs the ``test`` extra).

Uniform draws almost never meet a subnormal, a tie or a NaN, so every strategy here mixes them with
the values where implementations differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from encoding import Bundle, bundle_types
from encoding.sample import draw
from mxref.formats import FP32, FormatSpec
from mxref.formats import format as resolve


def corner_codes(fmt: object) -> list[int]:
    """Codes where implementations differ: zeros, the subnormals' ends, one, maxima, Inf, NaN.

    Args:
      fmt: the format.
    """
    spec = resolve(fmt)
    step = 1 << spec.mantissa_bits
    near = [0, 1, 2, step - 1, step, step + 1, spec.bias * step, spec.max_code - 1, spec.max_code]
    special = [spec.inf_code, spec.nan_code, spec.magnitude_mask]
    positive = [code for code in [*near, *special] if code is not None and code >= 0]
    return sorted({code | sign for code in positive for sign in {0, spec.sign_mask}})


def codes(fmt: object, *, finite: bool = False) -> SearchStrategy[int]:
    """Codes of a format, corners as often as the rest.

    Args:
      fmt: the format.
      finite: leave NaN and Inf out.
    """
    spec = resolve(fmt)
    drawn = st.sampled_from(corner_codes(spec)) | st.integers(0, (1 << spec.bits) - 1)
    return drawn.filter(lambda code: _is_finite(code, spec)) if finite else drawn


def float32_arrays(
    shape: tuple[int, ...] | SearchStrategy[tuple[int, ...]], *, finite: bool = False
) -> SearchStrategy[np.ndarray]:
    """float32 arrays drawn as bit patterns, subnormals and specials included.

    Args:
      shape: the shape, or a strategy for it.
      finite: leave NaN and Inf out.
    """
    shapes = shape if isinstance(shape, SearchStrategy) else st.just(shape)

    def fill(size: tuple[int, ...]) -> SearchStrategy[np.ndarray]:
        count = int(np.prod(size))
        patterns = st.lists(codes(FP32, finite=finite), min_size=count, max_size=count)
        return patterns.map(lambda p: np.array(p, np.uint32).view(np.float32).reshape(size))

    return shapes.flatmap(fill)


def instructions(*types: type[Bundle]) -> SearchStrategy[Any]:
    """Instructions drawn from their field tables.

    Args:
      types: bundle classes; every one when none is named.
    """
    chosen = st.sampled_from(types or bundle_types())
    return st.builds(draw, chosen, st.randoms(use_true_random=False))


def _is_finite(code: int, spec: FormatSpec) -> bool:
    return code not in spec.nan_codes and code & spec.magnitude_mask != spec.inf_code
