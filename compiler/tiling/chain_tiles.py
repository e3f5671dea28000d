"""The tiles of several convolutions in one kernel: for each of the last one, those before it for the same places.

A tile has whole rows of one image, and all channels; where windows are single elements, it may be parts of a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate, product
from typing import Any

import numpy as np

from compiler.isa.dtypes import DTYPES
from compiler.isa.layout import ceil_to
from compiler.isa.timing import ceil_div
from compiler.target import Chip
from compiler.tiling import convolution
from compiler.tiling.convolution_tiles import BLOCK_BYTES, C1, GROUP, HO, OUT, PLACES, WO, Problem, Tile, tiles_of
from compiler.tiling.convolution_work import Columns, map_load, works_of
from compiler.tiling.search import Work, analytical_cycles_of_all

HANDOVER_CYCLES = 300  # of a trip, from a product's last results to the next one's first
SUMS = ("cube_cycles", "vector_cycles", "mte1_cycles", "fix_cycles", "trips", "turns", "steps", "instructions")
LAST, EARLIER = 4, 2  # tiles of the last one, and for each of these of every other one, of which all sets are ranked

Tiles = tuple[Tile, ...]  # of each, all for the same places of the last one


def tiles_together(problems: Sequence[Problem], chip: Chip, times: int, *, kept: bool) -> Iterator[Tiles]:
    """The best tiles of the last one, each with the best ones of those before it for the same places.

    The best are thought to load their map, though it lies in L1: ranking was learned of tiles that were found so. Where
    others read that map, too, ranking knows of no such kernels, and it counts as near.
    """
    of_each = [_tiles(problem, chip, times, last=problem is problems[-1]) for problem in problems]
    plain = all(problem.is_single for problem in problems[1:])
    of_last = [tile for tile in of_each[-1] if plain or tile.columns == problems[-1].extents[WO]]
    of_places = dict[Any, list[Tile]]()
    for tile in of_last:
        of_places.setdefault((tile.rows, tile.columns), []).append(tile)
    last = replace(problems[-1], near=problems[-1].near | {"map"}) if kept else problems[-1]
    lasts = [tile for tiles in _cheapest([*of_places.values()], last, chip, LAST) for tile in tiles]
    rows, found = [tile.rows for tile in lasts], list[list[list[Tile]]]()
    for at in range(len(problems) - 2, -1, -1):
        of_columns = dict[int, list[Tile]]()
        for one in of_each[at]:
            of_columns.setdefault(one.columns, []).append(one)
        fitting = list[list[Tile]]()
        for number, tile in enumerate(lasts):
            needed = problems[at + 1].box(rows[number], tile.columns, problems[at + 1].kernel[0])[0]
            whole = plain or (needed == problems[at].extents[HO] and tile.rows == problems[-1].extents[HO])
            able = of_columns.get(tile.columns if plain else problems[at].extents[WO], [])
            # A piece of several rows, some of which are padding, begins at none that is known.
            able = [one for one in able if (one.rows <= needed if whole else one.rows == 1)]
            fitting.append([_for(one, tile, needed) for one in able])
            rows[number] = needed
        found.insert(0, _cheapest(fitting, problems[at], chip, EARLIER))
    for earlier, tile in zip(zip(*found, strict=True), lasts, strict=True):
        yield from ((*each, tile) for each in product(*earlier))


def _cheapest(groups: Sequence[Sequence[Tile]], problem: Problem, chip: Chip, count: int) -> list[list[Tile]]:
    """Of each group of tiles those that cost least, by the analytical cost of all, worked out at once."""
    tiles = [tile for group in groups for tile in group]
    if not tiles:
        return [[] for _ in groups]
    cycles, ends = analytical_cycles_of_all(works_of(tiles, problem, chip), chip), [*accumulate(map(len, groups))]
    orders = (np.argsort(each, kind="stable")[:count] for each in np.split(cycles, ends[:-1]))
    return [[group[at] for at in order] for group, order in zip(groups, orders, strict=True)]


def _for(tile: Tile, last: Tile, rows: int) -> Tile:
    """A tile of so many rows as a part of what a tile of the last one needs."""
    trips, cores = list(tile.trips), list(tile.cores)
    for axis in PLACES:
        trips[axis], cores[axis] = last.trips[axis], last.cores[axis]
    trips[HO] *= ceil_div(rows, tile.rows)
    return tile._replace(trips=tuple(trips), cores=tuple(cores))


@lru_cache(maxsize=64)  # of a convolution in several chains
def _tiles(problem: Problem, chip: Chip, times: int, *, last: bool) -> list[Tile]:
    """Tiles of all channels; those of others than the last one stand for all that differ in their places only."""
    found = dict[Any, Tile]()
    for tile in tiles_of(problem, chip, times, in_chain=True):
        kept = _kept(tile, problem, last=last)
        if kept is None:
            continue
        taken = kept.bytes_of(problem)
        if taken["l1"] <= chip.memory.l1_bytes and has_room(taken, chip, times):
            places = (kept.trips, kept.cores) if last else ()
            found.setdefault((kept.rows, kept.columns, kept.outputs, kept.step, kept.chunk, kept.held, places), kept)
    return list(found.values())


def _kept(tile: Tile, problem: Problem, *, last: bool) -> Tile | None:
    """The tile as it is in a chain, if it can be: trips are along places, and inside these along channels.

    The last one's map is kept; weights that stay do so for all trips.
    """
    pieces = tile.trips[OUT]
    if problem.extents[OUT] % tile.outputs or (problem.extents[GROUP] > 1 and pieces > 1):
        return None
    blocks = tile.outputs % DTYPES[problem.dtype].fractal_k == 0
    if not last and pieces * tile.trips[GROUP] > 1 and not blocks:  # a piece is whole blocks of L1
        return None
    if last and pieces > 1 and "map" not in tile.held:
        return None
    held = tile.held if not last and "weights" not in tile.held else tile.held | {"map"}
    if "weights" in held:
        whole = ceil_to(problem.extents[C1], tile.step[0]), problem.kernel[0]
        tile = tile._replace(chunk=whole)
    leaving = tile.leaving if last else tile.outputs
    return tile._replace(held=frozenset(held), leaving=leaving)


def has_room(taken: Mapping[str, int], chip: Chip, times: int) -> bool:
    """Whether memories hold so much; what is counted twice need not be there twice where there is room for one."""
    rooms = 1 if times == 2 else 2
    return all(size <= chip.memory_bytes(name) * rooms for name, size in taken.items())


def bytes_of(tiles: Tiles, problems: Sequence[Problem]) -> dict[str, int]:
    """Of each memory; those around the cube are taken by all in turn, where they have no room for all at once."""
    taken = [tile.bytes_of(problem) for tile, problem in zip(tiles, problems, strict=True)]
    found = {name: max(each[name] for each in taken) for name in taken[0]}
    found["l1"], rows = taken[0]["l1"], tiles[-1].rows
    for tile, problem in reversed(list(zip(tiles[1:], problems[1:], strict=True))):
        rows, columns = problem.box(rows, tile.columns, problem.kernel[0])
        kept = problem.extents[C1] * problem.extents[GROUP] * (rows * columns + 2 * DTYPES[problem.dtype].fractal_k)
        again = 2 if tile.weight_loads() > 1 or ("weights" not in tile.held and tile.chunks(problem) > 1) else 1
        found["l1"] += kept * BLOCK_BYTES + again * tile.weight_bytes(problem, tile.chunk)
    return found


def works_together(all_tiles: Sequence[Tiles], problems: Sequence[Problem], chip: Chip) -> Work:
    """What all do, but for the loads of what lies in L1; each number is an array."""
    of_each = [[tiles[at] for tiles in all_tiles] for at in range(len(problems))]
    works = [works_of(tiles, problem, chip) for tiles, problem in zip(of_each, problems, strict=True)]
    total, last = works[0], of_each[-1]
    places = np.array([tile.rounds // (tile.trips[OUT] * tile.trips[GROUP]) for tile in last])
    for before, tiles, problem, work in zip(of_each[:-1], of_each[1:], problems[1:], works[1:], strict=True):
        of = Columns(tiles, problem)
        load = map_load(of, problem, chip)
        elements = np.array([tile.rounds * tile.positions * tile.outputs for tile in before])
        stored = elements * DTYPES[problem.dtype].itemsize / chip.path["ub_l1"].bytes_per_cycle
        changed: dict[str, Any] = {name: getattr(total, name) + getattr(work, name) for name in SUMS}
        changed |= dict(
            mte2_cycles=total.mte2_cycles + np.maximum(0.0, work.mte2_cycles - load.cycles(chip, of.used_cores)),
            mte3_cycles=total.mte3_cycles + stored + work.mte3_cycles,
            ddr_bytes=total.ddr_bytes + np.maximum(0.0, work.ddr_bytes - load.ddr),
            llb_bytes=total.llb_bytes + np.maximum(0.0, work.llb_bytes - load.llb),
            last_cycles=work.last_cycles,
            serial_cycles=total.serial_cycles + work.serial_cycles + places * HANDOVER_CYCLES,
        )
        total = total._replace(**changed)
    return total


def describe(problems: Sequence[Problem], tiles: Tiles) -> str:
    each = [convolution.describe(problem, tile) for problem, tile in zip(problems, tiles, strict=True)]
    return "; in L1 for ".join(each)
