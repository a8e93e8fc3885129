"""Policies and orders: what can be given, and that nonsense is refused where it is given."""

from __future__ import annotations

import numpy as np
import pytest

import mxref as mx
from mxref.errors import PolicyError
from mxref.policy import Accumulate, NumericPolicy, Order, ScaleRule

FIELDS = {
    "scale_rule": mx.ScaleRule,
    "nonfinite": mx.NonFinite,
    "nan_element": mx.NanElement,
    "scale_codes": mx.ScaleCodes,
    "products": mx.Products,
}


@pytest.mark.parametrize("name", FIELDS)
def test_every_member_and_its_value_make_the_same_policy(name):
    for member in FIELDS[name]:
        given = {"scale_rule": ScaleRule.FLOOR, name: member}
        named = NumericPolicy("p", **given)
        assert getattr(named, name) is member
        spelled = NumericPolicy("p", **(given | {name: member.value}))
        assert getattr(spelled, name) is member
        assert (spelled, hash(spelled)) == (named, hash(named))


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("value", ["zzz", 3, None, mx.Rounding.RNE, []])
def test_another_value_is_refused_with_the_allowed_ones(name, value):
    with pytest.raises(PolicyError) as caught:
        NumericPolicy("p", **{"scale_rule": "floor", name: value})
    assert caught.value.option == name
    assert caught.value.allowed == ", ".join(member.value for member in FIELDS[name])


def test_the_old_name_of_headroom_stays():
    assert NumericPolicy("p", "nki").scale_rule is ScaleRule.HEADROOM
    assert ScaleRule("nki") is ScaleRule.HEADROOM


@pytest.mark.parametrize("value", [-1, 255, 1.0, "1", None, True])
def test_the_lowest_scale_code_is_a_code(value):
    with pytest.raises(PolicyError, match="min_scale_code"):
        NumericPolicy("p", "floor", min_scale_code=value)
    assert NumericPolicy("p", "floor", min_scale_code=np.int64(254)).min_scale_code == 254


@pytest.mark.parametrize(("option", "value"), [("saturate", 1), ("saturate", "yes"), ("name", 3)])
def test_name_and_saturation_have_their_types(option, value):
    with pytest.raises(PolicyError, match=option):
        NumericPolicy(**({"name": "p", "scale_rule": "floor"} | {option: value}))


def test_orders_are_checked_too():
    assert Accumulate("block") == mx.BLOCK
    assert mx.SYSTOLIC(np.int64(4), 512) == mx.SYSTOLIC_MX
    for order, lanes, tile in (("zzz", 0, 0), (Order.SYSTOLIC, "4", 512), ("systolic", 4, 2.5)):
        with pytest.raises(PolicyError):
            Accumulate(order, lanes, tile)


def test_roundings_are_checked_too():
    with pytest.raises(PolicyError, match="rounding='zzz': allowed rne, toward_zero"):
        mx.narrow(1.0, "e4m3fn", rounding="zzz")
    with pytest.raises(PolicyError, match="rounding='zzz': allowed floor, ceil"):
        mx.encode_e8m0(np.float32(1), rounding="zzz")
