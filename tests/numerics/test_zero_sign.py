"""The sign of a zero result: sums begin at +0 unless a start says otherwise (D23)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mxref as mx
from mxref import oracle
from mxref.dot import dot_codes
from mxref.policy import (
    BLOCK,
    C_FIRST,
    NEURON_2_24,
    OCP,
    SEQUENTIAL,
    SYSTOLIC_DENSE,
    SYSTOLIC_MX,
)

ORDERS = (BLOCK, SEQUENTIAL, C_FIRST, SYSTOLIC_DENSE, SYSTOLIC_MX)
#: Products that are all -0: signed zeros, and a product that underflows to -0.
MINUS_ZERO = {"signed zeros": (0x80, 0x38, 127), "underflow": (0x81, 0x01, 0)}


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize(
    ("case", "k", "policy"),
    [("signed zeros", 5, OCP), ("underflow", 1, OCP), ("underflow", 513, NEURON_2_24)],
)
def test_a_sum_from_plus_zero_is_never_minus_zero(order, case, k, policy):
    left, right, scale = MINUS_ZERO[case]
    blocks = -(-k // 32)
    for start, bits in ((None, 0), (0.0, 0), (-0.0, 0x80000000)):
        got = dot_codes(
            jnp.full((2, k), left, jnp.uint8),
            jnp.full((2, blocks), scale, jnp.uint8),
            jnp.full((k, 3), right, jnp.uint8),
            jnp.full((blocks, 3), scale, jnp.uint8),
            lhs_format="e4m3fn",
            rhs_format="e4m3fn",
            policy=policy,
            order=order,
            start=None if start is None else jnp.full((2, 3), start, jnp.float32),
        )
        want = oracle.dot(
            [left] * k, [scale] * blocks, [right] * k, [scale] * blocks,
            mx.E4M3FN, mx.E4M3FN, policy, order, start=None if start is None else bits,
        )  # fmt: skip
        assert np.asarray(got).view(np.uint32).tolist() == [[want] * 3] * 2
        if start is None:
            assert want == 0


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_zero_signs_survive_transforms(order):
    a = mx.quantize(jnp.full((2, 3, 40), -0.0, jnp.float32), mx.E4M3FN)
    b = mx.quantize(jnp.ones((40, 4), jnp.float32), mx.E4M3FN, axis=-2)

    def product(a, b):
        return mx.matmul(a, b, accumulate=order)

    roads = [
        product(a, b),
        jax.jit(product)(a, b),
        jax.vmap(product, in_axes=(0, None))(a, b),
    ]
    for out in roads:
        assert not np.asarray(out).view(np.uint32).any()
