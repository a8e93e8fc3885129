"""``selftest``: digests that must be the same on every machine."""

from __future__ import annotations

import contextlib

import click
import jax
from rich.markup import escape

from mxref.cli.output import Differs, InputError, console, count, table


@click.command(short_help="Digests that must be the same on every machine.")
@click.option("--device", metavar="KIND", help="Backend to test, for example gpu.")
@click.option("--show", is_flag=True, help="Print the digests without judging them.")
def selftest(device: str | None, show: bool) -> None:
    """Compute one digest per format, order and bundle and compare with the oracle's.

    Exit 1 when one of them differs.
    """
    from mxref import selftest as room

    place = jax.default_device(_device(device)) if device else contextlib.nullcontext()
    kind = jax.devices(device)[0].device_kind if device else jax.devices()[0].device_kind
    rows = table()
    for name in ("Check", "Digest", "" if show else "Verdict"):
        rows.add_column(name)
    with place, console(stderr=True).status("computing digests"):
        results = list(room.checks())
    for result in results:
        verdict = "[good]same[/]" if result.passed else f"[bad]differs[/], want {result.expected}"
        rows.add_row(escape(result.name), result.found, "" if show else verdict)
    say = console()
    say.print(rows)
    if show:
        return
    wrong = [r for r in results if not r.passed]
    total = count(len(results), "digest")
    if wrong:
        say.print(f"[bad]{len(wrong)} of {total} differ[/] on {escape(kind)}")
        raise Differs
    say.print(f"[good]{total}, all the same[/] on {escape(kind)}")


def _device(kind: str):
    try:
        return jax.devices(kind)[0]
    except RuntimeError as error:
        known = ", ".join(sorted({d.platform for d in jax.devices()}))
        raise InputError(f"--device {kind}: not here; here there is {known}") from error
