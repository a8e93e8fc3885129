"""quantize, dequantize, formats: right results, and bad input in one line."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import mxref as mx
from mxref.testing import assert_bits_equal

RNG = np.random.default_rng(7)
X = RNG.standard_normal((4, 100), np.float32)


@pytest.mark.parametrize("name", list(mx.FORMATS))
def test_formats_shows_every_format(call, name):
    assert name in call("formats").out
    done = call("formats", name)
    assert done.code == 0
    assert f"{mx.format(name).max:.9g}" in done.out


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("name", ["e2m1", "e4m3fn", "e5m2", "e3m4"])
def test_formats_rounds_no_value(call, name, width, monkeypatch):
    """Every code's value stands there in full, in code order, on a narrow terminal too."""
    monkeypatch.setenv("COLUMNS", str(width))
    lines = call("formats", name).out.split("values by code")[1].splitlines()
    rows = [line.split() for line in lines if line.startswith("0x")]
    shown = [cell for row in rows for cell in row[1:]]
    spec = mx.format(name)
    values = np.asarray(mx.widen(np.arange(spec.magnitude_mask + 1, dtype=np.uint8), spec))
    assert len(shown) == len(values)
    for text, value in zip(shown, values, strict=True):
        assert text == str(value) or Fraction(text) == Fraction(float(value))
    assert all(len(line) <= width for line in lines)


def test_the_largest_value_has_every_digit(call):
    assert "338953138925153547590470800371487866880, about 3.38953139e+38" in (
        call("formats", "bf16").out
    )


def test_formats_refuses_ambiguous_names(refused):
    assert "e4m3fn (max 448, no Inf) or e4m3_ieee" in refused("formats", "e4m3")


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, ml_dtypes.bfloat16, ">f4"])
@pytest.mark.parametrize("options", [(), ("--axis", 0), ("--block", 16, "--policy", "nvidia")])
def test_quantize_then_dequantize(call, saved, room, dtype, options):
    x = X.astype(dtype)
    saved("x.npy", x)
    done = call("quantize", "x.npy", "--format", "e2m1", "--out", "q.npz", *options)
    assert done.code == 0, done
    assert call("dequantize", "q.npz", "--out", "y.npy").code == 0
    keys = dict(zip(options[::2], options[1::2], strict=True))
    q = mx.quantize(
        X.astype(dtype).astype(np.dtype(dtype).newbyteorder("=")),
        mx.E2M1FN,
        axis=keys.get("--axis", -1),
        block=keys.get("--block", 32),
        policy=mx.POLICIES[keys.get("--policy", "OCP").upper()],
    )
    with np.load(room / "q.npz") as arrays:
        assert_bits_equal(arrays["codes"], np.asarray(q.codes))
        assert_bits_equal(arrays["scales"], np.asarray(q.scales))
    assert_bits_equal(np.load(room / "y.npy"), np.asarray(q.dequantize()))


def test_one_array_of_several(call, room):
    np.savez(room / "two.npz", a=X, b=X[:2])
    assert "float32[2, 100]" in call("quantize", "two.npz:b").out


def test_nan_is_data(call, saved, room):
    saved("nan.npy", np.full((2, 64), np.nan, np.float32))
    assert call("quantize", "nan.npy", "--out", "q.npz").code == 0
    assert call("dequantize", "q.npz", "--out", "y.npy").code == 0
    assert np.isnan(np.load(room / "y.npy")).all()


def test_an_exact_result_has_no_ratio(call, saved):
    saved("x.npy", np.ones((1, 3), np.float32))
    rows = [line.split() for line in call("quantize", "x.npy").out.splitlines()]
    assert ["SQNR", "exact"] in rows


def test_places_are_refused_before_computing(refused, saved, monkeypatch):
    saved("x.npy", X)
    monkeypatch.setattr(mx, "quantize", None)
    assert "ends in .npz" in refused("quantize", "x.npy", "--out", "q.npy")
    assert "v.bin: expected a name that ends in .npy" in refused(
        "dequantize", "q.npz", "--out", "v.bin"
    )


@pytest.mark.parametrize("name", ["g.npy", "g.npz"])
@pytest.mark.parametrize("data", [b"", b"no numbers at all", b"PK\x03\x04 and no more"])
def test_garbage_has_one_wording(refused, room, name, data):
    (room / name).write_bytes(data)
    words = refused("quantize", name)
    assert words.startswith(f"mxref: {name}: cannot be read: damaged or no array file")
    assert "pickle" not in words


def test_dequantize_without_out_prints(call, saved):
    saved("x.npy", np.ones((1, 3), np.float32))
    call("quantize", "x.npy", "--out", "q.npz")
    assert call("dequantize", "q.npz").out == "[[1. 1. 1.]]\n"


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.arange(3), "dtype int64, expected float64, float32, float16, bfloat16; convert"),
        (np.array([True]), "dtype bool"),
        (np.zeros((0, 3), np.float32), r"shape (0, 3) is empty"),
        (np.float32(3), "a single number"),
        (np.array([1, None], object), "holds Python objects"),
        (np.zeros(3, np.complex64), "dtype complex64"),
        (np.array(["text"]), "dtype <U4"),
    ],
)
def test_quantize_refuses(refused, saved, array, words):
    saved("x.npy", array)
    assert words in refused("quantize", "x.npy", "--out", "q.npz")


def test_quantize_refuses_bad_words_and_places(refused, saved, room):
    saved("x.npy", X)
    (room / "folder.npz").mkdir()
    assert "no such file" in refused("quantize", "nope.npy")
    assert "axis: got 5" in refused("quantize", "x.npy", "--axis", 5, "--out", "q.npz")
    assert "unknown" in refused("quantize", "x.npy", "--format", "fp3")
    assert "--policy" in refused("quantize", "x.npy", "--policy", "mine")
    assert "--block" in refused("quantize", "x.npy", "--block", 0)
    assert "ends in .npz" in refused("quantize", "x.npy", "--out", "q.txt")
    assert "is a directory" in refused("quantize", "x.npy", "--out", "folder.npz")
    assert "nowhere/q.npz" in refused("quantize", "x.npy", "--out", "nowhere/q.npz")


@pytest.mark.parametrize("keep", [0, 5, 60, 300])
def test_truncated_arrays(refused, saved, room, keep):
    path = saved("x.npy", X)
    path.write_bytes(path.read_bytes()[:keep])
    assert "x.npy: " in refused("quantize", "x.npy", "--out", "q.npz")


def test_hostile_header_asks_for_no_memory(refused, room):
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 1048576), }"
    header = header.ljust(117) + b"\n"
    (room / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + b"\x76\x00" + header)
    assert "x.npy: " in refused("quantize", "x.npy")


def _description(**changes: object) -> dict[str, np.ndarray]:
    about = {"version": 1, "format": "float8_e4m3fn", "axis": -1, "block": 32, "policy": "OCP"}
    import json

    return {
        "codes": np.zeros((2, 32), np.uint8),
        "scales": np.zeros((2, 1), np.uint8),
        "about": np.asarray(json.dumps(about | changes)),
    }


@pytest.mark.parametrize(
    "members",
    [
        {"codes": np.zeros(3, np.uint8)},
        _description() | {"codes": np.zeros((2, 32), np.int32)},
        _description() | {"scales": np.zeros((2, 2), np.uint8)},
        _description() | {"about": np.asarray("{")},
        _description() | {"about": np.asarray("3")},
        _description(axis=7),
        _description(axis="x"),
        _description(block=0),
        _description(block=True),
        _description(version=2),
        _description(format="e4m3"),
        _description(policy="mine"),
        _description(format=None),
    ],
)
def test_dequantize_refuses(refused, room, members):
    np.savez(room / "q.npz", **members)
    refused("dequantize", "q.npz", "--out", "y.npy")


@pytest.mark.parametrize("keep", [0, 10, 200, 500])
def test_truncated_quantized_files(refused, room, keep):
    np.savez(room / "q.npz", **_description())
    (room / "q.npz").write_bytes((room / "q.npz").read_bytes()[:keep])
    assert "q.npz: cannot be read" in refused("dequantize", "q.npz", "--out", "y.npy")
