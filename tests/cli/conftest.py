"""The command as a user calls it, in this process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from mxref.cli import main


@dataclass(frozen=True)
class Done:
    """What a call left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def room(tmp_path, monkeypatch) -> Path:
    """An empty working directory, and a terminal of no particular width."""
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def call(room):
    """Call ``mxref ARGS``; anything but a clean exit is an error of the test."""

    def invoke(*args: object, stdin: bytes | str | None = None) -> Done:
        result = CliRunner().invoke(main, [str(a) for a in args], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Done(result.exit_code, result.stdout, result.stderr)

    return invoke


@pytest.fixture
def refused(call, room):
    """Call and insist on exit 2, one line on standard error, and no new file."""

    def invoke(*args: object, stdin: bytes | str | None = None) -> str:
        before = sorted(p.name for p in room.iterdir())
        done = call(*args, stdin=stdin)
        assert done.code == 2, done
        assert done.out == ""
        assert done.err.startswith("mxref: ")
        assert done.err.count("\n") == 1
        assert "Traceback" not in done.err
        assert sorted(p.name for p in room.iterdir()) == before
        return done.err

    return invoke


@pytest.fixture
def saved(room):
    """Save an array under a name."""

    def save(name: str, array: object) -> Path:
        np.save(room / name, np.asarray(array), allow_pickle=True)
        return room / name

    return save
