"""Rows that data picks from: in UB, or where they are when they do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.kernels import compile_kernel
from compiler.operators import TensorType, find_called
from compiler.pipeline import Observer
from compiler.sim.simulator import simulate
from compiler.target import load_chip
from compiler.timing import alone

RNG = np.random.default_rng(12)


def picked(chip: str, operator: str, x: np.ndarray, places: np.ndarray, **attributes: Any) -> np.ndarray:
    given = {"p0": x, "p1": places}
    types = [TensorType(each.shape, each.dtype.name) for each in given.values()]
    func, described = find_called(operator).prim_func(types, attributes), load_chip(chip)
    made = compile_kernel(func, "gather", described, Observer(), "picked")
    run = simulate(alone(made.code, described), described, given, hazards=True)
    assert not run.hazards
    return run.outputs["p2"]


@pytest.mark.parametrize("chip", ["tw1", "tw2", "tiny"])
@pytest.mark.parametrize(
    ("dtype", "rows", "length", "count"),
    [
        ("float16", (7,), 33, 20),
        ("float32", (2, 5), 70, 9),
        ("int32", (1,), 3000, 400),  # does not fit into UB of `tiny`
        ("float16", (3,), 900, 5),  # of few, which are picked where they are
    ],
)
def test_elements_of_rows(chip: str, dtype: str, rows: tuple[int, ...], length: int, count: int) -> None:
    x, places = RNG.integers(-99, 99, (*rows, length)).astype(dtype), RNG.integers(-length, length, (*rows, count))
    got = picked(chip, "tilewright::PickInRows", x, places.astype(np.int32))
    np.testing.assert_array_equal(got, np.take_along_axis(x, places % length, -1))


@pytest.mark.parametrize("chip", ["tw1", "tiny"])
@pytest.mark.parametrize("rest", [(), (6,)])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_slices_that_several_indices_name(chip: str, batch: tuple[int, ...], rest: tuple[int, ...]) -> None:
    extents = (4, 5)
    x = RNG.standard_normal((*batch, 20, *rest)).astype(np.float32)
    places = RNG.integers((-4, -5), extents, (*batch, 7, 2))
    slices = places[..., 0] % 4 * 5 + places[..., 1] % 5
    expected = np.take_along_axis(x, slices.reshape(*slices.shape, *(1 for _ in rest)), len(batch))
    kinds = {"extents": extents, "batch_dims": len(batch)}
    np.testing.assert_array_equal(picked(chip, "tilewright::PickSlices", x, places.astype(np.int32), **kinds), expected)
