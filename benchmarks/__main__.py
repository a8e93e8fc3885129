"""Run every benchmark and print one table: ``python -m benchmarks [FILE ...]``.

Each benchmark measures its yardstick in the same run and asserts its own limit, so a slow machine
changes the times and not the verdicts.
"""

from __future__ import annotations

import json
import platform
import sys
import tempfile
from pathlib import Path

import jax
import pytest
from rich.console import Console
from rich.markup import escape
from rich.table import Table

HERE = Path(__file__).parent


def main(files: list[str]) -> int:
    """Run the named benchmark files, or all of them, and return pytest's exit code."""
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "report.json"
        chosen = files or [str(HERE)]
        code = pytest.main([*chosen, "-q", "-n", "0", "-m", "", "--no-header",
                            "--benchmark-disable-gc", "--benchmark-quiet",
                            f"--benchmark-json={report}"])  # fmt: skip
        rows = json.loads(report.read_text())["benchmarks"] if report.stat().st_size else []
    table = Table(title=f"{platform.machine()}, jax {jax.__version__}", box=None, pad_edge=False)
    for name in ("Benchmark", "Median", "Beside its yardstick"):
        table.add_column(name, justify="right" if name == "Median" else "left")
    for row in rows:
        extra = ", ".join(f"{k} {v}" for k, v in row["extra_info"].items())
        table.add_row(escape(row["name"]), f"{1e3 * row['stats']['median']:,.2f} ms", extra)
    Console(width=140).print(table)
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
