"""Errors of the byte layer: each names the field, its byte, what was found and what is allowed."""

from __future__ import annotations

from dataclasses import dataclass

from hardware.errors import AddressError, CapabilityError, MxrefError

__all__ = [
    "AddressError",
    "AssemblyError",
    "CapabilityError",
    "DecodeError",
    "EncodeError",
    "LegalityError",
    "MxrefError",
    "Violation",
]


def shown(value: object) -> str:
    """Return a value as messages print it: small counts in decimal, the rest in hexadecimal."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(int(value)) if -10 < value < 10 else f"{int(value):#x}"
    return str(value)


class EncodeError(MxrefError, ValueError):
    """A value does not fit its field.

    Attributes:
      record: name of the record, for example ``MatmultMx``.
      field: dotted path of the field, for example ``src.extent``.
      value: what was given.
      allowed: what fits, as text.
      offset: byte offset of the field in its record; None for an argument of a function.
    """

    def __init__(
        self, record: str, field: str, value: object, allowed: str, offset: int | None = None
    ) -> None:
        self.record = record
        self.field = field
        self.value = value
        self.allowed = allowed
        self.offset = offset
        place = "" if offset is None else f" (byte {offset:#04x})"
        super().__init__(f"{record}.{field}{place}: got {shown(value)}, allowed {allowed}")


class DecodeError(MxrefError, ValueError):
    """Bytes are not an instruction of the generation.

    Attributes:
      field: dotted path of the field, or ``length`` or ``opcode``.
      offset: byte offset of the field in its bundle.
      got: what was found.
      allowed: what is allowed, as text.
      record: name of the record, empty while the opcode is unknown.
      index: position of the bundle in its stream.
    """

    def __init__(
        self,
        field: str,
        offset: int,
        got: object,
        allowed: str,
        record: str = "",
        index: int = 0,
    ) -> None:
        self.field = field
        self.offset = offset
        self.got = got
        self.allowed = allowed
        self.record = record
        self.index = index
        name = f"{record}.{field}" if record else field
        if field == "data":  # not bytes at all, so there is no bundle to speak of
            where = name
        elif field == "length":
            where = f"bundle {index}, {name}"
        else:
            where = f"bundle {index}, {name} (byte {offset:#04x})"
        super().__init__(f"{where}: got {shown(got)}, allowed {allowed}")


class AssemblyError(MxrefError, ValueError):
    """Assembly text cannot be read.

    Attributes:
      line: line number, from 1.
      column: column number, from 1.
      got: the text found there.
      allowed: what is allowed there.
    """

    def __init__(self, line: int, column: int, got: str, allowed: str) -> None:
        self.line = line
        self.column = column
        self.got = got
        self.allowed = allowed
        super().__init__(f"line {line}, column {column}: got {got}, allowed {allowed}")


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule.

    Attributes:
      id: stable name of the rule: ``decode.*``, ``wire.*``, ``runtime.*``, ``verifier.*``, or the
        verifier's public assertion code such as ``V4.232``.
      field: dotted path of the field.
      offset: byte offset of the field in its bundle.
      got: value found.
      allowed: what is allowed, as text.
      message: the rule in one sentence.
      index: position of the bundle in its stream.
    """

    id: str
    field: str
    offset: int
    got: object
    allowed: str
    message: str
    index: int = 0

    def __str__(self) -> str:
        return (
            f"bundle {self.index}, {self.id}, {self.field} (byte {self.offset:#04x}): "
            f"got {shown(self.got)}, allowed {self.allowed}: {self.message}"
        )


class LegalityError(MxrefError, ValueError):
    """Instructions break rules; all broken rules are listed.

    Attributes:
      violations: every violation found.
    """

    def __init__(self, violations: tuple[Violation, ...] | list[Violation]) -> None:
        self.violations = tuple(violations)
        first = str(self.violations[0]) if self.violations else "no violation"
        more = len(self.violations) - 1
        super().__init__(first + (f" (and {more} more)" if more > 0 else ""))
