"""The schedule template of a convolution of single elements whose feature map the vector unit makes on the way.

    for core: for trip: { for chunk: { x_ub = x;  y_ub = stages(x_ub);  y_l1 = y_ub;  w1 = weights
                                       for step: { a0 = y_l1 turned; w0 = w1;  c += a0 * w0 } }
                          ub = c; slaves }

What is made has the places of a channel side by side, as tensors have them, and so it lies in L1: a matrix of channels
and places, turned on its way beside the cube. Nothing of it goes back to LLB, and no channel's places are picked one
by one, as they are where a map comes to L1 from afar.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from tvm.tirx import IterVar

from compiler.isa.dtypes import DTYPES
from compiler.isa.layout import FRACTAL, ceil_to
from compiler.target import Chip
from compiler.tiling import convolution, cube
from compiler.tiling.convolution_stages import channels_last, merged
from compiler.tiling.convolution_tiles import DO, GROUP, HO, KD, Problem, Tile, tiles_of
from compiler.tiling.convolution_work import HANDOVER_CYCLES, SLOTS, Columns, map_load, works_of
from compiler.tiling.epilogue import Epilogue, work_of_stages
from compiler.tiling.masters import masters_of
from compiler.tiling.places import in_one_row
from compiler.tiling.schedule import schedule_of
from compiler.tiling.search import Work, works_in
from compiler.tiling.started_sums import started_with_bias
from compiler.tiling.template import NoFeasibleTile, Tiled
from compiler.tir.near import memory_of_parameter

NAME = "prepared"
PATHS = (("ub", "l1"), ("l1", "l0a"), ("l1", "l0b"))
ITEMSIZE = 2  # of an element that is turned beside the cube


@dataclass(frozen=True)
class Stages:
    """What is done to a feature map on its way, as the choice of a tile sees it."""

    work: Epilogue
    bytes_in_ub: int  # for each element, with a second slot of what is filled again


@dataclass(frozen=True)
class PreparedSpace:
    """All tiles of a convolution that is led by what makes its map."""

    func: Any
    problem: Problem
    stages: Stages
    chip: Chip

    def tiles(self) -> list[Tile]:
        return self._all

    @cached_property
    def _all(self) -> list[Tile]:
        """Where none leaves room for a second buffer of each kind, those that fit as they are."""
        return self._fitting(2) or self._fitting(1)

    def _fitting(self, times: int) -> list[Tile]:
        most, rooms = dict[Tile, int](), 1 if times == 2 else 2
        for tile in tiles_of(self.problem, self.chip, times):
            if tile.images == 1 and "map" not in tile.held:
                alike = tile._replace(chunk=(0, 1))
                most[alike] = max(most.get(alike, 0), tile.chunk[0])
        found = [one._replace(chunk=(size, 1)) for one, blocks in most.items() for size in _sizes(one.step[0], blocks)]
        return [tile for tile in found if self._fits(tile, rooms)]

    def _fits(self, tile: Tile, rooms: int) -> bool:
        return all(size <= self.chip.memory_bytes(name) * rooms for name, size in self.taken(tile).items())

    def work(self, tile: Tile) -> Work:
        return works_in(self.work_of_all([tile]))[0]

    def work_of_all(self, tiles: Sequence[Tile]) -> Work:
        """Of all of them at once; each number is an array."""
        problem, chip, of = self.problem, self.chip, Columns(tiles, self.problem)
        found, plain = works_of(tiles, problem, chip), map_load(of, problem, chip)
        elements, loads, cores = of.map_loads * of.positions * problem.channels, of.map_loads * of.chunks, of.used_cores
        memory, bytes_read = problem.memory_of("map"), elements * max(ITEMSIZE, self.stages.work.side_bytes)
        sharing = np.minimum(cores, chip.cores_per_cluster) if memory == "llb" else cores
        rates = {"ddr": chip.bandwidth.ddr_bytes_per_kilocycle, "llb": chip.bandwidth.llb_bytes_per_kilocycle}
        share = rates[memory] / 1000 / sharing
        into_ub = bytes_read / np.minimum(chip.path[f"{memory}_ub"].bytes_per_cycle, share)
        into_l1 = elements * ITEMSIZE / chip.path["ub_l1"].bytes_per_cycle
        vector = self.stages.work.vector_cycles(elements, loads, chip)
        moved = {"ddr": found.ddr_bytes - plain.ddr, "llb": found.llb_bytes - plain.llb}
        moved = {name: np.maximum(0.0, each) + (name == memory) * sharing * bytes_read for name, each in moved.items()}
        changed: dict[str, Any] = dict(
            vector_cycles=found.vector_cycles + vector,
            mte2_cycles=np.maximum(0.0, found.mte2_cycles - plain.cycles(chip, cores)) + into_ub,
            mte3_cycles=found.mte3_cycles + into_l1,
            ddr_bytes=moved["ddr"],
            llb_bytes=moved["llb"],
            first_cycles=found.first_cycles + (vector + into_l1) / loads + SLOTS * HANDOVER_CYCLES,
        )
        return found._replace(**changed)

    def taken(self, tile: Tile) -> dict[str, int]:
        found = tile.bytes_of(self.problem)
        channels = tile.chunk[0] * DTYPES[self.problem.dtype].fractal_k
        made = channels * ceil_to(tile.positions, FRACTAL) * self.stages.bytes_in_ub
        return found | {"ub": found["ub"] + made}

    def apply(self, tile: Tile) -> Tiled:
        sch = schedule_of(self.func)
        with cube.schedulable(NAME):
            apply(sch, self.problem, tile, self.chip)
        return Tiled(sch.mod["main"], f"{convolution.describe(self.problem, tile)}, its map by way of UB")


def space(func: Any, chip: Chip) -> PreparedSpace:
    if not all(cube.path(chip, *path) for path in PATHS):
        raise NoFeasibleTile(NAME, "a path from UB to L1, which the chip has not")
    if len(masters_of(schedule_of(func))) != 1:
        raise NoFeasibleTile(NAME, "anything but one convolution")
    func = in_one_row(started_with_bias(merged(func), chip), HO)
    if func is None:
        raise NoFeasibleTile(NAME, "a map whose places do not lie one after another")
    sch = schedule_of(func)
    (master,) = masters_of(sch)
    matrix = sch.get_producers(master.block)[0]
    problem = convolution.problem_of(sch, master, matrix, chip)
    if not _is_able(problem):
        raise NoFeasibleTile(NAME, "windows of more than single elements, or channels that are no whole blocks")
    blocks = [sch.get(block) for block in cube.makers(sch, matrix)]
    if any(int(axis.iter_type) != IterVar.DataPar for block in blocks for axis in block.iter_vars):
        raise NoFeasibleTile(NAME, "a map that sums are made of")
    far = _inputs(blocks or [sch.get(matrix)], sch.mod["main"])
    near = {"map"} if far and all(memory_of_parameter(sch.mod["main"], one) == "llb" for one in far) else set()
    problem = replace(problem, near=(problem.near - {"map"}) | near, common=problem.common - {"map"})
    found = PreparedSpace(sch.mod["main"], problem, _stages(blocks, sch.mod["main"]), chip)
    if not found.tiles():
        raise NoFeasibleTile(NAME, "tiles of a map in UB")
    return found


def _is_able(problem: Problem) -> bool:
    extents, dtype = problem.extents, DTYPES[problem.dtype]
    alone = extents[GROUP] == extents[DO] == extents[KD] == 1
    return problem.is_single and alone and dtype.itemsize == ITEMSIZE and problem.channels % dtype.fractal_k == 0


def is_possible(problems: Sequence[Problem | None], chip: Chip) -> bool:
    """Whether one kernel may do what elementwise work and a convolution do, as far as the shape of that tells."""
    able = all(cube.path(chip, *path) for path in PATHS)
    return able and len(problems) == 2 and problems[0] is None and problems[1] is not None and _is_able(problems[1])


def _inputs(blocks: Sequence[Any], func: Any) -> list[Any]:
    """The largest parameters that are read."""
    read = {region.source for block in blocks for region in block.reads}
    sizes = {param: int(np.prod([int(extent) for extent in param.shape])) for param in func.params if param in read}
    return [param for param, size in sizes.items() if size == max(sizes.values())]


def _stages(blocks: Sequence[Any], func: Any) -> Stages:
    elements = int(np.prod([int(extent) for extent in blocks[-1].writes[0].source.shape])) if blocks else 0
    work = work_of_stages(blocks, func, elements, joined=True)
    slots = SLOTS * (max(ITEMSIZE, work.side_bytes) + ITEMSIZE * bool(blocks))
    between = sum(DTYPES[cube.isa_dtype(block.writes[0].source)].itemsize for block in blocks[:-1])
    return Stages(work, slots + between)


def _sizes(step: int, most: int) -> list[int]:
    """Of chunks, in blocks of channels: whole steps."""
    found = [step]
    while found[-1] * 2 < most:
        found.append(found[-1] * 2)
    return [*found, most] if most > found[-1] else found


# ---- the schedule ------------------------------------------------------------------------------------------------


def apply(sch: Any, problem: Problem, tile: Tile, chip: Chip) -> None:
    (master,) = masters_of(sch)
    matrix = sch.get_producers(master.block)[0]
    result = sch.get(sch.get_output_blocks("root")[0]).writes[0].source
    order = convolution.order_of(tile)
    placed, *_ = convolution.place(sch, master, matrix, problem, tile, chip, order, bring=_bring(chip))
    channels_last(sch, result, cube.followers(sch, master.block))
    cube.start_sum(sch, master.block, placed)


def _bring(chip: Chip) -> convolution.Bring:
    """The windows' matrix beside the cube, turned; the map in L1 as a matrix of channels and places."""

    def bring(sch: Any, matrix: Any, _windows: Any, near: Any, far: Any) -> Any:
        stages, parameters = cube.makers(sch, matrix), list(sch.mod["main"].params)
        sch.set_scope(matrix, 0, cube.L0A)
        sch.compute_at(matrix, near, preserve_unit_loops=True)
        n, g, do, ho, wo, kd, c1, kh, kw, c0 = cube.loops_below(sch, matrix, near)[-len(convolution.WINDOW_AXES) :]
        sch.reorder(n, g, do, ho, kd, kh, kw, wo, c1, c0)
        channels = int(sch.get(matrix).iter_vars[-1].dom.extent)
        sch.transform_layout(
            matrix,
            ("write", 0),
            lambda n, g, do, ho, wo, kd, c1, kh, kw, c0: [n, g, do, ho, kd, kh, kw, wo, c1 * channels + c0],
        )
        cube.mark(sch, matrix, near, "operand")
        in_l1 = sch.cache_read(matrix, 0, cube.L1)
        sch.transform_layout(in_l1, ("write", 0), lambda n, c, *places: [n, *places[:-1], c, places[-1]])
        sch.compute_at(in_l1, far, preserve_unit_loops=True)
        cube.mark(sch, in_l1, far, "operand")
        core = sch.get_loops(in_l1)[0]
        for stage in reversed(stages):
            sch.compute_at(stage, far, preserve_unit_loops=True)
            sch.set_scope(stage, 0, cube.UB)
        for stage in (*stages, in_l1):
            cube.stage_inputs(sch, stage, far, parameters, (core, chip.memory.ub_bytes // cube.CONSTANTS_SHARE))
        return None

    return bring
