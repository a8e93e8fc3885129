"""The 32 metadata bits of a HiF4 group: one scale, eight doublings, sixteen doublings.

==========  =====  =================================================================
field       bits   meaning
==========  =====  =================================================================
``e6m2``    7:0    2^(e - 48) * (1 + m / 4), e = bits 7:2, m = bits 1:0; 0xFF is NaN
``e1_8``    15:8   bit b doubles lanes 8b to 8b + 7
``e1_16``   31:16  bit b doubles lanes 4b to 4b + 3
==========  =====  =================================================================

Source: the PTO tile ISA's HiF4X2 scale; D33.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float32, UInt8, UInt16, UInt32

from mxref.bits import NAN_BITS, from_bits
from mxref.hif4.thresholds import E6M2_BIAS, E6M2_NAN

GROUP = 64
"""Lanes that share one metadata word."""


class Metadata(NamedTuple):
    """The three levels of a metadata word."""

    e6m2: UInt8[Array, "..."]
    e1_8: UInt8[Array, "..."]
    e1_16: UInt16[Array, "..."]


def split_metadata(word: UInt32[Array, "..."]) -> Metadata:
    """Take metadata words apart.

    Exactness:
      Bit fields; inverse of :func:`join_metadata`.
    Gradient:
      None; the word is an integer.
    """
    word = jnp.asarray(word, jnp.uint32)
    return Metadata(
        (word & np.uint32(0xFF)).astype(jnp.uint8),
        (word >> np.uint32(8) & np.uint32(0xFF)).astype(jnp.uint8),
        (word >> np.uint32(16)).astype(jnp.uint16),
    )


def join_metadata(
    e6m2: UInt8[Array, "..."], e1_8: UInt8[Array, "..."], e1_16: UInt16[Array, "..."]
) -> UInt32[Array, "..."]:
    """Build metadata words from their three levels.

    Exactness:
      Bit fields; inverse of :func:`split_metadata`.
    Gradient:
      None; the word is an integer.
    """
    low = jnp.asarray(e6m2).astype(jnp.uint32) & np.uint32(0xFF)
    middle = jnp.asarray(e1_8).astype(jnp.uint32) & np.uint32(0xFF)
    high = jnp.asarray(e1_16).astype(jnp.uint32) & np.uint32(0xFFFF)
    return low | middle << np.uint32(8) | high << np.uint32(16)


def decode_e6m2(codes: UInt8[Array, "..."]) -> Float32[Array, "..."]:
    """Values of E6M2 codes: 2^-48 to 49152, no zero and no sign; 0xFF is NaN.

    Exactness:
      Exact for all 256 codes; the two fields are the top of a float32 pattern once rebased.
    Gradient:
      None; codes are integers.

    Example:
      >>> float(decode_e6m2(0xC2))
      1.5
    """
    codes = jnp.asarray(codes).astype(jnp.uint32) & np.uint32(0xFF)
    bits = (codes << np.uint32(21)) + np.uint32((127 - E6M2_BIAS) << 23)
    return from_bits(jnp.where(codes == np.uint32(E6M2_NAN), np.uint32(NAN_BITS), bits))


def doublings(word: UInt32[Array, "... 1 A"]) -> UInt32[Array, "... 16 A"]:
    """How often each run of four lanes is doubled: 0, 1 or 2; runs become the axis before the last.

    Exactness:
      Sums of two bits.
    Gradient:
      None; the word is an integer.
    """
    run = np.arange(16, dtype=np.uint32)[:, None]
    wide = word >> (run // np.uint32(2) + np.uint32(8))
    narrow = word >> (run + np.uint32(16))
    return (wide & np.uint32(1)) + (narrow & np.uint32(1))
