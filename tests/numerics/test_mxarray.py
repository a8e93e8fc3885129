"""MXArray: a pytree whose views keep blocks whole."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from mxref.block import dequantize, quantize
from mxref.errors import FormatError, PolicyError, ShapeError
from mxref.formats import E4M3FN, FORMATS
from mxref.matmul import matmul
from mxref.mxarray import BlockShape, MXArray, element_format
from mxref.policy import NEURON_2_24
from mxref.testing import assert_bits_equal

X = np.random.default_rng(0).normal(size=(4, 6, 70)).astype(np.float32)
X = (X * 2.0 ** np.random.default_rng(1).integers(-8, 8, X.shape)).astype(np.float32)


def q(axis=-1, x=X, **options) -> MXArray:
    return quantize(x, "e4m3fn", axis=axis, **options)


def same(view: MXArray, values: np.ndarray) -> None:
    assert view.shape == values.shape
    assert_bits_equal(np.asarray(view.dequantize()), np.ascontiguousarray(values))


def test_attributes_and_unpacking():
    a = q(axis=1, block=4, policy=NEURON_2_24)
    codes, scales = a
    assert (a.shape, a.ndim, a.size, len(a)) == ((4, 6, 70), 3, 1680, 4)
    assert (codes.shape, scales.shape) == ((4, 6, 70), (4, 2, 70))
    assert (a.format, a.axis, a.block, a.policy) == (E4M3FN, -2, 4, NEURON_2_24)
    assert repr(a) == "MXArray(float8_e4m3fn[4, 6, 70], axis=-2, block=4, policy=NEURON_2_24)"


def test_construction_takes_names_numpy_and_positive_axes():
    a = MXArray(np.zeros((3, 64), np.uint8), np.zeros((3, 2), np.uint8), format="e4m3fn", axis=1)
    assert a.axis == -1
    assert isinstance(a.codes, jax.Array)


@pytest.mark.parametrize(
    ("codes", "scales", "options", "message"),
    [
        (np.zeros((3, 64), np.uint8), np.zeros((3, 3), np.uint8), {}, r"scales: .*\(3, 2\)"),
        (np.zeros((3, 64), np.float32), np.zeros((3, 2), np.uint8), {}, "codes: .*uint8"),
        (np.zeros((3, 64), np.uint8), np.zeros((3, 2), np.int32), {}, "scales: .*uint8"),
        ([[1, 2]], np.zeros((1, 1), np.uint8), {}, "codes: .*list"),
        (np.zeros((3, 64), np.uint8), np.zeros((3, 2), np.uint8), {"axis": 5}, "axis"),
        (np.zeros(64, np.uint8), np.zeros(2, np.uint8), {"block": BlockShape()}, "BlockShape"),
    ],
)
def test_construction_refuses(codes, scales, options, message):
    with pytest.raises(ShapeError, match=message):
        MXArray(codes, scales, format="e4m3fn", **options)


def test_element_formats_and_block_shapes_are_checked():
    with pytest.raises(FormatError):
        element_format("float16")
    with pytest.raises(PolicyError, match="block"):
        BlockShape(0, 4)


def test_it_is_a_pytree_that_survives_placeholders():
    a = q()
    leaves, tree = jax.tree.flatten(a)
    assert [leaf.shape for leaf in leaves] == [(4, 6, 70), (4, 6, 3)]
    assert jax.tree.unflatten(tree, [None, object()]).format == E4M3FN
    assert jax.tree.map(lambda leaf: leaf.shape, a).codes == (4, 6, 70)
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(a)[0]]
    assert paths == [".codes", ".scales"]
    assert jax.tree.structure(a) == jax.tree.structure(q())
    assert jax.tree.structure(a) != jax.tree.structure(q(policy=NEURON_2_24))
    abstract = jax.eval_shape(lambda v: quantize(v, "e4m3fn"), X)
    assert (abstract.codes.shape, abstract.axis) == ((4, 6, 70), -1)


def test_it_passes_through_jit_vmap_and_scan():
    a = q(axis=-2)
    assert_bits_equal(jax.jit(lambda m: m)(a), a)
    assert_bits_equal(jax.vmap(dequantize)(a), dequantize(a))
    _, ys = jax.lax.scan(lambda c, m: (c, m.dequantize()), 0, a)
    assert_bits_equal(ys, dequantize(a))
    mapped = jax.vmap(lambda v: quantize(v, "e4m3fn", axis=0), in_axes=1)(X)
    assert_bits_equal(mapped, q(axis=-2, x=np.ascontiguousarray(X.swapaxes(0, 1))))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("order", [(2, 1, 0), (-1, 0, 1)])
def test_transpose_moves_blocks_with_their_axis(axis, order):
    a = q(axis=axis, block=5)
    values = np.asarray(a.dequantize())
    same(a.transpose(*order), values.transpose(order))
    same(a.transpose(order), values.transpose(order))
    assert a.transpose(*order).axis % 3 == [o % 3 for o in order].index(axis)


def test_transpose_shorthands():
    a = q()
    values = np.asarray(a.dequantize())
    same(a.T, values.T)
    same(a.mT, values.swapaxes(-1, -2))
    same(a.swapaxes(0, -1), values.swapaxes(0, -1))
    assert_bits_equal(a.T.T, a)
    with pytest.raises(ShapeError):
        a.transpose(0, 1)
    with pytest.raises(ShapeError):
        a.swapaxes(0, 3)


def test_transpose_of_tiles_turns_the_tile():
    a = q(block=BlockShape(3, 8))
    turned = a.mT
    assert turned.block == BlockShape(8, 3)
    same(turned, np.asarray(a.dequantize()).swapaxes(-1, -2))
    same(a.transpose(0, 1, 2), np.asarray(a.dequantize()))
    with pytest.raises(ShapeError, match="BlockShape"):
        a.transpose()


@pytest.mark.parametrize(
    ("shape", "axis", "block", "new"),
    [
        ((4, 6, 70), -1, 32, (24, 70)),
        ((4, 6, 70), -1, 32, (2, 2, -1, 70)),
        ((4, 6, 70), -3, 3, (4, 420)),
        ((4, 6, 70), -2, 4, (2, 2, 6, 7, 10)),
        ((4, 64), -1, 32, (256,)),
        ((4, 64), -1, 32, (8, 32)),
        ((256,), -1, 32, (2, 2, 64)),
        ((5,), -1, 32, (1, 5, 1)),
        ((64, 6), -2, 32, (2, 32, 2, 3)),
    ],
)
def test_reshape_where_blocks_stay_whole(shape, axis, block, new):
    x = np.resize(X, shape)
    a = q(axis=axis, x=x, block=block)
    same(a.reshape(*new), np.asarray(a.dequantize()).reshape(new))
    same(a.reshape(new), np.asarray(a.dequantize()).reshape(new))


@pytest.mark.parametrize("new", [(4, 420), (1680,), (4, 6, 7, 10), (4, 6, 35, 2), (70, 24)])
def test_reshape_refuses_to_cut_blocks(new):
    with pytest.raises(ShapeError):
        q().reshape(new)


def test_reshape_checks_the_size_and_tiles():
    with pytest.raises(ShapeError, match="1680"):
        q().reshape(7)
    tiles = q(block=BlockShape())
    same(tiles.reshape(2, 2, 6, 70), np.asarray(tiles.dequantize()).reshape(2, 2, 6, 70))
    with pytest.raises(ShapeError, match="BlockShape"):
        tiles.reshape(24, 70)


@pytest.mark.parametrize(
    "index",
    [
        0,
        np.int64(-1),
        slice(1, 3),
        (slice(None), 2),
        (..., slice(32, None)),
        (1, slice(None, None, 2), slice(0, 64)),
        (slice(None), None, 3),
        (..., None),
        (slice(None), slice(None), slice(32, 70)),
        (..., slice(64, 64)),
        (),
    ],
)
def test_indexing_whole_blocks(index):
    a = q()
    same(a[index], np.asarray(a.dequantize())[index])


@pytest.mark.parametrize(
    "index",
    [
        (..., 3),
        (..., slice(1, 33)),
        (..., slice(8, 64)),
        (..., slice(8, None)),
        (..., slice(0, 40)),
        (..., slice(None, None, 2)),
        9,
        (0, 0, 0, 0),
        [0, 1],
        (..., ...),
        True,
        (np.array([1]),),
    ],
)
def test_indexing_refuses(index):
    with pytest.raises(ShapeError):
        q()[index]


def test_indexing_tiles():
    a = q(block=BlockShape(2, 8))
    same(a[1, 2:4, 8:], np.asarray(a.dequantize())[1, 2:4, 8:])
    with pytest.raises(ShapeError):
        a[:, 1:3]
    with pytest.raises(ShapeError, match="BlockShape"):
        a[..., None]


@pytest.mark.parametrize("fmt", [f for f in FORMATS.values() if f.bits <= 8 and f.signed], ids=str)
def test_views_as_ml_dtypes(fmt):
    a = quantize(X[0], fmt, axis=0, policy=NEURON_2_24)
    view = a.codes_as_ml_dtype()
    assert view.dtype == np.dtype(getattr(ml_dtypes, fmt.name))
    scales = np.asarray(a.scales).view(ml_dtypes.float8_e8m0fnu)
    back = MXArray.from_ml_dtypes(view, scales, axis=0, policy=NEURON_2_24)
    assert_bits_equal(back, a)
    assert back.axis == a.axis
    with pytest.raises(FormatError):
        MXArray.from_ml_dtypes(X[0], np.asarray(a.scales))


def test_a_derivative_with_respect_to_codes_is_refused():
    with pytest.raises(TypeError, match="uint8"):
        jax.grad(lambda m: m.dequantize().sum())(q())


def test_large_shapes_cost_no_data():
    out = jax.eval_shape(lambda v: quantize(v, "e2m1fn").T, jnp.zeros((2, 3)))
    assert out.axis == -2


@pytest.mark.parametrize("read", [np.asarray, jnp.asarray, jnp.array, np.array])
def test_reading_it_as_an_array_points_to_dequantize(read):
    with pytest.raises(TypeError, match=r"use \.dequantize\(\) for its values"):
        read(q())


def test_the_matmul_sign_is_matmul():
    a, b = q(x=X[0]), q(x=X[1].T, axis=0)
    want = matmul(a, b)
    assert_bits_equal(a @ b, want)
    plain = np.asarray(b.dequantize())
    assert_bits_equal(a @ plain, matmul(a, plain))
    for left in (np.asarray(a.dequantize()), a.dequantize()):
        assert_bits_equal(left @ b, matmul(left, b))


def test_a_block_shape_shows_no_axis():
    got = repr(q(x=X[0], block=BlockShape(2, 4)))
    assert (
        got == "MXArray(float8_e4m3fn[6, 70], block=BlockShape(partitions=2, free=4), policy=OCP)"
    )
