"""Narrow: from floats to codes, one rounding, every choice named.

Two kernels give the same bits.  Formats of up to 8 bits rounded to nearest even use one float add
(the magic-number form); everything else uses integers (:func:`mxref.bits.round_magnitude`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float32, Int32, PRNGKeyArray, UInt, UInt32

from mxref.bits import (
    FP64,
    INF_BITS,
    MAGNITUDE,
    as_float,
    float32_bits,
    from_bits,
    round_magnitude,
)
from mxref.e8m0 import narrow_e8m0
from mxref.errors import GradientError, PolicyError
from mxref.formats import FP32, FormatSpec, Special, format
from mxref.policy import NanElement, NumericPolicy, Rounding, member
from mxref.policy import policy as resolve_policy

CODE_DTYPES = {8: jnp.uint8, 16: jnp.uint16, 32: jnp.uint32}


def narrow(
    x: object,
    fmt: object,
    *,
    rounding: Rounding = Rounding.RNE,
    saturate: bool | None = None,
    policy: NumericPolicy | str | None = None,
    key: PRNGKeyArray | None = None,
) -> UInt[Array, "..."]:
    """Round every element to the nearest code of a format.

    Implements the conversions of OCP OFP8 v1.0 section 5.2 and OCP MX v1.0 section 5.3: round with
    an unbounded exponent, then clamp (saturating) or overflow as IEEE 754 does; gradual underflow;
    the sign of zero is kept (D18).

    Args:
      x: floats of any dtype, or Python numbers; float64 and Python numbers, integers up to 2^53
        included, are rounded to odd to float32 first (D23e).
      fmt: the target.
      rounding: the rule; STOCHASTIC rounds the magnitude up when 32 random bits, read as a
        fraction, lie below the discarded fraction (D27).
      saturate: clamp to the largest finite value, Inf included.  None takes the policy's choice,
        else True for formats of up to 8 bits and False for wider ones (D23e).  Without saturation
        overflow gives Inf, else NaN, else the largest value, whichever the format has.
      policy: supplies ``saturate`` and what a NaN element becomes; None gives the canonical NaN,
        or code 0 where the format has none (D19, D23c).
      key: a JAX key, for STOCHASTIC only.

    Returns:
      uint8, uint16 or uint32 codes, high bits zero.

    Raises:
      FormatError: when the format is unknown.
      PolicyError: for an unknown rounding, when STOCHASTIC lacks a key, or when another has one.
      ShapeError: for an array of another dtype, or lists that make no array.

    Exactness:
      Bit-exact for every float32, bfloat16 and float16 input and every format: exhaustive over the
      16-bit inputs, edge-weighted samples of float32 against the rational oracle.
    Gradient:
      None; codes are integers and a derivative raises GradientError.  ``fake_quantize`` is the
      differentiable form (D29).

    Example:
      >>> hex(int(narrow(464.0, "e4m3fn")))
      '0x7e'
    """
    spec = format(fmt)
    chosen = None if policy is None else resolve_policy(policy)
    rounding = member("rounding", Rounding, rounding)
    if (key is not None) != (rounding is Rounding.STOCHASTIC):
        raise PolicyError("key", "None" if key is None else "a key", "a key with STOCHASTIC only")
    if saturate is None:
        saturate = chosen.saturate if chosen else None
    if saturate is None:
        saturate = spec.bits <= 8
    nan = chosen.nan_element if chosen else NanElement.CODE
    array = as_float(x)
    random_bits = None if key is None else jax.random.bits(key, array.shape, jnp.uint32)
    if spec == FP32 and array.dtype == np.float64:
        return _narrow_float64(array, rounding, bool(saturate), nan, random_bits)
    if isinstance(array, np.ndarray):
        array = from_bits(jnp.asarray(float32_bits(array)))
    return _narrow(array, random_bits, spec, rounding, bool(saturate), nan)


def narrow_bits(
    bits: UInt32[Array, "..."],
    spec: FormatSpec,
    rounding: Rounding = Rounding.RNE,
    saturate: bool = True,
    nan: NanElement = NanElement.CODE,
    random_bits: UInt32[Array, "..."] | None = None,
) -> UInt[Array, "..."]:
    """Narrow float32 patterns; the traceable body of :func:`narrow`.

    Exactness:
      As :func:`narrow`.
    Gradient:
      None; patterns are integers.
    """
    if spec.special is Special.SCALE:
        return narrow_e8m0(bits, rounding, saturate, random_bits)
    magnitude = bits & np.uint32(MAGNITUDE)
    negative = (bits >> np.uint32(31)) == 1
    if spec == FP32:
        code = magnitude
    elif spec.bits <= 8 and rounding is Rounding.RNE:
        code = _nearest_even(magnitude, spec).astype(jnp.uint32)
    else:
        code = round_magnitude(magnitude, negative, FP32, spec, rounding, random_bits)
    infinite = magnitude == np.uint32(INF_BITS)
    nan_input = magnitude > np.uint32(INF_BITS)
    code = _overflow(code.astype(jnp.uint32), infinite, negative, spec, rounding, saturate)
    return _finish(code, nan_input, negative, spec, nan)


def _nearest_even(magnitude: UInt32[Array, "..."], spec: FormatSpec) -> Int32[Array, "..."]:
    # Twice the largest value overflows all the same; the cap keeps the magic number finite.
    cap = np.uint32((spec.emax + 1 + 127) << 23)
    return magic_round(from_bits(jnp.minimum(magnitude, cap)), spec)


def magic_round(u: Float32[Array, "..."], spec: FormatSpec) -> Int32[Array, "..."]:
    """Round 0 <= u <= 2^(emax + 1) to nearest even by one float add; codes may exceed max_code.

    Lemma: for u in [2^e, 2^(e+1)), or below 2^emin with e = emin, the sum u + 2^(e + 23 - M) has
    its last place at 2^(e - M), so IEEE's own rounding of the sum is the wanted one, and its
    pattern is the magic number's plus u / 2^(e - M) (test_magic_add_is_the_integer_rounding).  A
    u that the backend flushes lies below half the smallest subnormal and rounds to 0 anyway; a
    fused multiply-add cannot differ, because u is exact.
    """
    m = spec.mantissa_bits
    lowest = (spec.emin + 127) << 23
    step = (23 - m) << 23
    exponent = lax.bitcast_convert_type(u, jnp.int32) & np.int32(INF_BITS)
    exponent = jnp.maximum(exponent, np.int32(lowest))
    magic = lax.bitcast_convert_type(exponent + np.int32(step), jnp.float32)
    total = lax.bitcast_convert_type(u + magic, jnp.int32)
    lift = lax.shift_right_logical(exponent, np.int32(23 - m)) - exponent
    return total + lift - np.int32(step + (lowest >> (23 - m)))


def _overflow(
    code: UInt[Array, "..."],
    infinite: Bool[Array, "..."],
    negative: Bool[Array, "..."],
    spec: FormatSpec,
    rounding: Rounding,
    saturate: bool,
) -> UInt[Array, "..."]:
    xp: Any = np if isinstance(code, np.ndarray) else jnp
    kind = code.dtype.type
    largest = kind(spec.max_code)
    beyond = spec.inf_code if spec.has_inf else spec.nan_code
    if saturate or beyond is None:
        return xp.where(infinite, largest, xp.minimum(code, largest))
    # IEEE 754 section 7.4: directed roundings that move inwards overflow to the largest value.
    match rounding:
        case Rounding.TOWARD_ZERO | Rounding.TO_ODD:
            finite = xp.full_like(code, largest)
        case Rounding.UP:
            finite = xp.where(negative, largest, kind(beyond))
        case Rounding.DOWN:
            finite = xp.where(negative, kind(beyond), largest)
        case _:
            finite = xp.full_like(code, kind(beyond))
    code = xp.where(code > largest, finite, code)
    return xp.where(infinite, kind(beyond), code)


def _finish(code, nan_input, negative, spec, nan):
    xp: Any = np if isinstance(code, np.ndarray) else jnp
    kind = code.dtype.type
    sign = xp.where(negative, kind(spec.sign_mask), kind(0))
    canonical = spec.nan_code if spec.nan_code is not None else 0
    if nan is NanElement.SIGNED_ZERO:
        code = xp.where(nan_input, kind(0), code)
    else:
        code = xp.where(nan_input, kind(canonical), code)
        sign = xp.where(nan_input, kind(0), sign)
    if not spec.has_inf and spec.has_nan:
        # An overflow to NaN is canonical too, hence positive (D23c).
        sign = xp.where(code == kind(canonical), kind(0), sign)
    return (code | sign).astype(CODE_DTYPES[spec.storage_bits])


@partial(jax.jit, static_argnums=(2, 3, 4, 5))
def _kernel(x, random_bits, spec, rounding, saturate, nan):
    return narrow_bits(float32_bits(x), spec, rounding, saturate, nan, random_bits)


_narrow = jax.custom_jvp(_kernel, nondiff_argnums=(2, 3, 4, 5))


@_narrow.defjvp
def _narrow_jvp(spec, rounding, saturate, nan, primals, tangents):
    raise GradientError("narrow", "fake_quantize or quantized_matmul")


def _narrow_float64(x, rounding, saturate, nan, random_bits):
    """float64 to float32 directly: odd rounding has no bits to spare for this one target."""
    xp = np if isinstance(x, np.ndarray) else jnp
    u = x.reshape(-1).view(np.uint64) if xp is np else lax.bitcast_convert_type(x, jnp.uint64)
    negative = (u >> np.uint64(63)) == 1
    magnitude = u & np.uint64((1 << 63) - 1)
    infinity = np.uint64(FP64.max_code + 1)
    if random_bits is not None and xp is np:
        random_bits = np.asarray(random_bits).reshape(-1)
    code = round_magnitude(magnitude, negative, FP64, FP32, rounding, random_bits)
    code = xp.minimum(code, np.uint64(MAGNITUDE)).astype(np.uint32)
    code = _overflow(code, magnitude == infinity, negative, FP32, rounding, saturate)
    code = _finish(code, magnitude > infinity, negative, FP32, nan)
    return jnp.asarray(code).reshape(x.shape)
