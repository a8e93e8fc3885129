"""Array files in and out: every way a file can be unusable becomes one sentence."""

from __future__ import annotations

import lzma
import os
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import TypeGuard

import ml_dtypes
import numpy as np

from mxref.cli.output import InputError, require_file, write_file

FLOATS: dict[str, np.dtype] = {
    "float64": np.dtype(np.float64),
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
#: What numpy and zipfile raise for files that are no array files; headers go through a parser.
_DAMAGE = (
    ValueError, EOFError, LookupError, OSError, SyntaxError, TypeError, AttributeError,
    ArithmeticError, RuntimeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError,
    tokenize.TokenError,
)  # fmt: skip


def read_array(spec: str) -> np.ndarray:
    """Read ``FILE.npy``, or ``FILE.npz:NAME`` (the name may be left out when there is one array).

    Raises:
      InputError: when the file is missing, damaged, holds objects, or lacks the array.
    """
    path, name = _split(spec)
    require_file(path)
    if path.suffix not in (".npy", ".npz"):
        raise InputError(f"{path}: expected a .npy or .npz file")
    found = _load(path)
    if isinstance(found, np.ndarray):
        if name is not None:
            raise InputError(f"{spec}: a .npy file holds one array without a name")
        return found
    if name is None:
        if len(found) != 1:
            raise InputError(f"{path}: say which array, {path.name}:NAME; it has {_names(found)}")
        name = next(iter(found))
    if name not in found:
        raise InputError(f"{path}: has no array {name!r}; it has {_names(found)}")
    return found[name]


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read every array of a ``.npz`` file.

    Raises:
      InputError: when the file is missing, damaged or not a ``.npz`` file.
    """
    require_file(path)
    found = _load(path)
    if isinstance(found, np.ndarray):
        raise InputError(f"{path}: expected a .npz file, this is a .npy file")
    return found


def read_floats(spec: str) -> np.ndarray:
    """Read a non-empty array of floating numbers.

    Raises:
      InputError: as :func:`read_array`, or when the dtype is not a float or the array is empty.
    """
    array = read_array(spec)
    if not is_float(array):
        hint = "; convert it to float32 first" if array.dtype.kind in "iub" else ""
        raise InputError(f"{spec}: dtype {array.dtype}, expected {', '.join(FLOATS)}{hint}")
    if array.size == 0:
        raise InputError(f"{spec}: shape {array.shape} is empty")
    if array.ndim == 0:
        raise InputError(f"{spec}: a single number, expected an array")
    # Byte order is a matter of storage: numbers saved on a big-endian machine are the same numbers.
    return array.astype(array.dtype.newbyteorder("="))


def is_float(array: np.ndarray) -> TypeGuard[np.ndarray]:
    """Whether the library takes this dtype as numbers."""
    return array.dtype.newbyteorder("=") in FLOATS.values()


def save_named(path: Path, array: np.ndarray, name: str) -> None:
    """Write one array: a ``.npz`` file calls it ``name``, a ``.npy`` file has no names."""
    if path.suffix == ".npz":
        save_arrays(path, {name: array})
    else:
        save_array(path, array)


def save_array(path: Path, array: np.ndarray) -> None:
    """Write a ``.npy`` file, whole or not at all."""
    write_file(path, lambda file: np.save(file, array, allow_pickle=False))


def save_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write a ``.npz`` file, whole or not at all."""
    if path.suffix != ".npz":
        raise InputError(f"{path}: expected a name that ends in .npz")
    write_file(path, lambda file: np.savez(file, allow_pickle=False, **arrays))


def _split(spec: str) -> tuple[Path, str | None]:
    """Cut ``FILE.npz:NAME``; a path that exists as it stands is never cut."""
    path = Path(spec)
    if not os.path.exists(path) and ".npz:" in spec:
        file, name = spec.rsplit(".npz:", 1)
        return Path(file + ".npz"), name
    return path, None


def _load(path: Path) -> np.ndarray | dict[str, np.ndarray]:
    if os.path.isdir(path):
        raise InputError(f"{path}: is a directory")
    try:
        with path.open("rb") as file:
            found = np.load(file, allow_pickle=False)
            if isinstance(found, np.ndarray):
                return _named(found)
            with found:
                return {name: _named(found[name]) for name in found.files}
    except MemoryError as error:
        raise InputError(f"{path}: declares an array larger than memory") from error
    except _DAMAGE as error:
        if str(error).startswith("Object arrays"):
            raise InputError(f"{path}: holds Python objects, which are not read") from error
        # numpy takes every file that is neither kind for a pickle, which says nothing to a reader.
        reason = "" if "allow_pickle" in str(error) else f" ({_reason(error)})"
        raise InputError(f"{path}: cannot be read: damaged or no array file{reason}") from error


def _named(array: np.ndarray) -> np.ndarray:
    """Give two-byte voids their name back: numpy's files forget bfloat16, and only that."""
    return array.view(FLOATS["bfloat16"]) if array.dtype == np.dtype("V2") else array


def _reason(error: BaseException) -> str:
    first = str(error).strip().splitlines()
    return first[0] if first else type(error).__name__


def _names(arrays: dict[str, np.ndarray]) -> str:
    return ", ".join(arrays) or "none"
