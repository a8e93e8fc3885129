"""Arrays as bytes: little-endian views for memories, and npy members read without trust.

A memory holds bytes, so values are placed and fetched as bit patterns and nothing here rounds.
bfloat16 has no npy type of its own; it travels as uint16 beside its name.
"""

from __future__ import annotations

import io
import math
import os
import stat
import tempfile
import tokenize
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import jax
import ml_dtypes
import numpy as np

from mxref.errors import ProgramError, ShapeError

DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype("<f4"),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float16": np.dtype("<f2"),
    "uint8": np.dtype("u1"),
    "uint16": np.dtype("<u2"),
    "uint32": np.dtype("<u4"),
    "int8": np.dtype("i1"),
    "int16": np.dtype("<i2"),
    "int32": np.dtype("<i4"),
}
"""Element types that a memory access or a program's output can name."""

#: What numpy raises for a header that it cannot read: it goes through Python's own parser.
_NO_HEADER = (
    ValueError, SyntaxError, EOFError, TypeError, OverflowError, RecursionError, MemoryError,
    tokenize.TokenError,
)  # fmt: skip

#: Canonical NaN patterns (D23c); a type without NaN is absent.
NAN_BITS = {"float32": 0x7FC00000, "bfloat16": 0x7FC0, "float16": 0x7E00}


def dtype_name(dtype: object, argument: str = "dtype") -> str:
    """Return the table's name of a numpy, ml_dtypes or jax dtype.

    Raises:
      ShapeError: when memories do not hold that type.
    """
    inner = dtype.dtype if isinstance(dtype, np.ndarray | jax.Array) else dtype
    name = inner if isinstance(inner, str) else getattr(inner, "name", None)
    if not isinstance(name, str):
        # Scalar classes: numpy's, ml_dtypes' and jax.numpy's are all understood by numpy.
        try:
            name = np.dtype(inner).name  # type: ignore[arg-type]
        except TypeError:
            name = str(inner)
    if name not in DTYPES:
        raise ShapeError(argument, name, "one of " + ", ".join(DTYPES))
    return name


def to_bytes(array: np.ndarray) -> np.ndarray:
    """View ``[P, n]`` elements of any fixed-size type as ``uint8[P, n * itemsize]``."""
    flat = np.ascontiguousarray(array)
    if flat.dtype.byteorder == ">":
        flat = flat.astype(flat.dtype.newbyteorder("<"))
    return flat.view(np.uint8)


def from_bytes(raw: np.ndarray, name: str) -> np.ndarray:
    """View the last axis of ``uint8[..., n * itemsize]`` as elements of the named type."""
    return np.ascontiguousarray(raw).view(DTYPES[name])


def frozen(array: np.ndarray) -> np.ndarray:
    """Return ``array`` made read-only, so that sharing it is safe."""
    array.setflags(write=False)
    return array


def npy_bytes(array: np.ndarray) -> bytes:
    """Serialise to the npy format, without pickle; extended types as their bit patterns."""
    plain = array
    if array.dtype.name not in DTYPES or array.dtype == ml_dtypes.bfloat16:
        plain = array.view({1: np.uint8, 2: np.dtype("<u2")}[array.dtype.itemsize])
    out = io.BytesIO()
    np.lib.format.write_array(out, np.ascontiguousarray(plain), version=(1, 0), allow_pickle=False)
    return out.getvalue()


def read_npy(data: bytes, member: str, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Parse an npy member whose type and shape are known beforehand.

    The header is compared with what is expected before any array is allocated, so a hostile header
    cannot ask for memory.

    Raises:
      ProgramError: when the member is anything else.
    """
    stored = np.dtype("<u2") if name == "bfloat16" else DTYPES[name]
    stream = io.BytesIO(data)
    try:
        if np.lib.format.read_magic(stream) != (1, 0):
            raise ProgramError(member, "not a version 1.0 npy file")
        found = np.lib.format.read_array_header_1_0(stream)
    except _NO_HEADER as error:
        raise ProgramError(member, f"not an npy file ({error})") from None
    if found[0] != shape or found[1] or found[2] != stored:
        raise ProgramError(
            member, f"holds {found[2]}{list(found[0])}, expected {stored}{list(shape)} in C order"
        )
    rest = data[stream.tell() :]
    if len(rest) != stored.itemsize * math.prod(shape):
        raise ProgramError(member, f"holds {len(rest)} bytes of data, not what its header says")
    return np.frombuffer(rest, stored).reshape(shape).view(DTYPES[name])


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Return a file's bytes.

    Raises:
      ProgramError: when it cannot be read, with the OSError as its cause.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ProgramError(str(path), f"cannot be read: {error.strerror or error}") from error


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a whole file or nothing: a temporary neighbour, then a rename."""
    with whole_file(path) as stream:
        stream.write(data)


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a stream whose bytes become the file when the block ends, or never.

    A symbolic link stays and its target is written.  A device or a pipe is written, not replaced.
    """
    try:
        special = not stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        special = False
    if special:
        # Such a file may not seek, so everything is at hand before its first byte.
        whole = io.BytesIO()
        yield whole
        with open(path, "wb") as stream:
            stream.write(whole.getvalue())
        return
    target = Path(os.path.realpath(path))
    handle, temporary = tempfile.mkstemp(prefix=".mxref.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
        # mkstemp makes private files; a result should have the permissions of any other new file.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
