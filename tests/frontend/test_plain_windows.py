"""Pools of single elements and of whole maps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.frontend import import_model
from tests.frontend.cpu import check
from tests.frontend.models import model, node
from tests.frontend.test_affine_folding import operators

RNG = np.random.default_rng(11)


@pytest.mark.parametrize(
    "operator, attributes, expected",
    [
        ("MaxPool", {"kernel_shape": [1, 1]}, []),
        ("AveragePool", {"kernel_shape": [1, 1], "strides": [1, 1], "pads": [0] * 4}, []),
        ("AveragePool", {"kernel_shape": [4, 5]}, ["GlobalAveragePool"]),
        ("MaxPool", {"kernel_shape": [4, 5], "strides": [9, 9], "ceil_mode": 1}, ["GlobalMaxPool"]),
        ("MaxPool", {"kernel_shape": [4, 5], "auto_pad": "VALID"}, ["GlobalMaxPool"]),
        ("MaxPool", {"kernel_shape": [1, 1], "strides": [2, 1]}, ["MaxPool"]),
        ("AveragePool", {"kernel_shape": [4, 4]}, ["tilewright::SumPool"]),
        ("AveragePool", {"kernel_shape": [4, 5], "pads": [1, 0, 0, 0]}, ["tilewright::SumPool"]),
        ("MaxPool", {"kernel_shape": [4, 5], "auto_pad": "SAME_UPPER"}, ["MaxPool"]),
    ],
)
def test_windows_of_one_element_or_of_all(operator: str, attributes: dict[str, Any], expected: list[str]) -> None:
    nodes = [node("Relu", "x", "r"), node(operator, "r", "p", **attributes), node("Neg", "p", "y")]
    given = model(nodes, {"x": [2, 3, 4, 5]}, ["y"], {})
    imported = import_model(given.SerializeToString())
    assert operators(imported) == sorted([*expected, "Neg", "Relu"])
    check(given, imported, {"x": RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)}, rtol=1e-5, atol=1e-5)


def test_a_pool_that_does_nothing_may_be_the_whole_model() -> None:
    given = model([node("MaxPool", "x", "y", kernel_shape=[1, 1])], {"x": [1, 2, 3, 3]}, ["y"], {})
    imported = import_model(given.SerializeToString())
    check(given, imported, {"x": RNG.standard_normal((1, 2, 3, 3)).astype(np.float32)}, rtol=0, atol=0)
