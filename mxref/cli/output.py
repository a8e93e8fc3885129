"""How the commands speak: one style for tables, one line for errors, files whole or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.theme import Theme

_THEME = Theme(
    {
        "good": "bold green",
        "bad": "bold red",
        "dim": "bright_black",
        "head": "bold",
        "field": "cyan",
        "number": "default",
    }
)


class InputError(click.ClickException):
    """What the user gave cannot be used; one line, exit 2."""

    exit_code = 2


class Differs(click.exceptions.Exit):
    """The check or comparison failed: exit 1, everything already said."""

    def __init__(self) -> None:
        super().__init__(1)


def console(*, stderr: bool = False) -> Console:
    """A console on the current stream (made late, so that tests may capture it)."""
    stream = sys.stderr if stderr else sys.stdout
    # A pipe or a file has no width: tables then keep their natural one, so that lines stay whole.
    width = None if stream.isatty() or "COLUMNS" in os.environ else 200
    return Console(file=stream, theme=_THEME, highlight=False, width=width)


def table(title: str | None = None) -> Table:
    """An empty table in the house style: a rule below the header, nothing else."""
    return Table(
        title=title,
        title_justify="left",
        title_style="head",
        box=box.SIMPLE_HEAD,
        header_style="head",
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )


def write_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file through ``write`` so that it appears whole or not at all.

    Raises:
      InputError: when the place cannot be written.
    """
    if path.is_dir():
        raise InputError(f"{path}: is a directory")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        # mkstemp makes private files; give the result the permissions any new file would have.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def count(number: int, noun: str) -> str:
    """``1 bundle``, ``2,048 bundles``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
