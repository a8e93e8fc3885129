"""Pack codes into the containers that hardware and files use (D21)."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, UInt8, UInt16, UInt32

from mxref.bits import as_array, refuse_wide
from mxref.errors import FormatError, PolicyError, ShapeError
from mxref.formats import E2M1FN, FormatSpec, format

_GGML_BLOCK = 32
# XLA fuses packing into whatever makes the codes and then computes them one by one, 20 times slower
# than two kernels.  It does not fuse into a loop, so large arrays are packed by a short one.
_APART = 1 << 14
_CHUNKS = 4


def _codes(
    x: object, name: str, dtype: type[np.unsignedinteger], spec: FormatSpec | None = None
) -> Array:
    array = as_array(x, name)
    if array.dtype == np.int64 and array is not x and spec is not None:
        refuse_wide(array, spec, name)
        array = np.asarray(array).astype(dtype)
    if array.dtype != dtype or not array.ndim:
        raise ShapeError(name, f"{array.dtype}{list(array.shape)}", f"{np.dtype(dtype)}[..., n]")
    if spec is not None:
        refuse_wide(array, spec, name)
    return jnp.asarray(array)


def _multiple(x: Array, of: int, hint: str = "") -> None:
    if x.shape[-1] % of:
        raise ShapeError("codes", x.shape, f"a last axis that is a multiple of {of}", hint)


def _order(order: str) -> str:
    if order not in ("linear", "ggml"):
        raise PolicyError("order", order, "linear, ggml")
    return order


def pack_fp4(codes: object, order: str = "linear") -> UInt8[Array, "..."]:
    """Put two 4-bit codes in one byte.

    Args:
      codes: uint8[..., n] or a list of integers.  Codes of more than 4 bits are refused; in traced
        arrays and in those of more than 2^20 codes the high nibble is ignored.
      order: "linear" puts element 2i in the low nibble of byte i and 2i + 1 in the high one;
        "ggml" works on blocks of 32 and pairs element i (low) with i + 16 (high), as llama.cpp's
        mxfp4 blocks do (D21).

    Returns:
      uint8[..., n / 2].

    Raises:
      FormatError: when a code has more than 4 bits.
      ShapeError: when n is odd, or no multiple of 32 with "ggml".

    Exactness:
      Moves bits.
    Gradient:
      None; codes are integers.

    Example:
      >>> [hex(b) for b in pack_fp4(np.array([1, 2, 3, 15], np.uint8)).tolist()]
      ['0x21', '0xf3']
    """
    array = _codes(codes, "codes", np.uint8, E2M1FN)
    _multiple(array, 2 if _order(order) == "linear" else _GGML_BLOCK, "pad with code 0")
    return _pack_fp4(array, order)


@partial(jax.jit, static_argnums=1)
def _pack_fp4(codes: Array, order: str) -> Array:
    low = np.uint8(15)
    if order == "ggml":
        halves = codes.reshape(*codes.shape[:-1], -1, 2, _GGML_BLOCK // 2) & low
        packed = halves[..., 0, :] | (halves[..., 1, :] << np.uint8(4))
        return packed.reshape(*codes.shape[:-1], codes.shape[-1] // 2)
    flat = codes.reshape(-1)
    if flat.size >= _APART and flat.size % (2 * _CHUNKS) == 0:
        packed = lax.map(_pairs, flat.reshape(_CHUNKS, -1))
    else:
        packed = _pairs(flat)
    return packed.reshape(*codes.shape[:-1], codes.shape[-1] // 2)


def _pairs(flat: Array) -> Array:
    # Reading two bytes as one word keeps XLA's CPU code vectorised; strided slices do not.
    word = lax.bitcast_convert_type(flat.reshape(-1, 2) & np.uint8(15), jnp.uint16)
    return (word | (word >> np.uint16(4))).astype(jnp.uint8)


def unpack_fp4(packed: object, order: str = "linear") -> UInt8[Array, "..."]:
    """Undo :func:`pack_fp4`.

    Args:
      packed: uint8[..., n / 2].
      order: as in :func:`pack_fp4`; "ggml" needs a multiple of 16 bytes.

    Returns:
      uint8[..., n], high nibbles zero.

    Exactness:
      Moves bits.
    Gradient:
      None; codes are integers.
    """
    array = _codes(packed, "packed", np.uint8)
    if _order(order) == "ggml":
        _multiple(array, _GGML_BLOCK // 2)
    return _unpack_fp4(array, order)


@partial(jax.jit, static_argnums=1)
def _unpack_fp4(packed: Array, order: str) -> Array:
    shape = (*packed.shape[:-1], packed.shape[-1] * 2)
    low, high = packed & np.uint8(15), packed >> np.uint8(4)
    if order == "linear":
        return jnp.stack([low, high], axis=-1).reshape(shape)
    blocks = (*packed.shape[:-1], -1, _GGML_BLOCK // 2)
    return jnp.stack([low.reshape(blocks), high.reshape(blocks)], axis=-2).reshape(shape)


def _x4_format(fmt: object) -> FormatSpec:
    spec = format(fmt)
    if spec.bits not in (4, 8):
        raise FormatError(spec, "x4 words hold formats of 4 or 8 bits")
    return spec


def pack_x4(
    codes: object, fmt: object = "float8_e4m3fn"
) -> UInt32[Array, "..."] | UInt16[Array, "..."]:
    """Put four consecutive codes in one word, element 0 lowest.

    Args:
      codes: uint8[..., 4n] or a list of integers; too wide codes as in :func:`pack_fp4`.
      fmt: the codes' format; 8 bits fill a uint32, 4 bits a uint16 (D21).

    Returns:
      uint32[..., n] or uint16[..., n].

    Raises:
      ShapeError: when the last axis is no multiple of 4.
      FormatError: for formats of other widths, and when a code has more bits than the format.

    Exactness:
      Moves bits.
    Gradient:
      None; codes are integers.

    Example:
      >>> hex(int(pack_x4(np.array([1, 2, 3, 0x84], np.uint8))[0]))
      '0x84030201'
    """
    spec = _x4_format(fmt)
    array = _codes(codes, "codes", np.uint8, spec)
    _multiple(array, 4, "pad with code 0")
    return _pack_x4(array, spec.bits)


@partial(jax.jit, static_argnums=1)
def _pack_x4(codes: Array, bits: int) -> Array:
    dtype = jnp.uint32 if bits == 8 else jnp.uint16
    lanes = codes.reshape(*codes.shape[:-1], codes.shape[-1] // 4, 4)
    lanes = (lanes & np.uint8((1 << bits) - 1)).astype(dtype)
    one, two, three = (lanes[..., k] << np.asarray(k * bits, dtype) for k in (1, 2, 3))
    return lanes[..., 0] | one | two | three


def unpack_x4(words: object, fmt: object = "float8_e4m3fn") -> UInt8[Array, "..."]:
    """Undo :func:`pack_x4`.

    Args:
      words: uint32[..., n] for 8-bit formats, uint16[..., n] for FP4.
      fmt: the codes' format.

    Returns:
      uint8[..., 4n].

    Exactness:
      Moves bits.
    Gradient:
      None; codes are integers.
    """
    bits = _x4_format(fmt).bits
    return _unpack_x4(_codes(words, "words", np.uint32 if bits == 8 else np.uint16), bits)


@partial(jax.jit, static_argnums=1)
def _unpack_x4(words: Array, bits: int) -> Array:
    shifts = np.arange(4, dtype=words.dtype) * np.asarray(bits, words.dtype)
    lanes = (words[..., None] >> shifts) & np.asarray((1 << bits) - 1, words.dtype)
    return lanes.astype(jnp.uint8).reshape(*words.shape[:-1], words.shape[-1] * 4)
