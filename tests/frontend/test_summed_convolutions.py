"""Branches that are linear in the same map become one convolution."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from compiler.frontend import import_model
from tests.frontend.cpu import check
from tests.frontend.models import model, node
from tests.frontend.test_affine_folding import NORM, operators

RNG = np.random.default_rng(7)
CONVOLUTION = ["tilewright::Convolution"]


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def branch(name: str, x: str = "x", **attributes: Any) -> onnx.NodeProto:
    return node("Conv", f"{x} w{name} b{name}", name, name=name, **attributes)


def weights(first: tuple[int, ...], second: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {"wa": floats(*first), "ba": floats(first[0]), "wc": floats(*second), "bc": floats(second[0])}


def norm(channels: int) -> dict[str, np.ndarray]:
    return {name: np.abs(floats(channels)) + np.float32(0.5) for name in NORM}


@pytest.mark.parametrize(
    "x, first, second, of_first, of_second",
    [
        ((2, 5, 6, 7), (4, 5, 3, 3), (4, 5, 1, 1), {"pads": [1] * 4}, {}),
        ((2, 5, 6, 7), (4, 5, 1, 1), (4, 5, 3, 3), {}, {"pads": [1] * 4}),
        ((1, 20, 7, 7), (18, 20, 3, 3), (18, 20, 1, 1), {"pads": [1] * 4, "strides": [2, 2]}, {"strides": [2, 2]}),
        ((1, 20, 6, 6), (20, 1, 5, 5), (20, 1, 3, 3), *({"pads": [k] * 4, "group": 20} for k in (2, 1))),
        (
            (1, 6, 9, 9),
            (6, 3, 3, 1),
            (6, 3, 1, 1),
            {"pads": [2, 0, 2, 0], "dilations": [2, 1], "group": 2},
            {"group": 2},
        ),
        ((1, 4, 6, 6), (4, 4, 3, 3), (4, 4, 3, 3), {"pads": [1] * 4}, {"pads": [1] * 4}),
        ((2, 4, 9), (3, 4, 3), (3, 4, 2), {"pads": [1, 1]}, {"pads": [1, 0]}),
        ((1, 4, 6, 6), (4, 4, 3, 3), (4, 4, 1, 1), {"pads": [0, 0, 2, 2]}, {}),
    ],
)
def test_two_convolutions_of_a_map(
    x: tuple[int, ...], first: tuple[int, ...], second: tuple[int, ...], of_first: Any, of_second: Any
) -> None:
    nodes = [branch("a", **of_first), branch("c", **of_second), node("Add", "a c", "y", name="sum")]
    given = model(nodes, {"x": list(x)}, ["y"], weights(first, second))
    imported = import_model(given.SerializeToString())
    assert operators(imported) == CONVOLUTION
    assert set(*imported.nodes.values()) == {"a", "c", "sum"}
    check(given, imported, {"x": floats(*x)}, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("group, channels", [(1, 6), (2, 6), (20, 20), (1, 35)])
@pytest.mark.parametrize("kernel", [1, 3])
def test_three_branches_of_which_one_only_normalises(group: int, channels: int, kernel: int) -> None:
    nodes = [
        branch("a", pads=[kernel // 2] * 4, group=group),
        branch("c", group=group),
        node("BatchNormalization", f"x {' '.join(NORM)}", "n"),
        node("Add", "n a", "s"),
        node("Add", "s c", "t"),
        node("Relu", "t", "y"),
    ]
    known = weights((channels, channels // group, kernel, kernel), (channels, channels // group, 1, 1))
    given = model(nodes, {"x": [2, channels, 5, 6]}, ["y"], {**known, **norm(channels)})
    imported = import_model(given.SerializeToString())
    is_affine = group == channels and kernel == 1  # of channels alone all the way
    assert is_affine or operators(imported) == ["Relu", *CONVOLUTION]
    check(given, imported, {"x": floats(2, channels, 5, 6)}, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "nodes, outputs",
    [
        ([branch("a", pads=[1] * 4), branch("c", "z"), node("Add", "a c", "y")], ["y"]),  # of another map
        ([branch("a", pads=[1] * 4), branch("c"), node("Add", "a c", "y")], ["y", "c"]),  # read by others
        ([branch("a", pads=[0, 0, 2, 2]), branch("c", pads=[2, 2, 0, 0]), node("Add", "a c", "y")], ["y"]),
        ([branch("a", pads=[1] * 4), node("Mul", "x q", "c"), node("Add", "a c", "y")], ["y"]),
        ([branch("a"), node("Add", "a a", "y")], ["y"]),
    ],
)
def test_what_differs_stays(nodes: list[onnx.NodeProto], outputs: list[str]) -> None:
    is_odd = any("c" in each.output and list(each.attribute) for each in nodes)
    known = {**weights((4, 4, 3, 3), (4, 4, 3, 3) if is_odd else (4, 4, 1, 1)), "q": floats(1, 4, 6, 1)}
    given = model(nodes, {"x": [1, 4, 6, 6], "z": [1, 4, 6, 6]}, outputs, known)
    imported = import_model(given.SerializeToString())
    assert "Add" in operators(imported)
    check(given, imported, {"x": floats(1, 4, 6, 6), "z": floats(1, 4, 6, 6)}, rtol=1e-4, atol=1e-4)


def test_branches_of_depthwise_kernels_that_are_normalised() -> None:
    """As MobileOne has them: of one element, of nine, and of none."""
    norms = [" ".join(f"{name}{at}" for name in NORM) for at in range(3)]
    nodes = [
        branch("a", pads=[1] * 4, group=6),
        branch("c", group=6),
        *(node("BatchNormalization", f"{x} {norms[at]}", f"n{at}") for at, x in enumerate("acx")),
        node("Add", "n0 n1", "s"),
        node("Add", "s n2", "y"),
    ]
    known = weights((6, 1, 3, 3), (6, 1, 1, 1))
    for at in range(3):
        known |= {f"{name}{at}": array for name, array in norm(6).items()}
    given = model(nodes, {"x": [2, 6, 5, 4]}, ["y"], known)
    imported = import_model(given.SerializeToString())
    assert operators(imported) == CONVOLUTION
    check(given, imported, {"x": floats(2, 6, 5, 4)}, rtol=1e-4, atol=1e-4)
