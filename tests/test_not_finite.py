"""Infinities and NaN in whole models: nothing is simplified that is not the same for them, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import compiler
from tests.test_driver import model, node

pytestmark = pytest.mark.usefixtures("as_planned")

INF, NAN = np.inf, np.nan
INPUTS = {
    "x": np.float32([INF, -INF, NAN, 1, 2, NAN, 3, -0.0]),
    "y": np.float32([INF, INF, 1, NAN, 2, NAN, 0, 0.0]),
}
KNOWN = {"zero": np.float32(0), "below": np.float32(-0.0)}
COMPARISONS = ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"]


def results(*nodes: Any) -> tuple[np.ndarray, np.ndarray]:
    """Of the machine, and of onnx's own evaluator; the last node makes the result."""
    read = {name for each in nodes for name in each.input}
    inputs = {name: value for name, value in INPUTS.items() if name in read}
    shapes = {name: value.shape for name, value in inputs.items()}
    source = model([*nodes], shapes, ["out"], **{name: value for name, value in KNOWN.items() if name in read})
    with np.errstate(all="ignore"):
        (right,) = ReferenceEvaluator(onnx.load_from_string(source)).run(None, inputs)
    return compiler.compile(source, "tw2").run(inputs)["out"], right


@pytest.mark.parametrize("kind", COMPARISONS)
@pytest.mark.parametrize("operands", ["x x", "x y"])
def test_a_comparison_that_is_not_so_is_not_the_opposite_one(kind: str, operands: str) -> None:
    found, right = results(
        node(kind, operands, "is"), node("Not", "is", "not"), node("Cast", "not", "out", to=onnx.TensorProto.FLOAT)
    )
    np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("kind, operands", [
    ("Sub", "x x"), ("Mul", "x zero"), ("Mul", "below x"), ("Div", "zero x"), ("Div", "x zero"), ("Div", "x below"),
    ("Div", "x x"), ("Max", "x x"), ("Add", "x zero"), ("Sub", "x zero"), ("Sub", "zero x"),
])  # fmt: skip
def test_arithmetic_of_the_same_or_of_zero(kind: str, operands: str) -> None:
    found, right = results(node(kind, operands, "out"))
    np.testing.assert_array_equal(found, right)


def test_what_is_added_and_taken_away_again() -> None:
    found, right = results(node("Add", "x x", "twice"), node("Sub", "twice x", "out"))
    np.testing.assert_array_equal(found, right)


def test_large_numbers_pass_a_hard_swish() -> None:
    source = model([node("HardSwish", "x", "y")], {"x": (3,)}, ["y"])
    x = np.float32([3e38, 1e38, -3e38])
    np.testing.assert_array_equal(compiler.compile(source, "tw2").run({"x": x})["y"], np.float32([3e38, 1e38, 0]))
