"""``run``: execute a program file or raw bundles, and compare the outcome."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
import numpy as np
from rich.markup import escape

from hardware import Arch
from mxref.cli import arrays, source
from mxref.cli.options import FILE, ORDER, POLICY, arch_option, out_option
from mxref.cli.output import Differs, InputError, console, count, table
from mxref.errors import ProgramError
from mxref.machine import State
from mxref.machine import run as execute
from mxref.policy import Accumulate, NumericPolicy
from mxref.program import Program
from mxref.testing import first_difference
from mxref.testing.compare import NanMode


@click.command(short_help="Execute a program or raw bundles.")
@click.argument("file", metavar="PROG|BUNDLES|-")
@click.option("--memory", type=FILE, metavar="IMAGE.npz", help="Memory to start from.")
@click.option("--input", "inputs", multiple=True, metavar="NAME=X.npy", help="Replace an input.")
@click.option("--expect", type=FILE, metavar="OUT.npz", help="Compare; exit 1 on a difference.")
@click.option("--nan", type=click.Choice(["class", "payload"]), default="class", show_default=True,
              help="With --expect: may any NaN equal any NaN.")  # fmt: skip
@click.option("--trace", is_flag=True, help="Print what every bundle reads and writes.")
@click.option("--policy", type=POLICY, help="Numeric profile; the program's own by default.")
@click.option("--accumulate", type=ORDER, help="Accumulation order; the program's by default.")
@click.option("--uninitialised", type=click.Choice(["nan", "raise", "zero"]), default="nan",
              show_default=True, help="What memory that nothing wrote reads as.")  # fmt: skip
@click.option("--zero", type=click.Choice(["written", "bank"]), default="written",
              show_default=True, help="What START clears (D25).")  # fmt: skip
@click.option("--no-check", is_flag=True, help="Execute even what breaks a wire rule.")
@arch_option
@out_option
def run(
    file: str,
    memory: Path | None,
    inputs: tuple[str, ...],
    expect: Path | None,
    nan: NanMode,
    trace: bool,
    policy: NumericPolicy | None,
    accumulate: Accumulate | None,
    uninitialised,
    zero,
    no_check: bool,
    arch: Arch,
    out: Path | None,
) -> None:
    """Execute bundles on the machine, bit for bit.

    A program file brings its inputs and names its outputs; --out writes those.  Raw bundles work on
    --memory, and --out then writes the memory they leave.
    """
    if out is not None:
        require_npz(out)
    data = source.read_bytes(file)
    program = source.open_program(file, data) if source.is_program(data) else None
    if program is None:
        data = source.read_bundles(file) if file != "-" else source.whole(data, file)
    given = _inputs(inputs, program)
    wanted = _expected(expect, program)
    state = load_image(memory) if memory is not None else None
    done = execute(
        data if program is None else program,
        state,
        # A program has its own generation; only raw bundles need to be told.
        arch=arch if program is None else program.arch,
        policy=policy,
        accumulate=accumulate,
        check=not no_check,
        uninitialised=uninitialised,
        zero=zero,
        trace=trace,
        inputs=given or None,
    )
    say = console()
    for step in done.trace:
        say.print(escape(str(step)), soft_wrap=True)
    outputs = {name: np.asarray(value) for name, value in done.outputs.items()}
    if program is not None:
        say.print(f"ran {count(len(program), 'bundle')}, {program.policy}, {program.order}")
    else:
        say.print(f"ran {count(len(data) // 64, 'bundle')}")
    if program is not None:
        _summary(outputs)
    if out is not None:
        if program is not None:
            arrays.save_arrays(out, outputs)
        else:
            replace(done, trace=()).save(out)
        say.print(f"wrote {escape(str(out))}")
    if expect is not None and not _agrees(outputs if program else _image(done), wanted, nan):
        raise Differs


def load_image(path: Path) -> State:
    """Read a memory image.

    Raises:
      InputError: when it is missing, damaged or of another shape.
    """
    try:
        return State.load(path)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except ProgramError as error:
        raise InputError(f"{path}: {error}") from error


def require_npz(path: Path) -> None:
    """Refuse a place that cannot take the outcome before any work is done.

    Raises:
      InputError: when the name or the folder will not do.
    """
    if path.suffix != ".npz":
        raise InputError(f"{path}: expected a name that ends in .npz")
    if path.is_dir():
        raise InputError(f"{path}: is a directory")
    if not path.parent.is_dir():
        raise InputError(f"{path}: no such directory")


def _inputs(pairs: tuple[str, ...], program: Program | None) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for pair in pairs:
        name, mark, spec = pair.partition("=")
        if not mark or not name or not spec:
            raise InputError(f"--input {pair}: expected NAME=FILE.npy")
        if program is None:
            raise InputError("--input: raw bundles have no named inputs; use --memory")
        if name not in program.inputs:
            names = ", ".join(program.inputs) or "none"
            raise InputError(f"--input {name}: the program's inputs are {names}")
        found[name] = arrays.read_floats(spec)
    return found


def _expected(path: Path | None, program: Program | None) -> dict[str, np.ndarray]:
    if path is None:
        return {}
    return arrays.read_arrays(path) if program is not None else _image(load_image(path))


def _image(state: State) -> dict[str, np.ndarray]:
    names = ("sbuf", "sbuf_written", "psum", "psum_written")
    return {name: np.asarray(getattr(state, name)) for name in names}


def _summary(outputs: dict[str, np.ndarray]) -> None:
    rows = table()
    for name in ("Output", "Type", "Shape", "Smallest", "Largest", "NaN"):
        rows.add_column(name, justify="left" if name in ("Output", "Type") else "right")
    for name, value in outputs.items():
        numbers = value.astype(np.float64)
        known = numbers[~np.isnan(numbers)]
        ends = (f"{known.min():.6g}", f"{known.max():.6g}") if known.size else ("", "")
        missing = f"{numbers.size - known.size:,}"
        rows.add_row(name, str(value.dtype), str(list(value.shape)), *ends, missing)
    console().print(rows)


def _agrees(got: dict[str, np.ndarray], want: dict[str, np.ndarray], nan: NanMode) -> bool:
    """Print one line for each array and say whether all bits agree."""
    say = console()
    good = True
    for name in dict.fromkeys([*want, *got]):
        if name not in got or name not in want:
            good, missing = False, "the outcome" if name not in got else "the expected file"
            say.print(f"[bad]differs[/]  {escape(name)}: not in {missing}")
            continue
        try:
            difference = first_difference(got[name], want[name], nan)
        except AssertionError as error:
            good = False
            say.print(f"[bad]differs[/]  {escape(f'{name}: {error}')}", soft_wrap=True)
            continue
        if difference is None:
            say.print(f"[good]equal[/]    {escape(name)}, {8 * got[name].nbytes:,} bits")
        else:
            good = False
            say.print(f"[bad]differs[/]  {escape(f'{name}: {difference}')}", soft_wrap=True)
    return good
