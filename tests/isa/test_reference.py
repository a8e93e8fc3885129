"""docs/isa says what the tables say, today."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from encoding import bundle_types, pair_rules, reference
from encoding.abstract_rules import ABSTRACT
from encoding.codec import table_of
from encoding.facts import PAIR_RULES, UNRECOVERED, descriptors
from encoding.verifier_rules import VERIFIER
from encoding.wire_rules import RUNTIME, WIRE
from hardware.dtypes import DTYPES, WireDtype

ROOT = Path(__file__).parents[2]
ISA = ROOT / "docs" / "isa"
PAGES = reference.pages()


def test_the_pages_in_docs_are_fresh():
    assert reference.stale(ISA) == [], f"run `{reference.COMMAND}` and commit docs/isa"


@pytest.mark.parametrize("cls", bundle_types())
def test_every_row_of_a_bundle_is_in_its_page(cls):
    (name,) = [n for n, text in PAGES.items() if f"\n# {cls.mnemonic}\n" in text]
    lines = PAGES[name].splitlines()
    for row in table_of(cls):
        (line,) = [text for text in lines if f"| `{row.name}` |" in text and row.doc in text]
        assert row.evidence.name in line
        assert row.source in line
        assert f"| {row.lo // 8:#04x}" in line


@pytest.mark.parametrize("cls", bundle_types())
def test_every_byte_of_a_bundle_is_drawn(cls):
    (text,) = [text for text in PAGES.values() if f"\n# {cls.mnemonic}\n" in text]
    drawings = re.findall(r"```text\n(.*?)\n```", text, re.DOTALL)
    assert drawings
    for drawing in drawings:
        cells = [cell for line in drawing.splitlines()[1:] for cell in line.split()[1:]]
        assert len(cells) == 64
        assert cells[:2] != [".", "."]


def test_descriptors_types_and_tags_are_listed():
    for record in descriptors():
        assert f"\n## {record.__name__}\n" in PAGES["descriptors.md"]
    for tag in WireDtype:
        assert f"| {tag.name} |" in PAGES["dtypes.md"]
    for ordinal in DTYPES:
        assert f"| {ordinal.name.lower()} |" in PAGES["dtypes.md"]


def test_every_rule_is_listed_and_every_unknown_one_is_named():
    page = PAGES["rules.md"]
    for rule in (*WIRE, *RUNTIME, *VERIFIER, *ABSTRACT):
        assert f"| `{rule.id}` |" in page
        assert rule.message in page
    for entry in UNRECOVERED:
        assert f"| `{entry.name}` |" in page
        assert set(entry.bundles) <= {cls.mnemonic for cls in bundle_types()}


def test_the_rules_on_pairs_are_those_of_the_code():
    source = Path(str(pair_rules.__file__)).read_text()
    found = set(re.findall(r'Violation\(\s*"([\w.]+)",\s*"([\w.]+)"', source))
    assert found == {(rule.id, rule.field) for rule in PAIR_RULES}
    for rule in PAIR_RULES:
        assert rule.message in source


def test_links_lead_somewhere():
    for name, text in PAGES.items():
        for target in re.findall(r"\]\(([^)]+)\)", text):
            file, _, anchor = target.partition("#")
            if file == "../decisions.md":
                continue
            assert file in PAGES, f"{name}: {target}"
            heads = re.findall(r"^#+ (.*)$", PAGES[file], re.MULTILINE)
            assert not anchor or anchor in {head.lower().replace(" ", "-") for head in heads}


def test_cited_decisions_exist():
    listed = set(
        re.findall(r"^\*\*D(\d+[a-g]?)\.? ", (ROOT / "docs/decisions.md").read_text(), re.M)
    )
    cited = {n for text in PAGES.values() for n in re.findall(r"\bD(\d{1,2}[a-g]?)\b", text)}
    assert cited
    assert cited <= listed


def test_a_changed_a_missing_and_a_left_over_page_are_stale(tmp_path):
    assert reference.stale(tmp_path) == sorted(PAGES)
    assert reference.main([str(tmp_path)]) == 0
    assert reference.stale(tmp_path) == []
    (tmp_path / "rules.md").write_text("old")
    (tmp_path / "matmul.md").unlink()
    (tmp_path / "nop.md").write_text("gone")
    assert reference.main([str(tmp_path), "--check"]) == 1
    assert reference.write(tmp_path) == ["matmul.md", "nop.md", "rules.md"]
    assert reference.main([str(tmp_path), "--check"]) == 0


def test_the_command_in_the_papers_works():
    assert reference.COMMAND in (ROOT / "CONTRIBUTING.md").read_text()
    command = [sys.executable, "-m", *reference.COMMAND.split()[2:], "--check", "docs/isa"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
