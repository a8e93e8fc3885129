"""The oracle: exact rationals, plain integers and comparisons; slow, and obviously right.

It shares only the format table, the policies and the error types with the fast path, and imports
neither numpy nor jax.  :mod:`mxref.oracle.executor` runs raw bundle bytes at literal offsets.
"""

from mxref.oracle import executor as executor
from mxref.oracle.accumulate import dot as dot
from mxref.oracle.accumulate import matmul as matmul
from mxref.oracle.block import dequantize_block as dequantize_block
from mxref.oracle.block import quantize_block as quantize_block
from mxref.oracle.block import scale_code as scale_code
from mxref.oracle.memory import Memory as Memory
from mxref.oracle.pack import pack_fp4 as pack_fp4
from mxref.oracle.pack import pack_x4 as pack_x4
from mxref.oracle.rounding import encode as encode
from mxref.oracle.rounding import encode_e8m0 as encode_e8m0
from mxref.oracle.rounding import float32_bits as float32_bits
from mxref.oracle.values import INF as INF
from mxref.oracle.values import NAN as NAN
from mxref.oracle.values import NEG_INF as NEG_INF
from mxref.oracle.values import NEG_ZERO as NEG_ZERO
from mxref.oracle.values import ZERO as ZERO
from mxref.oracle.values import Value as Value
from mxref.oracle.values import decode as decode
from mxref.oracle.values import floor_log2 as floor_log2
from mxref.oracle.values import from_float32_bits as from_float32_bits
