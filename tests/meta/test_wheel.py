"""What a user installs: three packages, their data, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def members(tmp_path_factory) -> list[str]:
    out = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out)]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True)
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_three_packages_and_their_metadata(members):
    tops = {name.split("/")[0] for name in members}
    assert {t for t in tops if not t.endswith(".dist-info")} == {"mxref", "encoding", "hardware"}
    assert len(tops) == 4


def test_types_and_data_travel(members):
    for package in ("mxref", "encoding", "hardware"):
        assert f"{package}/py.typed" in members
    assert {"mxref/data/digits.npz", "mxref/data/digits.json"} <= set(members)


def test_licence_and_command_travel(members):
    assert any(name.endswith("licenses/LICENSE") for name in members)
    assert any(name.endswith("entry_points.txt") for name in members)


def test_every_module_travels(members):
    for package in ("mxref", "encoding", "hardware"):
        for path in (ROOT / package).rglob("*.py"):
            assert path.relative_to(ROOT).as_posix() in members
