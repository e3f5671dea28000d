"""What the tiles of a convolution are thought to make the machine do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tvm import te

from compiler.operators.convolution import convolution
from compiler.target import Chip, load_chip
from compiler.tiling import convolution as template
from compiler.tiling.convolution_tiles import HO, OUT, N, Tile
from compiler.tiling.convolution_work import Columns, _lines, work_of
from compiler.tiling.search import analytical_cycles, queue_cycles, works_in, works_of

DDR, LLB = 7, 8  # of the cycles of the queues


def space_of(chip: Chip, x: tuple[int, ...], outputs: int, kernel: int) -> Any:
    block = 32 // np.dtype(np.float16).itemsize
    packed = (1, 1, -(-x[1] // block), kernel, kernel, outputs, block)
    operands = [te.placeholder(shape, "float16", name) for name, shape in (("x", x), ("w", packed))]
    sizes = {"kernel": (kernel, kernel), "channels": x[1], "outputs": outputs}
    pads = (kernel // 2,) * 4
    result = convolution(*operands, **sizes, strides=(1, 1), pads=pads, dilations=(1, 1))
    return template.space(te.create_prim_func([*operands, result]), chip)


def test_what_cores_share_comes_from_ddr_once_however_often_they_load_it() -> None:
    space = space_of(load_chip("tw1"), (1, 64, 56, 56), 64, 3)
    several = [t for t in space.tiles() if t.held == {"weights"} and t.trips[HO] > 1 and t.cores[HO] > t.cores[OUT]]
    works = [[space.work(tile._replace(held=names)) for names in (tile.held, frozenset())] for tile in several]
    shared = [(held, again) for held, again in works if held.shared and again.shared]
    assert shared
    for held, again in shared:
        assert again.ddr_bytes == held.ddr_bytes
        assert again.llb_bytes > held.llb_bytes


def test_what_does_not_fit_in_llb_comes_again() -> None:
    chip = load_chip("tw1")
    space = space_of(chip, (1, 64, 56, 56), 64, 3)
    small = replace(space.problem, llb_bytes=1024)
    tile = next(t for t in space.tiles() if not t.held and t.trips[HO] > 1 and t.cores[HO] > 2 > t.cores[OUT])
    assert work_of(tile, small, chip).ddr_bytes > work_of(tile, space.problem, chip).ddr_bytes


def test_loads_from_llb_and_from_ddr_wait_for_one_another() -> None:
    """A map in LLB that all cores of the only cluster read, each with weights of its own from DDR."""
    chip = replace(load_chip("tw1"), clusters=1)
    space = space_of(chip, (8, 512, 7, 7), 2048, 1)
    problem = replace(space.problem, near=frozenset({"map"}))
    tile = next(t for t in space.tiles() if t.cores[OUT] == 8)
    work = work_of(tile, problem, chip)
    weight_cycles = 2 * 512 * 2048 * 1000 / chip.bandwidth.ddr_bytes_per_kilocycle
    assert work.mte2_cycles >= queue_cycles(work, chip)[LLB] + weight_cycles


def test_what_comes_once_comes_before_most_of_the_work() -> None:
    """All weights come with the first image: there DDR is waited for, the others are left for afterwards."""
    chip = load_chip("tw1").one_cluster()
    space = space_of(chip, (4, 256, 14, 14), 256, 3)
    problem = replace(space.problem, near=frozenset({"map", "result"}))
    tile = next(t for t in space.tiles() if not t.held and t.trips[N] == 4 and t.cores[OUT] == 4 and t.trips[OUT] > 1)
    work = work_of(tile, problem, chip)
    assert analytical_cycles(work, chip) > queue_cycles(work, chip)[DDR] + work.cube_cycles * 3 / 4


SHAPES = [((1, 64, 56, 56), 64, 3), ((8, 512, 7, 7), 2048, 1), ((4, 100, 30, 31), 48, 3)]


@pytest.mark.parametrize("chip_name", ["tiny", "tw1", "tw2"])
@pytest.mark.parametrize(("x", "outputs", "kernel"), SHAPES)
def test_columns_hold_what_each_tile_says_of_itself(
    chip_name: str, x: tuple[int, ...], outputs: int, kernel: int
) -> None:
    space = space_of(load_chip(chip_name), x, outputs, kernel)
    tiles, problem = space.tiles()[::7], space.problem
    columns = Columns(tiles, problem)

    def held_weight_bytes(tile: Tile) -> int:
        return tile._replace(held=tile.held | {"weights"}).weight_bytes(problem, tile.chunk)

    expected = {name: [getattr(tile, name) for tile in tiles] for name in ("positions", "rounds", "products", "pieces")}
    expected |= {name: [getattr(tile, name)() for tile in tiles] for name in ("map_loads", "weight_loads")}
    expected |= {name: [getattr(tile, name)(problem) for tile in tiles] for name in ("steps", "chunks")}
    expected |= {name: [getattr(tile, name) for tile in tiles] for name in ("map_rows", "l0c_bytes")}
    expected["held_weight_bytes"] = [held_weight_bytes(tile) for tile in tiles]
    for name, numbers in expected.items():
        assert getattr(columns, name).tolist() == numbers, name
    boxes = [problem.box(tile.map_rows, tile.columns, problem.kernel[0]) for tile in tiles]
    assert list(zip(*(each.tolist() for each in columns.box), strict=True)) == boxes


def test_the_work_of_a_tile_does_not_depend_on_the_tiles_beside_it() -> None:
    space = space_of(load_chip("tw2"), (1, 64, 56, 56), 64, 3)
    tiles = space.tiles()[::50]
    assert works_in(works_of(space, tiles)) == [space.work(tile) for tile in tiles]


@pytest.mark.parametrize("line", [32, 64])
def test_lines_of_runs_are_counted_at_all_places_where_one_may_begin(line: int) -> None:
    for run in (1, 2, 31, 32, 33, 64, 200):
        for pitch in (2, 6, 14, 32, 48, 64, 112):
            places = range(0, line, np.gcd(pitch, line))
            touched = [-(-(place + run) // line) * line for place in places]
            assert _lines(np.array([run]), np.array([pitch]), line) == np.mean(touched)
