"""Errors of the numeric layer and of the machine.

The root lives in :mod:`hardware.errors`; these are the leaves that ``mxref`` itself raises.  Every
error of the three packages is a :class:`MxrefError`, so ``except mx.MxrefError`` takes them all:

- hardware: AddressError, CapabilityError;
- encoding: EncodeError, DecodeError, AssemblyError, LegalityError;
- mxref: FormatError, ShapeError, PolicyError, GradientError, ProgramError, ExecutionError and its
  kinds UninitialisedError and Unmodelled.
"""

from __future__ import annotations

from hardware.errors import AddressError, CapabilityError, MxrefError

__all__ = [
    "AddressError",
    "CapabilityError",
    "ExecutionError",
    "FormatError",
    "GradientError",
    "MxrefError",
    "PolicyError",
    "ProgramError",
    "ShapeError",
    "UninitialisedError",
    "Unmodelled",
]


class FormatError(MxrefError, ValueError):
    """A number format is unknown, ambiguous or unfit for the operation.

    Attributes:
      format: what was given.
      reason: why it is refused and what to give instead.
    """

    def __init__(self, format: object, reason: str) -> None:
        self.format = format
        self.reason = reason
        super().__init__(f"format {format!s}: {reason}")


class ShapeError(MxrefError, ValueError):
    """An array has the wrong shape, axis or dtype.

    Attributes:
      name: the argument.
      got: what was given.
      expected: what is allowed.
      hint: the next step, possibly empty.
    """

    def __init__(self, name: str, got: object, expected: str, hint: str = "") -> None:
        self.name = name
        self.got = got
        self.expected = expected
        self.hint = hint
        super().__init__(f"{name}: got {got}, expected {expected}" + (f"; {hint}" if hint else ""))


class PolicyError(MxrefError, ValueError):
    """An option cannot be had here, alone or in this combination.

    Attributes:
      option: the option's name.
      value: what was asked for.
      allowed: what can be had.
    """

    def __init__(self, option: str, value: object, allowed: str) -> None:
        self.option = option
        self.value = value
        self.allowed = allowed
        super().__init__(f"{option}={value!s}: allowed {allowed}")


class GradientError(MxrefError, TypeError):
    """A derivative was asked of a function whose result is integer codes (D29).

    Attributes:
      function: the function's name.
      instead: the differentiable functions that compute the same numbers.
    """

    def __init__(self, function: str, instead: str) -> None:
        self.function = function
        self.instead = instead
        super().__init__(f"{function} gives integer codes, which carry no gradient; use {instead}")


class ProgramError(MxrefError, ValueError):
    """A program file or memory image is damaged or inconsistent.

    Attributes:
      member: the file member or key concerned.
      reason: what is wrong.
    """

    def __init__(self, member: str, reason: str) -> None:
        self.member = member
        self.reason = reason
        super().__init__(f"{member}: {reason}")


class ExecutionError(MxrefError, ValueError):
    """A legal bundle asks for something the state cannot give; nothing was changed.

    Attributes:
      index: position of the bundle in its program; -1 when no bundle was involved.
      field: the field concerned, or the operand.
      reason: what is wrong, with value and limit.
      address: byte address concerned, if any.
    """

    def __init__(self, index: int, field: str, reason: str, address: int | None = None) -> None:
        self.index = index
        self.field = field
        self.reason = reason
        self.address = address
        where = f" at {address:#x}" if address is not None else ""
        who = f"bundle {index}, " if index >= 0 else ""
        super().__init__(f"{who}{field}{where}: {reason}")


class UninitialisedError(ExecutionError):
    """A bundle reads bytes that nothing wrote, and the caller asked to be told."""


class Unmodelled(ExecutionError):
    """The bundle is legal, but no public source gives the arithmetic of the mode it uses (D24)."""
