"""ScheduleBands: the calls of main in bands of rows, the same results, no kernel that only cuts or joins."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from ci.random_cases import CHIPS
from compiler import api, driver, graph
from compiler.errors import InvalidError
from compiler.frontend import import_model
from compiler.operators import axes
from compiler.options import Options
from compiler.pipeline import Observer
from compiler.runtime.loaded import load
from compiler.schedule.cascades import Cascade
from compiler.schedule.cascading import Cascading
from compiler.schedule.files import parse_schedule
from compiler.schedule.manual import Manual
from compiler.target import load_chip
from passes.graph import schedule_bands
from passes.graph.group_operators import GroupOperators
from passes.graph.schedule_bands import ScheduleBands
from tests.refused_kernels import refuse
from tests.schedule import random_networks
from tests.test_driver import model, node

RNG = np.random.default_rng(17)
SAME = [1, 1, 1, 1]
NODES = [
    node("Conv", "x w", "a", pads=SAME),
    node("Relu", "a", "b"),
    node("Conv", "b v", "c", pads=SAME),
    node("Add", "c b", "d"),
    node("MaxPool", "d", "e", kernel_shape=[3, 3], strides=[2, 2], pads=SAME),
    node("Conv", "e u", "f", pads=[2, 1, 2, 1], dilations=[2, 1], strides=[1, 2]),
    node("Sigmoid", "f", "g"),
    node("GlobalAveragePool", "g", "h"),
    node("ReduceMax", "d", "i", axes=[2, 3], keepdims=1),
    node("Add", "h i", "y"),
]


def weight(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


WEIGHTS = {"w": weight(8, 3, 3, 3), "v": weight(8, 8, 3, 3), "u": weight(8, 8, 3, 3)}
CALLS = ("b", "d", "e", "g", "h", "y")


def told(bands: Mapping[str, str]) -> Manual:
    return parse_schedule("\n".join(["[pieces]", *(f'"{name}" = {bands.get(name, "1")}' for name in CALLS)]))


def banded(*names: str, count: int, **more: str) -> dict[str, str]:
    return {name: f"{{ pieces = {count}, axis = 2{more.get(name, '')} }}" for name in names}


@pytest.mark.usefixtures("as_planned")
@pytest.mark.parametrize(("bands", "batch"), [
    (banded("b", "d", "e", "g", count=3), 1),  # 14 rows of e and g
    (banded("b", "d", count=2) | banded("e", "g", count=3), 2),
    (banded("b", "d", "e", "g", count=2, e=", after_all = true"), 1),
    (banded("d", count=4), 1),
])  # fmt: skip
def test_results_are_the_same(bands: dict[str, str], batch: int) -> None:
    """`d` is read in its own cascade with rows at its edges, and whole by others. The last bit may differ: in which
    order the host adds up a product is up to its BLAS and the product's shape.
    """
    source = model(NODES, {"x": (batch, 3, 28, 16)}, ["y", "g"], **WEIGHTS)
    x = {"x": RNG.standard_normal((batch, 3, 28, 16)).astype(np.float32)}
    whole = api.compile(source, "tiny").run(x)
    compiled = api.compile(source, "tiny", schedule=told(bands))
    found = compiled.run(x, hazards=True)
    for name, expected in zip(("y", "g"), ReferenceEvaluator(onnx.load_from_string(source)).run(None, x), strict=True):
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found[name], whole[name], rtol=1e-6, atol=1e-6)
    assert parse_schedule(compiled.schedule).axes.keys() == bands.keys()
    written = parse_schedule(compiled.schedule)
    assert (written.pieces, written.after_all) == (told(bands).pieces, told(bands).after_all)


@pytest.mark.usefixtures("as_planned")
def test_rows_that_fill_no_block_are_loaded_to_their_end() -> None:
    """Rows of five columns: between channels of a band there are rows that are not its own."""
    source = model([node("Conv", "x w", "y", pads=SAME)], {"x": (1, 16, 33, 5)}, ["y"], w=weight(16, 16, 3, 3))
    x = {"x": RNG.standard_normal((1, 16, 33, 5)).astype(np.float32)}
    bands = parse_schedule('[pieces]\n"y" = { pieces = 3, axis = 2 }')
    found = api.compile(source, "tw2", schedule=bands).run(x, hazards=True)["y"]
    np.testing.assert_allclose(found, api.compile(source, "tw2").run(x)["y"], rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("as_planned")
@pytest.mark.parametrize("seed", range(3))  # `make random-networks` draws more
def test_random_networks_are_the_same_in_bands(seed: int) -> None:
    assert random_networks.check(seed, CHIPS[seed % 3]).text == ""


@pytest.mark.usefixtures("as_planned")
def test_no_kernel_cuts_or_joins() -> None:
    source = model(NODES, {"x": (1, 3, 30, 32)}, ["y", "g"], **WEIGHTS)
    manual = told(banded("b", "d", "e", "g", count=3))
    compilation = driver.compile_model(source, load_chip("tiny"), Options(schedule=manual))
    whole = driver.compile_model(source, load_chip("tiny"))
    assert len(compilation.steps) == 3 * (len(whole.steps) - 2) + 2


@pytest.mark.usefixtures("as_planned")
def test_sequences_in_bands() -> None:
    nodes = [node("MatMul", "x w", "a"), node("Gelu", "a", "b"), node("MatMul", "b v", "c"), node("Add", "c x", "y")]
    source = model(nodes, {"x": (2, 24, 16)}, ["y"], w=weight(16, 32), v=weight(32, 16))
    x = {"x": RNG.standard_normal((2, 24, 16)).astype(np.float32)}
    names = list(parse_schedule(api.compile(source, "tiny").schedule).pieces)
    text = "\n".join(["[pieces]", *(f'"{name}" = {{ pieces = 3, axis = 1 }}' for name in names)])
    found = api.compile(source, "tiny", schedule=parse_schedule(text)).run(x, hazards=True)["y"]
    np.testing.assert_allclose(found, api.compile(source, "tiny").run(x)["y"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("bands", "line"), [
    (banded("h", count=2), 6),  # one row
    (banded("g", "h", count=2), 5),  # all rows of g are needed for h
    (banded("b", count=64), 2),
    ({"b": "{ pieces = 2, axis = 7 }"}, 2),
])  # fmt: skip
def test_what_cannot_be_is_named(bands: dict[str, str], line: int) -> None:
    source = model(NODES, {"x": (1, 3, 30, 32)}, ["y"], **WEIGHTS)
    with pytest.raises(InvalidError) as caught:
        api.compile(source, "tiny", schedule=told(bands))
    place = caught.value.problems[0].place
    assert caught.value.problems[0].code == "TW2632"
    assert place is not None
    assert place.line == line


def test_what_fits_stays_whole() -> None:
    module = import_model(model(NODES, {"x": (1, 3, 30, 32)}, ["y"], **WEIGHTS)).module
    module = GroupOperators().run(module, load_chip("tiny"))
    assert ScheduleBands().run(module, load_chip("tw2")) is module
    assert ScheduleBands().run(module, load_chip("tw1")) is module  # where no LLB is everybody's


@pytest.fixture
def _rows_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Softmax along channels is one kernel, which works on some rows of the image as well as on all."""
    monkeypatch.setattr(axes, "_FEW_ELEMENTS", 1 << 30)


@pytest.mark.usefixtures("_rows_stay_apart")
@pytest.mark.parametrize(("rows", "is_cut"), [(54, False), (128, True)])  # 108 and 256 KiB live at once
def test_what_fills_the_chip_stays_whole(rows: int, is_cut: bool) -> None:
    nodes = [node("Softmax", "x", "a", axis=1), node("Softmax", "a", "b", axis=3), node("Softmax", "b", "y", axis=1)]
    module = import_model(model(nodes, {"x": (1, 4, rows, 64)}, ["y"])).module
    module = GroupOperators().run(module, load_chip("tiny"))
    assert (ScheduleBands().run(module, load_chip("tiny")) is not module) == is_cut


@pytest.mark.usefixtures("first_tiles")
@pytest.mark.usefixtures("_rows_stay_apart")
def test_an_image_that_does_not_fit_is_cut() -> None:
    """On tiny: 128 KiB of LLB, and DDR of eight bytes in a cycle."""
    nodes = [node("Softmax", "x", "a", axis=1), node("Softmax", "a", "b", axis=3), node("Softmax", "b", "y", axis=1)]
    source = model(nodes, {"x": (1, 4, 256, 64)}, ["y"])
    x = {"x": RNG.standard_normal((1, 4, 256, 64)).astype(np.float32)}
    (expected,) = ReferenceEvaluator(onnx.load_from_string(source)).run(None, x)
    cycles = []
    for without in (frozenset[str](), frozenset({"schedule-bands"})):
        compilation = driver.compile_model(source, load_chip("tiny"), observer=Observer(without=without))
        loaded = load(compilation.model)
        np.testing.assert_allclose(loaded.run(x, hazards=True)["y"], expected, rtol=1e-4, atol=1e-5)
        cycles.append(loaded.cycles)
    assert cycles[0] < cycles[1]


@pytest.mark.usefixtures("_rows_stay_apart")
def test_bands_that_make_the_program_slower_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [node("Softmax", "x", "a", axis=1), node("Softmax", "a", "b", axis=3), node("Softmax", "b", "y", axis=1)]
    source = model(nodes, {"x": (1, 4, 256, 64)}, ["y"])
    steps = []
    for count in (4, 256):
        taken = Cascading((Cascade(0, 3, count, 2),), 1.0)
        monkeypatch.setattr(schedule_bands, "best_cascades", lambda *_, taken=taken: taken)
        steps.append(len(driver.compile_model(source, load_chip("tiny"), Options(cache=False)).steps))
    assert steps == [12, 3]


@pytest.mark.usefixtures("as_planned")
def test_the_host_gets_whole_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs on the host reads tensors that are no bands: then nothing is cut."""
    refuse(monkeypatch, lambda job: job.schedule == "pooling")
    source = model(NODES, {"x": (1, 3, 30, 32)}, ["y"], **WEIGHTS)
    manual = told(banded("b", "d", "e", "g", count=3))
    compilation = driver.compile_model(source, load_chip("tiny"), Options(schedule=manual))
    assert sum(step.host is not None for step in compilation.steps) == 1
    x = {"x": RNG.standard_normal((1, 3, 30, 32)).astype(np.float32)}
    (expected,) = ReferenceEvaluator(onnx.load_from_string(source)).run(None, x)
    np.testing.assert_allclose(load(compilation.model).run(x)["y"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("as_planned")
def test_bands_keep_their_names() -> None:
    source = model(NODES, {"x": (1, 3, 30, 32)}, ["y"], **WEIGHTS)
    manual = told(banded("b", "d", "e", "g", count=3))
    compilation = driver.compile_model(source, load_chip("tiny"), Options(schedule=manual))
    named = {each for step in compilation.steps for each in step.nodes}
    assert named == {each.name for each in NODES}
    assert len(graph.read(compilation.module["main"]).calls) > len(CALLS)
    assert onnx.load_from_string(source).graph.node[0].name in compilation.steps[0].nodes


@pytest.mark.usefixtures("as_planned")
def test_what_a_mask_leaves_out_need_not_be_loaded() -> None:
    """Average pooling over the lower edge: a core that has three rows of four reads the fourth, and drops it."""
    network = random_networks.Network(201)
    x = {"x": network.rng.standard_normal(network.shape).astype(np.float32)}
    api.compile(network.source(), "tw1").run(x, hazards=True)
