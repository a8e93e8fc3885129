"""Operands of a lowering: what the caller gave, as named inputs of the program."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from mxref.errors import FormatError, PolicyError, ShapeError
from mxref.formats import E2M1FN, E4M3FN, E5M2, FormatSpec, format
from mxref.machine.host import adapt
from mxref.mxarray import MXArray
from mxref.policy import NEURON_2_24, NumericPolicy
from mxref.policy import policy as resolve_policy
from mxref.program.layout import BLOCK, KMap
from mxref.program.parts import Input

WIRE_FORMATS = (E4M3FN, E5M2, E2M1FN)
_SOURCES = ("bfloat16", "float16")
_FLOATS = (*_SOURCES, "float32", "float64")


def wire_format(fmt: object) -> FormatSpec:
    """Resolve a format that MX bundles can carry.

    Raises:
      FormatError: for any other.
    """
    spec = format(fmt)
    if spec not in WIRE_FORMATS:
        names = ", ".join(f.name for f in WIRE_FORMATS)
        raise FormatError(spec, f"MX bundles carry {names}")
    return spec


def common_policy(policy: NumericPolicy | str | None, *operands: object) -> NumericPolicy:
    """Return the policy of the operands, or of the call; arrays default to NEURON_2_24.

    Raises:
      PolicyError: when they disagree (D23d).
    """
    brought = [q.policy for q in operands if isinstance(q, MXArray)]
    asked = [] if policy is None else [resolve_policy(policy)]
    found = list(dict.fromkeys(brought + asked))
    if len(found) > 1:
        raise PolicyError("policy", found[1], f"{found[0]}, the policy of the other operand")
    return found[0] if found else NEURON_2_24


def operand(
    name: str,
    value: object,
    fmt: object,
    *,
    axis: int,
    policy: NumericPolicy,
    source: object,
    kmap: KMap,
) -> Input:
    """Return an input with its data.

    Raises:
      FormatError, PolicyError, ShapeError: when the operand cannot be lowered; the message says
        what to change.
    """
    if isinstance(value, MXArray):
        return _quantized(name, value, fmt, axis=axis, kmap=kmap)
    if fmt is None:
        raise FormatError(fmt, f"{name} is an array and needs an element format")
    spec = wire_format(fmt)
    array = value if isinstance(value, jax.Array) else np.asarray(value)
    dtype = str(array.dtype.name)
    if dtype not in _FLOATS:
        raise ShapeError(name, dtype, "floats: " + ", ".join(_FLOATS))
    if not array.ndim or not array.size:
        raise ShapeError(name, list(array.shape), "at least one axis and no empty axis")
    cast = "" if source is None else format(source).name
    if cast not in ("", *_SOURCES):
        raise PolicyError("source", source, " or ".join(_SOURCES))
    common: dict[str, Any] = {"axis": axis, "kmap": kmap, "format": spec, "cast": bool(cast)}
    if spec.bits == 8:
        if not cast and dtype not in _SOURCES:
            # QuantizeMx reads bf16 and fp16 only, and narrowing must never happen unasked (D25c).
            allowed = f"bfloat16 or float16 for {name}, which is {dtype}"
            raise PolicyError("source", None, allowed)
        item = Input(name, "array", tuple(array.shape), dtype=cast or dtype, **common)
    else:
        item = Input(name, "mx", tuple(array.shape), dtype=cast, **common)
    return replace(item, data=adapt(item, array, policy))


def _quantized(name: str, q: MXArray, fmt: object, *, axis: int, kmap: KMap) -> Input:
    if fmt is not None and format(fmt) != q.format:
        raise FormatError(fmt, f"{name} is already quantized to {q.format}")
    wire_format(q.format)
    if not q.ndim or not q.size:
        raise ShapeError(name, list(q.shape), "at least one axis and no empty axis")
    if q.block != BLOCK or q.axis != axis:
        hint = f"quantize it with axis={axis}, block={BLOCK}"
        raise ShapeError(name, repr(q), f"blocks of {BLOCK} along axis {axis}", hint)
    if kmap != "adjacent":
        # Strided blocks hold rows a quarter of a tile apart, not 32 neighbours.
        allowed = f"adjacent for {name}, whose blocks are 32 consecutive rows"
        raise PolicyError("kmap", kmap, allowed)
    return Input(name, "mx", q.shape, axis, kmap, q.format, data=q)
