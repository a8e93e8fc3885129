"""Quantize and dequantize blocks that share a scale (OCP MX v1.0 section 6.3; D19, D20, D22)."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt8

from mxref.bits import as_float, float32_bits, from_bits
from mxref.blockkernel import Blocking, blocking, dequantize_body, quantize_body, scale_bits
from mxref.blockshape import BlockShape
from mxref.errors import FormatError, GradientError
from mxref.formats import BF16, FP16, FP32, FormatSpec, format
from mxref.mxarray import MXArray
from mxref.policy import OCP, NumericPolicy

__all__ = [
    "Blocking",
    "blocking",
    "dequantize",
    "dequantize_body",
    "quantize",
    "quantize_body",
    "scale_bits",
]


def quantize(
    x: object,
    fmt: object,
    *,
    axis: int = -1,
    block: int | BlockShape = 32,
    policy: NumericPolicy | str = OCP,
) -> MXArray:
    """Convert to blocks of codes with one power-of-two scale each.

    Per block with m = max(abs(x)): the scale code follows from m by the policy's rule and is never
    below its lowest code; each element is x * 2^(127 - scale) rounded to nearest even, then
    clamped (OCP MX v1.0 section 6.3).  A block of zeros has the lowest code.

    Args:
      x: floats; float64 is rounded to odd to float32 first (D23e).
      fmt: element format, 8 bits or less.
      axis: the axis the blocks run along; ignored with a BlockShape, which takes the last two.
      block: elements per scale.  A partial last block is padded with zeros that are never stored.
      policy: a profile of D19 or any :class:`NumericPolicy`.

    Returns:
      The :class:`MXArray`.

    Raises:
      FormatError: when the format cannot be an element.
      ShapeError: when the axis does not exist or ``x`` holds no floats.

    Exactness:
      Bit-exact for every input, float32 subnormals included, and the same bits in eager, jit and
      vmap (D17): test_quantize_equals_oracle.
    Gradient:
      None; the result is integers and a derivative raises GradientError.  ``fake_quantize`` is the
      differentiable form (D29).

    Example:
      >>> codes, scales = quantize([[448.0, 1.0]], "e4m3fn")
      >>> [hex(c) for c in codes[0].tolist()], scales.tolist()
      (['0x7e', '0x38'], [[127]])
    """
    array = as_float(x)
    how = blocking(array, fmt, axis, block, policy)
    if isinstance(array, np.ndarray) and array.dtype not in (np.float32, np.float16):
        array = from_bits(jnp.asarray(float32_bits(array)))
    codes, scales = _quantize(array, how)
    return MXArray(codes, scales, format=how.format, axis=how.axis, block=block, policy=how.policy)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
@partial(jax.jit, static_argnums=1)
def _quantize(x: Array, how: Blocking) -> tuple[UInt8[Array, "..."], UInt8[Array, "..."]]:
    return quantize_body(x, how)


@_quantize.defjvp
def _quantize_jvp(how, primals, tangents):
    raise GradientError("quantize", "fake_quantize or quantized_matmul")


def dequantize(q: MXArray, *, dtype: Any = jnp.float32) -> Float[Array, "..."]:
    """The values of a block-scaled array: widen(code) * 2^(scale - 127), rounded to ``dtype``.

    Args:
      q: codes, scales and policy; the policy says whether scale 0xFF is NaN (D20).
      dtype: float32, bfloat16 or float16.

    Returns:
      An array of ``q.shape``.

    Raises:
      FormatError: for another dtype.

    Exactness:
      Exact in float32: every finite value is a float32 or overflows to Inf, and no product is
      flushed (D17): test_dequantize_every_code_and_scale.  Other dtypes are one rounding to nearest
      even from it.
    Gradient:
      None; codes are integers (D29).

    Example:
      >>> quantize([3.0, -0.25], "e2m1fn").dequantize().tolist()
      [3.0, -0.25]
    """
    target = format(dtype)
    if target not in (FP32, BF16, FP16):
        raise FormatError(target, "dequantize gives float32, bfloat16 or float16")
    return _dequantize(q.codes, q.scales, Blocking(q.format, q.axis, q.block, q.policy), target)


@partial(jax.jit, static_argnums=(2, 3))
def _dequantize(codes: Array, scales: Array, how: Blocking, target: FormatSpec) -> Array:
    return dequantize_body(codes, scales, how, target)
