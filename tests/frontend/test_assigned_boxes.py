"""Scatters into a box of the data, against onnxruntime, and what they cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import compiler
from compiler.frontend import import_model
from tests.frontend.cpu import check
from tests.frontend.models import model, node

pytestmark = pytest.mark.usefixtures("as_planned")

RNG = np.random.default_rng(8)
SHAPE = (3, 8, 5)


def assigned(indices: np.ndarray, shape: tuple[int, ...] = SHAPE, **attributes: Any) -> Any:
    """The model and its inputs."""
    extents = {"x": shape, "u": (*indices.shape[:-1], *shape[indices.shape[-1] :])}
    network = model(
        [node("ScatterND", "x i u", "y", **attributes)],
        {name: list(extent) for name, extent in extents.items()},
        ["y"],
        {"i": indices},
    )
    return network, {name: RNG.standard_normal(extent).astype(np.float32) for name, extent in extents.items()}


def indices_of(*axes: range) -> np.ndarray:
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)


def has_a_scatter(imported: Any) -> bool:
    functions = [each for each in imported.module.functions.values() if each.attrs and "tw.operator" in each.attrs]
    return any(str(function.attrs["tw.operator"]) == "ScatterND" for function in functions)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize(
    "axes",
    [
        [range(1, 2)],
        [range(3), range(2, 6)],
        [range(-2, 0), range(-8, -6)],
        [range(3), range(8), range(2)],
        [range(1, 3), range(7, 8), range(3, 5)],
        [range(3), range(8), range(5)],
    ],
)
def test_a_box_is_put_between_slices(axes: list[range], reduction: str) -> None:
    network, given = assigned(indices_of(*axes), reduction=reduction)
    imported = import_model(network.SerializeToString())
    assert not has_a_scatter(imported)
    check(network, imported, given)


@pytest.mark.parametrize(
    "indices",
    [
        np.array([[2], [1]]),  # not in order
        np.array([[0, 1], [1, 2]]),  # no box
        np.array([[0], [2]]),  # in steps
        np.array([[1], [1]]),  # a place twice
    ],
)
def test_other_places_are_scattered(indices: np.ndarray) -> None:
    network, given = assigned(indices)
    imported = import_model(network.SerializeToString())
    assert has_a_scatter(imported)
    check(network, imported, given)


def test_columns_are_assigned_as_a_whole() -> None:
    """An element at a time, it took 126,535 cycles."""
    network, given = assigned(indices_of(range(2), range(40), range(10, 20)), (2, 40, 64))
    loaded = compiler.load(compiler.compile(network.SerializeToString(), chip="tw2", precision="fp16"))
    loaded.run(given, hazards=True)
    assert loaded.cycles < 1000
