"""Kernels of quantize and dequantize, traceable and free of argument handling (D19, D20).

All of it works on bit patterns: the block maximum is an integer maximum, the scale an integer
subtraction, and the one float operation per element is exact or rounds as wanted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float32, Int32, UInt8

from mxref.bits import INF_BITS, MAGNITUDE, NAN_BITS, float32_bits, from_bits, widen_bits
from mxref.blockshape import BlockShape, block_extents, element_format, working_extents
from mxref.formats import BF16, FP32, FormatSpec
from mxref.narrow import magic_round, narrow_bits
from mxref.policy import NanElement, NonFinite, NumericPolicy, Rounding, ScaleCodes, ScaleRule
from mxref.policy import policy as resolve_policy


class Blocking(NamedTuple):
    """The static part of a call, hashable for jit."""

    format: FormatSpec
    axis: int
    block: int | BlockShape
    policy: NumericPolicy


def blocking(x: Any, fmt: object, axis: int, block: int | BlockShape, policy: object) -> Blocking:
    """Resolve names and check the axis against the array."""
    extents = block_extents(len(x.shape), axis, block)
    resolved = resolve_policy(policy)
    return Blocking(element_format(fmt), max(extents), block, resolved)


def quantize_body(x: Array, how: Blocking) -> tuple[UInt8[Array, "..."], UInt8[Array, "..."]]:
    """The traceable body of :func:`quantize`: codes and scales.

    Exactness:
      As :func:`quantize`.
    Gradient:
      None; see :func:`quantize`.
    """
    spec, policy = how.format, how.policy
    extents = working_extents(x.shape, how.axis, how.block)
    if _is_rows(x, extents):
        # One row a block: the kernels of a two-dimensional array are the fastest.
        codes, scales = quantize_body(x.reshape(-1, extents[-1]), how)
        lead = *x.shape[:-1], x.shape[-1] // extents[-1]
        return codes.reshape(x.shape), scales.reshape(lead)
    blocked, within = split(x, extents)
    largest = _block_max(blocked, within)
    scale, poisoned = _scale(largest, spec, policy)
    multiplier = _power(254 - jnp.minimum(scale, 253))
    # Without the barrier XLA recomputes the block maximum for every element.
    scale, poisoned, multiplier = lax.optimization_barrier((scale, poisoned, multiplier))
    wide = [jnp.expand_dims(v, within) for v in (scale, poisoned, multiplier)]
    codes = _elements(blocked, wide[0], wide[1], wide[2], spec, policy)
    return unsplit(codes, x.shape, extents), scale.astype(jnp.uint8)


def _is_rows(x: Array, extents: dict[int, int]) -> bool:
    length = extents.get(-1, 0)
    whole = len(extents) == 1 and length > 0 and x.shape[-1] % length == 0
    return whole and x.size > 0 and x.shape[1:] != (length,)


def split(x: Array, extents: dict[int, int], fill: Any = 0) -> tuple[Array, tuple[int, ...]]:
    """Give every blocked axis its own axis of length ``block`` just behind it, padding the end.

    Returns:
      The array and the (non-negative) axes that run inside a block.
    """
    pads = [(0, -n % extents.get(a - x.ndim, 1)) for a, n in enumerate(x.shape)]
    if any(p for _, p in pads):
        x = jnp.pad(x, pads, constant_values=np.asarray(fill, x.dtype))
    shape: list[int] = []
    within: list[int] = []
    for a, n in enumerate(x.shape):
        length = extents.get(a - x.ndim)
        if length is None:
            shape.append(n)
        else:
            shape += [n // length, length]
            within.append(len(shape) - 1)
    return x.reshape(shape), tuple(within)


def unsplit(blocked: Array, shape: tuple[int, ...], extents: dict[int, int]) -> Array:
    """Undo :func:`split`."""
    padded = [n + -n % extents.get(a - len(shape), 1) for a, n in enumerate(shape)]
    out = blocked.reshape(padded)
    return out if tuple(padded) == shape else out[tuple(slice(n) for n in shape)]


def _block_max(blocked: Array, within: tuple[int, ...]) -> Int32[Array, "..."]:
    """Largest magnitude pattern per block.

    Patterns of one sign order like their values, with Inf and then NaN on top; a float maximum
    would read subnormals as zero (test_block_max_sees_subnormals).
    """
    if blocked.dtype == jnp.bfloat16:
        half = lax.bitcast_convert_type(blocked, jnp.int16) & np.int16(0x7FFF)
        return _maximum(half, within).astype(jnp.int32) << np.int32(16)
    return _maximum(_patterns(blocked) & np.int32(MAGNITUDE), within)


def _maximum(a: Array, within: tuple[int, ...]) -> Array:
    length = a.shape[-1]
    if within == (a.ndim - 1,) and length % 8 == 0 and length > 8:
        # Two steps make XLA's CPU code take vertical vector maxima instead of gathering lanes.
        rows = jnp.max(a.reshape(*a.shape[:-1], length // 8, 8), axis=-2, initial=0)
        return jnp.max(lax.optimization_barrier(rows), axis=-1, initial=0)
    return jnp.max(a, axis=within, initial=0)


def _patterns(x: Array) -> Int32[Array, "..."]:
    return lax.bitcast_convert_type(jnp.asarray(float32_bits(x)), jnp.int32)


def _scale(
    largest: Int32[Array, "..."], spec: FormatSpec, policy: NumericPolicy
) -> tuple[Int32[Array, "..."], Array]:
    """Scale code per block, and which blocks a NaN or Inf has poisoned.

    Every rule adds a constant below one binade to the pattern and takes the exponent field, so the
    carry is the rounding.  RCEIL compares mantissas: ceil(log2(amax / max)) is
    e - emax + (m > m_max), because both significands lie in [1, 2).
    """
    mantissa_of_max = (spec.max_code & ((1 << spec.mantissa_bits) - 1)) << (23 - spec.mantissa_bits)
    addend = {
        ScaleRule.FLOOR: 0,
        ScaleRule.HEADROOM: 0,
        ScaleRule.CEIL: 0x7F_FFFF,
        ScaleRule.EVEN: 1 << (22 - spec.mantissa_bits),
        ScaleRule.RCEIL: 0x7F_FFFF - mantissa_of_max,
    }[policy.scale_rule]
    emax = spec.emax - (policy.scale_rule is ScaleRule.HEADROOM)
    exponent = (jnp.minimum(largest, np.int32(INF_BITS)) + np.int32(addend)) >> np.int32(23)
    scale = jnp.maximum(exponent - np.int32(emax), np.int32(policy.min_scale_code))
    poisoned = largest >= np.int32(INF_BITS)
    if policy.nonfinite is NonFinite.POISON:
        scale = jnp.where(poisoned, np.int32(255), scale)
    return scale, poisoned


def _power(biased: Int32[Array, "..."]) -> Float32[Array, "..."]:
    return lax.bitcast_convert_type(biased << np.int32(23), jnp.float32)


def _elements(blocked, scale, poisoned, multiplier, spec, policy):
    """Codes of x * 2^(127 - scale).

    Lemma: the product with a power of two is exact unless it underflows, and what underflows
    float32 lies far below half of every element format's smallest subnormal, so it rounds to 0
    either way (test_quantize_equals_oracle).  A float32-subnormal x is read as 0 by the hardware;
    (2^-126 + x) * p - 2^-126 * p has only normal operands and is exact.
    """
    bits = _patterns(blocked)
    a = bits & np.int32(MAGNITUDE)
    poison = policy.nonfinite is NonFinite.POISON
    if blocked.dtype == jnp.float16:
        u = from_bits(a) * multiplier  # every float16 is a normal float32
    else:
        small = a < np.int32(1 << 23)
        u = from_bits(jnp.where(small, a | np.int32(1 << 23), a)) * multiplier
        u = u - jnp.where(small, multiplier * np.float32(2.0**-126), np.float32(0))
    if max(policy.min_scale_code, 255 - spec.emax + 1) > 253 and not poison:
        # 2^(127 - scale) itself is subnormal for codes above 253: take the rest in a second step.
        u = u * _power(np.int32(127 + 253) - jnp.maximum(scale, 253))
    if not poison:
        cap = np.int32((spec.emax + 1 + 127) << 23)
        u = from_bits(jnp.minimum(lax.bitcast_convert_type(u, jnp.int32), cap))
    code = magic_round(u, spec)
    beyond = spec.inf_code if spec.has_inf else spec.nan_code
    if policy.saturate is False and beyond is not None:
        code = jnp.where(code > np.int32(spec.max_code), np.int32(beyond), code)
    else:
        code = jnp.minimum(code, np.int32(spec.max_code))
    sign = lax.shift_right_logical(bits, np.int32(32 - spec.bits)) & np.int32(spec.sign_mask)
    nan_code = np.int32(spec.nan_code or 0)
    if poison:
        code = jnp.where(poisoned, nan_code, code | sign)
    else:
        nan = a > np.int32(INF_BITS)
        signed_zero = policy.nan_element is NanElement.SIGNED_ZERO
        code = jnp.where(nan, sign if signed_zero else nan_code, code | sign)
    if policy.saturate is False and beyond == spec.nan_code and beyond is not None:
        code = jnp.where((code & np.int32(spec.magnitude_mask)) == nan_code, nan_code, code)
    return code.astype(jnp.uint8)


def dequantize_body(codes: Array, scales: Array, how: Blocking, target: FormatSpec) -> Array:
    """The traceable body of :func:`dequantize`.

    Exactness:
      As :func:`dequantize`.
    Gradient:
      None; codes are integers.
    """
    extents = working_extents(codes.shape, how.axis, how.block)
    blocked, within = split(codes, extents)
    scale = jnp.expand_dims(scales, within)
    bits = scale_bits(widen_bits(blocked, how.format), scale, how.policy.scale_codes)
    bits = unsplit(bits, codes.shape, extents)
    if target == FP32:
        return from_bits(bits)
    code = narrow_bits(bits, target, Rounding.RNE, saturate=False)
    return lax.bitcast_convert_type(code, jnp.bfloat16 if target == BF16 else jnp.float16)


def scale_bits(bits: Array, scale: UInt8[Array, "..."], scale_codes: ScaleCodes) -> Array:
    """float32 patterns of element values times 2^(scale - 127).

    The exponent is added as an integer; a result below 2^-126 is shifted into place.  Lemma: an
    element has at most 5 significand bits and is at least 2^-16, so the shift, at most 18, drops
    only zeros and the result is exact (test_dequantize_every_code_and_scale).

    Args:
      bits: uint32 patterns of element values, none a float32 subnormal.
      scale: uint8 scale codes, broadcastable.
      scale_codes: whether 0xFF is NaN.

    Exactness:
      Exact, Inf on overflow.
    Gradient:
      None; patterns are integers.
    """
    signed = lax.bitcast_convert_type(bits, jnp.int32)
    a = signed & np.int32(MAGNITUDE)
    code = scale.astype(jnp.int32)
    # Exponents relative to 127 keep the sum inside int32 for every pair.
    moved = a + ((code - np.int32(254)) << np.int32(23))
    result = moved + np.int32(127 << 23)
    significand = (a & np.int32(0x7F_FFFF)) | np.int32(1 << 23)
    shift = np.int32(1) - (result >> np.int32(23))
    small = significand >> jnp.clip(shift, 0, 31)
    result = jnp.where(moved < np.int32(-126 << 23), small, result)
    result = jnp.where(moved >= np.int32(128 << 23), np.int32(INF_BITS), result)
    result = jnp.where((a == 0) | (a >= np.int32(INF_BITS)), a, result)
    result = result | (signed & np.int32(-(1 << 31)))
    if scale_codes is ScaleCodes.OCP:
        result = jnp.where(code == np.int32(255), np.int32(NAN_BITS), result)
    return lax.bitcast_convert_type(result, jnp.uint32)
