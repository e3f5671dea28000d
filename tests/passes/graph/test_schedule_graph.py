"""ScheduleGraph: the calls of main in pieces, the same results, no kernel that only cuts or joins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from compiler import api, driver, graph
from compiler.frontend import import_model
from compiler.pipeline import Observer
from compiler.runtime.loaded import load
from compiler.schedule.automatic import Way
from compiler.schedule.choice import Choice
from compiler.schedule.cuts import Cuts
from compiler.schedule.noted import WAY
from compiler.target import load_chip
from passes.graph import schedule_graph
from passes.graph.group_operators import GroupOperators
from passes.graph.schedule_graph import ScheduleGraph, scheduled
from tests.refused_kernels import refuse_node
from tests.test_driver import model, node

RNG = np.random.default_rng(5)
SHAPES = {"x": (4, 3, 8, 8)}
WEIGHTS = {
    "w": RNG.standard_normal((8, 3, 3, 3)).astype(np.float32),
    "v": RNG.standard_normal((8, 8, 1, 1)).astype(np.float32),
    "u": RNG.standard_normal((512, 5)).astype(np.float32),
}
NODES = [
    node("Conv", "x w", "a", pads=[1, 1, 1, 1]),
    node("Relu", "a", "b"),
    node("Conv", "b v", "c"),
    node("Add", "c b", "d"),
    node("MaxPool", "d", "e", kernel_shape=[2, 2], strides=[2, 2]),
    node("Conv", "e v", "f"),
    node("Add", "f e", "g"),
    node("Concat", "g e f g", "h", axis=1),
    node("Flatten", "h", "i"),
    node("MatMul", "i u", "y"),
]


def grouped(nodes: list[Any], outputs: list[str], chip: str = "tiny") -> Any:
    module = import_model(model(nodes, SHAPES, outputs, **WEIGHTS)).module
    return GroupOperators().run(module, load_chip(chip))


def calls(module: Any) -> list[str]:
    return [f"{call.name}: {call.callee}" for call in graph.read(module["main"]).calls]


def test_calls_in_pieces() -> None:
    nodes = [node("Softmax", "x", "a"), node("Exp", "a", "b"), node("Softmax", "b", "y")]
    module = grouped(nodes, ["y"])
    before = graph.read(module["main"])
    assert len(before.calls) == 2
    after = scheduled(module, before, Cuts(module), [2, 2])
    body = graph.read(after["main"])
    kinds = [str(graph.attribute(after[call.callee], "tw.group")) for call in body.calls]
    assert kinds == ["movement", "softmax", "softmax", "movement", "softmax", "softmax", "movement"]
    shapes = [tuple(int(n) for n in call.types[0].shape) for call in body.calls]
    assert shapes == [(2, 3, 8, 8)] * 6 + [(4, 3, 8, 8)]
    assert body.calls[1].callee == body.calls[4].callee  # pieces share their kernels
    assert [str(name) for name in after[body.calls[1].callee].attrs["tw.calls"]] == [
        str(name) for name in module[before.calls[0].callee].attrs["tw.calls"]
    ]


def test_what_fits_stays_whole() -> None:
    module = grouped(NODES, ["y"])
    assert ScheduleGraph().run(module, load_chip("tiny")) is module
    assert ScheduleGraph().run(module, load_chip("tw1")) is module  # where no LLB is everybody's


@pytest.mark.usefixtures("as_planned")
@pytest.mark.parametrize(("counts", "outputs"), [
    ([4, 4, 4, 4, 4, 4, 4], ["y"]),
    ([4, 4, 2, 2, 2, 1, 1], ["y"]),
    ([2, 2, 4, 4, 1, 1, 1], ["y"]),
    ([1, 2, 2, 1, 4, 4, 4], ["y"]),
    ([4, 2, 2, 2, 2, 2, 2], ["b", "e", "y"]),
])  # fmt: skip
def test_results_are_the_same(counts: list[int], outputs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    _force(monkeypatch, counts)
    source = model(NODES, SHAPES, outputs, **WEIGHTS)
    x = RNG.standard_normal(SHAPES["x"]).astype(np.float32)
    compilation = driver.compile_model(source, load_chip("tiny"))
    assert len(compilation.steps) > len(counts)
    found = api.compile(source, "tiny").run({"x": x}, hazards=True)
    expected = ReferenceEvaluator(onnx.load_from_string(source)).run(None, {"x": x})
    for name, array in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("first_tiles")
def test_reports_name_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    _force(monkeypatch, [4, 4, 4, 4, 4, 4, 4])
    compilation = driver.compile_model(model(NODES, SHAPES, ["y"], **WEIGHTS), load_chip("tiny"))
    named = {node for step in compilation.steps for node in step.nodes}
    assert named <= {each.name for each in NODES}


def _force(monkeypatch: pytest.MonkeyPatch, counts: list[int]) -> None:
    """So many pieces for each call that is no view, whatever fits."""

    def forced(module: Any, cuts: Cuts, chip: Any) -> Way:
        del chip
        body = graph.read(module["main"])
        found, given = list[int](), iter(counts)
        for call in body.calls:
            is_view = graph.attribute(module[call.callee], "tw.schedule") == "view"
            found.append(found[-1] if is_view and found else next(given))
            assert found[-1] in cuts.counts(call, [2, 4], frozenset(body.params))
        return Way(Choice(tuple(range(len(found))), tuple(found), 0))

    monkeypatch.setattr(schedule_graph, "fits", lambda storage, chip: False)
    monkeypatch.setattr(schedule_graph, "best_way", forced)


@pytest.mark.usefixtures("first_tiles")
def test_a_model_that_does_not_fit_is_cut() -> None:
    """On tiny: 128 KiB of LLB, and DDR of eight bytes in a cycle."""
    nodes = [node("Softmax", "x", "a"), node("Softmax", "a", "b", axis=2), node("Softmax", "b", "y")]
    source = model(nodes, {"x": (16, 4, 64, 16)}, ["y"])
    x = RNG.standard_normal((16, 4, 64, 16)).astype(np.float32)
    expected = ReferenceEvaluator(onnx.load_from_string(source)).run(None, {"x": x})[0]
    cycles = []
    for without in (frozenset[str](), frozenset({"schedule-graph"})):
        compilation = driver.compile_model(source, load_chip("tiny"), observer=Observer(without=without))
        loaded = load(compilation.model)
        np.testing.assert_allclose(loaded.run({"x": x}, hazards=True)["y"], expected, rtol=1e-4, atol=1e-4)
        cycles.append(loaded.cycles)
    assert cycles[0] < cycles[1]


def test_a_way_that_was_found_before_is_not_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    module = grouped(NODES, ["y"])
    count = len(graph.read(module["main"]).calls)
    _force(monkeypatch, [4, 4, 2, 2, 2, 1, 1])
    searched = ScheduleGraph().run(module, load_chip("tiny"))
    found = Way.of(graph.attribute(searched["main"], WAY))
    assert found is not None
    assert Way.of(found.numbers) == found
    monkeypatch.setattr(schedule_graph, "best_way", lambda *_: Way(Choice(tuple(range(count)), (1,) * count, 7)))
    again = ScheduleGraph(found=found).run(module, load_chip("tiny"))
    assert calls(again) == calls(searched)
    for wrong in (
        replace(found.choice, order=found.choice.order[::-1]),
        replace(found.choice, order=found.choice.order[:-1]),
        replace(found.choice, counts=(3,) * count),
        replace(found.choice, counts=(0,) * count),
    ):
        other = ScheduleGraph(found=Way(wrong)).run(module, load_chip("tiny"))
        assert Way.of(graph.attribute(other["main"], WAY)) == Way(Choice(tuple(range(count)), (1,) * count, 7))


@pytest.mark.usefixtures("as_planned")
def test_the_host_gets_whole_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs on the host reads tensors that are no parts: then nothing is cut."""
    _force(monkeypatch, [4, 4, 4, 4, 4, 4, 4])
    refuse_node(monkeypatch, "e")
    source = model(NODES, SHAPES, ["y"], **WEIGHTS)
    compilation = driver.compile_model(source, load_chip("tiny"))
    assert sum(step.host is not None for step in compilation.steps) == 1
    x = RNG.standard_normal(SHAPES["x"]).astype(np.float32)
    expected = ReferenceEvaluator(onnx.load_from_string(source)).run(None, {"x": x})[0]
    np.testing.assert_allclose(api.compile(source, "tiny").run({"x": x})["y"], expected, rtol=1e-4, atol=1e-4)
