"""IEEE binary32 carried in float64 words and rounded by integer operations (D17).

XLA on CPU flushes subnormal float32 operands and results, also when it converts from float64, and
may contract ``a * b + c``.  Here a float32 number lives in a float64, where every float32 subnormal
is normal, and each rounding is spelled out on the bits.  Call these inside :func:`x64` only.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int, UInt

from mxref.bits import INF_BITS, MAGNITUDE, NAN_BITS, canonical, from_bits, to_bits

_SIGN = 1 << 63
_INF = 0x7FF << 52
_TWO_128 = (1023 + 128) << 52  # the first magnitude that is no float32
_MIN_NORMAL = (1023 - 126) << 52  # 2^-126
_DROP = 52 - 23  # float64 mantissa bits below float32's last one


def x64(enabled: bool = True) -> AbstractContextManager[None]:
    """The context in which float64 exists; the global flag is never touched.

    jax spelled it ``jax.experimental.enable_x64`` before ``jax.enable_x64``.
    """
    switch: Any = getattr(jax, "enable_x64", None)
    if switch is None:
        switch = import_module("jax.experimental").enable_x64
    return switch(enabled)


def _u64(value: int) -> Array:
    return jnp.asarray(value, jnp.uint64)


def _bits(x: Float[Array, "*s"]) -> UInt[Array, "*s"]:
    return lax.bitcast_convert_type(x, jnp.uint64)


def _float(bits: UInt[Array, "*s"]) -> Float[Array, "*s"]:
    return lax.bitcast_convert_type(bits, jnp.float64)


def power_of_two(exponent: Int[Array, "*s"]) -> Float[Array, "*s"]:
    """``2.0**exponent`` as float64, for exponents -1022..1023, from the exponent field."""
    return _float((exponent.astype(jnp.int64) + 1023).astype(jnp.uint64) << 52)


def carry(bits: UInt[Array, "*s"]) -> Float[Array, "*s"]:
    """The float64 with the value of a float32 bit pattern; NaN becomes canonical."""
    wide = bits.astype(jnp.uint64)
    magnitude = wide & _u64(MAGNITUDE)
    normal = (magnitude << _DROP) + _u64((1023 - 127) << 52)
    # Lemma: a subnormal is its mantissa, an integer below 2^23, times 2^-149: both steps are exact.
    subnormal = _bits(magnitude.astype(jnp.int64).astype(jnp.float64) * 2.0**-149)
    out = jnp.where(magnitude < _u64(0x00800000), subnormal, normal)
    out = jnp.where(magnitude == _u64(INF_BITS), _u64(_INF), out)
    signed = _float(out | ((wide >> 31) << 63))
    return jnp.where(magnitude > _u64(INF_BITS), jnp.asarray(jnp.nan, jnp.float64), signed)


def _round24(magnitude: UInt[Array, "*s"]) -> UInt[Array, "*s"]:
    """Round float64 magnitude bits to 24 significant bits, RNE, overflowing to Inf; NaN stays."""
    half = _u64((1 << (_DROP - 1)) - 1) + ((magnitude >> _DROP) & _u64(1))
    kept = ((magnitude + half) >> _DROP) << _DROP
    return jnp.where((kept >= _u64(_TWO_128)) & (kept < _u64(_INF)), _u64(_INF), kept)


def round_sum(x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """fl32 of a float64 sum of two carried float32 values.

    Lemma: 53 >= 2 * 24 + 2, so rounding the sum to float64 and then to float32 equals rounding it
    once.  A sum below 2^-126 is a multiple of 2^-149 with at most 23 bits: it is already a float32
    and the 24-bit rounding leaves it alone.  test_exact_sum_of_every_kind checks both.
    """
    bits = _bits(x)
    return _float(_round24(bits & ~_u64(_SIGN)) | (bits & _u64(_SIGN)))


def round_value(x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """fl32 of any float64, with gradual underflow; the result is carried in float64."""
    bits = _bits(x)
    sign, magnitude = bits & _u64(_SIGN), bits & ~_u64(_SIGN)
    exponent = (magnitude >> 52).astype(jnp.int64)
    significand = (magnitude & _u64((1 << 52) - 1)) | _u64(1 << 52)
    # Below 2^-126 the grid is 2^-149: shift the 53-bit significand down to that unit.  From a
    # shift of 54 the value is under half a unit and rounds to zero.
    shift = jnp.clip(1023 - 126 + _DROP - exponent, 0, 55).astype(jnp.uint64)
    kept = significand >> shift
    rest = significand - (kept << shift)
    half = (_u64(1) << shift) >> 1
    up = (rest > half) | ((rest == half) & ((kept & _u64(1)) == _u64(1)))
    units = (kept + up.astype(jnp.uint64)).astype(jnp.int64)
    subnormal = _bits(units.astype(jnp.float64) * 2.0**-149)
    rounded = jnp.where(magnitude < _u64(_MIN_NORMAL), subnormal, _round24(magnitude))
    return _float(rounded | sign)


def add(a: Float[Array, "*s"], b: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """fl32(a + b) of carried float32 values."""
    return round_sum(a + b)


def release(x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """The float32 with the value of a carried one, bit by bit; NaN canonical (D23c)."""
    bits = _bits(x)
    sign = (bits >> 63).astype(jnp.uint32) << 31
    magnitude = bits & ~_u64(_SIGN)
    normal = ((magnitude - _u64((1023 - 127) << 52)) >> _DROP).astype(jnp.uint32)
    scaled = _float(jnp.minimum(magnitude, _u64(_MIN_NORMAL))) * 2.0**149
    subnormal = scaled.astype(jnp.int64).astype(jnp.uint32)
    out = jnp.where(magnitude < _u64(_MIN_NORMAL), subnormal, normal)
    out = jnp.where(magnitude == _u64(_INF), jnp.uint32(INF_BITS), out) | sign
    out = jnp.where(magnitude > _u64(_INF), jnp.uint32(NAN_BITS), out)
    return from_bits(out)


def canonical_nan(x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """Replace every NaN of a float32 array by 0x7FC00000 without touching a subnormal (D23c)."""
    return from_bits(canonical(to_bits(x)))
