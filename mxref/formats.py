"""Number formats as one table of facts; every other quantity is computed from the row.

A row states the widths, what the top exponent means and whether there is a sign.  Bias, limits,
special codes and masks follow.  Standard library only: the oracle and the fast path both read it.

Source: OCP OFP8 v1.0, OCP MX v1.0 section 5.3, IEEE 754-2019; D18, D23c.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import cached_property

from mxref.errors import FormatError


class Special(Enum):
    """What the codes with the largest exponent field mean."""

    IEEE = "ieee"  #: Inf and NaN take the whole top exponent.
    FN = "fn"  #: no Inf; only the all-ones magnitude is NaN.
    FINITE = "finite"  #: no Inf and no NaN.
    SCALE = "scale"  #: unsigned power of two without zero; all ones is NaN (E8M0).


@dataclass(frozen=True)
class CodeSet:
    """A set of codes kept as ranges, so that float32's NaN codes cost nothing to name."""

    ranges: tuple[range, ...]

    def __contains__(self, code: object) -> bool:
        return any(code in r for r in self.ranges)

    def __iter__(self) -> Iterator[int]:
        for r in self.ranges:
            yield from r

    def __len__(self) -> int:
        return sum(len(r) for r in self.ranges)


@dataclass(frozen=True)
class FormatSpec:
    """One format.

    Attributes:
      name: canonical id, as in ml_dtypes where that has the format.
      alias: short name, the attribute of ``mxref``.
      exponent_bits: width of the exponent field.
      mantissa_bits: width of the explicit mantissa field.
      special: meaning of the top exponent.
    """

    name: str
    alias: str
    exponent_bits: int
    mantissa_bits: int
    special: Special

    @property
    def signed(self) -> bool:
        """Whether the top bit is a sign."""
        return self.special is not Special.SCALE

    @property
    def bits(self) -> int:
        """Width of a code."""
        return self.signed + self.exponent_bits + self.mantissa_bits

    @property
    def bias(self) -> int:
        """Exponent bias."""
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def sign_mask(self) -> int:
        """The sign bit, 0 for unsigned formats."""
        return (1 << (self.bits - 1)) if self.signed else 0

    @property
    def magnitude_mask(self) -> int:
        """All bits but the sign."""
        return (1 << (self.exponent_bits + self.mantissa_bits)) - 1

    @property
    def max_code(self) -> int:
        """Positive code of the largest finite value."""
        if self.special is Special.IEEE:
            return self.magnitude_mask - (1 << self.mantissa_bits)
        return self.magnitude_mask - (self.special is not Special.FINITE)

    @property
    def has_inf(self) -> bool:
        """Whether the format has infinities."""
        return self.special is Special.IEEE

    @property
    def has_nan(self) -> bool:
        """Whether the format has NaN."""
        return self.special is not Special.FINITE

    @property
    def has_subnormals(self) -> bool:
        """Whether exponent field 0 holds subnormals and zero."""
        return self.special is not Special.SCALE

    @property
    def inf_code(self) -> int | None:
        """Positive infinity's code."""
        return self.max_code + 1 if self.has_inf else None

    @property
    def nan_code(self) -> int | None:
        """The canonical, positive NaN (D23c)."""
        if self.special is Special.IEEE:
            return self.max_code + 1 + (1 << (self.mantissa_bits - 1))
        return self.magnitude_mask if self.has_nan else None

    @property
    def nan_codes(self) -> CodeSet:
        """Every NaN code, both signs."""
        if not self.has_nan:
            return CodeSet(())
        low = self.max_code + 1 + self.has_inf
        positive = range(low, self.magnitude_mask + 1)
        if not self.signed:
            return CodeSet((positive,))
        return CodeSet((positive, range(low + self.sign_mask, 2 * self.sign_mask)))

    @property
    def emax(self) -> int:
        """floor(log2(max))."""
        return (self.max_code >> self.mantissa_bits) - self.bias

    @property
    def emin(self) -> int:
        """Exponent of the smallest normal value."""
        return (1 if self.has_subnormals else 0) - self.bias

    @cached_property
    def max_value(self) -> Fraction:
        """The largest finite value, exactly."""
        mantissa = self.max_code & ((1 << self.mantissa_bits) - 1)
        significand = Fraction((1 << self.mantissa_bits) + mantissa, 1 << self.mantissa_bits)
        return significand * Fraction(2) ** self.emax

    @property
    def max(self) -> float:
        """The largest finite value."""
        return float(self.max_value)

    @property
    def min_normal(self) -> float:
        """The smallest positive normal value."""
        return 2.0**self.emin

    @property
    def min_subnormal(self) -> float:
        """The smallest positive value."""
        return 2.0 ** (self.emin - (self.mantissa_bits if self.has_subnormals else 0))

    @property
    def storage_bits(self) -> int:
        """Width of the unsigned integer a code is stored in: 8, 16 or 32."""
        return 8 if self.bits <= 8 else 16 if self.bits <= 16 else 32

    def __str__(self) -> str:
        return self.name


_TABLE = (
    #          name              alias        E   M  top exponent
    FormatSpec("float4_e2m1fn", "E2M1FN", 2, 1, Special.FINITE),
    FormatSpec("float6_e2m3fn", "E2M3FN", 2, 3, Special.FINITE),
    FormatSpec("float6_e3m2fn", "E3M2FN", 3, 2, Special.FINITE),
    FormatSpec("float8_e4m3fn", "E4M3FN", 4, 3, Special.FN),
    FormatSpec("float8_e4m3", "E4M3_IEEE", 4, 3, Special.IEEE),
    FormatSpec("float8_e5m2", "E5M2", 5, 2, Special.IEEE),
    FormatSpec("float8_e3m4", "E3M4", 3, 4, Special.IEEE),
    FormatSpec("float8_e8m0fnu", "E8M0", 8, 0, Special.SCALE),
    FormatSpec("bfloat16", "BF16", 8, 7, Special.IEEE),
    FormatSpec("float16", "FP16", 5, 10, Special.IEEE),
    FormatSpec("float32", "FP32", 8, 23, Special.IEEE),
)

FORMATS: dict[str, FormatSpec] = {spec.name: spec for spec in _TABLE}
"""Every format by canonical name, in table order."""

_BY_ALIAS = {spec.alias.lower(): spec for spec in _TABLE}
# Spellings of the field, each naming exactly one format.  Plain "e4m3" is absent on purpose (D18).
_SPELLINGS = {
    "e2m1": "float4_e2m1fn",
    "fp4": "float4_e2m1fn",
    "mxfp4": "float4_e2m1fn",
    "mxfp4_e2m1": "float4_e2m1fn",
    "e2m3": "float6_e2m3fn",
    "mxfp6_e2m3": "float6_e2m3fn",
    "e3m2": "float6_e3m2fn",
    "mxfp6_e3m2": "float6_e3m2fn",
    "mxfp8_e4m3": "float8_e4m3fn",
    "mxfp8_e5m2": "float8_e5m2",
    "float8_e4m3_ieee": "float8_e4m3",
    "e8m0fnu": "float8_e8m0fnu",
    "bf16": "bfloat16",
    "fp16": "float16",
    "f16": "float16",
    "fp32": "float32",
    "f32": "float32",
}
_AMBIGUOUS = {
    "e4m3": "say e4m3fn (max 448, no Inf) or e4m3_ieee (max 240, Inf)",
    "fp8": "say e4m3fn, e5m2, e4m3_ieee or e3m4",
    "mxfp8": "say e4m3fn or e5m2",
    "fp6": "say e2m3fn or e3m2fn",
    "mxfp6": "say e2m3fn or e3m2fn",
}

E2M1FN = FORMATS["float4_e2m1fn"]
E2M3FN = FORMATS["float6_e2m3fn"]
E3M2FN = FORMATS["float6_e3m2fn"]
E4M3FN = FORMATS["float8_e4m3fn"]
E4M3_IEEE = FORMATS["float8_e4m3"]
E5M2 = FORMATS["float8_e5m2"]
E3M4 = FORMATS["float8_e3m4"]
E8M0 = FORMATS["float8_e8m0fnu"]
BF16 = FORMATS["bfloat16"]
FP16 = FORMATS["float16"]
FP32 = FORMATS["float32"]


def format(spec: object) -> FormatSpec:
    """Resolve a format name, alias, :class:`FormatSpec` or (ml_dtypes, numpy, jax) dtype.

    Args:
      spec: for example ``"float8_e4m3fn"``, ``"e4m3fn"``, ``E4M3FN`` or ``jnp.float8_e4m3fn``.

    Returns:
      The row of the format table.

    Raises:
      FormatError: when the name is unknown, or names more than one format (``"e4m3"``, D18).  A
        dtype object ``float8_e4m3`` is not ambiguous: ml_dtypes means the IEEE-like one.

    Example:
      >>> format("e4m3fn").max
      448.0
    """
    if isinstance(spec, FormatSpec):
        return spec
    if isinstance(spec, str):
        key = spec.strip().lower()
        if key in _AMBIGUOUS:
            raise FormatError(spec, f"ambiguous, {_AMBIGUOUS[key]}")
        name = _SPELLINGS.get(key, key)
        found = FORMATS.get(name) or _BY_ALIAS.get(name)
    else:
        # numpy dtype instances have .name, scalar classes __name__, jax scalar types .dtype.name.
        inner = getattr(spec, "dtype", spec)
        name = getattr(inner, "name", None) or getattr(spec, "__name__", "")
        found = FORMATS.get(name) if isinstance(name, str) else None
    if found is None:
        raise FormatError(spec, "unknown; known: " + ", ".join(FORMATS))
    return found
