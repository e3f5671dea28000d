"""Group norms as models spell them out, and what follows them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from compiler.frontend import Imported, import_model
from tests.frontend.cpu import check
from tests.frontend.models import model, node
from tests.frontend.test_affine_folding import operators

RNG = np.random.default_rng(17)
NORM, MOVED = "tilewright::GroupedNormalization", "Reshape"


def spelled(x: str, groups: int = 2, **known: np.ndarray) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """Six channels in groups, as PyTorch exports it; the result is ``n``."""
    nodes = [
        node("Reshape", f"{x} apart", "grouped"),
        node("InstanceNormalization", "grouped ones zeros", "plain", epsilon=1e-3),
        node("Reshape", "plain back", "together"),
        node("Mul", "together weight", "scaled"),
        node("Add", "bias scaled", "n"),
    ]
    given = {
        "apart": np.array([0, groups, -1]),
        "ones": np.ones(groups, np.float32),
        "zeros": np.zeros(groups, np.float32),
        "back": np.array([2, 6, 5, 4]),
        "weight": RNG.uniform(0.5, 2, (6, 1, 1)).astype(np.float32),
        "bias": RNG.standard_normal((1, 6, 1, 1)).astype(np.float32),
    }
    return nodes, {**given, **known}


def imported_of(nodes: list[onnx.NodeProto], known: dict[str, np.ndarray], **inputs: list[int]) -> Imported:
    shapes = {"x": [2, 6, 5, 4], **inputs}
    given = model(nodes, shapes, ["y"], known)
    imported = import_model(given.SerializeToString())
    check(
        given, imported, {n: RNG.standard_normal(s).astype(np.float32) for n, s in shapes.items()}, rtol=1e-3, atol=1e-4
    )
    return imported


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_one_that_is_spelled_out_is_the_operator(groups: int) -> None:
    nodes, known = spelled("x", groups)
    imported = imported_of([*nodes, node("Neg", "n", "y")], known)
    assert [name for name in operators(imported) if name != MOVED] == ["Neg", NORM]
    assert {len(each) for each in imported.nodes.values()} == {1, 5}


@pytest.mark.parametrize(
    "known",
    [
        {"ones": np.array([1, 2], np.float32)},
        {"zeros": np.array([0, 1], np.float32)},
        {"weight": RNG.standard_normal((5, 1)).astype(np.float32)},
    ],
)
def test_others_stay(known: dict[str, np.ndarray]) -> None:
    nodes, others = spelled("x", **known)
    assert "InstanceNormalization" in operators(imported_of([*nodes, node("Neg", "n", "y")], others))


def test_what_is_read_on_the_way_is_computed() -> None:
    nodes, known = spelled("x")
    assert "InstanceNormalization" in operators(imported_of([*nodes, node("Sub", "n together", "y")], known))


@pytest.mark.parametrize(
    "after, inputs, alone",
    [
        ([node("Relu", "n", "y")], {}, True),
        ([node("Sigmoid", "n", "s"), node("Mul", "n s", "y")], {}, True),
        ([node("Mul", "n half", "m"), node("Clip", "m zero", "y")], {}, True),
        ([node("Add", "n z", "y")], {"z": [2, 6, 5, 4]}, False),
        ([node("Relu", "n", "r"), node("Add", "r z", "y")], {"z": [5, 4]}, False),
    ],
)
def test_what_follows_one_comes_before_its_result_is_reshaped(after: Any, inputs: Any, alone: bool) -> None:
    nodes, known = spelled("x")
    imported = imported_of([*nodes, *after], {**known, "half": np.float32(0.5), "zero": np.float32(0)}, **inputs)
    calls = [str(binding.value.args[0].name_hint) for binding in imported.module["main"].body.blocks[0].bindings]
    assert calls[-1].startswith("reshape") == alone
