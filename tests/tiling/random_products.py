"""Random products of parts of matrices, run free of hazards, against numpy in float64.

What is multiplied begins and ends anywhere in its operands, along m, n and k; operands lie as they are or transposed,
with an axis of batches or without; what is behind the product is activated or not; of all tiles, the best or any.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any, NamedTuple

import numpy as np
from tvm import te, tirx

from ci.random_cases import Outcome
from compiler.codegen.memory import MemoryOverflow
from compiler.errors import TilewrightError
from compiler.tiling import matmul
from compiler.tiling.search import cheapest_first
from compiler.tiling.template import NoFeasibleTile
from tests.tiling.kernels import exact, random, run

TOLERANCE = {"float16": 1e-3, "float32": 1e-5, "int8": 0.0}
SUMS = {"float16": "float32", "float32": "float32", "int8": "int32"}
EXTENTS = (1, 2, 7, 15, 16, 17, 33, 40, 64, 65, 100, 128, 200, 300)


class Part(NamedTuple):
    """Along an axis: how much is multiplied, and what the operands hold before it and behind it."""

    extent: int
    before: int
    behind: int

    @property
    def all(self) -> int:
        return self.before + self.extent + self.behind

    @property
    def slice(self) -> slice:
        return slice(self.before, self.before + self.extent)


class Product(NamedTuple):
    dtype: str
    m: Part
    n: Part
    k: Part
    batch: int  # none where zero
    shared: bool  # one second operand for the whole batch
    transposed: tuple[bool, bool]
    relu: bool
    anywhere: float  # among the tiles, from the best on


def check(seed: int, chip: str) -> Outcome:
    product = _draw(Random(seed))
    case = f"{product}: "
    counted = Counter({"parts of operands": 1})
    try:
        error = one_kernel(chip, product, np.random.default_rng(seed))
    except (NoFeasibleTile, MemoryOverflow) as problem:
        # Of the tiles that are not the best, some turn out to be too large; compiling goes on to the next one.
        return Outcome(seed, chip, "" if product.anywhere else case + str(problem)[:300], Counter({"too large": 1}))
    except (AssertionError, TilewrightError) as problem:
        return Outcome(seed, chip, case + str(problem)[:300], counted)
    wrong = error > TOLERANCE[product.dtype]
    return Outcome(seed, chip, f"{case}off by {error:.2g} of the largest" if wrong else "", counted)


def one_kernel(chip: str, product: Product, rng: np.random.Generator) -> float:
    """How far from the product in float64 the kernel's result is, by the largest element."""
    m, n, k = product.m, product.n, product.k
    shapes = [(m.all, k.all), (k.all, n.all)]
    shapes = [shape[::-1] if turned else shape for shape, turned in zip(shapes, product.transposed, strict=True)]
    batches = [(product.batch,) if product.batch else ()] * 2
    if product.shared:
        batches[1] = ()
    x, y = (random(rng, product.dtype, *batch, *shape) for batch, shape in zip(batches, shapes, strict=True))

    def define(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        step = te.reduce_axis((0, k.extent), "k")

        def value(*index: Any) -> Any:
            *batch, i, j = index
            places = (i + m.before, step + k.before), (step + k.before, j + n.before)
            loads = []
            for operand, place, turned, own in zip((a, b), places, product.transposed, batches, strict=True):
                loads.append(operand(*(batch if own else ()), *(place[::-1] if turned else place)))
            return te.sum(loads[0].astype(SUMS[product.dtype]) * loads[1].astype(SUMS[product.dtype]), axis=step)

        result = te.compute((*batches[0], m.extent, n.extent), value, "product")
        if not product.relu:
            return result
        zero = tirx.const(0, SUMS[product.dtype])
        return te.compute(result.shape, lambda *index: tirx.max(result(*index), zero), "relu")

    def picked(func: Any, target: Any, _attempt: int) -> Any:
        space = matmul.space(func, target)
        tiles = cheapest_first(space, space.tiles(), target)
        if not tiles:
            raise NoFeasibleTile("main", "nothing")
        return space.apply(tiles[int(product.anywhere * len(tiles))])

    result = run(picked, chip, {"x": x, "y": y}, define)
    a, b = exact([x, y])
    a, b = (np.swapaxes(one, -1, -2) if turned else one for one, turned in zip((a, b), product.transposed, strict=True))
    expected = a[..., m.slice, k.slice] @ b[..., k.slice, n.slice]
    expected = np.maximum(expected, 0) if product.relu else expected
    return float(np.abs(result.output - expected).max() / max(np.abs(expected).max(), 1e-3))


def _draw(source: Random) -> Product:
    def part() -> Part:
        before, behind = (source.choice((0, 0, 16, source.randint(1, 70))) for _ in range(2))
        return Part(source.choice(EXTENTS), before, behind)

    batch = source.choice((0, 0, 0, 2, 5))
    return Product(
        source.choice(tuple(SUMS)), part(), part(), part(), batch, bool(batch) and source.random() < 0.4,
        (source.random() < 0.2, source.random() < 0.3), source.random() < 0.3,
        source.choice((0.0, 0.0, source.random())),
    )  # fmt: skip
