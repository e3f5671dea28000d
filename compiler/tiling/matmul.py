"""The schedule template of matrix products: blocks of the result over the cores, in tiles, k in chunks and steps.

One tile of the result is summed in L0C. Its rows of A and columns of B come to L1 in chunks of k and beside the cube
in steps of k. Where a core has several tiles of a row and all of k fits, A stays in L1 while the columns go by (or B,
while the rows do). The result leaves in groups of columns, so that UB need not hold what L0C does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from compiler.isa.dtypes import DTYPES
from compiler.isa.layout import ceil_to
from compiler.target import Chip
from compiler.tiling import cube
from compiler.tiling.cube import Cut
from compiler.tiling.masters import Master, masters_of
from compiler.tiling.matmul_problem import TABLE_BYTES, Problem, Tile, describe, problem_of
from compiler.tiling.matmul_tiles import candidates
from compiler.tiling.matmul_work import work_of, works_of
from compiler.tiling.places import in_one_matrix
from compiler.tiling.scaled_sums import bring_scales, scaled_on_the_way
from compiler.tiling.schedule import schedule_of
from compiler.tiling.search import Work
from compiler.tiling.started_sums import beginning_of, bring_begin, matrix_started_with_bias
from compiler.tiling.template import NoFeasibleTile, Tiled, name_of
from compiler.tir.products import operands_of

KIND = "matmul"
FILLED = 0.75  # of the cores: so many work where each matrix is one's


@dataclass(frozen=True)
class MatmulSpace:
    """All tiles of one product that fit the chip."""

    func: Any
    problem: Problem
    chip: Chip

    def tiles(self) -> list[Tile]:
        return candidates(self.problem, self.chip)

    def work(self, tile: Tile) -> Work:
        return work_of(tile, self.problem, self.chip)

    def work_of_all(self, tiles: Sequence[Tile]) -> Work:
        return works_of(tiles, self.problem, self.chip)

    def taken(self, tile: Tile) -> dict[str, int]:
        return tile.bytes_of(self.problem)

    def apply(self, tile: Tile) -> Tiled:
        sch = schedule_of(self.func)
        with cube.schedulable(name_of(self.func, KIND)):
            apply(sch, masters_of(sch)[0], self.problem, tile, self.chip)
        return Tiled(sch.mod["main"], describe(self.problem, tile))


def space(func: Any, chip: Chip) -> MatmulSpace:
    func = scaled_on_the_way(matrix_started_with_bias(_in_one_matrix(func, chip), chip), chip)
    sch = schedule_of(func)
    problem = problem_of(sch, masters_of(sch)[0], chip)
    if not chip.multiplies(problem.dtype):
        raise NoFeasibleTile(name_of(func, KIND), f"the cube, which does not multiply {problem.dtype}")
    first = masters_of(sch)[0].block
    begin = beginning_of(sch, first)
    if made := cube.made_otherwise(sch, first, [] if begin is None else [begin]):
        raise NoFeasibleTile(name_of(func, KIND), f"stage {made!r}, which a product reads and does not make")
    return MatmulSpace(func, problem, chip)


def _in_one_matrix(func: Any, chip: Chip) -> Any:
    sch = schedule_of(func)
    master = masters_of(sch)[0]
    matrices = prod(master.extents[at] for at in _counting(master))
    return func if _stay_apart(sch.get(master.block), master, matrices, chip) else as_one_matrix(func)


def as_one_matrix(func: Any) -> Any:
    """The product with the rows of all matrices that the same matrix is multiplied with as those of one."""
    sch = schedule_of(func)
    master = masters_of(sch)[0]
    outer = _counting(master)
    return in_one_matrix(func, str(sch.get(master.block).name_hint), outer, master.axes("m")[0]) if outer else func


def _counting(master: Master) -> list[int]:
    """The axes that count matrices, right before that of their rows; none where others are among them."""
    rows, outer = master.axes("m"), [at for at in master.axes("batch of a") if master.extents[at] > 1]
    if len(rows) != 1 or not outer or outer != list(range(outer[0], rows[0])):
        return []
    return outer


def _stay_apart(block: Any, master: Master, matrices: int, chip: Chip) -> bool:
    """Whether matrices are work for most cores, and to load all that they are multiplied with takes no longer than to
    wait for another core: as long as each stays on its core, kernels wait for no others. Single rows stay with others:
    the matrix unit takes as long for one as for a fractal of them.
    """
    if all(master.extents[at] == 1 for at in master.axes("m")):
        return False
    size = prod(master.extents[at] for role in ("n", "k") for at in master.axes(role))
    loaded = size * DTYPES[cube.isa_dtype(operands_of(block)[1].source)].itemsize / chip.path["ddr_l1"].bytes_per_cycle
    return matrices >= FILLED * ceil_to(matrices, chip.cores) and loaded <= chip.sync.cross_flag_cycles


def schedule(func: Any, chip: Chip, attempt: int) -> Tiled:
    """Cut the product of a kernel into tiles, and bring its slaves to them."""
    found = space(func, chip)
    tile = cube.choose(candidates(found.problem, chip), found.problem, attempt)
    if tile is None:
        raise NoFeasibleTile(name_of(func, KIND), f"{attempt} tiles of a matrix product")
    return found.apply(tile)


# ---- the schedule ------------------------------------------------------------------------------------------------


def apply(sch: Any, master: Master, problem: Problem, tile: Tile, chip: Chip) -> None:
    taken, slaves = cube.keep_result(sch, master.block)
    batch, m, n = master.batch_axes(), master.axes("m"), master.axes("n")
    cuts: list[Cut] = [Cut(1, 1)] * len(master.roles)
    for axis, trips in zip(batch, tile.batch_trips, strict=True):
        cuts[axis] = Cut(trips, 1)
    for axes, trips, size, cores in (
        (m, tile.m_trips, tile.m, tile.grid.cores[0]),
        (n, tile.n_trips, tile.n, tile.grid.cores[1]),
    ):
        for axis in axes:
            cuts[axis] = Cut(trips, size, cores)
    for axis in master.axes("k"):
        cuts[axis] = Cut(tile.steps, tile.step)
    order, holding = _trip_order(master, tile)
    placed = cube.cut_master(sch, master, cuts, order)
    for index, (name, scope, transposed) in enumerate(
        (("a", cube.L0A, problem.transposed_a), ("b", cube.L0B, problem.transposed_b))
    ):
        at_chunk = placed.chunk
        if tile.held == name and not tile.is_held_in_part:
            at_chunk = placed.trips[holding - 1] if holding else placed.core
        cube.bring_operand(sch, master.block, index, scope, at_chunk, placed.step, transposed=transposed)
    if tile.is_held_in_part:
        sch.annotate(placed.chunk, cube.HELD, tile.pieces)
    columns = tile.columns if problem.has_columns and 0 < tile.columns < tile.n else None
    cube.place_slaves(sch, taken, slaves, placed, chip, columns, through_ub=tile.columns > 0)
    if problem.bias_bytes:
        stays = tile.n_trips * tile.n * TABLE_BYTES <= chip.memory.bt_bytes
        at_near = placed.core if stays else placed.trips[order.index(n[0])]
        bring_begin(sch, master.block, placed.core, at_near)
    if problem.scale_bytes:
        stays = tile.n_trips * tile.n * problem.scale_bytes <= chip.memory.fb_bytes
        bring_scales(sch, taken, placed.core, placed.core if stays else placed.trips[order.index(n[0])])
    cube.start_sum(sch, master.block, placed)


def _trip_order(master: Master, tile: Tile) -> tuple[list[int], int]:
    """The axes of the trips, outermost first, and how many of them move the operand that is held."""
    batch, m, n = master.batch_axes(), master.axes("m"), master.axes("n")
    if not tile.held:
        return [*batch, *m, *n], 0
    other = "b" if tile.held == "a" else "a"
    own = [axis for axis in batch if master.roles[axis] != f"batch of {other}"]
    own += m if tile.held == "a" else n
    rest = [axis for axis in [*batch, *m, *n] if axis not in own]
    return own + rest, len(own)
