"""The kernels lower for accelerators that this machine does not have."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import export

import mxref as mx

FUNCTIONS = {
    "quantize": lambda x: tuple(mx.quantize(x, "e4m3fn")),
    "dequantize": lambda x: mx.quantize(x, "e2m1fn").dequantize(),
    "fake_quantize": lambda x: mx.fake_quantize(x, "e5m2"),
    **{
        order: lambda x, order=order: mx.matmul(
            mx.quantize(x, "e4m3fn"), mx.quantize(x, "e4m3fn", axis=-2), accumulate=order
        )
        for order in ("BLOCK", "SEQUENTIAL", "SYSTOLIC_MX")
    },
}


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_kernels_lower(name, platform):
    shape = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    exported = export.export(jax.jit(FUNCTIONS[name]), platforms=[platform])(shape)
    assert exported.platforms == (platform,)
    assert exported.mlir_module_serialized
