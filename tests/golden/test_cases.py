"""Every published case of cases.json, through the oracle and through the public fast path.

A case is a failure that some other project had and fixed; its source names the report.  Each kind
has one reader of the inputs and two ways to the answer; the answers are compared as words, NaN by
class because the file does not compare payloads.
"""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mxref as mx
from mxref import oracle
from mxref.policy import C_FIRST, OCP, SEQUENTIAL, E8M0Rounding, NumericPolicy, Rounding, ScaleRule

DOCUMENT = json.loads((Path(__file__).parent / "cases.json").read_text())
CASES = DOCUMENT["cases"]
FORMAT_NAMES = {
    "e2m1fn": mx.E2M1FN,
    "e4m3fn": mx.E4M3FN,
    "e5m2": mx.E5M2,
    "e4m3 (IEEE, not fn)": mx.E4M3_IEEE,
    "e4m3fn x4 (little-endian u32)": mx.E4M3FN,
    "e2m1fn x4 (little-endian u16)": mx.E2M1FN,
    "e5m2 x e5m2 -> f32": mx.E5M2,
    "e4m3fn x e4m3fn -> f32": mx.E4M3FN,
}
E8M0_MODES = {
    "floor": E8M0Rounding.FLOOR,
    "ceil": E8M0Rounding.CEIL,
    "rne": E8M0Rounding.NEAREST_EVEN,
    "rna": E8M0Rounding.NEAREST_UP,
    "log_rne": E8M0Rounding.LOG_RNE,
}


def ints(words) -> list[int]:
    return [int(word, 16) for word in words]


def float32(words: list[int]) -> jax.Array:
    """Words to float32, by their bytes: XLA never sees a float it could flush."""
    return jnp.asarray(np.array(words, np.uint32).view(np.float32))


def words(array) -> list[int]:
    """A float32 array's words, flattened."""
    return [int(w) for w in np.asarray(array, np.float32).reshape(-1).view(np.uint32)]


def flat(array) -> list[int]:
    return [int(x) for x in np.asarray(array).reshape(-1)]


def same(got: list[int], want: list[int], fmt: mx.FormatSpec = mx.FP32) -> bool:
    """Equal codes, any NaN equal to any NaN."""
    return len(got) == len(want) and all(
        g == w or (g in fmt.nan_codes and w in fmt.nan_codes)
        for g, w in zip(got, want, strict=True)
    )


def scale_rule(mode: str) -> NumericPolicy:
    return replace(OCP, scale_rule=ScaleRule(mode))


# One pair of functions a kind.  Each returns the same structure as the case's ``expected``.


def scale_decode(case):
    codes = ints(case["input"]["codes"])
    by_oracle = [oracle.float32_bits(oracle.decode(c, mx.E8M0)) for c in codes]
    return by_oracle, words(mx.decode_e8m0(jnp.array(codes, jnp.uint8))), mx.FP32


def scale_encode(case):
    bits = ints(case["input"]["x_f32_bits"])
    rounding = E8M0_MODES[case["policy"]["mode"]]
    by_oracle = [oracle.encode_e8m0(oracle.from_float32_bits(b), rounding) for b in bits]
    return by_oracle, flat(mx.encode_e8m0(float32(bits), rounding)), mx.E8M0


def floor_log2(case):
    bits = ints(case["input"]["x_f32_bits"])
    by_oracle = [oracle.floor_log2(oracle.from_float32_bits(b).exact) for b in bits]
    return by_oracle, flat(mx.floor_log2(float32(bits))), mx.FP32


def cast_f32(case):
    bits, fmt = ints(case["input"]["x_f32_bits"]), FORMAT_NAMES[case["format"]]
    assert case["policy"]["rounding"] == "rne"
    saturate = case["policy"]["saturate"]
    by_oracle = [
        oracle.encode(oracle.from_float32_bits(b), fmt, Rounding.RNE, saturate) for b in bits
    ]
    return by_oracle, flat(mx.narrow(float32(bits), fmt, saturate=saturate)), fmt


def dequantize(case):
    codes, scale = ints(case["input"]["codes"]), int(case["input"]["scale"], 16)
    fmt = FORMAT_NAMES[case["format"]]
    array = mx.MXArray(
        jnp.array(codes, jnp.uint8), jnp.array([scale], jnp.uint8), format=fmt, policy=OCP
    )
    return (
        oracle.dequantize_block(scale, codes, fmt, OCP),
        words(mx.dequantize(array)),
        mx.FP32,
    )


def quantize_block(case):
    fmt, policy = FORMAT_NAMES[case["format"]], scale_rule(case["policy"]["scale_mode"])
    assert case["policy"]["elem_rounding"] == "rne"
    assert case["policy"]["saturate"] is True
    assert case["policy"]["nan_inf_block"] == "scale=0xFF"
    source = case["input"]
    if "x_bf16_bits" in source:
        bits = ints(source["x_bf16_bits"])
        values = [oracle.decode(b, mx.BF16) for b in bits]
        x = jnp.asarray(np.array(bits + [0] * (source["pad_to"] - len(bits)), np.uint16))
        x = jax.lax.bitcast_convert_type(x, jnp.bfloat16)
    else:
        bits = ints(source["x_f32_bits"])
        values = [oracle.from_float32_bits(b) for b in bits]
        x = float32(bits + [0] * (source["pad_to"] - len(bits)))
    padded = values + [oracle.ZERO] * (source["pad_to"] - len(values))
    scale, codes = oracle.quantize_block(padded, fmt, policy)
    fast = mx.quantize(x, fmt, policy=policy)
    shown = len(bits)
    # The padding is part of the block: it must come out alike on both roads.
    assert flat(fast.codes) == codes
    return [scale, *codes[:shown]], [*flat(fast.scales), *flat(fast.codes)[:shown]], fmt


def scale_mode_table(case):
    bits, fmt = ints(case["input"]["amax_f32_bits"]), FORMAT_NAMES[case["format"]]
    by_oracle, fast = [], []
    for mode in case["expected"]:
        policy = scale_rule(mode)
        by_oracle += [oracle.scale_code(oracle.from_float32_bits(b), fmt, policy) for b in bits]
        fast += flat(mx.quantize(float32(bits)[:, None], fmt, policy=policy).scales)
    return by_oracle, fast, mx.E8M0


def pack_fp4(case):
    codes = ints(case["input"]["codes"])
    order = {"linear_low_first": "linear", "split_half": "ggml"}[case["policy"]["order"]]
    fast = mx.pack_fp4(jnp.array(codes, jnp.uint8), order=order)
    return oracle.pack_fp4(codes, order), flat(fast), mx.E2M1FN


def pack_x4(case):
    codes, fmt = ints(case["input"]["codes"]), FORMAT_NAMES[case["format"]]
    fast = mx.pack_x4(jnp.array(codes, jnp.uint8), fmt)
    assert fast.dtype == (jnp.uint16 if fmt.bits == 4 else jnp.uint32)
    return [oracle.pack_x4(codes, fmt.bits)], flat(fast), fmt


def encode_exactly(text: str, fmt: mx.FormatSpec) -> int:
    value = oracle.Value.of(Fraction(text))
    code = oracle.encode(value, fmt)
    assert oracle.decode(code, fmt).exact == value.exact, f"{text} is not a {fmt} value"
    return code


def dot(case):
    fmt = FORMAT_NAMES[case["format"]]
    a = [encode_exactly(x, fmt) for x in case["input"]["a"]]
    b = [encode_exactly(x, fmt) for x in case["input"]["b"]]
    init = int(case["input"]["acc_init"], 16)
    order = C_FIRST if case["policy"]["accumulate"] == "C first" else SEQUENTIAL
    one = jnp.full(1, 0x7F, jnp.uint8)
    lhs = mx.MXArray(jnp.array([a], jnp.uint8), one[None], format=fmt)
    rhs = mx.MXArray(jnp.array([b], jnp.uint8).T, one[:, None], format=fmt, axis=-2)
    fast = mx.matmul(lhs, rhs, accumulate=order, init=float32([init])[None])
    by_oracle = oracle.dot(a, [0x7F], b, [0x7F], fmt, fmt, OCP, order, init=init)
    return [by_oracle], words(fast), mx.FP32


def mul_add(case):
    a, b, c = (int(case["input"][name], 16) for name in "abc")
    assert case["policy"]["contract"] is False
    lhs, rhs, init = (float32([w])[None] for w in (a, b, c))
    got = []
    for order in (C_FIRST, SEQUENTIAL):
        by_oracle = oracle.dot([a], None, [b], None, mx.FP32, mx.FP32, OCP, order, init=c)
        fast = mx.matmul(lhs, rhs, accumulate=order, init=init)
        jitted = jax.jit(lambda x, y, z, order=order: mx.matmul(x, y, accumulate=order, init=z))
        assert words(jitted(lhs, rhs, init)) == words(fast)
        got.append((by_oracle, words(fast)[0]))
    assert got[0] == got[1]
    return [got[0][0]], [got[0][1]], mx.FP32


def matmul_f32(case):
    a = [ints(row) for row in case["input"]["a"]]
    b = [ints(row) for row in case["input"]["b"]]
    by_oracle = oracle.matmul(a, None, b, None, mx.FP32, mx.FP32, OCP, SEQUENTIAL)
    lhs = float32(flat(a)).reshape(len(a), -1)
    rhs = float32(flat(b)).reshape(len(b), -1)
    return flat(by_oracle), words(mx.matmul(lhs, rhs)), mx.FP32


def mx_matmul(case):
    assert (case["input"]["a"], case["input"]["b"]) == ("ones (1,32)", "ones (32,1)")
    fmt = FORMAT_NAMES[case["format"]]
    ones = [encode_exactly("1", fmt)] * 32
    sa, sb = ints(case["input"]["a_scale_codes"]), ints(case["input"]["b_scale_codes"])
    lhs = mx.MXArray(jnp.array([ones], jnp.uint8), jnp.array([sa], jnp.uint8), format=fmt)
    rhs = mx.MXArray(
        jnp.array([ones], jnp.uint8).T, jnp.array([sb], jnp.uint8).T, format=fmt, axis=-2
    )
    answers = set()
    for order in (mx.BLOCK, mx.SEQUENTIAL, mx.SYSTOLIC_MX):
        by_oracle = oracle.dot(ones, sa, ones, sb, fmt, fmt, OCP, order)
        answers.add((by_oracle, words(mx.matmul(lhs, rhs, accumulate=order))[0]))
    ((by_oracle, fast),) = answers
    return [by_oracle], [fast], mx.FP32


def grad_clip_ste(case):
    fmt = FORMAT_NAMES[case["format"]]
    texts = case["input"]["x"]
    values = [oracle.Value.of(Fraction(t)) for t in texts]
    scale, _ = oracle.quantize_block(values, fmt, OCP)
    bound = oracle.Value.of(fmt.max_value).scaled(scale - 127).magnitude
    assert bound == Fraction(case["input"]["hi"]) == -Fraction(case["input"]["lo"])
    cotangent = [oracle.Value.of(Fraction(t)) for t in case["input"]["cotangent"]]
    by_oracle = [
        oracle.float32_bits(c if v.magnitude <= bound else oracle.ZERO)
        for v, c in zip(values, cotangent, strict=True)
    ]
    x = jnp.array([float(t) for t in texts], jnp.float32)
    _, pull = jax.vjp(lambda x: mx.fake_quantize(x, fmt), x)
    (fast,) = pull(jnp.array([float(t) for t in case["input"]["cotangent"]], jnp.float32))
    return by_oracle, words(fast), mx.FP32


# Programs: one row tile of 32, one 32-element block, one product per output.  Bytes by hand.

LOAD = bytes.fromhex(
    "09100000000000000000000000000000"
    "00000000000400000002010000000000"  # data 0x0, scales 0x400, 512 logical elements
    "0E0000000000208000000000010F0000"
    "00000000000000000000000000000000"
)
MULTIPLY = bytes.fromhex(
    "0A100000000000000000000000000000"
    "00080000000A00000400010000000000"  # data 0x800, scales 0xA00, one container
    "0E000000000020800A000000010F0000"
    "00000002010001000100010001000100"
)
QUANTIZE = bytes.fromhex(
    "E3100000000000000000000000000000"
    "00030000010001000100080001000100"
    "0020060E000000000000000000000000"
    "00020000800200000800010000000000"
)


def patched(bundle: bytes, changes: dict[int, int]) -> bytes:
    raw = bytearray(bundle)
    for at, value in changes.items():
        raw[at] = value
    return bytes(raw)


def product_image(column: list[int], value: int) -> dict[int, list[list[int]]]:
    """SBUF bytes by offset: stationary column m has ``column[m]`` in row 0, lane 0; moving too."""
    stationary = [[0] * 512 for _ in range(32)]
    for m, code in enumerate(column):
        stationary[0][4 * m] = code
    moving = [[0] * 4 for _ in range(32)]
    moving[0][0] = value
    return {
        0x0: stationary,
        0x400: [[0x7F] * 128 for _ in range(4)],
        0x800: moving,
        0xA00: [[0x7F]] * 4,
    }


def run_programs(
    steps: list[tuple[bytes, dict[int, list[list[int]]]]], psum: bytes | None, size: int
) -> tuple[list[int], list[int]]:
    """Run programs one after another on both roads; the PSUM words of 128 partitions."""
    memory, state = oracle.Memory(), mx.State.empty(mx.Arch.MARIANA)
    if psum is not None:
        for partition in range(128):
            memory.write("PSUM", partition, 0, psum)
        rows = jnp.asarray(np.tile(np.frombuffer(psum, np.uint8), (128, 1)))
        state = state.write(mx.Space.PSUM, 0, 0, rows)
    for bundles, image in steps:
        for offset, rows in image.items():
            for partition, row in enumerate(rows):
                memory.write("SBUF", partition, offset, bytes(row))
            array = jnp.asarray(np.array(rows, np.uint8))
            state = state.write(mx.Space.SBUF, 0, offset, array)
        memory = oracle.executor.execute(bundles, memory)
        state = mx.run(bundles, state)
    by_oracle = [int.from_bytes(memory.read("PSUM", p, 0, size), "little") for p in range(128)]
    raw = np.asarray(state.read(mx.Space.PSUM, 0, 0, (128, size), jnp.uint8))
    return by_oracle, [int.from_bytes(bytes(row), "little") for row in raw.tolist()]


def psum_bf16(case):
    bundles = LOAD + patched(MULTIPLY, {0x28: 0x06, 0x2B: 0x04})
    steps = []
    for word in ints(case["input"]["adds_f32"]):
        code = oracle.encode(oracle.from_float32_bits(word), mx.E4M3FN)
        steps.append((bundles, product_image([0x38] * 128, code)))
    init = int(case["input"]["init_bf16"], 16).to_bytes(2, "little")
    by_oracle, fast = run_programs(steps, init, 2)
    assert len(set(by_oracle)) == len(set(fast)) == 1
    return by_oracle[:1], fast[:1], mx.BF16


def psum_sequence(case):
    # An MX bundle always writes output rows 0..M-1, so rows outside the region get a product of 0.
    assert case["input"]["psum"] == "uninitialised"
    steps = []
    for op in case["input"]["ops"]:
        first, last = (int(t) for t in op["region"].removeprefix("rows ").split(".."))
        column = [0x38 if first <= m <= last else 0x00 for m in range(128)]
        code = encode_exactly(op["product"].removesuffix(".0"), mx.E4M3FN)
        bundles = LOAD + patched(MULTIPLY, {0x2B: int(op["flags"], 16)})
        steps.append((bundles, product_image(column, code)))
    by_oracle, fast = run_programs(steps, None, 4)
    for got in (by_oracle, fast):
        assert len(set(got[:64])) == len(set(got[64:])) == 1
    return [by_oracle[0], by_oracle[64]], [fast[0], fast[64]], mx.FP32


def accepted_by_oracle(bundles: bytes, memory: oracle.Memory) -> bool:
    try:
        oracle.executor.execute(bundles, memory, uninitialised="zero")
    except mx.ExecutionError:
        return False
    return True


def bundle_legality(case):
    field = case["input"]["field"]
    places = {
        "psum accumulate byte +0x2B": [(LOAD, MULTIPLY, 0x2B)],
        "scale partition base (slot +0xB)": [
            (b"", LOAD, 0x1B),
            (LOAD, MULTIPLY, 0x1B),
            (b"", QUANTIZE, 0x3B),
        ],
    }[field]
    by_oracle, fast = [], []
    for value in ints(case["input"]["values"]):
        verdicts, checks = set(), set()
        for before, bundle, at in places:
            raw = patched(bundle, {at: value})
            verdicts.add(accepted_by_oracle(before + raw, oracle.Memory()))
            checks.add(not mx.check(raw, mx.Arch.MARIANA, level="wire"))
        (verdict,), (check,) = verdicts, checks
        by_oracle.append(int(verdict))
        fast.append(int(check))
    return by_oracle, fast, mx.FP32


KINDS = {
    "scale_decode": scale_decode,
    "scale_encode": scale_encode,
    "floor_log2": floor_log2,
    "cast_f32": cast_f32,
    "dequantize": dequantize,
    "quantize_block": quantize_block,
    "scale_mode_table": scale_mode_table,
    "pack_fp4": pack_fp4,
    "pack_x4": pack_x4,
    "dot": dot,
    "mul_add": mul_add,
    "matmul_f32": matmul_f32,
    "mx_matmul": mx_matmul,
    "grad_clip_ste": grad_clip_ste,
    "psum_bf16": psum_bf16,
    "psum_sequence": psum_sequence,
    "bundle_legality": bundle_legality,
}


def expected(case) -> list[int]:
    """The case's answer as one flat list of integers."""

    def read(item) -> list[int]:
        if isinstance(item, dict):
            return [x for value in item.values() for x in read(value)]
        if isinstance(item, list):
            return [x for value in item for x in read(value)]
        return [int(item, 16)] if isinstance(item, str) else [int(item)]

    return read(case["expected"])


def test_every_case_of_the_file_has_a_reader():
    assert {case["kind"] for case in CASES} == set(KINDS)
    assert len(CASES) == 88
    assert len({case["id"] for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['kind']}-{case['id']}")
def test_case(case):
    by_oracle, fast, fmt = KINDS[case["kind"]](case)
    want = expected(case)
    assert same(by_oracle, want, fmt), ("oracle", by_oracle, want, case["note"])
    assert same(fast, want, fmt), ("fast path", fast, want, case["note"])
