"""How well a fact is known: one vocabulary for wire fields and for behaviours (D16b)."""

from __future__ import annotations

from enum import Enum


class Evidence(Enum):
    """The weight of the source behind a fact.

    The first four are the words of the public encoding pages and tag wire fields; ``ASSUMED`` marks
    this project's own choice where every source is silent; the last three tag behaviours.
    """

    CONFIRMED = "confirmed"
    """The exact store or compare was disassembled, or a header layout was compiled and checked."""
    STRONG = "strong"
    """Two independent tables or predicates agree."""
    INFERRED = "inferred"
    """No store was seen; the bundle starts out zeroed, so the byte is zero."""
    SPECULATIVE = "speculative"
    """A reading that no store and no second source supports."""
    ASSUMED = "assumed"
    """Chosen by this project; the decision that says why is cited beside it."""
    SPEC = "spec"
    """Stated by a published specification."""
    VENDOR_DOC = "vendor doc"
    """Stated by the vendor's documentation."""
    REVERSE_ENGINEERED = "reverse engineered"
    """Recovered from the vendor's binaries by a public study."""

    def __repr__(self) -> str:
        return f"Evidence.{self.name}"
