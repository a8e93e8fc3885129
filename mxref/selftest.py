"""One digest per format, order and bundle: the same on every machine and backend, or a bug.

Inputs are hashed counters, so they need no random generator and no file.  The digests below were
taken from the oracle; ``tests/meta/test_selftest.py`` recomputes them there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import jax.numpy as jnp
import numpy as np

import encoding
from encoding import Addr4, LdWeightMx, MatmultMx, MxPattern, QuantizeMx, Tensor3D
from hardware import Space, WireDtype
from mxref.block import quantize
from mxref.formats import E4M3FN, FORMATS, FP32, FormatSpec
from mxref.machine import State, run
from mxref.matmul import matmul
from mxref.mxarray import MXArray
from mxref.narrow import narrow
from mxref.policy import BACKEND, OCP, ORDERS, POLICIES, Accumulate
from mxref.widen import widen

DIGITS = 16
PATTERNS = 2048
M, N, K = 6, 5, 544
ROWS, COLUMNS = 32, 8
DATA, SCALE = 0x400, 0x800

EXPECTED: dict[str, str] = {
    "format float4_e2m1fn": "9538f9d8d27bf956",
    "format float6_e2m3fn": "7e098e3155d640d7",
    "format float6_e3m2fn": "045b624f90c3f375",
    "format float8_e4m3fn": "f07c835ceff25871",
    "format float8_e4m3": "d0974476a0d602ce",
    "format float8_e5m2": "c43ff7ac0f2f6815",
    "format float8_e3m4": "d5cc6687c2e1fec6",
    "format float8_e8m0fnu": "0b8a7ff0256abca8",
    "format bfloat16": "68d1fd792d3365be",
    "format float16": "47986a9bbd205a16",
    "order BLOCK": "3cbef96e252669f7",
    "order SEQUENTIAL": "5dbef4312d2d3cd3",
    "order SYSTOLIC_MX": "45df95c2c8a1eb82",
    "order SYSTOLIC_DENSE": "478569813f92de9e",
    "order C_FIRST": "6a8c2e5cd5b8d8c7",
    "bundle QuantizeMx": "f2dea50e5fe8cb97",
    "bundle LdWeightMx": "cc59931b3b2ab69d",
    "bundle MatmultMx": "049001e07dc4da00",
}
"""SHA-256, cut to :data:`DIGITS` hex digits, by check."""


@dataclass(frozen=True)
class Check:
    """One comparison: what was found and what every machine must find."""

    name: str
    found: str
    expected: str

    @property
    def passed(self) -> bool:
        """Whether the digest is the expected one."""
        return self.found == self.expected


def hashed(count: int, seed: int) -> np.ndarray:
    """``count`` well mixed uint32 words (the finalizer of SplitMix64 over a counter)."""
    z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z >> np.uint64(32)).astype(np.uint32)


def moderate(count: int, seed: int, low: int = 97, span: int = 40) -> np.ndarray:
    """float32 patterns whose biased exponents lie in ``low .. low + span - 1``."""
    words = hashed(count, seed)
    exponents = (low + hashed(count, seed + 1) % span).astype(np.uint32)
    return (words & np.uint32(0x807FFFFF)) | exponents << np.uint32(23)


def digest(*parts: np.ndarray | bytes) -> str:
    """SHA-256 over the little-endian bytes of all parts."""
    total = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else np.ascontiguousarray(part)
        if isinstance(data, np.ndarray) and data.dtype.byteorder == ">":
            data = data.astype(data.dtype.newbyteorder("<"))
        total.update(data if isinstance(data, bytes) else data.tobytes())
    return total.hexdigest()[:DIGITS]


def sources() -> np.ndarray:
    """float32 patterns to narrow: everything, then the range in which narrow formats live."""
    return np.concatenate([hashed(PATTERNS // 2, 1), moderate(PATTERNS // 2, 2)])


def code_points(spec: FormatSpec) -> np.ndarray:
    """Every code of a narrow format, a sample of a wide one."""
    if spec.bits <= 8:
        return np.arange(1 << spec.bits, dtype=np.uint8)
    words = hashed(PATTERNS, 3) & np.uint32(spec.sign_mask | spec.magnitude_mask)
    return words.astype(np.uint16 if spec.bits == 16 else np.uint32)


def block_sources() -> np.ndarray:
    """float32 patterns [8, 32] to quantize: ordinary, tiny, huge and special blocks."""
    blocks = np.stack([moderate(32, 10 + i, low, 12) for i, low in enumerate((120, 1, 243, 60))])
    special = np.stack([hashed(32, 20), moderate(32, 30, 0, 3), np.zeros(32, np.uint32)])
    tail = moderate(32, 40, 118, 9)
    tail[7] = 0x7FC00000
    return np.concatenate([blocks, special, tail[None]])


def orders_operands() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """E4M3FN codes and spread scales of lhs [M, K] and rhs [K, N]; no NaN codes."""

    def codes(shape: tuple[int, int], seed: int) -> np.ndarray:
        words = hashed(shape[0] * shape[1], seed).astype(np.uint8)
        words[(words & 0x7F) == 0x7F] = 0x38
        return words.reshape(shape)

    def scales(shape: tuple[int, int], seed: int) -> np.ndarray:
        return (119 + hashed(shape[0] * shape[1], seed) % 17).astype(np.uint8).reshape(shape)

    blocks = K // 32
    return (codes((M, K), 50), scales((M, blocks), 51)), (
        codes((K, N), 52),
        scales((blocks, N), 53),
    )


def inits() -> np.ndarray:
    """float32 patterns [M, N] added to the products, so that their place in the order shows."""
    return moderate(M * N, 54, 140, 6).reshape(M, N)


def program() -> dict[str, bytes]:
    """Three bundles that depend on one another, by mnemonic."""
    packed = MxPattern(Addr4.sbuf(0, DATA), Addr4.sbuf(0, SCALE), extent=4 * COLUMNS)
    fp8, group = WireDtype.FP8_EXP4, 1
    bundles = (
        QuantizeMx(
            src=Tensor3D(Addr4.sbuf(0, 0), 1, 0, 0, 4 * COLUMNS, 1, 1),
            num_active_channels=ROWS,
            src_dtype=WireDtype.BFLOAT16,
            dst_dtype=fp8,
            dst=packed,
        ),
        LdWeightMx(
            src=packed, dtype=fp8, num_active_rows=ROWS, num_active_cols=COLUMNS, row_group=group
        ),
        MatmultMx(
            src=packed,
            dtype=fp8,
            num_active_rows=ROWS,
            num_active_cols=COLUMNS,
            out_dtype=WireDtype.FP32,
            accumulate_flags=3,
            row_group=group,
            dst=Tensor3D(Addr4.psum(0, 0, 0), 1, 0, 0, COLUMNS, 1, 1),
        ),
    )
    return {b.mnemonic: encoding.encode(b) for b in bundles}


def memory_words() -> np.ndarray:
    """bfloat16 patterns [ROWS, 4 COLUMNS] that the program starts from."""
    words = moderate(ROWS * 4 * COLUMNS, 60, 110, 20) >> np.uint32(16)
    return words.astype(np.uint16).reshape(ROWS, 4 * COLUMNS)


def _format(spec: FormatSpec) -> str:
    x = sources().view(np.float32)
    parts = [np.asarray(narrow(x, spec)), np.asarray(widen(code_points(spec), spec))]
    if spec.bits <= 8 and spec.signed:
        for policy in POLICIES.values():
            q = quantize(block_sources().view(np.float32), spec, policy=policy)
            parts += [np.asarray(q.codes), np.asarray(q.scales)]
    return digest(*parts)


def _order(order: Accumulate) -> str:
    (a, sa), (b, sb) = orders_operands()
    how = {"format": E4M3FN, "block": 32, "policy": OCP}
    lhs = MXArray(jnp.asarray(a), jnp.asarray(sa), axis=-1, **how)
    rhs = MXArray(jnp.asarray(b), jnp.asarray(sb), axis=-2, **how)
    init = jnp.asarray(inits().view(np.float32))
    return digest(np.asarray(matmul(lhs, rhs, accumulate=order, init=init)))


def _bundle(mnemonic: str) -> str:
    bundles = program()
    state = State.empty().write(Space.SBUF, 0, 0, memory_words())
    state = run(b"".join(bundles.values()), state)
    found = {
        "QuantizeMx": [(Space.SBUF, DATA, 4 * COLUMNS), (Space.SBUF, SCALE, COLUMNS)],
        "MatmultMx": [(Space.PSUM, 0, 4 * COLUMNS)],
    }
    rows = {SCALE: ROWS // 8, 0: COLUMNS}
    memory = [
        state.read(space, 0, offset, (rows.get(offset, ROWS), size), np.uint8)
        for space, offset, size in found.get(mnemonic, [])
    ]
    return digest(bundles[mnemonic], *memory)


def checks() -> Iterator[Check]:
    """Every check, computed as it is asked for."""
    todo: list[tuple[str, Callable[[], str]]] = [
        (f"format {spec}", partial(_format, spec)) for spec in FORMATS.values() if spec != FP32
    ]
    for name, order in ORDERS.items():
        if order != BACKEND:
            todo.append((f"order {name}", partial(_order, order)))
    todo += [(f"bundle {name}", partial(_bundle, name)) for name in program()]
    for name, compute in todo:
        yield Check(name, compute(), EXPECTED.get(name, "none"))
