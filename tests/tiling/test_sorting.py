"""The best of blocks, as sorted for every chip, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.kernels import Kernel, compile_kernel
from compiler.operators import TensorType, find_called
from compiler.pipeline import Observer
from compiler.sim.simulator import simulate
from compiler.target import load_chip
from compiler.timing import alone

RNG = np.random.default_rng(8)
CASES: list[tuple[int, int, dict[str, Any]]] = [
    (1, 40, {"block": 40, "k": 40}),
    (50, 37, {"block": 37, "k": 5}),  # several rows at once
    (2, 300, {"block": 100, "k": 7}),
    (3, 250, {"block": 64, "k": 20, "largest": False}),  # the last block is shorter
]


def kernel(chip: str, rows: int, length: int, dtype: str, attributes: dict[str, Any], *, with_places: bool) -> Kernel:
    places = TensorType((rows, length), "int32") if with_places else None
    func = find_called("tilewright::BestOfBlocks").prim_func([TensorType((rows, length), dtype), places], attributes)
    return compile_kernel(func, "sorting", load_chip(chip), Observer(), "best")


def sorted_on(chip: str, made: Kernel, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    run = simulate(alone(made.code, load_chip(chip)), load_chip(chip), given, hazards=True)
    assert not run.hazards
    return [run.outputs[f"p{number}"] for number in (len(given), len(given) + 1)]


def best(x: np.ndarray, places: np.ndarray, block: int, k: int, largest: bool = True) -> list[np.ndarray]:
    found = []
    for start in range(0, x.shape[1], block):
        part = x[:, start : start + block].astype(np.float64)
        order = np.argsort(-part if largest else part, axis=1, kind="stable")[:, :k] + start
        found.append([np.take_along_axis(of, order, axis=1) for of in (x, places)])
    return [np.concatenate(each, axis=1) for each in zip(*found, strict=True)]


@pytest.mark.parametrize("chip", ["tw1", "tw2", "tiny"])
@pytest.mark.parametrize("with_places", [False, True])
@pytest.mark.parametrize(("rows", "length", "attributes"), CASES)
def test_blocks(chip: str, rows: int, length: int, attributes: dict[str, Any], with_places: bool) -> None:
    x = RNG.integers(-9, 9, (rows, length)).astype(np.float32)  # with many that are equal
    at = np.tile(np.arange(length, dtype=np.int32), (rows, 1))
    places = at * 3 + 1 if with_places else at
    made = kernel(chip, rows, length, "float32", attributes, with_places=with_places)
    assert "on one core" not in made.tile
    given = {"p0": x, "p1": places} if with_places else {"p0": x}
    for mine, theirs in zip(sorted_on(chip, made, given), best(x, places, **attributes), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("dtype", ["float16", "int8", "uint8", "int32"])
def test_types(dtype: str) -> None:
    x = RNG.integers(0, 99, (6, 70)).astype(dtype)
    made = kernel("tw1", 6, 70, dtype, {"block": 70, "k": 9}, with_places=False)
    places = np.tile(np.arange(70, dtype=np.int32), (6, 1))
    for mine, theirs in zip(sorted_on("tw1", made, {"p0": x}), best(x, places, 70, 9), strict=True):
        np.testing.assert_array_equal(mine, theirs)
