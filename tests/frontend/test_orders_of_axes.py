"""Elementwise work between transpositions, against onnxruntime, and how many of these are left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler import api, graph
from compiler.frontend import import_model
from tests.frontend.cpu import check
from tests.frontend.models import model, node

pytestmark = pytest.mark.usefixtures("as_planned")

RNG = np.random.default_rng(6)
LAST, FIRST = [0, 2, 3, 1], [0, 3, 1, 2]
MAP = (2, 4, 6, 5)  # channels first
WEIGHTS = RNG.standard_normal((4, 4, 3, 3)).astype(np.float32) * 0.3


def drawn(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def conv(x: str, y: str) -> list[Any]:
    return [node("Conv", f"{x} w", y, pads=[1, 1, 1, 1])]


def last(x: str, y: str) -> list[Any]:
    return [node("Transpose", x, y, perm=LAST)]


def first(x: str, y: str) -> list[Any]:
    return [node("Transpose", x, y, perm=FIRST)]


def moves(nodes: list[Any], outputs: str, constants: dict[str, Any] | None = None, opset: int = 13) -> int:
    """How many transpositions are left of a network of "x", which is checked."""
    network = model(nodes, {"x": list(MAP)}, outputs.split(), {"w": WEIGHTS, **(constants or {})}, opset=opset)
    imported = import_model(network.SerializeToString())
    check(network, imported, {"x": drawn(*MAP)})
    calls = graph.read(imported.module["main"]).calls
    return sum(graph.attribute(imported.module[call.callee], "tw.operator") == "Transpose" for call in calls)


def test_nothing_is_moved_between_convolutions() -> None:
    nodes = [*conv("x", "a"), *last("a", "b"), node("Mul", "b s", "c"), node("Add", "c t", "d")]
    nodes += [node("Max", "d zero", "e"), *first("e", "f"), *conv("f", "y")]
    known = {"s": drawn(4), "t": drawn(1, 1, 4), "zero": np.float32(0)}
    assert moves(nodes, "y", known) == 0


@pytest.mark.parametrize("opset", [11, 13, 18])
def test_branches_joins_and_gates_are_in_the_order_around_them(opset: int) -> None:
    axes = {} if opset == 18 else {"axes": [1, -2]}
    mean = node("ReduceMean", "b axes" if opset == 18 else "b", "m", keepdims=1, **axes)
    nodes = [*conv("x", "a"), *last("a", "b"), mean, node("Sigmoid", "m", "g"), node("Mul", "b g", "c")]
    nodes += [*first("c", "d"), *conv("d", "e"), *last("e", "f"), node("Add", "f b", "h")]
    nodes += [node("Concat", "h c", "j", axis=3), *first("j", "k"), *first("h", "l"), node("Conv", "l w", "y")]
    assert moves(nodes, "y k", {"axes": np.array([1, -2])} if opset == 18 else {}, opset) == 0


def test_what_others_read_is_moved_for_them() -> None:
    nodes = [*conv("x", "a"), *last("a", "b"), *conv("a", "e"), *last("e", "f"), node("Add", "b f", "c")]
    nodes += [node("Relu", "c", "d"), *first("d", "y")]
    assert moves(nodes, "y") == 0
    assert moves(nodes, "y d") == 1  # of one that was three
    assert moves([*nodes, node("Softmax", "b", "s")], "y s") == 1


def test_nothing_changes_where_as_much_is_moved() -> None:
    nodes = [*conv("x", "a"), *last("a", "b"), node("Relu", "b", "c"), node("Softmax", "c", "y")]
    assert moves(nodes, "y") == 1
    order = [0, 2, 1, 3]
    nodes = [*conv("x", "a"), *last("a", "b"), node("Relu", "b", "c"), node("Transpose", "c", "y", perm=order)]
    assert moves(nodes, "y") == 2


def test_known_numbers_are_moved_when_it_is_compiled() -> None:
    nodes = [*last("x", "b"), node("PRelu", "b slope", "c"), node("Sub", "each c", "d"), *first("d", "y")]
    assert moves(nodes, "y", {"slope": drawn(4), "each": drawn(6, 5, 4)}) == 0


def test_results_that_are_the_same_are_one_but_as_outputs() -> None:
    nodes = [*last("x", "b"), node("Relu", "b", "c"), *first("c", "d"), *first("c", "e"), node("Add", "d e", "y")]
    assert moves(nodes, "y") == 0
    assert moves(nodes, "y d e") == 2


def test_a_network_with_channels_last_takes_less() -> None:
    nodes = [*conv("x", "a"), *last("a", "b"), node("Mul", "b s", "c"), node("Relu", "c", "e")]
    nodes += [*first("e", "f"), *conv("f", "y")]
    artifact = api.compile(model(nodes, {"x": list(MAP)}, ["y"], {"w": WEIGHTS, "s": drawn(4)}), "tiny", cache=False)
    assert len(artifact.report.kernels) <= 2


def test_a_part_may_read_what_it_makes_turned() -> None:
    """An order that undoes itself is both before and behind the part."""
    turn = {"perm": [0, 1, 3, 2]}
    nodes = [node("Transpose", "x", "b", **turn), node("Relu", "b", "c"), node("Transpose", "c", "d", **turn)]
    nodes += [node("Add", "c d", "e"), node("Transpose", "e", "y", **turn)]
    network = model(nodes, {"x": [2, 3, 4, 4]}, ["y"])
    imported = import_model(network.SerializeToString())
    check(network, imported, {"x": drawn(2, 3, 4, 4)})


def block(residual: str, y: str, *, grn: bool = False) -> list[Any]:
    """A ConvNeXt block with channels last behind its convolution; "x" is its input."""
    nodes = [node("Conv", "x dw", "a", pads=[1, 1, 1, 1], group=16), *last("a", "b")]
    nodes += [node("LayerNormalization", "b g be", "c", axis=-1), node("MatMul", "c w1", "d"), node("Add", "d b1", "e")]
    nodes.append(node("Gelu", "e", "f", approximate="none"))
    if grn:
        nodes += [node("ReduceL2", "f places", "n", keepdims=1), node("ReduceMean", "n channels", "m", keepdims=1)]
        nodes += [node("Add", "m small", "m1"), node("Div", "n m1", "q"), node("Mul", "f q", "h")]
    nodes += [node("MatMul", "h w2" if grn else "f w2", "i"), node("Mul", "i s", "j"), *first("j", "k")]
    return [*nodes, node("Add", f"{residual} k", y)]


def in_a_block(nodes: list[Any], outputs: str, batch: int = 2, side: int = 8) -> tuple[int, set[str]]:
    """How many transpositions are left of a network of blocks, which is checked, and which other operators."""
    known = {"dw": drawn(16, 1, 3, 3), "g": drawn(16), "be": drawn(16), "w1": drawn(16, 32) * 0.3, "b1": drawn(32)}
    known |= {"w2": drawn(32, 16) * 0.3, "s": drawn(16), "small": np.float32(1e-6)}
    known |= {"places": np.array([1, 2]), "channels": np.array([-1])}
    shape = [batch, 16, side, side]
    network = model(nodes, {"x": shape}, outputs.split(), known, opset=20)
    imported = import_model(network.SerializeToString())
    check(network, imported, {"x": drawn(*shape)})
    module = imported.module
    named = [str(graph.attribute(module[c.callee], "tw.operator")) for c in graph.read(module["main"]).calls]
    return named.count("Transpose"), set(named) - {"Transpose", "Reshape"}


@pytest.mark.parametrize("grn", [False, True])
def test_products_and_norms_along_the_last_axis_are_of_channels(grn: bool) -> None:
    left, operators = in_a_block(block("x", "y", grn=grn), "y")
    assert left == 0
    assert "MatMul" not in operators and "tilewright::ChannelNormalization" in operators


def test_what_somebody_reads_with_channels_last_stays_so() -> None:
    left, operators = in_a_block(block("x", "y"), "y i")
    assert left == 2
    assert "MatMul" in operators


def test_norms_of_few_places_stay_between_transpositions() -> None:
    left, operators = in_a_block(block("x", "y"), "y", batch=6, side=5)
    assert left == 2
    assert "MatMul" in operators
