"""The ``mxref`` command: a thin shell over the library.

Commands are imported when they are named, so that a damaged one cannot take the others along.
Exit codes: 0 done, 1 a check or comparison failed, 2 wrong use or bad input.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

from hardware.errors import MxrefError

_COMMANDS = {
    "demo": "demo",
    "matmul": "matmul",
    "quantize": "numeric",
    "dequantize": "numeric",
    "formats": "numeric",
    "dis": "wire",
    "asm": "wire",
    "check": "wire",
    "explain": "wire",
    "run": "machine",
    "selftest": "selftest",
}
_SHORT = {
    "demo": "The main job on a real tensor: quantize, emit, run the bytes, compare.",
    "matmul": "X @ W in block-scaled arithmetic, bit for bit.",
    "quantize": "Array file to codes and scales.",
    "dequantize": "Codes and scales to a float32 array.",
    "formats": "The number formats, computed from their widths.",
    "dis": "Bundles to assembly text.",
    "asm": "Assembly text to bundles.",
    "check": "Every rule that bundles break.",
    "explain": "One 64-byte bundle, byte by byte.",
    "run": "Execute a program or raw bundles.",
    "selftest": "Digests that must be the same on every machine.",
}


class _Commands(click.Group):
    """A group that imports a command when it is named and reports errors in one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = _COMMANDS.get(cmd_name)
        if module is None:
            return None
        return getattr(import_module(f"mxref.cli.{module}"), cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_SHORT.items()))

    def main(self, *args: Any, standalone_mode: bool = True, **kwargs: Any) -> Any:
        """Run; with ``standalone_mode`` turn every expected error into its exit code."""
        if not standalone_mode:
            return super().main(*args, standalone_mode=False, **kwargs)
        try:
            result = super().main(*args, standalone_mode=False, **kwargs)
        except click.ClickException as error:
            _complain(error.format_message())
            sys.exit(2)
        except MxrefError as error:
            _complain(str(error))
            sys.exit(2)
        except (KeyboardInterrupt, click.exceptions.Abort):
            _complain("interrupted")
            sys.exit(130)
        sys.exit(result if isinstance(result, int) else 0)


def _complain(message: str) -> None:
    click.echo("mxref: " + " ".join(message.split()), err=True)


def _show_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        import mxref

        click.echo(f"mxref {mxref.__version__}")
        ctx.exit()


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
)
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_show_version,
    help="Show the version and exit.",
)  # fmt: skip
@click.pass_context
def main(ctx: click.Context) -> None:
    """Bit-exact low-precision matrix arithmetic, from the wire format up."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
