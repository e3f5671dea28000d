"""DivideBatch: main becomes what one cluster runs, for as many as can run it and are thought fastest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from compiler import driver, graph, one_piece
from compiler.clusters import CLUSTERS, TOGETHER, clusters_of, common_parameters, rivals_of, together
from compiler.compilation import Compilation
from compiler.frontend import import_model
from compiler.model_kernels import ModelKernels
from compiler.options import Options
from compiler.runtime.loaded import load
from compiler.target import load_chip
from passes.graph import divide_batch
from passes.graph.divide_batch import DivideBatch
from passes.graph.group_operators import GroupOperators
from tests.test_driver import model, node

TW1 = load_chip("tw1")
RNG = np.random.default_rng(9)
NODES = [
    node("Conv", "x k", "c", pads=[1, 1, 1, 1]),
    node("Relu", "c", "r"),
    node("Flatten", "r", "f"),
    node("MatMul", "f w", "m"),
    node("Add", "m s", "a"),
    node("Softmax", "a", "y"),
]
WEIGHTS = {
    "k": RNG.standard_normal((6, 3, 3, 3)).astype(np.float32),
    "w": RNG.standard_normal((6 * 9 * 7, 10)).astype(np.float32),
}
SHAPES = {"x": (8, 3, 9, 7), "s": (1, 10)}


@pytest.fixture(autouse=True)
def _more_are_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(divide_batch, "undivided_cycles", lambda module, chip: float("inf"))
    for name in ("cycles_on_chip", "_part_cycles"):
        monkeypatch.setattr(divide_batch, name, lambda module, chip: 1 / clusters_of(module))


def divided(nodes: list[Any], shapes: dict[str, tuple[int, ...]], outputs: list[str], chip: Any = TW1) -> Any:
    weights = {name: array for name, array in WEIGHTS.items() if any(name in each.input for each in nodes)}
    module = GroupOperators().run(import_model(model(nodes, shapes, outputs, **weights)).module, chip)
    return module, DivideBatch().run(module, chip)


def shapes_of(module: Any) -> list[tuple[int, ...]]:
    return [tuple(int(n) for n in call.types[0].shape) for call in graph.read(module["main"]).calls]


@pytest.mark.parametrize("shape", [(3, 5), (4, 0)])
def test_a_result_that_nothing_makes_has_to_have_parts_as_well(shape: tuple[int, ...]) -> None:
    source = model([node("Relu", "x", "y")], {"x": (4, 3)}, ["known", "y"], known=np.ones(shape, np.float32))
    module = GroupOperators().run(import_model(source).module, TW1)
    assert clusters_of(DivideBatch().run(module, TW1)) == 1


def test_main_is_that_of_one_cluster() -> None:
    before, after = divided(NODES, SHAPES, ["y", "r"])
    assert clusters_of(after) == 4
    assert [graph.shape_of(param) for param in graph.read(after["main"]).params] == [
        (2, 3, 9, 7), (1, 10), *(graph.shape_of(param) for param in graph.read(before["main"]).params[2:]),
    ]  # fmt: skip
    assert shapes_of(after) == [(2, *shape[1:]) for shape in shapes_of(before)]
    assert [call.name for call in graph.read(after["main"]).calls] == [
        call.name for call in graph.read(before["main"]).calls
    ]


@pytest.mark.parametrize(("nodes", "shapes"), [
    (NODES, {**SHAPES, "x": (7, 3, 9, 7)}),  # not as many for each
    ([node("Softmax", "x", "a", axis=0), node("Exp", "a", "b"), node("Softmax", "b", "y")], {"x": (8, 5)}),
    ([node("MatMul", "x x", "y")], {"x": (8, 8)}),  # the same input in pieces and as a whole
    ([node("Transpose", "x", "t"), node("MatMul", "t z", "y")], {"x": (8, 8), "z": (8, 3)}),
])  # fmt: skip
def test_what_crosses_the_batch_is_not_divided(nodes: list[Any], shapes: dict[str, tuple[int, ...]]) -> None:
    before, after = divided(nodes, shapes, ["y"])
    assert clusters_of(after) == 1
    assert shapes_of(after) == shapes_of(before)


@pytest.mark.parametrize(("batch", "clusters"), [(6, 3), (10, 2), (12, 4), (1, 1)])
def test_as_many_clusters_run_it_as_divide_the_batch(batch: int, clusters: int) -> None:
    shapes = {**SHAPES, "x": (batch, 3, 9, 7)}
    before, after = divided(NODES, shapes, ["y"])
    assert clusters_of(after) == clusters
    assert shapes_of(after) == [(batch // clusters, *shape[1:]) for shape in shapes_of(before)]
    check(model(NODES, shapes, ["y", "r"], **WEIGHTS), shapes, clusters)


RECURRENT = {
    "kernel": RNG.standard_normal((1, 12, 5)).astype(np.float32),
    "recurrence": RNG.standard_normal((1, 12, 3)).astype(np.float32),
}


def lstm(**attributes: Any) -> Any:
    inputs, outputs = ["t", "kernel", "recurrence"], ["all", "last"]
    return onnx.helper.make_node("LSTM", inputs, outputs, name="lstm", hidden_size=3, **attributes)


def test_steps_of_a_recurrence_are_not_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, array in RECURRENT.items():
        monkeypatch.setitem(WEIGHTS, name, array)
    before, after = divided([node("LSTM", "x kernel recurrence", "y", hidden_size=3)], {"x": (8, 4, 5)}, ["y"])
    assert clusters_of(after) == 1
    assert shapes_of(after) == shapes_of(before)


@pytest.mark.parametrize("outputs", [["y"], ["z"], ["y", "z"]])
def test_rows_of_a_recurrence_are(outputs: list[str]) -> None:
    """Whichever of its results are read: batch is the axis of another number in each of them."""
    nodes = [
        node("Transpose", "x", "t", perm=[1, 0, 2]),
        lstm(),
        node("Transpose", "all", "y", perm=[2, 0, 1, 3]),
        node("Exp", "last", "e"),
        node("Transpose", "e", "z", perm=[1, 0, 2]),
    ]
    check(model(nodes, {"x": (16, 4, 5)}, outputs, **RECURRENT), {"x": (16, 4, 5)})


def test_rows_of_a_recurrence_take_their_states_along(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, array in RECURRENT.items():
        monkeypatch.setitem(WEIGHTS, name, np.concatenate([array, array]))
    nodes = [
        node("Transpose", "x", "t", perm=[1, 0, 2]),
        lstm(direction="bidirectional"),
        node("Transpose", "last", "y", perm=[1, 0, 2]),
    ]
    before, after = divided(nodes, {"x": (16, 4, 5)}, ["y"])
    assert clusters_of(after) == 4
    assert (16, 2, 3) in {graph.shape_of(param) for param in graph.read(before["main"]).params}
    assert (4, 2, 3) in {graph.shape_of(param) for param in graph.read(after["main"]).params}


def test_who_said_how_many_clusters_divide_it_is_heard() -> None:
    imported = together(import_model(model(NODES, SHAPES, ["y"], **WEIGHTS)))
    module = GroupOperators().run(imported.module, TW1)
    assert DivideBatch().run(module, TW1) is module
    assert int(module["main"].attrs[CLUSTERS]) == TOGETHER


@pytest.mark.parametrize("chip", ["tiny", "tw2"])
def test_a_chip_of_one_cluster_has_none_to_divide_among(chip: str) -> None:
    before, after = divided(NODES, SHAPES, ["y"], load_chip(chip))
    assert after is before


def test_it_is_done_where_it_is_thought_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(divide_batch, "undivided_cycles", lambda module, chip: 0.0)
    before, after = divided(NODES, SHAPES, ["y"])
    assert clusters_of(after) == TOGETHER and shapes_of(after) == shapes_of(before)


def test_what_clusters_have_in_common_is_known() -> None:
    _, after = divided(NODES, SHAPES, ["y"])
    params = graph.read(after["main"]).params
    common = common_parameters(after)
    assert params[0] not in common and common == list(params[1:])


def test_of_few_calls_other_ways_are_compiled_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly as good are two clusters and all together; one alone is not."""
    thought = {TOGETHER: 100.0, 1: 151.0, 2: 120.0, 4: 90.0}
    monkeypatch.setattr(divide_batch, "undivided_cycles", lambda module, chip: thought[TOGETHER])
    for name in ("cycles_on_chip", "_part_cycles"):
        monkeypatch.setattr(divide_batch, name, lambda module, chip: thought[clusters_of(module)])
    before, after = divided(NODES[3:4], {"f": (8, 378)}, ["m"])
    assert clusters_of(after) == 4 and sorted(rivals_of(after)) == [TOGETHER, 2]
    monkeypatch.setattr(divide_batch, "FEW", 3)
    _, after = divided(NODES, SHAPES, ["y"])
    assert clusters_of(after) == 4 and not rivals_of(after)
    assert DivideBatch(told=TOGETHER).run(before, TW1) is before
    assert clusters_of(DivideBatch(told=2).run(before, TW1)) == 2


def test_the_fastest_of_all_ways_is_taken_and_remembered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    monkeypatch.setattr(divide_batch, "undivided_cycles", lambda module, chip: 100.0)
    for name in ("cycles_on_chip", "_part_cycles"):
        monkeypatch.setattr(divide_batch, name, lambda module, chip: 100.0)
    cycles = {TOGETHER: 50.0, 1: 70.0, 2: 40.0, 4: 60.0}
    monkeypatch.setattr(Compilation, "simulated_cycles", property(lambda self: cycles[self.clusters]))
    source = model(
        [node("MatMul", "x w", "y")], {"x": (8, 16)}, ["y"], w=RNG.standard_normal((16, 8)).astype(np.float32)
    )
    assert driver.compile_model(source, TW1).clusters == 2
    monkeypatch.setattr(driver, "_searched", None)
    assert driver.compile_model(source, TW1).clusters == 2


def test_ways_far_behind_are_not_compiled_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What calls that share kernels save may change the order of what is close."""
    monkeypatch.setattr(divide_batch, "undivided_cycles", lambda module, chip: 100.0)
    for name in ("cycles_on_chip", "_part_cycles"):
        monkeypatch.setattr(divide_batch, name, lambda module, chip: 100.0)
    cycles, ended = {TOGETHER: 102, 1: 106, 2: 100, 4: 101}, {TOGETHER: 102, 1: 50, 2: 100, 4: 99}
    monkeypatch.setattr(Compilation, "simulated_cycles", property(lambda self: cycles[self.clusters]))
    gone_on = set[int]()

    def kept_or_not(apart: ModelKernels, alone: Compilation) -> Compilation:
        gone_on.add(alone.clusters)
        cycles[alone.clusters] = ended[alone.clusters]
        return alone

    monkeypatch.setattr(one_piece, "_kept_or_not", kept_or_not)
    weights = RNG.standard_normal((16, 8)).astype(np.float32)
    source = model([node("MatMul", "x w", "y")], {"x": (8, 16)}, ["y"], w=weights)
    assert driver.compile_model(source, TW1, Options(cache=False)).clusters == 4
    assert gone_on == {TOGETHER, 2, 4}


def test_results_are_those_of_the_whole_batch() -> None:
    check(model(NODES, SHAPES, ["y", "r"], **WEIGHTS), SHAPES)


def check(source: bytes, shapes: dict[str, tuple[int, ...]], clusters: int = 4) -> None:
    given = {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    compilation = driver.compile_model(source, TW1)
    assert compilation.clusters == clusters
    found = load(compilation.model).run(given, hazards=True)
    expected = ReferenceEvaluator(onnx.load_from_string(source)).run(None, given)
    for name, array in zip(compilation.model.outputs, expected, strict=True):
        np.testing.assert_allclose(found[name.name], array, rtol=1e-4, atol=1e-4)


def test_the_batch_may_stand_on_another_axis_between() -> None:
    """Queries, keys and values of one product, taken apart by a transposition: [3, batch, heads, tokens, size]."""
    nodes = [
        node("MatMul", "x w", "m"),
        node("Reshape", "m split", "r"),
        node("Transpose", "r", "t", perm=[2, 0, 3, 1, 4]),
        *(node("Gather", f"t {name}", part, axis=0) for name, part in zip(("n0", "n1", "n2"), "qkv", strict=True)),
        node("Transpose", "k", "kt", perm=[0, 1, 3, 2]),
        node("MatMul", "q kt", "s"),
        node("Softmax", "s", "p"),
        node("MatMul", "p v", "c"),
        node("Transpose", "c", "ct", perm=[2, 0, 1, 3]),  # tokens first
        node("Exp", "ct", "e"),
        node("Transpose", "e", "back", perm=[1, 0, 2, 3]),
        node("Reshape", "back join", "y"),
    ]
    numbers = {f"n{part}": np.array(part) for part in range(3)}
    shapes = {"split": np.array([4, 6, 3, 2, 8]), "join": np.array([4, 6, 16])}
    weights = {"w": RNG.standard_normal((16, 48)).astype(np.float32) / 4}
    check(model(nodes, {"x": (4, 6, 16)}, ["y"], numbers | shapes, **weights), {"x": (4, 6, 16)})


def test_constants_go_in_pieces_or_are_picked_from() -> None:
    """A token of each sample, which an exporter has written out, and pairs of all features."""
    nodes = [
        node("Concat", "token x", "c", axis=1),
        node("Gather", "c lower", "g", axis=1),
        node("Exp", "both", "whole"),  # the same for all
        node("Mul", "g whole", "y"),
    ]
    token = RNG.standard_normal((8, 2)).astype(np.float32)
    shapes = {"x": (8, 6), "both": (1, 4)}
    source = model(nodes, shapes, ["y"], {"lower": np.array([5, 1, 0, 7])}, token=token)
    check(source, shapes)
