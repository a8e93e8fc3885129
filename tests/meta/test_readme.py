"""The README's claims that a machine can check: its code runs, its commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mxref as mx
from mxref.cli import main

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("code", BLOCKS)
def test_code_runs(code):
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    gradient = names["gradient"]
    assert gradient.shape == (640, 96)


def test_quick_start_is_under_twenty_lines():
    lines = [line for line in BLOCKS[0].splitlines() if line.strip()]
    assert len(lines) < 20


def test_commands_exist():
    listed = re.search(r"```text\n(mxref demo  .*?)```", TEXT, re.DOTALL).group(1)
    named = set(re.findall(r"^mxref ([a-z| ]+)", listed, re.MULTILINE))
    words = {w for line in named for w in re.findall(r"[a-z]+", line.split("  ")[0])}
    assert set(main.list_commands(None)) <= words | {"dequantize"}


def test_both_commands_are_there_as_they_are_tested():
    assert "\npip install . && mxref demo" in TEXT
    assert "\npip install -e '.[test]' && pytest" in TEXT
    assert "pip install --quiet -e '.[test]' && pytest" in (ROOT / ".ci" / "run").read_text()


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (ROOT / target).exists(), target


def test_claims_about_defaults():
    assert mx.format("e4m3fn").max == 448
    with pytest.raises(mx.FormatError):
        mx.format("e4m3")
    q = mx.quantize([0.0] * 32, mx.E4M3FN)
    assert q.scales.tolist() == [0]
    assert mx.narrow(1e9, mx.E4M3FN).tolist() == mx.E4M3FN.max_code
