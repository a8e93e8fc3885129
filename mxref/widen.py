"""Widen: from codes to the float32 they name.  Exact, every value of every format is a float32."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32

from mxref.bits import as_array, dtype_codes, from_bits, refuse_wide, widen_bits
from mxref.errors import ShapeError
from mxref.formats import FORMATS, FormatSpec, format


def widen(codes: object, fmt: object) -> Float32[Array, "..."]:
    """Decode codes to float32.

    Args:
      codes: unsigned integers of the format's storage width (uint8, uint16 or uint32), or an
        array whose dtype is the format itself; or Python integers.  Bits above the format's width
        are refused, but ignored in traced arrays and in those of more than 2^20 codes.
      fmt: the format, by name, dtype or :class:`FormatSpec`.

    Returns:
      float32[...]; NaN is 0x7FC00000 (D23c), subnormals are kept (D17).

    Raises:
      FormatError: when the format is unknown, or a code is too wide for it.
      ShapeError: when ``codes`` has another dtype.

    Exactness:
      Exact for every code: checked exhaustively for all formats of up to 16 bits.
    Gradient:
      None; codes are integers (D29).

    Example:
      >>> float(widen(0x7E, "e4m3fn"))
      448.0
    """
    spec = format(fmt)
    array = as_array(codes, "codes")
    name = getattr(array.dtype, "name", "")
    if name in FORMATS and format(name) == spec:
        return _widen(dtype_codes(array, spec), spec)
    if array.dtype == np.int64 and array is not codes:
        refuse_wide(array, spec)
        array = np.asarray(array).astype(np.uint32)
    if array.dtype.kind != "u" or array.dtype.itemsize * 8 > 32:
        raise ShapeError("codes", array.dtype, f"uint{spec.storage_bits} or {spec.name}")
    refuse_wide(array, spec)
    return _widen(jnp.asarray(array), spec)


@partial(jax.jit, static_argnames="spec")
def _widen(codes: Array, spec: FormatSpec) -> Float32[Array, "..."]:
    return from_bits(widen_bits(codes, spec))
