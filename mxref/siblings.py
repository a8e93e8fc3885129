"""Make sure that ``hardware`` and ``encoding`` are this project's packages.

Their names are general: another distribution, or a file in the working directory, can stand in
their place without a word from pip.  Better one clear ImportError than a strange one later.
"""

from __future__ import annotations

from importlib import import_module

_MARKER = "_MXREF_PACKAGE"


def verify(name: str) -> None:
    """Import a sibling package and check its marker.

    Raises:
      ImportError: when another package or file of that name was found.
    """
    try:
        found = import_module(name)
    except ImportError as error:
        raise ImportError(
            f"mxref needs its own package {name!r}, and importing it failed: {error}. "
            "Reinstall mxref in a separate virtual environment."
        ) from error
    if not hasattr(found, _MARKER):
        where = getattr(found, "__file__", None) or next(iter(getattr(found, "__path__", ["?"])))
        raise ImportError(
            f"mxref needs its own package {name!r}, but {where} was found in its place: a file of "
            "that name in the working directory, or another distribution that installs "
            f"{name!r}. Rename the file, or install mxref in a separate virtual environment."
        )
