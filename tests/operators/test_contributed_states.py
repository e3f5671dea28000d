"""Operators of onnxruntime's own domain that hand a state on, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import compiler
from compiler.frontend import import_model
from models import checks
from tests.frontend.cpu import run
from tests.operators.test_contributed import check, floats, model


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize("length", [1, 4])
@pytest.mark.parametrize("by_row", [True, False])
def test_linear_attention(rule: str, length: int, by_row: bool) -> None:
    rows = 2 * (4 if by_row else 1)
    decay = ("decay", -abs(floats(2, length, rows))) if rule.startswith("gated") else None
    beta = ("beta", abs(floats(2, length, 2, scale=0.3))) if rule.endswith("delta") else None
    given: list[Any] = [("q", floats(2, length, 16)), ("k", floats(2, length, 8)), ("v", floats(2, length, 6))]
    given += [("past", floats(2, 2, 4, 3)), decay, beta]
    while given[-1] is None:
        given.pop()
    check("LinearAttention", given, ["y", "state"], q_num_heads=4, kv_num_heads=2, update_rule=rule)


def test_linear_attention_of_onnx() -> None:
    """onnxruntime does not run its operator set yet: the reference is what ONNX defines it by."""
    given = [(name, floats(2, 3, width)) for name, width in (("q", 16), ("k", 8), ("v", 6))]
    given += [("past", floats(2, 2, 4, 3)), ("decay", -abs(floats(2, 3, 2))), ("beta", abs(floats(2, 3, 2, scale=0.3)))]
    proto, feeds = model("LinearAttention", given, ["y", "state"], (), 27, "", q_num_heads=4, kv_num_heads=2)
    expected = ReferenceEvaluator(proto).run(None, feeds)
    for found, wanted in zip(run(import_model(proto.SerializeToString()), feeds), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_states_are_added_up_in_full_precision() -> None:
    given = [(name, floats(1, 3, 8)) for name in "qkv"]
    proto, feeds = model("LinearAttention", given, ["y", "state"], q_num_heads=2, kv_num_heads=2, update_rule="linear")
    found = compiler.compile(proto.SerializeToString(), chip="tw2", precision="fp16").run(feeds, hazards=True)
    for name, wanted in checks.run(proto, feeds).items():
        np.testing.assert_allclose(found[name], wanted, rtol=5e-3, atol=5e-3)


def test_linear_attention_from_nothing() -> None:
    given = [(name, floats(1, 3, 8)) for name in "qkv"]
    check("LinearAttention", given, ["y", "state"], q_num_heads=2, kv_num_heads=2, update_rule="linear", scale=0.3)


@pytest.mark.parametrize("channels_last", [0, 1])
@pytest.mark.parametrize(("activation", "dilation"), [("silu", 1), ("none", 2)])
@pytest.mark.parametrize("with_past", [True, False])
def test_causal_convolutions(channels_last: int, activation: str, dilation: int, with_past: bool) -> None:
    before = 3 * dilation
    x, past = ("x", floats(2, 6, 9)), ("past", floats(2, 6, before))
    if channels_last:
        x, past = (("x", floats(2, 9, 6)), ("past", floats(2, before, 6)))
    given = [x, ("w", floats(6, 1, 4)), ("b", floats(6)), *([past] if with_past else [])]
    options = {"activation": activation, "dilation": dilation, "channels_last": channels_last}
    check("CausalConvWithState", given, ["y", "state"], constants=["w", "b"], **options)
