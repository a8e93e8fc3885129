"""The kinds of bundle in a stream: every type in every form, numbered and told apart in bulk."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

import numpy as np

from hardware.arch import Arch

from .bulk import Bytes, Plan
from .bundle import Bundle, bundle_layouts, bundle_types
from .codec import FAMILIES, LAYOUTS
from .errors import EncodeError
from .rows import Leaf

UNKNOWN: Final = 255
"""The number of a bundle whose opcode the generation lacks."""


@cache
def plans(arch: Arch) -> tuple[Plan, ...]:
    """Return the plans of a generation; the position is the number of the kind."""
    owners = {cls.__name__: cls for cls in bundle_types()}
    layouts = bundle_layouts(arch)
    return tuple(Plan(owners[layout.record.__name__], layout) for layout in layouts)


def kinds_of(kind: type[Bundle] | str, arch: Arch) -> list[int]:
    """Return the numbers of a bundle type: one for each form.

    Raises:
      EncodeError: when the generation has no such type.
    """
    every = plans(arch)
    found = [n for n, plan in enumerate(every) if kind in (plan.owner, plan.owner.mnemonic)]
    if not found:
        known = ", ".join({plan.owner.mnemonic: None for plan in every})
        raise EncodeError("BundleStream", "kind", kind, known)
    return found


def number_of(kind: type[Bundle] | str, form: tuple[type, ...], arch: Arch) -> int:
    """Return the number of one form of a bundle type; an empty form is the static one.

    Raises:
      EncodeError: when there is no such type or form.
    """
    numbers = kinds_of(kind, arch)
    forms = [plans(arch)[number].layout.form for number in numbers]
    if form and form not in forms:
        known = "; ".join(", ".join(cls.__name__ for cls in known) for known in forms)
        raise EncodeError("BundleStream", "form", str(form), known)
    return numbers[forms.index(form) if form else 0]


@cache
def holders(name: str, arch: Arch, kind: type[Bundle] | str | None = None) -> Mapping[int, Leaf]:
    """Return the numbers of the kinds that have a field, each with the field's place.

    Raises:
      EncodeError: when none of them has it.
    """
    every = plans(arch)
    numbers = range(len(every)) if kind is None else kinds_of(kind, arch)
    found = {n: every[n].fields[name] for n in numbers if name in every[n].fields}
    if not found:
        known = sorted({path for n in numbers for path in every[n].fields})
        raise EncodeError("BundleStream", "column", name, ", ".join(known))
    return found


def classify(rows: Bytes, arch: Arch) -> Bytes:
    """Return the number of each row's plan, by opcode and gather markers."""
    first = np.full(256, UNKNOWN, np.uint8)
    slots: list[tuple[int, int, int]] = []
    for number, plan in reversed(list(enumerate(plans(arch)))):
        first[plan.layout.opcode] = number
    for cls in bundle_types():
        if arch >= cls.first_arch:
            opcode = LAYOUTS[cls].opcode
            slots += [(opcode, byte, weight) for weight, _, byte, _ in FAMILIES[cls, arch].slots]
    opcodes = rows[:, 0]
    kinds = first[opcodes]
    for byte in {byte for _, byte, _ in slots}:
        # What the marker in this byte adds to the number, by opcode: forms stand side by side.
        weights = np.zeros(256, np.uint8)
        for opcode, at, weight in slots:
            weights[opcode] |= weight * (at == byte)
        marked = (rows[:, byte] & 0x60) == 0x20
        if marked.any():
            kinds += weights[opcodes] * marked
    return kinds
