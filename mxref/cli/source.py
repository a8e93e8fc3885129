"""Where bundles come from: program files, raw bytes, hex digits; a path or standard input."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from hardware.opcodes import BUNDLE_BYTES
from mxref.cli.output import InputError
from mxref.errors import ProgramError
from mxref.program import Program

_ZIP = b"PK\x03\x04"
_HEX = re.compile(rb"[0-9a-fA-F\s]+")


def read_bytes(source: str) -> bytes:
    """The bytes of a file, or of standard input when ``source`` is ``-``.

    Raises:
      InputError: when there is no such file or it cannot be read.
    """
    if source == "-":
        return _read_stdin()
    try:
        return Path(source).read_bytes()
    except OSError as error:
        raise InputError(f"{source}: {_reason(error)}") from error


def _read_stdin() -> bytes:
    if sys.stdin is None:
        raise InputError("-: standard input is closed")
    try:
        return sys.stdin.buffer.read()
    except OSError as error:
        raise InputError(f"-: {_reason(error)}") from error


def read_text(source: str) -> str:
    """A text file, or standard input.

    Raises:
      InputError: when it is not UTF-8 text.
    """
    try:
        return read_bytes(source).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{source}: not a text file") from error


def is_program(data: bytes) -> bool:
    """Whether the bytes are a program file (a zip archive)."""
    return data.startswith(_ZIP)


def read_bundles(source: str) -> bytes:
    """Raw bundles from a program file, a binary file or a file of hex digits.

    Raises:
      InputError: when nothing can be read, or not in whole bundles.
    """
    data = read_bytes(source)
    if is_program(data):
        return open_program(source, data).bytes()
    if _HEX.fullmatch(data) and data.strip():
        data = unhex(data.decode(), source)
    return whole(data, source)


def whole(data: bytes, source: str) -> bytes:
    """The bytes themselves, if they are one or more whole bundles.

    Raises:
      InputError: otherwise.
    """
    if not data:
        raise InputError(f"{source}: empty")
    if len(data) % BUNDLE_BYTES:
        raise InputError(
            f"{source}: {len(data)} bytes are not whole bundles of {BUNDLE_BYTES}; "
            f"the last one has {len(data) % BUNDLE_BYTES}"
        )
    return data


def unhex(text: str, source: str) -> bytes:
    """Bytes from hex digits; blanks, colons, underscores and a leading 0x are allowed.

    Raises:
      InputError: naming the first character that is no hex digit.
    """
    digits = re.sub(r"[\s:_]", "", text.strip().removeprefix("0x"))
    wrong = re.search(r"[^0-9a-fA-F]", digits)
    if wrong:
        raise InputError(f"{source}: {wrong.group()!r} at digit {wrong.start()} is not hexadecimal")
    if len(digits) % 2:
        raise InputError(f"{source}: {len(digits)} hex digits, an odd number")
    return bytes.fromhex(digits)


def open_program(source: str, data: bytes) -> Program:
    """Parse a program file already read.

    Raises:
      InputError: when it is damaged.
    """
    try:
        return Program.from_bytes(data)
    except ProgramError as error:
        raise InputError(f"{source}: {error}") from error


def _reason(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return (error.strerror or str(error)).lower()
