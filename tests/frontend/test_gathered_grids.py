"""Elements gathered from a grid of known places, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.frontend import import_model
from tests.frontend.cpu import check
from tests.frontend.models import model, node
from tests.frontend.test_gathered_rows import operators

RNG = np.random.default_rng(7)


def of_grid(*indices: Any) -> np.ndarray:
    """What torch makes of ``x[indices]``."""
    return np.stack(np.broadcast_arrays(*indices), axis=-1).astype(np.int64)


def column(*numbers: int) -> np.ndarray:
    return np.array(numbers)[:, None]


@pytest.mark.parametrize(
    ("shape", "indices", "batch"),
    [
        ((3, 7), of_grid(np.arange(3).reshape(3, 1, 1, 1), np.broadcast_to(np.arange(7), (1, 1, 5, 7))), 0),  # a mask
        ((4, 5), of_grid(column(3, 0, -1), [1, 4]), 0),
        ((4, 5), of_grid([3, 0, 2], column(1, 4)), 0),  # turned
        ((4, 5, 6), of_grid(column(2, 1), np.array(3)), 0),  # rows, and one place for all
        ((4, 5), of_grid(np.array([[3, 1], [0, 2]])), 0),  # one index, along two axes
        ((2, 4, 5, 3), np.broadcast_to(of_grid(column(3, 1), [0, 4]), (2, 2, 2, 2)), 1),
        ((4,), np.array([2]), 0),
    ],
)
def test_places_of_a_grid_are_picked_axis_by_axis(shape: tuple[int, ...], indices: np.ndarray, batch: int) -> None:
    network = model([node("GatherND", "x places", "y", batch_dims=batch)], {"x": [*shape]}, ["y"], {"places": indices})
    imported = import_model(network.SerializeToString())
    assert "tilewright::PickSlices" not in operators(imported)
    check(network, imported, {"x": RNG.standard_normal(shape).astype(np.float32)})


@pytest.mark.parametrize(
    ("shape", "indices", "batch"),
    [
        ((4, 5), of_grid([3, 0, 2], [1, 4, 0]), 0),  # no grid
        ((2, 4, 5), of_grid(np.array([[3, 1], [0, 2]])), 1),  # another index for each of the batch
    ],
)
def test_other_places_are_gathered(shape: tuple[int, ...], indices: np.ndarray, batch: int) -> None:
    network = model([node("GatherND", "x places", "y", batch_dims=batch)], {"x": [*shape]}, ["y"], {"places": indices})
    imported = import_model(network.SerializeToString())
    assert "tilewright::PickSlices" in operators(imported)
    check(network, imported, {"x": RNG.standard_normal(shape).astype(np.float32)})


def test_of_a_known_tensor_they_are_known() -> None:
    constants = {"data": RNG.standard_normal((4, 5)).astype(np.float32), "places": of_grid([3, 0, 2], [1, 4, 0])}
    network = model([node("GatherND", "data places", "z"), node("Add", "x z", "y")], {"x": [3]}, ["y"], constants)
    assert operators(import_model(network.SerializeToString())) == {"Add"}
