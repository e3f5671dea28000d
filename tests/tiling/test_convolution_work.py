"""What the tiles of a convolution are thought to make the machine do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from tvm import te

from compiler.operators.convolution import convolution
from compiler.target import Chip, load_chip
from compiler.tiling import convolution as template
from compiler.tiling.convolution_tiles import HO, OUT, N
from compiler.tiling.convolution_work import work_of
from compiler.tiling.search import analytical_cycles, queue_cycles

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
    assert several
    for tile in several:
        held, again = (space.work(tile._replace(held=names)) for names in (tile.held, frozenset()))
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
