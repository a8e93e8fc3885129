"""Three memory images written down byte by byte, with results worked out on paper.

Nothing here is produced by the encoder, the lowering or the machine.  Every operand has distinct
lanes and distinct scale rows, so each exchange of two of them changes an output; the tests below
make those exchanges and look.
"""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
import pytest

import mxref as mx
from mxref.oracle import Memory
from mxref.oracle.executor import execute


def hexbytes(text: str) -> bytes:
    return bytes.fromhex("".join(text.split()))


def rows(first: int, count: int, width: int, literal: dict[int, str]) -> dict[int, bytes]:
    """``count`` partitions from ``first``; the literal ones as given, the others zero."""
    image = dict.fromkeys(range(first, first + count), bytes(width))
    for partition, text in literal.items():
        assert partition in image
        image[partition] = hexbytes(text)
        assert len(image[partition]) == width, partition
    return image


@dataclass(frozen=True)
class Region:
    """Bytes at one offset of several partitions; ``lane_bits`` and ``columns`` for exchanges."""

    offset: int
    image: dict[int, bytes]


@dataclass(frozen=True)
class Image:
    """A program, the memory it needs, and what it must leave."""

    bundles: bytes
    stationary: Region
    stationary_scales: Region
    moving: Region
    moving_scales: Region
    extra: tuple[Region, ...]
    psum_offset: int
    psum: dict[int, bytes]
    sbuf_after: tuple[Region, ...] = ()
    stationary_bits: int = 8
    moving_bits: int = 8

    @property
    def inputs(self) -> tuple[Region, ...]:
        return (
            self.stationary,
            self.stationary_scales,
            self.moving,
            self.moving_scales,
            *self.extra,
        )


def words(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


# Image A: 32 rows based at partition 32, E4M3 x E4M3.  QuantizeMx makes the moving operand from
# bfloat16; the profile is NEURON_2_24, so a block whose maximum is 2^e gets scale 127 + e - 8 and
# its elements are kept exactly.  Scale rows are partitions 32..35 (stationary) and 36..39 (moving).
A = Image(
    bundles=hexbytes(
        """
        E3 10 00 00  00 00 00 00  00 00 00 00  00 00 00 00
        00 03 80 00  01 00 01 00  01 00 08 00  01 00 01 00
        00 20 06 0E  00 00 00 00  00 00 00 00  00 00 00 00
        00 02 80 00  80 02 80 00  08 00 01 04  00 00 00 00

        09 10 00 00  00 00 00 00  00 00 00 00  00 00 00 00
        00 01 80 00  80 01 80 00  08 00 01 00  00 00 00 00
        0E 00 00 00  00 00 20 02  00 00 00 00  02 0F 00 00
        00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00

        0A 10 00 00  00 00 00 00  00 00 00 00  00 00 00 00
        00 02 80 00  80 02 80 00  08 00 01 04  00 00 00 00
        0E 00 00 00  00 00 20 02  0A 00 00 03  02 0F 00 00
        10 10 00 02  01 00 01 00  01 00 02 00  01 00 01 00
        """
    ),
    stationary=Region(
        0x100,
        rows(
            32,
            32,
            8,
            {
                #    m = 0: lanes    m = 1
                33: "38 40 44 48     4A 4C 4E 50",  # 1 2 3 4 | 5 6 7 8
                42: "40 00 00 38     00 38 40 00",  # 2 0 0 1 | 0 1 2 0
                52: "44 38 00 00     38 00 00 48",  # 3 1 0 0 | 1 0 0 4
                63: "00 00 4A 38     40 44 00 00",  # 0 0 5 1 | 2 3 0 0
            },
        ),
    ),
    stationary_scales=Region(
        0x180,
        rows(
            32,
            4,
            2,
            {
                32: "7F 7E",  # rows 32..39: 1, 1/2
                33: "80 7F",  # rows 40..47: 2, 1
                34: "81 7D",  # rows 48..55: 4, 1/4
                35: "82 80",  # rows 56..63: 8, 2
            },
        ),
    ),
    # Both are written by QuantizeMx; poison there would show if it did not.
    moving=Region(0x200, rows(32, 32, 8, dict.fromkeys(range(32, 64), "7F 7F 7F 7F 7F 7F 7F 7F"))),
    moving_scales=Region(0x280, rows(36, 4, 2, dict.fromkeys(range(36, 40), "00 00"))),
    extra=(
        Region(
            0x300,
            rows(
                32,
                32,
                16,
                {
                    33: "80 3F 00 3F 80 3E 80 BF  80 41 80 40 00 41 00 40",  # 1 .5 .25 -1|16 4 8 2
                    42: "00 40 80 3F 00 3F 00 3F  00 41 80 3F 00 40 80 40",  # 2 1 .5 .5 | 8 1 2 4
                    52: "80 40 80 3F 00 40 40 40  00 40 80 3F 00 3F 80 BF",  # 4 1 2 3 | 2 1 .5 -1
                    63: "00 41 00 40 80 40 80 3F  80 3F 40 3F 00 3F 80 3E",  # 8 2 4 1|1 .75 .5 .25
                },
            ),
        ),
    ),
    psum_offset=0x1010,
    psum={
        # (1+1+.75-4) + 2(4+.5) + 4(12+1) + 8(20+1);  (16+8+24+8) + 2(16+4) + 4(6+1) + 8(2.5+.25)
        0: words(-1.25 + 9 + 52 + 168, 56 + 40 + 28 + 22),
        # (5+3+1.75-8)/2 + (1+1) + (4+12)/4 + 2(16+6);  (80+24+56+16)/2 + 5 + (2-4)/4 + 2(2+2.25)
        1: words(0.875 + 2 + 4 + 44, 88 + 5 - 0.5 + 8.5),
    },
    sbuf_after=(
        Region(
            0x200,
            rows(
                32,
                32,
                8,
                {
                    33: "78 70 68 F8  78 68 70 60",  # 256 128 64 -256 | 256 64 128 32
                    42: "78 70 68 68  78 60 68 70",  # 256 128 64 64 | 256 32 64 128
                    52: "78 68 70 74  78 70 68 F0",  # 256 64 128 192 | 256 128 64 -128
                    63: "78 68 70 60  78 74 70 68",  # 256 64 128 32 | 256 192 128 64
                },
            ),
        ),
        # 2^0, 2^1, 2^2, 2^3 in column 0 and 2^4, 2^3, 2^1, 2^0 in column 1, each over 2^8.
        Region(0x280, rows(36, 4, 2, {36: "77 7B", 37: "78 7A", 38: "79 78", 39: "7A 77"})),
    ),
)

# Image B: 64 rows based at partition 64, E2M1 (stationary) x E5M2 (moving).  Scale rows 0..3 are
# partitions 72..75 (offset 8) and 76..79 (offset 12); rows 4..7 lie 32 partitions further.
B = Image(
    bundles=hexbytes(
        """
        09 10 00 00  00 00 00 00  00 00 00 00  00 00 00 00
        20 00 00 01  40 00 00 01  08 00 01 08  00 00 00 00
        10 00 00 00  00 00 40 02  00 00 00 00  0C 0F 00 00
        00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00

        0A 10 00 00  00 00 00 00  00 00 00 00  00 00 00 00
        60 00 00 01  80 00 00 01  08 00 01 0C  00 00 00 00
        0F 00 00 00  00 00 40 02  0A 00 00 01  0C 0F 00 00
        00 00 00 02  02 00 01 00  01 00 02 00  01 00 01 00
        """
    ),
    stationary=Region(
        0x20,
        rows(
            64,
            64,
            4,
            {
                64: "42 05  01 20",  # 1 2 3 0 | .5 0 0 1
                73: "04 20  62 00",  # 2 0 0 1 | 1 4 0 0
                82: "50 20  00 47",  # 0 3 0 1 | 0 0 6 2
                91: "00 26  03 02",  # 0 0 4 1 | 1.5 0 1 0
                100: "02 10  40 00",  # 1 0 0 .5 | 0 2 0 0
                109: "30 00  00 50",  # 0 1.5 0 0 | 0 0 0 3
                118: "00 4A  06 00",  # 0 0 -1 2 | 4 0 0 0
                127: "07 00  90 00",  # 6 0 0 0 | 0 -.5 0 0
            },
        ),
    ),
    stationary_scales=Region(
        0x40,
        {
            72: hexbytes("7F 81"),  # 2^0, 2^2
            73: hexbytes("80 7F"),  # 2^1, 2^0
            74: hexbytes("81 7E"),  # 2^2, 2^-1
            75: hexbytes("82 80"),  # 2^3, 2^1
            104: hexbytes("7E 82"),  # 2^-1, 2^3
            105: hexbytes("7D 7D"),  # 2^-2, 2^-2
            106: hexbytes("7C 83"),  # 2^-3, 2^4
            107: hexbytes("83 7C"),  # 2^4, 2^-3
        },
    ),
    moving=Region(
        0x60,
        rows(
            64,
            64,
            8,
            {
                64: "3C 40 44 48  48 3C 40 42",  # 1 2 4 8 | 8 1 2 3
                73: "3C 3C 40 44  40 42 3C 3C",  # 1 1 2 4 | 2 3 1 1
                82: "3C 40 3C 44  3C 44 40 3C",  # 1 2 1 4 | 1 4 2 1
                91: "40 3C 42 3C  3C 3C 40 46",  # 2 1 3 1 | 1 1 2 6
                100: "44 3C 3C 40  42 40 3C 3C",  # 4 1 1 2 | 3 2 1 1
                109: "3C 46 3C 40  3C 3C 3C 44",  # 1 6 1 2 | 1 1 1 4
                118: "40 3C 44 3C  3C 40 48 3C",  # 2 1 4 1 | 1 2 8 1
                127: "3C 44 3C 3C  40 46 3C 3C",  # 1 4 1 1 | 2 6 1 1
            },
        ),
    ),
    moving_scales=Region(
        0x80,
        {
            76: hexbytes("80 7F"),  # 2^1, 2^0
            77: hexbytes("7F 81"),  # 2^0, 2^2
            78: hexbytes("82 7E"),  # 2^3, 2^-1
            79: hexbytes("7E 82"),  # 2^-1, 2^3
            108: hexbytes("81 80"),  # 2^2, 2^1
            109: hexbytes("83 7D"),  # 2^4, 2^-2
            110: hexbytes("7D 84"),  # 2^-2, 2^5
            111: hexbytes("7C 7B"),  # 2^-3, 2^-4
        },
    ),
    extra=(),
    # The innermost stride is 2, so the second word lies 8 bytes after the first.
    psum_offset=0,
    psum={
        # 17*2 + 6*2 + 10*32 + 13*4 + 5*2 + 9*4 - 2/32 + 6*2
        # 16 + 5*8 + 13*2 + 14*64 + 3.5 + 1.5/16 - 6*4 + 12
        0: words(34 + 12 + 320 + 52 + 10 + 36 - 0.0625 + 12)
        + b"????"
        + words(16 + 40 + 26 + 896 + 3.5 + 0.09375 - 24 + 12),
        # 8.5*8 + 5 + 14*4 + 6 + 2*32 + 6*4 + 8*4 - 2/64
        # 7*4 + 14*4 + 14/4 + 3.5*16 + 4*16 + 12/16 + 4*512 - 3/128
        1: words(68 + 5 + 56 + 6 + 64 + 24 + 32 - 0.03125)
        + b"????"
        + words(28 + 56 + 3.5 + 56 + 64 + 0.75 + 2048 - 0.0234375),
    },
    stationary_bits=4,
)

# Image C: 128 rows at partition 0, E4M3 (stationary) x E2M1 (moving), bfloat16 destination written
# twice.  Scale rows are partitions 4..7, 36..39, 68..71, 100..103 and 12..15, 44..47, 76..79,
# 108..111.  Block i holds i + 1 in lane i mod 4 of column 0, 16 - i in the next of column 1, so
# column 0 by column 0 is 1 + 8 + 48 + 192 + 1.25 + 6 + 28 + 96 + .5625 + 2.5 + 11 + 36 + .203125
# + .875 + 3.75 + 12 = 447.140625, and so on.
C = Image(
    bundles=hexbytes(
        """
        09 10 00 00  00 00 00 00  00 00 00 00  00 00 00 00
        00 10 00 00  01 20 00 00  08 00 01 04  00 00 00 00
        0E 00 00 00  00 00 80 02  00 00 00 00  0F 0F 00 00
        00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00

        0A 10 00 00  00 00 00 00  00 00 00 00  00 00 00 00
        02 30 00 00  03 40 00 00  08 00 01 0C  00 00 00 00
        10 00 00 00  00 00 80 02  06 00 00 01  0F 0F 00 00
        02 38 00 02  FF FF 01 00  01 00 02 00  01 00 01 00

        0A 10 00 00  00 00 00 00  00 00 00 00  00 00 00 00
        02 30 00 00  03 40 00 00  08 00 01 0C  00 00 00 00
        10 00 00 00  00 00 80 02  06 00 00 02  0F 0F 00 00
        02 38 00 02  FF FF 01 00  01 00 02 00  01 00 01 00
        """
    ),
    stationary=Region(
        0x1000,
        rows(
            0,
            128,
            8,
            {
                0: "38 00 00 00  00 58 00 00",  # 1 | 16
                9: "00 40 00 00  00 00 57 00",  # 2 | 15
                18: "00 00 44 00  00 00 00 56",  # 3 | 14
                27: "00 00 00 48  55 00 00 00",  # 4 | 13
                36: "4A 00 00 00  00 54 00 00",  # 5 | 12
                45: "00 4C 00 00  00 00 53 00",  # 6 | 11
                54: "00 00 4E 00  00 00 00 52",  # 7 | 10
                63: "00 00 00 50  51 00 00 00",  # 8 | 9
                64: "51 00 00 00  00 50 00 00",  # 9 | 8
                73: "00 52 00 00  00 00 4E 00",  # 10 | 7
                82: "00 00 53 00  00 00 00 4C",  # 11 | 6
                91: "00 00 00 54  4A 00 00 00",  # 12 | 5
                100: "55 00 00 00  00 48 00 00",  # 13 | 4
                109: "00 56 00 00  00 00 44 00",  # 14 | 3
                118: "00 00 57 00  00 00 00 40",  # 15 | 2
                127: "00 00 00 58  38 00 00 00",  # 16 | 1
            },
        ),
    ),
    stationary_scales=Region(
        0x2001,
        {
            4: hexbytes("7F 7F"),  # column 0: 2^(i mod 4); column 1: 2^(i div 4)
            5: hexbytes("80 7F"),
            6: hexbytes("81 7F"),
            7: hexbytes("82 7F"),
            36: hexbytes("7F 80"),
            37: hexbytes("80 80"),
            38: hexbytes("81 80"),
            39: hexbytes("82 80"),
            68: hexbytes("7F 81"),
            69: hexbytes("80 81"),
            70: hexbytes("81 81"),
            71: hexbytes("82 81"),
            100: hexbytes("7F 82"),
            101: hexbytes("80 82"),
            102: hexbytes("81 82"),
            103: hexbytes("82 82"),
        },
    ),
    # Every row: 1 2 4 6 | 3 1 .5 2
    moving=Region(0x3002, rows(0, 128, 4, dict.fromkeys(range(128), "42 76  25 41"))),
    moving_scales=Region(
        0x4003,
        {
            12: hexbytes("7F 7F"),  # column 0: 2^(-2 (i div 4)); column 1: 2^(-2 (i mod 4))
            13: hexbytes("7F 7D"),
            14: hexbytes("7F 7B"),
            15: hexbytes("7F 79"),
            44: hexbytes("7D 7F"),
            45: hexbytes("7D 7D"),
            46: hexbytes("7D 7B"),
            47: hexbytes("7D 79"),
            76: hexbytes("7B 7F"),
            77: hexbytes("7B 7D"),
            78: hexbytes("7B 7B"),
            79: hexbytes("7B 79"),
            108: hexbytes("79 7F"),
            109: hexbytes("79 7D"),
            110: hexbytes("79 7B"),
            111: hexbytes("79 79"),
        },
    ),
    extra=(),
    # The innermost stride is -1: column 1 lands before column 0.
    psum_offset=0x3800,
    psum={
        # Column 1, then column 0, each rounded to bfloat16 after the first and the second write:
        # 114.5, 229;  447.140625 -> 448, 895.140625 -> 896.
        0: hexbytes("65 43  60 44"),
        # 127.140625 -> 127, 254.140625 -> 254;  282.875 -> 282, 564.875 -> 564.
        1: hexbytes("7E 43  0D 44"),
    },
    moving_bits=4,
)

# The same with a float32 destination, where no rounding hides a small difference.
C32 = replace(
    C,
    bundles=C.bundles.replace(hexbytes("80 02  06 00 00"), hexbytes("80 02  0A 00 00")).replace(
        hexbytes("02 38 00 02  FF FF"), hexbytes("04 38 00 02  FF FF")
    ),
    psum={0: words(2 * 114.5, 2 * 447.140625), 1: words(2 * 127.140625, 2 * 282.875)},
)
IMAGES = {"A": A, "B": B, "C": C, "C32": C32}
SHARP = ["A", "B", "C32"]
UNWRITTEN = ord("?")


def by_oracle(image: Image) -> Memory:
    memory = Memory()
    for region in image.inputs:
        for partition, data in region.image.items():
            memory.write("SBUF", partition, region.offset, data)
    return execute(image.bundles, memory)


def psum_of(image: Image, memory: Memory) -> dict[int, bytes]:
    """The PSUM bytes of the image's outputs; bytes that nothing wrote read as ``?``."""
    found = {}
    for partition, data in image.psum.items():
        found[partition] = bytes(
            memory.read("PSUM", partition, image.psum_offset + at, 1)[0]
            if memory.written("PSUM", partition, image.psum_offset + at, 1)
            else UNWRITTEN
            for at in range(len(data))
        )
    return found


def runs(image: dict[int, bytes]) -> list[tuple[int, np.ndarray]]:
    """Consecutive partitions as one array [P, n]."""
    groups: list[tuple[int, list[bytes]]] = []
    for partition in sorted(image):
        if groups and partition == groups[-1][0] + len(groups[-1][1]):
            groups[-1][1].append(image[partition])
        else:
            groups.append((partition, [image[partition]]))
    return [(p, np.array([list(d) for d in data], dtype=np.uint8)) for p, data in groups]


def by_machine(image: Image) -> mx.State:
    state = mx.State.empty(mx.Arch.MARIANA)
    for region in image.inputs:
        for partition, array in runs(region.image):
            state = state.write(mx.Space.SBUF, partition, region.offset, jnp.asarray(array))
    return mx.run(image.bundles, state)


@pytest.mark.parametrize("name", IMAGES)
def test_oracle_leaves_the_bytes_worked_out_by_hand(name):
    image = IMAGES[name]
    memory = by_oracle(image)
    assert psum_of(image, memory) == image.psum
    for region in image.sbuf_after:
        for partition, data in region.image.items():
            assert memory.read("SBUF", partition, region.offset, len(data)) == data


@pytest.mark.parametrize("name", IMAGES)
def test_machine_leaves_the_bytes_worked_out_by_hand(name):
    image = IMAGES[name]
    state = by_machine(image)
    for partition, data in image.psum.items():
        for at, byte in enumerate(data):
            where = (mx.Space.PSUM, partition, image.psum_offset + at, (1, 1), jnp.uint8)
            if byte == UNWRITTEN:
                with pytest.raises(mx.UninitialisedError):
                    state.read(*where, uninitialised="raise")
            else:
                assert np.asarray(state.read(*where)).item() == byte, (partition, at)
    for region in image.sbuf_after:
        for partition, array in runs(region.image):
            got = state.read(mx.Space.SBUF, partition, region.offset, array.shape, jnp.uint8)
            assert np.array_equal(np.asarray(got), array), partition


def exchange_rows(region: Region, a: int, b: int) -> Region:
    image = dict(region.image)
    image[a], image[b] = image[b], image[a]
    return replace(region, image=image)


def exchange_lanes(region: Region, bits: int, a: int, b: int) -> Region:
    """Exchange two of the four elements of every container."""

    def container(data: bytes) -> bytes:
        word = int.from_bytes(data, "little")
        lanes = [word >> bits * k & ((1 << bits) - 1) for k in range(4)]
        lanes[a], lanes[b] = lanes[b], lanes[a]
        return sum(lane << bits * k for k, lane in enumerate(lanes)).to_bytes(len(data), "little")

    size = bits // 2
    image = {
        p: b"".join(container(data[at : at + size]) for at in range(0, len(data), size))
        for p, data in region.image.items()
    }
    return replace(region, image=image)


def differs(image: Image, name: str) -> bool:
    return psum_of(image, by_oracle(image)) != IMAGES[name].psum


@pytest.mark.parametrize("name", SHARP)
def test_exchanging_any_two_stationary_scale_rows_changes_the_result(name):
    image = IMAGES[name]
    pairs = list(itertools.combinations(image.stationary_scales.image, 2))
    assert len(pairs) == {"A": 6, "B": 28, "C32": 120}[name]
    for a, b in pairs:
        swapped = exchange_rows(image.stationary_scales, a, b)
        assert differs(replace(image, stationary_scales=swapped), name), (a, b)


@pytest.mark.parametrize("name", ["B", "C32"])
def test_exchanging_any_two_moving_scale_rows_changes_the_result(name):
    image = IMAGES[name]
    for a, b in itertools.combinations(image.moving_scales.image, 2):
        swapped = exchange_rows(image.moving_scales, a, b)
        assert differs(replace(image, moving_scales=swapped), name), (a, b)


@pytest.mark.parametrize("name", SHARP)
def test_exchanging_any_two_stationary_lanes_changes_the_result(name):
    image = IMAGES[name]
    for a, b in itertools.combinations(range(4), 2):
        swapped = exchange_lanes(image.stationary, image.stationary_bits, a, b)
        assert differs(replace(image, stationary=swapped), name), (a, b)


@pytest.mark.parametrize("name", ["B", "C32"])
def test_exchanging_any_two_moving_lanes_changes_the_result(name):
    image = IMAGES[name]
    for a, b in itertools.combinations(range(4), 2):
        swapped = exchange_lanes(image.moving, image.moving_bits, a, b)
        assert differs(replace(image, moving=swapped), name), (a, b)


def test_exchanging_any_two_source_elements_of_quantize_changes_the_result():
    source = A.extra[0]
    for a, b in itertools.combinations(range(4), 2):
        # Four 16-bit elements are the lanes of one container.
        image = {}
        for partition, data in source.image.items():
            words16 = [data[at : at + 2] for at in range(0, 16, 2)]
            for first in (0, 4):
                words16[first + a], words16[first + b] = words16[first + b], words16[first + a]
            image[partition] = b"".join(words16)
        assert differs(replace(A, extra=(replace(source, image=image),)), "A"), (a, b)


def test_exchanging_nibbles_of_every_byte_changes_the_result():
    for image, name, part in ((B, "B", "stationary"), (C32, "C32", "moving")):
        region = getattr(image, part)
        swapped = {p: bytes(x >> 4 | (x & 0xF) << 4 for x in d) for p, d in region.image.items()}
        changed = replace(image, **{part: replace(region, image=swapped)})
        assert differs(changed, name)


def test_exchanging_scale_columns_changes_the_result():
    for name, image in IMAGES.items():
        region = image.stationary_scales
        swapped = replace(region, image={p: d[::-1] for p, d in region.image.items()})
        assert differs(replace(image, stationary_scales=swapped), name)
