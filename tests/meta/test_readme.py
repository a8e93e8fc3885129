"""The README's claims that a machine can check: its code runs, its commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import mxref as mx
from mxref.cli import main

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def _run(code: str) -> dict[str, object]:
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    return names


def test_quick_start_runs():
    assert _run(BLOCKS[0])["gradient"].shape == (640, 96)


def test_bundles_by_hand_run():
    """The example compares itself with ``matmul``; it must also compare something."""
    names = _run(BLOCKS[1])
    assert len(names["pair"]) == 128
    assert names["c"].shape == (16, 8)
    assert len(set(names["c"].ravel().tolist())) > 100


def test_every_block_is_run():
    assert len(BLOCKS) == 2


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


def test_claims_about_nan_and_fp4():
    x = np.ones((1, 32), np.float32)
    x[0, 3] = np.nan
    assert not mx.quantize(x, mx.E4M3FN, policy=mx.NEURON_2_24).dequantize().any()
    x = np.float32(np.random.default_rng(0).laplace(size=(64, 640)))
    errors = [
        np.square(np.asarray(mx.quantize(x, mx.E2M1FN, policy=p).dequantize()) - x).mean()
        for p in (mx.OCP, mx.NVIDIA)
    ]
    assert errors[1] > errors[0]


def test_claims_about_defaults():
    assert mx.format("e4m3fn").max == 448
    with pytest.raises(mx.FormatError):
        mx.format("e4m3")
    q = mx.quantize([0.0] * 32, mx.E4M3FN)
    assert q.scales.tolist() == [0]
    assert mx.narrow(1e9, mx.E4M3FN).tolist() == mx.E4M3FN.max_code
