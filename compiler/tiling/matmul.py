"""The schedule template of matrix products: batches and tiles of the result over the cores, k in chunks and steps.

One tile of the result is summed in L0C. Its rows of A and columns of B come to L1 in chunks of k and beside the cube
in steps of k; where all of k fits and a core has several tiles of a row, A stays in L1 while the columns go by (or B,
while the rows do).
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
from compiler.tiling.template import NoFeasibleTile, Tiled

# What is left beside one buffer of each kind, so that a second one may be filled while the first is read.
SHARES = (0.5, 1.0)
SLACK = 2.0  # of the fewest trips that a grid of cores may take, if it moves less
TRIP_CYCLES = 700  # latencies of a tile that nothing hides
NOT_HIDDEN = 0.5  # of all other work, behind the busiest unit


@dataclass(frozen=True)
class Problem:
    """A product as the choice of a tile sees it."""

    batch: tuple[int, ...]
    batch_of: tuple[str, ...]  # of each: "" where both operands have the axis, else the one that does
    m: int
    n: int
    k: int
    dtype: str
    slave_bytes: int  # of UB per element of a tile: the stages behind the product
    transposed_a: bool = False
    transposed_b: bool = False
    result_bytes: int = 4
    through_ub: bool = True

    @property
    def itemsize(self) -> int:
        return DTYPES[self.dtype].itemsize

    @property
    def k0(self) -> int:
        return DTYPES[self.dtype].fractal_k


@dataclass(frozen=True)
class Tile:
    """Elements of one tile, chunk and step; how many tiles each core does along batch, m and n; what stays in L1."""

    m: int
    n: int
    step: int
    steps: int
    batch_trips: tuple[int, ...]
    m_trips: int
    n_trips: int
    held: str  # "a", "b" or "": an operand that is in L1 with all of its k

    def bytes_of(self, problem: Problem) -> dict[str, int]:
        """What one of each buffer takes."""
        k0, size = problem.k0, problem.itemsize
        m16, n16, chunk = ceil_to(self.m, FRACTAL), ceil_to(self.n, FRACTAL), self.step * self.steps
        a = chunk * ceil_to(self.m, k0) if problem.transposed_a else self.m * ceil_to(chunk, k0)
        b = self.n * ceil_to(chunk, k0) if problem.transposed_b else chunk * ceil_to(self.n, k0)
        return {
            "l1": (a + b) * size,
            "l0a": m16 * ceil_to(self.step, k0) * size,
            "l0b": n16 * ceil_to(self.step, k0) * size,
            "l0c": m16 * n16 * 4,
            "ub": self.m * ceil_to(self.n, k0) * problem.slave_bytes,
        }


def schedule(func: Any, chip: Chip, attempt: int) -> Tiled:
    """Cut the product of a kernel into tiles, and bring its slaves to them."""
    name = str(func.attrs.get("global_symbol", "matmul"))
    sch = cube.new_schedule(func)
    master = cube.masters(sch)[0]
    problem = problem_of(sch, master, chip)
    if not chip.multiplies(problem.dtype):
        raise NoFeasibleTile(name, f"the cube, which does not multiply {problem.dtype}")
    tile = cube.choose(candidates(problem, chip), problem, attempt)
    if tile is None:
        raise NoFeasibleTile(name, f"{attempt} tiles of a matrix product")
    with cube.schedulable(name):
        apply(sch, master, problem, tile, chip)
    return Tiled(sch.mod["main"], describe(problem, tile, chip))


# ---- the problem -------------------------------------------------------------------------------------------------


def problem_of(sch: Any, master: Master, chip: Chip) -> Problem:
    block = sch.get(master.block)
    a, b = cube.operands_of(block)
    extents = dict(zip((axis.var for axis in block.iter_vars), master.extents, strict=True))
    along = {role: [block.iter_vars[i].var for i in master.axes(role)] for role in ("m", "n", "k")}
    batch = master.batch_axes()
    slaves = cube.slave_bytes(sch, master.block, chip)
    return Problem(
        batch=tuple(master.extents[axis] for axis in batch),
        batch_of=tuple(master.roles[axis].removeprefix("batch").removeprefix(" of ") for axis in batch),
        m=prod(extents[v] for v in along["m"]),
        n=prod(extents[v] for v in along["n"]),
        k=prod(extents[v] for v in along["k"]),
        dtype=cube.isa_dtype(a.source),
        slave_bytes=slaves,
        transposed_a=cube.last_variable(a) in along["m"],
        transposed_b=cube.last_variable(b) in along["k"] and bool(along["n"]),
        through_ub=slaves > 0,
    )


# ---- the choice --------------------------------------------------------------------------------------------------


def candidates(problem: Problem, chip: Chip) -> list[Tile]:
    """All tiles worth a try that fit the chip, the cheapest first."""
    for share in SHARES:
        found = [tile for tile in _tiles(problem, chip, share) if _fits(tile, problem, chip, share)]
        if found:
            return sorted(found, key=lambda tile: (cost(tile, problem, chip), -tile.m * tile.n))
    return []


def _fits(tile: Tile, problem: Problem, chip: Chip, share: float) -> bool:
    return all(
        taken <= chip.memory_bytes(name) * (1.0 if name == "l0c" else share)
        for name, taken in tile.bytes_of(problem).items()
    )


def _sizes(extent: int) -> Iterator[int]:
    """Tile sizes along an axis: whole fractals, at powers of two and three of them, and even cuts of the axis."""
    fractals = ceil_div(extent, FRACTAL)
    sizes = {min(fractals, size) for size in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)}
    sizes |= {ceil_div(fractals, parts) for parts in range(1, 33)}
    yield from sorted(size * FRACTAL for size in sizes if size <= 64)


def _tiles(problem: Problem, chip: Chip, share: float) -> Iterator[Tile]:
    l0c = chip.memory.l0c_bytes
    for m in _sizes(problem.m):
        for n in _sizes(problem.n):
            if m * n * 4 > l0c:
                break
            step = _step(problem, chip, share, m, n)
            if step:
                yield from _spread(problem, chip, share, min(m, problem.m), min(n, problem.n), step)


def _step(problem: Problem, chip: Chip, share: float, m: int, n: int) -> int:
    """The longest k for which both operands of one instruction fit beside the cube, and even over all of k."""
    k0, size = problem.k0, problem.itemsize
    room = min(chip.memory.l0a_bytes * share // (m * size), chip.memory.l0b_bytes * share // (n * size))
    longest = int(room) // k0 * k0
    if not longest:
        return 0
    steps = ceil_div(problem.k, longest)
    return min(ceil_to(ceil_div(problem.k, steps), k0), longest)


def _spread(problem: Problem, chip: Chip, share: float, m: int, n: int, step: int) -> Iterator[Tile]:
    all_steps = ceil_div(problem.k, step)
    probe = Tile(m, n, step, 1, (), 1, 1, "").bytes_of(problem)["l1"]
    fitting = int(chip.memory.l1_bytes * share) // probe
    if not fitting:
        return
    steps = ceil_div(all_steps, ceil_div(all_steps, fitting))
    for trips in _grids(problem, chip, ceil_div(problem.m, m), ceil_div(problem.n, n)):
        yield Tile(m, n, step, steps, *trips, "")
        if steps >= all_steps:
            if trips[2] > 1 or "b" in problem.batch_of:
                yield Tile(m, n, step, steps, *trips, "a")
            if trips[1] > 1 or "a" in problem.batch_of:
                yield Tile(m, n, step, steps, *trips, "b")


def _grids(problem: Problem, chip: Chip, m_tiles: int, n_tiles: int) -> list[tuple[tuple[int, ...], int, int]]:
    """Trips of a core along batch, m and n, for the grids of cores whose busiest core has nearly the fewest trips."""
    found: dict[tuple[tuple[int, ...], int, int], int] = {}
    for m_trips in _trip_counts(m_tiles, chip.cores):
        left_of_m = chip.cores // ceil_div(m_tiles, m_trips)
        for n_trips in _trip_counts(n_tiles, left_of_m):
            batch_trips, left = [], left_of_m // ceil_div(n_tiles, n_trips)
            for extent in problem.batch:
                trips = ceil_div(extent, min(extent, left))
                left //= ceil_div(extent, trips)
                batch_trips.append(trips)
            found[tuple(batch_trips), m_trips, n_trips] = prod(batch_trips) * m_trips * n_trips
    fewest = min(found.values())
    return [trips for trips, count in found.items() if count <= fewest * SLACK]


def _trip_counts(tiles: int, cores: int) -> list[int]:
    """How often a core may come by, for every useful number of cores."""
    return sorted({ceil_div(tiles, count) for count in range(1, min(tiles, cores) + 1)})


def cost(tile: Tile, problem: Problem, chip: Chip) -> float:
    """Cycles of the busiest core: whatever is busiest of cube, copies and shared DDR, and what nothing hides."""
    k0, size = problem.k0, problem.itemsize
    m16, n16, k = ceil_to(tile.m, FRACTAL), ceil_to(tile.n, FRACTAL), ceil_to(problem.k, k0)
    batches = prod(tile.batch_trips)
    rounds = batches * tile.m_trips * tile.n_trips
    steps = ceil_div(problem.k, tile.step)
    product = m16 * n16 * k / chip.macs_per_cycle(problem.dtype) + steps * chip.cube.overhead_cycles
    only = {
        name: prod(t for t, of in zip(tile.batch_trips, problem.batch_of, strict=True) if of == name) for name in "ab"
    }
    a_loads = batches * tile.m_trips * tile.n_trips // (only["b"] * tile.n_trips if tile.held == "a" else 1)
    b_loads = batches * tile.m_trips * tile.n_trips // (only["a"] * tile.m_trips if tile.held == "b" else 1)
    moved = (a_loads * tile.m + b_loads * tile.n) * problem.k * size
    cores = prod(ceil_div(e, t) for e, t in zip(problem.batch, tile.batch_trips, strict=True))
    cores *= ceil_div(ceil_div(problem.m, tile.m), tile.m_trips) * ceil_div(ceil_div(problem.n, tile.n), tile.n_trips)
    result = rounds * tile.m * tile.n * problem.result_bytes
    shared = chip.bandwidth.ddr_bytes_per_kilocycle / 1000 / cores
    load = moved / min(chip.path["ddr_l1"].bytes_per_cycle, shared)
    near = rounds * k * max(m16 * size / rate(chip, "l1_l0a"), n16 * size / rate(chip, "l1_l0b"))
    out = result / min(rate(chip, "ub_ddr" if problem.through_ub else "l0c_ddr"), shared)
    vector = rounds * tile.m * tile.n * problem.slave_bytes / chip.vector.bytes_per_cycle
    parts = (rounds * product, load, near, out + vector)
    # Without room for a second result the cube waits until the first is out.
    alone = out + vector if m16 * n16 * 8 > chip.memory.l0c_bytes else 0
    return max(parts) + alone + NOT_HIDDEN * sum(parts) + TRIP_CYCLES * (rounds + ceil_div(steps, tile.steps))


def rate(chip: Chip, name: str) -> int:
    return chip.path[name].bytes_per_cycle


def describe(problem: Problem, tile: Tile, chip: Chip) -> str:
    batch = "x".join(map(str, problem.batch))
    chunk = tile.step * tile.steps
    return (
        f"{batch + ' of ' if batch else ''}{problem.m}x{problem.n}x{problem.k} in tiles of {tile.m}x{tile.n}, "
        f"k by {chunk} and {tile.step}" + (f", {tile.held} held in L1" if tile.held else "")
    )


# ---- the schedule ------------------------------------------------------------------------------------------------


def apply(sch: Any, master: Master, problem: Problem, tile: Tile, chip: Chip) -> None:
    taken, slaves = cube.keep_result(sch, master.block, chip)
    batch, m, n = master.batch_axes(), master.axes("m"), master.axes("n")
    cuts: list[Cut] = [Cut(1, 1)] * len(master.roles)
    for axis, trips in zip(batch, tile.batch_trips, strict=True):
        cuts[axis] = Cut(trips, 1)
    for axes, trips, size in ((m, tile.m_trips, tile.m), (n, tile.n_trips, tile.n)):
        for axis in axes:
            cuts[axis] = Cut(trips, size)
    for axis in master.axes("k"):
        cuts[axis] = Cut(tile.steps, tile.step)
    order, holding = _trip_order(master, tile)
    placed = cube.cut_master(sch, master, cuts, order)
    for index, (name, scope, transposed) in enumerate(
        (("a", cube.L0A, problem.transposed_a), ("b", cube.L0B, problem.transposed_b))
    ):
        at_chunk = placed.chunk
        if tile.held == name:
            at_chunk = placed.trips[holding - 1] if holding else placed.core
        cube.bring_operand(sch, master.block, index, scope, at_chunk, placed.step, transposed=transposed)
    cube.place_slaves(sch, taken, slaves, placed, chip)
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
