"""Streams as arrays: the same bundles, the same refusals and the same bytes as one at a time."""

from __future__ import annotations

import dataclasses
import io
import random
import time

import numpy as np
import pytest

from encoding import (
    DecodeError,
    EncodeError,
    LdWeightMx,
    LoadStationary,
    Matmul,
    MatmultMx,
    QuantizeMx,
    Tensor3D,
    bundle_types,
    decode,
    decode_stream,
    encode,
    encode_all,
    encode_stream,
)
from encoding.bulk import STEP, dtype_of, read, write
from encoding.bundle import layout_of
from encoding.codec import LAYOUTS
from encoding.errors import CapabilityError
from encoding.rows import Kind
from encoding.sample import draw
from encoding.stream import BundleStream, Columns
from encoding.wire import bits, flag, record
from hardware import Arch


def drawn(count, seed=0, wild=0.3, arch=Arch.MARIANA, gather=0.0):
    rng = random.Random(seed)
    types = [cls for cls in bundle_types() if arch >= cls.first_arch]
    return [draw(rng.choice(types), rng, wild, arch=arch, gather=gather) for _ in range(count)]


def value_at(instruction, path):
    for name in path.split("."):
        instruction = getattr(instruction, name)
    return getattr(instruction, "word", instruction)


@pytest.fixture(scope="module")
def bundles():
    return drawn(1500)


@pytest.fixture(scope="module")
def stream(bundles):
    return decode_stream(encode_all(bundles))


def test_length_and_single_bundles(stream, bundles):
    assert len(stream) == len(bundles)
    assert [stream[i] for i in (0, 17, len(bundles) - 1, -2)] == [
        bundles[i] for i in (0, 17, len(bundles) - 1, -2)
    ]
    assert list(stream[5:25:4]) == bundles[5:25:4]
    assert isinstance(stream[5:25], BundleStream)
    with pytest.raises(IndexError):
        stream[len(bundles)]


def test_masks_and_counts(stream, bundles):
    counts = stream.counts()
    for cls in bundle_types():
        want = [type(b) is cls for b in bundles]
        assert stream.mask(cls).tolist() == want
        assert stream.mask(cls.mnemonic).tolist() == want
        assert counts[cls] == sum(want)
    assert str(counts[MatmultMx]) in repr(stream)


def test_every_column_of_every_type_equals_the_decoded_field(stream, bundles):
    for cls in bundle_types():
        mine = [b for b in bundles if type(b) is cls]
        for leaf in layout_of(cls).leaves:
            if leaf.row.kind in (Kind.CONST, Kind.RESERVED):
                continue
            column = stream.column(leaf.path, cls)
            assert column.tolist() == [value_at(b, leaf.path) for b in mine], leaf.path


def test_a_column_over_all_types_keeps_stream_order(stream, bundles):
    for name in ("wait_mode", "src.scale", "src.num0", "dst.data", "saturate_bit", "dtype"):
        have = [b for b in bundles if name in {leaf.path for leaf in layout_of(type(b)).leaves}]
        assert stream.column(name).tolist() == [value_at(b, name) for b in have], name
        assert stream.having(name).sum() == len(have)


def test_fields_of_one_name_at_two_places_are_gathered(stream, bundles):
    """``dst`` of MatmultMx and of QuantizeMx share no leaf; wide and narrow leaves do share one."""
    places = {leaf.lo for cls in bundle_types() for leaf in layout_of(cls).leaves
              if leaf.path == "src.scale"}  # fmt: skip
    assert places == {0x14 * 8}
    assert stream.column("dst.num0").dtype == np.uint16


def test_columns_of_one_type_are_views_of_the_bytes():
    data = encode_all([b for b in drawn(90) if type(b) is MatmultMx])
    stream = decode_stream(data)
    column = stream.column("src.extent")
    assert np.shares_memory(column, stream.data)
    assert not column.flags.writeable


@pytest.mark.parametrize("name", ["src.nothing", "opcode", "reserved_0c", ""])
def test_unknown_columns_are_refused(stream, name):
    with pytest.raises(EncodeError, match=r"src\.extent"):
        stream.column(name)
    with pytest.raises(EncodeError, match=r"BundleStream\.column"):
        stream.having(name)


def test_unknown_types_are_refused(stream):
    with pytest.raises(EncodeError, match="MatmultMx"):
        stream.mask("Nop")
    with pytest.raises(EncodeError, match=r"BundleStream\.column"):
        stream.column("accumulate_flags", QuantizeMx)


def test_bytes_come_back(stream, bundles):
    data = encode_all(bundles)
    assert stream.tobytes() == data
    assert encode_stream(stream) == data
    assert encode_stream(stream.split()) == data
    assert encode_stream(reversed(stream.split())) == data
    assert encode_stream(iter(bundles)) == data
    assert encode_stream(decode_stream(b"")) == encode_stream([]) == b""


def test_defaults_and_single_values_fill_columns():
    want = [
        MatmultMx(
            src=b.src, dtype=b.dtype, num_active_rows=128, num_active_cols=b.num_active_cols,
            out_dtype=b.out_dtype, accumulate_flags=3, row_group=15, dst=b.dst,
        )
        for b in drawn(60, wild=0)
        if isinstance(b, MatmultMx)
    ]  # fmt: skip
    part = decode_stream(encode_all(want)).columns(MatmultMx)
    fields = dict(part.fields) | {"num_active_rows": 128, "accumulate_flags": 3, "row_group": 15}
    for name in ("wait_mode", "semaphore_value", "psum_zero_region"):
        del fields[name]
    assert encode_stream([Columns(MatmultMx, part.at, fields)]) == encode_all(want)


def faults(data, rng):
    """One byte changed: anywhere, or to a value that an enumeration lacks."""
    at, value = rng.randrange(64), rng.randrange(256)
    return data[:at] + bytes([value]) + data[at + 1 :]


def first_of(data, arch, strict):
    return decode_stream(data, arch, strict)[0]


def outcome(read, *args):
    """The instruction, or the text of the refusal."""
    try:
        return read(*args)
    except DecodeError as error:
        return str(error)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("arch", Arch)
def test_bulk_and_single_decoding_refuse_the_same_bundles(strict, arch):
    rng = random.Random(7)
    refused = 0
    for bundle in drawn(2000, seed=1, wild=0.2, arch=arch, gather=0.3):
        data = faults(encode(bundle, arch), rng)
        one, many = (outcome(read, data, arch, strict) for read in (decode, first_of))
        assert one == many
        refused += isinstance(one, str)
    assert 50 < refused < 1900


@pytest.mark.parametrize(
    ("cls", "offset", "value", "field", "allowed"),
    [
        (MatmultMx, 0x00, 0xEE, "opcode", "0x09 (LdWeightMx)"),
        (MatmultMx, 0x01, 0x11, "inst_word_len", "0x10"),
        (LdWeightMx, 0x2D, 0x07, "col_group", "0xf"),
        (QuantizeMx, 0x20, 0x01, "reserved_20", "0"),
        (MatmultMx, 0x28, 0x55, "out_dtype", "FP32"),
        (QuantizeMx, 0x22, 0x17, "src_dtype", "BFLOAT16"),
    ],
)
def test_the_first_fault_is_named_with_its_index(cls, offset, value, field, allowed):
    rng = random.Random(3)
    bundles = [encode(draw(cls, rng)) for _ in range(50)] * (STEP // 50 + 2)
    for at in (0, 40, STEP + 7):
        data = bytearray(b"".join(bundles))
        data[64 * at + offset] = value
        data[64 * (STEP + 40) + offset] = value
        with pytest.raises(DecodeError) as caught:
            decode_stream(data)
        error = caught.value
        assert (error.index, error.field, error.got) == (at, field, value)
        assert error.offset == offset
        assert allowed in error.allowed
        assert f"bundle {at}," in str(error)


def test_the_earliest_of_several_kinds_of_fault_is_reported():
    bundles = [bytearray(encode(b)) for b in drawn(300, seed=5, wild=0)]
    places = [i for i, b in enumerate(bundles) if b[0] == 0x0A]
    bundles[places[3]][0x2E] = 9
    bundles[places[2]][0x20] = 0x77
    bundles[places[3] + 1][0] = 0xFF
    with pytest.raises(DecodeError, match=f"bundle {places[2]}, MatmultMx.dtype"):
        decode_stream(b"".join(map(bytes, bundles)))


@pytest.mark.parametrize("early", [LoadStationary, MatmultMx])
def test_the_earliest_fault_wins_whatever_its_kind(early):
    bundles = [bytearray(encode(b)) for b in drawn(300, seed=6, wild=0)]
    opcode = {LoadStationary: 0x01, MatmultMx: 0x0A}
    late = LoadStationary if early is MatmultMx else MatmultMx
    first = next(i for i, b in enumerate(bundles) if b[0] == opcode[early])
    second = next(i for i, b in enumerate(bundles) if b[0] == opcode[late] and i > first)
    for at in (first, second):
        bundles[at][0x20] = 0x77
    with pytest.raises(DecodeError, match=f"bundle {first}, {early.__name__}"):
        decode_stream(b"".join(map(bytes, bundles)))


@pytest.mark.parametrize("length", [1, 63, 65, 64 * 9 + 40])
def test_truncated_streams_are_refused(length):
    data = encode_all(drawn(10))[:length]
    with pytest.raises(DecodeError, match="a multiple of 64") as caught:
        decode_stream(data)
    assert caught.value.index == length // 64
    assert caught.value.got == length


def test_what_is_no_buffer_is_refused():
    for wrong in (7, None, [1, 2], io.BytesIO()):
        with pytest.raises(DecodeError, match="bytes or the path of a file"):
            decode_stream(wrong)


def test_files_and_every_kind_of_buffer(tmp_path, bundles):
    data = encode_all(bundles[:100])
    path = tmp_path / "PE.bin"
    path.write_bytes(data)
    array = np.frombuffer(data, "<u4").reshape(-1, 16)
    for source in (path, str(path), bytearray(data), memoryview(data), array):
        assert encode_stream(decode_stream(source)) == data
    (tmp_path / "empty.bin").write_bytes(b"")
    assert len(decode_stream(tmp_path / "empty.bin")) == 0
    with pytest.raises(FileNotFoundError):
        decode_stream(tmp_path / "no.bin")


def test_lenient_streams_keep_their_residue():
    data = bytearray(encode_all(drawn(50)))
    for i in range(0, 50, 3):
        data[64 * i + 0x0D] = i + 1
    stream = decode_stream(bytes(data), strict=False)
    assert stream[3].residue == 4 << 8 * 0x0D
    parts = stream.split()
    assert encode_stream(parts) == bytes(data)
    parts[0].fields["residue"][0, 0x10] = 1
    with pytest.raises(EncodeError, match="reserved bits only"):
        encode_stream(parts)


def test_long_streams_go_in_steps():
    data = encode_all(drawn(500, gather=0.3)) * (STEP // 500 + 2)
    stream = decode_stream(data)
    assert len(stream) > STEP
    assert encode_stream(stream.split()) == data


@pytest.mark.parametrize("arch", Arch)
def test_every_generation_and_form(arch):
    bundles = drawn(500, seed=9, arch=arch, gather=0.5)
    data = b"".join(encode(bundle, arch) for bundle in bundles)
    stream = decode_stream(data, arch)
    assert list(stream) == bundles
    parts = stream.split()
    forms = {(part.type, part.form) for part in parts}
    assert forms == {(type(b), layout_of(b, arch).form) for b in bundles}
    assert len(forms) > len(stream.counts())
    assert sum(stream.counts().values()) == len(bundles)
    assert encode_stream(parts, arch) == encode_stream(stream) == data
    for part in parts:
        mine = [bundles[i] for i in part.at]
        again = stream.columns(part.type, part.form)
        for path, column in part.fields.items():
            assert column.tolist() == [value_at(b, path) for b in mine]
            assert (again.fields[path] == column).all()
        assert {layout_of(b, arch).form for b in mine} == {part.form}


def test_a_form_that_does_not_exist_is_refused(stream):
    with pytest.raises(EncodeError, match=r"BundleStream\.form"):
        stream.columns(MatmultMx, (Tensor3D,))


def test_gathers_and_static_operands_share_columns():
    bundles = drawn(400, seed=12, gather=0.5)
    stream = decode_stream(encode_all(bundles))
    for name in ("src.data", "src.index", "dst.num", "src.extent", "dst.start"):
        have = [b for b in bundles if name in {leaf.path for leaf in layout_of(b).leaves}]
        assert stream.column(name).tolist() == [value_at(b, name) for b in have], name
        assert stream.having(name).sum() == len(have)


def test_fields_of_another_generation_may_come_along_unused():
    bundles = [b for b in drawn(80, arch=Arch.CAYMAN, wild=0) if isinstance(b, Matmul)]
    cayman = b"".join(encode(bundle, Arch.CAYMAN) for bundle in bundles)
    stream = decode_stream(cayman, Arch.CAYMAN)
    assert encode_stream(stream, Arch.MARIANA) == encode_all(bundles)
    later = decode_stream(encode_all(bundles), Arch.MARIANA)
    assert encode_stream(later, Arch.CAYMAN) == cayman
    (part,) = later.split()
    with pytest.raises(CapabilityError, match=r"Matmul\.seed_mode.*cayman.*mariana"):
        encode_stream(changed(part, seed_mode=1), Arch.CAYMAN)


def changed(part, **fields):
    return [dataclasses.replace(part, fields=dict(part.fields) | fields)]


def test_values_that_do_not_fit_are_refused_with_their_place():
    part = decode_stream(encode_all([b for b in drawn(60) if type(b) is MatmultMx])).split()[0]
    count = len(part.at)
    wide = np.full(count, 5)
    wide[4] = 70_000
    with pytest.raises(EncodeError, match=r"MatmultMx 4\.src\.extent \(byte 0x18\).*0\.\.65535"):
        encode_stream(changed(part, **{"src.extent": wide}))
    wrong = np.full(count, 0x0A, np.uint8)
    wrong[2] = 0x42
    with pytest.raises(EncodeError, match=r"MatmultMx 2\.dtype \(byte 0x20\): got 0x42, allowed"):
        encode_stream(changed(part, dtype=wrong))
    with pytest.raises(EncodeError, match="-32768"):
        encode_stream(changed(part, **{"dst.step1": -32769}))
    with pytest.raises(EncodeError, match="integers in one dimension"):
        encode_stream(changed(part, dtype=np.ones(count)))
    with pytest.raises(EncodeError, match="values"):
        encode_stream(changed(part, dtype=np.full(count + 1, 0x0A)))
    with pytest.raises(EncodeError, match=r"MatmultMx\.nonsense"):
        encode_stream(changed(part, nonsense=0))
    with pytest.raises(EncodeError, match="gather"):
        encode_stream(changed(part, **{"src.data": 0x2000_0000}))
    fields = {k: v for k, v in part.fields.items() if k != "row_group"}
    with pytest.raises(EncodeError, match=r"MatmultMx\.row_group"):
        encode_stream([Columns(MatmultMx, part.at, fields)])


@pytest.mark.parametrize("at", [[0, 0, 1], [0, 1, 3], [-1, 0, 1]])
def test_places_must_be_a_permutation(at):
    part = decode_stream(encode_all([b for b in drawn(60) if type(b) is MatmultMx][:3])).split()[0]
    with pytest.raises(EncodeError, match="at"):
        encode_stream([dataclasses.replace(part, at=np.array(at))])


def test_older_generations_lack_mx(stream):
    with pytest.raises(DecodeError, match="needs mariana"):
        decode_stream(stream.tobytes(), Arch.CAYMAN)
    with pytest.raises(CapabilityError):
        encode_stream(stream, Arch.CAYMAN)
    with pytest.raises(CapabilityError):
        encode_stream(stream.split(), Arch.SUNDA)


@pytest.mark.slow
def test_a_million_mixed_bundles_at_a_hundred_megabytes_per_second():
    """Processor time, so that a busy machine does not decide; benchmarks measure the clock."""
    pool = np.frombuffer(encode_all(drawn(4000, gather=0.1)), np.uint8).reshape(-1, 64)
    data = pool[np.random.default_rng(0).integers(0, len(pool), 1_000_000)].tobytes()

    def rate(call, *args):
        best = 0.0
        for _ in range(3):
            start = time.process_time()
            result = call(*args)
            best = max(best, len(data) / (time.process_time() - start) / 1e6)
        return best, result

    decoding, stream = rate(decode_stream, data)
    encoding, again = rate(encode_stream, stream.split())
    print(f"decode {decoding:.0f} MB/s, encode {encoding:.0f} MB/s of processor time")
    assert again == data
    assert min(decoding, encoding) >= 100


def test_leaves_of_any_width_and_place_read_and_write():
    """Bit fields, signs and odd widths, which today's bundles hardly have."""

    @record(size=64, source="none", partial=True)
    class Odd:
        a: int = bits(0, width=3, doc="a")
        b: int = bits(0, bit=3, width=9, signed=True, doc="b")
        c: bool = flag(1, bit=7, doc="c")
        d: int = bits(2, bit=2, width=37, doc="d")
        e: int = bits(8, width=64, doc="e")

    rng = np.random.default_rng(0)
    rows = rng.integers(0, 256, (400, 64), np.uint8)
    words = [int.from_bytes(row.tobytes(), "little") for row in rows]
    for leaf in LAYOUTS[Odd].leaves:
        column = read(rows, leaf)
        assert column.dtype == dtype_of(leaf)
        assert column.tolist() == [leaf.number(word) for word in words]
        again = rows.copy()
        again[:, leaf.offset : leaf.offset + 8] ^= 0xA5
        want = [
            int.from_bytes(row.tobytes(), "little") & ~leaf.mask | word & leaf.mask
            for row, word in zip(again, words, strict=True)
        ]
        write(again, leaf, column)
        assert [int.from_bytes(row.tobytes(), "little") for row in again] == want
