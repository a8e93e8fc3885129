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

from hardware.arch import Arch
from hardware.opcodes import BUNDLE_BYTES

from .bundle import Bundle, decode, layout_for, layout_of
from .describe import legal_text
from .errors import DecodeError, EncodeError, Violation
from .mx import LdWeightMx, MatmultMx
from .rows import Leaf
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
    arch: Arch = Arch.MARIANA,
    level: Level = "wire",
) -> list[Violation]:
    """Return every rule that a program breaks; an empty list means legal.

    Args:
      data: bytes of one or more bundles, an instruction, or a list of instructions.
      arch: the generation whose rules apply.
      level: which judgement to make.

    Raises:
      EncodeError: for an unknown level or a list entry that is no instruction.
    """
    if level not in _RULES:
        raise EncodeError("check", "level", level, ", ".join(_RULES))
    found: list[Violation] = []
    program: list[Bundle | None] = []
    for index, item in enumerate(_items(data, found)):
        instruction = _decoded(item, arch, index, found)
        program.append(instruction)
        if instruction is None:
            continue
        if level != "verifier":
            found += _field_rules(instruction, index)
        found += _cross_rules(level, instruction, arch, index)
    if level == "verifier":
        found += _pair_rules(program)
    return sorted(found, key=lambda violation: violation.index)


def _items(data: Any, found: list[Violation]) -> Sequence[Any]:
    """Cut the input into bundles; an incomplete last bundle is a violation of its own."""
    if isinstance(data, Bundle):
        return [data]
    if isinstance(data, (list, tuple)):
        return data  # pyright: ignore[reportUnknownVariableType]
    try:
        stream = bytes(memoryview(data))
    except (TypeError, ValueError, BufferError):
        raise EncodeError(
            "check", "data", type(data).__name__, "bytes, an instruction or a list of them"
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
    if isinstance(item, Bundle) and not item.residue and arch >= item.first_arch:
        return item
    data = layout_of(item).encode(item) if isinstance(item, Bundle) else bytes(item)
    try:
        return decode(data, arch, index=index)
    except DecodeError as error:
        found += _undecodable(data, error)
        return None


def _undecodable(data: bytes, error: DecodeError) -> list[Violation]:
    """List every reason why bytes are no instruction; the error itself names the first."""
    if not error.record or error.field == "opcode":
        message = "no instruction of this generation"
        return [
            Violation(
                f"decode.{error.field}", error.field, error.offset, error.got, error.allowed,
                message, error.index,
            )
        ]  # fmt: skip
    problems = layout_for(data[0], Arch.MARIANA).problems(int.from_bytes(data, "little"))
    return [
        Violation(
            f"decode.{p.leaf.path}", p.leaf.path, p.leaf.offset, p.got, p.allowed,
            f"these bytes are no {error.record}", error.index,
        )
        for p in problems
    ]  # fmt: skip


@cache
def _legal_fields(cls: type[Bundle]) -> tuple[tuple[Leaf, Callable[[Any], Any], Any], ...]:
    """Return the leaves with legal values, how to read each, and how to ask for its waiver."""
    return tuple(
        (
            leaf,
            attrgetter(leaf.path),
            attrgetter(leaf.path.rpartition(".")[0] + "." + leaf.row.unless)
            if leaf.row.unless
            else None,
        )
        for leaf in layout_of(cls).leaves
        if leaf.row.legal is not None
    )


def _field_rules(instruction: Bundle, index: int) -> Iterator[Violation]:
    """Apply the legal values that the byte map itself states."""
    for leaf, read, waived in _legal_fields(type(instruction)):
        value = read(instruction)
        if value in leaf.row.legal or (waived is not None and waived(instruction)):
            continue
        yield Violation(
            f"wire.{leaf.path}", leaf.path, leaf.offset, value, legal_text(leaf), leaf.row.doc,
            index,
        )  # fmt: skip


@cache
def _rules_of(cls: type[Bundle], level: Level) -> tuple[tuple[Rule, int], ...]:
    """Return the rules that bind a bundle class, each with the byte offset of its field."""
    offsets = {leaf.path: leaf.offset for leaf in layout_of(cls).leaves}
    return tuple((rule, offsets[rule.field]) for rule in _RULES[level] if cls in rule.applies)


def _cross_rules(level: Level, instruction: Bundle, arch: Arch, index: int) -> Iterator[Violation]:
    dynamic = shape_in_register(instruction)
    for rule, offset in _rules_of(type(instruction), level):
        if rule.sized and dynamic:
            continue
        finding = rule.test(instruction, arch)
        if finding is not None:
            got, allowed = finding
            yield Violation(rule.id, rule.field, offset, got, allowed, rule.message, index)


def _pair_rules(program: list[Bundle | None]) -> Iterator[Violation]:
    """Apply the rules that need both operands of a matmul to each MatmultMx and its load.

    The load is the latest one of the same row group; without one, the instruction just before.
    """
    latest: dict[int, LdWeightMx] = {}
    for index, instruction in enumerate(program):
        if isinstance(instruction, LdWeightMx):
            latest[instruction.row_group] = instruction
        if not isinstance(instruction, MatmultMx):
            continue
        before = program[index - 1] if index else None
        load = latest.get(instruction.row_group, before)
        if not isinstance(load, LdWeightMx):
            continue
        rows, cols = load.num_active_rows, load.src.containers
        sized = not load.src.shape_in_register
        if instruction.num_active_rows != rows:
            yield Violation(
                "V4.235", "num_active_rows", 0x26, instruction.num_active_rows,
                f"{rows}, as the stationary operand", "both operands have the same partitions",
                index,
            )  # fmt: skip
        if sized and instruction.num_active_cols != cols:
            yield Violation(
                "V4.236", "num_active_cols", 0x27, instruction.num_active_cols,
                f"{cols}, a quarter of the stationary extent",
                "output partitions times 4 is the stationary extent", index,
            )  # fmt: skip
