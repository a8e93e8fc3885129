"""The descriptor validators against literal transcriptions of the public pseudocode.

The transcriptions work on bytes at literal offsets and share nothing with the library.  Index words
of a gather follow D14: SBUF is open to them whatever the operand.
"""

from __future__ import annotations

import itertools
import random
import struct

import pytest

from encoding import (
    DecodeError,
    MxPattern,
    Tensor1D,
    Tensor2D,
    Tensor3D,
    Tensor4D,
    check,
    decode_pattern,
    encode,
    encode_pattern,
)
from encoding.bundle import bundle_types
from encoding.operand_rules import (
    accumulation_valid,
    mxmem1d_valid,
    tensor_nd_valid,
    tensor_start_addr_valid,
)
from encoding.sample import draw
from hardware import Arch

TAGS = [*range(0x11), 0x18, 0x19, 0x1F, 0x20, 0xFF]
KINDS = {1: Tensor1D, 2: Tensor2D, 3: Tensor3D, 4: Tensor4D}
# Every byte 3 with low parts around every boundary of alignment, registers and windows.
LOW = [
    0, 1, 2, 3, 4, 6, 7, 8, 0x3F, 0x40, 0x100, 0x140, 0x1004, 0xFF_FFFF, 0xFF_FFFC, 0xFF_FFF8,
    0x40_0000, 0x3F_FFFF, 0x3F_FFFC, 0x80_0001, 0xC0_0000,
]  # fmt: skip


def aligned(addr, tag, gen):
    if tag in (2, 3, 0xD, 0xE, 0xF) or (tag == 0x10 and gen == 4):
        return True
    if tag in (4, 5, 6, 7):
        return addr & 1 == 0
    if tag in (8, 9, 0xA, 0xB):
        return addr & 3 == 0
    if tag in (1, 0xC):
        return addr & 7 == 0
    return False


def start_valid(word, tag, write, psum, sbuf, gen):
    if word & 0x80000000:
        ok = (word & 0xFFFFFF00) == 0x80000000 if gen == 2 else (word & 0x00FFFF00) == 0
        return ok and (word & 0xFF) < 0x40
    a = word & 0x1FFFFFFF
    if not aligned(a, tag, gen):
        return False
    if (a - 0x2000000) & 0xFFFFFFFF <= 0x3FFFFF:
        return psum and (not write or tag in (8, 9, 0xA, 0xB))
    return sbuf and (a & 0x1E000000) == 0


def u16(d, at):
    return d[at] | d[at + 1] << 8


def u32(d, at):
    return u16(d, at) | u16(d, at + 2) << 16


def nd_valid(d, n, tag, write, psum, sbuf, gen):
    b3 = d[3]
    if (b3 & 0x60) == 0x20:
        return (
            u16(d, 8) != 0
            and start_valid(u32(d, 0), 9, write, psum, True, gen)
            and (d[7] & 0xE0) == 0
            and start_valid(u32(d, 4), tag, write, psum, sbuf, gen)
        )
    if not start_valid(u32(d, 0), tag, write, psum, sbuf, gen):
        return False
    if (b3 & 0x70) == 0x40:
        return True
    return all(u16(d, 4 + 2 * n + 2 * i) != 0 for i in range(n))


def mx_valid(d, write, desc_dtype):
    b3 = d[3]
    if (b3 & 0x60) == 0x20:
        return (
            u16(d, 0xC) != 0
            and start_valid(u32(d, 0), 9, write, False, True, 4)
            and start_valid(u32(d, 4), 9, write, False, True, 4)
            and start_valid(u32(d, 8), 3, write, False, True, 4)
            and (d[0xF] & 3) == 0
            and d[0xF] <= 15
        )
    if not start_valid(u32(d, 0), 9, write, False, True, 4) and not (
        start_valid(u32(d, 0), 5, write, False, True, 4) and desc_dtype == 0x10
    ):
        return False
    if not start_valid(u32(d, 4), 3, write, False, True, 4):
        return False
    if (b3 & 0x70) != 0x40:
        if u16(d, 8) == 0:
            return False
        if ((d[0xA] + 1) & 0xFD) != 0:
            return False
    if (b3 & 0xA0) == 0x80:
        return True
    return (d[0xB] & 3) == 0 and d[0xB] <= 15


def words(byte3, low):
    """The low part lies under byte 3; its own top bits select bit 24 for the SBUF window."""
    return byte3 << 24 | low


def same_addresses(bytes3, low, tags):
    points = accepted = 0
    flags = list(itertools.product((False, True), repeat=3))
    for byte3, part, tag, arch in itertools.product(bytes3, low, tags, Arch):
        word = words(byte3, part)
        for write, psum, sbuf in flags:
            want = bool(start_valid(word, tag, write, psum, sbuf, arch // 10))
            got = tensor_start_addr_valid(word, tag, arch, write=write, psum=psum, sbuf=sbuf)
            assert got == want, (hex(word), tag, arch, write, psum, sbuf)
            accepted += want
            points += 1
    print(f"{points} addresses, {accepted} valid")
    assert points // 100 < accepted < points


def test_addresses_around_every_boundary():
    same_addresses([*range(0, 256, 17), 0x02, 0x80, 0xA0], LOW, TAGS[::2])


@pytest.mark.slow
def test_every_byte_3_every_tag_every_window():
    same_addresses(range(256), LOW, TAGS)


def some_word(rng):
    if rng.random() < 0.2:
        return rng.getrandbits(32)
    byte3 = rng.choice([0, 1, 2, 0x20, 0x22, 0x40, 0x42, 0x60, 0x80, 0xA0, 0xC0, 0xE0, 0x50, 0xD0])
    if byte3 & 0x80:
        return byte3 << 24 | rng.choice([0, 1, 63, 63, 64, 0x100, 0x800000])
    return byte3 << 24 | rng.choice([0, 1, 2, 4, 6, 8, rng.getrandbits(24), 0x3FFFFE, 0x400000])


def descriptor(rng, size, tail):
    """Random bytes whose words are near valid ones; a gather's tail is mostly zero."""
    d = bytearray(struct.pack("<II", some_word(rng), some_word(rng)))
    d += bytes(rng.choice([0, 1, 1, 1, 4, 8, 12, 16, 255]) for _ in range(size - 8))
    if (d[3] & 0x60) == 0x20 and rng.random() < 0.9:
        d[tail:size] = bytes(max(0, size - tail))
    return bytes(d[:size])


def drive_tensors(count, seed):
    rng = random.Random(seed)
    valid = gathers = unread = 0
    for _ in range(count):
        n = rng.choice((1, 2, 3, 3, 4))
        d = descriptor(rng, 4 + 4 * n, 10)
        arch, tag = rng.choice(list(Arch)), rng.choice(TAGS)
        write, psum, sbuf = (rng.random() < 0.6 for _ in range(3))
        try:
            pattern = decode_pattern(d, KINDS[n])
        except DecodeError:
            # Reserved bytes of a gather, or a gather where no source gives one.
            assert (d[3] & 0x60) == 0x20
            unread += 1
            continue
        assert encode_pattern(pattern) == d
        want = bool(nd_valid(d, n, tag, write, psum, sbuf, arch // 10))
        got = tensor_nd_valid(pattern, tag, arch, write=write, psum=psum, sbuf=sbuf)
        assert got == want, (d.hex(), n, tag, arch, write, psum, sbuf)
        valid += want
        gathers += want and (d[3] & 0x60) == 0x20
    print(f"{count} descriptors: {valid} valid, {gathers} gathers among them, {unread} unread")
    assert valid > count // 20
    assert gathers > count // 2000
    assert unread < count // 5


def drive_mx(count, seed):
    rng = random.Random(seed)
    valid = gathers = unread = 0
    for _ in range(count):
        d = bytearray(descriptor(rng, 16, 16))
        gather = (d[3] & 0x60) == 0x20
        if gather:
            d[8:12] = struct.pack("<I", some_word(rng))
            d[14] *= rng.random() < 0.05
        elif rng.random() < 0.95:
            d[12:] = bytes(4)
        tag, write = rng.choice((0x0E, 0x0F, 0x10, 0x10, 6)), rng.random() < 0.5
        try:
            pattern = decode_pattern(bytes(d), MxPattern)
        except DecodeError:
            assert any(d[14:15] if gather else d[12:])
            unread += 1
            continue
        want = bool(mx_valid(d, write, tag))
        assert mxmem1d_valid(pattern, tag, write=write) == want, (d.hex(), tag, write)
        valid += want
        gathers += want and gather
    print(f"{count} MX descriptors: {valid} valid, {gathers} gathers among them, {unread} unread")
    assert valid > count // 50
    assert gathers > count // 5000
    assert unread < count // 5


def test_tensor_descriptors():
    drive_tensors(40_000, seed=1)


def test_mx_descriptors():
    drive_mx(40_000, seed=2)


@pytest.mark.slow
def test_a_million_descriptors():
    drive_tensors(600_000, seed=3)
    drive_mx(600_000, seed=4)


SLOT_IDS = ("wire.src.", "wire.dst.")
PLACES = {"partition", "gather_quadrant", "quadrant"}


def slot_verdicts(bundle, arch):
    """Which slots of a bundle the check refuses, for the reasons the validators have."""
    refused = set()
    for violation in check(bundle, arch):
        if violation.id.startswith(SLOT_IDS) and violation.id.split(".")[2] not in PLACES:
            refused.add(violation.id.split(".")[1])
    return refused


def literal_verdicts(data, name, gen):
    tag = data[0x20]
    narrow = {"Matmul": data[0x28], "MatmultMx": data[0x28]}.get(name) == 6
    out = 6 if narrow else 0x0A
    slots = {
        "LoadStationary": lambda: {"src": nd_valid(data[16:32], 3, tag, 0, 0, 1, gen)},
        "LoadTagsSparse": lambda: {"src": nd_valid(data[16:32], 3, tag, 0, 0, 1, gen)},
        "Matmul": lambda: {
            "src": nd_valid(data[16:32], 3, tag, 0, 0, 1, gen),
            "dst": nd_valid(data[48:64], 3, out, not narrow, 1, 0, gen),
        },
        "MatmultSparse": lambda: {
            "src": nd_valid(data[12:32], 4, tag, 0, 0, 1, gen),
            "dst": nd_valid(data[48:64], 3, 0x0A, 1, 1, 0, gen),
        },
        "LdWeightMx": lambda: {"src": mx_valid(data[16:32], 0, tag)},
        "MatmultMx": lambda: {
            "src": mx_valid(data[16:32], 0, tag),
            "dst": nd_valid(data[48:64], 3, out, not narrow, 1, 0, gen),
        },
        "QuantizeMx": lambda: {
            "src": nd_valid(data[16:32], 3, 9, 0, 0, 1, gen),
            "dst": mx_valid(data[48:64], 1, data[0x23]),
        },
    }
    return {slot for slot, good in slots[name]().items() if not good}


def test_the_check_of_whole_bundles_says_the_same():
    rng = random.Random(5)
    refused = 0
    for _ in range(12_000):
        cls, arch = rng.choice(bundle_types()), rng.choice(list(Arch))
        if arch < cls.first_arch:
            continue
        bundle = draw(cls, rng, rng.choice((0, 0.05, 0.3)), arch=arch, gather=0.3)
        want = literal_verdicts(encode(bundle, arch), cls.mnemonic, arch // 10)
        assert slot_verdicts(bundle, arch) == want, (bundle, arch)
        refused += bool(want)
    print(f"{refused} refused")
    assert refused > 1000


def test_accumulate_byte():
    legal = {0, 1, 2, 3, 4, 6}
    assert {flags for flags in range(256) if accumulation_valid(flags)} == legal
