"""``matmul``: X @ W in block-scaled arithmetic, by the direct road and through the bytes."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
from rich.markup import escape

import mxref as mx
from mxref.cli import arrays
from mxref.cli.options import (
    FILE,
    FORMAT,
    chosen_order_option,
    chosen_policy_option,
    examples,
    format_option,
    out_option,
)
from mxref.cli.output import (
    Differs,
    InputError,
    console,
    count,
    error_rows,
    order_text,
    require_place,
    table,
)
from mxref.fidelity import Fidelity, reference
from mxref.testing import first_difference

#: What the microscaling bundles carry.
_ON_WIRE = (mx.E4M3FN, mx.E5M2, mx.E2M1FN)
#: The name that the lowering gives a program's output.
_OUTPUT = "out"


@click.command(
    short_help="X @ W in block-scaled arithmetic, bit for bit.",
    epilog=examples(
        "mxref matmul x.npy w.npy --format e2m1 --out y.npy",
        "mxref matmul x.npy w.npy --source bfloat16 --save prog.mxp --out y.npz",
        "mxref run prog.mxp --expect y.npz",
    ),
)
@click.argument("x", metavar="X.npy")
@click.argument("w", metavar="W.npy")
@format_option
@click.option("--rhs-format", "rhs_fmt", type=FORMAT, help="Element format of W, if another.")
@chosen_policy_option("NEURON_2_24 with --source, as the machine; else OCP, as the array API")
@chosen_order_option("SYSTOLIC_MX where bundles have the formats, as the machine; else BLOCK")
@click.option("--source", type=click.Choice(["bfloat16", "float16"]),
              help="Cast to this and let QuantizeMx bundles quantize (FP8).")  # fmt: skip
@click.option("--save", type=FILE, metavar="PROG.mxp", help="Write the program file.")
@click.option("--plot", type=FILE, metavar="ERR.png",
              help="Draw the error (.png, .svg, .pdf); needs matplotlib.")  # fmt: skip
@out_option("Write the float32 product: .npy, or .npz with the array `out` for `run --expect`.")
def matmul(
    x: str,
    w: str,
    fmt: mx.FormatSpec,
    rhs_fmt: mx.FormatSpec | None,
    policy: mx.NumericPolicy | None,
    accumulate: mx.Accumulate | None,
    source: str | None,
    save: Path | None,
    plot: Path | None,
    out: Path | None,
) -> None:
    """Quantize X [M, K] and W [K, N], multiply, and report the error against float64.

    Where the tensor engine has the formats and the order, the product is also lowered to bundles
    and run from its bytes; the two results must agree in every bit, else the exit code is 1.
    FILE.npz:NAME picks one array of several.
    """
    if plot is not None:
        from mxref.cli.plot import require_matplotlib

        require_matplotlib(plot)
        require_place(plot)
    if out is not None:
        require_place(out, ".npy", ".npz")
    if save is not None:
        require_place(save)
    lhs, rhs = arrays.read_floats(x), arrays.read_floats(w)
    _require_matrices(x, lhs, w, rhs)
    rhs_fmt = rhs_fmt or fmt
    reason = _why_no_bundles(fmt, rhs_fmt, accumulate)
    if reason and (save is not None or source is not None):
        raise InputError(f"{'--save' if save else '--source'}: {reason}")
    if source is not None and mx.E2M1FN in (fmt, rhs_fmt):
        raise InputError(f"--source: programs quantize to FP8 only, not to {mx.E2M1FN} (D25c)")
    fallback = bool(reason) and accumulate is None
    if accumulate is None:
        accumulate = mx.BLOCK if reason else mx.SYSTOLIC_MX
    if policy is None:
        policy = mx.NEURON_2_24 if source else mx.OCP
    exact = reference(lhs, rhs)
    if source is not None:
        lhs, rhs = (np.asarray(a, np.float32).astype(arrays.FLOATS[source]) for a in (lhs, rhs))
    q = mx.quantize(lhs, fmt, policy=policy), mx.quantize(rhs, rhs_fmt, axis=-2, policy=policy)
    product = np.asarray(mx.matmul(*q, accumulate=accumulate))
    rows = table()
    rows.add_column("Quantity")
    rows.add_column("Value", style="number")
    rows.add_row("product", f"[{', '.join(map(str, lhs.shape))}] @ "
                 f"[{', '.join(map(str, rhs.shape))}]")  # fmt: skip
    rows.add_row("formats", f"{fmt}" if fmt == rhs_fmt else f"{fmt} @ {rhs_fmt}")
    rows.add_row("policy, order", f"{policy}, {order_text(accumulate)}")
    error = Fidelity.of(product, exact)
    error_rows(rows, error)
    difference = None
    if reason:
        instead = f"; so the order is {accumulate}, not SYSTOLIC_MX" if fallback else ""
        rows.add_row("through bytes", f"no: {escape(reason + instead)}")
    else:
        operands = (lhs, rhs, fmt, rhs_fmt) if source else q
        names = ("lhs", "rhs", _OUTPUT)
        program = mx.lower_matmul(*operands, policy=policy, accumulate=accumulate, names=names)
        (ran,) = mx.run(program).outputs.values()
        difference = first_difference(np.asarray(ran), product, "payload")
        rows.add_row("program", f"{count(len(program), 'bundle')}, {len(program.bytes()):,} bytes")
        verdict = "[good]every bit equal[/]" if difference is None else "[bad]differs[/]"
        rows.add_row("run from bytes", f"{verdict}, {32 * product.size:,} bits")
        if save is not None:
            _save_program(save, program)
    written = [p for p in (save, out, plot) if p is not None]
    if out is not None:
        arrays.save_named(out, product, _OUTPUT)
    if plot is not None:
        from mxref.cli.plot import plot_error

        plot_error(plot, product, exact, f"{x} @ {w} in {fmt}")
    say = console()
    say.print(rows)
    if written:
        say.print("wrote " + ", ".join(escape(str(p)) for p in written))
    if difference is not None:
        say.print(f"[bad]differs[/]  {escape(str(difference))}", soft_wrap=True)
        raise Differs


def _require_matrices(x: str, lhs: np.ndarray, w: str, rhs: np.ndarray) -> None:
    for name, array in ((x, lhs), (w, rhs)):
        if array.ndim != 2:
            raise InputError(f"{name}: shape {array.shape}, expected two axes")
    if lhs.shape[1] != rhs.shape[0]:
        raise InputError(
            f"{x} has shape {lhs.shape} and {w} {rhs.shape}: "
            f"the inner sizes {lhs.shape[1]} and {rhs.shape[0]} differ"
        )


def _why_no_bundles(
    fmt: mx.FormatSpec, rhs_fmt: mx.FormatSpec, accumulate: mx.Accumulate | None
) -> str:
    """Why this product cannot go through bundles; empty when it can."""
    for spec in (fmt, rhs_fmt):
        if spec not in _ON_WIRE:
            return f"the microscaling bundles have no {spec}"
    if accumulate in (mx.BACKEND, mx.C_FIRST):
        return f"the order {accumulate} has only a direct road"
    return ""


def _save_program(path: Path, program: mx.Program) -> None:
    from mxref.cli.output import write_file

    data = program.to_bytes()
    write_file(path, lambda stream: stream.write(data))
