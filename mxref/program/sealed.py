"""A zip file in which every bit counts.

Members are stored uncompressed with fixed timestamps, so equal content gives equal bytes.  The
archive comment carries the SHA-256 of everything before it: a flipped byte anywhere, the zip's own
records and the seal included, is refused.  Ordinary zip tools still read the file.
"""

from __future__ import annotations

import hashlib
import io
import zipfile

from mxref.errors import ProgramError

_MARK = b"sha256:"
_SEAL_BYTES = len(_MARK) + 64
_EPOCH = (1980, 1, 1, 0, 0, 0)


def seal(members: dict[str, bytes]) -> bytes:
    """Return the file that holds ``members``, in their order."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, _EPOCH)
            info.create_system = 3
            info.external_attr = 0o644 << 16
            archive.writestr(info, data)
        # Reserves the comment's length in the end record; the digits follow when all is known.
        archive.comment = _MARK + b"0" * 64
    body = out.getvalue()[:-64]
    return body + hashlib.sha256(body).hexdigest().encode()


def unseal(data: bytes, what: str = "program file") -> dict[str, bytes]:
    """Return the members of a sealed file.

    Raises:
      ProgramError: when the file is truncated, damaged, compressed, or not a sealed zip at all.
    """
    body, digits = data[:-64], data[-64:]
    if len(data) < _SEAL_BYTES or not body.endswith(_MARK):
        raise ProgramError(what, "has no seal: it is truncated, damaged or another kind of file")
    if hashlib.sha256(body).hexdigest().encode() != digits:
        raise ProgramError(what, "checksum mismatch: the file is damaged")
    members: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for info in archive.infolist():
                if info.compress_type != zipfile.ZIP_STORED or info.filename in members:
                    raise ProgramError(info.filename, "compressed or repeated member")
                members[info.filename] = archive.read(info)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        if isinstance(error, ProgramError):
            raise
        raise ProgramError(what, f"not a zip archive ({error})") from None
    return members
