"""Hostile bytes: decode gives an instruction that re-encodes to the same bytes, or a typed error.

A third of the inputs is random, a third has a valid header, a third is a valid bundle with one to
three mutations, mostly of whole fields; the counts are printed and at least a fifth must decode.
"""

from __future__ import annotations

import random

import pytest

from encoding import DecodeError, Violation, check, decode, encode
from encoding.bundle import bundle_types, layout_of
from encoding.rows import Kind
from encoding.sample import draw
from hardware import Arch

KNOWN = [(cls, arch) for cls in bundle_types() for arch in Arch if arch >= cls.first_arch]
HEADERS = [(arch, encode(draw(cls, random.Random(0)))[:2]) for cls, arch in KNOWN]
SEEDS = [
    (arch, int.from_bytes(encode(seed, arch), "little"), layout_of(seed, arch).leaves)
    for cls, arch in KNOWN
    for i in range(100)
    for seed in [draw(cls, random.Random(i), 0.2, arch=arch, gather=0.3)]
]


def mutate(word, leaves, rng):
    """Change a field, or now and then any bit; half of the tags stay inside their enumeration."""
    if rng.random() < 0.1:
        return word ^ (1 << rng.randrange(512))
    fields = [leaf for leaf in leaves if leaf.row.kind not in (Kind.CONST, Kind.RESERVED)]
    leaf = rng.choice(fields)
    raw = rng.getrandbits(leaf.row.width)
    if leaf.row.enum is not None and rng.random() < 0.75:
        raw = int(rng.choice(list(leaf.row.enum)))
    return word & ~leaf.mask | raw << leaf.lo


def inputs(count, rng):
    for i in range(count):
        if i % 3 == 0:
            yield rng.choice(list(Arch)), rng.randbytes(64)
        elif i % 3 == 1:
            arch, header = rng.choice(HEADERS)
            yield arch, header + rng.randbytes(62)
        else:
            arch, word, leaves = rng.choice(SEEDS)
            for _ in range(rng.randint(1, 3)):
                word = mutate(word, leaves, rng)
            yield arch, word.to_bytes(64, "little")


def drive(count, seed):
    decoded = lenient = refused = 0
    for i, (arch, data) in enumerate(inputs(count, random.Random(seed))):
        try:
            assert encode(decode(data, arch), arch) == data
            decoded += 1
        except DecodeError as error:
            refused += bool(error.field and error.allowed)
        if i % 4 == 1:
            try:
                assert encode(decode(data, arch, strict=False), arch) == data
                lenient += 1
            except DecodeError:
                pass
    print(f"{count} inputs: {decoded} decoded, {refused} refused, {lenient} more kept leniently")
    assert decoded + refused == count
    assert decoded >= count // 5
    assert lenient > 0


def test_hundred_thousand_hostile_bundles():
    drive(100_000, seed=1)


@pytest.mark.slow
def test_two_million_hostile_bundles():
    drive(2_000_000, seed=2)


def test_check_never_raises_on_bytes():
    rng = random.Random(3)
    for arch, data in inputs(6_000, rng):
        for level in ("wire", "verifier", "runtime"):
            found = check(data, arch, level)
            assert all(isinstance(violation, Violation) for violation in found)
            assert all(violation.field in str(violation) for violation in found)


def test_streams_of_any_length_and_generation():
    rng = random.Random(4)
    for _ in range(2_000):
        data = b"".join(data for _, data in inputs(rng.randrange(3), rng)) + rng.randbytes(
            rng.randrange(3)
        )
        for arch in Arch:
            found = check(data, arch)
            if len(data) % 64:
                assert any(violation.id == "decode.length" for violation in found)
