"""The schedule template of attention: scores of some queries with all keys stay on the core until values are weighed.

    for core: for batch, rows of queries:
        for some keys: scores = q * keys        # L0C, then UB
        scale, mask, softmax                    # UB
        result = weights * values               # weights go from UB back to L1
        slaves

All keys of the rows that a core works on lie in UB at once, which bounds the rows; a row alone that is too long has no
tile. Where keys and values fit L1 they stay there for all rows of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from compiler.isa.dtypes import DTYPES
from compiler.isa.layout import FRACTAL, ceil_to
from compiler.isa.timing import ceil_div
from compiler.target import Chip
from compiler.tiling import cube
from compiler.tiling.cube import Cut, Master
from compiler.tiling.late_division import prepare
from compiler.tiling.template import NoFeasibleTile, Tiled

ROWS = (128, 96, 64, 48, 32, 16, 8, 4, 2, 1)
SHARES = (0.5, 1.0)
ROW_CYCLES = 600  # of a trip, beside its bytes and products
PASSES = 12  # over the scores, that softmax and what stands around it take


@dataclass(frozen=True)
class Problem:
    """Attention as the choice of a tile sees it."""

    batch: tuple[int, ...]
    queries: int
    keys: int
    width: int  # of queries and keys
    value_width: int
    dtype: str
    row_bytes: int  # of UB that live at once for one query


@dataclass(frozen=True)
class Tile:
    rows: int
    keys: int  # whose scores are in L0C at once
    width_step: int  # of k of the first product
    key_step: int  # of k of the second
    batch_trips: tuple[int, ...]
    row_trips: int
    holds: bool  # keys and values stay in L1 for all rows

    def bytes_of(self, problem: Problem) -> dict[str, int]:
        size, k0 = DTYPES[problem.dtype].itemsize, DTYPES[problem.dtype].fractal_k
        rows16 = ceil_to(self.rows, FRACTAL)
        keys, values = ceil_to(problem.keys, FRACTAL), ceil_to(problem.value_width, FRACTAL)
        width = ceil_to(problem.width, k0)
        keys_at_once = keys if self.holds else ceil_to(self.keys, k0)
        values_at_once = keys if self.holds else ceil_to(self.key_step, k0)
        operands = keys_at_once * width + values_at_once * ceil_to(values, k0)
        own = rows16 * (width + ceil_to(keys, k0))
        l0b = max(ceil_to(self.keys, FRACTAL) * self.width_step, values * self.key_step)
        return {
            "l1": (operands + own) * size,
            "l0a": rows16 * max(self.width_step, self.key_step) * size,
            "l0b": l0b * size,
            "l0c": rows16 * max(ceil_to(self.keys, FRACTAL), values) * 4,
            "ub": self.rows * problem.row_bytes,
        }


def schedule(func: Any, chip: Chip, attempt: int) -> Tiled:
    """Cut the rows of queries of an attention into tiles; later attempts take fewer rows."""
    name = str(func.attrs.get("global_symbol", "attention"))
    if len(cube.masters(cube.new_schedule(func))) != 2 or not cube.path(chip, "ub", "l1"):
        raise NoFeasibleTile(name, "a product of the softmax of a product")
    prepared, finish = prepare(func)
    sch = cube.new_schedule(prepared)
    scores, values = cube.masters(sch)
    problem = problem_of(sch, scores, values)
    tiles = candidates(problem, chip)
    if attempt >= len(tiles):
        raise NoFeasibleTile(
            name, f"{len(tiles)} numbers of queries at once, the least {tiles[-1].rows if tiles else 1}"
        )
    with cube.schedulable(name):
        apply(sch, scores, values, tiles[attempt], chip)
    return Tiled(finish(sch.mod["main"]), describe(problem, tiles[attempt]))


# ---- the problem -------------------------------------------------------------------------------------------------


def problem_of(sch: Any, scores: Master, values: Master) -> Problem:
    behind = [sch.get(block) for block in cube.followers(sch, values.block)]
    last = {sch.get(values.block), *behind}
    between = [sch.get(block) for block in cube.followers(sch, scores.block)]
    between = [block for block in between if block not in last]
    extents = values.extents
    rows = prod(extents[axis] for axis in [*values.batch_axes(), *values.axes("m")])
    results = [sch.get(master.block).writes[0].source for master in (scores, values)]
    fixed = [cube.takes_itself_out(sch, master.block) for master in (scores, values)]
    peaks = [cube.peak_bytes(*of) for of in zip(results, (between, behind), fixed, strict=True)]
    return Problem(
        batch=tuple(extents[axis] for axis in values.batch_axes()),
        queries=prod(extents[axis] for axis in values.axes("m")),
        keys=prod(extents[axis] for axis in values.axes("k")),
        width=prod(scores.extents[axis] for axis in scores.axes("k")),
        value_width=prod(extents[axis] for axis in values.axes("n")),
        dtype=cube.isa_dtype(cube.operands_of(sch.get(scores.block))[0].source),
        row_bytes=max(peaks) // rows,
    )


# ---- the choice --------------------------------------------------------------------------------------------------


def candidates(problem: Problem, chip: Chip) -> list[Tile]:
    """Tiles that fit the chip, the cheapest first, and behind it those of fewer rows."""
    for share in SHARES:
        found = [
            tile
            for tile in _tiles(problem, chip, share)
            if all(taken <= chip.memory_bytes(name) * share for name, taken in tile.bytes_of(problem).items())
        ]
        if found:
            best = min(found, key=lambda tile: cost(tile, problem, chip))
            fewer = {tile.rows: tile for tile in reversed(found) if tile.rows < best.rows}
            return [best, *(fewer[rows] for rows in sorted(fewer, reverse=True))]
    return []


def _tiles(problem: Problem, chip: Chip, share: float) -> Iterator[Tile]:
    size, k0 = DTYPES[problem.dtype].itemsize, DTYPES[problem.dtype].fractal_k
    memory = chip.memory
    values = ceil_to(problem.value_width, FRACTAL)
    for rows in dict.fromkeys(min(rows, problem.queries) for rows in ROWS):
        rows16 = ceil_to(rows, FRACTAL)
        at_once = min(int(memory.l0c_bytes * share) // (rows16 * 4), 4095) // FRACTAL * FRACTAL
        if at_once < FRACTAL:
            continue
        most_width = int(min(memory.l0a_bytes * share // (rows16 * size), memory.l0b_bytes * share // (FRACTAL * size)))
        width_step = min(most_width // k0 * k0, ceil_to(problem.width, k0))
        key_room = min(memory.l0a_bytes * share // (rows16 * size), memory.l0b_bytes * share // (values * size))
        key_step = min(int(key_room) // k0 * k0, ceil_to(problem.keys, k0))
        if not width_step or not key_step:
            continue
        keys = min(at_once, int(memory.l0b_bytes * share) // (width_step * size) // FRACTAL * FRACTAL)
        keys = ceil_to(ceil_div(problem.keys, ceil_div(problem.keys, keys)), FRACTAL)
        row_tiles, left = ceil_div(problem.queries, rows), chip.cores
        batch_trips = []
        for extent in problem.batch:
            trips = ceil_div(extent, min(extent, left))
            left //= ceil_div(extent, trips)
            batch_trips.append(trips)
        row_trips = ceil_div(row_tiles, min(row_tiles, left))
        for holds in (True, False):
            yield Tile(rows, min(keys, problem.keys), width_step, key_step, tuple(batch_trips), row_trips, holds)


def cost(tile: Tile, problem: Problem, chip: Chip) -> float:
    """Cycles of the busiest core."""
    size = DTYPES[problem.dtype].itemsize
    batches = prod(tile.batch_trips)
    rounds = batches * tile.row_trips
    rows16 = ceil_to(tile.rows, FRACTAL)
    products = rows16 * problem.keys * (problem.width + problem.value_width) / chip.macs_per_cycle(problem.dtype)
    vector = PASSES * tile.rows * problem.keys * 4 / chip.vector.bytes_per_cycle
    loads = problem.keys * (problem.width + problem.value_width) * size * (batches if tile.holds else rounds)
    cores = prod(ceil_div(extent, trips) for extent, trips in zip(problem.batch, tile.batch_trips, strict=True))
    cores *= ceil_div(ceil_div(problem.queries, tile.rows), tile.row_trips)
    shared = chip.bandwidth.ddr_bytes_per_kilocycle / 1000 / cores
    load = loads / min(chip.path["ddr_l1"].bytes_per_cycle, shared)
    return rounds * (products + vector + ROW_CYCLES) + load


def describe(problem: Problem, tile: Tile) -> str:
    batch = "x".join(map(str, problem.batch))
    return (
        f"{batch + ' of ' if batch else ''}{problem.queries} queries and {problem.keys} keys, "
        f"{tile.rows} queries at once, scores by {tile.keys} keys" + (", keys held in L1" if tile.holds else "")
    )


# ---- the schedule ------------------------------------------------------------------------------------------------


def apply(sch: Any, scores: Master, values: Master, tile: Tile, chip: Chip) -> None:
    parameters = list(sch.mod["main"].params)
    taken, slaves = cube.keep_result(sch, values.block, chip)
    scores_taken, _ = cube.keep_result(sch, scores.block, chip)
    between = _between(sch, scores, values)
    placed = _cut_values(sch, values, tile)
    trip = placed.trips[-1]
    holding = (placed.trips[-2] if len(placed.trips) > 1 else placed.core) if tile.holds else None
    transposed = _is_transposed(sch, values)
    cube.bring_operand(sch, values.block, 0, cube.L0A, placed.chunk, placed.step)
    at_values = placed.chunk if holding is None else holding
    cube.bring_operand(sch, values.block, 1, cube.L0B, at_values, placed.step, transposed=transposed)
    cube.place_slaves(sch, taken, slaves, placed, chip)
    for block in reversed(between):
        sch.compute_at(block, trip, preserve_unit_loops=True)
        sch.set_scope(block, 0, cube.UB)
    for block in between:
        cube.stage_inputs(sch, block, trip, parameters)
    _place_scores(sch, scores, scores_taken, tile, trip, holding)
    cube.start_sum(sch, values.block, placed)  # last: behind the scores, which then may share L0C


def _between(sch: Any, scores: Master, values: Master) -> list[Any]:
    """The stages that make the weights and the sums of these, behind the one that takes the scores out of L0C."""
    first = {sch.get(scores.block), *(sch.get(block) for block in sch.get_consumers(scores.block))}
    last = {sch.get(values.block), *(sch.get(block) for block in cube.followers(sch, values.block))}
    return [block for block in cube.followers(sch, scores.block) if sch.get(block) not in first | last]


def _cut_values(sch: Any, values: Master, tile: Tile) -> cube.Placed:
    cuts = [Cut(1, 1)] * len(values.roles)
    for axis, trips in zip(values.batch_axes(), tile.batch_trips, strict=True):
        cuts[axis] = Cut(trips, 1)
    for axis in values.axes("m"):
        cuts[axis] = Cut(tile.row_trips, tile.rows)
    for axis in values.axes("n"):
        cuts[axis] = Cut(1, values.extents[axis])
    for axis in values.axes("k"):
        keys = values.extents[axis]
        cuts[axis] = Cut(ceil_div(keys, tile.key_step) if tile.holds else 1, tile.key_step)
    order = [*values.batch_axes(), *values.axes("n"), *values.axes("m")]
    return cube.cut_master(sch, values, cuts, order)


def _place_scores(sch: Any, scores: Master, taken: Any, tile: Tile, trip: Any, holding: Any | None) -> None:
    sch.compute_at(taken, trip, preserve_unit_loops=True)
    if str(sch.get(taken).writes[0].source.scope()) == "global":
        sch.set_scope(taken, 0, cube.UB)
    *outer, keys = cube.loops_below(sch, taken, trip)
    some, one = sch.split(keys, [None, tile.keys])
    sch.reorder(some, *outer, one)
    cube.mark(sch, taken, some, "result")
    sch.compute_at(scores.block, some, preserve_unit_loops=True)
    width = prod(scores.extents[axis] for axis in scores.axes("k"))
    placed = cube.cut_inside(sch, scores, some, Cut(ceil_div(width, tile.width_step), tile.width_step))
    transposed = _is_transposed(sch, scores)
    cube.bring_operand(sch, scores.block, 0, cube.L0A, trip, placed.step)
    at_keys = placed.chunk if holding is None else holding
    cube.bring_operand(sch, scores.block, 1, cube.L0B, at_keys, placed.step, transposed=transposed)
    cube.start_sum(sch, scores.block, placed)


def _is_transposed(sch: Any, master: Master) -> bool:
    """Whether b is stored with its columns outermost."""
    block = sch.get(master.block)
    _, b = cube.operands_of(block)
    along_k = [block.iter_vars[axis].var for axis in master.axes("k")]
    return cube.last_variable(b) in along_k and bool(master.axes("n"))
