"""The opcode roster of the matmul family: which byte, which engine, since when.

Sources: "PE Matmul Encoding", "Cross-Generation Arch-ISA Header Diff".
"""

from __future__ import annotations

from dataclasses import dataclass

from .arch import Arch, Engine

BUNDLE_BYTES = 64
INST_WORD_LEN = 0x10
"""Length of every bundle in 4-byte words; byte 1 of the header."""


@dataclass(frozen=True, slots=True)
class Opcode:
    """One opcode: the compiler's name, the header structure, the engine, the first generation."""

    code: int
    mnemonic: str
    struct: str
    engine: Engine
    first: Arch


# fmt: off
OPCODES: dict[int, Opcode] = {
    row.code: row
    for row in (
        Opcode(0x01, "LoadStationary", "S3_LW",         Engine.PE,  Arch.SUNDA),
        Opcode(0x02, "Matmul",         "S3D3_MM",       Engine.PE,  Arch.SUNDA),
        Opcode(0x06, "LoadTagsSparse", "S3_LT",         Engine.PE,  Arch.CAYMAN),
        Opcode(0x07, "MatmultSparse",  "S4D3_MM",       Engine.PE,  Arch.CAYMAN),
        Opcode(0x09, "LdWeightMx",     "SMX1_LW",       Engine.PE,  Arch.MARIANA),
        Opcode(0x0A, "MatmultMx",      "SMX1D3_MM",     Engine.PE,  Arch.MARIANA),
        Opcode(0xE3, "QuantizeMx",     "S3DMX1_QUANT",  Engine.DVE, Arch.MARIANA),
    )
}
# fmt: on
