"""The template of vector work: tiles, cores, staging, on every chip, against numpy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

from compiler.operators.softmax import softmax_of
from compiler.target import load_chip
from compiler.tiling import vector
from compiler.tiling.search import cheapest_first
from compiler.tiling.template import NoFeasibleTile
from compiler.tiling.vector import Tile, tiles
from compiler.tiling.vector_blocks import busiest_core, split_cores
from tests.tiling.kernels import run

CHIPS = ("tw1", "tw2", "tiny")


def softmax(x: Any) -> Any:
    n, m = x.shape
    k = te.reduce_axis((0, m), "k")
    largest = te.compute((n,), lambda i: te.max(x[i, k], axis=k), "largest")
    powers = te.compute((n, m), lambda i, j: tirx.exp(x[i, j] - largest[i]), "powers")
    r = te.reduce_axis((0, m), "r")
    total = te.compute((n,), lambda i: te.sum(powers[i, r], axis=r), "total")
    return te.compute((n, m), lambda i, j: powers[i, j] / total[i], "softmax")


def exact_softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (37, 61), (130, 33)])
def test_rows(chip: str, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    np.testing.assert_allclose(run(vector.schedule, chip, {"x": x}, softmax).output, exact_softmax(x), rtol=2e-5)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("shape", [(1, 7, 1), (1, 37, 61), (2, 21, 150), (1, 96, 784)])
def test_columns(chip: str, shape: tuple[int, int, int]) -> None:
    """Of some columns all that is reduced, read once, where that fits."""
    x = np.random.default_rng(8).standard_normal(shape).astype(np.float32)
    found = run(vector.schedule, chip, {"x": x}, lambda given: softmax_of(given, axis=1))
    powers = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(found.output, powers / powers.sum(1, keepdims=True), rtol=2e-5)
    if chip != "tiny" and shape[2] > 1:
        assert f"x{shape[1]}x" in found.description.partition(" of ")[2].partition(" of ")[0]
        assert str(found.func.script()).count("tw.ld.ddr.ub") == 1


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 5), (4, 1, 9, 2)])
def test_transposition(chip: str, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)

    def define(x: Any) -> Any:
        return te.compute(shape[::-1], lambda *i: x[i[::-1]], "transposed")

    assert np.array_equal(run(vector.schedule, chip, {"x": x}, define).output, x.transpose())


@pytest.mark.parametrize("chip", CHIPS)
def test_padding_and_windows(chip: str) -> None:
    x = np.random.default_rng(3).standard_normal((3, 14, 15)).astype(np.float32)

    def define(x: Any) -> Any:
        around = te.compute(
            (3, 16, 17),
            lambda c, i, j: tirx.if_then_else(
                tirx.all(i >= 1, i < 15, j >= 1, j < 16), x[c, i - 1, j - 1], tirx.const(0, "float32")
            ),
            "around",
        )
        a, b = te.reduce_axis((0, 3), "a"), te.reduce_axis((0, 3), "b")
        return te.compute((3, 7, 8), lambda c, i, j: te.sum(around[c, 2 * i + a, 2 * j + b], axis=[a, b]), "windows")

    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1)))
    expected = np.zeros((3, 7, 8))
    for a in range(3):
        for b in range(3):
            expected += padded[:, a : a + 13 : 2, b : b + 15 : 2]
    np.testing.assert_allclose(run(vector.schedule, chip, {"x": x}, define).output, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("chip", CHIPS)
def test_a_result_without_axes(chip: str) -> None:
    x = np.random.default_rng(4).standard_normal(100).astype(np.float32)

    def define(x: Any) -> Any:
        k = te.reduce_axis((0, 100), "k")
        return te.compute((), lambda: te.max(x[k], axis=k), "largest")

    assert run(vector.schedule, chip, {"x": x}, define).output == x.max()


def test_each_attempt_asks_for_less_until_none_is_left() -> None:
    x = te.placeholder((64, 64), "float32", "x")
    func = te.create_prim_func([x, te.compute((64, 64), lambda i, j: x[i, j] * tirx.const(2, "float32"), "y")])
    chip = load_chip("tiny")
    descriptions = [vector.schedule(func, chip, attempt).description for attempt in range(4)]
    assert len(set(descriptions)) > 1
    with pytest.raises(NoFeasibleTile, match="TW2401"):
        for attempt in range(100):
            vector.schedule(func, chip, attempt)


def test_cores_share_the_loops_over_tiles_evenly() -> None:
    assert split_cores((64, 10), 32) == (32, 1)
    assert busiest_core((64, 10), 32) == 20
    assert busiest_core((7, 5), 32) == 2  # 7 parts by 4, or 4 by 5: two tiles for the busiest either way
    assert split_cores((1, 1, 1, 100), 20) == (1, 1, 1, 20)
    assert busiest_core((3,), 32) == 1


@pytest.mark.parametrize("shape", [(1,), (1000, 777), (3, 1, 5)])
def test_tiles_range_from_one_element_to_everything(shape: tuple[int, ...]) -> None:
    sizes = {int(np.prod(tile.extents)) for tile in tiles(shape, 20)}
    assert {1, int(np.prod(shape))} <= sizes


@pytest.mark.parametrize("cores", [1, 20, 32])
def test_cuts_of_the_share_of_a_core(cores: int) -> None:
    rows = {tile.extents[0] for tile in tiles((1000, 777), cores) if tile.extents[1] == 777}
    share = -(-1000 // cores)
    assert {-(-share // parts) for parts in (1, 2, 3, 5)} <= rows


def test_an_axis_along_which_an_input_is_contiguous_is_cut_with_the_last() -> None:
    assert Tile((32, 1, 50)) in tiles((64, 7, 100), 1, [0])
    assert Tile((32, 1, 50)) not in tiles((64, 7, 100), 1)


def test_tiles_of_a_transposition_are_blocks_of_whole_lines() -> None:
    x = te.placeholder((2048, 2048), "float32", "x")
    func = te.create_prim_func([x, te.compute((2048, 2048), lambda i, j: x[j, i], "t")])
    chip = load_chip("tw2")
    space = vector.space(func, chip)
    best = cheapest_first(space, space.tiles(), chip)[0]
    assert all(extent * 4 % chip.transfer.ddr_line_bytes == 0 for extent in best.extents)
    assert space.work(best).ddr_bytes == 2 * 2048 * 2048 * 4
    assert space.taken(best)["ub"] <= chip.memory.ub_bytes


def test_a_row_that_leaves_no_room_for_a_second_is_read_in_pieces() -> None:
    x = te.placeholder((4096, 512), "float32", "x")
    k = te.reduce_axis((0, 4096), "k")
    func = te.create_prim_func([x, te.compute((512,), lambda j: te.sum(x[k, j], axis=k), "sum")])
    chip = load_chip("tw1")
    space = vector.space(func, chip)
    best = cheapest_first(space, space.tiles(), chip)[0]
    assert best.piece > 0
    assert space.work(best).ddr_bytes < 1.01 * 4096 * 512 * 4
