"""Every numeric choice the sources leave open, as enumerations and one frozen record (D17-D23).

Standard library only.  Policies are hashable, compare by value, and travel as static metadata.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from operator import index
from typing import TypeVar

from mxref.errors import PolicyError

E = TypeVar("E", bound=Enum)


def member(option: str, enum: type[E], value: object) -> E:
    """Resolve a member of an enumeration or its string value.

    Raises:
      PolicyError: when the enumeration has no such member.
    """
    try:
        return enum(value.lower() if isinstance(value, str) else value)
    except (ValueError, TypeError):
        allowed = ", ".join(str(item.value) for item in enum)
        raise PolicyError(option, repr(value), allowed) from None


class Rounding(Enum):
    """How a value between two neighbours of the target grid is resolved."""

    RNE = "rne"  #: to nearest, ties to the even code.
    TOWARD_ZERO = "toward_zero"  #: truncate.
    UP = "up"  #: toward plus infinity.
    DOWN = "down"  #: toward minus infinity.
    NEAREST_AWAY = "nearest_away"  #: to nearest, ties away from zero.
    HALF_UP = "half_up"  #: to nearest, ties toward plus infinity.
    TO_ODD = "to_odd"  #: inexact results take the neighbour with the odd code.
    STOCHASTIC = "stochastic"  #: up when the random bits are below the discarded fraction (D27).


class ScaleRule(Enum):
    """How a block's largest magnitude becomes its E8M0 code, before clamping (D19)."""

    FLOOR = "floor"  #: floor(log2 amax) - emax.
    CEIL = "ceil"  #: ceil(log2 amax) - emax.
    EVEN = "even"  #: floor(log2 of amax rounded to the element's mantissa width) - emax.
    RCEIL = "rceil"  #: ceil(log2(amax / max_finite)), from the exact quotient.
    HEADROOM = "headroom"  #: floor(log2 amax) - (emax - 1).

    @classmethod
    def _missing_(cls, value: object) -> ScaleRule | None:
        return cls.HEADROOM if value == "nki" else None


class E8M0Rounding(Enum):
    """How one positive value becomes an E8M0 code, without reference to an element format."""

    FLOOR = "floor"  #: the largest power of two not above.
    CEIL = "ceil"  #: the smallest power of two not below.
    NEAREST_UP = "nearest_up"  #: arithmetic nearest, ties up (what ml_dtypes does).
    NEAREST_EVEN = "nearest_even"  #: arithmetic nearest, ties to the even code.
    LOG_RNE = "log_rne"  #: nearest exponent: the boundary is sqrt(2) (PTO).


class NonFinite(Enum):
    """What NaN or Inf in a block does to its scale."""

    POISON = "poison"  #: scale 0xFF and every element NaN (code 0 where the format has none).
    EXPONENT = "exponent"  #: exponent field 255 is used like any other.


class NanElement(Enum):
    """What a NaN element becomes when its block is not poisoned."""

    CODE = "code"  #: the canonical NaN code (0 where the format has none).
    SIGNED_ZERO = "signed_zero"  #: zero with the NaN's sign bit.


class ScaleCodes(Enum):
    """What E8M0 codes mean when they are applied (D20)."""

    OCP = "ocp"  #: 0xFF is NaN.
    EXPONENT = "exponent"  #: ldexp(x, code - 127) with no special code.


class Products(Enum):
    """Where a scaled product is rounded to float32 (D23a)."""

    ONCE = "once"  #: fl32(a * b * 2^(sa + sb)), from the exact value.
    OPERANDS = "operands"  #: each scaled operand is rounded first, then the product.


_ENUMS: dict[str, type[Enum]] = {
    "scale_rule": ScaleRule,
    "nonfinite": NonFinite,
    "nan_element": NanElement,
    "scale_codes": ScaleCodes,
    "products": Products,
}
_MAX_SCALE_CODE = 254  # 255 is the code of NaN


def _scale_code(value: object) -> int:
    allowed = f"an integer 0..{_MAX_SCALE_CODE}"
    try:
        # index() itself refuses what is no integer, whatever the annotation says.
        number = -1 if isinstance(value, bool) else index(value)  # pyright: ignore[reportArgumentType]
    except TypeError:
        number = -1
    if not 0 <= number <= _MAX_SCALE_CODE:
        raise PolicyError("min_scale_code", repr(value), allowed)
    return number


@dataclass(frozen=True)
class NumericPolicy:
    """One reading of the MX arithmetic.

    Enumerations may be given by their string value, for example ``scale_rule="rceil"``.

    Attributes:
      name: label, for messages and files.
      scale_rule: how the block maximum becomes a scale.
      min_scale_code: lowest code a quantizer emits, 0..254.
      nonfinite: what NaN or Inf in a block does.
      nan_element: what a NaN element becomes when the block is not poisoned.
      scale_codes: meaning of codes when they are applied.
      products: where scaled products are rounded.
      saturate: clamp after rounding; None picks the format's default (D23e).
    """

    name: str
    scale_rule: ScaleRule
    min_scale_code: int = 0
    nonfinite: NonFinite = NonFinite.POISON
    nan_element: NanElement = NanElement.CODE
    scale_codes: ScaleCodes = ScaleCodes.OCP
    products: Products = Products.ONCE
    saturate: bool | None = True

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise PolicyError("name", repr(self.name), "a str")
        for option, enum in _ENUMS.items():
            object.__setattr__(self, option, member(option, enum, getattr(self, option)))
        object.__setattr__(self, "min_scale_code", _scale_code(self.min_scale_code))
        if self.saturate is not None and not isinstance(self.saturate, bool):
            raise PolicyError("saturate", repr(self.saturate), "True, False, None")

    def __str__(self) -> str:
        return self.name


OCP = NumericPolicy("OCP", ScaleRule.FLOOR)
NVIDIA = NumericPolicy("NVIDIA", ScaleRule.RCEIL)
NEURON_2_24 = NumericPolicy(
    "NEURON_2_24",
    ScaleRule.FLOOR,
    min_scale_code=1,
    nonfinite=NonFinite.EXPONENT,
    nan_element=NanElement.SIGNED_ZERO,
    scale_codes=ScaleCodes.EXPONENT,
    products=Products.OPERANDS,
)
NEURON_2_31 = NumericPolicy(
    "NEURON_2_31",
    ScaleRule.HEADROOM,
    nonfinite=NonFinite.EXPONENT,
    scale_codes=ScaleCodes.EXPONENT,
    products=Products.OPERANDS,
)

POLICIES: dict[str, NumericPolicy] = {p.name: p for p in (OCP, NVIDIA, NEURON_2_24, NEURON_2_31)}
"""The named profiles of D19."""


def policy(spec: object) -> NumericPolicy:
    """Resolve a profile name (any case) or pass a :class:`NumericPolicy` through.

    Raises:
      PolicyError: when the name is unknown.
    """
    if isinstance(spec, NumericPolicy):
        return spec
    found = POLICIES.get(str(spec).upper())
    if found is None:
        raise PolicyError("policy", spec, ", ".join(POLICIES))
    return found


class Order(Enum):
    """The families of accumulation order (D23)."""

    BLOCK = "block"
    SEQUENTIAL = "sequential"
    SYSTOLIC = "systolic"
    C_FIRST = "c_first"
    BACKEND = "backend"


@dataclass(frozen=True)
class Accumulate:
    """A named accumulation order; part of the result (D23).

    Attributes:
      order: the family.
      lanes: products summed per partition row (1 or 4); SYSTOLIC only, else 0.
      tile_k: K extent of a tile; SYSTOLIC only, else 0.
    """

    order: Order
    lanes: int = 0
    tile_k: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", member("order", Order, self.order))
        for name in ("lanes", "tile_k"):
            value = getattr(self, name)
            try:
                object.__setattr__(self, name, index(value))
            except TypeError:
                raise PolicyError(name, repr(value), "an integer") from None
        if self.order is Order.SYSTOLIC:
            if self.lanes not in (1, 4):
                raise PolicyError("lanes", self.lanes, "1 or 4")
            if self.tile_k < self.lanes or self.tile_k % self.lanes:
                raise PolicyError("tile_k", self.tile_k, f"a positive multiple of {self.lanes}")
        elif self.lanes or self.tile_k:
            raise PolicyError("lanes, tile_k", (self.lanes, self.tile_k), "only with SYSTOLIC")

    def __str__(self) -> str:
        if self.order is not Order.SYSTOLIC:
            return self.order.name
        return f"SYSTOLIC({self.lanes}, {self.tile_k})"


def SYSTOLIC(lanes: int, tile_k: int) -> Accumulate:  # reads as in D23
    """The systolic order with ``lanes`` products per partition row and tiles of ``tile_k``."""
    return Accumulate(Order.SYSTOLIC, lanes, tile_k)


BLOCK = Accumulate(Order.BLOCK)
SEQUENTIAL = Accumulate(Order.SEQUENTIAL)
C_FIRST = Accumulate(Order.C_FIRST)
BACKEND = Accumulate(Order.BACKEND)
SYSTOLIC_MX = SYSTOLIC(4, 512)
SYSTOLIC_DENSE = SYSTOLIC(1, 128)

ORDERS: dict[str, Accumulate] = {
    "BLOCK": BLOCK,
    "SEQUENTIAL": SEQUENTIAL,
    "SYSTOLIC_MX": SYSTOLIC_MX,
    "SYSTOLIC_DENSE": SYSTOLIC_DENSE,
    "C_FIRST": C_FIRST,
    "BACKEND": BACKEND,
}
"""The orders that have a name."""


def order(spec: Accumulate | str) -> Accumulate:
    """Resolve an order's name, or the text form ``SYSTOLIC(lanes, tile_k)``.

    Raises:
      PolicyError: when the name is unknown.
    """
    if isinstance(spec, Accumulate):
        return spec
    text = str(spec).strip().upper()
    if text in ORDERS:
        return ORDERS[text]
    if text.startswith("SYSTOLIC(") and text.endswith(")"):
        parts = text[len("SYSTOLIC(") : -1].split(",")
        # isdecimal alone takes other scripts' digits, and int() refuses very long numbers.
        if len(parts) == 2 and all(
            p.strip().isascii() and p.strip().isdecimal() and len(p) < 12 for p in parts
        ):
            return SYSTOLIC(int(parts[0]), int(parts[1]))
    raise PolicyError("accumulate", spec, ", ".join(ORDERS) + ", SYSTOLIC(lanes, tile_k)")
