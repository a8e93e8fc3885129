"""ADDR4: formulas, properties and refusals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoding import Addr4, EncodeError
from hardware import AddressError, Space


def test_formulas_of_the_page():
    assert Addr4.sbuf(0).word == 0
    assert Addr4.sbuf(1, 5).word == 0x4_0005
    assert Addr4.sbuf(127, 0x3FFFF).word == 0x01FF_FFFF
    assert Addr4.psum(0, 0).word == 0x0200_0000
    assert Addr4.psum(3, 2, 8).word == 0x0200_0000 + (3 << 15) + (2 << 11) + 8
    assert Addr4.register(5).word == 0x8000_0005


@given(st.integers(0, 127), st.integers(0, 0x3FFFF))
def test_a_scale_word_keeps_only_the_quadrant(partition, offset):
    word = Addr4.scale(partition, offset)
    assert word == Addr4.sbuf(partition & ~31, offset)


@given(st.integers(0, 127), st.integers(0, 0x3FFFF))
def test_sbuf_splits_back(partition, offset):
    word = Addr4.sbuf(partition, offset)
    assert (word.space, word.partition, word.offset) == (Space.SBUF, partition, offset)


@given(st.integers(0, 127), st.integers(0, 7), st.integers(0, 2047))
def test_psum_splits_back(partition, bank, offset):
    word = Addr4.psum(partition, bank, offset)
    assert (word.space, word.partition, word.bank) == (Space.PSUM, partition, bank)
    assert word.offset == 2048 * bank + offset


def test_markers():
    assert Addr4(0x2000_0000).is_indirect
    assert Addr4(0x2000_0000).is_gather
    assert not Addr4(0x6000_0000).is_gather
    assert Addr4(0x4000_0000).is_shape_register
    assert Addr4(0x8000_0001).is_register
    plain = Addr4.psum(3, 1)
    assert not any((plain.is_indirect, plain.is_shape_register, plain.is_register))


@pytest.mark.parametrize("word", [0x8000_0001, 0x0240_0000, 0x1FFF_FFFF])
def test_words_without_a_memory(word):
    assert Addr4(word).space is None
    with pytest.raises(AddressError):
        _ = Addr4(word).partition
    with pytest.raises(AddressError):
        _ = Addr4(word).offset
    with pytest.raises(AddressError):
        _ = Addr4.sbuf(0).bank


@pytest.mark.parametrize(
    "make",
    [
        lambda: Addr4.sbuf(128),
        lambda: Addr4.sbuf(-1),
        lambda: Addr4.sbuf(0, 0x40000),
        lambda: Addr4.psum(0, 8),
        lambda: Addr4.psum(128, 0),
        lambda: Addr4.psum(0, 0, 2048),
        lambda: Addr4.scale(128),
        lambda: Addr4.register(64),
    ],
)
def test_addresses_outside_memory_are_refused(make):
    with pytest.raises(AddressError):
        make()


@pytest.mark.parametrize("word", [-1, 1 << 32, 1.5, "0", None])
def test_words_that_do_not_fit_are_refused(word):
    with pytest.raises(EncodeError):
        Addr4(word)
