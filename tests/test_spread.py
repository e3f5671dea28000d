"""Parts of models that clusters run each on some rows of images: that they are the whole, and where it is worth it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import compiler
from compiler import driver, graph
from compiler.clusters import by_rows, clusters_of
from compiler.codegen.link import _Linker
from compiler.codegen.residence import GraphBuffer, Place
from compiler.compilation import Compilation
from compiler.errors import InvalidError
from compiler.frontend import Imported, import_model
from compiler.options import Options
from compiler.pipeline import Observer
from compiler.report.compilation import report_of
from compiler.report.text import summary
from compiler.runtime.loaded import load
from compiler.schedule.files import parse_schedule
from compiler.schedule.spreads import Section
from compiler.spread import in_sections
from compiler.target import load_chip
from models.zoo import build
from tests.schedule import random_sections
from tests.test_driver import model, node

TW1 = load_chip("tw1")
RNG = np.random.default_rng(4)
SHAPES = {"x": (1, 4, 64, 40)}
WEIGHTS = {
    "w": RNG.standard_normal((8, 4, 3, 3)).astype(np.float32) / 6,
    "v": RNG.standard_normal((8, 8, 3, 3)).astype(np.float32) / 8,
    "u": RNG.standard_normal((8, 10)).astype(np.float32) / 3,
}
# A small backbone whose end has no rows left.
NODES = [
    node("Conv", "x w", "a", pads=[1, 1, 1, 1]),
    node("Relu", "a", "b"),
    node("Conv", "b v", "c", pads=[1, 1, 1, 1], strides=[2, 2]),
    node("Add", "c c", "d"),
    node("MaxPool", "d", "e", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    node("GlobalAveragePool", "e", "f"),
    node("Flatten", "f", "g"),
    node("MatMul", "g u", "y"),
]
IMAGES = ("a", "b", "c", "d", "e")


def source(nodes: list[Any] = NODES, outputs: tuple[str, ...] = ("y",), **shapes: tuple[int, ...]) -> bytes:
    return model(nodes, shapes or SHAPES, list(outputs), **WEIGHTS)


def calls(module: Any) -> list[str]:
    return [call.name for call in graph.read(module["main"]).calls]


def sections(imported: Imported, clusters: int, names: tuple[str, ...]) -> list[Section]:
    """The calls of these names by so many clusters, the others as ever."""
    rest = frozenset(calls(imported.module)).difference(names)
    return [Section(frozenset(names), clusters), *([Section(rest, 0)] if rest else [])]


def compiled(content: bytes, told: list[Section]) -> Compilation | None:
    options = Options()
    return driver.in_rows(import_model(content), told, TW1, options, Observer())


def check(found: Compilation | compiler.Artifact, content: bytes, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    given = {port.name: rng.standard_normal(port.shape).astype(np.float32) for port in found.model.inputs}
    made = load(found.model).run(given, hazards=True)
    expected = ReferenceEvaluator(onnx.load_from_string(content)).run(None, given)
    for port, array in zip(found.model.outputs, expected, strict=True):
        np.testing.assert_allclose(made[port.name], array, rtol=1e-4, atol=1e-4 * max(1.0, np.abs(array).max()))


@pytest.mark.usefixtures("as_planned")
@pytest.mark.parametrize("clusters", [2, 4])
def test_clusters_run_a_backbone_each_on_some_rows(clusters: int) -> None:
    content = source()
    found = compiled(content, sections(import_model(content), clusters, IMAGES))
    assert found is not None
    assert (found.pieces[0].clusters, by_rows(found.pieces[0].module)) == (clusters, True)
    assert not by_rows(found.pieces[1].module)
    check(found, content)


def test_of_one_image_each_makes_what_it_needs_and_little_more() -> None:
    imported = import_model(source(outputs=("e",)))
    (spread,) = in_sections(imported, sections(imported, 4, IMAGES)) or ()
    assert clusters_of(spread.module) == 4
    shapes = {call.name: graph.shape_of(call.var) for call in graph.read(spread.module["main"]).calls}
    # Four rows of the last, of 16; nine of what the pooling reads; 19 and more of what the convolutions do.
    assert shapes["e"][2] < 8
    assert shapes["d"][2] < 16
    assert 19 <= shapes["a"][2] < 32
    assert spread.outputs[0].shape == (1, 8, 16, 10)


@pytest.mark.usefixtures("as_planned")
@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        ([node("Conv", "x w", "a", pads=[1, 1, 1, 1]), node("Relu", "a", "b"), node("Conv", "b v", "y")], ("y", "a")),
        ([node("Concat", "x x", "a", axis=1), node("Conv", "a v", "y", pads=[1, 1, 1, 1])], ("y",)),
        ([node("DepthToSpace", "x", "a", blocksize=2, mode="CRD"), node("Sigmoid", "a", "y")], ("y",)),
        ([node("Relu", "x", "b"), node("Slice", "b from to two", "a"), node("Relu", "a", "y")], ("y",)),
        ([node("AveragePool", "x", "a", kernel_shape=[2, 2], strides=[2, 2]), node("Add", "a a", "y")], ("y",)),
    ],
)
def test_what_works_on_rows(nodes: list[Any], outputs: tuple[str, ...]) -> None:
    bounds = {"from": np.array([8]), "to": np.array([64]), "two": np.array([2])}
    content = model(nodes, SHAPES, list(outputs), bounds, **WEIGHTS)
    imported = import_model(content)
    found = compiled(content, sections(imported, 2, tuple(calls(imported.module))))
    assert found is not None
    check(found, content)


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Softmax", "x", "y", axis=2)],
        [node("InstanceNormalization", "x s s", "y")],
        [node("CumSum", "x two", "y")],
        [node("Conv", "x w", "y", pads=[0, 1, 1, 1])],  # 63 rows
    ],
)
def test_what_needs_all_rows_or_has_no_equal_parts_stays_whole(nodes: list[Any]) -> None:
    scale = np.ones(4, np.float32)
    imported = import_model(model(nodes, SHAPES, ["y"], {"two": np.array(2)}, **WEIGHTS, s=scale))
    assert in_sections(imported, sections(imported, 2, tuple(calls(imported.module)))) is None


def test_a_row_that_its_number_changes_is_not_the_same_in_a_window() -> None:
    """What is proven is the function, not its name: with a triangle of ones it is another one in each row."""
    content = model([node("Trilu", "x", "a", upper=0), node("Relu", "a", "y")], {"x": (1, 4, 64, 64)}, ["y"])
    imported = import_model(content)
    assert in_sections(imported, sections(imported, 2, tuple(calls(imported.module)))) is None


@pytest.mark.usefixtures("as_planned")
@pytest.mark.parametrize("seed", range(5))  # `make random-networks` draws more
def test_random_networks_are_the_same_in_sections(seed: int) -> None:
    assert random_sections.check(seed, "tw1").text == ""


def test_a_large_image_is_worth_it_and_the_choice_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    nodes = [node("Conv", "x v", "a", pads=[1, 1, 1, 1]), node("Relu", "a", "b")]
    for last, value in (("b", "c"), ("c", "d"), ("d", "y")):
        nodes.append(node("Conv", f"{last} v", value, pads=[1, 1, 1, 1]))
    content = source(nodes, x=(1, 8, 256, 200))
    found = driver.compile_model(content, TW1, Options(jobs=1))
    assert by_rows(found.pieces[0].module)
    alone = driver.compile_model(content, TW1, Options(jobs=1), Observer(without=frozenset({driver.SECTIONS})))
    assert (found.simulated_cycles or 0) < 0.8 * (alone.simulated_cycles or 0)
    check(found, content)
    monkeypatch.setattr(driver, "_searched", None)
    again = driver.compile_model(content, TW1, Options(jobs=1))
    assert again.simulated_cycles == found.simulated_cycles


@pytest.mark.usefixtures("first_tiles")
def test_where_it_is_in_doubt_programs_of_first_tiles_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    imported, in_one_piece, searched = import_model(build("srcnn-24").SerializeToString()), driver.in_one_piece, []
    worth = driver._worth_sections(driver.kernels_of(imported, TW1, Options(), Observer()))
    assert worth is not None and worth.share > driver.FAR_LESS
    monkeypatch.setattr(driver, "in_one_piece", lambda kernels: searched.append(kernels) or in_one_piece(kernels))
    found = driver._searched(imported, TW1, Options(), Observer())
    assert len(found.pieces) == len(searched) > 1, "the whole is not searched"


@pytest.mark.usefixtures("as_planned")
def test_a_schedule_says_it_and_is_followed() -> None:
    content = source()
    found = compiled(content, sections(import_model(content), 4, IMAGES))
    assert found is not None
    said = driver.schedule_of(found)
    assert said.startswith("clusters = 4")
    assert "rows = true" in said
    options = Options(schedule=parse_schedule(said))
    again = driver.compile_model(content, TW1, options)
    assert again.model.segments == found.model.segments
    check(again, content)


@pytest.mark.usefixtures("as_planned")
def test_all_of_a_model_by_rows_has_the_inputs_and_outputs_that_it_had() -> None:
    content = source(outputs=("e",))
    said = driver.schedule_of(compiled(content, sections(import_model(content), 4, IMAGES)) or pytest.fail("as ever"))
    assert "[[tail]]" not in said
    options = Options(precision="fp16", schedule=parse_schedule(said))
    found = driver.compile_model(content, TW1, options)
    assert by_rows(found.pieces[0].module)
    ports = (*found.model.inputs, *found.model.outputs)
    assert [(port.name, port.onnx_dtype, port.dtype) for port in ports] == [
        ("x", "float32", "fp16"), ("e", "float32", "fp16")
    ]  # fmt: skip
    assert load(found.model).run({"x": np.ones(SHAPES["x"], np.float32)})["e"].dtype == np.float32


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("clusters = 4\nrows = 1\n", "rows must be true or false"),
        ("rows = true\n", "rows are of at least 2 clusters"),
        ("clusters = 1\nrows = true\n", "rows are of at least 2 clusters"),
        ("clusters = 4\nrows = true\n", "4 clusters cannot run"),
    ],
)
def test_what_a_schedule_cannot_say_of_rows(said: str, expected: str) -> None:
    with pytest.raises(InvalidError) as caught:
        schedule = parse_schedule(said + "[pieces]\n", "mine.toml")
        driver.compile_model(source(), TW1, Options(cache=False, schedule=schedule))
    assert expected in str(caught.value)
    assert "mine.toml" in str(caught.value)


@pytest.mark.usefixtures("as_planned")
def test_the_report_says_who_works_on_rows() -> None:
    content = source()
    found = compiled(content, sections(import_model(content), 4, IMAGES))
    assert found is not None
    report = report_of(found)
    assert "each of 4 clusters has some rows of each image" in "\n".join(summary(report, 1.0))
    assert report.rows
    assert [tail.rows for tail in report.tails] == [False]


@pytest.mark.parametrize(("further", "expected"), [((32, 32), ("smov", 96)), ((0, 32), ("ldtc", 0))])
def test_what_lies_as_far_on_all_clusters_lies_that_far(further: tuple[int, ...], expected: tuple[str, int]) -> None:
    linker = _Linker({}, TW1.one_cluster(2), True, frozenset(), 2, {}, {})
    instr = linker._address(1, Place("ddr", 64, 0, further))
    assert (instr.row.mnemonic, instr.values[1]) == expected


def test_a_window_is_all_of_the_buffer_that_some_cluster_reads() -> None:
    window = GraphBuffer("t1", "fp16", (2, 8), 32, "intermediate", whole="t0", of_clusters=(0, 16, 48))
    assert window.further == 48
    assert GraphBuffer("t0", "fp16", (2, 8), 32, "intermediate").further == 0
