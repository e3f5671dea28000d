"""The tiles of a matrix product that are worth a try: ways to cut the result, then chunks of k, then ways out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np

from compiler.isa.layout import FRACTAL, ceil_to
from compiler.isa.timing import ceil_div
from compiler.target import Chip
from compiler.tiling.grids import grids, readers
from compiler.tiling.matmul_problem import Problem, Tile
from compiler.tiling.matmul_work import line_share, works_of
from compiler.tiling.search import analytical_cycles_of_all

BLOCKS = 48  # ways to cut the result that are looked at closely
TRIPS = 64  # tiles of a core along one axis, at most, that are worth a try
WIDEST = 4  # columns of a tile that are tried for each number of rows; more until L0C has room for a second result
STEPS = (1, 2, 3, 4, 6, 8, 12)  # of a chunk
COLUMNS = 128  # of a result that goes through UB, at least, for several groups to overlap
MOST = 4095  # rows, columns and depth of one product
NEAR = 3 / 4  # of LLB, that what is held in part takes at most: other operands come through it, too
EXPOSED = 1 / 16  # of what a queue does, that others wait for after all


def candidates(problem: Problem, chip: Chip) -> list[Tile]:
    """All tiles worth a try that fit the chip, the cheapest first."""
    for slots in (2, 1):
        coarse = _cheapest_first(list(dict.fromkeys(_tiles(problem, chip, slots))), problem, chip)
        scarce = "ub" if problem.slave_bytes else "l1"
        smaller = {tile.bytes_of(problem)[scarce].bit_length(): tile for tile in reversed(coarse)}
        coarse = list(dict.fromkeys([*coarse[:BLOCKS], *smaller.values()]))
        found = list(dict.fromkeys(fine for tile in coarse for fine in _refined(tile, problem, chip, slots)))
        if found:
            return _cheapest_first(found, problem, chip)
    return []


def _cheapest_first(tiles: list[Tile], problem: Problem, chip: Chip) -> list[Tile]:
    """Of tiles whose busiest queue takes as long, the one whose other queues are less busy hides them better."""
    if not tiles:
        return []
    work = works_of(tiles, problem, chip)
    others = work.cube_cycles + work.mte1_cycles + work.mte2_cycles + work.mte3_cycles + work.fix_cycles
    order = np.argsort(analytical_cycles_of_all(work, chip) + others * EXPOSED, kind="stable")
    return [tiles[index] for index in order]


def _tiles(problem: Problem, chip: Chip, slots: int) -> Iterator[Tile]:
    """Ways to cut the result, with chunks of one step, or of a line of DDR where a part of an operand is held."""
    for grid in grids(problem.batch, ceil_div(problem.m, FRACTAL), ceil_div(problem.n, FRACTAL), chip):
        batch_trips = tuple(ceil_div(e, c) for e, c in zip(problem.batch, grid.batch, strict=True))
        for m_trips, m in _cuts(problem.m, grid.blocks[0]):
            fitting = 0
            for n_trips, n in _cuts(problem.n, grid.blocks[1]):
                step = _step(problem, chip, slots, m, n)
                if m * n * 4 > chip.memory.l0c_bytes or not problem.fit_tables(n, chip) or not step:
                    continue
                groups = (
                    ceil_div(problem.m, grid.cores[0] * m_trips * m),
                    ceil_div(problem.n, grid.cores[1] * n_trips * n),
                )
                tile = Tile(
                    min(m, problem.m),
                    min(n, problem.n),
                    step,
                    1,
                    batch_trips,
                    m_trips,
                    n_trips,
                    "",
                    replace(grid, groups=groups),
                )
                twice = 2 * tile.bytes_of(problem)["l0c"] <= chip.memory.l0c_bytes
                if fitting >= WIDEST and not twice:
                    continue
                if problem.slave_bytes:
                    tile = replace(tile, columns=_columns(tile, problem, chip, slots))
                held = [replace(tile, held=name) for name in _held(tile, problem)]
                those = [one for each in held for one in _as_held(each, problem, chip, slots)]
                yield from those
                fitting += bool(those)
                if fitting >= WIDEST and twice:
                    break


def _held(tile: Tile, problem: Problem) -> Iterator[str]:
    """What may stay in L1 while another operand goes by."""
    yield ""
    if tile.n_trips > 1 or "b" in problem.batch_of:
        yield "a"
    if tile.m_trips > 1 or "a" in problem.batch_of:
        yield "b"


def _as_held(tile: Tile, problem: Problem, chip: Chip, slots: int) -> Iterator[Tile]:
    """The tile, where it fits; one that has room for a part of what it holds only, with as many chunks as there is
    room for.
    """
    whole = replace(tile, pieces=0) if tile.pieces else tile
    if _fits(whole, problem, chip, slots):
        yield whole
    elif tile.held and _may_hold_a_part(tile, problem, chip):
        steps = ceil_div(chip.transfer.ddr_line_bytes, tile.step * problem.itemsize)
        tile = replace(tile, steps=max(tile.steps, min(steps, ceil_div(problem.k, tile.step))))
        one = replace(tile, pieces=1)
        other, passing = sum(one.l1_bytes(problem)) - one.passing_bytes(problem), one.passing_bytes(problem)
        pieces = chip.memory.l1_bytes // passing - slots * ceil_div(other + passing, passing)
        chunks = ceil_div(problem.k, tile.chunk)
        near = (chunks - pieces) * passing * chip.cores_per_cluster
        in_part = replace(tile, pieces=pieces)
        fits = 0 < pieces < chunks and near <= chip.memory.llb_bytes * NEAR and _fits(in_part, problem, chip, slots)
        if fits:
            yield in_part


def _may_hold_a_part(tile: Tile, problem: Problem, chip: Chip) -> bool:
    """Whether what does not fit L1 can lie in LLB, of each core its own."""
    a, b = readers(tile.grid, problem.batch_of, chip.cores_per_cluster)
    alone = not (a if tile.held == "a" else b).shared
    return alone and not problem.batch and tile.held not in problem.near and "ddr_llb" in chip.path


@lru_cache(maxsize=1024)
def _cuts(extent: int, blocks: int) -> tuple[tuple[int, int], ...]:
    """(trips, size): a block cut into even tiles of whole fractals, the largest first."""
    block = ceil_div(extent, blocks)
    found: dict[int, int] = {}
    for trips in range(1, TRIPS + 1):
        size = ceil_to(ceil_div(block, trips), FRACTAL)
        found.setdefault(size, ceil_div(block, size))
    return tuple((trips, size) for size, trips in found.items())


def _step(problem: Problem, chip: Chip, slots: int, m: int, n: int) -> int:
    """The longest k for which both operands of one instruction fit beside the cube, and even over all of k."""
    k0, size = problem.k0, problem.itemsize
    room = min(chip.memory.l0a_bytes // (slots * m * size), chip.memory.l0b_bytes // (slots * n * size), MOST)
    longest = room // k0 * k0
    if not longest:
        return 0
    steps = ceil_div(problem.k, longest)
    return min(ceil_to(ceil_div(problem.k, steps), k0), longest)


def _columns(tile: Tile, problem: Problem, chip: Chip, slots: int) -> int:
    """Columns of which UB holds ``slots`` groups: an even part of the tile, in whole lines of DDR where it can be."""
    room = chip.memory.ub_bytes // slots // (tile.m * problem.ub_bytes)
    most = min(room, max(COLUMNS, ceil_div(tile.n, 2)))
    if tile.n <= most or not problem.has_columns:
        return tile.n
    parts = [width for width in range(FRACTAL, most + 1, FRACTAL) if ceil_to(tile.n, FRACTAL) % width == 0]
    line = chip.transfer.ddr_line_bytes
    return max(parts, key=lambda width: width / line_share(width * problem.result_bytes, line * line, line), default=0)


def _narrower(tile: Tile, problem: Problem, chip: Chip) -> Iterator[int]:
    """A half of what goes through UB at once, in whole lines, where L0C has no room for a second result: one half is
    stored while the other leaves the cube.
    """
    half, size = tile.columns // 2, problem.result_bytes
    alone = 2 * tile.bytes_of(problem)["l0c"] > chip.memory.l0c_bytes
    even = half > 0 and tile.columns % (2 * FRACTAL) == 0 and half * size % chip.transfer.ddr_line_bytes == 0
    if alone and even and problem.has_columns:
        yield half


def _refined(tile: Tile, problem: Problem, chip: Chip, slots: int) -> Iterator[Tile]:
    """The tile with chunks of one step and of several, and results on all ways."""
    all_steps = ceil_div(problem.k, tile.step)
    for steps in sorted({ceil_div(all_steps, ceil_div(all_steps, steps)) for steps in (*STEPS, all_steps)}):
        fine = replace(tile, steps=steps)
        ways = [fine]
        if not problem.slave_bytes:
            ways.append(replace(fine, columns=_columns(fine, problem, chip, slots)))
        ways += [replace(fine, columns=half) for half in _narrower(ways[-1], problem, chip)]
        yield from (one for way in dict.fromkeys(ways) for one in _as_held(way, problem, chip, slots))


def _fits(tile: Tile, problem: Problem, chip: Chip, slots: int) -> bool:
    if not tile.columns and problem.slave_bytes:
        return False
    a, b = tile.l1_bytes(problem)
    # A second slot of what is held would only be of use from one block of the result to the next.
    in_l1 = (a if tile.held == "a" else a * slots) + (b if tile.held == "b" else b * slots)
    if in_l1 + tile.passing_bytes(problem) * slots + tile.begin_bytes(problem) > chip.memory.l1_bytes:
        return False
    taken = tile.bytes_of(problem)
    del taken["l1"]
    for name in ("l0a", "l0b", "ub"):
        taken[name] *= slots
    return all(size <= chip.memory_bytes(name) for name, size in taken.items())
