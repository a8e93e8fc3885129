"""``mxref dis --summary``."""

from __future__ import annotations

import mxref as mx

PAIR = (
    "LdWeightMx src={data=sbuf(0, 0x0) scale=sbuf(0, 0x400) extent=64} dtype=FP8_EXP4 "
    "num_active_rows=128 num_active_cols=16 row_group=15\n"
    "MatmultMx src={data=sbuf(0, 0x1000) scale=sbuf(0, 0x2000) extent=128} dtype=FP8_EXP4 "
    "num_active_rows=128 num_active_cols=16 out_dtype=FP32 accumulate_flags=3 row_group=15 "
    "dst={start=psum(0, 0, 0x0) step0=1 step1=0 step2=0 num0=32 num1=1 num2=1}\n"
)


def test_counts_and_values(call, room):
    load, matmul = mx.assemble(PAIR)[:64], mx.assemble(PAIR)[64:]
    (room / "PE.bin").write_bytes((load + 3 * matmul) * 500)
    done = call("dis", "PE.bin", "--summary")
    assert done.code == 0
    assert done.out.startswith("2,000 bundles, 128,000 bytes, mariana\n")
    lines = [line.split() for line in done.out.splitlines()]
    assert ["LdWeightMx", "PE", "500", "25.0%"] in lines
    assert ["MatmultMx", "PE", "1,500", "75.0%"] in lines
    assert ["dst.start", "PSUM"] in lines
    assert ["accumulate_flags", "3"] in lines
    assert "always at the default: wait_mode" in done.out


def test_bad_streams_are_refused(call, room):
    data = bytearray(mx.assemble(PAIR))
    data[64 + 0x2E] = 7
    (room / "bad.bin").write_bytes(data)
    done = call("dis", "bad.bin", "--summary")
    assert done.code == 2
    assert "bundle 1, MatmultMx.reserved_2e (byte 0x2e): got 7, allowed 0" in done.err
    assert call("dis", "bad.bin", "--summary", "--lenient").code == 0
    refused = call("dis", "bad.bin", "--summary", "--out", "x")
    assert refused.code == 2
    assert "--out" in refused.err
