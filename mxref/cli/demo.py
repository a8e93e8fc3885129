"""``demo``: the main job, shown."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import click
from rich.markup import escape
from rich.table import Table

from mxref.cli.options import FILE, examples
from mxref.cli.output import Differs, InputError, console, sqnr, table


@click.command(
    short_help="The main job on a real tensor: quantize, emit, run the bytes, compare.",
    epilog=examples("mxref demo --keep programs", "mxref dis programs/demo-mxfp8.mxp"),
)
@click.option("--keep", type=FILE, metavar="DIR",
              help="Leave the program files in DIR, which is made if need be.")  # fmt: skip
def demo(keep: Path | None) -> None:
    """Multiply one layer of a digit classifier in MXFP8 and MXFP4, on three roads.

    The direct kernel, the program run from its bytes, and the oracle's exact executor must give the
    same bits.  Exit 1 when one of them is wrong.

    Takes about 20 to 40 s on two cores, nearly all of it compilation.
    """
    from mxref import demo as job_room
    from mxref.data import digits
    from mxref.fidelity import reference

    if keep is not None:
        _make_directory(keep)
    started = time.perf_counter()
    data = digits()
    (m, k), n = data.activations.shape, data.weights.shape[1]
    say = console()
    say.print(
        "[head]One layer of a classifier of handwritten digits[/]\n"
        f"activations [{m}, {k}] @ weights [{k}, {n}], bfloat16, shipped with the package"
    )
    with ExitStack() as stack:
        place = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mxref-")))
        # A spinner only where someone watches: it writes to standard error, the table does not.
        status = stack.enter_context(console(stderr=True).status("starting"))

        def report(name: str, step: str) -> None:
            status.update(f"{name}: {step}")

        results = [
            job_room.evaluate(job, place, partial(report, job.name)) for job in job_room.JOBS
        ]
    plain = data.correct(reference(data.activations, data.weights))
    say.print()
    say.print(_table(results))
    say.print()
    wrong = [r for r in results if not r.passed]
    for result in wrong:
        for violation in result.violations:
            say.print(f"[bad]broken[/]  {result.job.name}: {escape(violation)}")
    seconds = time.perf_counter() - started
    say.print(f"float64 reads {plain} of {len(data.labels)} digits right.", style="dim")
    if keep is not None:
        for result in results:
            say.print(f"wrote {escape(str(result.file))}", soft_wrap=True)
        say.print("`mxref dis`, `check`, `explain` and `run` read these files.", style="dim")
    if wrong:
        names = " and ".join(r.job.name for r in wrong)
        say.print(f"[bad]Not the same bits[/] in {names}.  {seconds:.1f} s")
        raise Differs
    say.print(f"[good]Every bit agrees[/] on all three roads.  {seconds:.1f} s")


def _make_directory(place: Path) -> None:
    try:
        place.mkdir(exist_ok=True)
    except FileExistsError as error:
        raise InputError(f"{place}: is a file, expected a directory") from error
    except OSError as error:
        raise InputError(f"{place}: {(error.strerror or str(error)).lower()}") from error


def _table(results) -> Table:
    view = table()
    view.add_column("")
    for result in results:
        view.add_column(result.job.name, justify="right")

    def row(label: str, cell, **style):
        view.add_row(label, *[cell(r) for r in results], **style)

    row("elements", lambda r: r.job.format.name)
    row("policy", lambda r: r.job.policy.name)
    row("quantized by", lambda r: "QuantizeMx bundles" if r.job.on_device else "the host")
    row("bundles", lambda r: f"{sum(r.mnemonics.values()):,}")
    for mnemonic in ("QuantizeMx", "LdWeightMx", "MatmultMx"):
        row(f"  {mnemonic}", lambda r, m=mnemonic: f"{r.mnemonics.get(m, 0):,}", style="dim")
    row("bytes of bundles", lambda r: f"{r.code_bytes:,}")
    row("bytes of program file", lambda r: f"{r.file_bytes:,}")
    row("rules broken", lambda r: _verdict(len(r.violations), not r.violations), end_section=True)
    row("output bits compared", lambda r: f"{r.bits:,}")
    row("run from bytes = direct kernel", lambda r: _share(r.run_equal, r.bits))
    row("oracle executor = direct kernel", lambda r: _share(r.oracle_equal, r.bits))
    row("largest error against float64", lambda r: f"{r.fidelity.max:.4g}")
    row("RMS error", lambda r: f"{r.fidelity.rms:.4g}")
    row("SQNR", lambda r: sqnr(r.fidelity))
    row("digits read right", lambda r: f"{r.correct} of {r.digits}")
    return view


def _verdict(number: int, good: bool) -> str:
    return f"[{'good' if good else 'bad'}]{number:,}[/]"


def _share(equal: int, total: int) -> str:
    # Never rounded up to 100 %: one wrong bit in millions still shows.
    share = "100 %" if equal == total else f"{int(1e6 * equal / total) / 1e4:.4f} %"
    style = "good" if equal == total else "bad"
    return f"{equal:,}  [{style}]{share}[/]"
