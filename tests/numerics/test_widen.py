"""Widen against the rational oracle: every code of up to 16 bits."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from mxref import oracle
from mxref.errors import FormatError, ShapeError
from mxref.formats import E8M0, FORMATS, FP32
from mxref.narrow import narrow
from mxref.testing import assert_bits_equal
from mxref.widen import widen

SMALL = [f for f in FORMATS.values() if f != FP32]


def all_codes(fmt) -> np.ndarray:
    return np.arange(1 << fmt.bits, dtype=f"u{fmt.storage_bits // 8}")


@pytest.mark.parametrize("fmt", SMALL, ids=str)
def test_widen_equals_oracle(fmt):
    codes = all_codes(fmt)
    want = [oracle.float32_bits(oracle.decode(int(c), fmt)) for c in codes]
    eager = widen(codes, fmt)
    assert_bits_equal(np.asarray(eager).view(np.uint32), np.array(want, np.uint32))
    assert_bits_equal(jax.jit(lambda c: widen(c, fmt))(jnp.asarray(codes)), eager, "payload")
    assert_bits_equal(jax.vmap(lambda c: widen(c, fmt))(jnp.asarray(codes)), eager, "payload")


@pytest.mark.parametrize("fmt", [f for f in SMALL if f != E8M0], ids=str)
def test_narrow_undoes_widen(fmt):
    codes = all_codes(fmt)
    special = [c in fmt.nan_codes for c in codes.tolist()]
    back = np.asarray(narrow(widen(codes, fmt), fmt, saturate=False))
    assert_bits_equal(back[~np.array(special)], codes[~np.array(special)])
    assert set(back[special].tolist()) <= {fmt.nan_code}


def test_float32_codes_are_patterns():
    bits = np.array([0, 1, 0x807FFFFF, 0xFF800000, 0xFF800001], np.uint32)
    got = np.asarray(widen(bits, "float32")).view(np.uint32)
    assert got.tolist() == [0, 1, 0x807FFFFF, 0xFF800000, 0x7FC00000]


def test_arrays_in_the_dtype_itself():
    values = np.array([0.5, -6.0, 3.0], ml_dtypes.float4_e2m1fn)
    assert widen(values, "e2m1fn").tolist() == [0.5, -6.0, 3.0]
    assert widen(jnp.asarray(values), jnp.float4_e2m1fn).tolist() == [0.5, -6.0, 3.0]


def test_refusals():
    with pytest.raises(ShapeError, match="float32"):
        widen(jnp.zeros(3, jnp.float32), "e4m3fn")
    with pytest.raises(FormatError):
        widen(jnp.zeros(3, jnp.uint8), "e9m9")


@pytest.mark.parametrize(
    ("codes", "shown"),
    [(0x1F, "codes is 0x1f"), ([1, 16], r"codes\[1\] is 0x10"), (-1, "codes is -1"),
     (np.array([3, 255], np.uint8), r"codes\[1\] is 0xff"),
     (jnp.array([99], jnp.uint8), r"codes\[0\] is 0x63")],
)  # fmt: skip
def test_codes_wider_than_their_format_are_refused(codes, shown):
    with pytest.raises(FormatError, match=shown + ", beyond the 4 bits 0..0xf"):
        widen(codes, "e2m1fn")


def test_ragged_lists_are_refused():
    with pytest.raises(ShapeError, match="codes: got a ragged list"):
        widen([[1, 2], [3]], "e2m1fn")
