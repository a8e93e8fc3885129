"""What one operation becomes: bundles in order, cache hits, passes, modes; literal bytes."""

from __future__ import annotations

import pytest

from encoding import (
    EncodeError,
    Indirect16,
    LdWeightMx,
    LegalityError,
    LoadStationary,
    LoadTagsSparse,
    Matmul,
    MatmultMx,
    MatmultMxOp,
    MatmultSparse,
    QuantizeMx,
    QuantizeMxOp,
    check,
    decode_all,
    encode_all,
)
from encoding.access import AccessPattern
from encoding.emit import QUEUE_LIMIT, CodeGenMode, Emitter
from encoding.errors import CapabilityError
from encoding.multiply import MatmultOp, MatmultSparseOp
from hardware import Arch, Dtype, Engine, Space, WireDtype
from hardware.pe import Fp32Mode, PerfMode

SUNDA, CAYMAN, MARIANA = Arch
BF16, FP16, FP32, FP32R = Dtype.BFLOAT16, Dtype.FLOAT16, Dtype.FLOAT32, Dtype.FLOAT32R
FP8_X4, INT16 = Dtype.FLOAT8_E4M3FN_X4, Dtype.INT16


def sbuf(offset, *free, dtype=BF16, partition=0, partitions=128, index=None):
    return AccessPattern(dtype, partition, ((1, partitions), *free), offset, index=index)


def psum(*free, partition=0, dtype=FP32, partitions=128):
    return AccessPattern(dtype, partition, ((1, partitions), *free), space=Space.PSUM)


def scales(offset, count):
    return sbuf(offset, (1, count), dtype=Dtype.FLOAT8_E8M0FNU)


def dense(weights=0x0, *, dtype=BF16, flags=3, columns=64, tile_columns=0, **more):
    return MatmultOp(
        stationary=sbuf(weights, (1, columns), dtype=dtype),
        moving=sbuf(0x1000, (1, 256), dtype=dtype),
        out=psum((1, 256)), accumulate_flags=flags, columns=tile_columns, **more,
    )  # fmt: skip


def small(row, column, offset=0):
    """A 32 x 32 tile at a row and a column."""
    return MatmultOp(
        stationary=sbuf(offset, (1, 32), partition=row, partitions=32),
        moving=sbuf(0x1000, (1, 64), partition=row, partitions=32),
        out=psum((1, 64), partition=column, partitions=32),
    )  # fmt: skip


def sparse(dtype=BF16, tags=None):
    return MatmultSparseOp(
        stationary=sbuf(0x0, (1, 64), dtype=dtype),
        moving=sbuf(0x1000, (64, 4), (32, 2), (16, 2), (1, 16), dtype=dtype),
        tags=tags or sbuf(0x2000, (1, 16), dtype=INT16),
        out=psum((1, 64)),
    )  # fmt: skip


def mx_pair(flags=3):
    return MatmultMxOp(
        stationary=sbuf(0, (1, 16), dtype=FP8_X4), moving=sbuf(0x1000, (1, 64), dtype=FP8_X4),
        stationary_scale=scales(0x800, 16), moving_scale=scales(0x1800, 64),
        out=psum((1, 64), partitions=16), accumulate_flags=flags,
    )  # fmt: skip


def quantize(**more):
    return QuantizeMxOp(
        source=sbuf(0, (1, 64)), out=sbuf(0x4000, (1, 16), dtype=FP8_X4),
        scale=scales(0x5000, 16), **more,
    )  # fmt: skip


def types(bundles):
    return [type(bundle) for bundle in bundles]


def test_an_mx_matmul_is_always_a_pair():
    emitter = Emitter()
    for _ in range(2):
        assert types(emitter.emit(mx_pair())) == [LdWeightMx, MatmultMx]
    assert check(decode_all(emitter.streams[Engine.PE]), level="verifier") == []
    (load, multiply, *_) = decode_all(emitter.streams[Engine.PE])
    assert (load.num_active_cols, multiply.num_active_cols, multiply.out_dtype) == (16, 16, 0x0A)


def test_quantize_goes_to_its_own_engine_and_synchronises():
    emitter = Emitter()
    sync = {"wait_mode": 5, "wait_semaphore": 3, "update_mode": 3, "semaphore_value": 7}
    (made,) = emitter.emit(quantize(saturate_bit=True), sync)
    assert isinstance(made, QuantizeMx)
    assert encode_all([made])[:12] == bytes.fromhex("e3110000 05030300 07000000")
    assert set(emitter.streams) == {Engine.DVE}


def test_of_several_bundles_the_first_waits_and_the_last_updates():
    sync = {"wait_mode": 5, "wait_semaphore": 3, "update_mode": 0x13, "update_semaphore": 9}
    load, multiply = Emitter().emit(mx_pair(), sync)
    assert (load.wait_mode, load.wait_semaphore, load.update_mode) == (5, 3, 0)
    assert (multiply.wait_mode, multiply.update_mode, multiply.update_semaphore) == (0, 0x13, 9)
    emitter = Emitter()
    emitter.emit(dense())
    (only,) = emitter.emit(dense(), sync)
    assert (only.wait_mode, only.update_mode) == (5, 0x13)
    with pytest.raises(EncodeError, match="update_semaphore"):
        emitter.emit(dense(), {"opcode": 1})


@pytest.mark.parametrize("arch", Arch)
def test_a_dense_matmul_is_a_load_and_a_multiplication(arch):
    emitter = Emitter(arch)
    assert types(emitter.emit(dense())) == [LoadStationary, Matmul]
    emitter.flush()
    level = "wire" if arch is SUNDA else "runtime"
    assert check(bytes(emitter.streams[Engine.PE]), arch, level) == []


def test_the_crossbar_by_column_group_satisfies_the_runtime():
    emitter = Emitter(SUNDA, level="runtime")
    bundles = emitter.emit_all([dense(xbus_by_group=True)])
    assert [b.xbus_sel for b in bundles] == [1, 1]
    assert [b.xbus_sel for b in Emitter(CAYMAN).emit(dense(xbus_by_group=True))] == [0x10, 0x10]
    with pytest.raises(CapabilityError, match="column group 0x8"):
        emitter.emit(
            MatmultOp(
                stationary=sbuf(0, (1, 32), partitions=32),
                moving=sbuf(0x1000, (1, 64), partitions=32),
                out=psum((1, 64), partition=96, partitions=32),
                accumulate_flags=3, xbus_by_group=True,
            )
        )  # fmt: skip


def test_resident_weights_are_not_loaded_again():
    emitter = Emitter(CAYMAN)
    assert types(emitter.emit(dense())) == [LoadStationary, Matmul]
    assert types(emitter.emit(dense(flags=2))) == [Matmul]
    assert types(emitter.emit(dense(0x400))) == [LoadStationary, Matmul]
    assert types(emitter.emit(dense())) == [LoadStationary, Matmul]
    emitter.invalidate()
    assert types(emitter.emit(dense())) == [LoadStationary, Matmul]
    assert types(Emitter(CAYMAN, cache=False).emit_all([dense(), dense()])) == [
        LoadStationary, Matmul, LoadStationary, Matmul,
    ]  # fmt: skip


def test_tiles_are_cached_side_by_side_until_one_overlaps():
    emitter = Emitter(CAYMAN)
    for tile in ((0, 0), (32, 0), (0, 32)):
        assert types(emitter.emit(small(*tile))) == [LoadStationary, Matmul]
    for tile in ((0, 0), (32, 0), (0, 32)):
        assert types(emitter.emit(small(*tile))) == [Matmul]
    assert types(emitter.emit(small(32, 0, offset=0x100))) == [LoadStationary, Matmul]
    assert types(emitter.emit(small(0, 0))) == [Matmul]
    emitter.emit(dense())
    for tile in ((0, 0), (32, 0), (0, 32)):
        assert types(emitter.emit(small(*tile))) == [LoadStationary, Matmul]


def test_an_mx_load_evicts_dense_weights():
    emitter = Emitter()
    emitter.emit(dense())
    emitter.emit(mx_pair())
    assert types(emitter.emit(dense())) == [LoadStationary, Matmul]


@pytest.mark.parametrize(
    ("flags", "first", "second"), [(3, 1, 2), (1, 1, 0), (2, 0, 2), (0, 0, 0), (4, 4, 4), (6, 4, 6)]
)
def test_float32_in_two_passes(flags, first, second):
    emitter = Emitter(CAYMAN)
    for _ in range(2):
        bundles = emitter.emit(dense(dtype=FP32, flags=flags, two_pass=True))
        assert types(bundles) == [LoadStationary, Matmul] * 2
        assert [b.fp32_mode for b in bundles] == [2, 3, 1, 3]
        assert [b.accumulate_flags for b in bundles[1::2]] == [first, second]
    emitter.flush()
    with pytest.raises(EncodeError, match="two_pass"):
        emitter.emit(dense(two_pass=True))


def test_float32_in_one_pass_and_fp32r():
    emitter = Emitter()
    load, multiply = emitter.emit(dense(dtype=FP32))
    assert types(emitter.emit(dense(dtype=FP32))) == [LoadStationary, Matmul]
    assert (load.dtype, load.fp32_mode, multiply.fp32_mode) == (WireDtype.FP32, 3, 3)
    for bundle in Emitter().emit(dense(dtype=FP32R)):
        assert encode_all([bundle])[0x20:0x22] == b"\x0a\x02"
    mixed = MatmultOp(
        stationary=sbuf(0, (1, 64), dtype=FP32R), moving=sbuf(0, (1, 64), dtype=FP32),
        out=psum((1, 64)),
    )  # fmt: skip
    with pytest.raises(EncodeError, match="FLOAT32R on both sides"):
        Emitter().emit(mixed)


def test_a_sparse_matmul_loads_tags_first():
    emitter = Emitter(CAYMAN)
    bundles = emitter.emit(sparse())
    assert types(bundles) == [LoadTagsSparse, LoadStationary, MatmultSparse]
    assert bundles[2].pass_bits == 0
    assert types(emitter.emit(sparse())) == [LoadTagsSparse, MatmultSparse]
    emitter.flush()
    assert check(decode_all(emitter.streams[Engine.PE], CAYMAN), CAYMAN, "verifier") == []


def test_a_sparse_float32_matmul_has_two_passes_after_one_load_of_tags():
    emitter = Emitter(CAYMAN)
    for _ in range(2):
        bundles = emitter.emit(sparse(FP32))
        assert types(bundles) == [LoadTagsSparse, *[LoadStationary, MatmultSparse] * 2]
        assert [b.fp32_mode for b in bundles[1:]] == [Fp32Mode.LOW, 3, Fp32Mode.HIGH, 3]
        assert [b.pass_bits for b in bundles[2::2]] == [1, 2]
    emitter.flush()


def test_tags_are_filled_by_hand():
    data = encode_all(Emitter(CAYMAN).emit(sparse())[:1])
    assert data[0x10:0x14] == (0x2000).to_bytes(4, "little")
    assert data[0x14:0x20] == bytes.fromhex("01 00 00 00 00 00 10 00 01 00 01 00")
    assert (data[0x20], data[0x21], data[0x26], data[0x27]) == (0x04, 0x00, 128, 64)
    two = sbuf(0x2000, (8, 4), (1, 4), dtype=INT16)
    with pytest.raises(EncodeError, match="one dimension"):
        Emitter(CAYMAN).emit(sparse(tags=two))


SUNDA_PAIR = (
    "01 10 00 00 00000000 00000000 00000000"
    "00040000 0100 0100 0100 4000 0100 0100"
    "06 00 00 00 00 00 80 40 00 00 00 00 0f 03 10 00"
    "00000000 00000000 00000000 00000000"
    "02 10 00 00 00000000 00000000 00000000"
    "00100000 0100 0100 0100 0001 0100 0100"
    "06 00 00 00 00 00 80 40 00 00 00 03 0f 03 10 00"
    "00000002 0100 0100 0100 0001 0100 0100"
)


def test_bytes_of_a_dense_pair_written_by_hand():
    emitter = Emitter(SUNDA)
    emitter.emit(dense(0x400))
    assert emitter.streams[Engine.PE] == bytes.fromhex(SUNDA_PAIR)
    later = Emitter(CAYMAN)
    later.emit(dense(0x400))
    want = bytearray.fromhex(SUNDA_PAIR)
    want[0x2E] = want[64 + 0x2E] = 0
    assert later.streams[Engine.PE] == want


def test_options_reach_their_bytes():
    load, multiply = Emitter(SUNDA).emit(dense(replication=9))
    assert (load.replication0, load.replication1, multiply.replication1) == (9, 9, 9)
    load, multiply = Emitter(MARIANA).emit(dense(background_transpose=True))
    assert (load.bg_xpose_mode, load.col_group, multiply.col_group) == (2, 15, 15)
    load, multiply = Emitter(MARIANA).emit(dense(all_columns=True, psum_zero_region=1))
    assert (load.bg_xpose_mode, load.col_group, multiply.psum_zero_region) == (0, 15, 1)
    load, multiply = Emitter(MARIANA).emit(dense(columns=32, tile_columns=64))
    assert (load.num_active_cols, load.col_group) == (32, 3)


def test_performance_modes_count_columns():
    for mode, load_columns, columns in (
        (PerfMode.NONE, 64, 64), (PerfMode.DOUBLE_ROW, 64, 64),
        (PerfMode.DOUBLE_COLUMN, 64, 64), (PerfMode.DOUBLE_PIXEL, 64, 32),
    ):  # fmt: skip
        load, multiply = Emitter(CAYMAN).emit(dense(perf_mode=mode))
        assert (load.num_active_cols, multiply.num_active_cols) == (load_columns, columns)
        assert load.perf_mode == multiply.perf_mode == mode


def test_a_bf16_destination_is_named_on_mariana_only():
    def into(dtype):
        return MatmultOp(
            stationary=sbuf(0, (1, 64)), moving=sbuf(0x1000, (1, 64)),
            out=psum((1, 64), dtype=dtype), accumulate_flags=3,
        )  # fmt: skip

    assert Emitter().emit(into(BF16))[1].out_dtype == WireDtype.BFLOAT16
    assert Emitter().emit(into(FP32))[1].out_dtype == WireDtype.INVALID
    with pytest.raises(CapabilityError, match="bfloat16 results"):
        Emitter(CAYMAN).emit(into(BF16))


def test_mode_0_counts_opcodes_and_writes_nothing():
    emitter = Emitter(MARIANA, 0)
    for operation in (dense(), dense(), mx_pair(), quantize(), sparse()):
        assert emitter.emit(operation) == []
    assert emitter.census == {0x01: 3, 0x02: 2, 0x09: 1, 0x0A: 1, 0xE3: 1, 0x06: 1, 0x07: 1}
    assert emitter.streams == {}


def test_mode_2_checks_the_same_bytes_and_writes_nothing():
    writing, checking = Emitter(MARIANA, 1), Emitter(MARIANA, 2)
    for operation in (dense(), dense(), dense(dtype=FP32, two_pass=True), mx_pair(), sparse()):
        assert encode_all(checking.emit(operation)) == encode_all(writing.emit(operation))
    assert checking.streams == {}
    assert checking.census == writing.census == {}
    with pytest.raises(LegalityError, match="accumulate_flags"):
        checking.emit(dense(flags=5))


def test_mode_1_writes_first_and_checks_when_flushed():
    emitter = Emitter()
    emitter.emit_all([mx_pair(), dense()])
    emitter.emit(dense(flags=7))
    with pytest.raises(LegalityError) as caught:
        emitter.flush()
    (violation,) = caught.value.violations
    assert (violation.index, violation.field) == (4, "accumulate_flags")
    assert len(emitter.streams[Engine.PE]) == 5 * 64
    emitter.flush()


def test_a_full_queue_is_checked_by_itself():
    emitter = Emitter(cache=False)
    illegal, fine = dense(flags=5), dense()
    emitter.emit(illegal)
    for _ in range(QUEUE_LIMIT // 2 - 2):
        emitter.emit(fine)
    with pytest.raises(LegalityError, match="bundle 1"):
        emitter.emit(fine)


@pytest.mark.parametrize("mode", [3, -1, 270])
def test_other_modes_are_refused(mode):
    with pytest.raises(EncodeError, match="GENERATE_ISACODE") as caught:
        Emitter(mode=mode)
    assert all(m.name in str(caught.value) for m in CodeGenMode)


def test_generations_lack_what_came_later():
    with pytest.raises(CapabilityError, match="mariana"):
        Emitter(CAYMAN).emit(mx_pair())
    with pytest.raises(CapabilityError, match="cayman"):
        Emitter(SUNDA).emit(sparse())
    with pytest.raises(CapabilityError, match="background transpose"):
        Emitter(CAYMAN).emit(dense(background_transpose=True))
    with pytest.raises(CapabilityError, match="replication0"):
        Emitter(CAYMAN).emit(dense(replication=1))
    for arch in (CAYMAN, MARIANA):
        with pytest.raises(CapabilityError, match="x4"):
            Emitter(arch).emit(dense(dtype=FP8_X4))


def test_a_refused_operation_leaves_no_trace():
    emitter = Emitter(CAYMAN)
    emitter.emit(dense())
    before = bytes(emitter.streams[Engine.PE])
    with pytest.raises(CapabilityError):
        emitter.emit(dense(0x800, background_transpose=True))
    assert emitter.streams[Engine.PE] == before
    assert types(emitter.emit(dense())) == [Matmul]


def test_streams_are_saved_without_framing(tmp_path):
    emitter = Emitter()
    emitter.emit_all([quantize(), mx_pair(), quantize()])
    paths = emitter.save(tmp_path / "out")
    assert {path.name: path.stat().st_size for path in paths} == {"PE.bin": 128, "DVE.bin": 128}
    assert (tmp_path / "out" / "PE.bin").read_bytes() == emitter.streams[Engine.PE]


def test_gathers_and_rules_of_the_verifier():
    index = sbuf(0x6000, (1, 64), dtype=Dtype.UINT32)
    gather = MatmultOp(
        stationary=sbuf(0, (1, 64)), moving=sbuf(0x1000, (1, 256), index=index),
        out=psum((1, 64)),
    )  # fmt: skip
    assert isinstance(Emitter(MARIANA, 2).emit(gather)[1].src, Indirect16)
    strict = Emitter(MARIANA, 2, level="verifier")
    strict.emit(mx_pair())
    far = MatmultMxOp(
        stationary=mx_pair().stationary, moving=mx_pair().moving, out=mx_pair().out,
        stationary_scale=scales(0x800, 16), moving_scale=scales(0x1800, 32),
    )  # fmt: skip
    with pytest.raises(LegalityError, match=r"V4\.228"):
        strict.emit(far)
    with pytest.raises(EncodeError, match="packed with 4 elements into 1"):
        Emitter().emit(
            QuantizeMxOp(
                source=sbuf(0, (1, 64)), out=sbuf(0x4000, (1, 16)), scale=scales(0x5000, 16)
            )
        )
