"""Rows along a later axis that are put where indices say, against onnxruntime, and what they cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import compiler
from compiler.frontend import import_model
from tests.frontend.cpu import check
from tests.frontend.models import model, node

pytestmark = pytest.mark.usefixtures("as_planned")

RNG = np.random.default_rng(8)


def put(
    shape: tuple[int, ...], axis: int, count: int, reduction: str = "none", begin: int = 0
) -> tuple[Any, dict[str, Any]]:
    """``x[:, ..., index] = u`` along an axis, as torch's older exporter writes it; the first axis counts from begin."""
    places = (*shape[:axis], count)
    nodes, parts = [], []
    for at in range(axis):
        parts.append(f"c{at}")
        nodes.append(node("Expand", f"k{at} places", f"e{at}"))
        nodes.append(node("Unsqueeze", f"e{at} last", parts[-1]))
    nodes += [node("Expand", "i places", "e"), node("Unsqueeze", "e last", "c")]
    nodes += [node("Concat", " ".join([*parts, "c"]), "all", axis=-1)]
    nodes += [node("ScatterND", "x all u", "y", reduction=reduction)]
    known = {
        f"k{at}": (np.arange(extent) + begin * (at == 0)).clip(max=extent - 1).reshape(-1, *[1] * (axis - at))
        for at, extent in enumerate(shape[:axis])
    }
    known |= {"places": np.array(places), "last": np.array([-1])}
    extents = {"x": [*shape], "u": [*places, *shape[axis + 1 :]]}
    network = model(nodes, {**extents, "i": (TensorProto.INT64, [count])}, ["y"], known)
    fed: dict[str, Any] = {name: RNG.standard_normal(extent).astype(np.float32) for name, extent in extents.items()}
    return network, fed | {"i": RNG.permutation(shape[axis])[:count]}


def indices_of_scatters(imported: Any) -> list[tuple[int, ...]]:
    functions = [each for each in imported.module.functions.values() if each.attrs and "tw.operator" in each.attrs]
    return [
        tuple(int(extent) for extent in function.params[1].shape)
        for function in functions
        if str(function.attrs["tw.operator"]) == "ScatterND"
    ]


@pytest.mark.parametrize("reduction", ["none", "mul", "add"])
@pytest.mark.parametrize(("shape", "axis"), [((3, 20), 1), ((3, 20, 4), 1), ((3, 2, 20), 2), ((3, 2, 20, 4), 2)])
def test_one_index_is_left_for_each_row(shape: tuple[int, ...], axis: int, reduction: str) -> None:
    network, given = put(shape, axis, 7, reduction)
    imported = import_model(network.SerializeToString())
    assert indices_of_scatters(imported) == [(7, 1)]
    check(network, imported, given)


def test_sums_of_many_rows_are_products() -> None:
    network, given = put((3, 40), 1, 30, "add")
    imported = import_model(network.SerializeToString())
    assert indices_of_scatters(imported) == []
    check(network, imported, given)


def test_an_axis_that_is_not_counted_through_keeps_its_indices() -> None:
    network, _ = put((3, 20), 1, 7, begin=1)
    imported = import_model(network.SerializeToString())
    assert indices_of_scatters(imported) == [(3, 7, 2)]


def test_rows_are_put_at_once() -> None:
    """An element at a time, it took 38,962 cycles."""
    network, given = put((12, 256), 1, 30)
    loaded = compiler.load(compiler.compile(network.SerializeToString(), chip="tw2", precision="fp16"))
    loaded.run(given, hazards=True)
    assert loaded.cycles < 5_000
