"""The schedule template of vector work whose rows the matrix unit sums: norms.

    for core: for tile: { x_ub = x;  x_l1 = x_ub;  sums = x_l1 * ones         # the cube
                          d_ub = x_ub - sums / n;  d_l1 = d_ub                # the vector unit
                          squares = diagonal of d_l1 * d_l1
                          result = ... }

A tile has some rows, with all of their elements. It is tiled as :mod:`compiler.tiling.vector` does that, and the pass
`SumRowsOnCube` puts products where sums are; tiles overlap (`CutTrips`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import prod
from typing import Any

from tvm import s_tir, tirx

from compiler.isa.layout import FRACTAL, ceil_to
from compiler.target import Chip
from compiler.tiling import cube
from compiler.tiling.effort import Effort
from compiler.tiling.places import in_one_matrix
from compiler.tiling.search import Work
from compiler.tiling.stages import Stage
from compiler.tiling.template import NoFeasibleTile, Tiled
from compiler.tiling.vector import SLOTS, Demand, Tile, VectorSpace, work_of
from compiler.tiling.vector_blocks import new_schedule, result_blocks, root_blocks
from compiler.tir.row_sums import NARROW, ON_CUBE, WIDE, plain, squared, summed
from compiler.tir.scopes import itemsize
from compiler.tir.structure import structural_walk

LEAST_COLUMNS = 128  # of a row: shorter ones are soon summed
MOST_ROWS = 64  # of a tile: its squares are a square of as many
STEPS = (1, 2, 3)  # in which a product is made
PATHS = (("ub", "l1"), ("l1", "l0a"), ("l1", "l0b"), ("l0c", "ub"))
DTYPE = "fp16"
LATE = 2  # turns from when a tile is loaded until its last phase


class CubeSpace(VectorSpace):
    """Tiles of rows that the matrix unit sums."""

    def __init__(self, func: Any, chip: Chip) -> None:
        super().__init__(_in_one_matrix(func), chip)

    @property
    def is_possible(self) -> bool:
        """Whether there are rows, and sums of them."""
        return bool(self.sums) and self._axis >= 0

    @cached_property
    def sums(self) -> dict[Stage, Any]:
        """The stages that the matrix unit does, and what of UB it is brought for them."""
        found = dict[Stage, Any]()
        for stage in self.stages:
            term = summed(stage.stores[0]) if len(stage.stores) == 1 and stage.reduced else None
            if term is None:
                continue
            element, square = plain(term), squared(term)
            load = square if element is None else element
            if load is None:
                continue
            rows = str(load.source.dtype) == NARROW and int(load.source.shape[-1]) == self.shape[-1]
            wide = str(stage.target.dtype) == WIDE and bool(stage.along_rows)
            if rows and (wide or square is not None):
                found[stage] = load.source
            elif any(load.source.same_as(other.target) for other in found):  # places of a block
                found[stage] = None
        return found

    @cached_property
    def _axis(self) -> int:
        """The axis that has the rows: the last one of several positions but for the columns; below zero where there is
        none, or these are not whole fractals.
        """
        columns = self.shape[-1]
        able = len(self.shape) > 1 and len(self.results) == 1 and columns >= LEAST_COLUMNS and columns % FRACTAL == 0
        rows = range(len(self.shape) - 2, -1, -1) if able else ()
        return next((axis for axis in rows if self.shape[axis] > 1), -1)

    @cached_property
    def candidates(self) -> list[Tile]:
        rows = {min(count, self.shape[self._axis]) for count in range(8, MOST_ROWS + 1, 8)}
        before, behind = (1,) * self._axis, self.shape[self._axis + 1 :]
        return [Tile((*before, count, *behind), 0, steps) for count in sorted(rows, reverse=True) for steps in STEPS]

    def _instead(self, tile: Tile) -> Mapping[Stage, Effort]:
        return dict.fromkeys(self.sums, Effort(1, float(self._rows(tile) * self.chip.block_bytes), 0))

    def _rows(self, tile: Tile) -> int:
        return prod(tile.extents[:-1])

    def _demand(self, tile: Tile) -> Demand:
        found, rows = super()._demand(tile), self._rows(tile)
        again = len(self._brought) * rows * self.shape[-1] * itemsize(NARROW)  # what is made has a second slot, too
        taken = SLOTS * rows * (ceil_to(rows, FRACTAL) + FRACTAL) * itemsize(WIDE)
        return Demand(found.loads, found.instructions, found.vector_bytes, found.kept_bytes + again + taken)

    @property
    def _brought(self) -> set[Any]:
        """The buffers whose rows are multiplied."""
        return {buffer for buffer in self.sums.values() if buffer is not None}

    def work(self, tile: Tile) -> Work:
        found, rows = work_of(self.demand(tile), tile, self.shape, self.chip), self._rows(tile)
        chip, rows16, columns, turns = self.chip, ceil_to(rows, FRACTAL), self.shape[-1], found.turns
        one = rows * columns * itemsize(NARROW)
        rate = {name: chip.path["_".join(name)].bytes_per_cycle for name in PATHS}
        brought = len(self._brought)
        of_cube = rows16 * (rows16 + FRACTAL) * columns / chip.macs_per_cycle(DTYPE)
        of_cube += brought * tile.steps * chip.cube.overhead_cycles
        of_mte1 = brought * one / rate["l1", "l0a"] + one / rate["l1", "l0b"]
        of_mte3 = brought * one / rate["ub", "l1"]
        mte3 = found.mte3_cycles + turns * of_mte3
        busiest = max(found.vector_cycles, mte3, found.mte2_cycles) / turns
        return found._replace(
            cube_cycles=turns * of_cube,
            mte1_cycles=turns * of_mte1,
            mte3_cycles=mte3,
            steps=turns * brought * tile.steps,
            first_cycles=found.first_cycles + LATE * busiest,
        )

    def apply(self, tile: Tile) -> Tiled:
        tiled = super().apply(Tile(tile.extents))
        return Tiled(tiled.func.with_attr(ON_CUBE, tile.steps), f"{tiled.description}, rows summed by the cube")


def _in_one_matrix(func: Any) -> Any:
    """The rows of all matrices as those of one, where they are: tiles need not end with a matrix, and all are alike."""
    sch = new_schedule(func)
    blocks, outs = root_blocks(sch), result_blocks(sch)
    rows = len(sch.get(outs[0]).iter_vars) - 2
    if len(outs) > 1 or rows < 1:
        return func
    return in_one_matrix(func, str(sch.get(blocks[0]).name_hint), range(rows), rows)


def space(func: Any, chip: Chip) -> CubeSpace:
    able = chip.multiplies(DTYPE) and all(cube.path(chip, *path) for path in PATHS)
    if not able or not _sums_anything(func):
        raise NoFeasibleTile("the kernel", "sums of rows by the matrix unit")
    found = CubeSpace(func, chip)
    if not found.is_possible or not found.fitting:
        raise NoFeasibleTile("the kernel", "tiles of rows that the matrix unit sums")
    return found


def _sums_anything(func: Any) -> bool:
    """Whether a stage sums numbers of fp16, or squares of such: most kernels do not, and are asked nothing more."""
    found: list[Any] = []

    def note(block: Any) -> None:
        term = summed(block.body) if block.init is not None and isinstance(block.body, tirx.BufferStore) else None
        for load in () if term is None else (plain(term), squared(term)):
            if load is not None and str(load.source.dtype) == NARROW:
                found.append(load)

    structural_walk(func.body, (s_tir.SBlock, note))
    return bool(found)
