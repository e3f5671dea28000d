"""Scatters into much data: copied by all cores, then written into."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from tvm import te
from tvm.s_tir import SBlock

from compiler import api
from compiler.operators.scattering import scatter_nd
from compiler.pipeline import Observer
from compiler.target import load_chip
from compiler.tiling.plain import schedule
from compiler.tiling.split_scatter import SWITCH, split
from compiler.tir.structure import structural_walk
from tests.frontend.models import model, node

pytestmark = pytest.mark.usefixtures("as_planned")

ROWS, WIDTH, COUNT = 512, 384, 3
AT = np.array([7, ROWS - 1, -ROWS])
INT64 = TensorProto.INT64


def scattered(operator: str, shape: list[int], *nodes: Any, indices: str = "i", **attributes: Any) -> Any:
    given = {"x": [ROWS, WIDTH], "i": (INT64, shape), "u": [COUNT, WIDTH]}
    known = {"shape": np.array([COUNT, WIDTH])} if nodes else {}
    return model([*nodes, node(operator, f"x {indices} u", "y", **attributes)], given, ["y"], known)


@pytest.mark.parametrize("chip", ["tw1", "tw2"])
@pytest.mark.parametrize("reduction", ["none", "add", "max"])
def test_rows_are_put_into_a_copy(reduction: str, chip: str) -> None:
    rng = np.random.default_rng(3)
    x, u = (rng.standard_normal((n, WIDTH)).astype(np.float32) for n in (ROWS, COUNT))
    exact, source = x.copy(), scattered("ScatterND", [COUNT, 1], reduction=reduction)
    for at, row in zip(AT, u, strict=True):
        exact[at] = {"none": row, "add": exact[at] + row, "max": np.maximum(exact[at], row)}[reduction]
    taken = []
    for without in (frozenset[str](), frozenset({SWITCH})):
        artifact = api.compile(source, chip, cache=False, observer=Observer(without=without))
        result = artifact.run({"x": x, "i": AT.reshape(COUNT, 1), "u": u}, hazards=True)["y"]
        np.testing.assert_array_equal(result, exact)
        taken.append(artifact.report.cycles or 0)
    assert 10 * taken[0] < taken[1]


@pytest.mark.parametrize(("chip", "parts"), [("tiny", 2), ("tw1", 0)])
def test_little_is_copied_apart_where_a_core_does_not_hold_it_twice(chip: str, parts: int) -> None:
    """It was copied element by element: 247,104 cycles on tiny."""
    data, shape = te.placeholder((256, 12), "float32", "data"), (30, 12)
    index, updates = te.placeholder((30, 1), "int32", "index"), te.placeholder(shape, "float32", "updates")
    found = split(scatter_nd(data, index, updates), "scatter", load_chip(chip))
    assert sum(len(way.parts) for way in found) == parts
    rng = np.random.default_rng(3)
    x, u = (rng.standard_normal(n).astype(np.float32) for n in ((256, 12), shape))
    exact, at = x.copy(), rng.permutation(256)[:30]
    exact[at] = u
    given = {"x": [256, 12], "i": (INT64, [30, 1]), "u": [30, 12]}
    artifact = api.compile(model([node("ScatterND", "x i u", "y")], given, ["y"]), chip, cache=False)
    np.testing.assert_array_equal(artifact.run({"x": x, "i": at[:, None], "u": u}, hazards=True)["y"], exact)
    assert 0 < (artifact.report.cycles or 0) < 10_000


def test_a_copy_that_fits_a_core_is_brought_there_first() -> None:
    data = te.placeholder((64, 128), "float32", "data")
    index, updates = te.placeholder((16, 1), "int32", "index"), te.placeholder((16, 128), "float32", "updates")
    found, *_ = split(scatter_nd(data, index, updates, reduction="add"), "scatter", load_chip("tw2"))
    tiled = schedule(found.parts[1].func, load_chip("tw2"), 0)
    names: list[str] = []
    structural_walk(tiled.func.body, (SBlock, lambda block: names.append(str(block.name_hint))))
    assert {"out0_to_out0_ub", "out0_ub_to_out0"} <= set(names)


@pytest.mark.parametrize("axis", [0, 1])
def test_elements_with_an_index_for_each_row_are_rows(axis: int) -> None:
    rng = np.random.default_rng(4)
    shapes = [(ROWS, WIDTH), (COUNT, WIDTH), (COUNT, 1), (COUNT, WIDTH)]
    data, update, own, wide = (shape if axis == 0 else shape[::-1] for shape in shapes)
    given = {"x": list(data), "i": (INT64, list(own)), "u": list(update)}
    nodes = [node("Expand", "i shape", "all"), node("ScatterElements", "x all u", "y", axis=axis, reduction="add")]
    artifact = api.compile(model(nodes, given, ["y"], {"shape": np.array(wide)}), "tw2", cache=False)
    x, u = (rng.standard_normal(shape).astype(np.float32) for shape in (data, update))
    exact = x.copy()
    for at, place in enumerate(AT):
        exact[(place,) if axis == 0 else (slice(None), place)] += u[at] if axis == 0 else u[:, at]
    result = artifact.run({"x": x, "i": AT.reshape(own), "u": u}, hazards=True)["y"]
    np.testing.assert_array_equal(result, exact)
    assert 0 < (artifact.report.cycles or 0) < 20_000


@pytest.mark.parametrize("alike", [True, False])
def test_known_indices_are_of_rows_where_they_are_alike(alike: bool) -> None:
    indices = np.repeat(np.array([[5], [9], [2]]), 16, axis=1)
    indices[1, 3] += 0 if alike else 1
    nodes = [node("ScatterElements", "x i u", "y", axis=0)]
    source = model(nodes, {"x": [32, 16], "u": [3, 16]}, ["y"], {"i": indices})
    artifact = api.compile(source, "tiny", cache=False)
    x, u = np.zeros((32, 16), np.float32), np.arange(1, 49, dtype=np.float32).reshape(3, 16)
    exact = x.copy()
    np.put_along_axis(exact, indices, u, axis=0)
    np.testing.assert_array_equal(artifact.run({"x": x, "u": u}, hazards=True)["y"], exact)


@pytest.mark.parametrize("reduction", ["none", "add"])
def test_rows_may_be_of_two_elements(reduction: str) -> None:
    """As attention over a graph adds up a few heads: an element costs as much as a row."""
    taken = {}
    for width in (2, 16):
        each = node("Expand", "i shape", "each")
        nodes = [each, node("ScatterElements", "x each u", "y", axis=0, reduction=reduction)]
        given = {"x": [20, width], "i": (INT64, [60, 1]), "u": [60, width]}
        source = model(nodes, given, ["y"], {"shape": np.array([60, width])})
        artifact = api.compile(source, "tw2", cache=False)
        rows = np.arange(60).reshape(60, 1) % 20
        x, u = np.ones((20, width), np.float32), np.arange(60 * width, dtype=np.float32).reshape(60, width)
        exact = x + u.reshape(3, 20, width).sum(0) if reduction == "add" else u[40:]
        np.testing.assert_array_equal(artifact.run({"x": x, "i": rows, "u": u}, hazards=True)["y"], exact)
        taken[width] = artifact.report.cycles or 0
    assert 0 < taken[2] < 1.1 * taken[16]
