"""Options that several commands share, resolved to the library's own values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from hardware import Arch
from mxref import formats, policy
from mxref.errors import MxrefError


class _Resolved(click.ParamType):
    """A text that one of the library's resolvers turns into a value."""

    def __init__(self, name: str, resolve: Callable[[Any], Any]) -> None:
        self.name = name
        self._resolve = resolve

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._resolve(value)
        except MxrefError as error:
            self.fail(str(error), param, ctx)


FORMAT = _Resolved("format", formats.format)
POLICY = _Resolved("policy", policy.policy)
ORDER = _Resolved("order", policy.order)
FILE = click.Path(path_type=Path)

format_option = click.option(
    "--format",
    "fmt",
    type=FORMAT,
    default="float8_e4m3fn",
    show_default=True,
    help="Element format; `mxref formats` lists them.",
)
_POLICY_HELP = "Numeric profile: " + ", ".join(policy.POLICIES) + "."
_ORDER_HELP = "Accumulation order: " + ", ".join(policy.ORDERS) + " or SYSTOLIC(lanes, tile_k)."

policy_option = click.option(
    "--policy", type=POLICY, default="OCP", show_default=True, help=_POLICY_HELP
)


def chosen_policy_option(default: str) -> Callable[[Any], Any]:
    """``--policy`` whose default depends on something else, which ``default`` says in words."""
    return click.option("--policy", type=POLICY, show_default=default, help=_POLICY_HELP)


def chosen_order_option(default: str) -> Callable[[Any], Any]:
    """``--accumulate`` whose default depends on something else, which ``default`` says in words."""
    return click.option("--accumulate", type=ORDER, show_default=default, help=_ORDER_HELP)


def out_option(what: str) -> Callable[[Any], Any]:
    """``--out``, saying what is written."""
    return click.option("--out", "-o", type=FILE, help=what)


def examples(*lines: str) -> str:
    """Text for the end of a command's help, kept line by line."""
    return "\b\nExamples:\n" + "\n".join("  " + line for line in lines)


arch_option = click.option(
    "--arch",
    type=_Resolved("arch", Arch.parse),
    default=Arch.MARIANA.label,
    show_default=True,
    help="Generation: " + ", ".join(a.label for a in Arch) + ".",
)
