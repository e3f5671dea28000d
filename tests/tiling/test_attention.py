"""Attention whose scores stay on the core, as tiled for every chip, against numpy in float64."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

from compiler import pipeline
from compiler.operators.matmul import cast_stage, matmul, product
from compiler.operators.softmax import softmax_of
from compiler.target import load_chip
from compiler.tiling import attention as template
from compiler.tiling.template import NoFeasibleTile
from tests.tiling.kernels import exact, random, run

CHIPS = ("tw1", "tw2", "tiny")
SCALE = 0.125


def attention(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    scores = matmul(q, k)
    scaled = te.compute(scores.shape, lambda *i: scores[i] * tirx.const(SCALE, str(scores.dtype)), "scaled")
    if mask is None:
        return matmul(softmax_of(scaled), v)

    def masked(*i: Any) -> Any:
        own = i[len(i) - len(mask.shape) :]
        return scaled[i] + mask[tuple(0 if int(n) == 1 else j for n, j in zip(mask.shape, own, strict=True))]

    return matmul(softmax_of(te.compute(scores.shape, masked, "masked")), v)


def expected(q: Any, k: Any, v: Any, mask: Any = 0.0) -> Any:
    scores = q @ k * SCALE + mask
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights @ v / weights.sum(axis=-1, keepdims=True)


def check(
    chip: str, batch: tuple[int, ...], sizes: tuple[int, int, int, int], dtype: str, mask: Any, attempt: int
) -> None:
    queries, width, keys, values = sizes
    rng = np.random.default_rng(queries * keys)
    arrays = {
        "q": random(rng, dtype, *batch, queries, width),
        "k": random(rng, dtype, *batch, width, keys),
        "v": random(rng, dtype, *batch, keys, values),
    }
    if mask is not None:
        arrays["mask"] = random(rng, dtype, *mask)
    output = run(template.schedule, chip, arrays, attention, attempt).output
    # Scores, weights and results are rounded to fp16: each within 2**-11 of numbers of a few units.
    tolerance = 8e-3 if dtype == "float16" else 1e-5
    np.testing.assert_allclose(
        output.astype(np.float64), expected(*exact(list(arrays.values()))), atol=tolerance, rtol=0
    )


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    ("batch", "sizes", "dtype", "mask"),
    [
        ((), (17, 16, 23, 16), "float16", None),
        ((2, 3), (50, 32, 70, 24), "float16", (2, 1, 1, 70)),
        ((1,), (1, 64, 200, 64), "float16", None),
        ((1, 2), (33, 40, 33, 40), "float32", (33, 33)),
        ((3,), (32, 16, 48, 1), "float16", None),
    ],
)
def test_attention(chip: str, batch: tuple[int, ...], sizes: tuple[int, int, int, int], dtype: str, mask: Any) -> None:
    check(chip, batch, sizes, dtype, mask, 0)


@pytest.mark.parametrize("chip", ["tw1", "tw2"])
def test_fewer_rows(chip: str) -> None:
    check(chip, (1,), (70, 32, 90, 32), "float16", None, 2)


def of_rows_of_keys(q: Any, k: Any, v: Any) -> Any:
    """Attention whose keys are stored as the queries are, a row each."""
    scores = cast_stage(product(q, k, transpose_b=True), str(q.dtype))
    scaled = te.compute(scores.shape, lambda *i: scores[i] * tirx.const(SCALE, str(scores.dtype)), "scaled")
    return matmul(softmax_of(scaled), v)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("attempt", [0, 1])
def test_keys_in_rows(chip: str, attempt: int) -> None:
    rng = np.random.default_rng(7)
    arrays = {"q": random(rng, "float16", 2, 70, 32)}
    arrays |= {name: random(rng, "float16", 2, 90, 32) for name in ("k", "v")}
    output = run(template.schedule, chip, arrays, of_rows_of_keys, attempt).output
    q, k, v = exact(list(arrays.values()))
    wanted = expected(q, np.swapaxes(k, -1, -2), v)
    np.testing.assert_allclose(output.astype(np.float64), wanted, atol=8e-3, rtol=0)


@pytest.mark.parametrize("chip", ["tw1", "tw2"])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("divided", [True, False])
def test_the_fixpipe_scales_scores_whatever_else_their_stage_does(chip: str, masked: bool, divided: bool) -> None:
    def define(q: Any, k: Any, v: Any, mask: Any) -> Any:
        scores = matmul(q, k)
        by = tirx.const(5.656854, str(scores.dtype))

        def scaled(*i: Any) -> Any:
            value = scores[i] / by if divided else scores[i] * tirx.const(1 / 5.656854, str(scores.dtype))
            return value + mask[i[-1]] if masked else value

        return matmul(softmax_of(te.compute(scores.shape, scaled, "scaled")), v)

    rng = np.random.default_rng(3)
    arrays = {name: random(rng, "float16", *shape) for name, shape in (("q", (64, 32)), ("k", (32, 96)))}
    arrays |= {"v": random(rng, "float16", 96, 32), "mask": random(rng, "float16", 96)}
    found = run(template.schedule, chip, arrays, define)
    assert "fixscale" in str(found.func)
    assert not re.search(r"tw\.v(div|mul)s", str(found.func))
    q, k, v, mask = exact(list(arrays.values()))
    scores = q @ k / 5.656854 + (mask if masked else 0)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    wanted = weights @ v / weights.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(found.output.astype(np.float64), wanted, atol=8e-3, rtol=0)


def test_rows_too_long_for_ub() -> None:
    q, k, v = (te.placeholder(s, "float16", n) for s, n in (((64, 64), "q"), ((64, 5000), "k"), ((5000, 64), "v")))
    with pytest.raises(NoFeasibleTile, match="no tile fits"):
        template.schedule(te.create_prim_func([q, k, v, attention(q, k, v)]), load_chip("tiny"), 0)


def problem_of(queries: int, batch: int = 12, keys: int = 64) -> template.Problem:
    return template.Problem((batch,), queries, keys, 64, 64, "fp16", row_bytes=4 * keys + 512, passes=3)


def test_queries_are_cut_evenly_for_any_number_of_cores() -> None:
    """Also where a step divides them: ten cores of twenty have 52 of 512 queries each, and not 64 or none."""
    chip = load_chip("tw2")
    for queries, parts in ((197, {100, 66, 34}), (512, {52, 58, 64})):
        found = {tile.rows: tile for tile in template.candidates(problem_of(queries), chip)}
        assert parts <= set(found)
    assert min(found) == 1, "tiles that leave room remain, for later attempts"


def test_clusters_that_share_a_head_bring_its_keys_each() -> None:
    """Four clusters of eight cores: heads of three cores lie in two of them here and there."""
    chip = load_chip("tw1")

    def ddr_bytes(row_trips: int, batch_trips: int) -> float:
        tile = template.Tile(32, 64, 64, 64, (batch_trips,), row_trips, holds=False)
        return template.work_of(tile, problem_of(384, batch=8), chip).ddr_bytes

    own = 2 * 8 * 384 * 64 * 2
    held = 2 * 64 * 64 * 2
    assert ddr_bytes(row_trips=3, batch_trips=1) == own + 8 * held
    assert ddr_bytes(row_trips=4, batch_trips=1) == own + (8 + 2) * held


def test_cores_share_keys_and_values_though_each_load_alone_would_hold_nobody_up() -> None:
    """All load the values at once, behind the keys: each has its part of DDR's rate then, not the rate of its path."""
    chip = load_chip("tw2")
    q, k, v = (te.placeholder((512, 64), "float16", name) for name in "qkv")
    with pytest.raises(pipeline.Stopped) as stopped:
        tiled = template.space(te.create_prim_func([q, k, v, of_rows_of_keys(q, k, v)]), chip)
        tile = next(tile for tile in tiled.tiles() if tile.rows == 26 and not tile.holds)
        pipeline.run(
            pipeline.kernel_passes(), tiled.apply(tile).func, chip, pipeline.Observer(stop_after="share-loads")
        )
    brought = re.findall(r"ld\.ddr\.llb.*?T\.address_of\((\w)_llb", stopped.value.subject.script())
    assert set(brought) == {"k", "v"}
