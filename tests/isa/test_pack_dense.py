"""Encoders that take access patterns: what each generation derives, writes and refuses."""

from __future__ import annotations

import dataclasses

import pytest

from encoding import (
    AccessPattern,
    Addr4,
    EncodeError,
    Indirect16,
    Indirect20,
    MxIndirect,
    MxPattern,
    Tensor1D,
    Tensor2D,
    Tensor3D,
    Tensor4D,
    check,
    encode,
)
from encoding.access import ScaleModulus, pack_3d, pack_4d, pack_dims, pack_mx, start_word
from encoding.pack_dense import SparsePass, load_stationary, load_tags, matmul, matmult_sparse
from hardware import AddressError, Arch, CapabilityError, Dtype, Space, WireDtype
from hardware.pe import FP32R_WORD, Fp32Mode, PerfMode

SUNDA, CAYMAN, MARIANA = Arch.SUNDA, Arch.CAYMAN, Arch.MARIANA
BF16, FP32, FP32R = Dtype.BFLOAT16, Dtype.FLOAT32, Dtype.FLOAT32R


def walk(dtype, partition, partitions, *free, **more):
    return AccessPattern(dtype, partition, ((1, partitions), *free), **more)


WEIGHTS = walk(BF16, 64, 48, (1, 60), offset=0x100)
MOVING = walk(BF16, 64, 48, (64, 8), (1, 32), offset=0x1000)
OUT = walk(FP32, 0, 60, (1, 256), space=Space.PSUM, offset=0x1800)


@pytest.mark.parametrize("arch", list(Arch))
def test_a_dense_pair(arch):
    load = load_stationary(WEIGHTS, arch)
    multiply = matmul(load, MOVING, OUT, arch, accumulate_flags=1)
    assert check([load, multiply], arch) == check([load, multiply], arch, level="verifier") == []
    common = "01100000 0000000000000000 00000000 00010001 010001000100 3c0001000100 06 00 0000"
    middle = "000030 3c 00000000 0c 03"
    last = {SUNDA: "10 00", CAYMAN: "00 00", MARIANA: "00 00"}[arch] + "00" * 16
    assert encode(load, arch) == bytes.fromhex(common + middle + last)
    data = encode(multiply, arch)
    assert data[0x10:0x20].hex() == "00100001010040000100200008000100"
    assert data[0x30:].hex() == "00180002010001000100000101000100"
    assert (data[0x26], data[0x27], data[0x2B], data[0x2C], data[0x2D]) == (48, 60, 1, 0xC, 3)


def test_the_fp32r_marker():
    weights, moving = (dataclasses.replace(ap, dtype=FP32R) for ap in (WEIGHTS, MOVING))
    for arch in Arch:
        load = load_stationary(weights, arch)
        multiply = matmul(load, moving, OUT, arch, accumulate_flags=3)
        for bundle in (load, multiply):
            assert encode(bundle, arch)[0x20:0x22] == FP32R_WORD.to_bytes(2, "little") == b"\n\x02"
        assert check([load, multiply], arch) == []
        with pytest.raises(EncodeError, match="stationary operand's type"):
            matmul(load_stationary(WEIGHTS, arch), moving, OUT, arch, accumulate_flags=3)


def test_float32_passes():
    weights = dataclasses.replace(WEIGHTS, dtype=FP32)
    assert load_stationary(weights, CAYMAN).fp32_mode == Fp32Mode.LOW_HIGH
    for mode in (Fp32Mode.LOW, Fp32Mode.HIGH):
        assert load_stationary(weights, CAYMAN, fp32_mode=mode).fp32_mode == mode
    assert load_stationary(WEIGHTS, CAYMAN).fp32_mode == Fp32Mode.NONE


def test_dtype_maps_of_the_generations():
    packed = dataclasses.replace(WEIGHTS, dtype=Dtype.FLOAT4_E2M1FN_X4)
    assert load_stationary(packed, SUNDA).dtype == WireDtype.UINT16
    for arch in (CAYMAN, MARIANA):
        with pytest.raises(CapabilityError):
            load_stationary(packed, arch)


def test_options_of_the_decisions():
    double = load_stationary(WEIGHTS, SUNDA, perf_mode=PerfMode.DOUBLE_ROW)
    assert (double.num_active_cols, double.perf_mode) == (30, 1)
    assert load_stationary(WEIGHTS, CAYMAN, perf_mode=PerfMode.DOUBLE_ROW).num_active_cols == 60
    pixel = matmul(
        load_stationary(WEIGHTS, CAYMAN), MOVING, OUT, CAYMAN, accumulate_flags=0,
        perf_mode=PerfMode.DOUBLE_PIXEL,
    )  # fmt: skip
    assert (pixel.num_active_cols, pixel.perf_mode) == (30, 3)
    full = load_stationary(WEIGHTS, CAYMAN, all_columns=True, rows=65, columns=128)
    assert (full.row_group, full.col_group) == (0xF, 0xF)
    assert load_stationary(WEIGHTS, CAYMAN, column=64).col_group == 0xC
    twice = load_stationary(WEIGHTS, SUNDA, replication=5)
    assert encode(twice, SUNDA)[0x24:0x26] == b"\x05\x05"
    with pytest.raises(CapabilityError, match="replication0"):
        encode(twice, CAYMAN)
    assert encode(load_stationary(WEIGHTS, MARIANA, background_transpose=True))[0x0C] == 2
    with pytest.raises(CapabilityError, match="background transpose"):
        load_stationary(WEIGHTS, CAYMAN, background_transpose=True)
    narrow = dataclasses.replace(OUT, dtype=BF16)
    load = load_stationary(WEIGHTS, MARIANA)
    assert encode(matmul(load, MOVING, narrow, MARIANA, accumulate_flags=0))[0x28] == 6
    with pytest.raises(CapabilityError, match="bfloat16 results"):
        matmul(load, MOVING, narrow, CAYMAN, accumulate_flags=0)
    with pytest.raises(CapabilityError, match="zero regions"):
        matmul(load, MOVING, OUT, CAYMAN, accumulate_flags=0, psum_zero_region=1)


def test_the_seeds_transpose_byte_is_refused_over_a_static_address():
    flagged = load_stationary(WEIGHTS, SUNDA, seed_transpose=True)
    assert encode(flagged, SUNDA)[0x13] == 0x81
    assert "wire.src.start" in [v.id for v in check(flagged, SUNDA)]


def test_a_reversed_walk_moves_the_start():
    back = load_stationary(WEIGHTS.reversed(), CAYMAN)
    assert (back.src.start, back.src.step0) == (Addr4.sbuf(64, 0x100 + 59 * 2), -1)
    assert encode(back, CAYMAN)[0x14:0x16] == b"\xff\xff"
    assert check(back, CAYMAN) == check(back, CAYMAN, level="verifier") == []
    assert WEIGHTS.reversed().reversed() == WEIGHTS


def test_a_sparse_program():
    tags = walk(Dtype.INT16, 0, 128, (1, 24), offset=0x40)
    weights = walk(BF16, 0, 128, (1, 96), offset=0x100)
    moving = walk(BF16, 0, 128, (512, 2), (128, 4), (64, 2), (1, 32), offset=0x1000)
    out = walk(FP32, 0, 96, (1, 512), space=Space.PSUM)
    program = [
        load_tags(tags), load_stationary(weights, CAYMAN, all_columns=True),
        matmult_sparse(weights, moving, out),
    ]  # fmt: skip
    for level in ("wire", "verifier", "runtime"):
        assert check(program, CAYMAN, level=level) == []
    data = encode(program[0], CAYMAN)
    # "LoadTags +0x14..+0x1F, n = NEPP" of the page.
    assert data[0x14:0x20].hex() == "010000000000" + "1800" + "01000100"
    assert (data[0x20], data[0x21], data[0x26], data[0x27], data[0x2D]) == (4, 0, 128, 96, 0xF)
    data = encode(program[2], CAYMAN)
    assert data[0x0C:0x20].hex() == "0010000001004000800000022000020004000200"
    for which, byte in ((SparsePass.SINGLE, 0), (SparsePass.LOW, 1), (SparsePass.HIGH, 2)):
        assert matmult_sparse(weights, moving, out, fp32_pass=which).pass_bits == byte
    assert matmult_sparse(weights, moving, out, flags=3).pass_bits == 3
    wide = matmult_sparse(weights, dataclasses.replace(moving, dtype=FP32), out)
    assert (wide.dtype, wide.fp32_mode) == (WireDtype.FP32, 3)


@pytest.mark.parametrize(
    ("partition", "rows", "group", "bits"),
    [(0, 32, 1, 0), (32, 32, 2, 4), (64, 32, 4, 8), (96, 32, 8, 12), (0, 64, 3, 0),
     (64, 64, 12, 8), (0, 128, 15, 0)],
)  # fmt: skip
def test_tags_of_every_tile(partition, rows, group, bits):
    tags = load_tags(walk(Dtype.UINT16, partition, rows, (1, 8)))
    assert (tags.row_group, tags.force_tag_bits, tags.dtype) == (group, bits, WireDtype.UINT16)
    assert check(tags, CAYMAN) == check(tags, CAYMAN, level="verifier") == []


def test_tags_of_other_kinds_are_refused():
    with pytest.raises(EncodeError, match="int16 or uint16"):
        load_tags(walk(BF16, 0, 128, (1, 24)))
    with pytest.raises(EncodeError, match="one dimension"):
        load_tags(walk(Dtype.INT16, 0, 128, (2, 2), (1, 24)))
    with pytest.raises(EncodeError, match="step 1 or -1"):
        load_tags(walk(Dtype.INT16, 0, 128, (2, 24)))
    back = load_tags(walk(Dtype.INT16, 0, 128, (1, 24), offset=0x40).reversed())
    assert (back.src.start, back.src.step0) == (Addr4.sbuf(0, 0x40 + 46), -1)


def test_every_rank_drops_unit_dimensions_and_fills_with_ones():
    start, dims = Addr4.sbuf(3, 8), ((9, 1), (-7, 4), (1, 5))
    assert pack_dims(Tensor2D, start, dims) == Tensor2D(start, 1, -7, 5, 4)
    assert pack_dims(Tensor3D, start, dims) == Tensor3D(start, 1, -7, 1, 5, 4, 1)
    assert pack_dims(Tensor4D, start, dims) == Tensor4D(start, 1, -7, 1, 1, 5, 4, 1, 1)
    assert pack_dims(Tensor1D, start, ((2, 6),)) == Tensor1D(start, 2, 6)
    assert pack_dims(Tensor1D, start, ()).count == 1
    with pytest.raises(EncodeError, match="at most 1 dimension "):
        pack_dims(Tensor1D, start, dims)
    assert Tensor4D(start, 1, -7, 1, 1, 5, 4, 1, 1).span() == (-21, 4)


def test_gathers():
    index = walk(Dtype.UINT32, 64, 48, (1, 12), offset=0x800)
    gather = dataclasses.replace(WEIGHTS, index=index)
    assert pack_3d(gather) == Indirect16(
        Addr4(0x2000_0000 | 64 << 18 | 0x800), Addr4.sbuf(64, 0x100), 12
    )
    assert pack_4d(gather) == Indirect20(
        Addr4(0x2000_0000 | 64 << 18 | 0x800), Addr4.sbuf(64, 0x100), 12
    )
    load = load_stationary(gather, CAYMAN)
    assert load.num_active_cols == 12
    assert check(load, CAYMAN) == check(load, CAYMAN, level="verifier") == []
    for dynamic in (
        dataclasses.replace(gather, register=3),
        dataclasses.replace(gather, index=dataclasses.replace(index, register=3)),
    ):
        with pytest.raises(EncodeError, match="offsets are static"):
            pack_3d(dynamic)


def test_mx_operands():
    data = walk(Dtype.FLOAT4_E2M1FN_X4, 32, 32, (1, 96), offset=0x102)
    scale = walk(Dtype.FLOAT8_E8M0FNU, 44, 4, (1, 96), offset=0x40)
    assert pack_mx(data, scale) == MxPattern(
        Addr4.sbuf(32, 0x102), Addr4.sbuf(32, 0x40), 384, 1, 12
    )
    assert pack_mx(data, scale, modulus=ScaleModulus.ARRAY).scale_partition == 44
    back = pack_mx(data.reversed(), scale)
    assert (back.data, back.step) == (Addr4.sbuf(32, 0x102 + 95 * 2), -1)
    index = walk(Dtype.UINT32, 32, 32, (1, 24), offset=0x800)
    gather, same = (dataclasses.replace(ap, index=index) for ap in (data, scale))
    assert pack_mx(gather, same) == MxIndirect(
        Addr4(0x2080_0800), Addr4.sbuf(32, 0x102), Addr4.sbuf(32, 0x40), 96, 12
    )
    with pytest.raises(EncodeError, match="index vector of the data"):
        pack_mx(gather, scale)
    with pytest.raises(EncodeError, match="packed with 4 elements into 1"):
        pack_mx(WEIGHTS, scale)
    with pytest.raises(EncodeError, match="scales live there only"):
        pack_mx(data, dataclasses.replace(scale, space=Space.PSUM))


def test_addresses():
    assert start_word(dataclasses.replace(WEIGHTS, register=9)) == Addr4.register(9)
    assert start_word(OUT) == Addr4.psum(0, 3, 0)
    with pytest.raises(AddressError):
        start_word(dataclasses.replace(OUT, offset=8 * 2048))
    with pytest.raises(AddressError):
        start_word(dataclasses.replace(WEIGHTS, register=64))


@pytest.mark.parametrize("dims", [(), ((-1, 4),), ((1, 4), (1, 0)), ((1, 4),) * 6])
def test_impossible_patterns(dims):
    with pytest.raises(EncodeError):
        AccessPattern(BF16, 0, dims)
