"""HiF4: 64 lanes of four bits that share one E6M2 scale and 24 doubling bits, 4.5 bits a value.

Source: the PTO tile ISA's HiF4X2 type and the public HiFloat4 reference quantizers; D33.
"""

from mxref.hif4.array import HiF4Array
from mxref.hif4.decode import dequantize, fake_quantize
from mxref.hif4.encode import quantize
from mxref.hif4.layout import Layout, Packed, pack, unpack
from mxref.hif4.metadata import Metadata, decode_e6m2, join_metadata, split_metadata
from mxref.hif4.thresholds import Carrier, Ties

__all__ = [
    "Carrier",
    "HiF4Array",
    "Layout",
    "Metadata",
    "Packed",
    "Ties",
    "decode_e6m2",
    "dequantize",
    "fake_quantize",
    "join_metadata",
    "pack",
    "quantize",
    "split_metadata",
    "unpack",
]
