"""A second parser agrees on every field.

The C below is a separate description of the bundles: it was written from the published struct
layouts (field after field, sizes only, no offsets) and not from this project's tables, and it is
read by dissect.cstruct.  Only the names are translated.
"""

from __future__ import annotations

import dataclasses
import random

import pytest
from dissect.cstruct import cstruct

from encoding import Addr4, bundle_types, decode, encode
from encoding.sample import draw
from hardware import Arch

C = """
struct HEADER   { uint8 opcode; uint8 inst_word_len; uint8 debug_cmd; uint8 debug_hint; };
struct EVENTS   { uint8 wait_event_mode; uint8 wait_event_idx;
                  uint8 update_event_mode; uint8 update_event_idx; uint32 semaphore_value; };

struct ADDR4    { uint32 addr:29; uint32 indirect:1; uint32 shape_reg:1; uint32 addr_reg:1; };
struct SB_ADDR  { uint32 byte:18; uint32 partition:7; uint32 psum:1; uint32 zero:3;
                  uint32 mode:3; };
struct PS_ADDR  { uint32 byte:11; uint32 bank:4; uint32 partition:7; uint32 zero:3; uint32 psum:1;
                  uint32 zero2:3; uint32 mode:3; };

struct TENSOR3D    { ADDR4 start_addr; int16 step_elem[3]; uint16 num_elem[3]; };
struct TENSOR4D    { ADDR4 start_addr; int16 step_elem[4]; uint16 num_elem[4]; };
struct INDIRECT16B { ADDR4 index_addr; ADDR4 data_addr; uint16 num_idx; uint8 inert[6]; };
struct INDIRECT20B { ADDR4 index_addr; ADDR4 data_addr; uint16 num_idx; uint8 inert[10]; };
struct MXTENSOR1D  { ADDR4 start_addr; ADDR4 scale_addr; uint16 num_elem; int8 step_elem;
                     uint8 scale_pidx; uint8 reserved[4]; };
struct MXIndirect16B { ADDR4 index_addr; ADDR4 data_addr; ADDR4 scale_addr; uint16 num_elem;
                       uint8 spare; uint8 scale_pidx; };

struct SMX1_LW {
  HEADER header; EVENTS events; uint8 reserved0[4];
  char src_mem_pattern[16];
  uint8 in_dtype; uint8 reserved1[5]; uint8 num_active_rows; uint8 num_active_cols;
  uint8 reserved2[4]; uint8 row_grp; uint8 col_grp; uint8 reserved3[18];
};
struct SMX1D3_MM {
  HEADER header; EVENTS events; uint8 reserved0[4];
  char src_mem_pattern[16];
  uint8 in_dtype; uint8 reserved1[5]; uint8 num_active_rows; uint8 num_active_cols;
  uint8 out_dtype; uint8 reserved2[2]; uint8 psum_accumulate_flags;
  uint8 row_grp; uint8 col_grp; uint8 reserved3; uint8 psum_zero_region;
  char dst_mem_pattern[16];
};
struct S3DMX1_QUANT {
  uint8 opcode; uint8 saturate:1; uint8 inst_half_words:7; uint8 debug_cmd; uint8 debug_hint;
  EVENTS events; uint8 reserved0[4];
  char src_mem_pattern[16];
  uint8 reserved1; uint8 num_active_channels; uint8 in_dtype; uint8 out_dtype;
  uint8 reserved2[12];
  char dst_mem_pattern[16];
};
"""
PARSER = cstruct().load(C, compiled=True)

NAMES = {
    "wait_event_mode": "wait_mode",
    "wait_event_idx": "wait_semaphore",
    "update_event_mode": "update_mode",
    "update_event_idx": "update_semaphore",
    "row_grp": "row_group",
    "col_grp": "col_group",
    "psum_accumulate_flags": "accumulate_flags",
    "in_dtype": "dtype",
    "src_mem_pattern": "src",
    "dst_mem_pattern": "dst",
}
QUANT_NAMES = {
    "saturate": "saturate_bit",
    "inst_half_words": "inst_word_len",
    "in_dtype": "src_dtype",
    "out_dtype": "dst_dtype",
}
TENSOR_NAMES = {"start_addr": "start", "step_elem": "step", "num_elem": "num"}
MX_NAMES = {
    "start_addr": "data",
    "scale_addr": "scale",
    "num_elem": "extent",
    "step_elem": "step",
    "scale_pidx": "scale_partition",
}
PLAIN = [PARSER.TENSOR3D, PARSER.INDIRECT16B, TENSOR_NAMES]
MX = [PARSER.MXTENSOR1D, PARSER.MXIndirect16B, MX_NAMES]

# mnemonic: struct, slots, names that differ from the common ones
STRUCTS = {
    "LdWeightMx": (PARSER.SMX1_LW, {"src": MX}, {}),
    "MatmultMx": (PARSER.SMX1D3_MM, {"src": MX, "dst": PLAIN}, {}),
    "QuantizeMx": (PARSER.S3DMX1_QUANT, {"src": PLAIN, "dst": MX}, QUANT_NAMES),
}


def walk(struct, names, prefix=""):
    """Every number of a parsed struct under our name for it; what must be zero is checked here."""
    found = {}
    for field, value in struct.__values__.items():
        name = prefix + names.get(field, field)
        if field in ("header", "events"):
            found |= walk(value, names)
        elif field.startswith(("reserved", "debug", "inert", "spare")):
            assert not any(value) if isinstance(value, list) else not value, field
        elif isinstance(value, list):
            found |= {f"{name}{i}": number for i, number in enumerate(value)}
        elif hasattr(value, "addr"):
            found[name] = (value.addr, value.indirect, value.shape_reg, value.addr_reg)
        else:
            found[name] = value
    return found


def theirs(data, mnemonic):
    struct, slots, own = STRUCTS[mnemonic]
    found = walk(struct(data), NAMES | own)
    for slot, (static, _, names) in slots.items():
        raw = found.pop(slot)
        found |= walk(static(raw), names, slot + ".")
    return found


def ours(record, prefix=""):
    """Every number of a record by its dotted path."""
    found = {}
    for field in dataclasses.fields(record):
        value, name = getattr(record, field.name), prefix + field.name
        if isinstance(value, Addr4):
            marks = (value.is_indirect, value.is_shape_register, value.is_register)
            found[name] = (value.address, *marks)
        elif dataclasses.is_dataclass(value):
            found |= ours(value, name + ".")
        elif field.name != "residue":
            found[name] = int(value)
    return found


def agree(mnemonic, arch, count, seed):
    (cls,) = [c for c in bundle_types() if c.mnemonic == mnemonic]
    rng = random.Random(f"{mnemonic} {arch} {seed}")
    constants = {}
    for i in range(count):
        data = encode(draw(cls, rng, 0.5 if i % 4 == 0 else 0.0), arch)
        mine, other = ours(decode(data, arch)), theirs(data, mnemonic)
        if not constants:
            constants = {name: getattr(cls, name) for name in other.keys() - mine.keys()}
            assert constants.keys() >= {"opcode", "inst_word_len"}
        assert mine | constants == other
    return count


@pytest.mark.parametrize("mnemonic", STRUCTS)
def test_two_parsers_agree(mnemonic):
    agree(mnemonic, Arch.MARIANA, 1_000, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("mnemonic", STRUCTS)
def test_two_parsers_agree_on_a_hundred_thousand_bundles(mnemonic):
    assert agree(mnemonic, Arch.MARIANA, 100_000, seed=2) == 100_000


def test_every_bundle_has_a_second_description():
    assert set(STRUCTS) == {cls.mnemonic for cls in bundle_types()}
    for struct, slots, _ in STRUCTS.values():
        assert len(struct) == 64
        assert set(slots) <= {"src", "dst"}


@pytest.mark.parametrize("partition", [0, 1, 31, 32, 96, 127])
def test_addresses_fall_apart_alike(partition):
    """The parts of an address as bit fields, against the arithmetic of Addr4."""
    for offset in (0, 4, 0x7FC, 0x3FFFC):
        word = Addr4.sbuf(partition, offset)
        c = PARSER.SB_ADDR(word.word.to_bytes(4, "little"))
        assert (c.partition, c.byte) == (word.partition, word.offset) == (partition, offset)
        assert (c.psum, c.zero, c.mode) == (0, 0, 0)
    for bank, offset in ((0, 0), (3, 4), (7, 0x7FC)):
        word = Addr4.psum(partition, bank, offset)
        c = PARSER.PS_ADDR(word.word.to_bytes(4, "little"))
        assert (c.partition, c.bank, c.byte) == (partition, bank, offset)
        assert (word.partition, word.bank, word.offset) == (partition, bank, bank * 2048 + offset)
        assert (c.psum, c.zero, c.zero2, c.mode) == (1, 0, 0, 0)
