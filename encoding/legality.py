"""Judge bytes and instructions: every broken rule is listed, nothing is raised (D15).

Three separate judgements: ``wire`` is what the 64 bytes alone decide and what execution demands;
``verifier`` is the compiler's view of the abstract instruction, complete for a LdWeightMx and
MatmultMx pair; ``runtime`` is ``wire`` and the runtime library's stricter rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, Literal

from hardware.arch import Arch, ArchLike
from hardware.opcodes import BUNDLE_BYTES

from .abstract import AbstractInstruction
from .abstract_rules import abstract_rules
from .bundle import Bundle, absent_fields, arch_of, decode, layout_of, match_layout, own_bytes
from .codec import Layout, table_of
from .describe import legal_text
from .errors import DecodeError, EncodeError, Violation, shown
from .pair_rules import pair_rules
from .rows import Leaf, Row
from .rules import Rule, shape_in_register
from .verifier_rules import VERIFIER
from .wire_rules import RUNTIME, WIRE

Level = Literal["wire", "verifier", "runtime"]
_RULES: dict[str, tuple[Rule, ...]] = {
    "wire": WIRE,
    "runtime": WIRE + RUNTIME,
    "verifier": VERIFIER,
}


def check(
    data: Any,
    arch: ArchLike = Arch.MARIANA,
    level: Level = "wire",
) -> list[Violation]:
    """Return every rule that a program breaks; an empty list means legal.

    Args:
      data: bytes of one or more bundles, an instruction, a list of instructions, a program, or an
        abstract instruction, which levels other than ``verifier`` judge by its bundles.
      arch: the generation whose rules apply; a program brings its own.
      level: which judgement to make.

    Raises:
      CapabilityError: for an unknown generation.
      EncodeError: for an unknown level or a list entry that is no instruction.
    """
    arch = arch_of(data, arch)
    if level not in _RULES:
        raise EncodeError("check", "level", level, ", ".join(_RULES))
    if isinstance(data, AbstractInstruction):
        if level == "verifier":
            return list(abstract_rules(data, arch))
        return check(data.bundles(), arch, level)
    found: list[Violation] = []
    program: list[Bundle | None] = []
    for index, item in enumerate(_items(data, found)):
        instruction = _decoded(item, arch, index, found)
        program.append(instruction)
        if instruction is None:
            continue
        layout = layout_of(instruction, arch)
        if level != "verifier":
            found += _field_rules(instruction, layout, index)
        found += _cross_rules(level, instruction, layout, index)
    if level == "verifier":
        found += pair_rules(program)
    return sorted(found, key=lambda violation: violation.index)


def _items(data: Any, found: list[Violation]) -> Sequence[Any]:
    """Cut the input into bundles; an incomplete last bundle is a violation of its own."""
    if isinstance(data, Bundle):
        return [data]
    if isinstance(data, (list, tuple)):
        # What the items are is judged one by one by the caller.
        return data  # pyright: ignore[reportUnknownVariableType]
    try:
        found_bytes = own_bytes(data)
        stream = bytes(memoryview(data)) if found_bytes is None else found_bytes
    except (TypeError, ValueError, BufferError):
        raise EncodeError(
            "check",
            "data",
            type(data).__name__,
            "bytes, an instruction, a list of them or a program",
        ) from None
    whole = len(stream) - len(stream) % BUNDLE_BYTES
    if whole != len(stream):
        allowed = f"a multiple of {BUNDLE_BYTES}"
        found.append(
            Violation(
                "decode.length", "length", 0, len(stream), allowed,
                "a stream holds whole bundles", whole // BUNDLE_BYTES,
            )
        )  # fmt: skip
    return [stream[i : i + BUNDLE_BYTES] for i in range(0, whole, BUNDLE_BYTES)]


def _decoded(item: Any, arch: Arch, index: int, found: list[Violation]) -> Bundle | None:
    """Return the instruction of an item, or None after listing why there is none."""
    if not isinstance(item, (Bundle, bytes, bytearray)):
        raise EncodeError("check", f"data[{index}]", type(item).__name__, "an instruction or bytes")
    if not isinstance(item, Bundle):
        return _from_bytes(bytes(item), arch, index, found)
    layout = layout_of(item, max(arch, item.first_arch))
    if arch < item.first_arch:
        return _from_bytes(layout.encode(item), arch, index, found)
    if item.residue & ~layout.reserved_mask:
        found.append(
            Violation(
                "decode.residue", "residue", 0, item.residue, "bits reserved on this generation",
                "these bits belong to fields", index,
            )
        )  # fmt: skip
        return None
    if lacking := absent_fields(item, layout):
        found += [
            Violation(
                f"decode.{row.absent}", row.absent, row.lo // 8, getattr(item, row.absent),
                f"{shown(row.default)} on {arch.label}",
                f"the field needs {_declared(item, row.absent).generations}", index,
            )
            for row in lacking
        ]  # fmt: skip
        return None
    return _from_bytes(layout.encode(item), arch, index, found) if item.residue else item


def _declared(instruction: Bundle, name: str) -> Row:
    return next(row for row in table_of(type(instruction)) if row.name == name)


def _from_bytes(data: bytes, arch: Arch, index: int, found: list[Violation]) -> Bundle | None:
    try:
        return decode(data, arch, index=index)
    except DecodeError as error:
        found += _undecodable(data, arch, error)
        return None


def _undecodable(data: bytes, arch: Arch, error: DecodeError) -> list[Violation]:
    """List every reason why bytes are no instruction; the error itself names the first."""
    if not error.record or error.field == "opcode":
        message = "no instruction of this generation"
        return [
            Violation(
                f"decode.{error.field}", error.field, error.offset, error.got, error.allowed,
                message, error.index,
            )
        ]  # fmt: skip
    problems = match_layout(data, arch).problems(int.from_bytes(data, "little"))
    return [
        Violation(
            f"decode.{p.leaf.path}", p.leaf.path, p.leaf.offset, p.got, p.allowed,
            f"these bytes are no {error.record}", error.index,
        )
        for p in problems
    ]  # fmt: skip


@cache
def _legal_fields(layout: Layout) -> tuple[tuple[Leaf, Callable[[Any], Any], Any], ...]:
    """Return the leaves with legal values, how to read each, and how to ask for its waiver."""
    return tuple(
        (
            leaf,
            attrgetter(leaf.path),
            attrgetter(leaf.path.rpartition(".")[0] + "." + leaf.row.unless)
            if leaf.row.unless
            else None,
        )
        for leaf in layout.leaves
        if leaf.row.legal is not None
    )


def _field_rules(instruction: Bundle, layout: Layout, index: int) -> Iterator[Violation]:
    """Apply the legal values that the byte map itself states."""
    for leaf, read, waived in _legal_fields(layout):
        value = read(instruction)
        if value in leaf.row.legal or (waived is not None and waived(instruction)):
            continue
        yield Violation(
            f"wire.{leaf.path}", leaf.path, leaf.offset, value, legal_text(leaf), leaf.row.doc,
            index,
        )  # fmt: skip


@cache
def _rules_of(layout: Layout, level: Level) -> tuple[tuple[Rule, int], ...]:
    """Return the rules that bind a layout, each with the byte offset of its field.

    A rule on a field that this generation or this form lacks does not bind.
    """
    offsets = {leaf.path: leaf.offset for leaf in layout.leaves}
    return tuple(
        (rule, offsets[rule.field])
        for rule in _RULES[level]
        if rule.binds(layout.record, layout.arch) and rule.field in offsets
    )


def _cross_rules(
    level: Level, instruction: Bundle, layout: Layout, index: int
) -> Iterator[Violation]:
    dynamic = shape_in_register(instruction)
    for rule, offset in _rules_of(layout, level):
        if rule.sized and dynamic:
            continue
        finding = rule.test(instruction, layout.arch)
        if finding is not None:
            got, allowed = finding
            yield Violation(rule.id, rule.field, offset, got, allowed, rule.message, index)
