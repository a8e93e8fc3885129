"""Every bit of every bundle is a field, a constant or declared reserved."""

from __future__ import annotations

import pytest

from encoding import Addr4, LdWeightMx, MatmultMx, MxPattern, QuantizeMx, Tensor3D, bundle_types
from encoding.codec import LAYOUTS
from encoding.describe import coverage, fields
from encoding.rows import Kind
from encoding.wire import address, bits, const, record, reserved

BUNDLES = [LdWeightMx, MatmultMx, QuantizeMx]


def test_registry_holds_the_three_bundles():
    assert set(bundle_types()) == set(BUNDLES)


@pytest.mark.parametrize("cls", BUNDLES)
def test_every_one_of_512_bits_has_one_owner(cls):
    assert sorted(coverage(cls)) == list(range(512))
    masks = [leaf.mask for leaf in LAYOUTS[cls].leaves]
    assert sum(mask.bit_count() for mask in masks) == 512


@pytest.mark.parametrize("cls", [MxPattern, Tensor3D])
def test_every_one_of_128_bits_of_a_descriptor_has_one_owner(cls):
    assert sorted(coverage(cls)) == list(range(128))


@pytest.mark.parametrize("cls", BUNDLES)
def test_every_row_names_its_meaning_and_source(cls):
    for row in fields(cls):
        assert row.meaning
        assert row.source
    assert all(row.legal for row in fields(cls) if row.kind is not Kind.ADDRESS)


def test_a_hole_is_refused_when_the_class_is_made():
    with pytest.raises(TypeError, match="bit 0 of byte 0x1 unnamed"):

        @record(size=2, source="none")
        class Hole:
            first: int = bits(0, doc="first")


def test_an_overlap_is_refused_when_the_class_is_made():
    with pytest.raises(TypeError, match=r"Overlap\.second at byte 0x0 overlaps"):

        @record(size=2, source="none")
        class Overlap:
            first: int = bits(0, width=16, doc="first")
            second: int = bits(0, bit=7, width=1, doc="second")


def test_a_row_beyond_the_record_is_refused():
    with pytest.raises(TypeError, match="beyond its 2 bytes"):

        @record(size=2, source="none")
        class Long:
            first: int = bits(1, width=16, doc="first")
            rest: int = reserved(0, width=1)


def test_records_with_bit_fields_and_nothing_else_work():
    @record(size=5, source="none")
    class Mixed:
        low: int = bits(0, width=3, doc="low")
        mark: int = const(0, 0b10, bit=3, width=2, doc="mark")
        high: int = bits(0, bit=5, width=3, signed=True, doc="high")
        where: Addr4 = address(1, doc="where")

    layout = LAYOUTS[Mixed]
    data = layout.encode(Mixed(low=5, high=-2, where=Addr4(0x01020304)))
    assert data == bytes([0b110_10_101, 4, 3, 2, 1])
    assert layout.decode(data, int.from_bytes(data, "little")) == Mixed(
        low=5, high=-2, where=Addr4(0x01020304)
    )
