"""matmul: both roads, the program file, the picture, and bad input in one line."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import mxref as mx
from mxref.testing import assert_bits_equal

RNG = np.random.default_rng(5)
X = RNG.standard_normal((5, 70), np.float32)
W = RNG.standard_normal((70, 6), np.float32)


@pytest.fixture
def pair(saved):
    return saved("x.npy", X).name, saved("w.npy", W).name


@pytest.mark.parametrize("fmt", ["e4m3fn", "e5m2", "e2m1"])
def test_through_bytes(call, pair, room, fmt):
    done = call("matmul", *pair, "--format", fmt, "--out", "y.npy", "--save", "p.mxp")
    assert done.code == 0, done
    assert "every bit equal, 960 bits" in done.out
    want = mx.matmul(mx.quantize(X, fmt), mx.quantize(W, fmt, axis=-2), accumulate=mx.SYSTOLIC_MX)
    assert_bits_equal(np.load(room / "y.npy"), np.asarray(want))
    (ran,) = mx.run(mx.Program.load(room / "p.mxp")).outputs.values()
    assert_bits_equal(np.asarray(ran), np.asarray(want))


def test_the_program_may_quantize(call, pair):
    done = call("matmul", *pair, "--source", "bfloat16", "--policy", "NEURON_2_24")
    assert done.code == 0, done
    assert "every bit equal" in done.out


def test_defaults_are_the_machines_where_it_can(call, pair):
    assert "OCP, SYSTOLIC_MX" in call("matmul", *pair).out
    assert "NEURON_2_24, SYSTOLIC_MX" in call("matmul", *pair, "--source", "bfloat16").out
    assert (
        "OCP, SYSTOLIC_MX" in call("matmul", *pair, "--source", "bfloat16", "--policy", "OCP").out
    )


def test_another_order_is_never_silent(call, pair):
    done = call("matmul", *pair, "--format", "e3m2")
    assert "OCP, BLOCK" in done.out
    assert "so the order is BLOCK, not SYSTOLIC_MX" in done.out
    assert "not SYSTOLIC_MX" not in call("matmul", *pair, "--format", "e3m2",
                                         "--accumulate", "BLOCK").out  # fmt: skip


def test_help_states_the_defaults(call):
    words = " ".join(call("matmul", "--help").out.split())
    assert "[default: (NEURON_2_24 with --source, as the machine; else OCP" in words
    assert "[default: (SYSTOLIC_MX where bundles have the formats, as the machine; else" in words


def test_out_is_what_run_expects(call, pair, room):
    """Both kinds of file go straight into ``mxref run --expect``."""
    for out in ("y.npy", "y.npz"):
        assert call("matmul", *pair, "--out", out, "--save", "p.mxp").code == 0
        done = call("run", "p.mxp", "--expect", out)
        assert (done.code, "equal    out, 960 bits" in done.out) == (0, True)
    with np.load(room / "y.npz") as arrays:
        assert arrays.files == ["out"]
        assert_bits_equal(arrays["out"], np.load(room / "y.npy"))


def test_a_perfect_product_is_called_exact(call, saved):
    saved("one.npy", np.ones((1, 32), np.float32))
    saved("two.npy", np.full((32, 1), 2, np.float32))
    done = call("matmul", "one.npy", "two.npy")
    assert ["SQNR", "exact"] in [line.split() for line in done.out.splitlines()]


def test_places_are_refused_before_computing(refused, pair, monkeypatch):
    monkeypatch.setattr(mx, "quantize", None)
    assert "ends in .npy or .npz" in refused("matmul", *pair, "--out", "y.bin")
    assert "nowhere/y.npy: no such directory" in refused("matmul", *pair, "--out", "nowhere/y.npy")
    assert "nowhere/p.mxp: no such directory" in refused("matmul", *pair, "--save", "nowhere/p.mxp")


def test_two_formats(call, pair):
    done = call("matmul", *pair, "--format", "e4m3fn", "--rhs-format", "e2m1")
    assert done.code == 0, done
    assert "float8_e4m3fn @ float4_e2m1fn" in done.out
    assert "every bit equal" in done.out


@pytest.mark.parametrize("order", ["SEQUENTIAL", "BLOCK", "SYSTOLIC(1, 128)"])
def test_other_orders(call, pair, order):
    done = call("matmul", *pair, "--accumulate", order)
    assert done.code == 0, done
    assert order in done.out


@pytest.mark.parametrize("options", [("--format", "e3m2"), ("--accumulate", "BACKEND")])
def test_direct_only(call, refused, pair, options):
    done = call("matmul", *pair, *options, "--out", "y.npy")
    assert done.code == 0
    assert "through bytes  no: the" in done.out
    assert "--save: the" in refused("matmul", *pair, *options, "--save", "p.mxp")


def test_nan_is_data(call, saved, pair):
    saved("nan.npy", np.full((2, 70), np.nan, np.float32))
    done = call("matmul", "nan.npy", "w.npy")
    assert done.code == 0
    assert "12 elements, left out" in done.out
    assert "every bit equal" in done.out


def test_plot_without_the_extra_names_it(refused, pair, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    words = refused("matmul", *pair, "--plot", "err.png")
    assert words == (
        "mxref: --plot needs matplotlib: pip install matplotlib (or, in a checkout, "
        "pip install '.[plot]')\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_plot_writes_the_picture(call, pair, room, kind, magic):
    """Needs the extra ``plot``, which the slow tests' environment has."""
    done = call("matmul", *pair, "--plot", f"err.{kind}")
    assert done.code == 0, done
    assert (room / f"err.{kind}").read_bytes().startswith(magic)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("x.npy", "x.npy"), "x.npy has shape (5, 70) and x.npy (5, 70): the inner sizes 70 and 5"),
        (("x.npy", "nope.npy"), "nope.npy: no such file"),
        (("x.npy",), "Missing argument 'W.npy'"),
        (("i.npy", "w.npy"), "dtype int64"),
        (("o.npy", "w.npy"), "holds Python objects"),
        (("k0.npy", "k0t.npy"), "k0.npy: shape (5, 0) is empty"),
        (("v.npy", "w.npy"), "expected two axes"),
        (("x.npy", "w.npy", "--format", "float32"), "float32"),
        (("x.npy", "w.npy", "--format", "e8m0"), "e8m0"),
        (("x.npy", "w.npy", "--plot", "err.gif"), "ends in .png, .svg, .pdf"),
        (("x.npy", "w.npy", "--source", "float16", "--format", "e2m1"), "FP8"),
    ],
)
def test_bad_input(refused, pair, saved, args, words):
    saved("i.npy", np.ones((5, 70), np.int64))
    saved("o.npy", np.array([[None] * 70] * 5, object))
    saved("k0.npy", np.ones((5, 0), np.float32))
    saved("k0t.npy", np.ones((0, 6), np.float32))
    saved("v.npy", np.ones(70, np.float32))
    assert words in refused("matmul", *args, "--out", "y.npy")
