"""Products of which each multiplies what the one before makes, as one kernel, against numpy; and what is none such."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from tvm import te

from ci.random_cases import CHIPS
from compiler.operators.matmul import gemm
from compiler.target import load_chip
from compiler.tiling import products
from compiler.tiling.template import NoFeasibleTile
from compiler.tir.near import placed_near
from tests.tiling.random_product_rows import TOLERANCE, Layer, check, one_kernel

CASES: list[tuple[str, tuple[int, ...], list[Layer], bool]] = [
    ("tw1", (1024, 13), [Layer(512, transposed=True), Layer(256), Layer(64)], False),
    ("tw1", (3, 100, 64), [Layer(256, bias=False), Layer(64, before="silu")], True),
    ("tw2", (333, 100), [Layer(200), Layer(1, transposed=True, bias=False)], False),
    ("tw2", (2, 2, 40, 32), [Layer(128), Layer(50, before="clip"), Layer(24)], True),
    ("tiny", (40, 16), [Layer(32), Layer(5)], False),
]
TILES = 2  # of each case


@pytest.mark.parametrize("part", range(TILES))
@pytest.mark.parametrize(("chip", "shape", "layers", "added"), CASES, ids=str)
def test_it_is_what_products_are_apart(
    chip: str, shape: tuple[int, ...], layers: list[Layer], added: bool, part: int
) -> None:
    """By the best tile of the space, and by others."""
    result, error = one_kernel(chip, shape, layers, lambda count: part * count // TILES, added=added)
    assert error <= TOLERANCE
    assert result.description.count("; then ") == len(layers) - 1


@pytest.mark.parametrize("seed", range(9))
def test_random_ones_are_free_of_hazards_and_right(seed: int) -> None:
    assert check(seed, CHIPS[seed % 3]).text == ""


def test_what_is_between_two_products_never_leaves_the_core() -> None:
    func = str(one_kernel("tw2", (256, 64), [Layer(128), Layer(32)], lambda _: 0)[0].func)
    assert "tw.stnz" in func
    assert func.count("tw.st.") == 1  # the result


def _function(
    depths: tuple[int, ...] = (64, 128, 32), rows: int = 256, dtype: str = "float16", near: tuple[int, ...] = ()
) -> Any:
    x = made = te.placeholder((rows, depths[0]), dtype, "x")
    weights = [te.placeholder(pair, dtype, f"w{at}") for at, pair in enumerate(pairwise(depths))]
    for w in weights:
        made = gemm(made, w)
    func = te.create_prim_func([x, *weights, made])
    return placed_near(func, near, 1 << 20) if near else func


def test_matrices_stay_in_l1_where_a_core_needs_them_again() -> None:
    space = products.space(_function((64, 128, 32), rows=8192), load_chip("tw2"))
    again = [tile for tile in space.tiles() if tile.trips > 1]
    assert again
    assert all(piece.held for tile in again for piece in tile.pieces)
    assert not any(piece.held for tile in space.tiles() if tile.trips == 1 for piece in tile.pieces)


def test_what_is_small_and_near_comes_at_once() -> None:
    (first, *_) = products.space(_function(near=(1,)), load_chip("tw2")).tiles()
    assert [piece.held for piece in first.pieces] == [True, False]


@pytest.mark.parametrize("chip", ["tw1", "tw2"])
def test_no_tile_takes_more_than_there_is(chip: str) -> None:
    machine = load_chip(chip)
    space = products.space(_function((256, 1024, 256), rows=3072), machine)
    for tile in space.tiles():
        assert all(size <= machine.memory_bytes(name) for name, size in space.taken(tile).items())
        assert tile.rows * tile.trips * tile.cores >= 3072
        assert tile.cores <= machine.cores


def test_parts_of_lines_cost_more() -> None:
    """64 bytes of each row of a matrix are half a line of DDR."""
    space = products.space(_function((256, 1024, 256), rows=768), load_chip("tw1"))
    tile = space.tiles()[0]
    narrow, wide = (
        space.work(tile._replace(pieces=(products.Piece(columns, columns, 64, 1), tile.pieces[1])))
        for columns in (32, 64)
    )
    assert narrow.mte2_cycles > 1.2 * wide.mte2_cycles
    assert narrow.ddr_bytes > 1.2 * wide.ddr_bytes


def test_one_product_is_not_for_it() -> None:
    with pytest.raises(NoFeasibleTile, match="anything but several products"):
        products.space(_function((64, 32)), load_chip("tw1"))


def test_nor_are_rows_that_fit_no_core() -> None:
    with pytest.raises(NoFeasibleTile, match="tiles of all columns"):
        products.space(_function((64, 1 << 20, 32)), load_chip("tw1"))


def test_nor_types_that_the_cube_does_not_multiply_alike() -> None:
    x, w, v = (te.placeholder(s, t) for s, t in (((64, 32), "float16"), ((32, 32), "float16"), ((32, 32), "float32")))
    wide = te.compute((64, 32), lambda *i: gemm(x, w)(*i).astype("float32"), "wide")
    func = te.create_prim_func([x, w, v, gemm(wide, v)])
    with pytest.raises(NoFeasibleTile):
        products.space(func, load_chip("tw1"))


def test_it_may_be_what_products_of_alike_rows_do() -> None:
    machine = load_chip("tw1")
    alone = [products.problem_alone(_function(pair), machine) for pair in ((64, 128), (128, 32), (64, 32))]
    assert products.is_possible(alone[:2], machine)
    assert not products.is_possible(alone[1:], machine)
    assert products.problem_alone(_function(), machine) is None
    assert not products.is_possible([*alone[:1], None], machine)
