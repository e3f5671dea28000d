"""Attention over more keys than UB has room for, cut along its keys, against numpy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import te

import compiler
from compiler.operators.matmul import matmul
from compiler.target import load_chip
from compiler.tiling import attention_in_parts as template
from compiler.tiling.template import NoFeasibleTile
from models import checks
from tests.frontend.models import model, node
from tests.tiling.kernels import by_cost, exact, random, run
from tests.tiling.test_attention import attention, expected, of_rows_of_keys

CHIPS = ("tw1", "tw2")


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("rank", [0, 7])
@pytest.mark.parametrize(
    ("batch", "sizes", "dtype", "mask"),
    [
        ((), (100, 16, 4096, 16), "float16", None),
        ((2,), (70, 40, 6000, 24), "float16", (1, 70, 6000)),
        ((1, 2), (64, 32, 4098, 32), "float32", None),
        ((1,), (40, 64, 4099, 64), "float16", (4099,)),  # a prime: no number of parts is even
    ],
)
def test_attention_in_parts(
    chip: str, rank: int, batch: tuple[int, ...], sizes: tuple[int, int, int, int], dtype: str, mask: Any
) -> None:
    queries, width, keys, values = sizes
    rng = np.random.default_rng(keys)
    shapes = {"q": (*batch, queries, width), "k": (*batch, width, keys), "v": (*batch, keys, values)}
    arrays = {name: random(rng, dtype, *shape) for name, shape in shapes.items()}
    if mask is not None:
        arrays["mask"] = random(rng, dtype, *mask)
    output = run(by_cost(template.space, lambda tiles: rank % tiles), chip, arrays, attention).output
    tolerance = 8e-3 if dtype == "float16" else 1e-5
    wanted = expected(*exact(list(arrays.values())))
    np.testing.assert_allclose(output.astype(np.float64), wanted, atol=tolerance, rtol=0)


@pytest.mark.parametrize("chip", CHIPS)
def test_keys_that_are_values_too(chip: str) -> None:
    rng = np.random.default_rng(5)
    arrays = {"q": random(rng, "float16", 64, 32), "k": random(rng, "float16", 5000, 32)}
    output = run(by_cost(template.space, lambda _: 0), chip, arrays, lambda q, k: of_rows_of_keys(q, k, k)).output
    q, k = exact(list(arrays.values()))
    np.testing.assert_allclose(output.astype(np.float64), expected(q, k.T, k), atol=8e-3, rtol=0)


@pytest.mark.parametrize(("queries", "keys"), [(64, 512), (1, 8192)])
def test_what_fits_at_once_is_not_cut(queries: int, keys: int) -> None:
    shapes = {"q": (queries, 64), "k": (64, keys), "v": (keys, 64)}
    q, k, v = (te.placeholder(shape, "float16", name) for name, shape in shapes.items())
    with pytest.raises(NoFeasibleTile, match="all of them fit"):
        template.space(te.create_prim_func([q, k, v, attention(q, k, v)]), load_chip("tw2"))


def test_products_without_a_softmax_are_refused() -> None:
    q, k, v = (te.placeholder((4096, 4096), "float16", name) for name in "qkv")
    with pytest.raises(NoFeasibleTile, match="not the quotient"):
        template.space(te.create_prim_func([q, k, v, matmul(matmul(q, k), v)]), load_chip("tw2"))


def test_long_keys_of_a_model_take_a_fifth_of_what_all_keys_at_once_take() -> None:
    """1 x 4 heads of 256 queries and 4,096 keys in fp32: 294,604 cycles with four queries at once."""
    shapes = {"q": [1, 4, 256, 64], "k": [1, 4, 64, 4096], "v": [1, 4, 4096, 64]}
    nodes = [node("MatMul", "q k", "s"), node("Softmax", "s", "p", axis=-1), node("MatMul", "p v", "y")]
    network = model(nodes, shapes, ["y"])
    loaded = compiler.load(compiler.compile(network.SerializeToString(), chip="tw2", precision="fp32"))
    rng = np.random.default_rng(1)
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    found, wanted = loaded.run(feeds, hazards=True)["y"], checks.run(network, feeds)["y"]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert (loaded.cycles or 0) < 65_000
