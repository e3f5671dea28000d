"""Models of which clusters divide the head or the tail: where they are cut, and that both together are the whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import compiler
from compiler import driver, graph
from compiler.cli.main import main
from compiler.clusters import clusters_of
from compiler.compilation import Compilation
from compiler.ends import ends_of
from compiler.errors import InvalidError
from compiler.frontend import import_model
from compiler.kernels import Road
from compiler.options import Options
from compiler.report.page.page import page
from compiler.report.profile import profile
from compiler.report.text import summary
from compiler.runtime.loaded import load
from compiler.runtime.model import HostSegment
from compiler.schedule.files import parse_schedule
from compiler.target import load_chip
from passes.graph import divide_batch
from tests.refused_kernels import refuse_node
from tests.test_driver import model, node

pytestmark = pytest.mark.usefixtures("first_tiles")

TW1 = load_chip("tw1")
RNG = np.random.default_rng(9)
# Features of each of a batch, and how like each is to all others.
NODES = [
    node("MatMul", "x w", "a"),
    node("Tanh", "a", "b"),
    node("Add", "b s", "f"),
    node("Transpose", "f", "t", perm=[1, 0]),
    node("MatMul", "f t", "m"),
    node("Add", "m s", "n"),
    node("Softmax", "n", "y", axis=0),
]
WEIGHTS = {"w": RNG.standard_normal((16, 8)).astype(np.float32) / 4}
SHAPES = {"x": (8, 16), "s": (1, 8)}


@pytest.fixture(autouse=True)
def _calls_alone_take_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """And of programs those that are in more pieces take less."""
    monkeypatch.setattr(Compilation, "simulated_cycles", property(lambda found: 4 - len(found.pieces)))
    monkeypatch.setattr(divide_batch, "undivided_cycles", lambda module, chip: 1000.0 * len(calls(module)))
    for name in ("cycles_on_chip", "_part_cycles"):
        monkeypatch.setattr(divide_batch, name, lambda module, chip: 900 * len(calls(module)) / clusters_of(module))


def calls(module: Any) -> list[str]:
    return [call.name for call in graph.read(module["main"]).calls]


def source(nodes: list[Any] = NODES, outputs: tuple[str, ...] = ("y",), **shapes: tuple[int, ...]) -> bytes:
    return model(nodes, shapes or SHAPES, list(outputs), **WEIGHTS)


def check(compiled: compiler.Artifact | Compilation, content: bytes) -> None:
    given = {port.name: RNG.standard_normal(port.shape).astype(np.float32) for port in compiled.model.inputs}
    found = load(compiled.model).run(given, hazards=True)
    expected = ReferenceEvaluator(onnx.load_from_string(content)).run(None, given)
    for port, array in zip(compiled.model.outputs, expected, strict=True):
        np.testing.assert_allclose(found[port.name], array, rtol=1e-4, atol=1e-4)


def test_clusters_divide_what_comes_before_a_call_that_needs_the_whole_batch() -> None:
    content = source(outputs=("y", "b"))
    compilation = driver.compile_model(content, TW1, Options(cache=False))
    assert [piece.clusters for piece in compilation.pieces] == [4, 1]
    head, tail = compilation.ends
    assert calls(head.imported.module) == ["a", "b", "f"]
    assert [port.name for port in compilation.model.outputs] == ["y", "b"]
    assert [each.size_bytes for each in compilation.far_results] == [8 * 8 * 4]
    assert compilation.predicted_cycles == head.predicted_cycles + tail.predicted_cycles
    check(compilation, content)


def test_clusters_divide_what_comes_behind() -> None:
    """A sum over the batch that all of it is divided by stands in front."""
    nodes = [node("Softmax", "x", "p", axis=0), node("MatMul", "p w", "a"), node("Tanh", "a", "y")]
    content = source(nodes, x=(8, 16))
    found = ends_of(import_model(content), TW1)
    assert found is not None and (calls(found.head.module), found.first) == (["p"], ("a",))
    compilation = driver.compile_model(content, TW1, Options(cache=False))
    assert [piece.clusters for piece in compilation.pieces] == [1, 4]
    check(compilation, content)


@pytest.mark.parametrize(("nodes", "shape"), [
    ([node("Tanh", "x", "a"), node("Exp", "a", "y")], (8, 5)),  # all of it can be divided
    ([node("Tanh", "x", "a"), node("Softmax", "a", "y", axis=0)], (7, 5)),  # the batch cannot
    ([node("Softmax", "x", "a", axis=0), node("Tanh", "a", "b"), node("Softmax", "b", "y", axis=0)], (8, 5)),
])  # fmt: skip
def test_other_models_stay_in_one(nodes: list[Any], shape: tuple[int, ...]) -> None:
    assert ends_of(import_model(source(nodes, x=shape)), TW1) is None


def test_it_is_not_cut_where_that_is_thought_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(divide_batch, "undivided_cycles", lambda module, chip: 1000.0)
    assert not driver.compile_model(source(), TW1, Options(cache=False)).ends


def test_it_is_not_cut_where_that_is_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Compilation, "simulated_cycles", property(lambda found: len(found.pieces)))
    assert not driver.compile_model(source(), TW1, Options(cache=False)).ends


def test_a_chip_of_one_cluster_has_nothing_to_divide() -> None:
    assert ends_of(import_model(source()), load_chip("tw2")) is None


def test_several_results_of_a_call_may_be_needed_behind() -> None:
    split = onnx.helper.make_node("Split", ["f"], ["p", "q"], axis=1)
    nodes = [*NODES[:3], split, node("MatMul", "p t", "m"), node("Add", "m q", "y")]
    nodes.insert(4, node("Transpose", "q", "t", perm=[1, 0]))
    content = source([*nodes[:-1], node("Softmax", "m", "y")])
    compilation = driver.compile_model(content, TW1, Options(cache=False))
    assert compilation.ends
    check(compilation, content)


def test_a_head_may_be_cut_once_more(tmp_path: Path) -> None:
    """The buffers of all three have names of their own, which do not tell in which order it was cut."""
    nodes = [
        node("ReduceMean", "x", "m", axes=[0]),
        node("Sub", "x m", "d"),
        node("MatMul", "d w", "a"),
        node("Tanh", "a", "f"),
        node("Mul", "f f", "q"),
        node("ReduceMean", "q", "v", axes=[0]),
        node("Sqrt", "v", "s"),
        node("Div", "f s", "y"),
    ]
    content = source(nodes, outputs=("y", "f"), x=(8, 16))
    compiled = compiler.compile(content, TW1, cache=False)
    assert len(compiled.report.tails) == 2
    check(compiled, content)
    names = [b.name for s in compiled.model.segments for b in s.program.buffers if b.role == "output"]  # type: ignore[union-attr]
    assert len(set(names)) == len(names)
    path = tmp_path / "schedule.toml"
    path.write_text(compiled.schedule)
    again = compiler.compile(content, TW1, schedule=path)
    assert again.schedule == compiled.schedule and again.to_bytes() == compiled.to_bytes()


def test_where_it_was_cut_is_remembered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    first = compiler.compile(source(), TW1)
    monkeypatch.setattr(driver, "_searched", None)
    again = compiler.compile(source(), TW1)
    assert again.to_bytes() == first.to_bytes() and len(again.report.tails) == 1
    assert [kernels.clusters for kernels in driver.last_plans(source(), TW1, Options())] == [4, 1]
    path = tmp_path / "m.onnx"
    path.write_bytes(source())
    capsys.readouterr()
    assert main(["cache", "why", str(path), "--json"]) == 0
    assert {kernel["why_not"] for kernel in json.loads(capsys.readouterr().out)["kernels"]} == {""}
    assert main(["explain", str(path), "y", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["kernels"]) == 1


def test_clusters_divide_what_comes_before_a_host_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_node(monkeypatch, "h", Road("emission", "nobody can"))
    nodes = [*NODES[:3], node("Softmax", "f", "h"), node("Tanh", "h", "i"), node("Tanh", "i", "y")]
    compilation = driver.compile_model(source(nodes), TW1, Options(cache=False))
    assert [piece.clusters for piece in compilation.pieces] == [4, 0, 4]
    kinds = [isinstance(segment, HostSegment) for segment in compilation.model.segments]
    assert kinds == [False, True, False]
    check(compilation, source(nodes))


def test_reports_show_programs_on_other_numbers_of_cores() -> None:
    content = source()
    compiled = compiler.compile(content, TW1, cache=False)
    shown = profile(compiler.load(compiled))
    assert [run.stream.cores for run in shown.runs] == [32, 8]
    queues = (shown.busy["V"], *shown.stalled["V"].values())
    assert sum(queues) == shown.core_cycles == shown.cycles * 32
    assert "<svg" in page(shown)
    assert "then a program of its own for the" in "\n".join(summary(compiled.report, 1.0))


# ---- schedules ---------------------------------------------------------------------------------------------------


def test_a_schedule_says_where_a_model_is_cut(tmp_path: Path) -> None:
    first = compiler.compile(source(), TW1)
    assert 'calls = ["t"]\nclusters = 1\n' in first.schedule
    path = tmp_path / "schedule.toml"
    path.write_text(first.schedule)
    again = compiler.compile(source(), TW1, schedule=path)
    assert again.schedule == first.schedule and again.to_bytes() == first.to_bytes()
    path.write_text(first.schedule.replace("clusters = 1", "clusters = 0"))
    moved = compiler.compile(source(), TW1, schedule=path)
    assert [tail.clusters for tail in moved.report.tails] == [0]
    check(moved, source())


def test_a_tail_may_be_called_by_the_last_one_of_its_kernel(tmp_path: Path) -> None:
    """As pieces are: the product is m, and what follows it n."""
    path = tmp_path / "schedule.toml"
    for name in ("m", "n"):
        path.write_text(
            f'clusters = 0\n[[tail]]\ncalls = ["{name}"]\nclusters = 1\n[pieces]\nf = 1\nt = 1\nn = 1\ny = 1\n'
        )
        found = compiler.compile(source(), TW1, schedule=path)
        assert 'calls = ["m"]' in found.schedule
        check(found, source())


def test_a_schedule_may_say_that_it_is_cut_again(tmp_path: Path) -> None:
    pieces = "".join(f'"{name}" = 1\n' for name in ("f", "n", "y"))
    tails = '\n[[tail]]\ncalls = ["t"]\nclusters = 0\n\n[[tail]]\ncalls = ["y"]\nclusters = 1\n'
    path = tmp_path / "schedule.toml"
    path.write_text(f"clusters = 4\n{tails}\n[pieces]\n{pieces}")
    found = compiler.compile(source(), TW1, schedule=path)
    assert [tail.clusters for tail in found.report.tails] == [0, 1]
    check(found, source())
    path.write_text(found.schedule)
    again = compiler.compile(source(), TW1, schedule=path)
    assert again.schedule == found.schedule and again.to_bytes() == found.to_bytes()


@pytest.mark.parametrize(("tail", "line", "text"), [
    ('[[tail]]\ncalls = ["z"]', 2, "the model has no call z"),
    ('[[tail]]\ncalls = ["a"]', 2, "a tail is some of the calls"),
    ('[[tail]]\ncalls = "a"', 2, "calls of a tail must be a list of names"),
    ('[[tail]]\ncalls = ["t"]\nclusters = -1', 2, "clusters of a tail must be a number of at least 0"),
    ('[[tail]]\ncalls = ["t"]\ncluster = 1', 2, "a tail has no cluster"),
    ('[tail]\ncalls = ["t"]', 2, "tails must be written as [[tail]]"),
    ('[[tail]]\ncalls = ["t"]\nclusters = 4', 2, "4 clusters cannot divide the batch"),
])  # fmt: skip
def test_what_a_tail_cannot_be_is_told_with_its_line(tail: str, line: int, text: str) -> None:
    pieces = "\n".join(f'"{name}" = 1' for name in ("f", "m", "y"))
    with pytest.raises(InvalidError) as caught:
        schedule = parse_schedule(f"clusters = 4\n{tail}\n[pieces]\n{pieces}\n")
        driver.compile_model(source(), TW1, Options(schedule=schedule, cache=False))
    (problem,) = caught.value.problems
    assert text in problem.message and (problem.place.line if problem.place else 0) == line
