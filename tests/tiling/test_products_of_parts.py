"""Products that begin and end anywhere in their operands, against numpy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from ci.random_cases import CHIPS
from tests.tiling.random_products import TOLERANCE, Part, Product, check, one_kernel

# What does not fill a tile goes on behind it: along n, along k, along both; and one element of k of many.
CASES = [
    ("tw2", "float16", Part(16, 26, 74), Part(200, 16, 59), Part(33, 16, 0)),
    ("tw1", "float32", Part(128, 0, 0), Part(600, 16, 24), Part(65, 29, 0)),
    ("tw2", "float32", Part(65, 0, 0), Part(384, 0, 0), Part(512, 0, 1024)),
    ("tw1", "float16", Part(40, 16, 17), Part(33, 16, 47), Part(40, 2, 90)),
    ("tiny", "int8", Part(33, 16, 47), Part(33, 0, 27), Part(1, 16, 29)),
]


@pytest.mark.parametrize(("chip", "dtype", "m", "n", "k"), CASES, ids=str)
def test_nothing_behind_a_part_moves_what_the_product_reads(chip: str, dtype: str, m: Part, n: Part, k: Part) -> None:
    product = Product(dtype, m, n, k, 0, False, (False, False), False, 0.0)
    assert one_kernel(chip, product, np.random.default_rng(1)) <= TOLERANCE[dtype]


def test_cores_without_a_tile_store_nothing() -> None:
    """By a tile whose grid has six cores along the rows, where four have rows."""
    shape = Part(128, 0, 0), Part(200, 16, 0), Part(128, 0, 6)
    product = Product("float32", *shape, 2, True, (True, False), False, 0.04455)
    assert one_kernel("tw1", product, np.random.default_rng(1)) <= TOLERANCE["float32"]


@pytest.mark.parametrize("seed", range(24))
def test_random_ones_are_free_of_hazards_and_right(seed: int) -> None:
    assert check(seed, CHIPS[seed % 3]).text == ""
