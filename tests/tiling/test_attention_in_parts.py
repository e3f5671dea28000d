"""Attention over more keys than UB has room for, cut along its keys, against numpy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import te

import compiler
from compiler.operators.matmul import matmul
from compiler.schedule.files import parse_schedule
from compiler.target import load_chip
from compiler.tiling import attention_in_parts as template
from compiler.tiling.template import NoFeasibleTile
from models import checks
from tests.frontend.models import model, node
from tests.tiling.kernels import by_cost, exact, random, run
from tests.tiling.test_attention import attention, expected, of_rows_of_keys

CHIPS = ("tw1", "tw2")


# Batch, sizes of queries, width, keys and values, type, and mask.
CASES: list[tuple[tuple[int, ...], tuple[int, int, int, int], str, Any]] = [
    ((), (100, 16, 4096, 16), "float16", None),
    ((2,), (70, 40, 6000, 24), "float16", (1, 70, 6000)),
    ((1, 2), (64, 32, 4098, 32), "float32", None),
    ((1,), (40, 64, 4099, 64), "float16", (4099,)),  # a prime: no number of parts is even
]


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("number", range(len(CASES)))
def test_attention_in_parts(chip: str, number: int) -> None:
    """By the best tile on one of the chips, and by another one on the other."""
    (batch, (queries, width, keys, values), dtype, mask) = CASES[number]
    rank = 7 * ((number + CHIPS.index(chip)) % 2)
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


def attention_model(heads: int, queries: int, keys: int, width: int, scaled: bool, masked: bool) -> Any:
    shapes = {"q": [heads, queries, width], "k": [heads, width, keys], "v": [heads, keys, width]}
    nodes, scores = [node("MatMul", "q k", "s")], "s"
    if scaled:
        nodes.append(node("Mul", "s by", "scaled"))
        scores = "scaled"
    if masked:
        shapes["mask"] = [1, queries, keys]
        nodes.append(node("Add", f"{scores} mask", "masked"))
        scores = "masked"
    nodes += [node("Softmax", scores, "p", axis=-1), node("MatMul", "p v", "y")]
    return model(nodes, shapes, ["y"], {"by": np.float32(width**-0.5)} if scaled else {}), shapes


@pytest.mark.parametrize(
    ("chip", "precision", "sizes", "scaled", "masked", "most"),
    [
        ("tw2", "fp32", (2, 128, 4096, 64), False, False, 36_006),  # 87,929 with all keys at once
        ("tw1", "fp32", (2, 128, 4096, 64), True, True, 127_034),  # 152,086
        ("tw2", "fp16", (4, 256, 4096, 40), True, False, 22_160),  # 83,845
        pytest.param("tw2", "fp16", (4, 256, 4096, 64), True, True, 32_203, marks=pytest.mark.slow),  # 89,466
        pytest.param("tw2", "fp16", (8, 512, 4096, 40), True, False, 73_653, marks=pytest.mark.slow),  # 306,264
        pytest.param("tw2", "fp16", (12, 2048, 2048, 64), True, True, 325_908, marks=pytest.mark.slow),  # 588,295
        pytest.param("tw2", "fp16", (8, 128, 8192, 128), False, False, 101_873, marks=pytest.mark.slow),  # 662,180
    ],
)
def test_long_keys_of_models(
    chip: str, precision: str, sizes: tuple[int, int, int, int], scaled: bool, masked: bool, most: int
) -> None:
    network, shapes = attention_model(*sizes, scaled, masked)
    # Of all numbers of clusters that tw1 could be run with, this is the fastest.
    told = parse_schedule('clusters = 2\n[pieces]\n"y" = 1\n') if chip == "tw1" else None
    compiled = compiler.compile(network.SerializeToString(), chip=chip, precision=precision, schedule=told)
    loaded = compiler.load(compiled)
    rng = np.random.default_rng(1)
    feeds = {name: (rng.standard_normal(shape) / 2).astype(np.float32) for name, shape in shapes.items()}
    if not scaled:
        feeds["q"] *= np.float32(sizes[3] ** -0.5)
    found, wanted = loaded.run(feeds, hazards=True)["y"], checks.run(network, feeds)["y"]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 if precision == "fp32" else 3e-3)
    assert 0 < (loaded.cycles or 0) <= most
