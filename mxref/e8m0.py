"""E8M0: powers of two from 2^-127 to 2^127, code 0xFF is NaN (OCP MX v1.0 section 5.4.1)."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32, Int32, UInt8, UInt32

from mxref.bits import INF_BITS, MAGNITUDE, as_float, float32_bits, from_bits
from mxref.errors import GradientError
from mxref.formats import E8M0
from mxref.policy import E8M0Rounding, Rounding, member
from mxref.widen import widen

# The first float32 above sqrt(2): LOG_RNE's boundary.  No power of two has an exact float32 root,
# so there are no ties.
_SQRT2_MANTISSA = 0x3504F4


def encode_e8m0(x: object, rounding: E8M0Rounding = E8M0Rounding.FLOOR) -> UInt8[Array, "..."]:
    """Round positive values to powers of two.

    Args:
      x: floats.  Zero and anything below 2^-127 give code 0, anything that rounds above 2^127
        gives 0xFE; negative values, Inf and NaN give 0xFF.
      rounding: the rule (jax-ml/ml_dtypes#298, onnx/onnx#7784).

    Returns:
      uint8 codes, the biased exponent.

    Exactness:
      Exact for every float32, subnormals included (D17).
    Gradient:
      None; codes are integers and a derivative raises GradientError.

    Example:
      >>> int(encode_e8m0(1.5, E8M0Rounding.CEIL))
      128
    """
    array = as_float(x)
    if isinstance(array, np.ndarray):
        array = from_bits(jnp.asarray(float32_bits(array)))
    return _encode(array, member("rounding", E8M0Rounding, rounding))


@partial(jax.custom_jvp, nondiff_argnums=(1,))
@partial(jax.jit, static_argnums=1)
def _encode(x: Array, rounding: E8M0Rounding) -> UInt8[Array, "..."]:
    bits = float32_bits(x)
    exponent, mantissa = _scaled(bits)
    up = _up(rounding, exponent, mantissa)
    return _special(bits, exponent + up.astype(jnp.uint32), 254)


@_encode.defjvp
def _encode_jvp(rounding, primals, tangents):
    raise GradientError("encode_e8m0", "a stop_gradient before it")


def decode_e8m0(codes: object) -> Float32[Array, "..."]:
    """2^(code - 127) as float32; code 0 is the subnormal 2^-127, 0xFF is NaN (D20).

    Exactness:
      Exact for all 256 codes.
    Gradient:
      None; codes are integers.

    Example:
      >>> float(decode_e8m0(130))
      8.0
    """
    return widen(codes, E8M0)


def floor_log2(x: object) -> Int32[Array, "..."]:
    """floor(log2(abs(x))) as an integer.

    Args:
      x: floats.

    Returns:
      int32; -2147483648 for zero, 2147483647 for Inf and NaN.

    Exactness:
      Exact for every float32, subnormals included; no logarithm is taken.
    Gradient:
      None; a derivative raises GradientError.

    Example:
      >>> int(floor_log2(0.75))
      -1
    """
    array = as_float(x)
    if isinstance(array, np.ndarray):
        array = from_bits(jnp.asarray(float32_bits(array)))
    return _floor_log2(array)


@partial(jax.custom_jvp)
@jax.jit
def _floor_log2(x: Array) -> Int32[Array, "..."]:
    magnitude = (float32_bits(x) & np.uint32(MAGNITUDE)).astype(jnp.int32)
    normal = (magnitude >> np.int32(23)) - np.int32(127)
    # A subnormal of b bits is worth 2^(b - 150) at its leading bit.
    small = np.int32(-118) - jax.lax.clz(magnitude)
    out = jnp.where(magnitude < np.int32(1 << 23), small, normal)
    out = jnp.where(magnitude == 0, np.int32(-(2**31)), out)
    return jnp.where(magnitude >= np.int32(INF_BITS), np.int32(2**31 - 1), out)


@_floor_log2.defjvp
def _floor_log2_jvp(primals, tangents):
    raise GradientError("floor_log2", "a stop_gradient before it")


def _scaled(bits: UInt32[Array, "..."]) -> tuple[UInt32[Array, "..."], UInt32[Array, "..."]]:
    """Code of the largest power of two not above, and the 23 bits that lie above it.

    A subnormal in [2^-127, 2^-126) is 2^-127 (1 + m / 2^22): its fraction is shifted to 23 bits.
    Anything smaller counts as exactly 2^-127, the nearest code by every rule.
    """
    magnitude = bits & np.uint32(MAGNITUDE)
    mantissa = magnitude & np.uint32(0x7F_FFFF)
    small = jnp.maximum(magnitude, np.uint32(0x40_0000)) - np.uint32(0x40_0000)
    mantissa = jnp.where(magnitude < np.uint32(1 << 23), small << np.uint32(1), mantissa)
    return magnitude >> np.uint32(23), mantissa


def _up(rounding, exponent, mantissa):
    half = np.uint32(1 << 22)
    match rounding:
        case E8M0Rounding.FLOOR:
            return jnp.zeros_like(mantissa, bool)
        case E8M0Rounding.CEIL:
            return mantissa > 0
        case E8M0Rounding.NEAREST_UP:
            return mantissa >= half
        case E8M0Rounding.NEAREST_EVEN:
            return (mantissa > half) | ((mantissa == half) & ((exponent & np.uint32(1)) == 1))
        case E8M0Rounding.LOG_RNE:
            return mantissa >= np.uint32(_SQRT2_MANTISSA)


def _special(bits, code, limit):
    magnitude = bits & np.uint32(MAGNITUDE)
    nan = (magnitude >= np.uint32(INF_BITS)) | ((bits != magnitude) & (magnitude != 0))
    code = jnp.minimum(code, np.uint32(limit))
    return jnp.where(nan, np.uint32(255), code).astype(jnp.uint8)


def narrow_e8m0(
    bits: UInt32[Array, "..."],
    rounding: Rounding,
    saturate: bool,
    random_bits: UInt32[Array, "..."] | None,
) -> UInt8[Array, "..."]:
    """E8M0 as the target of :func:`mxref.narrow`; float32 patterns in.

    Special values are those of :func:`encode_e8m0`; without saturation 2^128 is NaN.

    Exactness:
      Exact for every pattern.
    Gradient:
      None; patterns are integers.
    """
    exponent, mantissa = _scaled(bits)
    odd = (exponent & np.uint32(1)) == 1
    match rounding:
        case Rounding.RNE:
            up = _up(E8M0Rounding.NEAREST_EVEN, exponent, mantissa)
        case Rounding.NEAREST_AWAY | Rounding.HALF_UP:
            up = _up(E8M0Rounding.NEAREST_UP, exponent, mantissa)
        case Rounding.UP:
            up = mantissa > 0
        case Rounding.TO_ODD:
            up = (mantissa > 0) & ~odd
        case Rounding.STOCHASTIC:
            assert random_bits is not None
            up = random_bits < (mantissa << np.uint32(9))
        case _:
            up = jnp.zeros_like(odd)
    return _special(bits, exponent + up.astype(jnp.uint32), 254 if saturate else 255)
