"""Activations against onnxruntime, far out as well as around zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.errors import InvalidError
from tests.operators.evaluate import evaluate
from tests.operators.oracle import floats, onnxruntime_node

ACTIVATIONS: list[tuple[str, dict[str, Any]]] = [
    ("Relu", {}),
    ("LeakyRelu", {}),
    ("LeakyRelu", {"alpha": 0.3}),
    ("Elu", {"alpha": 1.5}),
    ("Selu", {}),
    ("Celu", {"alpha": 2.0}),
    ("Sigmoid", {}),
    ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
    ("HardSwish", {}),
    ("Gelu", {}),
    ("Gelu", {"approximate": "tanh"}),
    ("Mish", {}),
    ("Softplus", {}),
    ("Softsign", {}),
    ("ThresholdedRelu", {"alpha": 0.7}),
    ("Shrink", {"bias": 0.5, "lambd": 1.0}),
]


def spread(dtype: str = "float32") -> np.ndarray[Any, Any]:
    return np.concatenate([floats(0, 41), np.float32([0, -0.0, 60, -60, 1e-4, -1e-4])]).astype(dtype)


@pytest.mark.parametrize("name, attributes", ACTIVATIONS)
def test_activation(name: str, attributes: dict[str, Any]) -> None:
    x = spread()
    opset = 22 if name != "HardSwish" else 21
    expected = onnxruntime_node(name, [x], opset=opset, **attributes)[0]
    np.testing.assert_allclose(evaluate(name, x, **attributes), expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name, attributes", ACTIVATIONS)
def test_activation_of_16_bits_is_rounded_once_or_twice(name: str, attributes: dict[str, Any]) -> None:
    x = spread("float16")
    expected = evaluate(name, x.astype("float32"), **attributes)
    result = evaluate(name, x, **attributes)
    assert result.dtype == np.float16
    np.testing.assert_allclose(result, expected, rtol=3e-3, atol=1e-3)


def test_swish_scales_the_gate() -> None:
    x = spread()
    expected = x / (1 + np.exp(-0.7 * x.astype("float64")))
    np.testing.assert_allclose(evaluate("Swish", x, alpha=0.7), expected, rtol=1e-5, atol=1e-6)


def test_prelu_broadcasts_its_slope_to_x() -> None:
    x, slope = floats(0, 2, 3, 4), floats(1, 3, 1)
    np.testing.assert_allclose(evaluate("PRelu", x, slope), np.where(x < 0, x * slope, x), rtol=1e-6)
    with pytest.raises(InvalidError, match="TW2108"):
        evaluate("PRelu", slope, x)


def test_gelu_knows_two_forms() -> None:
    with pytest.raises(InvalidError, match=r"TW2111.*approximate=fast"):
        evaluate("Gelu", floats(0, 3), approximate="fast")
