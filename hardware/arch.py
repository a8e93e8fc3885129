"""Generations of the tensor core and their engines.

Source: "Codename, Device and Generation Taxonomy" and "The L2 Wire Validator".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TypeAlias

from .errors import CapabilityError


class Arch(IntEnum):
    """A generation, by the order number that the compiler compares (D1)."""

    SUNDA = 20
    """CoreV2: Trn1 and Inf2."""
    CAYMAN = 30
    """CoreV3: Trn2."""
    MARIANA = 40
    """CoreV4: Trn3, the first with microscaling bundles."""

    @property
    def core(self) -> str:
        """The compiler's class of this generation, for example ``CoreV4``."""
        return f"CoreV{self // 10}"

    @property
    def label(self) -> str:
        """Lower-case name, as the command line spells it."""
        return self.name.lower()

    @classmethod
    def parse(cls, text: ArchLike) -> Arch:
        """Return the generation called ``text``: a member, a code name, ``CoreV4`` or ``40``.

        Raises:
          CapabilityError: when no generation has that name.
        """
        if isinstance(text, Arch):
            return text
        key = str(text).strip().lower()
        for arch in cls:
            if key in (arch.label, arch.core.lower(), str(int(arch))):
                return arch
        raise CapabilityError(
            "the instruction set", str(text), "one of " + ", ".join(a.label for a in cls)
        )

    def __repr__(self) -> str:
        return f"Arch.{self.name}"


ArchLike: TypeAlias = Arch | str | int
"""How callers may name a generation; :meth:`Arch.parse` reads it."""


@dataclass(frozen=True, slots=True)
class EngineCodes:
    """The two numbers of an engine: in the compiler's IR and in the wire validator."""

    ir: int
    wire: int | None


class Engine(Enum):
    """An engine with its own instruction stream."""

    POOL = EngineCodes(ir=1, wire=2)
    ACTIVATION = EngineCodes(ir=2, wire=1)
    PE = EngineCodes(ir=3, wire=0)
    DMA = EngineCodes(ir=4, wire=None)
    DVE = EngineCodes(ir=5, wire=3)
    SP = EngineCodes(ir=6, wire=4)

    @property
    def stream(self) -> str:
        """File name of the engine's bundle stream; bundles follow one another without framing."""
        return f"{self.name}.bin"

    def __repr__(self) -> str:
        return f"Engine.{self.name}"
