"""The compiler's packer: what it derives, and what it refuses."""

from __future__ import annotations

import pytest

from encoding import Addr4, EncodeError, MxPattern, Tensor3D, check
from encoding.pack import ld_weight_mx, matmult_mx, mx_operand, tensor_operand
from hardware import AddressError, WireDtype

START = Addr4.psum(0, 1)


def test_dimensions_are_stored_innermost_first_without_unit_ones():
    packed = tensor_operand(START, [(64, 16), (7, 1), (1, 32)])
    assert packed == Tensor3D(START, 1, 64, 1, 32, 16, 1)
    assert tensor_operand(START, []) == Tensor3D(START, 1, 1, 1, 1, 1, 1)
    assert tensor_operand(START, [(-9, 2), (3, 4), (-1, 5)]) == Tensor3D(START, -1, 3, -9, 5, 4, 2)
    assert (packed.count, packed.span()) == (512, (0, 31 + 15 * 64))
    assert tensor_operand(START, [(-9, 2), (3, 4)]).span() == (-9, 9)


def test_too_many_dimensions_and_large_numbers_are_refused():
    with pytest.raises(EncodeError, match="at most 3 dimensions"):
        tensor_operand(START, [(1, 2)] * 4)
    with pytest.raises(EncodeError, match=r"0\.\.65535"):
        tensor_operand(START, [(1, 65536)])
    with pytest.raises(EncodeError, match=r"-32768\.\.32767"):
        tensor_operand(START, [(32768, 2)])


def test_extents_count_elements_and_addresses_containers():
    for dtype, width in ((WireDtype.FP8_EXP4, 4), (WireDtype.FP4_EXP2, 2)):
        operand = mx_operand(
            partition=64, offset=6 * width, scale_partition=72, scale_offset=5, containers=96,
            dtype=dtype,
        )  # fmt: skip
        assert operand == MxPattern(
            Addr4.sbuf(64, 6 * width), Addr4.sbuf(64, 5), extent=384, step=1, scale_partition=8
        )
        assert operand.containers == 96


def test_only_packed_types_are_operands():
    place = {"partition": 0, "offset": 0, "scale_partition": 0, "scale_offset": 0}
    with pytest.raises(EncodeError, match="a type packed"):
        mx_operand(**place, containers=1, dtype=WireDtype.BFLOAT16)
    with pytest.raises(EncodeError, match=r"0\.\.65535"):
        mx_operand(**place, containers=16384, dtype=WireDtype.FP4_EXP2)
    with pytest.raises(AddressError):
        mx_operand(**{**place, "partition": 128}, containers=1, dtype=WireDtype.FP4_EXP2)


@pytest.mark.parametrize(("partition", "rows"), [(32, 32), (96, 32), (64, 64), (0, 128)])
def test_a_packed_pair_is_legal(partition, rows):
    fp4 = WireDtype.FP4_EXP2
    where = {"partition": partition, "scale_partition": partition + 12, "scale_offset": 0x800}
    load = ld_weight_mx(
        mx_operand(**where, offset=0x102, containers=96, dtype=fp4), fp4,
        partition=partition, rows=rows,
    )  # fmt: skip
    multiply = matmult_mx(
        load, mx_operand(**where, offset=0x402, containers=200, dtype=fp4), fp4,
        tensor_operand(START, [(1, 200)]), accumulate_flags=1,
    )  # fmt: skip
    assert (load.num_active_cols, multiply.num_active_cols) == (96, 96)
    assert check([load, multiply]) == check([load, multiply], level="verifier") == []
