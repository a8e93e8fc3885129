"""Lowering: array operations as programs of bundles with their placement (D22, D23, D25b-d)."""

from .matmul import lower_matmul as lower_matmul
from .quantize import lower_quantize as lower_quantize
