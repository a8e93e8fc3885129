"""One side of a dot product: codes and scales as exact values, and the range those values span."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int, UInt

from mxref.bits import MAGNITUDE, from_bits, widen_bits
from mxref.dot import exact
from mxref.formats import FormatSpec
from mxref.policy import NumericPolicy, Products, ScaleCodes

_NONE = 10_000  # exponent beyond every value's: the range of an operand without nonzero values
_NAN_SCALE = 0xFF


class Span(NamedTuple):
    """Exponents bounding the finite nonzero values of an operand.

    Attributes:
      low: every magnitude is at least ``2**low``.
      unit: every value is a multiple of ``2**unit``.
      top: every magnitude is below ``2**top``.
    """

    low: Int[Array, ""]
    unit: Int[Array, ""]
    top: Int[Array, ""]


@dataclass(frozen=True)
class Operand:
    """Codes with K first, one scale per block of ``block`` along K; ``scales`` None when plain.

    Attributes:
      codes: ``[K, R]`` codes of ``fmt``, in its storage integer.
      scales: ``[ceil(K / block), R]`` E8M0 codes, or None.
      fmt: element format.
      policy: meaning of the scale codes, and where scaled operands are rounded.
      block: elements per scale.
    """

    codes: UInt[Array, "K R"]
    scales: UInt[Array, "B R"] | None
    fmt: FormatSpec
    policy: NumericPolicy
    block: int

    @property
    def extent(self) -> int:
        """K."""
        return self.codes.shape[0]

    def nan_scales(self, scales: UInt[Array, "B R"]) -> Bool[Array, "B R"]:
        """Which scale codes are NaN (D20)."""
        if self.policy.scale_codes is ScaleCodes.EXPONENT:
            return jnp.zeros(scales.shape, bool)
        return scales == jnp.uint8(_NAN_SCALE)

    def live_blocks(self) -> Bool[Array, "B R"]:
        """Which blocks hold a code other than a zero."""
        nonzero = (self.codes & jnp.asarray(self.fmt.magnitude_mask, self.codes.dtype)) != 0
        padded = jnp.pad(nonzero, ((0, -self.extent % self.block), (0, 0)))
        return padded.reshape(-1, self.block, self.codes.shape[1]).any(axis=1)

    def settle(self) -> Operand:
        """Give all-zero blocks the scale 1, so that they neither widen the span nor make 0 * Inf.

        Zeros stay zeros of their sign under every scale but a NaN, which is left alone.
        """
        if self.scales is None:
            return self
        idle = ~self.live_blocks() & ~self.nan_scales(self.scales)
        return replace(self, scales=jnp.where(idle, jnp.uint8(127), self.scales))

    def span(self) -> Span:
        """The range of the values, from scale codes or from float32 exponent fields."""
        if self.scales is None:
            bits = self.float32_bits()
            field = (bits >> 23) & jnp.uint32(0xFF)
            nonzero = (bits & jnp.uint32(MAGNITUDE)) != 0
            live = nonzero & (field < jnp.uint32(0xFF))
            exponents = jnp.maximum(field, jnp.uint32(1)).astype(jnp.int32) - 127
            # A subnormal float32 has no exponent of its own: -149 keeps it out of every fast path.
            lows = jnp.where(field == 0, jnp.int32(-149), exponents)
            low, top_add = jnp.where(live, lows, _NONE).min(), 1
            unit = low - self.fmt.mantissa_bits
        else:
            live = ~self.nan_scales(self.scales)
            exponents = self.scales.astype(jnp.int32) - 127
            smallest = 1 - self.fmt.bias - self.fmt.mantissa_bits
            low, top_add = jnp.where(live, exponents, _NONE).min() + smallest, self.fmt.emax + 1
            unit = low
        return Span(low, unit, jnp.where(live, exponents, -_NONE).max() + top_add)

    def float32_bits(self) -> UInt[Array, "K R"]:
        """float32 patterns of the unscaled elements, subnormals included, NaN canonical."""
        return widen_bits(self.codes, self.fmt)

    def elements(self) -> Float[Array, "K R"]:
        """The unscaled elements as float32."""
        return from_bits(self.float32_bits())

    def spread(self, per_block: Array) -> Array:
        """Repeat a per-block array over the elements of its blocks, cut at K."""
        return jnp.repeat(per_block, self.block, axis=0)[: self.extent]

    def values32(self) -> Float[Array, "K R"]:
        """The scaled values in float32: exact when :class:`Span` shows them normal and finite."""
        if self.scales is None:
            return self.elements()
        nan = self.nan_scales(self.scales)
        factor = from_bits(self.scales.astype(jnp.uint32) << 23)
        return self.elements() * self.spread(jnp.where(nan, jnp.float32(jnp.nan), factor))

    def values64(self) -> Float[Array, "K R"]:
        """The scaled values in float64, exact for every code and scale; no policy rounding.

        Lemma: 24 bits times 2^-149..2^127 times 2^-127..2^128 stays inside normal float64.
        """
        if self.fmt.bits <= 8:  # every such value is zero or a normal float32
            elements = self.elements().astype(jnp.float64)
        else:
            elements = exact.carry(self.float32_bits())
        if self.scales is None:
            return elements
        return elements * self.spread(self.factors64())

    def factors64(self) -> Float[Array, "B R"]:
        """The scales of a scaled operand in float64."""
        assert self.scales is not None
        power = exact.power_of_two(self.scales.astype(jnp.int32) - 127)
        return jnp.where(self.nan_scales(self.scales), jnp.asarray(jnp.nan, jnp.float64), power)

    def factored64(self) -> Float[Array, "K R"]:
        """The values that enter products: rounded to float32 first where the policy says so."""
        values = self.values64()
        if self.scales is not None and self.policy.products is Products.OPERANDS:
            return exact.round_value(values)
        return values
