"""Every bit of every bundle is a field, a constant or declared reserved."""

from __future__ import annotations

import pytest

from encoding import (
    Addr4,
    Indirect16,
    Indirect20,
    LdWeightMx,
    LoadStationary,
    LoadTagsSparse,
    Matmul,
    MatmultMx,
    MatmultSparse,
    MxIndirect,
    MxPattern,
    QuantizeMx,
    Tensor1D,
    Tensor2D,
    Tensor3D,
    Tensor4D,
    bundle_layouts,
    bundle_types,
)
from encoding.codec import LAYOUTS
from encoding.describe import coverage, fields
from encoding.rows import Kind
from encoding.wire import address, bits, const, nested, record, reserved
from hardware import Arch

DENSE, SPARSE = {LoadStationary, Matmul}, {LoadTagsSparse, MatmultSparse}
MX = {LdWeightMx, MatmultMx, QuantizeMx}
LAYOUTS_OF_ALL = [layout for arch in Arch for layout in bundle_layouts(arch)]
DESCRIPTORS = {
    Tensor1D: 8, Tensor2D: 12, Tensor3D: 16, Tensor4D: 20,
    Indirect16: 16, Indirect20: 20, MxPattern: 16, MxIndirect: 16,
}  # fmt: skip


def name_of(layout):
    return f"{layout.record.__name__}-{layout.arch.label}-" + "-".join(
        form.__name__ for form in layout.form
    )


def test_registry_holds_every_bundle_of_every_generation():
    assert set(bundle_types()) == DENSE | SPARSE | MX
    expected = {Arch.SUNDA: DENSE, Arch.CAYMAN: DENSE | SPARSE, Arch.MARIANA: DENSE | SPARSE | MX}
    for arch, classes in expected.items():
        layouts = bundle_layouts(arch)
        assert {layout.record for layout in layouts} == classes
        assert {layout.arch for layout in layouts} == {arch}
    # 2 slots with a choice give 4 forms: Matmul, MatmultSparse, MatmultMx, QuantizeMx.
    assert [len(bundle_layouts(arch)) for arch in Arch] == [6, 11, 21]


@pytest.mark.parametrize("layout", LAYOUTS_OF_ALL, ids=name_of)
def test_every_one_of_512_bits_has_one_owner(layout):
    assert sorted(coverage(layout)) == list(range(512))
    masks = [leaf.mask for leaf in layout.leaves]
    assert sum(mask.bit_count() for mask in masks) == 512
    kinds = [Kind.CONST, Kind.RESERVED]
    fields_mask = sum(leaf.mask for leaf in layout.leaves if leaf.row.kind not in kinds)
    parts = [fields_mask, layout.const_mask, layout.reserved_mask]
    assert sum(parts) == (1 << 512) - 1
    assert len({leaf.path for leaf in layout.leaves}) == len(layout.leaves)


@pytest.mark.parametrize("cls", DESCRIPTORS)
def test_every_bit_of_a_descriptor_has_one_owner(cls):
    assert LAYOUTS[cls].size == DESCRIPTORS[cls]
    assert sorted(coverage(cls)) == list(range(8 * DESCRIPTORS[cls]))


@pytest.mark.parametrize("layout", LAYOUTS_OF_ALL, ids=name_of)
def test_every_row_names_its_meaning_and_source(layout):
    for row in fields(layout):
        assert row.meaning
        assert row.source
    assert all(row.legal for row in fields(layout) if row.kind is not Kind.ADDRESS)


def test_fields_of_other_generations_are_reserved():
    expected = {
        "reserved_0c": {Arch.SUNDA, Arch.CAYMAN}, "bg_xpose_mode": {Arch.MARIANA},
        "reserved_22": {Arch.SUNDA}, "transpose_mode": {Arch.CAYMAN, Arch.MARIANA},
        "reserved_24": {Arch.CAYMAN, Arch.MARIANA}, "replication0": {Arch.SUNDA},
        "reserved_2e": {Arch.CAYMAN, Arch.MARIANA}, "xbus_sel": {Arch.SUNDA},
        "reserved_2f": {Arch.SUNDA, Arch.CAYMAN}, "load_flags": {Arch.MARIANA},
    }  # fmt: skip
    for name, archs in expected.items():
        found = {a for a in Arch if any(row.field == name for row in fields(LoadStationary, a))}
        assert found == archs, name


def test_descriptors_of_one_slot_have_one_size():
    with pytest.raises(TypeError, match="different sizes"):

        @record(size=20, source="none")
        class Slot:
            src: Tensor4D = nested(0, Tensor4D, Indirect16, doc="source")


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
