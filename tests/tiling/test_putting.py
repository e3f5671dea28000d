"""Elements put into rows, as done for every chip, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.kernels import compile_kernel
from compiler.operators import TensorType, find_called
from compiler.operators.putting import PIECE
from compiler.pipeline import Observer
from compiler.sim.simulator import simulate
from compiler.target import load_chip
from compiler.timing import alone

RNG = np.random.default_rng(13)
COMBINE = {"none": None, "add": np.add, "max": np.maximum, "min": np.minimum}


def put(chip: str, x: np.ndarray, places: np.ndarray, updates: np.ndarray, reduction: str) -> tuple[str, np.ndarray]:
    given = {"p0": x, "p1": places.astype(np.int32), "p2": updates}
    types = [TensorType(each.shape, each.dtype.name) for each in given.values()]
    func, described = find_called("tilewright::PutInRows").prim_func(types, {"reduction": reduction}), load_chip(chip)
    made = compile_kernel(func, "putting", described, Observer(), "put")
    run = simulate(alone(made.code, described), described, given, hazards=True)
    assert not run.hazards
    return made.tile, run.outputs["p3"]


def expected(x: np.ndarray, places: np.ndarray, updates: np.ndarray, reduction: str) -> np.ndarray:
    found, rows = x.copy(), np.arange(len(x))[:, None]
    if (combine := COMBINE[reduction]) is not None:
        combine.at(found, (rows, places), updates)
        return found
    for at in range(places.shape[1]):  # of two for the same place the later one stays
        found[rows[:, 0], places[:, at]] = updates[:, at]
    return found


@pytest.mark.parametrize("chip", ["tw2", "tiny"])
def test_sums_of_16_bits_are_rounded_once(chip: str) -> None:
    x, updates = np.zeros((1, 3), np.float16), np.ones((1, 3000), np.float16)
    _, found = put(chip, x, np.ones((1, 3000)), updates, "add")
    np.testing.assert_array_equal(found, [[0, 3000, 0]])


@pytest.mark.parametrize("reduction", COMBINE)
@pytest.mark.parametrize(
    ("chip", "dtype", "rows", "length", "count"),
    [
        ("tw1", "float16", 35, 40, 50),
        ("tw2", "float32", 3, 300, 7),
        ("tiny", "int32", 5, 90, 33),
        ("tw2", "float16", 2, 70, PIECE + 9),
        ("tiny", "float32", 2, 1500, 300),  # with few indices at once
        ("tiny", "float32", 1, 2100, 30),  # does not fit into UB
    ],
)
def test_rows(chip: str, dtype: str, rows: int, length: int, count: int, reduction: str) -> None:
    x, updates = (RNG.integers(-9, 9, (rows, each)).astype(dtype) for each in (length, count))
    places = RNG.integers(-length, length, (rows, count))
    tile, found = put(chip, x, places, updates, reduction)
    assert ("one by one" in tile) == (length < 2000)
    np.testing.assert_array_equal(found, expected(x, places, updates, reduction))
