"""Two convolutions in one kernel that sums both, against numpy in float64; and what is no such pair."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tvm import te, tirx

from ci.random_cases import CHIPS
from compiler.operators.convolution import convolution
from compiler.target import load_chip
from compiler.tiling import paired
from compiler.tiling.search import analytical_cycles, analytical_cycles_of_all, works_in, works_of
from compiler.tiling.template import NoFeasibleTile
from tests.tiling.random_pairs import One, Pair, check, one_kernel

CASES: list[tuple[str, Pair]] = [
    ("tw1", Pair(1, 64, 14, 14, One(16, 1, 1, 0), One(32, 1, 2, 0))),
    ("tw1", Pair(2, 24, 9, 20, One(20, 3, 1, 1), One(3, 1, 1, 0), behind="silu")),
    ("tw1", Pair(3, 5, 7, 7, One(16, 1, 1, 0, bias=False), One(32, 3, 2, 1), behind="")),
    ("tw2", Pair(3, 48, 7, 7, One(16, 3, 1, 1), One(32, 1, 2, 0), turned=True)),
    ("tw2", Pair(1, 64, 5, 31, One(16, 1, 3, 0), One(64, 2, 1, 0, bias=False), behind="clip")),
    ("tw2", Pair(2, 16, 9, 9, One(16, 3, 1, 1, bias=False), One(16, 3, 1, 1, bias=False), group=2)),
    ("tiny", Pair(1, 32, 9, 9, One(16, 1, 1, 0), One(16, 3, 1, 1))),
]
TILES = 2  # of each case
SHAPES = {"x": (1, 16, 9, 9), "y": (1, 16, 9, 9), "w": (1, 1, 1, 3, 3, 16, 16), "v": (1, 1, 1, 3, 3, 16, 16)}
SAME: dict[str, Any] = {
    "kernel": (3, 3), "strides": (1, 1), "pads": (1,) * 4, "dilations": (1, 1), "channels": 16, "outputs": 16,
}  # fmt: skip


@pytest.mark.parametrize("part", range(TILES))
@pytest.mark.parametrize(("chip", "pair"), CASES, ids=str)
def test_both_are_what_they_are_apart(chip: str, pair: Pair, part: int) -> None:
    """By the best tile of the space, and by others."""
    result, error = one_kernel(chip, pair, lambda count: part * count // TILES)
    assert error <= 1e-3
    assert " added to " in result.description


@pytest.mark.parametrize("seed", range(9))
def test_random_ones_are_free_of_hazards_and_right(seed: int) -> None:
    assert check(seed, CHIPS[seed % 3]).text == ""


def test_sums_of_both_leave_the_cube_once() -> None:
    result, _ = one_kernel("tw1", CASES[0][1], lambda _: 0)
    assert str(result.func).count("tw.fix.") == 1


def _both(behind: Callable[[te.Tensor, te.Tensor], te.Tensor]) -> Any:
    x, y, w, v = (te.placeholder(shape, "float16", name) for name, shape in SHAPES.items())
    first, second = convolution(x, w, **SAME), convolution(y, v, **SAME)
    return te.create_prim_func([x, y, w, v, behind(first, second)])


@pytest.mark.parametrize("behind", [
    lambda a, b: te.compute(a.shape, lambda *i: a(*i) * b(*i), "multiplied"),
    lambda a, b: te.compute(a.shape, lambda *i: a(*i) + b(*i) + a(*i), "added_twice"),
    lambda a, b: te.compute(a.shape, lambda n, c, h, w: a(n, c, h, 8 - w) + b(n, c, h, w), "turned"),
    lambda a, b: te.compute(a.shape, lambda *i: tirx.max(a(*i), tirx.const(0, "float16")) + b(*i), "activated"),
], ids=["product", "twice", "turned", "activated"])  # fmt: skip
def test_what_is_no_sum_of_both_has_no_tile(behind: Any) -> None:
    with pytest.raises(NoFeasibleTile):
        paired.space(_both(behind), load_chip("tw1"))


def test_one_of_what_the_other_makes_has_no_tile() -> None:
    x, w, v = (te.placeholder(SHAPES[name], "float16", name) for name in ("x", "w", "v"))
    second = convolution(convolution(x, w, **SAME), v, **SAME)
    with pytest.raises(NoFeasibleTile):
        paired.space(te.create_prim_func([x, w, v, second]), load_chip("tw1"))


def test_the_work_of_a_tile_does_not_depend_on_the_tiles_beside_it() -> None:
    chip = load_chip("tw1")
    space = paired.space(_both(lambda a, b: te.compute(a.shape, lambda *i: a(*i) + b(*i), "both")), chip)
    columns = works_of(space, space.tiles())
    works = [space.work(tile) for tile in space.tiles()]
    assert len(set(works)) > 1
    assert works_in(columns) == works
    assert analytical_cycles_of_all(columns, chip).tolist() == [analytical_cycles(work, chip) for work in works]
