"""Equality of bits, and a sentence about the first one that differs.

Arrays are viewed as unsigned integers and compared there, so -0 differs from +0 and no tolerance
exists.  NaN is the one class with many patterns: ``nan="class"`` lets any NaN stand for any other,
``nan="payload"`` does not.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

import numpy as np

from mxref.errors import PolicyError
from mxref.formats import FORMATS, FP32, FormatSpec, Special
from mxref.formats import format as resolve

NanMode = Literal["class", "payload"]

_FLOAT64 = FormatSpec("float64", "FP64", 11, 52, Special.IEEE)
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True)
class Difference:
    """Where two arrays first differ, and how often.

    Attributes:
      path: member of a record, for example ``".scales"``; empty for plain arrays.
      index: index of the first difference in C order.
      got: code found there.
      want: code expected there.
      format: the format the codes are read in; None for integers.
      count: how many elements differ.
      size: how many were compared.
    """

    path: str
    index: tuple[int, ...]
    got: int
    want: int
    format: FormatSpec | None
    count: int
    size: int

    @property
    def ulp(self) -> int | None:
        """Steps from ``want`` to ``got`` on the format's grid; None where NaN or integers meet."""
        spec = self.format
        if spec is None or self.got in spec.nan_codes or self.want in spec.nan_codes:
            return None
        return _ordinal(self.got, spec) - _ordinal(self.want, spec)

    def __str__(self) -> str:
        where = self.path + (f"[{', '.join(map(str, self.index))}]" if self.index else "")
        ulp = f", {self.ulp:+d} ulp" if self.ulp else ""
        return (
            f"{self.count} of {self.size} elements differ, first {where or 'the scalar'}: "
            f"got {_show(self.got, self.format)}, want {_show(self.want, self.format)}{ulp}"
        )


def first_difference(
    got: Any, want: Any, nan: NanMode = "class", *, fmt: object | None = None
) -> Difference | None:
    """Compare bits and describe the first difference.

    Args:
      got: array, scalar, or a record of arrays (an ``MXArray`` for example).
      want: the same kind of thing.
      nan: ``"class"`` when any NaN equals any NaN, ``"payload"`` when the bits must agree.
      fmt: format of integer codes, so that the report can name values; floats know their own.

    Returns:
      None when every bit agrees.

    Raises:
      AssertionError: when type, dtype or shape differ, so that bits cannot be compared.
      PolicyError: when ``nan`` is neither word.

    Exactness:
      Compares bit patterns; no arithmetic is done on the values.
    Gradient:
      None: the result is a report.
    """
    if nan not in ("class", "payload"):
        raise PolicyError("nan", nan, "'class' or 'payload'")
    return _compare(got, want, nan, None if fmt is None else resolve(fmt), "")


def assert_bits_equal(
    got: Any, want: Any, nan: NanMode = "class", *, fmt: object | None = None
) -> None:
    """Raise AssertionError naming the first differing element in value, code and ulp.

    Args:
      got: array, scalar, or a record of arrays (an ``MXArray`` for example).
      want: the same kind of thing; dtype and shape must agree too.
      nan: ``"class"`` when any NaN equals any NaN, ``"payload"`` when the bits must agree.
      fmt: format of integer codes, so that the report can name values.

    Raises:
      AssertionError: when a bit, a dtype or a shape differs.

    Exactness:
      Compares bit patterns; -0 differs from +0.
    Gradient:
      None: nothing is returned.

    Example:
      >>> assert_bits_equal(np.float32([1, 0.0]), np.float32([1, -0.0]))
      Traceback (most recent call last):
      AssertionError: 1 of 2 elements differ, first [1]: got 0 (0x00000000), want -0 (0x80000000)...
    """
    difference = first_difference(got, want, nan, fmt=fmt)
    if difference is not None:
        raise AssertionError(str(difference))


def _compare(
    got: Any, want: Any, nan: NanMode, spec: FormatSpec | None, path: str
) -> Difference | None:
    if is_dataclass(got) or is_dataclass(want):
        return _compare_records(got, want, nan, spec, path)
    a, b = np.asarray(got), np.asarray(want)
    label = path or "arrays"
    if a.dtype != b.dtype:
        raise AssertionError(f"{label}: dtype {a.dtype}, want {b.dtype}")
    if a.shape != b.shape:
        raise AssertionError(f"{label}: shape {a.shape}, want {b.shape}")
    spec = spec or _spec_of(a.dtype)
    x, y = _codes(a, label), _codes(b, label)
    unequal = x != y
    if nan == "class" and spec is not None and spec.has_nan:
        unequal &= ~(_is_nan(x, spec) & _is_nan(y, spec))
    if not unequal.any():
        return None
    flat = int(unequal.argmax())
    index = tuple(int(i) for i in np.unravel_index(flat, a.shape))
    return Difference(
        path, index, int(x.flat[flat]), int(y.flat[flat]), spec, int(unequal.sum()), a.size
    )


def _compare_records(
    got: Any, want: Any, nan: NanMode, spec: FormatSpec | None, path: str
) -> Difference | None:
    if type(got) is not type(want):
        kinds = f"{type(got).__name__}, want {type(want).__name__}"
        raise AssertionError(f"{path or 'records'}: {kinds}")
    spec = spec or getattr(got, "format", None)
    for field in fields(got):
        a, b = getattr(got, field.name), getattr(want, field.name)
        if hasattr(a, "dtype") or hasattr(b, "dtype"):
            # Only a record's codes are in its format: its scales have another.
            inner = spec if field.name == "codes" else None
            found = _compare(a, b, nan, inner, f"{path}.{field.name}")
            if found is not None:
                return found
        elif a != b:
            raise AssertionError(f"{path}.{field.name}: {a}, want {b}")
    return None


def _codes(array: np.ndarray, label: str) -> np.ndarray:
    """The bits of an array as unsigned integers of the same width."""
    if array.dtype == np.bool_:
        return array.astype(np.uint8)
    unsigned = _UNSIGNED.get(array.dtype.itemsize)
    if unsigned is None or array.dtype.kind not in "iufV":
        raise AssertionError(f"{label}: dtype {array.dtype} has no bits to compare")
    return np.ascontiguousarray(array).view(unsigned).reshape(array.shape)


def _is_nan(codes: np.ndarray, spec: FormatSpec) -> np.ndarray:
    found = np.zeros(codes.shape, bool)
    for r in spec.nan_codes.ranges:
        found |= (codes >= r.start) & (codes < r.stop)
    return found


def _spec_of(dtype: np.dtype) -> FormatSpec | None:
    return _FLOAT64 if dtype == np.float64 else FORMATS.get(dtype.name)


def _ordinal(code: int, spec: FormatSpec) -> int:
    """Position on the number line: neighbours differ by one, and both zeros are 0."""
    magnitude = code & spec.magnitude_mask
    return -magnitude if code & spec.sign_mask else magnitude


def _show(code: int, spec: FormatSpec | None) -> str:
    if spec is None:
        return f"{code} ({code:#x})"
    value = _value(code, spec)
    # Nine digits name every float32, seventeen every float64.
    digits = 9 if spec.bits <= FP32.bits else 17
    return f"{value:.{digits}g} (0x{code:0{-(-spec.bits // 4)}X})"


def _value(code: int, spec: FormatSpec) -> float:
    """The value of one code; exact, since float64 holds every format of the table."""
    sign = -1.0 if code & spec.sign_mask else 1.0
    if code in spec.nan_codes:
        return float("nan")
    magnitude = code & spec.magnitude_mask
    if magnitude == spec.inf_code:
        return sign * float("inf")
    exponent, mantissa = magnitude >> spec.mantissa_bits, magnitude % (1 << spec.mantissa_bits)
    if exponent or not spec.has_subnormals:
        mantissa += 1 << spec.mantissa_bits
    else:
        exponent = 1
    return sign * mantissa * 2.0 ** (exponent - spec.bias - spec.mantissa_bits)
