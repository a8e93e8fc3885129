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
from encoding.bundle import layout_of
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

struct S3_LW_SUNDA {
  HEADER header; EVENTS events; uint8 reserved0[4];
  char src_mem_pattern[16];
  uint8 in_dtype; uint8 fp32_mode; uint8 reserved1; uint8 perf_opt; uint8 quant_offset[2];
  uint8 num_active_rows; uint8 num_active_cols; uint8 reserved2[4];
  uint8 row_grp; uint8 col_grp; uint8 xbus_sel; uint8 reserved3[17];
};
struct S3_LW_CAYMAN {
  HEADER header; EVENTS events; uint8 reserved0[4];
  char src_mem_pattern[16];
  uint8 in_dtype; uint8 fp32_mode; uint8 transpose_mode; uint8 perf_opt; uint8 reserved_quant[2];
  uint8 num_active_rows; uint8 num_active_cols; uint8 reserved2[4];
  uint8 row_grp; uint8 col_grp; uint8 reserved3[18];
};
struct S3_LW_MARIANA {
  HEADER header; EVENTS events; uint8 bg_xpose_mode; uint8 reserved0[3];
  char src_mem_pattern[16];
  uint8 in_dtype; uint8 fp32_mode; uint8 transpose_mode; uint8 perf_opt; uint8 reserved_quant[2];
  uint8 num_active_rows; uint8 num_active_cols; uint8 reserved2[4];
  uint8 row_grp; uint8 col_grp; uint8 reserved3; uint8 ld_weight_flags; uint8 reserved4[16];
};
struct S3D3_MM_SUNDA {
  HEADER header; EVENTS events; uint8 reserved0[4];
  char src_mem_pattern[16];
  uint8 in_dtype; uint8 fp32_mode; uint8 reserved1; uint8 perf_opt; uint8 quant_offset[2];
  uint8 num_active_rows; uint8 num_active_cols; uint8 reserved2[3]; uint8 psum_accumulate_flags;
  uint8 row_grp; uint8 col_grp; uint8 xbus_sel; uint8 psum_zero_region;
  char dst_mem_pattern[16];
};
struct S3D3_MM_CAYMAN {
  HEADER header; EVENTS events; uint8 reserved0[4];
  char src_mem_pattern[16];
  uint8 in_dtype; uint8 fp32_mode; uint8 transpose_mode; uint8 perf_opt; uint8 reserved_quant[2];
  uint8 num_active_rows; uint8 num_active_cols; uint8 out_dtype; uint8 reserved2[2];
  uint8 psum_accumulate_flags;
  uint8 row_grp; uint8 col_grp; uint8 reserved3; uint8 psum_zero_region;
  char dst_mem_pattern[16];
};
struct S3D3_MM_MARIANA {
  HEADER header; EVENTS events; uint8 reserved0[4];
  char src_mem_pattern[16];
  uint8 in_dtype; uint8 fp32_mode; uint8 transpose_mode; uint8 perf_opt; uint8 reserved_quant[2];
  uint8 num_active_rows; uint8 num_active_cols; uint8 out_dtype; uint8 reserved2;
  uint8 scalar_mode:2; uint8 seed_mode:2; uint8 accumulate:1; uint8 xpose:1; uint8 reserved_flags:2;
  uint8 psum_accumulate_flags;
  uint8 row_grp; uint8 col_grp; uint8 reserved3; uint8 psum_zero_region;
  char dst_mem_pattern[16];
};
struct S3_LT {
  HEADER header; EVENTS events; uint8 reserved0[4];
  char src_mem_pattern[16];
  uint8 in_dtype; uint8 force_tag_bits; uint8 reserved1[4];
  uint8 num_active_rows; uint8 num_active_cols; uint8 reserved2[4];
  uint8 row_grp; uint8 col_grp; uint8 active_row_mode; uint8 reserved3[17];
};
struct S4D3_MM {
  HEADER header; EVENTS events;
  char src_mem_pattern[20];
  uint8 in_dtype; uint8 fp32_mode; uint8 out_dtype; uint8 perf_opt; uint8 reserved_quant[2];
  uint8 num_active_rows; uint8 num_active_cols; uint8 reserved1[3]; uint8 psum_accumulate_flags;
  uint8 row_grp; uint8 col_grp; uint8 active_row_mode; uint8 psum_zero_region;
  char dst_mem_pattern[16];
};
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
    "perf_opt": "perf_mode",
    "quant_offset": "replication",
    "ld_weight_flags": "load_flags",
    "accumulate": "accumulate_mode",
    "xpose": "xpose_mode",
    "src_mem_pattern": "src",
    "dst_mem_pattern": "dst",
}
SPARSE_NAMES = {"psum_accumulate_flags": "pass_bits"}
QUANT_NAMES = {
    "saturate": "saturate_bit",
    "inst_half_words": "inst_word_len",
    "in_dtype": "src_dtype",
    "out_dtype": "dst_dtype",
}
TENSOR_NAMES = {
    "start_addr": "start",
    "step_elem": "step",
    "num_elem": "num",
    "index_addr": "index",
    "data_addr": "data",
    "num_idx": "num",
}
MX_NAMES = {
    "start_addr": "data",
    "scale_addr": "scale",
    "num_elem": "extent",
    "step_elem": "step",
    "scale_pidx": "scale_partition",
    "index_addr": "index",
    "data_addr": "data",
}
P = PARSER
PLAIN = (P.TENSOR3D, P.INDIRECT16B, TENSOR_NAMES)
STATIC = (P.TENSOR3D, P.TENSOR3D, TENSOR_NAMES)
LONG = (P.TENSOR4D, P.INDIRECT20B, TENSOR_NAMES)
MX = (P.MXTENSOR1D, P.MXIndirect16B, MX_NAMES)
SUNDA, CAYMAN, MARIANA = Arch
NO_REPLICATION = {"replication0": 0, "replication1": 0, "xbus_sel": 0x10}
NO_FLAGS = {"scalar_mode": 0, "seed_mode": 0, "accumulate_mode": 0, "xpose_mode": 0}
LW_LACKS = {
    SUNDA: {"bg_xpose_mode": 0, "transpose_mode": 0, "load_flags": 0},
    CAYMAN: {"bg_xpose_mode": 0, "load_flags": 0} | NO_REPLICATION,
    MARIANA: NO_REPLICATION,
}
MM_LACKS = {
    SUNDA: {"transpose_mode": 0, "out_dtype": 0} | NO_FLAGS,
    CAYMAN: NO_FLAGS | NO_REPLICATION,
    MARIANA: NO_REPLICATION,
}
LW, MM = {"src": PLAIN}, {"src": PLAIN, "dst": PLAIN}
SP, MX_MM = {"src": LONG, "dst": PLAIN}, {"src": MX, "dst": PLAIN}

# mnemonic and generation: struct, slots, other names, what decoding fills in for absent fields
STRUCTS = {
    ("LoadStationary", SUNDA): (P.S3_LW_SUNDA, LW, {}, LW_LACKS[SUNDA]),
    ("LoadStationary", CAYMAN): (P.S3_LW_CAYMAN, LW, {}, LW_LACKS[CAYMAN]),
    ("LoadStationary", MARIANA): (P.S3_LW_MARIANA, LW, {}, LW_LACKS[MARIANA]),
    ("Matmul", SUNDA): (P.S3D3_MM_SUNDA, MM, {}, MM_LACKS[SUNDA]),
    ("Matmul", CAYMAN): (P.S3D3_MM_CAYMAN, MM, {}, MM_LACKS[CAYMAN]),
    ("Matmul", MARIANA): (P.S3D3_MM_MARIANA, MM, {}, MM_LACKS[MARIANA]),
    ("LoadTagsSparse", CAYMAN): (P.S3_LT, {"src": STATIC}, {}, {}),
    ("LoadTagsSparse", MARIANA): (P.S3_LT, {"src": STATIC}, {}, {}),
    ("MatmultSparse", CAYMAN): (P.S4D3_MM, SP, SPARSE_NAMES, {}),
    ("MatmultSparse", MARIANA): (P.S4D3_MM, SP, SPARSE_NAMES, {}),
    ("LdWeightMx", MARIANA): (P.SMX1_LW, {"src": MX}, {}, {}),
    ("MatmultMx", MARIANA): (P.SMX1D3_MM, MX_MM, {}, {}),
    ("QuantizeMx", MARIANA): (P.S3DMX1_QUANT, {"src": PLAIN, "dst": MX}, QUANT_NAMES, {}),
}
CASES = pytest.mark.parametrize(("mnemonic", "arch"), STRUCTS)


def walk(struct, names, prefix=""):
    """Every number of a parsed struct under our name for it; what must be zero is checked here."""
    found = {}
    for field in type(struct).fields:
        value = getattr(struct, field)
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


def theirs(data, mnemonic, arch):
    struct, slots, own, lacking = STRUCTS[mnemonic, arch]
    found = walk(struct(data), NAMES | own) | lacking
    for slot, (static, gather, names) in slots.items():
        raw = found.pop(slot)
        first = PARSER.ADDR4(raw[:4])
        marked = first.indirect and not first.shape_reg
        found |= walk((gather if marked else static)(raw), names, slot + ".")
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


def legal_bundles(cls, arch, count, rng):
    """Bundles whose every field is legal, and a few with any values that fit.

    Most are crossed from two legal ones of the same form: each field comes whole from either.
    """
    pools = {}
    for i in range(min(count, 1500)):
        wild, gather = (0.5, 0.5) if i % 4 == 0 else (0.0, 0.25)
        one = draw(cls, rng, wild, arch=arch, gather=gather)
        layout = layout_of(one, arch)
        word = int.from_bytes(encode(one, arch), "little")
        if not wild:
            pools.setdefault(layout.form, (layout, []))[1].append(word)
        yield word.to_bytes(64, "little")
    choices = list(pools.values())
    masks = [
        [sum(leaf.mask for leaf in layout.leaves if rng.random() < 0.5) for _ in range(500)]
        for layout, _ in choices
    ]
    for i in range(1500, count):
        k = i % len(choices)
        words, mask = choices[k][1], rng.choice(masks[k])
        yield (rng.choice(words) & mask | rng.choice(words) & ~mask).to_bytes(64, "little")


def agree(mnemonic, arch, count, seed):
    (cls,) = [c for c in bundle_types() if c.mnemonic == mnemonic]
    rng = random.Random(f"{mnemonic} {arch} {seed}")
    constants, compared = {}, 0
    for data in legal_bundles(cls, arch, count, rng):
        mine, other = ours(decode(data, arch)), theirs(data, mnemonic, arch)
        if not constants:
            constants = {name: getattr(cls, name) for name in other.keys() - mine.keys()}
            assert constants.keys() - {"col_group"} == {"opcode", "inst_word_len"}
        assert mine | constants == other
        compared += 1
    return compared


@CASES
def test_two_parsers_agree(mnemonic, arch):
    agree(mnemonic, arch, 600, seed=1)


@pytest.mark.slow
@CASES
def test_two_parsers_agree_on_a_hundred_thousand_bundles(mnemonic, arch):
    """A hundred thousand of every type, shared out among the generations that have it."""
    share = 100_000 // sum(name == mnemonic for name, _ in STRUCTS)
    assert agree(mnemonic, arch, share, seed=2) == share


def test_every_bundle_of_every_generation_has_a_second_description():
    want = {(cls.mnemonic, a) for cls in bundle_types() for a in Arch if a >= cls.first_arch}
    assert set(STRUCTS) == want
    for struct, slots, *_ in STRUCTS.values():
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
