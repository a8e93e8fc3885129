"""Quantize to HiF4: three maxima, then integer comparisons with :mod:`mxref.hif4.thresholds`."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Int32, UInt8, UInt32

from mxref.bits import INF_BITS, MAGNITUDE, as_float, float32_bits, from_bits
from mxref.errors import GradientError, PolicyError
from mxref.hif4.array import HiF4Array, metadata_shape, negative_axis
from mxref.hif4.metadata import GROUP
from mxref.hif4.thresholds import (
    E6M2_MAX,
    E6M2_NAN,
    UNIT_CODE,
    Carrier,
    Ties,
    doubling_steps,
    lane_steps,
    scale_steps,
)


def quantize(
    x: object,
    *,
    axis: int = -1,
    ties: Ties | str = Ties.AWAY,
    source: Carrier | str = Carrier.BF16,
    product: Carrier | str = Carrier.BF16,
) -> HiF4Array:
    """Quantize groups of 64 consecutive elements to HiF4.

    With ``bf16`` for rounding to bfloat16 (nearest, ties to even) and R = bf16(1 / S)::

        S     = E6M2 nearest to bf16(max|x| * bf16(1/7)), ties to even, clamped to [2^-48, 49152]
        E1_8  = max|x| of each 8 lanes * R >= 4
        E1_16 = max|x| of each 4 lanes * R * 2^-E1_8 >= 2
        lane  = min(round(4 * bf16(|x| * R) * 2^-(E1_8 + E1_16)), 7), with x's sign

    The products with the maxima are compared unrounded, as in the official and the AMCT quantizers.
    The sign is kept on lanes that become zero (D18).  A short last group is filled with zeros that
    are never stored (D23g).

    Args:
      x: floats of any dtype.  A group with NaN or Inf gets the E6M2 code 0xFF and so decodes to
        NaN; its other fields are those of the group with zeros there, as in the AMCT quantizer.
      axis: the axis the groups run along.
      ties: AWAY rounds a lane halfway between two codes to the larger magnitude, EVEN to the even
        code (D33).
      source: BF16 rounds x to bfloat16 first, so a float32 beyond bfloat16's range counts as Inf;
        EXACT takes x as it is (float64 rounded to odd to float32, D23e).
      product: BF16 rounds |x| * R to bfloat16 before the last rounding, as the AMCT quantizer
        does; EXACT does not, as in the official reference.

    Returns:
      A :class:`HiF4Array`.

    Raises:
      ShapeError: when x is not floating, or lacks the axis.
      PolicyError: when an option is none of the above.

    Exactness:
      Bit-exact for every float32, bfloat16 and float16 input, subnormals included: each decision is
      one integer comparison with a threshold derived from fractions
      (test_thresholds_are_where_the_definition_changes).
    Gradient:
      None; a derivative raises GradientError.  :func:`fake_quantize` is the differentiable form.

    Example:
      >>> q = quantize([7.0, 0.5, -1.5])
      >>> hex(int(q.metadata[0])), [int(c) for c in q.codes]
      ('0x101c0', [7, 1, 10])
    """
    array = as_float(x)
    options = check_options(ties, source, product)
    axis = negative_axis(axis, array.ndim)
    if isinstance(array, np.ndarray):
        array = from_bits(jnp.asarray(float32_bits(array)))
    codes, metadata = _quantize(array, axis, *options)
    return HiF4Array(codes, metadata, axis=axis)


def check_options(
    ties: Ties | str, source: Carrier | str, product: Carrier | str
) -> tuple[Ties, Carrier, Carrier]:
    """Resolve the three options.

    Raises:
      PolicyError: when one of them is unknown.
    """
    given = (("ties", ties, Ties), ("source", source, Carrier), ("product", product, Carrier))
    for name, value, kind in given:
        if value not in tuple(kind):
            raise PolicyError(f"hif4.{name}", value, ", ".join(kind))
    return Ties(ties), Carrier(source), Carrier(product)


@partial(jax.custom_jvp, nondiff_argnums=(1, 2, 3, 4))
@partial(jax.jit, static_argnums=(1, 2, 3, 4))
def _quantize(
    x: Array, axis: int, ties: Ties, source: Carrier, product: Carrier
) -> tuple[UInt8[Array, "..."], UInt32[Array, "..."]]:
    return quantize_bits(float32_bits(x), axis, ties, source, product)


@_quantize.defjvp
def _quantize_jvp(axis, ties, source, product, primals, tangents):
    raise GradientError("hif4.quantize", "hif4.fake_quantize")


def quantize_bits(
    bits: UInt32[Array, "..."], axis: int, ties: Ties, source: Carrier, product: Carrier
) -> tuple[UInt8[Array, "..."], UInt32[Array, "..."]]:
    """Codes and metadata of float32 patterns; the traceable body of :func:`quantize`.

    Exactness:
      As :func:`quantize`.
    Gradient:
      None; patterns are integers.
    """
    grouped = split_groups(bits, axis)
    codes, words = _encode(grouped, ties, source, product)
    return join_groups(codes, bits.shape, axis), words.reshape(metadata_shape(bits.shape, axis))


def split_groups(array: Array, axis: int) -> Array:
    """Reshape to [groups, 8, 2, 4, after], filling the last group of each line with zeros.

    The axes behind the grouped one stay behind, so that groups along any other axis than the last
    are worked on in whole rows.
    """
    n = array.shape[axis]
    before, after = math.prod(array.shape[:axis]), math.prod(array.shape[array.ndim + axis + 1 :])
    groups = -(-n // GROUP)
    array = array.reshape(before, n, after)
    if n % GROUP:
        array = jnp.pad(array, ((0, 0), (0, groups * GROUP - n), (0, 0)))
    return array.reshape(before * groups, 8, 2, 4, after)


def join_groups(grouped: Array, shape: tuple[int, ...], axis: int) -> Array:
    """Inverse of :func:`split_groups`."""
    before, after = math.prod(shape[:axis]), grouped.shape[-1]
    filled = -(-shape[axis] // GROUP) * GROUP
    return grouped.reshape(before, filled, after)[:, : shape[axis]].reshape(shape)


def _encode(
    bits: UInt32[Array, "G 8 2 4 A"], ties: Ties, source: Carrier, product: Carrier
) -> tuple[UInt8[Array, "G 8 2 4 A"], UInt32[Array, "G A"]]:
    # 0x7F7F8000 is the smallest magnitude that rounds to bfloat16's Inf.
    limit = np.int32(0x7F7F_8000 if source is Carrier.BF16 else INF_BITS)
    magnitude = (bits & np.uint32(MAGNITUDE)).astype(jnp.int32)
    finite = magnitude < limit
    magnitude = jnp.where(finite, magnitude, np.int32(0))
    # Barriers keep XLA from redoing a group's work for each of its lanes: twice the speed.
    peak4, finite4 = lax.optimization_barrier((jnp.max(magnitude, 3), jnp.all(finite, 3)))
    # Rounding to bfloat16 is monotone, so it commutes with the maximum.
    carry = _round_bf16 if source is Carrier.BF16 else lambda pattern: pattern
    peak4 = carry(peak4)
    peak8 = jnp.max(peak4, 2)
    scale = _scale_code(jnp.max(peak8, 1))
    mantissa = scale & np.int32(3)
    exponent = (scale >> np.int32(2)) << np.int32(23)

    four = (exponent + _by_mantissa(doubling_steps(), mantissa))[:, None]
    e1_8 = (peak8 >= four).astype(jnp.int32)
    two = four - ((np.int32(1) - e1_8) << np.int32(23))
    e1_16 = (peak4 >= two[:, :, None]).astype(jnp.int32)

    shift = (e1_8[:, :, None] + e1_16) << np.int32(23)
    shift += exponent[:, None, None]
    shift, mantissa = lax.optimization_barrier((shift, mantissa))
    relative = carry(magnitude) - shift[:, :, :, None]
    code = jnp.zeros_like(relative)
    for steps in zip(*lane_steps(ties, product), strict=True):
        code += (relative >= _by_mantissa(steps, mantissa)[:, None, None, None]).astype(jnp.int32)
    sign = jnp.where(finite, (bits >> np.uint32(28) & np.uint32(8)).astype(jnp.int32), np.int32(0))

    e6m2 = jnp.where(jnp.all(finite4, (1, 2)), scale, np.int32(E6M2_NAN))
    words = e6m2.astype(jnp.uint32) | _bit_field(e1_8, 8)
    words |= _bit_field(e1_16.reshape(e1_16.shape[0], 16, e1_16.shape[-1]), 16)
    return (code | sign).astype(jnp.uint8), words


def _round_bf16(magnitude: Int32[Array, "..."]) -> Int32[Array, "..."]:
    odd = magnitude >> np.int32(16) & np.int32(1)
    return (magnitude + np.int32(0x7FFF) + odd) & np.int32(0x7FFF_0000)


def _scale_code(peak: Int32[Array, "..."]) -> Int32[Array, "..."]:
    """E6M2 code of a group's largest magnitude; zero and all that is tiny clamp to code 0."""
    code = ((peak >> np.int32(23)) - np.int32(127)) * np.int32(4) + np.int32(UNIT_CODE)
    mantissa = peak & np.int32(0x7F_FFFF)
    for step in scale_steps():
        code += (mantissa >= np.int32(step)).astype(jnp.int32)
    return jnp.clip(code, np.int32(0), np.int32(E6M2_MAX))


def _by_mantissa(table: tuple[int, ...], mantissa: Int32[Array, "..."]) -> Int32[Array, "..."]:
    # Selects, because a gather of four entries is not vectorised on the CPU.
    a, b, c, d = (np.int32(entry) for entry in table)
    low = jnp.where(mantissa == 0, a, b)
    return jnp.where(mantissa < 2, low, jnp.where(mantissa == 2, c, d))


def _bit_field(flags: Int32[Array, "G b A"], position: int) -> UInt32[Array, "G A"]:
    """Flags as bits of a word, flag b at bit ``position + b`` (D33)."""
    places = np.arange(flags.shape[1], dtype=np.uint32)[:, None] + np.uint32(position)
    return jnp.sum(flags.astype(jnp.uint32) << places, axis=1, dtype=jnp.uint32)
