"""Bit patterns of floats: the one door between values and integers.

XLA reads float32 subnormals as zero and flushes results (DAZ, FTZ), so everything that must be
exact near the bottom works on patterns.  A bit cast is the only float operation trusted with them.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Bool, Float32, Int32, UInt, UInt32

from mxref.errors import FormatError, ShapeError
from mxref.formats import FP32, FormatSpec, Special, format
from mxref.policy import Rounding

FP64 = FormatSpec("float64", "FP64", 11, 52, Special.IEEE)
"""A source only: float64 is never a target."""

INF_BITS = 0x7F80_0000
NAN_BITS = 0x7FC0_0000
MAGNITUDE = 0x7FFF_FFFF


def from_bits(bits: UInt32[Array, "..."] | Int32[Array, "..."]) -> Float32[Array, "..."]:
    """Read 32-bit patterns as float32; no arithmetic, so subnormals and NaN payloads survive."""
    return lax.bitcast_convert_type(bits, jnp.float32)


def to_bits(x: Float32[Array, "..."]) -> UInt32[Array, "..."]:
    """Patterns of float32 values, unchanged."""
    return lax.bitcast_convert_type(x, jnp.uint32)


def canonical(bits: UInt32[Array, "..."]) -> UInt32[Array, "..."]:
    """Replace every NaN pattern by the positive quiet one (D23c)."""
    return jnp.where((bits & np.uint32(MAGNITUDE)) > np.uint32(INF_BITS), np.uint32(NAN_BITS), bits)


_EXACT_INTEGER = 1 << 53
"""float64 holds every integer up to here."""
_LOOKED_AT = 1 << 20
"""Arrays up to this size are searched for codes that are too wide."""


def as_array(x: object, name: str) -> Array | np.ndarray:
    """Return arrays in this machine's byte order, and lists and numbers as numpy arrays.

    Everything behind this works on bit patterns, which a foreign byte order would scramble.

    Raises:
      ShapeError: when lists make no array.
    """
    if isinstance(x, np.ndarray) and not x.dtype.isnative:
        return x.astype(x.dtype.newbyteorder("="))
    if isinstance(x, jax.Array | np.ndarray):
        return x
    try:
        return np.asarray(x)
    except ValueError:
        raise ShapeError(
            name, f"a ragged {type(x).__name__}", "an array", "lists of one length"
        ) from None


def refuse_wide(codes: Array | np.ndarray, spec: FormatSpec, name: str = "codes") -> None:
    """Refuse codes with bits above the format's width, where that can be seen cheaply.

    Traced arrays and arrays of more than 2^20 codes are not looked at; their high bits are ignored.

    Raises:
      FormatError: naming the first code that is too wide.
    """
    if isinstance(codes, Tracer) or not 0 < codes.size <= _LOOKED_AT:
        return
    if codes.dtype.itemsize * 8 <= spec.bits and codes.dtype.kind == "u":
        return
    host = np.asarray(codes)
    limit = (1 << spec.bits) - 1
    if host.max() <= limit and (host.dtype.kind == "u" or host.min() >= 0):
        return
    at = np.unravel_index(np.argmax((host > limit) | (host < 0)), host.shape)
    where = "".join(f"[{int(i)}]" for i in at)
    value = int(host[at])
    shown = f"{value:#x}" if value >= 0 else str(value)
    raise FormatError(spec, f"{name}{where} is {shown}, beyond the {spec.bits} bits 0..{limit:#x}")


def as_float(x: object, name: str = "x") -> Array | np.ndarray:
    """Return ``x`` as a floating array without rounding anything.

    Python numbers and lists, integers that float64 holds included, become numpy float64, which the
    callers round to odd (D23e); JAX would round them to float32 first and the narrowing would then
    round twice.

    Raises:
      ShapeError: when the elements are not floating numbers.
    """
    array = as_array(x, name)
    if array is not x and array.dtype.kind in "iu" and not isinstance(x, np.generic):
        if ((array < -_EXACT_INTEGER) | (array > _EXACT_INTEGER)).any():
            raise ShapeError(name, "an integer beyond 2^53", "numbers that float64 holds exactly")
        array = array.astype(np.float64)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise ShapeError(
            name, array.dtype, "a floating dtype", f"{name}.astype(float32) if these are numbers"
        )
    if array.dtype.itemsize > 8:
        raise ShapeError(name, array.dtype, "float64 or narrower")
    return array


def round_magnitude(
    magnitude: UInt[Any, "..."],
    negative: Bool[Any, "..."],
    source: FormatSpec,
    target: FormatSpec,
    rounding: Rounding,
    random_bits: UInt32[Any, "..."] | None = None,
) -> UInt[Any, "..."]:
    """Round finite magnitudes to the target's grid, its exponent range unbounded above.

    The significand is cut at the target's last place, which stops falling at the target's emin
    (gradual underflow), and one unit is added when the rounding says so.  A carry runs into the
    exponent field by itself, because codes of one sign are consecutive integers.

    Args:
      magnitude: pattern of the source without its sign, unsigned, wide enough for ``source``.
      negative: the sign, which the directed roundings need.
      source: FP32 or FP64; has more mantissa bits than ``target``.
      target: a signed format with subnormals.
      rounding: the rule.
      random_bits: 32 bits per element, for STOCHASTIC only.

    Returns:
      Codes without sign; larger than ``target.max_code`` on overflow.
    """
    xp: Any = np if isinstance(magnitude, np.ndarray) else jnp
    a = xp.asarray(magnitude)
    kind = a.dtype.type
    width = kind(source.mantissa_bits)
    one = kind(1)
    field = a >> width
    hidden = xp.where(field == 0, kind(0), one << width)
    significand = (a & kind((1 << source.mantissa_bits) - 1)) | hidden
    exponent = xp.maximum(field, one)
    lowest = kind(target.emin + source.bias)
    floor = xp.maximum(exponent, lowest)
    drop = kind(source.mantissa_bits - target.mantissa_bits) + (floor - exponent)
    # Beyond width + 2 the quotient is 0 and the rest lies below half a unit: nothing changes.
    cut = xp.minimum(drop, kind(source.mantissa_bits + 2))
    quotient = significand >> cut
    rest = significand & ((one << cut) - one)
    half = one << (cut - one)
    if rounding is Rounding.STOCHASTIC:
        up = _below_fraction(random_bits, significand, rest, drop, xp)
    else:
        up = _round_up(rounding, quotient, rest, half, negative, xp)
    return quotient + up.astype(kind) + ((floor - lowest) << kind(target.mantissa_bits))


def _round_up(rounding, quotient, rest, half, negative, xp):
    odd = (quotient & quotient.dtype.type(1)) == 1
    some = rest > 0
    match rounding:
        case Rounding.RNE:
            return (rest > half) | ((rest == half) & odd)
        case Rounding.TOWARD_ZERO:
            return xp.zeros_like(some)
        case Rounding.UP:
            return some & ~negative
        case Rounding.DOWN:
            return some & negative
        case Rounding.NEAREST_AWAY:
            return rest >= half
        case Rounding.HALF_UP:
            return (rest > half) | ((rest == half) & ~negative)
        case _:
            return some & ~odd


def _below_fraction(random_bits, significand, rest, drop, xp):
    """``bits / 2^32 < rest / 2^drop``, compared as integers (D27)."""
    kind = significand.dtype.type
    span = kind(32)
    # drop <= 32: the threshold rest * 2^(32 - drop) is an integer.
    near = rest << (span - xp.minimum(drop, span))
    # drop > 32: an integer lies below a real exactly when it lies below its ceiling.
    far = xp.minimum(xp.maximum(drop, span) - span, kind(30))
    ceiling = (significand + ((kind(1) << far) - kind(1))) >> far
    # Between the quotient's end and bit 32 the whole significand is the rest.
    return xp.asarray(random_bits).astype(kind) < xp.where(drop <= span, near, ceiling)


def float64_bits_to_odd(x: Array | np.ndarray) -> UInt32[Any, "..."]:
    """Round float64 to odd to float32, as patterns (D23e).

    Lemma: rounding to odd to p bits, then by any rule to at most p - 2 bits, equals rounding once
    (Boldo and Melquiond 2008); float32 keeps 24, no narrower target more than 11:
    test_float64_is_not_rounded_twice.
    """
    xp: Any = np if isinstance(x, np.ndarray) else jnp
    u = x.view(np.uint64) if isinstance(x, np.ndarray) else lax.bitcast_convert_type(x, jnp.uint64)
    negative = (u >> np.uint64(63)) == 1
    magnitude = u & np.uint64((1 << 63) - 1)
    code = round_magnitude(magnitude, negative, FP64, FP32, Rounding.TO_ODD)
    code = xp.minimum(code, np.uint64(FP32.max_code)).astype(np.uint32)
    infinity = np.uint64(FP64.max_code + 1)
    code = xp.where(magnitude == infinity, np.uint32(INF_BITS), code)
    code = xp.where(magnitude > infinity, np.uint32(NAN_BITS), code)
    return code | (negative.astype(np.uint32) << np.uint32(31))


def float32_bits(x: Array | np.ndarray) -> UInt32[Any, "..."]:
    """Patterns of the float32 values of any floating array.

    Exact for every source of at most 32 bits, float64 is rounded to odd.  The sign of a float32 or
    float64 NaN is kept for the policies that look at it (D19); NaN of other sources likewise.
    """
    if x.dtype == np.float64:
        # numpy's scalars would leave their kind of integer; a vector does not.
        flat = x.reshape(-1) if isinstance(x, np.ndarray) else x
        return float64_bits_to_odd(flat).reshape(x.shape)
    if x.dtype == np.float32:
        return to_bits(jnp.asarray(x))
    spec = format(x.dtype)
    codes = dtype_codes(x, spec)
    sign = (codes & np.uint32(spec.sign_mask)) << np.uint32(32 - spec.bits)
    return widen_bits(codes, spec) | sign


def dtype_codes(x: Array | np.ndarray, spec: FormatSpec) -> UInt32[Array, "..."]:
    """Codes of an array that is stored in the dtype of ``spec``, as uint32."""
    if isinstance(x, np.ndarray):
        raw = x.view(f"u{x.dtype.itemsize}")
        return jnp.asarray(raw).astype(jnp.uint32)
    width = {4: jnp.uint4, 8: jnp.uint8, 16: jnp.uint16, 32: jnp.uint32}.get(spec.bits)
    if width is None:
        raise FormatError(spec, "no JAX array has this dtype here; give codes to widen instead")
    return lax.bitcast_convert_type(x, width).astype(jnp.uint32)


def widen_bits(codes: UInt[Array, "..."], spec: FormatSpec) -> UInt32[Array, "..."]:
    """float32 patterns of the values of codes; bits above the format's width are ignored.

    Exactness:
      Exact, NaN canonical: test_widen_equals_oracle runs every code of up to 16 bits.
    Gradient:
      None; codes are integers.
    """
    codes = codes.astype(jnp.uint32)
    if spec.special is Special.SCALE:
        codes = codes & np.uint32(0xFF)
        power = jnp.where(codes == 0, np.uint32(1 << 22), codes << np.uint32(23))
        return jnp.where(codes == np.uint32(255), np.uint32(NAN_BITS), power)
    if spec.exponent_bits == FP32.exponent_bits:
        return canonical(codes << np.uint32(32 - spec.bits))
    shift, hidden = 23 - spec.mantissa_bits, np.uint32(1 << 23)
    # Signed integers: the vector units compare them, unsigned ones they do not.
    placed = lax.bitcast_convert_type(
        (codes & np.uint32(spec.magnitude_mask)) << np.uint32(shift), jnp.int32
    )
    base = np.int32((127 - spec.bias) << 23)
    # Lemma: (2^emin + m ulp) - 2^emin is exact and, as emin > -126 + M, no float32 subnormal takes
    # part, so no flush can touch it (test_widen_equals_oracle).
    small = from_bits(placed + (base + np.int32(hidden))) - np.float32(2.0**spec.emin)
    value = jnp.where(
        placed < np.int32(hidden), lax.bitcast_convert_type(small, jnp.int32), placed + base
    )
    top = np.int32(spec.max_code << shift)
    if spec.inf_code is not None:
        infinity = np.int32(spec.inf_code << shift)
        value = jnp.where(placed == infinity, np.int32(INF_BITS), value)
        top = infinity
    sign = (codes >> np.uint32(spec.bits - 1)) << np.uint32(31)
    out = lax.bitcast_convert_type(value, jnp.uint32) | sign
    return jnp.where(placed > top, np.uint32(NAN_BITS), out) if spec.has_nan else out
