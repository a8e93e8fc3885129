"""Bundles that encode, decode and pass the check, and that the machine refuses by name."""

from __future__ import annotations

import dataclasses

import pytest

from encoding import (
    Addr4,
    Indirect16,
    LdWeightMx,
    MxIndirect,
    MxPattern,
    QuantizeMx,
    Tensor3D,
    check,
)
from hardware import WireDtype
from mxref.errors import Unmodelled
from mxref.machine import run

INDEX = Addr4(0x2000_0100)
LOAD = LdWeightMx(
    src=MxPattern(Addr4.sbuf(0, 0x100), Addr4.scale(0, 0x2000), 32),
    dtype=WireDtype.FP8_EXP4,
    num_active_rows=32,
    num_active_cols=8,
    row_group=1,
)
QUANTIZE = QuantizeMx(
    src=Tensor3D(Addr4.sbuf(0, 0x400), 1, 1, 1, 32, 1, 1),
    num_active_channels=32,
    src_dtype=WireDtype.BFLOAT16,
    dst_dtype=WireDtype.FP8_EXP4,
    dst=MxPattern(Addr4.sbuf(0, 0x800), Addr4.scale(0, 0xC00), 32),
)
GATHER = MxIndirect(INDEX, Addr4.sbuf(0, 0x100), Addr4.scale(0, 0x2000), 32)


@pytest.mark.parametrize(
    ("bundle", "field"),
    [
        (dataclasses.replace(LOAD, src=GATHER), "src"),
        (dataclasses.replace(QUANTIZE, dst=GATHER), "dst"),
        (dataclasses.replace(QUANTIZE, src=Indirect16(INDEX, Addr4.sbuf(0, 0x400), 32)), "src"),
    ],
)
def test_gathers_are_legal_and_not_executed(bundle, field) -> None:
    assert check(bundle) == []
    with pytest.raises(Unmodelled, match="gather") as caught:
        run([bundle])
    assert (caught.value.index, caught.value.field) == (0, field)
