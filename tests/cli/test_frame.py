"""The command's frame: help, version, unknown words, exit codes of a real process."""

from __future__ import annotations

import subprocess
import sys

import pytest

import mxref
from mxref.cli import main

COMMANDS = (
    "demo", "matmul", "quantize", "dequantize", "formats", "dis", "asm", "check", "explain", "run",
    "selftest",
)  # fmt: skip


def test_version(call):
    assert call("--version").out == f"mxref {mxref.__version__}\n"


def test_without_a_word_it_helps(call):
    done = call()
    assert done.code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in done.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_its_short_text(call, name):
    done = call(name, "--help")
    assert done.code == 0
    assert f"main {name}" in done.out
    command = main.get_command(None, name)
    assert command.name == name
    assert command.help


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"selftest"}))
def test_help_shows_examples_that_name_their_command(call, name):
    lines = call(name, "--help").out.split("Examples:\n")[1].splitlines()
    assert any(line.strip().startswith(f"mxref {name}") or f"| mxref {name}" in line
               for line in lines)  # fmt: skip
    assert all(len(line) <= 80 for line in lines)


def test_explain_names_its_exit_code(call):
    assert "Exit 1 when" in call("explain", "--help").out


def test_unknown_words(refused):
    assert "No such command 'quantise'" in refused("quantise")
    assert "No such option" in refused("formats", "--nope")


def test_a_real_process_has_the_exit_code(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mxref", "quantize", "missing.npy"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "mxref: missing.npy: no such file\n"


def test_a_reader_that_leaves_is_not_told_about_it():
    script = f"{sys.executable} -m mxref formats e8m0 | head -1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
