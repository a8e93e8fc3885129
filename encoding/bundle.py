"""The 64-byte bundle: what all instructions share, and the road from bytes to a record and back."""

from __future__ import annotations

from typing import Any, ClassVar, SupportsBytes, TypeVar

from hardware.arch import Arch, ArchLike, Engine
from hardware.evidence import Evidence
from hardware.opcodes import BUNDLE_BYTES, OPCODES
from hardware.pe import require

from .codec import FAMILIES, LAYOUTS, Family, Layout, table_of
from .errors import CapabilityError, DecodeError, EncodeError
from .rows import Row
from .wire import bits, record, reserved

_EVENTS = "Cross-Generation Arch-ISA Header Diff"

WAIT_MODES = (0x00, 0x01, 0x04, 0x05, 0x07, 0x81, 0x84, 0x85, 0x87)
"""None; equal, greater, greater or equal to an immediate (5); the compiler's 7; from a register."""
UPDATE_MODES = (0x00, 0x03, 0x13, 0x15, 0x99)
"""None; increment at read, at completion; add an immediate; write a register."""


# fmt: off
@record(size=BUNDLE_BYTES, source=_EVENTS, kw_only=True, partial=True)
class Bundle:
    """Header tail and synchronisation band of every bundle.

    The semaphore bytes are zero unless the instruction synchronises; with both modes 0 the other
    six have no effect.
    """

    reserved_02: int      = reserved(0x02, width=2, evidence=Evidence.CONFIRMED)
    wait_mode: int        = bits(0x04, default=0, legal=WAIT_MODES,
                                 doc="condition on the awaited semaphore; 0: none")
    wait_semaphore: int   = bits(0x05, default=0, doc="semaphore awaited")
    update_mode: int      = bits(0x06, default=0, legal=UPDATE_MODES,
                                 doc="change of the updated semaphore; 0: none")
    update_semaphore: int = bits(0x07, default=0, doc="semaphore updated")
    semaphore_value: int  = bits(0x08, width=32, default=0,
                                 doc="immediate, or register number in the register modes")
    residue: int = 0
    """Non-zero reserved bits, in place, that ``decode(..., strict=False)`` keeps."""

    mnemonic: ClassVar[str] = ""
    engine: ClassVar[Engine] = Engine.PE
    first_arch: ClassVar[Arch] = Arch.SUNDA

    def __str__(self) -> str:
        from .text import format_instruction

        return format_instruction(self)
# fmt: on


B = TypeVar("B", bound=Bundle)
_REGISTRY: dict[int, type[Bundle]] = {}
_FAMILIES: dict[Arch, dict[int, Family]] = {arch: {} for arch in Arch}


def register(cls: type[B]) -> type[B]:
    """Enter a bundle class in the decoder's dispatch, under the opcode its table declares.

    Raises:
      TypeError: when another class already has the opcode.
    """
    opcode = LAYOUTS[cls].opcode
    if opcode in _REGISTRY:
        raise TypeError(f"opcode {opcode:#04x} is taken by {_REGISTRY[opcode].__name__}")
    fact = OPCODES[opcode]
    cls.mnemonic, cls.engine, cls.first_arch = fact.mnemonic, fact.engine, fact.first
    _REGISTRY[opcode] = cls
    for arch in Arch:
        if arch >= fact.first:
            _FAMILIES[arch][opcode] = FAMILIES[cls, arch]
    return cls


def bundle_types() -> tuple[type[Bundle], ...]:
    """Return every bundle class, by opcode."""
    return tuple(_REGISTRY[opcode] for opcode in sorted(_REGISTRY))


def bundle_layouts(arch: ArchLike = Arch.MARIANA) -> tuple[Layout, ...]:
    """Return the layouts of a generation: every bundle in every form, by opcode, static first."""
    known = _FAMILIES[Arch.parse(arch)]
    return tuple(layout for opcode in sorted(known) for layout in known[opcode].layouts)


def layout_of(instruction: type[Bundle] | Bundle, arch: ArchLike = Arch.MARIANA) -> Layout:
    """Return the layout of an instruction, or of a bundle class with static descriptors."""
    if type(arch) is not Arch:
        arch = Arch.parse(arch)
    if isinstance(instruction, type):
        return FAMILIES[instruction, arch].layouts[0]
    return FAMILIES[type(instruction), arch].of(instruction)


def encode(instruction: Bundle, arch: ArchLike = Arch.MARIANA) -> bytes:
    """Return the 64 bytes of an instruction.

    Raises:
      CapabilityError: when the generation lacks the opcode, or a field that is not at its default.
      EncodeError: when ``instruction`` is not one, or its residue holds bits that are not reserved
        on this generation.
    """
    # Callers outside a type checker pass anything.
    if not isinstance(instruction, Bundle) or not instruction.mnemonic:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise EncodeError("encode", "instruction", instruction, "an instruction record")
    if type(arch) is not Arch:
        arch = Arch.parse(arch)
    require(arch, instruction.first_arch, instruction.mnemonic)
    layout = FAMILIES[type(instruction), arch].of(instruction)
    for row in absent_fields(instruction, layout):
        name = f"{instruction.mnemonic}.{row.absent}"
        field = next(r for r in table_of(type(instruction)) if r.name == row.absent)
        raise CapabilityError(name, arch.label, field.generations)
    if instruction.residue & ~layout.reserved_mask:
        raise EncodeError(
            instruction.mnemonic, "residue", instruction.residue, "bits reserved on this generation"
        )
    return layout.encode(instruction)


def absent_fields(instruction: Bundle, layout: Layout) -> list[Row]:
    """Return the fields that a layout lacks although the instruction uses them."""
    return [row for row in layout.absent if getattr(instruction, row.absent) != row.default]


def decode(
    data: Any, arch: ArchLike = Arch.MARIANA, strict: bool = True, *, index: int = 0
) -> Bundle:
    """Return the instruction that 64 bytes hold.

    Args:
      data: 64 bytes, or any object with the buffer interface.
      arch: the generation whose instruction set applies.
      strict: refuse non-zero reserved bits; otherwise keep them in ``residue``, so that encoding
        gives the same bytes back.
      index: position of the bundle in its stream, for the error.

    Raises:
      DecodeError: naming the field, its byte, what was found and what is allowed.
    """
    data = _as_bytes(data)
    if type(arch) is not Arch:
        arch = Arch.parse(arch)
    if len(data) != BUNDLE_BYTES:
        raise DecodeError("length", 0, len(data), f"{BUNDLE_BYTES} bytes", index=index)
    layout = match_layout(data, arch, index)
    word = int.from_bytes(data, "little")
    fixed = layout.const_mask | layout.reserved_mask if strict else layout.const_mask
    if word & fixed == layout.const_match:
        try:
            return layout.decode(data, word)
        except KeyError:
            pass
    raise first_problem(layout, word, strict, index)


def first_problem(layout: Layout, word: int, strict: bool, index: int) -> DecodeError:
    """Return the error for the first leaf that cannot be decoded."""
    problem = next(layout.problems(word, strict))
    return DecodeError(
        problem.leaf.path, problem.leaf.offset, problem.got, problem.allowed,
        layout.record.__name__, index,
    )  # fmt: skip


def match_layout(data: bytes, arch: Arch, index: int = 0) -> Layout:
    """Return the layout that the opcode and the gather markers of a bundle announce.

    Raises:
      DecodeError: for an unknown opcode, or one that a later generation introduced.
    """
    opcode = data[0]
    family = _FAMILIES[arch].get(opcode)
    if family is not None:
        return family.match(data)
    if opcode not in _REGISTRY:
        known = ", ".join(f"{code:#04x} ({OPCODES[code].mnemonic})" for code in sorted(_REGISTRY))
        raise DecodeError("opcode", 0, opcode, known, index=index)
    fact = OPCODES[opcode]
    allowed = f"on {arch.label}: an older opcode; {fact.mnemonic} needs {fact.first.label}"
    raise DecodeError("opcode", 0, opcode, allowed, fact.mnemonic, index)


def split(data: Any) -> list[bytes]:
    """Cut a stream into bundles; streams have no framing.

    Raises:
      DecodeError: when the length is not a multiple of 64.
    """
    data = _as_bytes(data)
    whole, rest = divmod(len(data), BUNDLE_BYTES)
    if rest:
        raise DecodeError("length", 0, len(data), f"a multiple of {BUNDLE_BYTES}", index=whole)
    return [data[i : i + BUNDLE_BYTES] for i in range(0, len(data), BUNDLE_BYTES)]


def decode_all(data: Any, arch: ArchLike = Arch.MARIANA, strict: bool = True) -> list[Bundle]:
    """Return the instructions of a stream.

    Raises:
      DecodeError: for the first bundle that cannot be decoded, with its index.
    """
    return [decode(chunk, arch, strict, index=i) for i, chunk in enumerate(split(data))]


def encode_all(instructions: list[Bundle], arch: ArchLike = Arch.MARIANA) -> bytes:
    """Return the stream of a list of instructions."""
    return b"".join(encode(instruction, arch) for instruction in instructions)


def _as_bytes(data: Any) -> bytes:
    if isinstance(data, bytes):
        return data
    if (found := own_bytes(data)) is not None:
        return found
    try:
        return bytes(memoryview(data))
    except (TypeError, ValueError, BufferError):
        raise DecodeError("data", 0, type(data).__name__, "bytes") from None


def own_bytes(data: object) -> bytes | None:
    """Return the bundles of an object that says itself what they are: a program, a stream."""
    return bytes(data) if isinstance(data, SupportsBytes) else None


def arch_of(data: Any, arch: ArchLike) -> Arch:
    """Return the generation of a program or decoded stream, which bring their own, else ``arch``.

    Raises:
      CapabilityError: when no generation has that name.
    """
    own = getattr(data, "arch", None)
    return own if isinstance(own, Arch) else Arch.parse(arch)
