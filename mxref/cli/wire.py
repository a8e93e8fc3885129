"""``dis``, ``asm``, ``check`` and ``explain``: bundles as text, and what is wrong with them."""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

import encoding
from encoding import DecodeError
from encoding.describe import FieldRow, byte_map
from encoding.errors import shown
from encoding.legality import Level
from encoding.rows import Kind
from encoding.text import format_instruction
from hardware import Arch, Evidence
from hardware.opcodes import BUNDLE_BYTES
from mxref.cli import source
from mxref.cli.options import arch_option, examples, out_option
from mxref.cli.output import Differs, InputError, console, count, table, write_file

_EVIDENCE_STYLE = {
    Evidence.CONFIRMED: "good",
    Evidence.STRONG: "green",
    Evidence.INFERRED: "yellow",
    Evidence.SPECULATIVE: "bad",
    Evidence.ASSUMED: "magenta",
}

#: Columns of an imaginary terminal on which a table has its natural width.
_ENDLESS = 10_000
#: Columns of a terminal that has room for a field's meaning.
_WIDE = 104

_FILE = click.argument("file", default="-", metavar="[FILE]")


@click.command(
    short_help="Bundles to assembly text.",
    epilog=examples("mxref dis prog.mxp", "mxref dis bundles.bin --arch cayman --summary"),
)
@_FILE
@arch_option
@out_option("Write the text to this file instead of standard output.")
@click.option("--lenient", is_flag=True, help="Keep unknown reserved bits instead of refusing.")
@click.option("--summary", is_flag=True, help="Statistics of the stream instead of its text.")
def dis(file: str, arch: Arch, out: Path | None, lenient: bool, summary: bool) -> None:
    """Disassemble bundles: a program file, raw bytes or hex digits; standard input by default.

    `mxref asm` turns the text back into the same bytes.
    """
    if summary:
        if out is not None:
            raise click.UsageError("--summary writes to standard output only; leave --out away")
        _summary(encoding.decode_stream(source.read_bundles(file), arch, strict=not lenient))
        return
    text = encoding.disassemble(source.read_bundles(file), arch, strict=not lenient)
    if out is None:
        click.echo(text, nl=False)
    else:
        write_file(out, lambda stream: stream.write(text.encode()))


def _summary(stream: encoding.BundleStream) -> None:
    from encoding.summary import summarize

    say = console()
    bundles = count(len(stream), "bundle")
    say.print(f"{bundles}, {stream.data.nbytes:,} bytes, {stream.arch.label}")
    types = table()
    types.add_column("Bundle", style="field", no_wrap=True)
    types.add_column("Engine", no_wrap=True)
    types.add_column("Count", justify="right", no_wrap=True)
    types.add_column("Share", justify="right", no_wrap=True)
    found = summarize(stream)
    for entry in found:
        cls = entry.type
        types.add_row(cls.mnemonic, cls.engine.name, f"{entry.bundles:,}", f"{entry.share:.1%}")
    say.print(types)
    for entry in found:
        fields = table(entry.type.mnemonic)
        fields.add_column("Field", style="field", no_wrap=True)
        fields.add_column("Values")
        for field in entry.fields:
            if not field.idle:
                fields.add_row(field.field, str(field))
        say.print(fields)
        idle = [field.field for field in entry.fields if field.idle]
        if idle:
            say.print("always at the default: " + ", ".join(idle), style="dim")


@click.command(
    short_help="Assembly text to bundles.",
    epilog=examples("mxref asm prog.s --out prog.bin", "mxref dis prog.mxp | mxref asm"),
)
@_FILE
@arch_option
@out_option("Write raw 64-byte bundles to this file instead of hex digits.")
def asm(file: str, arch: Arch, out: Path | None) -> None:
    """Assemble text to raw bundles in --out, or to hex digits on standard output."""
    try:
        data = encoding.assemble(source.read_text(file), arch)
    except encoding.AssemblyError as error:
        raise InputError(f"{file}: {error}") from error
    if not data:
        raise InputError(f"{file}: no instruction in it")
    if out is not None:
        write_file(out, lambda stream: stream.write(data))
        return
    for at in range(0, len(data), BUNDLE_BYTES):
        click.echo(data[at : at + BUNDLE_BYTES].hex())


@click.command(
    short_help="Every rule that bundles break.",
    epilog=examples("mxref check prog.mxp", "mxref check bundles.bin --level runtime --json"),
)
@_FILE
@arch_option
@click.option(
    "--level",
    type=click.Choice(["wire", "verifier", "runtime"]),
    default="wire",
    show_default=True,
    help="wire: what run demands; verifier: the compiler's view; runtime: wire, stricter.",
)
@click.option("--json", "as_json", is_flag=True, help="A JSON list of violations, no table.")
def check(file: str, arch: Arch, level: Level, as_json: bool) -> None:
    """List every rule that the bundles break.  Exit 1 when there is one."""
    data = source.read_bundles(file)
    violations = encoding.check(data, arch, level)
    if as_json:
        click.echo(json.dumps([_as_object(v) for v in violations], indent=1))
        if violations:
            raise Differs
        return
    bundles = count(len(data) // BUNDLE_BYTES, "bundle")
    say = console()
    if not violations:
        say.print(f"[good]legal[/]  {bundles} for {arch.label} at level {level}")
        return
    rows = _violation_table(violations)
    if rows.__rich_measure__(say, say.options.update(max_width=_ENDLESS)).minimum + 20 <= say.width:
        say.print(rows)
    else:
        for v in violations:
            _print_violation(say, v)
    tally = ", ".join(f"{n} x {rule}" for rule, n in Counter(v.id for v in violations).items())
    say.print(f"[bad]{count(len(violations), 'violation')}[/] in {bundles}: {escape(tally)}")
    raise Differs


def _violation_table(violations: list[encoding.Violation]) -> Table:
    rows = table()
    rows.add_column("Bundle", justify="right")
    rows.add_column("Rule", style="field", no_wrap=True)
    rows.add_column("Field", no_wrap=True)
    rows.add_column("Byte", justify="right", no_wrap=True)
    for name in ("Got", "Allowed", "Why"):
        rows.add_column(name, overflow="fold")
    for v in violations:
        got, allowed = escape(shown(v.got)), escape(v.allowed)
        where = f"0x{v.offset:02X}"
        rows.add_row(str(v.index), v.id, v.field, where, got, allowed, escape(v.message))
    return rows


def _print_violation(say: Console, v: encoding.Violation) -> None:
    """Print one violation as a block of lines, for terminals that the table does not fit."""
    head = Text.assemble(f"bundle {v.index}  ", (v.id, "field"), f"  {v.field} at 0x{v.offset:02X}")
    say.print(head, overflow="fold")
    lines = Table.grid(padding=(0, 2, 0, 0))
    lines.add_column(no_wrap=True)
    lines.add_column(overflow="fold")
    for label, text in (("got", shown(v.got)), ("allowed", v.allowed), ("why", v.message)):
        if text:
            lines.add_row(f"  {label}", escape(text))
    say.print(lines)


def _as_object(violation: encoding.Violation) -> dict[str, object]:
    """Return a violation as JSON has it; a value that is no plain number becomes its text."""
    got = int(violation.got) if isinstance(violation.got, int) else str(violation.got)
    return {**dataclasses.asdict(violation), "got": got}


@click.command(
    short_help="One 64-byte bundle, byte by byte.",
    epilog=examples(
        "mxref explain prog.mxp --index 1", "mxref asm prog.s | head -1 | mxref explain -"
    ),
)
@click.argument("what", metavar="HEX|FILE|-", nargs=-1, required=True)
@arch_option
@click.option("--index", default=0, show_default=True, help="Which bundle of several.")
@click.option("--all", "everything", is_flag=True, help="Show reserved bytes too.")
def explain(what: tuple[str, ...], arch: Arch, index: int, everything: bool) -> None:
    """Explain a bundle: what every byte says, how well that is known, and what breaks a rule.

    HEX is 128 hex digits, blanks allowed.  A file may be a program, raw bundles or hex digits.
    Exit 1 when the bundle breaks a wire rule.
    """
    joined = " ".join(what)
    if len(what) == 1 and (joined == "-" or os.path.exists(joined)):
        data = source.read_bundles(joined)
    elif len(what) == 1 and Path(joined).suffix:
        raise InputError(f"{joined}: no such file")
    else:
        data = source.whole(source.unhex(joined, "HEX"), "HEX")
    bundles = len(data) // BUNDLE_BYTES
    if not 0 <= index < bundles:
        raise InputError(f"--index {index}: allowed 0..{bundles - 1}")
    bundle = data[index * BUNDLE_BYTES :][:BUNDLE_BYTES]
    rows = byte_map(bundle, arch)
    say = console()
    try:
        instruction = encoding.decode(bundle, arch)
        name, doc = instruction.mnemonic, (type(instruction).__doc__ or "").split("\n")[0]
    except DecodeError as error:
        instruction, name, doc = None, error.record or "bundle", ""
    place = f"bundle {index} of {bundles}, " if bundles > 1 else ""
    say.print(f"[head]{name}[/]  {place}{len(bundle)} bytes, {arch.label} ({arch.core})")
    if doc:
        say.print(doc, style="dim")
    wide = say.width >= _WIDE
    say.print()
    say.print(_byte_table(rows, everything, wide))
    if not wide:
        say.print(f"a terminal of {_WIDE} columns also shows what each field means", style="dim")
    say.print()
    violations = encoding.check(bundle, arch, "wire")
    for v in violations:
        say.print(
            Text.assemble(
                ("broken  ", "bad"), (v.id, "field"), f"  {v.field} at byte 0x{v.offset:02X}: "
                f"got {shown(v.got)}, allowed {v.allowed}",
            )
        )  # fmt: skip
    if instruction is not None:
        line = Text("text  ", "head").append(format_instruction(instruction), "default")
        say.print(line, soft_wrap=True)
    if violations:
        raise Differs
    say.print("[good]legal[/] on the wire")


def _byte_table(rows: list[FieldRow], everything: bool, wide: bool) -> Table:
    view = table()
    view.add_column("Byte", style="dim", no_wrap=True)
    view.add_column("Found", no_wrap=True)
    view.add_column("Field", style="field", no_wrap=True)
    view.add_column("Value", no_wrap=True, style="head")
    if wide:
        view.add_column("Meaning")
    view.add_column("Evidence", no_wrap=True)
    quiet = 0
    for row in rows:
        if row.kind is Kind.RESERVED and not row.raw and not everything:
            quiet += row.bits // 8
            continue
        view.add_row(*_cells(row, wide))
    if quiet:
        view.caption = f"and {quiet} reserved bytes, all zero (--all)"
        view.caption_justify = "left"
    return view


def _cells(row: FieldRow, wide: bool) -> tuple[str | Text, ...]:
    size = max(1, row.bits // 8)
    last = row.offset + size - 1
    where = f"{row.offset:02X}" + (f"-{last:02X}" if size > 1 else "")
    if row.bits % 8 or row.bit:
        high = row.bit + row.bits - 1
        where += f" [{high}:{row.bit}]" if row.bits > 1 else f" [{row.bit}]"
    found = row.hex
    if row.kind is Kind.RESERVED and size > 8:
        found = found if row.raw else f"00 x {size}"
    meaning = [Text(row.meaning).append(f"  {row.problem}" if row.problem else "", "bad")]
    # Where the kind is obvious the value would only repeat the raw digits.
    value = "" if row.kind in (Kind.RESERVED, Kind.CONST) and not row.problem else row.value
    return (
        where,
        found,
        row.field,
        Text(value, "bad" if row.problem else "default"),
        *(meaning if wide else []),
        Text(row.evidence.value, _EVIDENCE_STYLE.get(row.evidence, "default")),
    )
