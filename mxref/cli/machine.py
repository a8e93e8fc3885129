"""``run``: execute a program file or raw bundles, and compare the outcome."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
import numpy as np
from click.core import ParameterSource
from rich.markup import escape

from hardware import Arch
from hardware.opcodes import BUNDLE_BYTES
from mxref.cli import arrays, source
from mxref.cli.options import FILE, ORDER, POLICY, arch_option, examples, out_option
from mxref.cli.output import (
    Differs,
    InputError,
    console,
    count,
    order_text,
    require_file,
    require_place,
    table,
)
from mxref.errors import ProgramError, UninitialisedError
from mxref.machine import State
from mxref.machine import run as execute
from mxref.policy import NEURON_2_24, SYSTOLIC_MX, Accumulate, NumericPolicy
from mxref.program import Program
from mxref.testing import first_difference
from mxref.testing.compare import NanMode


@click.command(
    short_help="Execute a program or raw bundles.",
    epilog=examples(
        "mxref run prog.mxp --expect y.npy",
        "mxref run prog.mxp --input lhs=x2.npy --out out.npz",
        "mxref run bundles.bin --memory before.npz --out after.npz",
    ),
)
@click.argument("file", metavar="PROG|BUNDLES|-")
@click.option(
    "--memory",
    type=FILE,
    metavar="IMAGE.npz",
    help="Memory image to start from (mx.State.save, or --out).",
)
@click.option("--input", "inputs", multiple=True, metavar="NAME=X.npy", help="Replace an input.")
@click.option("--expect", type=FILE, metavar="OUT.npz",
              help="Compare with what --out writes, or with a .npy when there is one output; "
              "exit 1 on a difference.")  # fmt: skip
@click.option("--nan", type=click.Choice(["class", "payload"]), default="class", show_default=True,
              help="With --expect: may any NaN equal any NaN.")  # fmt: skip
@click.option("--trace", is_flag=True, help="Print what every bundle reads and writes.")
@click.option("--policy", type=POLICY, help="Numeric profile.",
              show_default=f"the program's own, {NEURON_2_24} for raw bundles")  # fmt: skip
@click.option("--accumulate", type=ORDER, help="Accumulation order.",
              show_default=f"the program's own, {SYSTOLIC_MX} for raw bundles")  # fmt: skip
@click.option("--uninitialised", type=click.Choice(["nan", "raise", "zero"]), default="nan",
              show_default=True, help="What memory that nothing wrote reads as.")  # fmt: skip
@click.option("--zero", type=click.Choice(["written", "bank"]), default="written",
              show_default=True, help="What START clears (D25).")  # fmt: skip
@click.option("--no-check", is_flag=True, help="Execute even what breaks a wire rule.")
@arch_option
@out_option("Write the outputs of a program, or the memory that raw bundles leave, to a .npz file.")
@click.pass_context
def run(
    context: click.Context,
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
    --memory, and --out then writes the memory they leave, which a later --memory reads.  Python
    makes an image with mx.State.empty().write(space, partition, offset, array).save(path).

    What a bundle reads but nothing wrote counts as NaN, and a warning says so; --uninitialised
    chooses otherwise.
    """
    if out is not None:
        require_place(out, ".npz")
    data = source.read_bytes(file)
    program = source.open_program(file, data) if source.is_program(data) else None
    if program is None:
        data = source.read_bundles(file) if file != "-" else source.whole(data, file)
    elif context.get_parameter_source("arch") is ParameterSource.COMMANDLINE:
        _require_arch(arch, program, file)
    given = _inputs(inputs, program)
    wanted = _expected(expect, program)
    state = load_image(memory) if memory is not None else None
    start = partial(
        execute,
        data if program is None else program,
        state,
        # A program has its own generation; only raw bundles need to be told.
        arch=arch if program is None else program.arch,
        policy=policy,
        accumulate=accumulate,
        check=not no_check,
        zero=zero,
        trace=trace,
        inputs=given or None,
    )
    done = _warning_of_nan(start) if uninitialised == "nan" else start(uninitialised=uninitialised)
    say = console()
    for step in done.trace:
        say.print(escape(str(step)), soft_wrap=True)
    outputs = {name: np.asarray(value) for name, value in done.outputs.items()}
    used_policy = policy or (NEURON_2_24 if program is None else program.policy)
    used_order = accumulate or (SYSTOLIC_MX if program is None else program.order)
    bundles = len(data) // BUNDLE_BYTES if program is None else len(program)
    say.print(f"ran {count(bundles, 'bundle')}, {used_policy}, {order_text(used_order)}")
    if program is not None:
        _summary(outputs)
    elif out is None and expect is None:
        say.print("raw bundles name no outputs: --out writes the memory they left", style="dim")
    if out is not None:
        if program is not None:
            arrays.save_arrays(out, outputs)
        else:
            _save_image(replace(done, trace=()), out)
        say.print(f"wrote {escape(str(out))}")
    if expect is not None and not _agrees(outputs if program else _image(done), wanted, nan):
        raise Differs


def _save_image(state: State, path: Path) -> None:
    try:
        state.save(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def load_image(path: Path) -> State:
    """Read a memory image.

    Raises:
      InputError: when it is missing, damaged or of another shape.
    """
    require_file(path)
    try:
        return State.load(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except ProgramError as error:
        raise InputError(f"{path}: {str(error).removeprefix(f'{path}: ')}") from error


def _require_arch(arch: Arch, program: Program, file: str) -> None:
    if arch is not program.arch:
        raise InputError(f"--arch {arch.label}: {file} is a program for {program.arch.label}")


def _warning_of_nan(start: Callable[..., State]) -> State:
    """Run with unwritten memory as NaN, and say where the first of it was read.

    A run that may raise and does not is the same run, so only one that meets unwritten memory pays
    for a second.
    """
    try:
        return start(uninitialised="raise")
    except UninitialisedError as error:
        done = start(uninitialised="nan")
        click.echo(
            f"mxref: warning: {error}; it counts as NaN (fill memory with --memory, or choose "
            "--uninitialised raise or zero)",
            err=True,
        )
        return done


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
    if program is None:
        return _image(load_image(path))
    if path.suffix != ".npy":
        return arrays.read_arrays(path)
    if len(program.outputs) != 1:
        names = ", ".join(program.outputs) or "none"
        raise InputError(f"--expect {path}: one array, but the program's outputs are {names}")
    return {next(iter(program.outputs)): arrays.read_array(str(path))}


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
