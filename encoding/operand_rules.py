"""The descriptor predicates of the wire validators, and the rules made of them.

``tensor_start_addr_valid``, ``tensor_nd_valid`` and ``mxmem1d_valid`` are the validators' own
functions, on one word or one descriptor; the rules report the same facts one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hardware.arch import Arch
from hardware.dtypes import WireDtype
from hardware.memory import PSUM_BASE, PSUM_END, Space
from hardware.pe import ACCUMULATE_VALUES

from .address import Addr4
from .codec import LAYOUTS
from .patterns import (
    Indirect16,
    Indirect20,
    MemPattern3D,
    MemPattern4D,
    MxIndirect,
    MxSlot,
    Tensor1D,
    Tensor2D,
)
from .rules import Finding, Test, address_fault, pattern_of

_INDEX, _BYTE = WireDtype.UINT32, WireDtype.UINT8
_MARKERS = 0xE000_0000
Gather = Indirect16 | Indirect20


def tensor_start_addr_valid(
    word: int, tag: int, arch: Arch, *, write: bool, psum: bool, sbuf: bool
) -> bool:
    """Say whether an address word is valid for elements of a wire tag."""
    return not address_fault(Addr4(word), tag, arch, write=write, psum=psum, sbuf=sbuf)


def tensor_nd_valid(
    pattern: Tensor1D | Tensor2D | MemPattern3D | MemPattern4D,
    tag: int,
    arch: Arch,
    *,
    write: bool,
    psum: bool,
    sbuf: bool,
) -> bool:
    """Say whether a tensor descriptor is valid, in its static or its gather arm.

    The index vector of a gather is read, so SBUF is always open to it (D14).
    """
    if isinstance(pattern, (Indirect16, Indirect20)):
        return (
            pattern.num != 0
            and not address_fault(pattern.index, _INDEX, arch, write=write, psum=psum, sbuf=True)
            and not pattern.data.word & _MARKERS
            and not address_fault(pattern.data, tag, arch, write=write, psum=psum, sbuf=sbuf)
        )
    if address_fault(pattern.start, tag, arch, write=write, psum=psum, sbuf=sbuf):
        return False
    return pattern.shape_in_register or 0 not in pattern.nums


def mxmem1d_valid(pattern: MxSlot, tag: int, arch: Arch = Arch.MARIANA, *, write: bool) -> bool:
    """Say whether an MX descriptor is valid; ``tag`` is the bundle's element type."""
    if _mx_data_fault(pattern, tag, arch, write) or _scale_fault(pattern, arch, write):
        return False
    if isinstance(pattern, MxIndirect):
        index = address_fault(pattern.index, _INDEX, arch, write=write, sbuf=True)
        return not index and _fields_legal(pattern)
    return _fields_legal(pattern)


def accumulation_valid(flags: int) -> bool:
    """Say whether an accumulate byte is legal (D12)."""
    return flags in ACCUMULATE_VALUES


def _fields_legal(pattern: Any) -> bool:
    """Apply the legal values that a descriptor's own table states."""
    for row in LAYOUTS[type(pattern)].rows:
        if row.legal is None or getattr(pattern, row.name) in row.legal:
            continue
        if not row.unless or not getattr(pattern, row.unless):
            return False
    return True


def _mx_data_fault(pattern: MxSlot, tag: int, arch: Arch, write: bool) -> str:
    fault = address_fault(pattern.data, _INDEX, arch, write=write, sbuf=True)
    # Packed FP4 is two bytes wide; the gather arm has no such second chance.
    if fault and tag == WireDtype.FP4_EXP2 and not isinstance(pattern, MxIndirect):
        fault = address_fault(pattern.data, WireDtype.UINT16, arch, write=write, sbuf=True)
    return fault


def _scale_fault(pattern: MxSlot, arch: Arch, write: bool) -> str:
    return address_fault(pattern.scale, _BYTE, arch, write=write, sbuf=True)


def _finding(word: Addr4, fault: str) -> Finding:
    return (str(word), fault) if fault else None


def data_of(instruction: Any, slot: str) -> Addr4:
    """Return the word of the data in a slot: ``start`` of a static tensor, else ``data``."""
    operand = getattr(instruction, slot)
    return getattr(operand, "start", None) or operand.data


def mx_data(slot: str, dtype: str) -> Test:
    """Return the rule on the elements of an MX descriptor."""

    def test(instruction: Any, arch: Arch) -> Finding:
        pattern = pattern_of(instruction, slot)
        fault = _mx_data_fault(pattern, getattr(instruction, dtype), arch, write=slot == "dst")
        return _finding(pattern.data, fault)

    return test


def mx_scale(slot: str) -> Test:
    """Return the rule on the scales of an MX descriptor."""

    def test(instruction: Any, arch: Arch) -> Finding:
        pattern = pattern_of(instruction, slot)
        return _finding(pattern.scale, _scale_fault(pattern, arch, write=slot == "dst"))

    return test


def tensor_word(slot: str, name: str, tag_of: Callable[[Any], WireDtype], space: Space) -> Test:
    """Return the rule on an address of a tensor descriptor."""

    def test(instruction: Any, arch: Arch) -> Finding:
        word, tag = getattr(getattr(instruction, slot), name), tag_of(instruction)
        # The predicate of a bf16 destination does not ask for a 4-byte type.
        write = slot == "dst" and tag != WireDtype.BFLOAT16
        fault = address_fault(
            word, tag, arch, write=write, psum=space is Space.PSUM, sbuf=space is Space.SBUF
        )
        return _finding(word, fault)

    return test


def index_word(slot: str, space: Space) -> Test:
    """Return the rule on the index vector of a gather; SBUF is always open to it (D14)."""

    def test(instruction: Any, arch: Arch) -> Finding:
        word = getattr(instruction, slot).index
        psum = space is Space.PSUM
        return _finding(word, address_fault(word, _INDEX, arch, write=psum, psum=psum, sbuf=True))

    return test


def plain_data(slot: str) -> Test:
    """Return the rule that the data word of a gather has none of the three marker bits."""

    def test(instruction: Any, arch: Arch) -> Finding:
        word = getattr(instruction, slot).data
        return (word.word, "bits 29 to 31 clear") if word.word & _MARKERS else None

    return test


def gather_quadrant(slot: str) -> Test:
    """Return the rule that index and data share an SBUF quadrant unless the data lies in PSUM."""

    def test(instruction: Any, arch: Arch) -> Finding:
        index, data = getattr(instruction, slot).index, getattr(instruction, slot).data
        in_psum = PSUM_BASE <= data.address < PSUM_END
        if index.is_register or data.is_register or in_psum:
            return None
        got, want = data.address >> 23, index.address >> 23
        return None if got == want else (got, f"quadrant {want}, as the index vector")

    return test
