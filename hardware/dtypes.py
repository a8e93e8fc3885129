"""Element types: the compiler's ordinals and the one-byte tags on the wire.

Sources: "The BIR Dtype Enum and its Wire-Tag / Stride / Alignment LUTs" and "Cross-Generation
Arch-ISA Header Diff".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from .arch import Arch
from .errors import CapabilityError


class WireDtype(IntEnum):
    """The one-byte element type of a bundle."""

    INVALID = 0x00
    UINT64 = 0x01
    INT8 = 0x02
    UINT8 = 0x03
    """Also carries E8M0 scales."""
    INT16 = 0x04
    UINT16 = 0x05
    BFLOAT16 = 0x06
    FP16 = 0x07
    INT32 = 0x08
    UINT32 = 0x09
    FP32 = 0x0A
    FP32R = 0x0B
    INT64 = 0x0C
    FP8_EXP3 = 0x0D
    FP8_EXP4 = 0x0E
    """In MX bundles four E4M3FN elements to a 4-byte container."""
    FP8_EXP5 = 0x0F
    """In MX bundles four E5M2 elements to a 4-byte container."""
    FP4_EXP2 = 0x10
    """E2M1FN; in MX bundles four to a 2-byte container."""
    CPTC1 = 0x19
    CPTC2 = 0x1A
    CPTC3 = 0x1B
    CPTC4 = 0x1C
    CPTC5 = 0x1D
    CPTC6 = 0x1E
    CPTC7 = 0x1F

    @property
    def size(self) -> int:
        """Bytes of the type-size class that validators use; 0 where the tag has none."""
        return _SIZE_CLASS.get(self, 0)

    @property
    def container_bytes(self) -> int:
        """Bytes of the container that holds four MX elements; 0 for a type that MX lacks."""
        return MX_CONTAINER_BYTES.get(self, 0)

    def exists_on(self, arch: Arch) -> bool:
        """Say whether the generation's enumeration has this tag."""
        return self <= 0x0F or arch >= Arch.MARIANA

    def __repr__(self) -> str:
        return f"WireDtype.{self.name}"


_SIZE_CLASS = {
    **dict.fromkeys((0x02, 0x03, 0x0D, 0x0E, 0x0F, 0x10), 1),
    **dict.fromkeys((0x04, 0x05, 0x06, 0x07), 2),
    **dict.fromkeys((0x08, 0x09, 0x0A, 0x0B), 4),
    **dict.fromkeys((0x01, 0x0C), 8),
}
_DENSE = (
    WireDtype.FP32, WireDtype.FP16, WireDtype.BFLOAT16,
    WireDtype.FP8_EXP3, WireDtype.FP8_EXP4, WireDtype.FP8_EXP5,
)  # fmt: skip
DENSE_DTYPES = {
    Arch.SUNDA: (*_DENSE, WireDtype.UINT8),
    Arch.CAYMAN: _DENSE,
    Arch.MARIANA: _DENSE,
}
"""Element types that a dense or sparse matmul takes."""
MX_CONTAINER_BYTES = {WireDtype.FP8_EXP4: 4, WireDtype.FP8_EXP5: 4, WireDtype.FP4_EXP2: 2}


def alignment(tag: int, arch: Arch) -> int:
    """Return the byte alignment that an address of this type needs; 0 means never valid.

    The rule of ``addr_aligned_dtype``: FP4 joins the one-byte class on MARIANA only.
    """
    if tag == WireDtype.FP4_EXP2 and arch < Arch.MARIANA:
        return 0
    return _SIZE_CLASS.get(tag, 0)


class Dtype(IntEnum):
    """The compiler's element type ordinals."""

    UINT8 = 0
    INT8 = 1
    FLOAT4_E2M1FN_X4 = 2
    FLOAT8E3 = 3
    FLOAT8E4 = 4
    FLOAT8_E4M3FN = 5
    FLOAT8_E8M0FNU = 6
    FLOAT8E5 = 7
    FLOAT8_E4M3FN_X4 = 8
    FLOAT8_E5M2_X4 = 9
    UINT16 = 10
    INT16 = 11
    BFLOAT16 = 12
    FLOAT16 = 13
    UINT32 = 14
    INT32 = 15
    FLOAT32 = 16
    FLOAT32R = 17
    UINT64 = 18
    INT64 = 19

    @property
    def fact(self) -> DtypeFact:
        """The row of this ordinal."""
        return DTYPES[self]

    def tag(self, arch: Arch) -> WireDtype:
        """Return the wire tag on a generation.

        Raises:
          CapabilityError: on CAYMAN for the three packed types, as its encoder refuses them (D11).
        """
        tag = {Arch.SUNDA: self.fact.sunda, Arch.CAYMAN: self.fact.cayman}.get(
            arch, self.fact.mariana
        )
        if tag is None:
            raise CapabilityError(f"element type {self.name.lower()}", arch.label, "mariana")
        return WireDtype(tag)

    def __repr__(self) -> str:
        return f"Dtype.{self.name}"


@dataclass(frozen=True, slots=True)
class DtypeFact:
    """Storage bytes (also the address stride) and the tag per generation; None is a refusal."""

    storage: int
    sunda: int
    cayman: int | None
    mariana: int
    packed: bool = False


def _same(storage: int, tag: int) -> DtypeFact:
    return DtypeFact(storage, tag, tag, tag)


# fmt: off
DTYPES: dict[Dtype, DtypeFact] = {
    Dtype.UINT8:            _same(1, 0x03),
    Dtype.INT8:             _same(1, 0x02),
    Dtype.FLOAT4_E2M1FN_X4: DtypeFact(2, 0x05, None, 0x10, packed=True),
    Dtype.FLOAT8E3:         _same(1, 0x0D),
    Dtype.FLOAT8E4:         _same(1, 0x0E),
    Dtype.FLOAT8_E4M3FN:    _same(1, 0x0E),
    Dtype.FLOAT8_E8M0FNU:   _same(1, 0x03),
    Dtype.FLOAT8E5:         _same(1, 0x0F),
    Dtype.FLOAT8_E4M3FN_X4: DtypeFact(4, 0x0E, None, 0x0E, packed=True),
    Dtype.FLOAT8_E5M2_X4:   DtypeFact(4, 0x0F, None, 0x0F, packed=True),
    Dtype.UINT16:           _same(2, 0x05),
    Dtype.INT16:            _same(2, 0x04),
    Dtype.BFLOAT16:         _same(2, 0x06),
    Dtype.FLOAT16:          _same(2, 0x07),
    Dtype.UINT32:           _same(4, 0x09),
    Dtype.INT32:            _same(4, 0x08),
    Dtype.FLOAT32:          _same(4, 0x0A),
    Dtype.FLOAT32R:         _same(4, 0x0B),
    Dtype.UINT64:           _same(8, 0x01),
    Dtype.INT64:            _same(8, 0x0C),
}
# fmt: on
