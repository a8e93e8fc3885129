"""The raw-byte executor: what it refuses, what it keeps, and the rules of PSUM one by one."""

from __future__ import annotations

import struct

import pytest

from mxref.errors import (
    AddressError,
    ExecutionError,
    PolicyError,
    UninitialisedError,
    Unmodelled,
)
from mxref.oracle import Memory
from mxref.oracle.executor import execute
from mxref.policy import BLOCK, C_FIRST, OCP, SEQUENTIAL, SYSTOLIC_MX

ONE, TWO, THREE = 0x38, 0x40, 0x44
QUADRANT = {0x1: 0, 0x2: 32, 0x4: 64, 0x8: 96, 0x3: 0, 0xC: 64, 0xF: 0}
SIZE = {0x1: 32, 0x2: 32, 0x4: 32, 0x8: 32, 0x3: 64, 0xC: 64, 0xF: 128}


def le(value: int, size: int) -> bytes:
    return (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def pattern(partition: int, data: int, scale: int, columns: int, step=1, offset=0) -> bytes:
    base = partition << 18
    return (
        le(base + data, 4)
        + le(base + scale, 4)
        + le(4 * columns, 2)
        + bytes([step, offset])
        + bytes(4)
    )


def tensor(address: int, strides=(1, 1, 1), counts=(1, 1, 1)) -> bytes:
    return le(address, 4) + b"".join(le(s, 2) for s in strides) + b"".join(le(n, 2) for n in counts)


def load(group=0x1, data=0, scale=0x400, columns=1, tag=0x0E, step=0x01, offset=0) -> bytes:
    slot = pattern(QUADRANT[group], data, scale, columns, step, offset)
    control = bytes([tag, 0, 0, 0, 0, 0, SIZE[group], columns, 0, 0, 0, 0, group, 0x0F, 0, 0])
    return b"\x09\x10" + bytes(14) + slot + control + bytes(16)


def multiply(
    group=0x1,
    data=0x800,
    scale=0xC00,
    columns=1,
    rows_out=1,
    tag=0x0E,
    out=0x0A,
    flags=1,
    region=0,
    target=0x2000000,
    strides=(1, 1, 1),
    counts=None,
    step=0x01,
    offset=0,
) -> bytes:
    slot = pattern(QUADRANT[group], data, scale, columns, step, offset)
    control = bytes(
        [tag, 0, 0, 0, 0, 0, SIZE[group], rows_out, out, 0, 0, flags, group, 0x0F, 0, region]
    )
    counts = counts or (columns, 1, 1)
    return b"\x0a\x10" + bytes(14) + slot + control + tensor(target, strides, counts)


def quantize(source=0x1000, data=0, scale=0x400, columns=1, **kw) -> bytes:
    partition, target = kw.get("partition", 0), kw.get("target", 0)
    head = b"\xe3" + bytes([kw.get("length", 0x10)]) + bytes(14)
    count = kw.get("counts", (4 * columns, 1, 1))
    src = tensor((partition << 18) + source, kw.get("strides", (1, 1, 1)), count)
    control = bytes([0, kw.get("channels", 32), kw.get("tag", 0x06), kw.get("out", 0x0E)]) + bytes(
        12
    )
    return head + src + control + pattern(target, data, scale, columns, kw.get("step", 1))


def operand(memory: Memory, at: int, scale_at: int, columns: list[int], base=0, rows=32, offset=0):
    """Column j holds ``columns[j]`` in lane 0 of the first row; scales are 1."""
    for p in range(rows):
        row = b"".join(bytes([c if p == 0 else 0, 0, 0, 0]) for c in columns)
        memory.write("SBUF", base + p, at, row)
    for i in range(rows // 8):
        where = base + offset + 32 * (i >> 2) + (i & 3)
        memory.write("SBUF", where, scale_at, bytes([0x7F] * len(columns)))


def pair(stationary=(ONE,), moving=(ONE,), **kw) -> Memory:
    memory = Memory()
    operand(memory, 0, 0x400, list(stationary), **kw)
    operand(memory, 0x800, 0xC00, list(moving), **kw)
    return memory


def floats(memory: Memory, partition: int, offset: int, count: int) -> list[float]:
    return list(struct.unpack(f"<{count}f", memory.read("PSUM", partition, offset, 4 * count)))


def psum_float(memory: Memory, offset: int, *values: float) -> None:
    memory.write("PSUM", 0, offset, struct.pack(f"<{len(values)}f", *values))


def patched(bundle: bytes, at: int, value: int) -> bytes:
    raw = bytearray(bundle)
    raw[at] = value
    return bytes(raw)


def test_one_product():
    memory = execute(load() + multiply(), pair((TWO,), (THREE,)))
    assert floats(memory, 0, 0, 1) == [6.0]
    assert not memory.written("PSUM", 0, 4, 1)
    assert not memory.written("PSUM", 1, 0, 1)


def test_the_memory_given_is_left_alone():
    before = pair()
    execute(load() + multiply(), before)
    assert not before.written("PSUM", 0, 0, 1)


@pytest.mark.parametrize("flags", [0, 2, 4, 6])
def test_without_start_every_write_adds(flags):
    memory = pair((TWO,), (THREE,))
    psum_float(memory, 0, 10.0)
    assert floats(execute(load() + multiply(flags=flags), memory), 0, 0, 1) == [16.0]


@pytest.mark.parametrize("flags", [1, 3])
def test_start_clears_what_will_be_written_and_nothing_else(flags):
    memory = pair((TWO,), (THREE,))
    psum_float(memory, 0, 10.0, 11.0)
    after = execute(load() + multiply(flags=flags), memory)
    assert floats(after, 0, 0, 2) == [6.0, 11.0]
    after = execute(load() + multiply(flags=flags), memory, zero="bank")
    assert floats(after, 0, 0, 512) == [6.0] + [0.0] * 511
    assert not after.written("PSUM", 0, 2048, 1)


@pytest.mark.parametrize(("region", "first", "last"), [(1, 2, 3), (2, 0, 3), (3, 0, 7)])
def test_start_clears_the_aligned_window_of_banks(region, first, last):
    bank = 3
    target = 0x2000000 + bank * 2048 + 8
    after = execute(load() + multiply(region=region, target=target), pair((TWO,), (THREE,)))
    for at in range(8):
        assert after.written("PSUM", 0, at * 2048, 2048) == (first <= at <= last)
        assert not after.written("PSUM", 1, at * 2048, 1)
    assert floats(after, 0, bank * 2048 + 8, 1) == [6.0]


def test_start_also_clears_what_lies_outside_the_window():
    # Four elements 512 words apart: banks 0..3, with a window of two banks.
    program = load() + multiply(columns=4, region=1, strides=(512, 1, 1), counts=(4, 1, 1))
    memory = pair((ONE,), (ONE, TWO, THREE, ONE))
    psum_float(memory, 2 * 2048, 100.0, 100.0)
    after = execute(program, memory)
    assert [floats(after, 0, 2048 * b, 1)[0] for b in range(4)] == [1.0, 2.0, 3.0, 1.0]
    assert floats(after, 0, 2 * 2048 + 4, 1) == [100.0]


def test_elements_that_share_a_word_add_in_order():
    big = 0x7E  # 448
    memory = pair((ONE,), (big, ONE, TWO, THREE))
    program = load() + multiply(columns=4, strides=(0, 1, 1), counts=(4, 1, 1))
    assert floats(execute(program, memory), 0, 0, 1) == [454.0]
    # In bfloat16 each write rounds: 448, 449 -> 448, 450, 453 -> 452.
    program = load() + multiply(columns=4, strides=(0, 1, 1), counts=(4, 1, 1), out=0x06)
    memory = execute(program, memory)
    assert memory.read("PSUM", 0, 0, 2) == bytes.fromhex("E2 43")


def test_destination_walks_three_dimensions_innermost_first():
    memory = pair((ONE,), (ONE, TWO, THREE, 0x48, 0x4A, 0x4C, 0x4E, 0x50))
    program = load() + multiply(columns=8, strides=(1, -4, 16), counts=(2, 2, 2), target=0x2000040)
    after = execute(program, memory)
    words = {0: 1.0, 1: 2.0, -4: 3.0, -3: 4.0, 16: 5.0, 17: 6.0, 12: 7.0, 13: 8.0}
    for word, value in words.items():
        assert floats(after, 0, 0x40 + 4 * word, 1) == [value]


@pytest.mark.parametrize("group", [0x1, 0x2, 0x4, 0x8, 0x3, 0xC, 0xF])
def test_every_row_group_reads_its_own_partitions(group):
    base, rows = QUADRANT[group], SIZE[group]
    memory = pair((TWO, ONE), (THREE,), base=base, rows=rows)
    after = execute(load(group, columns=2) + multiply(group, rows_out=2), memory)
    assert [floats(after, m, 0, 1)[0] for m in (0, 1)] == [6.0, 3.0]


def test_tiles_of_one_quadrant_can_be_interleaved():
    memory = pair((TWO,), (ONE,), base=0)
    operand(memory, 0, 0x400, [THREE], base=32)
    operand(memory, 0x800, 0xC00, [ONE], base=32)
    program = load(0x1) + load(0x2) + multiply(0x1) + multiply(0x2, flags=2, target=0x2000000)
    assert floats(execute(program, memory), 0, 0, 1) == [5.0]
    # Four 32-row loads serve one 64-row multiply.
    memory = pair((TWO,), (ONE,), base=0, rows=64)
    program = load(0x1) + load(0x2) + multiply(0x3)
    assert floats(execute(program, memory), 0, 0, 1) == [2.0]


def test_a_load_keeps_what_it_read():
    memory = pair((TWO,), (THREE,))
    overwrite = quantize(data=0, scale=0x400)
    for p in range(32):
        memory.write("SBUF", p, 0x1000, bytes(8))
    assert floats(execute(load() + overwrite + multiply(), memory), 0, 0, 1) == [6.0]
    assert floats(execute(overwrite + load() + multiply(), memory), 0, 0, 1) == [0.0]


def test_a_reversed_walk_goes_down_in_data_and_scales():
    memory = pair((ONE, TWO, THREE), (ONE,))
    for i in range(4):
        memory.write("SBUF", i, 0x400, bytes([0x7F, 0x80, 0x81]))
    forward = execute(load(columns=3) + multiply(rows_out=3), memory)
    assert [floats(forward, m, 0, 1)[0] for m in range(3)] == [1.0, 4.0, 12.0]
    reverse = load(columns=3, data=8, scale=0x402, step=0xFF)
    backward = execute(reverse + multiply(rows_out=3), memory)
    assert [floats(backward, m, 0, 1)[0] for m in range(3)] == [12.0, 4.0, 1.0]


def test_fewer_output_rows_than_loaded_columns():
    memory = pair((ONE, TWO), (ONE,))
    after = execute(load(columns=2) + multiply(rows_out=1), memory)
    assert floats(after, 0, 0, 1) == [1.0]
    assert not after.written("PSUM", 1, 0, 1)
    with pytest.raises(ExecutionError, match="num_active_cols"):
        execute(load(columns=1) + multiply(rows_out=2), memory)


def test_orders_start_from_the_psum_word():
    big = 2.0**24
    for order, want in (
        (SYSTOLIC_MX, big + 2),
        (SEQUENTIAL, big),
        (C_FIRST, big),
        (BLOCK, big + 2),
    ):
        memory = Memory()
        for at, scale_at in ((0, 0x400), (0x800, 0xC00)):
            operand(memory, at, scale_at, [ONE])
            memory.write("SBUF", 1, at, bytes([ONE]))  # a second product of 1 in the same block
        psum_float(memory, 0, big)
        after = execute(load() + multiply(flags=4), memory, OCP, order)
        assert floats(after, 0, 0, 1) == [want], order


@pytest.mark.parametrize(
    ("partition", "offset"), [(3, 0), (3, 3), (1, 0x400)], ids=["lane 0", "lane 3", "scale"]
)
def test_one_unwritten_byte_poisons_its_row_of_the_output(partition, offset):
    memory = pair((ONE, ONE), (ONE,))
    del memory._bytes["SBUF", partition][offset]
    program = load(columns=2) + multiply(rows_out=2)
    after = execute(program, memory)
    assert after.read("PSUM", 0, 0, 4) == bytes.fromhex("0000C07F")
    assert floats(after, 1, 0, 1) == [1.0]
    assert floats(execute(program, memory, uninitialised="zero"), 1, 0, 1) == [1.0]
    with pytest.raises(UninitialisedError) as caught:
        execute(program, memory, uninitialised="raise")
    assert (caught.value.index, caught.value.address) == (0, (partition << 18) + offset)


def test_an_unwritten_psum_word_is_nan_zero_or_an_error():
    program = load() + multiply(flags=0)
    assert execute(program, pair()).read("PSUM", 0, 0, 4) == bytes.fromhex("0000C07F")
    assert floats(execute(program, pair(), uninitialised="zero"), 0, 0, 1) == [1.0]
    with pytest.raises(UninitialisedError):
        execute(program, pair(), uninitialised="raise")
    memory = pair()
    memory.write("PSUM", 0, 0, bytes(3))  # one byte short of a word
    assert execute(program, memory).read("PSUM", 0, 0, 4) == bytes.fromhex("0000C07F")


def bf16(*values: float) -> bytes:
    return b"".join(struct.pack("<f", v)[2:] for v in values)


def test_quantize_walks_its_source_and_scatters_scales():
    memory = Memory()
    for p in range(64):
        # Columns of a 4 x 2 matrix, read transposed; partition p is scaled by 2^(p // 8).
        memory.write("SBUF", p, 0x1000, bf16(*(float(2 ** (p // 8) * v) for v in range(8))))
    program = quantize(
        columns=2,
        channels=64,
        strides=(2, 1, 1),
        counts=(4, 2, 1),
        target=64,
        data=0x20,
        scale=0x30,
    )
    after = execute(program, memory)
    # 0 2 4 6 | 1 3 5 7: the largest exponent is 2 in both, so scales are 127 + i + 2 - 8.
    for p in range(64):
        got = after.read("SBUF", 64 + p, 0x20, 8)
        assert got == bytes.fromhex("00 70 78 7C 68 74 7A 7E"), p
    for i in range(8):
        where = 64 + 32 * (i >> 2) + (i & 3)
        assert after.read("SBUF", where, 0x30, 2) == bytes([121 + i, 121 + i])
        assert not after.written("SBUF", where, 0x32, 1)


def test_quantize_fp16_to_packed_fp4_backwards():
    memory = Memory()
    for p in range(32):
        row = struct.pack("<8e", 1.0, 2.0, 3.0, 4.0, 0.5, -1.0, 1.5, 2.0)
        memory.write("SBUF", p, 0x1000, row)
    program = quantize(columns=2, tag=0x07, out=0x10, step=0xFF, data=0x42, scale=0x51, length=0x11)
    after = execute(program, memory)
    # Column 0 at 0x42: 1 2 3 4 = codes 2 4 5 6; column 1 below it: 1 -2 3 4 = codes 2 C 5 6.
    assert after.read("SBUF", 31, 0x40, 4) == bytes.fromhex("C2 65  42 65")
    assert after.read("SBUF", 3, 0x50, 2) == bytes([126, 127])


REFUSALS = [
    ("opcode", lambda: patched(load(), 0x00, 0x01)),
    ("inst_word_len", lambda: patched(load(), 0x01, 0x11)),
    ("byte 0x02", lambda: patched(load(), 0x02, 1)),
    ("byte 0x0d", lambda: patched(load(), 0x0D, 1)),
    ("data address", lambda: patched(load(), 0x10, 2)),
    ("data address", lambda: patched(load(), 0x12, 4)),
    ("data address", lambda: patched(load(), 0x13, 2)),
    ("scale address", lambda: patched(load(), 0x16, 4)),
    ("scale address", lambda: patched(load(), 0x17, 2)),
    ("K extent", lambda: patched(load(), 0x18, 0)),
    ("K extent", lambda: patched(load(), 0x18, 6)),
    ("num_active_cols", lambda: patched(load(), 0x18, 8)),
    ("step", lambda: patched(load(), 0x1A, 0)),
    ("K extent", lambda: load(columns=2, step=0xFF)),
    ("scale partition", lambda: patched(load(), 0x1B, 2)),
    ("scale partition", lambda: patched(load(), 0x1B, 16)),
    ("byte 0x1c", lambda: patched(load(), 0x1C, 1)),
    ("dtype", lambda: patched(load(), 0x20, 0x06)),
    ("byte 0x25", lambda: patched(load(), 0x25, 1)),
    ("num_active_rows", lambda: patched(load(), 0x26, 64)),
    ("num_active_cols", lambda: patched(load(), 0x27, 0)),
    ("byte 0x28", lambda: patched(load(), 0x28, 0x0A)),
    ("byte 0x2b", lambda: patched(load(), 0x2B, 1)),
    ("row group", lambda: patched(load(), 0x2C, 5)),
    ("data address", lambda: patched(load(), 0x2C, 2)),
    ("col group", lambda: patched(load(), 0x2D, 3)),
    ("byte 0x2e", lambda: patched(load(), 0x2E, 1)),
    ("byte 0x3f", lambda: patched(load(), 0x3F, 1)),
    ("row group", lambda: multiply()),
    ("row group", lambda: load(0x1) + multiply(0x3)),
    ("byte 0x21", lambda: load() + patched(multiply(), 0x21, 1)),
    ("byte 0x29", lambda: load() + patched(multiply(), 0x29, 1)),
    ("accumulate_flags", lambda: load() + multiply(flags=5)),
    ("accumulate_flags", lambda: load() + multiply(flags=7)),
    ("accumulate_flags", lambda: load() + multiply(flags=8)),
    ("psum_zero_region", lambda: load() + multiply(region=4)),
    ("byte 0x2e", lambda: load() + patched(multiply(), 0x2E, 1)),
    ("destination", lambda: load() + multiply(target=0)),
    ("destination", lambda: load() + multiply(target=0x2400000)),
    ("destination", lambda: load() + multiply(target=0x2000002)),
    ("destination", lambda: load() + multiply(target=0x2008000)),
    ("destination", lambda: load() + multiply(target=0x2004000)),
    ("destination", lambda: load() + multiply(counts=(2, 1, 1))),
    ("destination", lambda: load() + multiply(counts=(1, 0, 1))),
    ("destination", lambda: load() + multiply(columns=2, strides=(-1, 1, 1))),
    ("byte 0x20", lambda: patched(quantize(), 0x20, 1)),
    ("byte 0x24", lambda: patched(quantize(), 0x24, 1)),
    ("num_active_channels", lambda: quantize(channels=48)),
    ("source dtype", lambda: quantize(tag=0x0A)),
    ("dtype", lambda: quantize(out=0x0D)),
    ("source", lambda: quantize(channels=128, partition=32)),
    ("source", lambda: quantize(counts=(5, 1, 1))),
    ("source", lambda: quantize(source=0x3FFFC)),
    ("source", lambda: quantize(source=0x1002)),
    ("data address", lambda: quantize(channels=128, target=32)),
]


@pytest.mark.parametrize(("field", "program"), REFUSALS)
def test_refusals_name_the_field(field, program):
    memory = pair()
    for p in range(128):
        memory.write("SBUF", p, 0x1000, bytes(64))
    execute(load() + multiply() + quantize(), memory)
    with pytest.raises(ExecutionError) as caught:
        execute(program(), memory, uninitialised="zero")
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("at", "value"), [(0x04, 5), (0x06, 0x13), (0x13, 0x80), (0x13, 0x40), (0x17, 0x20)]
)
def test_modes_without_a_model_say_so(at, value):
    with pytest.raises(Unmodelled):
        execute(patched(load(), at, value), pair())
    with pytest.raises(Unmodelled):
        execute(load() + patched(multiply(), at, value), pair())
    with pytest.raises(Unmodelled):
        execute(load() + multiply(out=0x07), pair())


def test_idle_semaphore_bytes_change_nothing():
    program = load() + multiply()
    want = execute(program, pair()).read("PSUM", 0, 0, 4)
    for at in (0x05, 0x07, 0x08, 0x0B):
        assert execute(patched(program, at, 0xFF), pair()).read("PSUM", 0, 0, 4) == want


def test_quadrants_with_different_formats_do_not_mix():
    memory = pair(base=0, rows=64)
    with pytest.raises(ExecutionError, match="different formats"):
        execute(load(0x1) + load(0x2, tag=0x0F) + multiply(0x3), memory)


def test_bad_options_and_lengths():
    with pytest.raises(ExecutionError, match="multiples of 64"):
        execute(load()[:-1], pair())
    with pytest.raises(PolicyError):
        execute(b"", pair(), zero="region")
    with pytest.raises(PolicyError):
        execute(b"", pair(), uninitialised="poison")


def test_memory_bounds():
    memory = Memory()
    for space, partition, offset, count in (
        ("HBM", 0, 0, 1),
        ("SBUF", 128, 0, 1),
        ("SBUF", 0, 0x40000, 1),
        ("SBUF", 0, -1, 1),
        ("PSUM", 0, 0x3FFF, 2),
    ):
        with pytest.raises(AddressError):
            memory.read(space, partition, offset, count)
        with pytest.raises(AddressError):
            memory.write(space, partition, offset, bytes(count))
    memory.write("PSUM", 0, 0x3FFE, b"ab")
    assert memory.read("PSUM", 0, 0x3FFD, 3) == b"\0ab"
    assert not memory.written("PSUM", 0, 0x3FFD, 3)
