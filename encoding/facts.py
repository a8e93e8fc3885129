"""What the reference says beyond the byte maps: chip facts as pages, and what nobody knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hardware import pe
from hardware.arch import Arch
from hardware.dtypes import DTYPES, WireDtype, alignment
from hardware.evidence import Evidence
from hardware.memory import (
    PSUM_BASE,
    PSUM_END,
    PSUM_PARTITION_STRIDE,
    REGISTERS,
    SBUF_END,
    SBUF_PARTITION_STRIDE,
    SCALE_PARTITION_MASK,
    geometry,
)

from . import patterns
from .address import ADDRESS_MASK, INDIRECT_BIT, REGISTER_BIT, SHAPE_REGISTER_BIT

Pages = Mapping[str, tuple[str, Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Unrecovered:
    """A rule of the vendor's validators of which only the name is public, or not the whole body."""

    name: str
    bundles: tuple[str, ...]
    missing: str


_DENSE = ("LoadStationary", "Matmul")
_SPARSE = ("LoadTagsSparse", "MatmultSparse")

# fmt: off
UNRECOVERED: tuple[Unrecovered, ...] = (
    Unrecovered("d3_mm_perf_opt_dtype", ("Matmul",),
                "which element types a performance mode takes"),
    Unrecovered("d3_mm_perf_opt_src", ("Matmul",), "what a performance mode asks of the source"),
    Unrecovered("lw_perf_opt_dtype", ("LoadStationary",),
                "which element types a performance mode takes"),
    Unrecovered("lw_perf_opt_src", ("LoadStationary",),
                "what a performance mode asks of the source"),
    Unrecovered("s4d3_mm_perf_opt_dtype", ("MatmultSparse",),
                "which element types a performance mode takes"),
    Unrecovered("s3_lw_dual_fp8_restrictions", ("LoadStationary",),
                "the counts that mode 4 (DoubleRowSwInterleave) asks for; the rest is checked"),
    Unrecovered("checkAccumulationFlag", ("Matmul",),
                "its set on SUNDA and CAYMAN; MARIANA's is used (D12)"),
    Unrecovered("reserved2_tonga_replication", _DENSE, "the meaning of the replication codes"),
    Unrecovered("getNumActiveCols", (*_DENSE, *_SPARSE), "its body; a derived value is used (D8)"),
    Unrecovered("getLegalTileSize", _SPARSE, "its body; the smallest tile that holds the operand"),
    Unrecovered("checkLegalPartitionAccess", (*_DENSE, *_SPARSE),
                "the sizes at which each of its three messages applies; a size-dependent reading "
                "under which all are true is used"),
    Unrecovered("bg_xpose_mode", ("LoadStationary",), "values beyond 2"),
    Unrecovered("indirect_quadrant_check_srcmx_dst3d", ("MatmultMx",),
                "its body; only tensor gathers have a known quadrant rule"),
    Unrecovered("d3_mm_num_elements", ("Matmul",), "its bound on the moving elements"),
    Unrecovered("lw_valid_xbus, d3_mm_valid_xbus", _DENSE,
                "their bodies; the header's table is used at level runtime (D13)"),
    Unrecovered("tag_weight_mode", ("LoadStationary",),
                "which load flag selects it; two pages give the flags in different orders"),
    Unrecovered("has_dma_indirect_valid_idx_start_addr", (*_DENSE, "MatmultSparse"),
                "its body; the index vector is checked as any address (D14)"),
)
"""Listed so that nobody takes silence for a check."""

@dataclass(frozen=True, slots=True)
class PairRule:
    """A verifier rule on a load and the multiplication that uses it."""

    id: str
    field: str
    message: str
    bundles: tuple[str, ...]


PAIR_RULES: tuple[PairRule, ...] = (
    PairRule("V4.235", "num_active_rows", "both operands have the same partitions",
             ("MatmultMx",)),
    PairRule("V4.236", "num_active_cols", "output partitions times 4 is the stationary extent",
             ("MatmultMx",)),
    PairRule("verifier.fp32_mix", "dtype", "FP32 does not mix with narrower types",
             ("Matmul", "MatmultSparse")),
)
# fmt: on


EVIDENCE = {
    Evidence.CONFIRMED: "the store or compare was disassembled, or a header compiled and checked",
    Evidence.STRONG: "two independent tables or predicates agree",
    Evidence.INFERRED: "no store was seen; bundles start out zeroed",
    Evidence.SPECULATIVE: "no second source",
    Evidence.ASSUMED: "this project's choice",
}


def descriptors() -> tuple[type, ...]:
    """Return the descriptor records, static ones first."""
    return (
        patterns.Tensor1D, patterns.Tensor2D, patterns.Tensor3D, patterns.Tensor4D,
        patterns.MxPattern, patterns.Indirect16, patterns.Indirect20, patterns.MxIndirect,
    )  # fmt: skip


def grid(header: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return a Markdown table."""
    lines: list[Iterable[Any]] = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def fact_pages() -> Pages:
    """Return title and blocks of the pages about chip facts, by file name."""
    return {"memory.md": _memory(), "dtypes.md": _dtypes(), "groups.md": _groups()}


def _memory() -> tuple[str, Sequence[str]]:
    words = [
        ("0..28", f"{ADDRESS_MASK:#010x}", "byte address"),
        ("29", f"{INDIRECT_BIT:#010x}", "index vector of a gather, if bit 30 is clear"),
        ("30", f"{SHAPE_REGISTER_BIT:#010x}", "the shape is in a register"),
        (
            "31",
            f"{REGISTER_BIT:#010x}",
            f"the address is in register 0..{REGISTERS - 1}, by number",
        ),
    ]
    spaces = [
        ("SBUF", f"0..{SBUF_END - 1:#x}", f"partition x {SBUF_PARTITION_STRIDE:#x} + byte"),
        ("PSUM", f"{PSUM_BASE:#x}..{PSUM_END - 1:#x}",
         f"{PSUM_BASE:#x} + partition x {PSUM_PARTITION_STRIDE:#x} + bank x 0x800 + byte"),
        ("MX scale", "as SBUF",
         f"(partition x {SBUF_PARTITION_STRIDE:#x} & {SCALE_PARTITION_MASK:#x}) + byte; the "
         "partition inside the quadrant travels in the scale partition byte (D3)"),
    ]  # fmt: skip
    sizes = [
        (arch.label, f"{g.sbuf_bytes:,}", f"{g.psum_banks} x {g.psum_bank_bytes:,}", g.partitions)
        for arch in Arch
        for g in [geometry(arch)]
    ]
    return "Memories and addresses", [
        "## The address word",
        "ADDR4 opens every operand. Source: \"ADDR4 - the 32-Bit Address Word\".",
        grid(("Bits", "Mask", "Meaning"), words),
        "## Spaces",
        grid(("Space", "Addresses", "Formula"), spaces),
        "## Sizes",
        "Bytes per partition. Source: \"SBUF / PSUM Bank Geometry\" (D13).",
        grid(("Generation", "SBUF", "PSUM banks x bytes", "Partitions"), sizes),
    ]  # fmt: skip


def _dtypes() -> tuple[str, Sequence[str]]:
    def tag(number: int | None) -> str:
        return "refused" if number is None else f"{number:#04x}"

    ordinals = [
        (int(d), d.name.lower(), f.storage, tag(f.sunda), tag(f.cayman), tag(f.mariana),
         "yes" if f.packed else "")
        for d, f in DTYPES.items()
    ]  # fmt: skip
    tags = [
        (f"{int(t):#04x}", t.name, t.size or "",
         ", ".join(a.label for a in Arch if t.exists_on(a)), alignment(t, Arch.MARIANA) or "never")
        for t in WireDtype
    ]  # fmt: skip
    return "Element types", [
        'Source: "The BIR Dtype Enum and its Wire-Tag / Stride / Alignment LUTs" (D11).',
        "## The compiler's ordinals and their wire tags",
        grid(("Ordinal", "Name", "Bytes", "sunda", "cayman", "mariana", "Packed x4"), ordinals),
        "## The wire enumeration",
        "The alignment is what an address of the type needs, in bytes, on mariana.",
        grid(("Tag", "Name", "Bytes", "Generations", "Alignment"), tags),
    ]


def _groups() -> tuple[str, Sequence[str]]:
    groups = [
        (f"{g.code:#x}", g.start, g.lanes,
         f"{pe.FORCE_TAG_BITS[g.code]:#x}", f"{pe.XBUS_SELECT[g.code]:#x}"
         if g.code in pe.XBUS_SELECT else "none")
        for g in pe.LANE_GROUPS.values()
    ]  # fmt: skip
    flags = [
        (v, "legal" if v in pe.ACCUMULATE_VALUES else "refused",
         "|".join(f.name or "" for f in pe.AccumulateFlag if v & f).replace("|", "\\|") or "none",
         ", ".join(a.label for a in Arch if v in pe.RUNTIME_ACCUMULATE_VALUES[a]))
        for v in range(8)
    ]  # fmt: skip
    regions = [(v, banks, 2048 * banks) for v, banks in enumerate(pe.ZERO_REGION_BANKS)]
    return "Groups, modes and flags", [
        "## Row and column groups",
        "A group is a mask of 32-lane quadrants; it starts at the partition given. Sparse bundles "
        "remap the row group to forced tag bits; SUNDA's crossbar select goes by column group "
        "(D13, D16a).",
        grid(("Code", "Start", "Lanes", "Forced tag bits", "Crossbar select"), groups),
        "## Performance and float32 modes",
        grid(("Value", "Performance mode"), [(int(m), m.name) for m in pe.PerfMode]),
        grid(("Value", "Float32 mode"), [(int(m), m.name) for m in pe.Fp32Mode]),
        "## Accumulate flags",
        "Level wire takes the same set on every generation, level runtime what is named (D12).",
        grid(("Value", "On the wire", "Bits", "At level runtime"), flags),
        "## PSUM zero region",
        grid(("Value", "Banks", "Bytes"), regions),
    ]
