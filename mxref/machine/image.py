"""Memory images: a State as an .npz file, and back without trust.

Masks are kept as bits.  A byte that nothing wrote has no value, so it is stored as zero: equal
States give equal images whatever stood in such bytes before.
"""

from __future__ import annotations

import io
import json
import lzma
import math
import os
import zipfile
import zlib
from pathlib import Path

import numpy as np

from hardware import Arch, geometry
from mxref.errors import ProgramError
from mxref.program import arrays

from .state import PARTITIONS, State

_EPOCH = (1980, 1, 1, 0, 0, 0)
_HEADER = "header.npy"
_MAX_HEADER = 1 << 20
_MAX_OUTPUT = 1 << 31
_MAX_AXES = 32
#: What a damaged archive raises; bz2 has no error of its own but OSError.
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError, NotImplementedError, EOFError,
    RuntimeError,
)  # fmt: skip


def save(state: State, path: str | os.PathLike[str]) -> None:
    """Write ``state`` as a compressed .npz, whole or not at all."""
    outputs = {name: np.asarray(state.outputs[name]) for name in sorted(state.outputs)}
    header = {
        "kind": "mxref memory image",
        "version": 1,
        "arch": state.arch.name,
        "outputs": {
            name: {"dtype": arrays.dtype_name(value), "shape": list(value.shape)}
            for name, value in outputs.items()
        },
    }
    members = {_HEADER: np.frombuffer(json.dumps(header, sort_keys=True).encode(), np.uint8)}
    for space in ("sbuf", "psum"):
        written = np.asarray(getattr(state, f"{space}_written"))
        members[f"{space}.npy"] = np.asarray(getattr(state, space)) * written
        members[f"{space}_written.npy"] = np.packbits(written, axis=1)
    for position, value in enumerate(outputs.values()):
        members[f"output{position}.npy"] = value
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, value in members.items():
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, arrays.npy_bytes(value), compresslevel=1)
    arrays.write_atomically(path, out.getvalue())


def load(path: str | os.PathLike[str]) -> State:
    """Read an image.

    Raises:
      ProgramError: when it is damaged, of another shape, or something else.
    """
    data = Path(path).read_bytes()  # outside: its OSError says nothing about the contents
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _load(archive)
    except _DAMAGE as error:
        raise ProgramError(str(path), f"not a memory image ({error})") from None


def _member(
    archive: zipfile.ZipFile, member: str, dtype: str, shape: tuple[int, ...]
) -> np.ndarray:
    try:
        info = archive.getinfo(member)
    except KeyError:
        raise ProgramError(member, "missing from the memory image") from None
    # Checked before inflating: an npy header is far below 64 KiB.
    if info.file_size > math.prod(shape) * arrays.DTYPES[dtype].itemsize + (1 << 16):
        raise ProgramError(member, f"is larger than {dtype}{list(shape)}")
    return arrays.read_npy(archive.read(info), member, dtype, shape)


def _header(archive: zipfile.ZipFile) -> dict[str, object]:
    if _HEADER not in archive.namelist() or archive.getinfo(_HEADER).file_size > _MAX_HEADER:
        raise ProgramError(_HEADER, "missing or oversized: not a memory image")
    raw = archive.read(_HEADER)
    try:
        # The header is a byte string of unknown length behind the npy preamble.
        start = raw.index(b"\n") + 1
        header = json.loads(raw[start:])
    except (ValueError, RecursionError) as error:
        raise ProgramError(_HEADER, f"unreadable ({error})") from None
    if not isinstance(header, dict) or header.get("kind") != "mxref memory image":
        raise ProgramError(_HEADER, "not a memory image")
    if header.get("version") != 1:
        raise ProgramError(_HEADER, f"version {header.get('version')!r}, this release reads 1")
    return header


def _load(archive: zipfile.ZipFile) -> State:
    header = _header(archive)
    arch = Arch.__members__.get(str(header.get("arch")))
    if arch is None:
        raise ProgramError(_HEADER, f"unknown arch {header.get('arch')!r}")
    size = geometry(arch)
    loaded: dict[str, np.ndarray] = {}
    for space, columns in (("sbuf", size.sbuf_bytes), ("psum", size.psum_bytes)):
        memory = _member(archive, f"{space}.npy", "uint8", (PARTITIONS, columns))
        mask = _member(archive, f"{space}_written.npy", "uint8", (PARTITIONS, columns // 8))
        written = np.unpackbits(mask, axis=1).view(np.bool_)
        if (memory[~written] != 0).any():
            raise ProgramError(f"{space}.npy", "a byte that nothing wrote has a value")
        loaded[space] = arrays.frozen(memory)
        loaded[f"{space}_written"] = arrays.frozen(written)
    outputs = _outputs(archive, header.get("outputs"))
    names = ("sbuf", "psum", "sbuf_written", "psum_written")
    return State(*(loaded[name] for name in names), outputs=outputs, arch=arch)


def _outputs(archive: zipfile.ZipFile, table: object) -> dict[str, np.ndarray]:
    if not isinstance(table, dict):
        raise ProgramError(_HEADER, "outputs is not a table")
    outputs: dict[str, np.ndarray] = {}
    for position, (name, row) in enumerate(table.items()):
        shape = row.get("shape") if isinstance(row, dict) else None
        dtype = row.get("dtype") if isinstance(row, dict) else None
        if not isinstance(dtype, str) or dtype not in arrays.DTYPES or not isinstance(shape, list):
            raise ProgramError(_HEADER, f"output {name!r} has no dtype or shape")
        good = len(shape) <= _MAX_AXES and all(type(n) is int and n >= 0 for n in shape)
        # An axis of length zero makes the product small, but numpy multiplies the others too.
        if not good or math.prod(n or 1 for n in shape) >= _MAX_OUTPUT:
            raise ProgramError(_HEADER, f"output {name!r} has shape {shape}")
        outputs[name] = _member(archive, f"output{position}.npy", dtype, tuple(shape))
    return outputs
