"""How the commands speak: one style for tables, one line for errors, files whole or not at all."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.theme import Theme

from mxref.fidelity import Fidelity
from mxref.policy import ORDERS, Accumulate
from mxref.program.arrays import whole_file

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
    # A process started without standard error has none; what it would show is then lost.
    stream = (sys.stderr or io.StringIO()) if stderr else sys.stdout
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
    if os.path.isdir(path):
        raise InputError(f"{path}: is a directory")
    try:
        with whole_file(path) as file:
            write(file)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def require_file(path: Path) -> None:
    """Refuse a name that no file can be read from.

    Raises:
      InputError: when nothing is there, or the name cannot be looked up.
    """
    try:
        os.stat(path)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except OSError as error:
        raise InputError(f"{path}: {(error.strerror or str(error)).lower()}") from error


def require_place(path: Path, *endings: str) -> None:
    """Refuse a place that cannot take the outcome, before any work is done.

    Raises:
      InputError: when the folder is missing, or the name has none of ``endings`` (if given).
    """
    if endings and path.suffix not in endings:
        raise InputError(f"{path}: expected a name that ends in {' or '.join(endings)}")
    if os.path.isdir(path):
        raise InputError(f"{path}: is a directory")
    if not os.path.isdir(path.parent):
        raise InputError(f"{path}: no such directory")
    try:
        os.stat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def error_rows(rows: Table, error: Fidelity) -> None:
    """Add the lines that say how far a result is from its reference."""
    rows.add_row("largest error", f"{error.max:.6g}")
    rows.add_row("RMS error", f"{error.rms:.6g}")
    rows.add_row("SQNR", sqnr(error))
    if error.nonfinite:
        rows.add_row("not finite", f"{error.nonfinite:,} elements, left out of the errors")


def order_text(order: Accumulate) -> str:
    """An order by the name people give it, and what the name stands for."""
    text = str(order)
    name = next((name for name, known in ORDERS.items() if known == order), text)
    return text if name == text else f"{name} = {text}"


def sqnr(error: Fidelity) -> str:
    """The ratio in dB; a result without any error has none and is called exact."""
    return "exact" if error.max == 0 else f"{error.sqnr:.2f} dB"


def count(number: int, noun: str) -> str:
    """``1 bundle``, ``2,048 bundles``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
