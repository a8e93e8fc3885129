"""The statistics of a stream, against counting decoded bundles one by one."""

from __future__ import annotations

import random
from collections import Counter

from encoding import Addr4, LdWeightMx, MatmultMx, decode_stream, encode_all
from encoding.sample import draw
from encoding.summary import summarize
from hardware import Space


def some(count=300):
    rng = random.Random(11)
    return [draw(rng.choice((LdWeightMx, MatmultMx, MatmultMx)), rng) for _ in range(count)]


def field(entry, name):
    (found,) = [f for f in entry.fields if f.field == name]
    return found


def test_types_and_shares():
    bundles = some()
    load, matmul = summarize(decode_stream(encode_all(bundles)))
    assert (load.type, matmul.type) == (LdWeightMx, MatmultMx)
    assert load.bundles == sum(isinstance(b, LdWeightMx) for b in bundles)
    assert load.share + matmul.share == 1


def test_values_are_counted():
    bundles = [b for b in some() if isinstance(b, MatmultMx)]
    (entry,) = summarize(decode_stream(encode_all(bundles)))
    flags = field(entry, "accumulate_flags")
    assert dict(flags.values) == Counter(str(b.accumulate_flags) for b in bundles)
    assert [n for _, n in flags.values] == sorted((n for _, n in flags.values), reverse=True)
    types = field(entry, "dtype")
    assert dict(types.values) == Counter(b.dtype.name for b in bundles)
    assert " x " in str(types)
    steps = [b.dst.step1 for b in bundles]
    wide = field(entry, "dst.step1")
    assert (wide.lowest, wide.highest, wide.distinct) == (min(steps), max(steps), len(set(steps)))
    assert str(wide) == f"{min(steps)}..{max(steps)}, {len(set(steps))} values"


def test_addresses_are_counted_by_place():
    bundles = [b for b in some() if isinstance(b, MatmultMx)]
    (entry,) = summarize(decode_stream(encode_all(bundles)))
    want = Counter(b.src.scale.space.value for b in bundles)
    assert dict(field(entry, "src.scale").values) == want
    assert set(want) == {space.value for space in Space}
    odd = [Addr4.register(9), Addr4(0x1000_0000), Addr4(0x4000_0000)]
    pattern = type(bundles[0].src)
    made = [
        MatmultMx(
            src=pattern(data=word, scale=word, extent=4), dtype=b.dtype, num_active_rows=32,
            num_active_cols=2, out_dtype=b.out_dtype, accumulate_flags=0, row_group=1, dst=b.dst,
        )
        for word, b in zip(odd, bundles, strict=False)
    ]  # fmt: skip
    (entry,) = summarize(decode_stream(encode_all(made)))
    assert dict(field(entry, "src.data").values) == {
        "register": 1, "unmapped": 1, "SBUF": 1, "shape in register": 1,
    }  # fmt: skip


def test_fields_at_their_default_are_marked():
    bundles = [
        MatmultMx(
            src=b.src, dtype=b.dtype, num_active_rows=32, num_active_cols=2,
            out_dtype=b.out_dtype, accumulate_flags=0, row_group=1, dst=b.dst,
        )
        for b in some()
        if isinstance(b, MatmultMx)
    ]  # fmt: skip
    (entry,) = summarize(decode_stream(encode_all(bundles)))
    idle = {f.field for f in entry.fields if f.idle}
    assert idle == {
        "wait_mode", "wait_semaphore", "update_mode", "update_semaphore", "semaphore_value",
        "psum_zero_region",
    }  # fmt: skip
    assert str(field(entry, "num_active_rows")) == "32"


def test_an_empty_stream_has_no_entry():
    assert summarize(decode_stream(b"")) == []
