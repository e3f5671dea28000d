"""Whole numbers in models compiled in 16 bits: scaled before they are rounded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto

from compiler import api
from compiler.frontend import import_model
from tests.frontend.models import model, node

pytestmark = pytest.mark.usefixtures("as_planned")

SUMS = np.array([[100_000, -2_000_000, 70_001, 5]], np.int32)


def run(source: ModelProto, precision: str = "fp16", **inputs: np.ndarray) -> np.ndarray:
    artifact = api.compile(source, "tiny", precision=precision, cache=False)
    (result,) = artifact.run(inputs, hazards=True).values()
    return np.asarray(result, np.float64)


def scaled(scale: Any, *behind: Any, **known: np.ndarray) -> ModelProto:
    nodes = [node("Cast", "x", "f", to=TensorProto.FLOAT), node("Mul", "f s", "y" if not behind else "m"), *behind]
    given: dict[str, Any] = {"x": (TensorProto.INT32, [1, 4])}
    if scale is None:
        given["s"] = [1, 4]
    else:
        known["s"] = scale
    return model(nodes, given, ["y"], known)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_sums_are_scaled_before_they_are_rounded(precision: str) -> None:
    scale = np.array([[1e-3, 1e-4, 2e-3, 0.5]], np.float32)
    exact, near = SUMS * scale.astype(np.float64), 1e-3 if precision == "fp16" else 8e-3
    np.testing.assert_allclose(run(scaled(scale), precision, x=SUMS), exact, rtol=near)
    np.testing.assert_allclose(run(scaled(None), precision, x=SUMS, s=scale), exact, rtol=2 * near)


def test_a_bias_is_added_before() -> None:
    scale, bias = np.full((1, 4), 1e-2, np.float32), np.array([-1000.0, 20_000.0, -700.0, 0.0], np.float32)
    source = scaled(scale, node("Add", "m b", "y"), b=bias)
    np.testing.assert_allclose(run(source, x=SUMS), SUMS * 1e-2 + bias.astype(np.float64), atol=2e-3)


def test_angles_of_far_positions_are_exact() -> None:
    frequency = (10_000.0 ** -(np.arange(8) / 8)).astype(np.float32).reshape(1, 8)
    nodes = [
        node("Cast", "p", "f", to=TensorProto.FLOAT),
        node("MatMul", "f w", "a"),
        node("Concat", "a a", "c", axis=-1),
        node("Cos", "c", "y"),
    ]
    source = model(nodes, {"p": (TensorProto.INT64, [5, 1])}, ["y"], {"w": frequency})
    places = np.array([[0], [1], [2047], [4097], [30_001]])
    angles = places.astype(np.float32) * frequency
    np.testing.assert_allclose(run(source, p=places), np.cos(np.hstack([angles, angles])), atol=2e-3)


def test_scales_of_sums_that_are_measured_are_too_small_for_16_bits() -> None:
    nodes = [
        node("DynamicQuantizeLinear", "x", "q s z"),
        node("MatMulInteger", "q w z", "sums"),
        node("Cast", "sums", "f", to=TensorProto.FLOAT),
        node("Mul", "s t", "scale"),
        node("Mul", "f scale", "y"),
    ]
    random = np.random.default_rng(0)
    x, weights = random.standard_normal((2, 64)).astype(np.float32), random.integers(-127, 128, (64, 3), np.int8)
    source = model(nodes, {"x": [2, 64]}, ["y"], {"w": weights, "t": np.float32(1e-6)})
    exact = x.astype(np.float64) @ weights * 1e-6
    np.testing.assert_allclose(run(source, x=x), exact, atol=0.03 * np.abs(exact).max())


def test_a_mask_stays_finite() -> None:
    """What it hides has the smallest number that there is, not minus infinity: of a row all of it may be hidden."""
    nodes = [
        node("Cast", "m", "f", to=TensorProto.FLOAT),
        node("Sub", "one f", "hidden"),
        node("Mul", "hidden least", "mask"),
        node("Add", "x mask", "z"),
        node("Softmax", "z", "y", axis=-1),
    ]
    known = {"one": np.float32(1), "least": np.float32(np.finfo(np.float32).min)}
    source = model(nodes, {"m": (TensorProto.INT64, [2, 4]), "x": [2, 4]}, ["y"], known)
    mask, x = np.array([[1, 1, 0, 0], [0, 0, 0, 0]]), np.zeros((2, 4), np.float32)
    np.testing.assert_allclose(run(source, m=mask, x=x), [[0.5, 0.5, 0, 0], [0.25] * 4], atol=1e-3)


def test_what_was_not_a_whole_number_is_as_before() -> None:
    nodes = [node("Cast", "x", "f", to=TensorProto.FLOAT), node("Mul", "f s", "y")]
    source = model(nodes, {"x": (TensorProto.INT8, [1, 4]), "s": [1, 4]}, ["y"])
    imported = import_model(source.SerializeToString(), precision="fp16")
    assert "float32" not in str(imported.module)
