"""The oracle's blocks against the published tables."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from mxref.errors import ShapeError
from mxref.formats import E2M1FN, E4M3FN, E5M2
from mxref.oracle import (
    INF,
    NAN,
    NEG_ZERO,
    ZERO,
    Value,
    decode,
    dequantize_block,
    quantize_block,
    scale_code,
)
from mxref.oracle.values import power_of_two
from mxref.policy import NEURON_2_24, NEURON_2_31, NVIDIA, OCP, NonFinite, ScaleRule


def block(*numbers) -> list[Value]:
    values = [n if isinstance(n, Value) else Value.of(Fraction(n)) for n in numbers]
    return values + [ZERO] * (32 - len(values))


BF16_MAX = (power_of_two(8) - 1) * power_of_two(120)
ROWS = [
    # elements, format, NEURON_2_24 (scale, codes), NEURON_2_31 (scale, codes)
    (block(1, "-0.5", "0.25"), E4M3FN, (119, "78F068"), (120, "70E860")),
    (block(1, "-0.5", "0.25"), E5M2, (112, "78F470"), (113, "74F06C")),
    (block("1.984375", -1, "0.0078125"), E4M3FN, (119, "7EF840"), (120, "78F038")),
    (block("1.984375", -1, "0.0078125"), E5M2, (112, "7BF85C"), (113, "78F458")),
    (block(448, 1, -3), E4M3FN, (127, "7E38C4"), (128, "7630BC")),
    (block(480, 1), E4M3FN, (127, "7E38"), (128, "7730")),
    (block(65504, 1), E4M3FN, (134, "7E04"), (135, "7802")),
    (block(65504, 1), E5M2, (127, "7B3C"), (128, "7838")),
    (block(BF16_MAX, 1), E4M3FN, (246, "7E00"), (247, "7800")),
    (block(power_of_two(-126)), E4M3FN, (1, "38"), (0, "40")),
    (block(INF, 1, power_of_two(100)), E4M3FN, (247, "7E0000"), (248, "7E0000")),
    (block(INF, 1, power_of_two(100)), E5M2, (240, "7B0008"), (241, "7B0004")),
    (block(), E4M3FN, (1, "0000"), (0, "0000")),
    (block(NEG_ZERO), E5M2, (1, "8000"), (0, "8000")),
]


@pytest.mark.parametrize(("values", "fmt", "old", "new"), ROWS)
def test_published_blocks_of_both_neuron_profiles(values, fmt, old, new):
    for policy, (scale, text) in ((NEURON_2_24, old), (NEURON_2_31, new)):
        codes = list(bytes.fromhex(text))
        got_scale, got = quantize_block(values, fmt, policy)
        assert (got_scale, got[: len(codes)]) == (scale, codes), policy
        assert len(got) == 32


def test_a_nan_is_a_zero_a_code_or_poison():
    nan = Value(NAN.kind, True, Fraction(0))
    values = block(1, nan)
    assert quantize_block(values, E4M3FN, NEURON_2_24)[1][:2] == [0x00, 0x80]
    assert quantize_block(values, E4M3FN, NEURON_2_31)[1][:2] == [0x00, 0x7F]
    for policy in (OCP, NVIDIA):
        assert quantize_block(values, E4M3FN, policy) == (0xFF, [0x7F] * 32)
        assert quantize_block(values, E2M1FN, policy) == (0xFF, [0x0] * 32)
        assert quantize_block(block(INF), E5M2, policy) == (0xFF, [0x7E] * 32)


def test_scale_never_leaves_its_range():
    tiny = Value.of(power_of_two(-149))
    for policy in (OCP, NVIDIA, NEURON_2_24, NEURON_2_31):
        assert scale_code(tiny, E5M2, policy) == policy.min_scale_code
        assert scale_code(ZERO, E5M2, policy) == policy.min_scale_code
    assert scale_code(INF, E2M1FN, NEURON_2_31) == 254
    top = replace(OCP, scale_rule=ScaleRule.CEIL, nonfinite=NonFinite.EXPONENT)
    assert scale_code(Value.of(power_of_two(300)), E2M1FN, top) == 254


def test_dequantize_keeps_subnormals_and_follows_the_profile_at_the_ends():
    assert dequantize_block(0, [0x38, 0x01], E4M3FN, OCP) == [0x00400000, 0x00002000]
    assert dequantize_block(0, [0x38], E4M3FN, NEURON_2_24) == [0x00400000]
    assert dequantize_block(255, [0x38, 0x00], E4M3FN, OCP) == [0x7FC00000] * 2
    neuron = dequantize_block(255, [0x38, 0x00, 0x80, 0x30], E4M3FN, NEURON_2_24)
    assert neuron == [0x7F800000, 0x00000000, 0x80000000, 0x7F000000]


def test_stored_values_are_within_half_a_step_of_what_was_given():
    """Exactly: the decoded block times its scale differs by at most half a spacing of the grid."""
    values = block(*(Fraction(k * k * 37 - 401, 64) for k in range(32)))
    for fmt in (E2M1FN, E4M3FN, E5M2):
        scale, codes = quantize_block(values, fmt, NVIDIA)  # never clips
        for value, code in zip(values, codes, strict=True):
            stored = decode(code, fmt).scaled(scale - 127)
            exponent = max((code & fmt.magnitude_mask) >> fmt.mantissa_bits, 1) - fmt.bias
            spacing = power_of_two(exponent - fmt.mantissa_bits + scale - 127)
            assert abs(stored.exact - value.exact) <= spacing / 2


def test_an_empty_block_is_refused():
    with pytest.raises(ShapeError):
        quantize_block([], E4M3FN, OCP)
