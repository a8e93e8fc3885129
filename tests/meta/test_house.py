"""The house itself: what may be imported from where, and that its papers are in order."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

import mxref as mx
from mxref import siblings
from mxref.data import digits

ROOT = Path(__file__).parents[2]
THIRD_PARTY = ("numpy", "jax", "ml_dtypes", "jaxtyping", "click", "rich", "mxref")


def _modules_after(code: str) -> set[str]:
    """Names of the packages that a fresh interpreter holds after running ``code``."""
    script = code + "\nimport sys; print(*{m.split('.')[0] for m in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        ("import hardware", ()),
        ("import encoding, encoding.describe, encoding.sample", ()),
    ],
)
def test_the_lower_rooms_need_only_the_standard_library(code, allowed):
    assert _modules_after(code).isdisjoint(set(THIRD_PARTY) - set(allowed))


def test_the_oracle_holds_no_array_library():
    """Its modules name neither numpy nor jax; the package around it may, so the text is read."""
    for path in (ROOT / "mxref" / "oracle").glob("*.py"):
        imported = re.findall(r"^\s*(?:from|import)\s+([\w.]+)", path.read_text(), re.MULTILINE)
        roots = {name.split(".")[0] for name in imported if not name.startswith("mxref")}
        assert roots <= set(sys.stdlib_module_names) | {"__future__"}, path
        inner = {name for name in imported if name.startswith("mxref")}
        fine = ("mxref.errors", "mxref.formats", "mxref.policy", "mxref.oracle")
        assert all(name.startswith(fine) for name in inner), path


def test_version_is_the_distributions():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert mx.__version__ == project["version"]


def test_a_foreign_sibling_is_named(tmp_path, monkeypatch):
    (tmp_path / "foreign_sibling.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ImportError, match=r"foreign_sibling\.py was found in its place"):
        siblings.verify("foreign_sibling")


def test_a_missing_sibling_is_named():
    with pytest.raises(ImportError, match="importing it failed"):
        siblings.verify("no_such_sibling")


def test_a_file_in_the_working_directory_is_blamed(tmp_path):
    """What a user sees who has an ``encoding.py`` of their own."""
    (tmp_path / "encoding.py").write_text("x = 1\n")
    script = f"import sys; sys.path.insert(1, {str(ROOT)!r}); import mxref"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 1
    assert "encoding.py was found in its place" in done.stderr.splitlines()[-1]


def test_shipped_tensors_are_the_ones_described():
    room = files("mxref.data")
    about = json.loads((room / "digits.json").read_text())
    data = (room / "digits.npz").read_bytes()
    assert about["sha256"] == hashlib.sha256(data).hexdigest()
    assert about["bytes"] == len(data) <= 300_000
    arrays = {name: f"{a.dtype}{list(a.shape)}" for name, a in vars(digits()).items()}
    assert arrays == about["arrays"]


def test_shipped_tensors_survive_bfloat16():
    for name in ("activations", "weights", "bias", "head", "head_bias"):
        bits = getattr(digits(), name).view(np.uint32)
        assert not (bits & 0xFFFF).any(), name


def test_shipped_layer_reads_digits():
    data = digits()
    assert data.correct(data.activations.astype(np.float64) @ data.weights) == 64


def _numbers(text: str) -> set[str]:
    return set(re.findall(r"\bD(\d{1,2}[a-g]?)\b", text))


def test_every_decision_is_listed_once():
    text = (ROOT / "docs" / "decisions.md").read_text()
    heads = re.findall(r"^\*\*D(\d{1,2}[a-g]?)\.? ", text, re.MULTILINE)
    assert len(heads) == len(set(heads))
    assert {str(n) for n in range(1, 40)} <= set(heads)
    assert {"16a", "16b", *(f"23{c}" for c in "abcdefg"), *(f"25{c}" for c in "abcd")} <= set(heads)


def test_cited_decisions_exist():
    listed = _numbers((ROOT / "docs" / "decisions.md").read_text())
    for package in ("hardware", "encoding", "mxref"):
        for path in (ROOT / package).rglob("*.py"):
            cited = set(re.findall(r"(?<![\w.])D(\d{1,2}[a-g]?)(?=[\s,;.:)-])", path.read_text()))
            assert cited <= listed, path


NUMERIC = (
    "narrow", "widen", "quantize", "dequantize", "fake_quantize", "matmul", "quantized_matmul",
    "encode_e8m0", "decode_e8m0", "floor_log2", "pack_fp4", "unpack_fp4", "pack_x4", "unpack_x4",
)  # fmt: skip


@pytest.mark.parametrize("name", NUMERIC)
def test_numeric_functions_say_what_is_exact_and_what_is_differentiable(name):
    doc = getattr(mx, name).__doc__
    assert "Exactness:" in doc
    assert "Gradient:" in doc


def test_the_facade_shows_public_names_alone():
    assert sorted(mx.__all__) == dir(mx)
    assert not [name for name in dir(mx) if not hasattr(mx, name)]
    modules = [name for name in dir(mx) if isinstance(getattr(mx, name), type(mx))]
    assert modules == ["hif4", "testing"]
    assert {"NonFinite", "NanElement", "ScaleCodes", "Products", "WireDtype", "Arch"} <= {*dir(mx)}


def test_facade_names_are_documented():
    for name in dir(mx):
        item = getattr(mx, name)
        if not name.startswith("_") and (callable(item) or isinstance(item, type)):
            assert (getattr(item, "__doc__", None) or "").strip(), name
