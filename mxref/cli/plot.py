"""The one picture: where a product errs, and how its errors are spread (extra ``plot``)."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np

from mxref.cli.output import InputError, write_file

_KINDS = (".png", ".svg", ".pdf")


def require_matplotlib(path: Path) -> None:
    """Refuse early, before any work, when the picture cannot be made.

    Raises:
      InputError: when matplotlib is missing or the file's kind is unknown.
    """
    if path.suffix not in _KINDS:
        raise InputError(f"{path}: expected a name that ends in {', '.join(_KINDS)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError(
            "--plot needs matplotlib: pip install matplotlib (or, in a checkout, "
            "pip install '.[plot]')"
        )


def plot_error(path: Path, product: np.ndarray, exact: np.ndarray, title: str) -> None:
    """Draw the error of a product: a map of the output and a histogram."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    error = np.asarray(product, np.float64) - exact
    finite = error[np.isfinite(error)]
    limit = float(np.abs(finite).max()) if finite.size else 0.0
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    limit = limit or 1.0
    picture = left.imshow(
        np.where(np.isfinite(error), error, np.nan), cmap="RdBu_r", vmin=-limit, vmax=limit,
        aspect="auto", interpolation="nearest",
    )  # fmt: skip
    left.set(xlabel="column n", ylabel="row m", title="error of each output")
    figure.colorbar(picture, ax=left, shrink=0.9)
    right.hist(finite, bins=min(60, max(10, finite.size // 40)), color="#4878a8")
    right.set(xlabel="error", ylabel="outputs", title="spread")
    right.spines[["top", "right"]].set_visible(False)
    rms = float(np.sqrt(np.mean(finite**2))) if finite.size else float("nan")
    figure.suptitle(f"{title}   RMS {rms:.3g}", fontsize=11)
    # A file without a creation date is the same file for the same numbers.
    kind = path.suffix[1:]
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    write_file(path, lambda file: figure.savefig(file, format=kind, dpi=150, metadata=metadata))
