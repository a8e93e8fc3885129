"""Lowered programs give the bits of the direct road, whatever the tiling."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import encoding
from encoding import LdWeightMx, MatmultMx, QuantizeMx
from hardware import Arch, CapabilityError
from mxref.block import quantize
from mxref.dot import dot_codes
from mxref.errors import FormatError, MxrefError, PolicyError, ShapeError
from mxref.lower import lower_matmul, lower_quantize
from mxref.lower.build import Builder
from mxref.machine import run
from mxref.mxarray import MXArray
from mxref.policy import (
    BACKEND,
    BLOCK,
    C_FIRST,
    NEURON_2_24,
    NEURON_2_31,
    NVIDIA,
    OCP,
    SEQUENTIAL,
    SYSTOLIC,
    SYSTOLIC_MX,
)
from mxref.program.layout import k_order, padded_k
from mxref.testing import assert_bits_equal

FORMATS = ("float8_e4m3fn", "float8_e5m2", "float4_e2m1fn")
RNG = np.random.default_rng(11)


def spread(*shape: int, axis: int = -1) -> np.ndarray:
    """bf16 values whose 32-blocks differ by up to 2^16, so that every order of additions shows."""
    blocks = [-(-n // 32) if a == axis % len(shape) else n for a, n in enumerate(shape)]
    scale = np.exp2(RNG.integers(-8, 9, blocks)).repeat(32, axis=axis)
    values = RNG.standard_normal(shape) * np.take(scale, range(shape[axis]), axis=axis)
    return values.astype(ml_dtypes.bfloat16)


def direct(a: MXArray, b: MXArray, order=SYSTOLIC_MX, start=None) -> np.ndarray:
    return np.asarray(
        dot_codes(
            a.codes,
            a.scales,
            b.codes,
            b.scales,
            lhs_format=a.format,
            rhs_format=b.format,
            policy=a.policy,
            order=order,
            start=start,
        )
    )


@pytest.mark.parametrize(
    ("left", "right"),
    [
        # Each format on each side; the other pairs take their compilations elsewhere.
        pytest.param(a, b, marks=[] if (i + j) % 3 == 2 or i == j == 0 else pytest.mark.slow)
        for (i, a), (j, b) in itertools.product(enumerate(FORMATS), enumerate(FORMATS))
    ],
)
def test_lowered_equals_direct(left: str, right: str) -> None:
    x, w = spread(3, 100), spread(100, 5, axis=0)
    out = run(lower_matmul(x, w, left, right)).outputs["out"]
    a = quantize(x, left, policy=NEURON_2_24)
    b = quantize(w, right, axis=-2, policy=NEURON_2_24)
    assert out.dtype == np.float32
    assert out.shape == (3, 5)
    assert_bits_equal(out, direct(a, b))


#: Two K tiles, 512 and 128, without padding.
WIDE = quantize(spread(4, 640), "e5m2"), quantize(spread(640, 24, axis=0), "e4m3fn", axis=-2)
SHAPES = [(1, 1, 1), (129, 40, 3)]
LARGE = [(2, 33, 1), (2, 40, 515), (2, 513, 3), (3, 1200, 2), (2, 1200, 515)]


@pytest.mark.parametrize(
    "shape", [*SHAPES, *(pytest.param(s, marks=pytest.mark.slow) for s in LARGE)], ids=str
)
def test_any_shape(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    x, w = spread(m, k), spread(k, n, axis=0)
    out = run(lower_matmul(x, w, "e4m3fn")).outputs["out"]
    a = quantize(x, "e4m3fn", policy=NEURON_2_24)
    b = quantize(w, "e4m3fn", axis=-2, policy=NEURON_2_24)
    assert_bits_equal(out, direct(a, b))


@pytest.mark.parametrize(
    "order",
    [
        BLOCK,
        SEQUENTIAL,
        SYSTOLIC(4, 128),
        pytest.param(C_FIRST, marks=pytest.mark.slow),
        pytest.param(SYSTOLIC(1, 512), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_orders(order) -> None:
    """K tiling is invisible to orders that continue from the PSUM word (D23)."""
    a, b = WIDE
    out = run(lower_matmul(a, b, accumulate=order)).outputs["out"]
    want = direct(a, b, order)
    changed = np.mean(direct(a, b, SYSTOLIC_MX) != want)
    # D23b: the inputs must tell the orders apart.
    assert changed >= 0.3
    assert_bits_equal(out, want)


@pytest.mark.parametrize(
    "policy",
    [OCP, NEURON_2_31, pytest.param(NVIDIA, marks=pytest.mark.slow)],
    ids=str,
)
def test_policies_travel(policy) -> None:
    a = quantize(spread(3, 100), "e4m3fn", policy=policy)
    b = quantize(spread(100, 5, axis=0), "e4m3fn", axis=-2, policy=policy)
    program = lower_matmul(a, b)
    assert program.policy == policy
    assert_bits_equal(run(program).outputs["out"], direct(a, b))


@pytest.mark.parametrize(
    ("fmt", "k"),
    [("e4m3fn", 100), ("e5m2", 100), pytest.param("e2m1fn", 520, marks=pytest.mark.slow)],
)
def test_strided_map_equals_permuted_operands(fmt: str, k: int) -> None:
    x, w = spread(3, k), spread(k, 5, axis=0)
    out = run(lower_matmul(x, w, fmt, kmap="strided")).outputs["out"]
    order = k_order(k, "strided")
    extra = padded_k(k) - k
    px = np.pad(x, ((0, 0), (0, extra)))[:, order]
    pw = np.pad(w, ((0, extra), (0, 0)))[order]
    a = quantize(px, fmt, policy=NEURON_2_24)
    b = quantize(pw, fmt, axis=-2, policy=NEURON_2_24)
    assert_bits_equal(out, direct(a, b))
    plain = run(lower_matmul(x, w, fmt)).outputs["out"]
    assert np.mean(plain != out) > 0.3


def test_strided_map_in_one_word() -> None:
    """The rows of one container are a quarter of the tile apart."""
    assert k_order(128, "strided")[:8].tolist() == [0, 32, 64, 96, 1, 33, 65, 97]
    assert k_order(600, "strided")[512:516].tolist() == [512, 544, 576, 608]
    assert np.array_equal(k_order(600, "adjacent"), np.arange(640))


def test_bfloat16_results_round_at_every_tile() -> None:
    a, b = WIDE
    out = run(lower_matmul(a, b, out_dtype="bfloat16")).outputs["out"]
    psum = np.zeros((4, 24), np.float32)
    for k in (0, 512):
        part = direct(a[:, k : k + 512], b[k : k + 512], start=psum)
        psum = part.astype(ml_dtypes.bfloat16).astype(np.float32)
    assert out.dtype == ml_dtypes.bfloat16
    assert_bits_equal(out, psum.astype(ml_dtypes.bfloat16))
    once = direct(a, b).astype(ml_dtypes.bfloat16)
    assert np.mean(once != out) > 0.1


def test_specials_go_through() -> None:
    x, w = spread(3, 100), spread(100, 5, axis=0)
    x[:2, 0], x[2], w[0, 1], w[40, 2] = (np.inf, np.nan), -0.0, np.inf, 1e30
    for policy in (OCP, NEURON_2_24):
        out = run(lower_matmul(x, w, "e4m3fn", policy=policy)).outputs["out"]
        a = quantize(x, "e4m3fn", policy=policy)
        b = quantize(w, "e4m3fn", axis=-2, policy=policy)
        assert_bits_equal(out, direct(a, b), nan="payload")


def test_which_bundles_are_emitted() -> None:
    """D25c: QuantizeMx for FP8 values only; codes and FP4 are placed by the host."""
    x, w = spread(3, 640), spread(640, 5, axis=0)
    names = {QuantizeMx: "q", LdWeightMx: "l", MatmultMx: "m"}

    def shape(*args, **kwargs) -> str:
        return "".join(names[type(i)] for i in lower_matmul(*args, **kwargs).instructions())

    assert shape(x, w, "e4m3fn") == "qqlmqqlm"
    assert shape(x, w, "e2m1fn") == "lmlm"
    assert shape(x, w, "e4m3fn", "e2m1fn") == "qlmqlm"
    assert shape(quantize(x, "e5m2"), w, "e5m2") == "qlmqlm"
    last = lower_matmul(x, w, "e4m3fn").instructions()[-1]
    assert isinstance(last, MatmultMx)
    assert (last.num_active_rows, last.row_group, last.num_active_cols) == (32, 1, 4)
    assert last.accumulate_flags == 2


@pytest.mark.parametrize("shape", [(1, 1, 1), (130, 1100, 1030), (300, 40, 20)], ids=str)
def test_lowered_programs_are_legal_at_every_level(shape) -> None:
    m, k, n = shape
    x, w = np.zeros((m, k), ml_dtypes.bfloat16), np.zeros((k, n), ml_dtypes.bfloat16)
    for program in (
        lower_matmul(x, w, "e4m3fn"),
        lower_matmul(x, w, "e2m1fn", out_dtype=jnp.bfloat16),
        lower_quantize(x, "e5m2"),
    ):
        for level in ("wire", "verifier", "runtime"):
            assert encoding.check(program.instructions(), Arch.MARIANA, level=level) == []


def test_several_segments_when_sbuf_is_full(monkeypatch) -> None:
    """Room for one pair of tiles only: each is placed again when it is next used."""
    a = quantize(spread(130, 40), "e4m3fn")
    b = quantize(spread(40, 1024, axis=0), "e4m3fn", axis=-2)
    roomy = lower_matmul(a, b)
    monkeypatch.setattr("mxref.lower.build.RESERVED", (256 << 10) - 3300)
    tight = lower_matmul(a, b)
    assert len(tight.segments) > len(roomy.segments) == 1
    assert all(encoding.check(s.bundles, Arch.MARIANA) == [] for s in tight.segments)
    want = direct(a, b)
    assert_bits_equal(run(roomy).outputs["out"], want)
    assert_bits_equal(run(tight).outputs["out"], want)


def test_several_segments_when_psum_is_full() -> None:
    x, w = np.zeros((1, 1), ml_dtypes.bfloat16), np.zeros((1, 4097), ml_dtypes.bfloat16)
    program = lower_matmul(x, w, "e4m3fn")
    assert [len(s.reads) for s in program.segments] == [4, 4, 1]
    builder = Builder(Arch.MARIANA)
    builder.close()
    assert builder.segments == []


def test_source_casts_before_anything_else() -> None:
    x = RNG.standard_normal((3, 40)).astype(np.float32)
    w = RNG.standard_normal((40, 5))
    for source in ("bfloat16", "float16"):
        dtype = np.dtype(source) if source == "float16" else np.dtype(ml_dtypes.bfloat16)
        for fmt in ("e4m3fn", "e2m1fn"):
            cast = lower_matmul(x, w, fmt, source=source)
            twin = lower_matmul(x.astype(dtype), w.astype(np.float32).astype(dtype), fmt)
            assert_bits_equal(run(cast).outputs["out"], run(twin).outputs["out"])
            again = run(cast, inputs={"lhs": x, "rhs": w}).outputs["out"]
            assert_bits_equal(again, run(twin).outputs["out"])
    with pytest.raises(PolicyError, match="source=None: allowed bfloat16 or float16 for lhs"):
        lower_matmul(x, w, "e4m3fn")
    assert lower_matmul(x, w, "e2m1fn").inputs["lhs"].kind == "mx"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"arch": Arch.CAYMAN}, CapabilityError, "needs mariana"),
        ({"block": 16}, PolicyError, "block=16"),
        ({"kmap": "x"}, PolicyError, "adjacent, strided"),
        ({"names": ("a", "a", "b")}, PolicyError, "different names"),
        ({"out_dtype": "float16"}, PolicyError, "out_dtype"),
        ({"accumulate": BACKEND}, PolicyError, "BACKEND has none"),
        ({"accumulate": SYSTOLIC(4, 1024)}, PolicyError, "a tile_k that divides 512"),
        ({"fmt": None}, FormatError, "needs an element format"),
        ({"fmt": "e4m3_ieee"}, FormatError, "MX bundles carry"),
        ({"fmt": "e4m3"}, FormatError, "ambiguous"),
        ({"source": "float32"}, PolicyError, "source"),
        ({"lhs": spread(3, 41)}, ShapeError, r"\[41, N\]"),
        ({"lhs": spread(40)}, ShapeError, "two axes"),
        ({"lhs": np.zeros((3, 0), np.float16)}, ShapeError, "no empty axis"),
        ({"lhs": np.zeros((3, 40), np.int32)}, ShapeError, "floats"),
        ({"lhs": np.array([[object()]])}, ShapeError, "floats"),
        ({"lhs": quantize(spread(3, 40), "e4m3_ieee")}, FormatError, "MX bundles carry"),
        ({"lhs": quantize(spread(3, 40), "e5m2", axis=0)}, ShapeError, "quantize it with axis=-1"),
        ({"lhs": quantize(spread(3, 40), "e5m2", block=16)}, ShapeError, "blocks of 32"),
        ({"lhs": quantize(spread(3, 40), "e5m2"), "kmap": "strided"}, PolicyError, "kmap"),
        ({"lhs": quantize(spread(3, 40), "e5m2"), "policy": NVIDIA}, PolicyError, "policy"),
        ({"lhs": quantize(spread(3, 40), "e5m2"), "rhs_fmt": "e5m2"}, FormatError, "already"),
    ],
)
def test_what_cannot_be_lowered(change, error, message) -> None:
    call = {"lhs": spread(3, 40), "rhs": spread(40, 4, axis=0), "fmt": "e4m3fn"} | change
    with pytest.raises(error, match=message) as caught:
        lower_matmul(call.pop("lhs"), call.pop("rhs"), call.pop("fmt"), **call)
    assert isinstance(caught.value, MxrefError)


@pytest.mark.parametrize(
    ("shape", "axis"), [((3, 40), -1), ((40, 3), 0), ((2, 3, 70), -1), ((600,), 0)]
)
@pytest.mark.parametrize("policy", [NEURON_2_24, OCP])
def test_lowered_quantize_equals_direct(shape, axis, policy) -> None:
    x = spread(*shape, axis=axis).astype(np.float32)
    program = lower_quantize(x, "e5m2", axis=axis, source="float16", policy=policy)
    outputs = run(program).outputs
    want = quantize(x.astype(np.float16), "e5m2", axis=axis, policy=policy)
    assert_bits_equal(outputs["codes"], np.asarray(want.codes))
    assert_bits_equal(outputs["scales"], np.asarray(want.scales))


def test_what_cannot_be_lowered_to_quantize() -> None:
    x = spread(3, 40)
    for args, kwargs, error in (
        ((x, "e2m1fn"), {}, FormatError),
        ((x, "e4m3fn"), {"axis": 2}, ShapeError),
        ((x.astype(np.float32), "e4m3fn"), {}, PolicyError),
        ((quantize(x, "e4m3fn"), "e4m3fn"), {}, ShapeError),
        ((x, "e4m3fn"), {"arch": Arch.SUNDA}, CapabilityError),
    ):
        with pytest.raises(error):
            lower_quantize(*args, **kwargs)


@pytest.mark.slow
@pytest.mark.parametrize(("left", "right"), list(itertools.product(FORMATS, FORMATS)))
@pytest.mark.parametrize("shape", [(130, 640, 1030), (7, 2048, 33)], ids=str)
def test_large_lowered_equals_direct(left: str, right: str, shape) -> None:
    m, k, n = shape
    x, w = spread(m, k), spread(k, n, axis=0)
    out = run(lower_matmul(x, w, left, right)).outputs["out"]
    a = quantize(x, left, policy=NEURON_2_24)
    b = quantize(w, right, axis=-2, policy=NEURON_2_24)
    assert_bits_equal(out, direct(a, b))
