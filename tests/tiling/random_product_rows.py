"""Random rows of products of matrices as one kernel each, run free of hazards, against numpy in float64.

Any rows and columns, few or many, of one matrix or of several, either matrix in either order, with biases or without,
what activates between them and what is added to the last one; of all tiles that the template has, the best or any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

import numpy as np
from tvm import te

from ci.random_cases import Outcome
from compiler.operators.matmul import cast_stage, gemm, product
from compiler.tiling import products
from tests.tiling.activations import ACTIVATIONS
from tests.tiling.drawn import Drawn, check_first
from tests.tiling.kernels import Result, by_cost, made, random, run

TOLERANCE = 4e-3
ROWS = (1, 3, 16, 17, 40, 100, 256, 333, 700)
COLUMNS = (1, 5, 13, 16, 24, 32, 50, 64, 100, 128, 200, 256, 400)


class Layer(NamedTuple):
    """A product with a matrix of so many columns; what is before it activates what it reads, but for the first."""

    columns: int
    transposed: bool = False
    bias: bool = True
    before: str = "relu"


def one_kernel(
    chip: str, shape: tuple[int, ...], layers: Sequence[Layer], pick: Callable[[int], int], *, added: bool = False
) -> tuple[Result, float]:
    """All of them by one of the tiles, of which the best comes first; and how far from what they are apart."""
    rng = np.random.default_rng(4)
    inputs = {"x": random(rng, "float16", *shape)}
    expected = inputs["x"].astype(np.float64)
    for at, layer in enumerate(layers):
        depth = expected.shape[-1]
        w = (random(rng, "float16", depth, layer.columns) / depth**0.5).astype(np.float16)
        inputs[f"w{at}"] = np.ascontiguousarray(w.T) if layer.transposed else w
        if at:
            expected = ACTIVATIONS[layer.before][1](expected).astype(np.float16).astype(np.float64)
        expected = expected @ w.astype(np.float64)
        if layer.bias:
            inputs[f"b{at}"] = random(rng, "float16", layer.columns)
            expected = expected + inputs[f"b{at}"]
    if added:
        inputs["added"] = random(rng, "float16", *expected.shape)
        expected = expected + inputs["added"]

    def define(x: te.Tensor, *given: te.Tensor) -> te.Tensor:
        left = iter(given)
        for at, layer in enumerate(layers):
            activate = ACTIVATIONS[layer.before][0]
            if at and activate is not None:
                x = made(x, activate, f"activation{at}")
            w, b = next(left), next(left) if layer.bias else None
            x = _multiplied(x, w, b, transposed=layer.transposed)
        return te.compute(x.shape, lambda *i: x(*i) + given[-1](*i), "sum") if added else x

    result = run(by_cost(products.space, pick), chip, inputs, define)
    return result, float(np.abs(result.output - expected).max() / max(np.abs(expected).max(), 0.1))


def _multiplied(x: te.Tensor, w: te.Tensor, b: te.Tensor | None, *, transposed: bool) -> te.Tensor:
    if len(x.shape) == 2:
        return gemm(x, w, b, transB=int(transposed))
    rows = cast_stage(product(x, w, transpose_b=transposed), "float16")
    return rows if b is None else te.compute(rows.shape, lambda *i: rows(*i) + b(i[-1]), "biased")


def check(seed: int, chip: str) -> Outcome:
    """The first of the seed's rows of products that has a tile on the chip."""

    def draw(source: Random) -> Drawn:
        (shape, layers), added = _draw(source), source.random() < 0.3
        said = f"{shape}, {[tuple(layer) for layer in layers]}, {added}"
        kind = f"of {len(layers)} products"
        return Drawn(said, kind, lambda pick: one_kernel(chip, shape, layers, pick, added=added))

    return check_first(seed, chip, draw, TOLERANCE)


def _draw(source: Random) -> tuple[tuple[int, ...], list[Layer]]:
    shape = source.choice(ROWS), source.choice(COLUMNS)
    return (source.choice(((), (), (3,), (2, 2)))) + shape, [
        Layer(
            source.choice(COLUMNS),
            source.random() < 0.4,
            source.random() < 0.7,
            source.choice(("relu", "relu", *ACTIVATIONS)),
        )
        for _ in range(source.choice((2, 2, 3)))
    ]
