"""``quantize``, ``dequantize`` and ``formats``."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import click
import jax.numpy as jnp
import numpy as np
from rich.markup import escape
from rich.table import Table

import mxref as mx
from mxref.cli import arrays
from mxref.cli.options import (
    FILE,
    FORMAT,
    examples,
    format_option,
    out_option,
    policy_option,
)
from mxref.cli.output import InputError, console, error_rows, require_place, table
from mxref.fidelity import Fidelity
from mxref.policy import policy as find_policy

_VERSION = 1


@click.command(
    short_help="Array file to codes and scales.",
    epilog=examples("mxref quantize x.npy --format e2m1 --policy NVIDIA --out q.npz"),
)
@click.argument("array", metavar="IN.npy")
@format_option
@policy_option
@click.option("--axis", default=-1, show_default=True, help="Axis the blocks run along.")
@click.option("--block", default=32, show_default=True, type=click.IntRange(1), help="Block size.")
@out_option("Write the arrays `codes`, `scales` and `about` to a .npz file.")
def quantize(
    array: str,
    fmt: mx.FormatSpec,
    policy: mx.NumericPolicy,
    axis: int,
    block: int,
    out: Path | None,
) -> None:
    """Quantize an array to block-scaled codes and report what it costs.

    With --out FILE.npz the codes (uint8, one per element), the scales (E8M0 codes) and their
    description are written; `mxref dequantize` reads them back.
    """
    if out is not None:
        require_place(out, ".npz")
    values = arrays.read_floats(array)
    q = mx.quantize(values, fmt, axis=axis, block=block, policy=policy)
    if out is not None:
        save_quantized(out, q)
    back = np.asarray(q.dequantize())
    error = Fidelity.of(back, values)
    scales = np.asarray(q.scales)
    rows = table()
    rows.add_column("Quantity")
    rows.add_column("Value", style="number")
    rows.add_row("input", f"{values.dtype}{list(values.shape)}")
    rows.add_row("format", f"{fmt}, blocks of {block} along axis {axis}, policy {policy}")
    rows.add_row("codes", f"uint8{list(q.shape)}")
    rows.add_row("scales", f"uint8{list(scales.shape)}, codes {scales.min()} to {scales.max()}")
    rows.add_row("bits per element", f"{fmt.bits + 8 * scales.size / values.size:.3f}")
    error_rows(rows, error)
    say = console()
    say.print(rows)
    if out is not None:
        say.print(f"wrote {escape(str(out))}")


@click.command(
    short_help="Codes and scales to a float32 array.",
    epilog=examples("mxref dequantize q.npz --out y.npy"),
)
@click.argument("quantized", metavar="IN.npz", type=FILE)
@out_option("Write the float32 values to a .npy file; without it they are printed.")
def dequantize(quantized: Path, out: Path | None) -> None:
    """Turn a file that `mxref quantize` wrote into float32 values, exactly."""
    if out is not None:
        require_place(out, ".npy")
    q = load_quantized(quantized)
    values = np.asarray(q.dequantize())
    say = console()
    if out is None:
        with np.printoptions(threshold=60, edgeitems=3, linewidth=100):
            say.print(escape(str(values)))
        return
    arrays.save_array(out, values)
    say.print(f"wrote {escape(str(out))}, float32{list(values.shape)}")


@click.command(
    short_help="The number formats, computed from their widths.",
    epilog=examples("mxref formats", "mxref formats e2m1"),
)
@click.argument("name", required=False, type=FORMAT)
def formats(name: mx.FormatSpec | None) -> None:
    """List the number formats, or show every code of one of at most 8 bits, all digits exact."""
    say = console()
    if name is None:
        say.print(_format_table())
        say.print("Normal, Subnormal: the smallest positive ones.", style="dim")
        say.print("`mxref formats NAME` shows one of them, every code included.", style="dim")
        return
    rows = table(f"{name}  ({name.alias})")
    rows.add_column("Quantity")
    rows.add_column("Value", style="number")
    for label, value in _facts(name):
        rows.add_row(label, value)
    say.print(rows)
    if name.bits <= 8:
        say.print()
        say.print(_code_table(name, say.width))


def save_quantized(path: Path, q: mx.MXArray) -> None:
    """Write codes, scales and their description."""
    about = {
        "version": _VERSION,
        "format": q.format.name,
        "axis": q.axis,
        "block": q.block,
        "policy": q.policy.name,
    }
    members = {
        "codes": np.asarray(q.codes),
        "scales": np.asarray(q.scales),
        "about": np.asarray(json.dumps(about)),
    }
    arrays.save_arrays(path, members)


def load_quantized(path: Path) -> mx.MXArray:
    """Read what :func:`save_quantized` wrote.

    Raises:
      InputError: when a member is missing or does not fit the others.
    """
    members = arrays.read_arrays(path)
    missing = [name for name in ("codes", "scales", "about") if name not in members]
    if missing:
        raise InputError(f"{path}: not written by `mxref quantize`, lacks {', '.join(missing)}")
    codes, scales = members["codes"], members["scales"]
    for name, member in (("codes", codes), ("scales", scales)):
        if member.dtype != np.uint8:
            raise InputError(f"{path}: {name} has dtype {member.dtype}, expected uint8")
    try:
        about: Any = json.loads(str(members["about"]))
        version, axis, block = (about[key] for key in ("version", "axis", "block"))
        names = about["format"], about["policy"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise InputError(f"{path}: its description is damaged") from error
    if version != _VERSION or type(axis) is not int or type(block) is not int:
        raise InputError(f"{path}: its description is of another version or damaged")
    fmt, policy = mx.format(str(names[0])), find_policy(str(names[1]))
    codes, scales = jnp.asarray(codes), jnp.asarray(scales)
    return mx.MXArray(codes, scales, format=fmt, axis=axis, block=block, policy=policy)


def _format_table() -> Table:
    rows = table()
    rows.add_column("Name", style="field", no_wrap=True)
    rows.add_column("Alias", no_wrap=True)
    for name in ("Bits", "E", "M", "Max", "Normal", "Subnormal"):
        rows.add_column(name, justify="right", no_wrap=True)
    rows.add_column("Special", no_wrap=True)
    for spec in mx.FORMATS.values():
        special = ["Inf"] * spec.has_inf + ["NaN"] * spec.has_nan
        rows.add_row(
            spec.name,
            spec.alias,
            str(spec.bits),
            str(spec.exponent_bits),
            str(spec.mantissa_bits),
            f"{spec.max:.5g}",
            _power(spec.min_normal),
            _power(spec.min_subnormal) if spec.has_subnormals else "none",
            " ".join(special) or "none",
        )
    return rows


def _facts(spec: mx.FormatSpec) -> list[tuple[str, str]]:
    digits = -(-spec.bits // 4)
    nan = "none" if spec.nan_code is None else f"0x{spec.nan_code:0{digits}X}"
    layout = f"{spec.exponent_bits} exponent, {spec.mantissa_bits} mantissa"
    return [
        ("bits", f"{spec.bits} ({'1 sign, ' if spec.signed else ''}{layout})"),
        ("bias", str(spec.bias)),
        ("largest finite", f"{_largest(spec.max)} (0x{spec.max_code:0{digits}X})"),
        ("smallest normal", _power(spec.min_normal)),
        ("smallest subnormal", _power(spec.min_subnormal) if spec.has_subnormals else "none"),
        ("infinity", f"0x{spec.inf_code:0{digits}X}" if spec.inf_code is not None else "none"),
        ("canonical NaN", nan),
        ("NaN codes", str(len(spec.nan_codes))),
    ]


def _code_table(spec: mx.FormatSpec, width: int) -> Table:
    """Every code that is not its mirror image, as many to a row (up to eight) as fit whole."""
    rows = table("values by code" + (", signs left out" if spec.signed else ""))
    rows.add_column("", style="field")
    values = np.asarray(mx.widen(np.arange(spec.magnitude_mask + 1, dtype=np.uint8), spec))
    show = _digits if spec.mantissa_bits else _power
    cells = [show(float(v)) for v in values]
    widest = max(map(len, cells)) + 1
    # Four columns for the code and one for the gap; digits that are cut off would be other numbers.
    columns = next((n for n in (8, 4, 2) if 5 + n * widest <= width), 1)
    for column in range(columns):
        rows.add_column(f"+{column}", justify="right", no_wrap=True)
    for start in range(0, len(cells), columns):
        rows.add_row(f"0x{start:02X}", *cells[start : start + columns])
    return rows


def _digits(value: float) -> str:
    """Every decimal digit of a number, none rounded away."""
    if not np.isfinite(value):
        return str(value)
    return f"{Decimal(value):f}"


def _largest(value: float) -> str:
    """Every digit, and a short form beside a long one."""
    exact, short = _digits(value), f"{value:.9g}"
    return exact if exact == short else f"{exact}, about {short}"


def _power(value: float) -> str:
    """A power of two by its exponent; any other number in digits."""
    if not np.isfinite(value):
        return str(value)
    top, bottom = Fraction(value).as_integer_ratio()
    if top & (top - 1) == 0 and bottom & (bottom - 1) == 0 and top:
        return f"2^{top.bit_length() - bottom.bit_length()}"
    return f"{value:.6g}"
