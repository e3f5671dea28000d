"""Which tiles are compared with the best by ranking."""

from __future__ import annotations

from compiler.kernels import spaces
from compiler.target import load_chip
from compiler.tiling.ranking import Ranked, ranked
from compiler.tiling.rivals import rivals_of
from compiler.tiling.search import Work, columns_of
from tests.test_kernels import product


def test_the_best_by_the_analytical_cost_is_one_of_those_compared() -> None:
    """Or another that is as good by it."""
    chip = load_chip("tw1")
    _, space = next(spaces(product(), "matmul", chip))
    found, *left = ranked(space, chip)
    compared = [found, *rivals_of(found, left, chip)]
    least = min(one.analytical_cycles for one in (found, *left))
    assert min(one.analytical_cycles for one in compared) == least


def test_the_first_half_of_many_tiles_comes_in_order_and_the_others_are_least_alike() -> None:
    works = columns_of([Work(cores=8, cube_cycles=4000.0 + at) for at in range(20)])
    near = [Ranked(at, works, at, 5000.0 + 50 * at, 5000.0) for at in range(20)]
    tried = [one.tile for one in rivals_of(near[0], near[1:], load_chip("tw1"), 6)]
    assert tried[:3] == [1, 2, 3]
    assert len(tried) == 6
    assert tried[3] == 19


def test_the_next_tile_is_compared_then_those_least_like_those_before_and_no_work_twice() -> None:
    """The second asks the same of the chip as the first, so the third is the next."""
    cube = (4000.0, 4000.0, 4100.0, 4200.0, 2000.0)
    works = columns_of([Work(cores=8, cube_cycles=cycles) for cycles in cube])
    near = [Ranked(at, works, at, 5000.0 + at, 5000.0) for at in range(len(cube))]
    assert [one.tile for one in rivals_of(near[0], near[1:], load_chip("tw1"))] == [2, 4]


def test_of_tiles_that_rank_equal_those_with_other_trips_are_compared() -> None:
    """A row of vector work more or less at once: memory takes as long for all of them, trips cost what ranking does not
    know."""
    trips = (60, 55, 50, 45, 40)
    works = columns_of([Work(cores=20, trips=each) for each in trips])
    equal = [Ranked(each, works, at, 5000.0, 5000.0) for at, each in enumerate(trips)]
    others = rivals_of(equal[0], equal[1:], load_chip("tw2"))
    assert [one.tile for one in others] == [55, 40]
    unequal = [one._replace(cycles=5000.0 + at) for at, one in enumerate(equal)]
    assert [one.tile for one in rivals_of(unequal[0], unequal[1:], load_chip("tw2"))] == [55, 40]
    assert [one.tile for one in rivals_of(equal[0], equal[1:2], load_chip("tw2"))] == [55], "rather than none"


def test_one_kernel_of_many_is_compared_as_often_as_one_that_takes_less() -> None:
    works = columns_of([Work(cores=8, cube_cycles=1000.0 * at) for at in range(1, 9)])
    near = [Ranked(at, works, at, 21_000.0 + at, 21_000.0) for at in range(8)]
    compared = {times: len(rivals_of(near[0], near[1:], load_chip("tw1"), times=times)) for times in (1, 2, 8, 32)}
    assert compared == {1: 3, 2: 2, 8: 1, 32: 1}
    assert len(rivals_of(near[0], near[1:], load_chip("tw1"), 5, times=32)) == 5, "somebody asks for them"
