"""Elements gathered with the same index all along a row, against onnxruntime, and what it costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import compiler
from compiler.frontend import Imported, import_model
from tests.frontend.cpu import check
from tests.frontend.models import model, node

pytestmark = pytest.mark.usefixtures("as_planned")

RNG = np.random.default_rng(6)


def gathered(data: tuple[int, ...], index: np.ndarray, shape: tuple[int, ...], axis: int, known: bool) -> Any:
    """The model that expands ``index`` to ``shape``, and its inputs."""
    nodes = [node("Expand", "index shape", "each"), node("GatherElements", "x each", "y", axis=axis)]
    inputs: dict[str, Any] = {"x": list(data)} | ({} if known else {"index": (TensorProto.INT64, list(index.shape))})
    constants = {"shape": np.array(shape)} | ({"index": index} if known else {})
    given = {"x": RNG.standard_normal(data).astype(np.float32)} | ({} if known else {"index": index})
    return model(nodes, inputs, ["y"], constants), given


def operators(imported: Imported) -> set[str]:
    functions = imported.module.functions.values()
    return {str(each.attrs["tw.operator"]) for each in functions if each.attrs and "tw.operator" in each.attrs}


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("data", "index", "shape", "axis"),
    [
        ((9, 4), (5, 1), (5, 4), 0),
        ((2, 9, 4), (2, 5, 1), (2, 5, 4), 1),
        ((2, 9, 4), (5, 1), (2, 5, 4), -2),  # one index for all of the batch
        ((2, 3, 9, 2, 4), (1, 3, 5, 1, 1), (2, 3, 5, 2, 4), 2),
    ],
)
def test_an_index_for_each_row(
    data: tuple[int, ...], index: tuple[int, ...], shape: tuple[int, ...], axis: int, known: bool
) -> None:
    extent = data[axis]
    network, given = gathered(data, RNG.integers(-extent, extent, index), shape, axis, known)
    imported = import_model(network.SerializeToString())
    assert "tilewright::PickInRows" not in operators(imported)
    check(network, imported, given)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("data", "index", "shape", "axis"),
    [
        ((9, 4), (5, 4), (5, 4), 0),
        ((9, 4), (5, 1), (5, 3), 0),  # a part of each row
        ((3, 9, 4), (2, 5, 1), (2, 5, 4), 1),  # a part of the batch
        ((9, 4), (1, 3), (9, 3), 1),  # one element after the other of a row
    ],
)
def test_an_index_for_each_element(
    data: tuple[int, ...], index: tuple[int, ...], shape: tuple[int, ...], axis: int, known: bool
) -> None:
    network, given = gathered(data, RNG.integers(0, data[axis], index), shape, axis, known)
    imported = import_model(network.SerializeToString())
    assert "tilewright::PickInRows" in operators(imported)
    check(network, imported, given)


def test_rows_are_picked_as_rows() -> None:
    """An element at a time, it took 41,330 cycles."""
    network, given = gathered((2, 20, 32), RNG.integers(0, 20, (2, 30, 1)), (2, 30, 32), 1, False)
    loaded = compiler.load(compiler.compile(network.SerializeToString(), chip="tw2", precision="fp16"))
    loaded.run(given, hazards=True)
    assert loaded.cycles < 1000


def test_an_index_that_is_repeated_along_rows_gathers_rows() -> None:
    """As detectors of two stages pick their queries: ``gather(1, best[..., None].repeat(1, 1, width))``."""
    nodes = [node("Tile", "best n", "each"), node("GatherElements", "x each", "y", axis=1)]
    inputs: dict[str, Any] = {"x": [2, 9, 16], "best": (TensorProto.INT64, [2, 5, 1])}
    network = model(nodes, inputs, ["y"], {"n": np.array([1, 1, 16])})
    imported = import_model(network.SerializeToString())
    assert "tilewright::PickInRows" not in operators(imported)
    x, best = RNG.standard_normal((2, 9, 16)).astype(np.float32), RNG.integers(0, 9, (2, 5, 1))
    check(network, imported, {"x": x, "best": best})
