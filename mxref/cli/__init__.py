"""The ``mxref`` command: a thin shell over the library.

Commands are imported when they are named, so that a damaged one cannot take the others along.
Exit codes: 0 done, 1 a check or comparison failed, 2 wrong use or bad input, 141 (as a pipe's
signal) the reader of the output left before its end.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
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
_READER_LEFT = 141
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
        if sys.stdout is None:
            _complain("standard output is closed")
            sys.exit(2)
        try:
            result = super().main(*args, standalone_mode=False, **kwargs)
            sys.stdout.flush()
        except (SystemExit, BrokenPipeError):
            # click and rich exit here, and only here, when the output's reader has left.
            _drop_output()
            sys.exit(_READER_LEFT)
        except OSError as error:
            _drop_output()
            _complain(f"{error.filename or 'cannot write'}: {error.strerror or error}")
            sys.exit(2)
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


def _drop_output() -> None:
    """Let what standard output still holds go nowhere, so that the last flush cannot fail."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
    """Bit-exact low-precision matrix arithmetic, from the wire format up.

    Exit codes: 0 done, 1 a check or comparison failed, 2 wrong use or bad input, 141 the reader of
    the output left early.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
