"""HiF4 bytes against images written out by hand."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mxref import hif4
from mxref.errors import PolicyError, ShapeError
from mxref.testing import assert_bits_equal

WORDS = 0x8421_5AC3, 0x0001_01C0, 0xFFFF_FFFE


def sample(rows: int, n: int, seed: int = 0) -> hif4.HiF4Array:
    rng = np.random.default_rng(seed)
    groups = -(-n // 64)
    return hif4.HiF4Array(
        rng.integers(0, 16, (rows, n), dtype=np.uint8),
        rng.integers(0, 1 << 32, (rows, groups), dtype=np.uint32),
    )


def assert_same(a: hif4.HiF4Array, b: hif4.HiF4Array) -> None:
    assert a.axis == b.axis
    assert_bits_equal(a.codes, b.codes)
    assert_bits_equal(a.metadata, b.metadata)


def test_lanes_put_the_even_element_in_the_low_nibble():
    x = np.zeros(64, np.float32)
    x[:10] = 7, 0.5, 2.5, -1.5, 0.25, 0.375, 0, 0, -0.125, 0.625
    lanes, metadata = hif4.pack(hif4.quantize(x))
    assert bytes(np.asarray(lanes)).hex() == "17a3110039" + 27 * "00"
    assert bytes(np.asarray(metadata)).hex() == "c0010100"


def test_metadata_words_are_little_endian():
    q = hif4.HiF4Array(np.zeros((1, 192), np.uint8), np.array([WORDS], np.uint32))
    _, metadata = hif4.pack(q)
    assert bytes(np.asarray(metadata)).hex() == "c35a2184c0010100feffffff"


def test_msb_first_reverses_the_bits_of_each_doubling_byte():
    q = hif4.HiF4Array(np.zeros((1, 192), np.uint8), np.array([WORDS], np.uint32))
    _, metadata = hif4.pack(q, layout="msb_first")
    # 0x5A is its own mirror image, 0x21 <-> 0x84; subgroup 0 of 0x0001_01C0 moves to the top bits.
    assert bytes(np.asarray(metadata)).hex() == "c35a8421c0808000feffffff"


def test_cube_m32_has_one_group_of_32_rows_in_a_cell():
    q = sample(40, 128)
    _, metadata = hif4.pack(q, layout=hif4.Layout.CUBE_M32)
    assert metadata.shape == (2, 2, 128)
    image = np.asarray(metadata).reshape(-1).view("<u4")
    words = np.asarray(q.metadata)
    # Element index = cell * 32 + row % 32; cells run over the groups, then over row blocks.
    assert image[0] == words[0, 0]
    assert image[31] == words[31, 0]
    assert image[32] == words[0, 1]
    assert image[64] == words[32, 0]
    assert image[96 + 7] == words[39, 1]
    assert not image[64 + 8 : 96].any()


def test_a6_patch_splits_each_word_into_two_halves_of_the_patch():
    q = sample(17, 128)
    _, metadata = hif4.pack(q, layout=hif4.Layout.A6_PATCH)
    assert metadata.shape == (2, 2, 64)
    words = np.asarray(q.metadata)
    for row, group in ((0, 0), (5, 1), (15, 0), (16, 1)):
        patch = bytes(np.asarray(metadata[row // 16, group]))
        at = 2 * (row % 16)
        word = int(words[row, group]).to_bytes(4, "little")
        assert patch[at : at + 2] == word[:2]
        assert patch[32 + at : 34 + at] == word[2:]
    assert not np.asarray(metadata[1])[:, 2:32].any()


@pytest.mark.parametrize("layout", hif4.Layout)
@pytest.mark.parametrize(
    ("rows", "n", "columns"), [(1, 1, False), (33, 65, True), (32, 128, False)]
)
def test_unpack_inverts_pack(rows, n, layout, columns):
    q = sample(rows, n, seed=rows * 1000 + n)
    q = q.mT if columns else q
    lanes, metadata = hif4.pack(q, layout=layout)
    assert lanes.shape[q.axis] == -(-n // 2)
    assert_same(hif4.unpack(lanes, metadata, size=n, axis=q.axis, layout=layout), q)


def test_more_axes_and_jit():
    q = hif4.quantize(np.random.default_rng(1).standard_normal((3, 130, 5), np.float32), axis=1)
    for layout in ("word", "msb_first"):
        packed = jax.jit(lambda a, layout=layout: hif4.pack(a, layout=layout))(q)
        assert packed.lanes.shape == (3, 65, 5)
        assert packed.metadata.shape == (3, 5, 3, 4)
        assert_same(hif4.unpack(*packed, axis=1, layout=layout), q)


def test_refusals():
    q = sample(3, 65)
    lanes, metadata = hif4.pack(q)
    with pytest.raises(PolicyError, match="layout"):
        hif4.pack(q, layout="zz")
    with pytest.raises(ShapeError, match="2 axes"):
        hif4.pack(hif4.quantize(np.ones(64, np.float32)), layout="a6_patch")
    with pytest.raises(ShapeError, match="size"):
        hif4.unpack(lanes, metadata, size=64)
    with pytest.raises(ShapeError, match="metadata"):
        hif4.unpack(lanes, metadata[:, :1])
    with pytest.raises(ShapeError, match="lanes"):
        hif4.unpack(lanes.astype(jnp.int32), metadata)
    with pytest.raises(ShapeError, match="axis"):
        hif4.unpack(lanes, metadata, axis=2)
