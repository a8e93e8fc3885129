"""The instruction reference, docs/isa, written from the tables: ``python -m encoding.reference``.

Fields, legal values, evidence, decision numbers and sources are the rows of the byte maps, and the
rules are those that ``check`` runs; nothing of it is typed a second time.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hardware.arch import Arch
from hardware.opcodes import OPCODES

from .abstract_rules import ABSTRACT
from .bundle import Bundle, bundle_types
from .codec import FAMILIES, LAYOUTS, Layout, table_of
from .describe import allowed_text
from .docs import without_fields
from .facts import EVIDENCE, PAIR_RULES, UNRECOVERED, descriptors, fact_pages, grid
from .rows import REQUIRED, Kind, Row
from .verifier_rules import VERIFIER
from .wire_rules import RUNTIME, WIRE

DIRECTORY = Path("docs/isa")
COMMAND = "python -m encoding.reference"
_NOTE = f"<!-- Written by `{COMMAND}` from the tables in encoding/; edits here are lost. -->"
_DECISION = re.compile(r"\bD(\d{1,2}[a-g]?)\b")
_LEVELS = (("wire", WIRE), ("runtime", RUNTIME), ("verifier", VERIFIER))


def pages() -> dict[str, str]:
    """Return the text of every page by file name."""
    found = {_file(cls): _bundle_page(cls) for cls in bundle_types()}
    found["descriptors.md"] = _descriptor_page()
    found["rules.md"] = _rule_page()
    for name, (title, blocks) in fact_pages().items():
        found[name] = _page(title, blocks)
    return {"README.md": _index(found)} | found


def stale(directory: Path = DIRECTORY) -> list[str]:
    """Return the names of pages that are missing, left over or not what the tables say."""
    want = pages()
    have = {path.name: path.read_text() for path in directory.glob("*.md")}
    return sorted(name for name in want.keys() | have.keys() if want.get(name) != have.get(name))


def write(directory: Path = DIRECTORY) -> list[str]:
    """Bring a directory up to date and return what changed."""
    directory.mkdir(parents=True, exist_ok=True)
    changed, want = stale(directory), pages()
    for name in changed:
        if name in want:
            (directory / name).write_text(want[name])
        else:
            (directory / name).unlink()
    return changed


def _page(title: str, blocks: Iterable[str]) -> str:
    return "\n\n".join([_NOTE, f"# {title}", *blocks]) + "\n"


def _file(cls: type[Bundle]) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", cls.mnemonic).lower() + ".md"


def _doc(cls: type) -> str:
    """Return a class's docstring with its line breaks inside paragraphs undone."""
    doc = without_fields(cls.__doc__ or "")
    text = "\n".join(line.strip() for line in doc.strip().splitlines())
    return "\n\n".join(part.replace("\n", " ") for part in text.split("\n\n")).replace("``", "`")


def _index(found: Mapping[str, str]) -> str:
    rows = [
        (
            f"[{cls.mnemonic}]({_file(cls)})",
            f"{LAYOUTS[cls].opcode:#04x}",
            OPCODES[LAYOUTS[cls].opcode].struct,
            cls.engine.name,
            cls.first_arch.label,
            _doc(cls).split(". ")[0].rstrip("."),
        )
        for cls in bundle_types()
    ]
    others = [name for name in found if name not in {_file(cls) for cls in bundle_types()}]
    links = [f"- [{found[name].split('# ', 1)[1].splitlines()[0]}]({name})" for name in others]
    return _page(
        "Instruction reference",
        [
            "Every bundle is 64 bytes, little-endian; bit 0 is the least significant bit. A bit is "
            "a field, a constant or reserved; strict decoding refuses reserved bits that are set "
            "([D16](../decisions.md)).",
            grid(("Bundle", "Opcode", "Struct", "Engine", "Since", "Purpose"), rows),
            "\n".join(links),
            "Evidence says how well a row is known: "
            + ", ".join(f"{tag.name} ({text})" for tag, text in EVIDENCE.items())
            + ". Numbers such as D16 are [decisions](../decisions.md).",
        ],
    )


def _bundle_page(cls: type[Bundle]) -> str:
    opcode = LAYOUTS[cls].opcode
    fact = OPCODES[opcode]
    blocks = [
        f"Opcode {opcode:#04x}, struct {fact.struct}, {fact.engine.name} engine, "
        f"since {fact.first.label} ({fact.first.core}).",
        _doc(cls),
        "## Byte map",
    ]
    here = [arch for arch in Arch if arch >= cls.first_arch]
    drawn: dict[str, list[Arch]] = {}
    table = table_of(cls)
    for arch in here:
        drawn.setdefault(_drawing(table, FAMILIES[cls, arch].layouts[0]), []).append(arch)
    for text, archs in drawn.items():
        if len(drawn) > 1:
            blocks.append("On " + ", ".join(arch.label for arch in archs) + ":")
        blocks.append(f"```text\n{text}\n```")
    blocks += [
        "Numbers are those of the fields below; a dot is reserved, a plus marks a byte that "
        "several fields share.",
        "## Fields",
        _field_table(table, since=cls.first_arch),
        "## Rules",
        "Besides the legal values above, which `check` applies at levels wire and runtime:",
        _rule_table([cls], with_bundles=False),
    ]
    unknown = [entry for entry in UNRECOVERED if cls.mnemonic in entry.bundles]
    if unknown:
        blocks += [
            "Rules of the vendor's validators that are known by name only, and so not checked:",
            grid(("Name", "What is missing"), [(f"`{e.name}`", e.missing) for e in unknown]),
        ]
    return _page(cls.mnemonic, blocks)


def _drawing(table: Sequence[Row], layout: Layout) -> str:
    """Return the 64 bytes as four lines of sixteen, each byte with the number of its field."""
    numbers = {row.name: i for i, row in enumerate(table, 1)}
    cells = ["."] * layout.size
    for row in layout.rows:
        if row.kind is Kind.RESERVED:
            continue
        for byte in range(row.lo // 8, (row.lo + row.width - 1) // 8 + 1):
            shared = cells[byte] != "."
            cells[byte] = cells[byte].rstrip("+") + "+" if shared else str(numbers[row.name])
    lines = ["     " + " ".join(f"{i:>3X}" for i in range(16))]
    lines += [
        f"{at:#04x} " + " ".join(f"{cell:>3}" for cell in cells[at : at + 16])
        for at in range(0, layout.size, 16)
    ]
    return "\n".join(lines)


def _field_table(table: Sequence[Row], since: Arch = Arch.SUNDA) -> str:
    header = (
        "#", "Byte", "Bits", "Field", "Legal on the wire", "Default", "Meaning", "Generations",
        "Decisions", "Evidence", "Source",
    )  # fmt: skip
    return grid(header, (_field_line(i, row, since) for i, row in enumerate(table, 1)))


def _field_line(number: int, row: Row, since: Arch) -> Iterator[Any]:
    first, last = row.lo // 8, (row.lo + row.width - 1) // 8
    yield number
    yield f"{first:#04x}" + (f"..{last:#04x}" if last > first else "")
    low = row.lo % 8
    yield (
        row.width if row.width % 8 == 0 else f"{low}" + f"..{low + row.width - 1}" * (row.width > 1)
    )
    yield f"`{row.name}`"
    yield _legal(row)
    yield _default(row)
    yield row.doc.replace("|", "\\|")
    present = [arch for arch in Arch if row.since <= arch <= row.until and arch >= since]
    everywhere = len(present) == len([arch for arch in Arch if arch >= since])
    yield "all" if everywhere else ", ".join(arch.label for arch in present)
    yield ", ".join(f"[D{n}](../decisions.md)" for n in dict.fromkeys(_DECISION.findall(row.doc)))
    yield row.evidence.name
    yield row.source


def _legal(row: Row) -> str:
    if row.kind is Kind.CONST:
        return f"{row.value:#x}"
    if row.kind is Kind.RESERVED:
        return "0"
    if row.record is not None:
        return " or ".join(
            f"[{cls.__name__}](descriptors.md#{cls.__name__.lower()})" for cls in row.records
        )
    if row.kind is Kind.ADDRESS:
        marker = "with" if row.index else "without" if not row.gather else ""
        link = "[address word](memory.md#the-address-word)"
        return f"{link} {marker} the gather marker" if marker else link
    if isinstance(row.legal, Mapping):
        grouped: dict[str, list[str]] = {}
        for arch in Arch:
            if row.since <= arch <= row.until:
                grouped.setdefault(allowed_text(row.on(arch).legal, row.enum), []).append(
                    arch.label
                )
        if len(grouped) == 1:
            return next(iter(grouped))
        return "; ".join(f"{', '.join(archs)}: {text}" for text, archs in grouped.items())
    text = (
        f"{row.lowest}..{row.highest}" if row.legal is None else allowed_text(row.legal, row.enum)
    )
    return text + (f", unless {row.unless.replace('_', ' ')}" if row.unless else "")


def _default(row: Row) -> str:
    if row.kind in (Kind.CONST, Kind.RESERVED, Kind.RECORD) or row.default is REQUIRED:
        return ""
    return row.default.name if row.enum is not None else str(row.default)


def _descriptor_page() -> str:
    blocks = [
        "The records that stand in the operand slots of a bundle. Steps and counts are in elements "
        "of the operand's type; index 0 is the innermost dimension. A gather descriptor has the "
        "size of the static one that it replaces; the gather marker in its first word tells them "
        "apart.",
    ]
    users: dict[type, list[str]] = {}
    for cls in bundle_types():
        for row in table_of(cls):
            for record in row.records:
                place = f"[{cls.mnemonic}]({_file(cls)}) `{row.name}`"
                users.setdefault(record, []).append(place)
    for record in descriptors():
        used = ", ".join(users.get(record, ())) or "no bundle here"
        size = LAYOUTS[record].size
        blocks += [
            f"## {record.__name__}", _doc(record), f"{size} bytes. Used by: {used}.",
            _field_table(table_of(record)),
        ]  # fmt: skip
    return _page("Operand descriptors", blocks)


def _rule_table(classes: Sequence[type[Bundle]], *, with_bundles: bool) -> str:
    rows: list[Sequence[str]] = []
    for level, rules in _LEVELS:
        for rule in rules:
            bound = [cls.mnemonic for cls in classes if cls in rule.applies]
            if not bound:
                continue
            archs = [arch for arch in Arch if rule.since <= arch <= rule.until]
            archs = [a for a in archs if any(a >= cls.first_arch for cls in classes)]
            every = len(archs) == len([a for a in Arch if a >= min(c.first_arch for c in classes)])
            generations = "all" if every else ", ".join(arch.label for arch in archs)
            line = (f"`{rule.id}`", level, f"`{rule.field}`", rule.message, generations)
            rows.append((*line, ", ".join(bound)) if with_bundles else line)
    for pair in PAIR_RULES:
        bound = [cls.mnemonic for cls in classes if cls.mnemonic in pair.bundles]
        if bound:
            line = (f"`{pair.id}`", "verifier", f"`{pair.field}`", f"{pair.message} (pair)", "all")
            rows.append((*line, ", ".join(bound)) if with_bundles else line)
    header = ("Id", "Level", "Field", "Rule", "Generations")
    return grid((*header, "Bundles") if with_bundles else header, rows)


def _rule_page() -> str:
    return _page(
        "Rules",
        [
            "`check` lists every rule that bytes or instructions break, at one of three levels "
            "([D15](../decisions.md)): wire is what the 64 bytes alone decide and what execution "
            "demands; runtime adds the runtime library's stricter rules; verifier is the "
            "compiler's view of the abstract instruction. The legal values of single fields, in "
            "the pages of the bundles, are rules too: `wire.` and the field's name.",
            _rule_table(bundle_types(), with_bundles=True),
            "## On abstract instructions",
            "What no byte carries (engine, tiles, replication, whole operands) is judged on the "
            "instruction before encoding: an abstract `MatmultMxOp` or `QuantizeMxOp` given to "
            "`check` at level verifier.",
            grid(
                ("Id", "Field", "Rule", "Instruction"),
                [(f"`{r.id}`", f"`{r.field}`", r.message, r.applies[0].__name__) for r in ABSTRACT],
            ),
            "## Known by name only",
            "The vendor's validators have these predicates, but no public source gives their "
            "bodies, or not all of them. They are listed so that nobody takes silence for a check.",
            grid(
                ("Name", "Bundles", "What is missing"),
                [(f"`{e.name}`", ", ".join(e.bundles), e.missing) for e in UNRECOVERED],
            ),
        ],
    )


def main(arguments: Sequence[str]) -> int:
    """Write the pages into the directory named, docs/isa by default; ``--check`` only compares."""
    names = [argument for argument in arguments if argument != "--check"]
    directory = Path(names[0]) if names else DIRECTORY
    checking = "--check" in arguments
    changed = stale(directory) if checking else write(directory)
    for name in changed:
        print(f"{'stale' if checking else 'written'}: {directory / name}")
    return 1 if checking and changed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
