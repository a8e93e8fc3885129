"""Assembly text and back: one instruction per line, every field by name.

    MatmultMx src={data=sbuf(0, 0x0) scale=sbuf(0, 0x400) extent=512} dtype=FP8_EXP4 ...

A field that holds its default is left out.  Nested descriptors stand in braces, inside which lines
may break; a gather descriptor has its name before the brace, as in
``src=Indirect16{index=word(0x20000100) data=sbuf(0, 0x0) num=4}``.  ``#`` starts a comment; commas
are blanks.  An address is ``sbuf(partition, offset)``,
``psum(partition, bank, offset)``, ``register(number)`` or the raw ``word(0x...)``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, cast

from hardware.arch import Arch, ArchLike
from hardware.errors import AddressError

from .address import Addr4
from .bundle import Bundle, arch_of, bundle_types, decode_all, encode, encode_all
from .codec import table_of
from .errors import AssemblyError, EncodeError
from .rows import REQUIRED, Kind, Row, members

_TOKEN = re.compile(
    r"(?P<name>[A-Za-z_]\w*)|(?P<number>-?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|[0-9]+)\b)"
    r"|(?P<mark>[={}()])|(?P<line>\n)|(?P<blank>[ \t\r,]+|\#[^\n]*)"
)
# Longer than any field's largest value (the 512-bit residue), and short of slow conversions.
_LONGEST_NUMBER = 160
_FLAG_WORDS = {"true": 1, "false": 0}
_ADDRESS_FORMS: dict[str, tuple[int, Callable[..., Addr4]]] = {
    "sbuf": (2, Addr4.sbuf),
    "psum": (3, Addr4.psum),
    "register": (1, Addr4.register),
    "word": (1, Addr4),
}


def disassemble(data: Any, arch: ArchLike = Arch.MARIANA, strict: bool = True) -> str:
    """Return the text of a stream of bundles, one line each; :func:`assemble` is its inverse.

    Args:
      data: bytes of bundles, an instruction, a list of instructions, or a program, which brings
        its own generation.
      arch: the generation whose instruction set applies.
      strict: refuse non-zero reserved bits in bytes.

    Raises:
      CapabilityError: when the generation lacks an instruction or one of its fields.
      DecodeError: for the first bundle that cannot be decoded, with its index.
      EncodeError: for a list entry that is no instruction.
    """
    arch = arch_of(data, arch)
    if isinstance(data, Bundle):
        data = [data]
    if isinstance(data, (list, tuple)):
        found = cast("Sequence[Any]", data)
        encode_all(list(found), arch)  # for its refusals
    else:
        found = decode_all(data, arch, strict)
    return "".join(format_instruction(i) + "\n" for i in found)


def assemble(text: str, arch: ArchLike = Arch.MARIANA) -> bytes:
    """Return the bytes of assembly text.

    Raises:
      AssemblyError: naming line and column, what was found and what is allowed.
      CapabilityError: when the generation lacks an instruction.
    """
    arch = Arch.parse(arch)
    return b"".join(_encoded(head, instruction, arch) for head, instruction in _parsed(text))


def _encoded(head: _Token, instruction: Bundle, arch: Arch) -> bytes:
    try:
        return encode(instruction, arch)
    except EncodeError as error:
        raise head.refuse(f"{error.field}: {error.allowed}") from error


def format_instruction(instruction: Bundle) -> str:
    """Return one instruction as one line of text."""
    parts = [instruction.mnemonic, *_format_fields(instruction)]
    if instruction.residue:
        parts.append(f"residue={instruction.residue:#x}")
    return " ".join(parts)


def format_value(row: Row, value: Any) -> str:
    """Return a field's value as the text form spells it."""
    if row.record is not None:
        name = "" if type(value) is row.record else type(value).__name__
        return name + "{" + " ".join(_format_fields(value)) + "}"
    if isinstance(value, IntEnum):
        return value.name
    return str(value if row.kind is Kind.ADDRESS else int(value))


def _format_fields(record: object) -> Iterator[str]:
    for row in table_of(type(record)):
        if row.kind in (Kind.CONST, Kind.RESERVED):
            continue
        value = getattr(record, row.name)
        if row.default is REQUIRED or value != row.default:
            yield f"{row.name}={format_value(row, value)}"


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    line: int
    column: int

    def refuse(self, allowed: str) -> AssemblyError:
        got = {"line": "the end of the line", "end": "the end of the text"}.get(
            self.kind, self.text[:40]
        )
        return AssemblyError(self.line, self.column, got, allowed)


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at, line, start = 0, 1, 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise AssemblyError(
                line, at - start + 1, repr(text[at]), "a name, a number or one of ={}()"
            )
        kind = str(match.lastgroup)
        if kind != "blank":
            tokens.append(_Token(kind, match.group(), line, at - start + 1))
        at = match.end()
        if kind == "line":
            line, start = line + 1, at
    tokens.append(_Token("end", "", line, at - start + 1))
    return tokens


def parse_text(text: str) -> list[Bundle]:
    """Return the instructions of assembly text.

    Raises:
      AssemblyError: naming line and column, what was found and what is allowed.
    """
    return [instruction for _, instruction in _parsed(text)]


def _parsed(text: str) -> list[tuple[_Token, Bundle]]:
    """Return each instruction of assembly text with its first token."""
    # Callers outside a type checker pass anything.
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise AssemblyError(1, 1, type(text).__name__, "text")
    return _Parser(_tokens(text)).program()


class _Parser:
    """Recursive descent over the tokens; the tables say which fields a record has."""

    def __init__(self, tokens: list[_Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.types = {cls.mnemonic: cls for cls in bundle_types()}

    def take(self) -> _Token:
        token = self.tokens[self.at]
        self.at += token.kind != "end"
        return token

    def expect(self, mark: str) -> None:
        token = self.take()
        if token.text != mark:
            raise token.refuse(f"'{mark}'")

    def program(self) -> list[tuple[_Token, Bundle]]:
        found: list[tuple[_Token, Bundle]] = []
        while (token := self.take()).kind != "end":
            if token.kind == "line":
                continue
            if token.text not in self.types:
                raise token.refuse(", ".join(self.types))
            made = self.record(token, self.types[token.text], ("line", "end"))
            found.append((token, made))
        return found

    def record(self, head: _Token, cls: type[Any], closing: tuple[str, ...]) -> Any:
        """Read ``name=value`` pairs up to a closing token and build the record."""
        rows = {r.name: r for r in table_of(cls) if r.kind not in (Kind.CONST, Kind.RESERVED)}
        names = [*rows, "residue"] if issubclass(cls, Bundle) else [*rows]
        values: dict[str, Any] = {}
        where: dict[str, _Token] = {}
        while True:
            token = self.take()
            if token.kind in closing or token.text in closing:
                break
            if token.kind == "line" and "}" in closing:
                continue
            if token.text not in names or token.text in values:
                raise token.refuse(", ".join(n for n in names if n not in values) or "nothing more")
            self.expect("=")
            where[token.text] = self.tokens[self.at]
            row = rows.get(token.text)
            values[token.text] = self.value(row) if row else self.number()
        missing = [n for n, r in rows.items() if r.default is REQUIRED and n not in values]
        if missing:
            raise token.refuse("also " + ", ".join(missing))
        try:
            return cls(**values)
        except EncodeError as error:
            raise where.get(error.field, head).refuse(error.allowed) from error

    def value(self, row: Row) -> Any:
        token = self.tokens[self.at]
        if row.record is not None:
            named = {cls.__name__: cls for cls in row.records}
            record = named.get(token.text)
            if record is not None:
                self.take()
            elif token.kind == "name":
                raise token.refuse("{ or " + ", ".join(named))
            self.expect("{")
            return self.record(token, record or row.record, ("}",))
        if row.kind is Kind.ADDRESS:
            return self.address()
        if row.enum is not None and token.kind == "name":
            if token.text not in row.enum.__members__:
                raise token.refuse(members(row.enum))
            return row.enum[self.take().text]
        if row.kind is Kind.FLAG and token.text in _FLAG_WORDS:
            return _FLAG_WORDS[self.take().text]
        return self.number()

    def number(self) -> int:
        token = self.take()
        if token.kind != "number" or len(token.text) > _LONGEST_NUMBER:
            raise token.refuse("a number")
        digits = token.text.lstrip("-")
        base = {"0x": 16, "0b": 2}.get(digits[:2].lower(), 10)
        return int(token.text, base)

    def address(self) -> Addr4:
        token = self.take()
        if token.text not in _ADDRESS_FORMS:
            raise token.refuse("sbuf(..), psum(..), register(..) or word(..)")
        count, make = _ADDRESS_FORMS[token.text]
        self.expect("(")
        numbers = [self.number() for _ in range(count)]
        self.expect(")")
        try:
            return make(*numbers)
        except AddressError as error:
            what = "" if error.what == "address" else f"{error.what} "
            raise token.refuse(what + error.limit) from error
        except EncodeError as error:
            raise token.refuse(error.allowed) from error
