"""Whatever the encoders are asked for, the bundles decode to themselves and pass the check."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from encoding import AccessPattern, MatmultMxOp, assemble, check, decode, disassemble, encode
from encoding.pack_dense import SparsePass, load_stationary, load_tags, matmul, matmult_sparse
from hardware import Arch, Dtype, Space
from hardware.pe import ACCUMULATE_VALUES, Fp32Mode, PerfMode

TILES = [(0, 32), (32, 32), (64, 32), (96, 32), (0, 64), (64, 64), (0, 128)]
NARROW = [Dtype.BFLOAT16, Dtype.FLOAT16, Dtype.FLOAT8E3, Dtype.FLOAT8E4, Dtype.FLOAT8E5]
WIDE = [Dtype.FLOAT32, Dtype.FLOAT32R]
PACKED = [Dtype.FLOAT4_E2M1FN_X4, Dtype.FLOAT8_E4M3FN_X4, Dtype.FLOAT8_E5M2_X4]


def walk(dtype, tile, count, *, offset, **more):
    return AccessPattern(dtype, tile[0], ((1, tile[1]), (1, count)), offset=offset, **more)


def indexed(access, draw):
    """Turn a pattern into a gather now and then."""
    if draw(st.integers(0, 3)):
        return access
    index = AccessPattern(Dtype.UINT32, access.partition, access.dims, offset=0x8000)
    return dataclasses.replace(access, index=index)


@st.composite
def dense_programs(draw):
    arch = draw(st.sampled_from(list(Arch)))
    tile, columns = draw(st.sampled_from(TILES)), draw(st.sampled_from(TILES))
    weights_type = draw(st.sampled_from(NARROW + WIDE))
    moving_type = weights_type if weights_type in WIDE else draw(st.sampled_from(NARROW))
    offset = 8 * draw(st.integers(0, 1000))
    weights = walk(weights_type, tile, draw(st.integers(1, columns[1])), offset=offset)
    if draw(st.booleans()):
        weights = weights.reversed()
    moving = walk(moving_type, tile, draw(st.integers(1, 512)), offset=offset + 0x4000)
    weights, moving = indexed(weights, draw), indexed(moving, draw)
    newest = arch is Arch.MARIANA
    out_type = draw(st.sampled_from([Dtype.FLOAT32, Dtype.BFLOAT16][: 1 + newest]))
    bank = draw(st.integers(0, 7))
    force = draw(st.booleans())
    start = 0 if force else columns[0]
    out = AccessPattern(
        out_type, start, ((1, columns[1]), (1, moving.count)), offset=2048 * bank,
        space=Space.PSUM,
    )  # fmt: skip
    mode = draw(st.sampled_from([Fp32Mode.LOW, Fp32Mode.HIGH, None]))
    mode = mode if weights_type is Dtype.FLOAT32 else None
    load = load_stationary(
        weights, arch, column=columns[0], rows=tile[1], columns=columns[1], all_columns=force,
        fp32_mode=mode, replication=draw(st.integers(0, 255)) if arch is Arch.SUNDA else 0,
        background_transpose=newest and draw(st.booleans()),
    )  # fmt: skip
    multiply = matmul(
        load, moving, out, arch, fp32_mode=mode,
        accumulate_flags=draw(st.sampled_from(sorted(ACCUMULATE_VALUES))),
        perf_mode=draw(st.sampled_from([PerfMode.NONE, PerfMode.DOUBLE_ROW])),
        psum_zero_region=draw(st.integers(0, 3)) if newest else 0,
    )  # fmt: skip
    return arch, [load, multiply]


@st.composite
def sparse_programs(draw):
    arch = draw(st.sampled_from([Arch.CAYMAN, Arch.MARIANA]))
    tile, count = draw(st.sampled_from(TILES)), draw(st.integers(1, 32))
    tags = walk(draw(st.sampled_from([Dtype.INT16, Dtype.UINT16])), tile, count, offset=0x40)
    if draw(st.booleans()):
        tags = tags.reversed()
    dtype = draw(st.sampled_from(NARROW + WIDE))
    weights = walk(dtype, tile, 4 * count, offset=0x200)
    fmaps, inner = draw(st.integers(2, 4)), draw(st.integers(1, 128))
    moving = AccessPattern(
        dtype, tile[0], ((1, tile[1]), (512, fmaps), (128, 4), (inner, 1), (1, inner)),
        offset=0x1000,
    )  # fmt: skip
    out = AccessPattern(
        Dtype.FLOAT32, 0, ((1, 4 * count), (1, 4 * inner)), space=Space.PSUM, offset=2048
    )
    return arch, [
        load_tags(tags),
        load_stationary(weights, arch, all_columns=True),
        matmult_sparse(
            weights, indexed(moving, draw), out, fp32_pass=draw(st.sampled_from(SparsePass))
        ),
    ]


@st.composite
def mx_programs(draw):
    tile = draw(st.sampled_from(TILES))
    scales = (tile[0] + 4 * draw(st.integers(0, 3)), 4)
    columns, moving = 2 * draw(st.integers(1, 64)), draw(st.integers(1, 512))
    kinds = [draw(st.sampled_from(PACKED)) for _ in range(2)]
    weights, data = (
        walk(kind, tile, n, offset=0x1000 * i) for i, (kind, n) in enumerate(zip(
            kinds, (columns, moving), strict=True), 1)
    )  # fmt: skip
    if draw(st.booleans()):
        weights = weights.reversed()
    return Arch.MARIANA, MatmultMxOp(
        moving=data,
        stationary=weights,
        moving_scale=walk(Dtype.FLOAT8_E8M0FNU, scales, moving, offset=0x8000),
        stationary_scale=walk(Dtype.UINT8, scales, columns, offset=0x9000),
        out=walk(Dtype.FLOAT32, (0, columns), moving, offset=0x800, space=Space.PSUM),
        accumulate_flags=draw(st.sampled_from(sorted(ACCUMULATE_VALUES))),
    )


def survives(arch, program):
    for bundle in program:
        data = encode(bundle, arch)
        assert decode(data, arch) == bundle
        text = disassemble(data, arch)
        assert assemble(text, arch) == data
    assert check(program, arch) == []


@given(dense_programs())
def test_dense_programs(drawn):
    survives(*drawn)


@given(sparse_programs())
def test_sparse_programs(drawn):
    survives(*drawn)


@given(mx_programs())
def test_mx_programs(drawn):
    arch, operation = drawn
    assert check(operation, arch, level="verifier") == []
    survives(arch, operation.bundles(arch))
    assert check(operation.bundles(arch), arch, level="verifier") == []
