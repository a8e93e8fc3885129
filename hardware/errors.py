"""The root of every error the project raises, and the two that speak of hardware facts.

All three packages raise subclasses of :class:`MxrefError`, so ``except MxrefError`` works at every
level.  Each leaf also inherits the builtin a caller would expect, keeps its facts as attributes,
and composes its message from them in one place.
"""

from __future__ import annotations


class MxrefError(Exception):
    """Root of the error tree."""


class AddressError(MxrefError, ValueError):
    """An address or access lies outside the memory it names.

    Attributes:
      space: memory space, for example ``"SBUF"``.
      address: the offending address or offset in bytes.
      limit: what is allowed, as text.
      what: what the number counts, for example ``partition``; ``address`` is in bytes.
    """

    def __init__(self, space: str, address: int, limit: str, what: str = "address") -> None:
        self.space = space
        self.address = address
        self.limit = limit
        self.what = what
        number = f"{address:#x}" if what == "address" or "offset" in what else f"{address}"
        super().__init__(f"{space} {what} {number}: allowed {limit}")


class CapabilityError(MxrefError, ValueError):
    """A generation lacks the feature that was asked for.

    Attributes:
      feature: what was asked for.
      arch: the generation asked, as text.
      needed: the first generation (or the option) that has it.
    """

    def __init__(self, feature: str, arch: str, needed: str) -> None:
        self.feature = feature
        self.arch = arch
        self.needed = needed
        super().__init__(f"{feature} is not available on {arch}; needs {needed}")
