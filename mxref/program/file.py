"""The members of a program file (D25d): a manifest, one bundle stream per engine, npy arrays."""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import fields
from enum import Enum
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from hardware import Arch, Engine
from hardware.opcodes import BUNDLE_BYTES
from mxref.errors import MxrefError, ProgramError
from mxref.formats import FORMATS
from mxref.mxarray import MXArray, scales_shape
from mxref.policy import NumericPolicy, ScaleRule, order

from . import arrays
from .layout import BLOCK
from .parts import HostRead, HostWrite, Input, Output, Segment, build, record_of

if TYPE_CHECKING:
    from . import Program

MANIFEST = "manifest.json"
_KIND = "mxref program"
_VERSION = 1


def to_members(program: Program) -> dict[str, bytes]:
    """Return the file's members, the manifest first."""
    members: dict[str, bytes] = {}
    tags = program.engines()
    for engine in sorted(set(tags), key=lambda e: e.name):
        members[engine.stream] = program.bytes(engine)
    for position, item in enumerate(program.inputs.values()):
        for part, value in _stored(item).items():
            members[f"inputs/{position}.{part}.npy"] = arrays.npy_bytes(np.asarray(value))
    manifest = {
        "kind": _KIND,
        "version": _VERSION,
        "arch": program.arch.name,
        "policy": _policy_row(program.policy),
        "order": str(program.order),
        "inputs": [_input_row(item) for item in program.inputs.values()],
        "outputs": [record_of(item) for item in program.outputs.values()],
        "segments": _segment_rows(program, tags),
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in members.items()},
    }
    text = json.dumps(manifest, indent=1, sort_keys=True).encode()
    return {MANIFEST: text, **members}


def _stored(item: Input) -> dict[str, Any]:
    if isinstance(item.data, MXArray):
        return {"codes": item.data.codes, "scales": item.data.scales}
    return {} if item.data is None else {"values": item.data}


def _policy_row(policy: NumericPolicy) -> dict[str, Any]:
    row = {f.name: getattr(policy, f.name) for f in fields(policy)}
    return {k: v.value if isinstance(v, Enum) else v for k, v in row.items()}


def _input_row(item: Input) -> dict[str, Any]:
    row = record_of(item)
    row["format"] = item.format.name
    row["data"] = sorted(_stored(item))
    return row


def _segment_rows(program: Program, tags: tuple[Engine, ...]) -> list[dict[str, Any]]:
    rows, stream = [], iter(tags)
    for segment in program.segments:
        own = itertools.islice(stream, len(segment.bundles) // BUNDLE_BYTES)
        runs = [[e.name, len(list(run))] for e, run in itertools.groupby(own)]
        rows.append(
            {
                "writes": [list(record_of(w).values()) for w in segment.writes],
                "engines": runs,
                "reads": [list(record_of(r).values()) for r in segment.reads],
            }
        )
    return rows


def from_members(cls: type[Program], members: dict[str, bytes]) -> Program:
    """Rebuild a program.

    Raises:
      ProgramError: when a member is missing, changed or inconsistent.
    """
    if MANIFEST not in members:
        raise ProgramError(MANIFEST, "missing: not a program file")
    try:
        manifest = json.loads(members[MANIFEST])
    except (ValueError, RecursionError) as error:
        raise ProgramError(MANIFEST, f"not JSON ({error})") from None
    if not isinstance(manifest, dict) or manifest.get("kind") != _KIND:
        raise ProgramError(MANIFEST, "not a program")
    if manifest.get("version") != _VERSION:
        found = manifest.get("version")
        raise ProgramError(MANIFEST, f"version {found!r}, this release reads {_VERSION}")
    sums = manifest.get("sha256")
    if not isinstance(sums, dict) or sums.keys() != members.keys() - {MANIFEST}:
        raise ProgramError(MANIFEST, "its list of members does not match the file")
    for name, digest in sums.items():
        if hashlib.sha256(members[name]).hexdigest() != digest:
            raise ProgramError(name, "checksum mismatch: the member is damaged")
    try:
        return _rebuild(cls, manifest, members)
    except ProgramError:
        raise
    except (KeyError, TypeError, ValueError, MxrefError) as error:
        raise ProgramError(MANIFEST, f"inconsistent ({error})") from None


def _rebuild(cls: type[Program], manifest: Any, members: dict[str, bytes]) -> Program:
    policy = _policy_of(manifest["policy"])
    inputs = [_input_of(i, row, policy, members) for i, row in enumerate(manifest["inputs"])]
    outputs = [build(Output, row, "output") for row in manifest["outputs"]]
    for what, found in (("inputs", inputs), ("outputs", outputs)):
        if len({item.name for item in found}) != len(found):
            raise ProgramError(MANIFEST, f"two {what} have one name")
    return cls(
        arch=Arch[manifest["arch"]],
        policy=policy,
        order=order(manifest["order"]),
        segments=_segments_of(manifest["segments"], members),
        inputs={item.name: item for item in inputs},
        outputs={item.name: item for item in outputs},
    )


def _policy_of(row: Any) -> NumericPolicy:
    pattern = NumericPolicy("", ScaleRule.FLOOR)
    defaults = {f.name: getattr(pattern, f.name) for f in fields(NumericPolicy)}
    if not isinstance(row, dict) or row.keys() != defaults.keys():
        raise ProgramError(MANIFEST, "the policy has other fields than this release knows")
    values = {
        k: type(defaults[k])(v) if isinstance(defaults[k], Enum) else v for k, v in row.items()
    }
    if values["saturate"] not in (True, False, None) or type(values["min_scale_code"]) is not int:
        raise ProgramError(MANIFEST, "the policy has a field of another type")
    return NumericPolicy(**values)


def _input_of(position: int, row: Any, policy: NumericPolicy, members: dict[str, bytes]) -> Input:
    if not isinstance(row, dict) or row.get("format") not in FORMATS:
        raise ProgramError(MANIFEST, "an input has no known element format")
    stored = row.pop("data", None)
    spec = FORMATS[row.pop("format")]
    bare = build(Input, row, "input", format=spec, data=None)

    def member(part: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        name = f"inputs/{position}.{part}.npy"
        return arrays.read_npy(members[name], name, dtype, shape)

    if stored == []:
        return bare
    if bare.kind == "array" and stored == ["values"]:
        return _with_data(bare, member("values", bare.dtype, bare.shape))
    if bare.kind == "mx" and stored == ["codes", "scales"]:
        shape = bare.stored_shape
        codes = jnp.asarray(member("codes", "uint8", shape))
        scales = jnp.asarray(member("scales", "uint8", scales_shape(shape, bare.axis, BLOCK)))
        data = MXArray(codes, scales, format=spec, axis=bare.axis, block=BLOCK, policy=policy)
        return _with_data(bare, data)
    raise ProgramError(MANIFEST, f"input {bare.name!r} keeps {stored!r}")


def _with_data(item: Input, data: MXArray | np.ndarray) -> Input:
    return Input(**{**record_of(item), "data": data})


def _segments_of(rows: Any, members: dict[str, bytes]) -> tuple[Segment, ...]:
    position = {engine.name: 0 for engine in Engine}
    segments = []
    for row in rows:
        bundles = []
        for name, count in row["engines"]:
            stream = members[Engine[name].stream]
            at = position[name]
            end = at + BUNDLE_BYTES * count
            if type(count) is not int or count < 1 or end > len(stream):
                raise ProgramError(Engine[name].stream, "shorter than the manifest's order")
            bundles.append(stream[at:end])
            position[name] = end
        segments.append(
            Segment(
                tuple(_positional(HostWrite, w) for w in row["writes"]),
                b"".join(bundles),
                tuple(_positional(HostRead, r) for r in row["reads"]),
            )
        )
    for engine in Engine:
        if position[engine.name] != len(members.get(engine.stream, b"")):
            raise ProgramError(engine.stream, "longer than the manifest's order")
    return tuple(segments)


def _positional(cls: Any, row: Any) -> Any:
    names = [f.name for f in fields(cls)]
    if not isinstance(row, list) or len(row) != len(names):
        raise ProgramError(MANIFEST, f"a {cls.__name__} has {len(names)} fields")
    return build(cls, dict(zip(names, row, strict=True)), cls.__name__)
