"""What a rule is, and the predicates of the wire validators that rules of several levels share.

The legal values of single fields are not repeated in rules; they are in the byte maps.
Sources: "ADDR4 - the 32-Bit Address Word", "TENSOR4D / MEM_PATTERN4D - the Spill Descriptor",
"MXMEM_PATTERN1D - MX Data + E8M0 Scale" and "Indirect-Gather Descriptors".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hardware.arch import Arch
from hardware.dtypes import alignment
from hardware.memory import REGISTERS, Space

from .address import Addr4
from .patterns import MxIndirect, MxPattern, Tensor1D, Tensor2D, Tensor3D, Tensor4D

Finding = tuple[object, str] | None
"""What a broken rule found and what is allowed; None when the rule holds."""
Static = Tensor1D | Tensor2D | Tensor3D | Tensor4D
Test = Callable[[Any, Arch], Finding]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: stable id, field it speaks of, sentence, the instructions it binds, the test.

    ``sized`` rules look at extents and counts; a shape held in a register waives them.  A rule
    whose field the descriptor in the slot does not have does not bind.
    """

    id: str
    field: str
    message: str
    applies: tuple[type, ...]
    test: Test
    sized: bool = False
    since: Arch = Arch.SUNDA
    until: Arch = Arch.MARIANA

    def binds(self, record: type, arch: Arch) -> bool:
        """Say whether the rule speaks of a bundle class on a generation."""
        return record in self.applies and self.since <= arch <= self.until


def address_fault(
    word: Addr4, tag: int, arch: Arch, *, write: bool, psum: bool = False, sbuf: bool = False
) -> str:
    """Return what ``tensor_start_addr_valid`` allows when it refuses a word, else nothing.

    Args:
      word: the address word.
      tag: wire tag of the elements, which decides the alignment.
      arch: the generation.
      write: whether the operand is written; PSUM takes writes of 4-byte types only.
      psum: whether the operand may lie in PSUM.
      sbuf: whether the operand may lie in SBUF.
    """
    if word.is_register:
        # SUNDA wants bits 8..30 clear, later generations test bits 8..23 only.
        mask = 0x7FFF_FF00 if arch <= Arch.SUNDA else 0x00FF_FF00
        good = word.word & mask == 0 and word.word & 0xFF < REGISTERS
        return "" if good else f"a register 0..{REGISTERS - 1}, bits {mask:#x} clear"
    step = alignment(tag, arch)
    if step == 0 or word.address % step:
        return f"an address aligned to {step or 4} bytes"
    space = word.space
    places = [s for s, allowed in ((Space.SBUF, sbuf), (Space.PSUM, psum)) if allowed]
    if space not in places:
        return "an address in " + (" or ".join(s.value for s in places) or "no memory")
    if space is Space.PSUM and write and step != 4:
        return "a 4-byte type for PSUM writes"
    return ""


def static(word: Addr4, space: Space) -> bool:
    """Say whether a word is a plain address in a memory, so that its partition is known."""
    return word.space is space and not word.is_indirect and not word.is_shape_register


def pattern_of(instruction: Any, slot: str) -> MxPattern | MxIndirect:
    """Return the MX descriptor of an operand slot."""
    return getattr(instruction, slot)


def value_at(instruction: Any, path: str) -> Any:
    """Return the field at a dotted path."""
    value: Any = instruction
    for name in path.split("."):
        value = getattr(value, name)
    return value


def byte_span(tensor: Static, size: int) -> tuple[int, int]:
    """Return the first and last byte inside the partition that a walk touches."""
    low, high = tensor.span()
    return tensor.start.offset + low * size, tensor.start.offset + high * size + size - 1


def shape_in_register(instruction: Any) -> bool:
    """Say whether an operand of the instruction takes its shape from a register."""
    operands = (getattr(instruction, slot, None) for slot in ("src", "dst"))
    return any(operand is not None and operand.shape_in_register for operand in operands)
