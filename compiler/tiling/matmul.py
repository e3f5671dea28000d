"""The schedule template of matrix products: blocks of the result over the cores, in tiles, k in chunks and steps.

One tile of the result is summed in L0C. Its rows of A and columns of B come to L1 in chunks of k and beside the cube
in steps of k. Where a core has several tiles of a row and all of k fits, A stays in L1 while the columns go by (or B,
while the rows do). The result leaves in groups of columns, so that UB need not hold what L0C does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import Any

from compiler.isa.dtypes import DTYPES
from compiler.isa.layout import FRACTAL, ceil_to
from compiler.isa.timing import ceil_div
from compiler.target import Chip
from compiler.tiling import cube
from compiler.tiling.cube import Cut, Master
from compiler.tiling.grids import Grid, grids, readers
from compiler.tiling.search import Work, analytical_cycles
from compiler.tiling.template import NoFeasibleTile, Tiled

BLOCKS = 48  # ways to cut the result that are looked at closely
TRIPS = 64  # tiles of a core along one axis, at most, that are worth a try
STEPS = (1, 2, 3, 4, 6, 8, 12)  # of a chunk
COLUMNS = 128  # of a result that goes through UB, at least, for several groups to overlap
MOST = 4095  # rows, columns and depth of one product
AHEAD = 2  # pieces that are brought to LLB before they are loaded
EXPOSED = 1 / 16  # of what a queue does, that others wait for after all
SCALAR_STEP = 24  # instructions that the scalar unit runs for one step, those for addresses and flags included


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
    has_columns: bool = True  # of the result

    @property
    def itemsize(self) -> int:
        return DTYPES[self.dtype].itemsize

    @property
    def k0(self) -> int:
        return DTYPES[self.dtype].fractal_k

    @property
    def ub_bytes(self) -> int:
        """Of UB per element of what goes through it."""
        return self.slave_bytes or self.result_bytes


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
    grid: Grid
    columns: int = 0  # of the tile that go through UB at once; none where it does not

    @property
    def rounds(self) -> int:
        """Tiles of a core."""
        return prod(self.batch_trips) * self.m_trips * self.n_trips

    def bytes_of(self, problem: Problem) -> dict[str, int]:
        """What one of each buffer takes."""
        k0 = problem.k0
        m16, n16 = ceil_to(self.m, FRACTAL), ceil_to(self.n, FRACTAL)
        return {
            "l1": sum(self.l1_bytes(problem)),
            "l0a": m16 * ceil_to(self.step, k0) * problem.itemsize,
            "l0b": n16 * ceil_to(self.step, k0) * problem.itemsize,
            "l0c": m16 * n16 * 4,
            "ub": self.m * ceil_to(self.columns, k0) * problem.ub_bytes,
        }

    def l1_bytes(self, problem: Problem) -> tuple[int, int]:
        """Of a and b: all of k where it is held, else a chunk."""
        k0 = problem.k0
        chunk = self.step * self.steps
        depths = [ceil_to(problem.k, self.step) if self.held == name else chunk for name in "ab"]
        a = depths[0] * ceil_to(self.m, k0) if problem.transposed_a else self.m * ceil_to(depths[0], k0)
        b = self.n * ceil_to(depths[1], k0) if problem.transposed_b else depths[1] * ceil_to(self.n, k0)
        return a * problem.itemsize, b * problem.itemsize


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

    def taken(self, tile: Tile) -> dict[str, int]:
        return tile.bytes_of(self.problem)

    def apply(self, tile: Tile) -> Tiled:
        sch = cube.new_schedule(self.func)
        with cube.schedulable(name_of(self.func)):
            apply(sch, cube.masters(sch)[0], self.problem, tile, self.chip)
        return Tiled(sch.mod["main"], describe(self.problem, tile))


def name_of(func: Any) -> str:
    return str(func.attrs.get("global_symbol", "matmul"))


def space(func: Any, chip: Chip) -> MatmulSpace:
    sch = cube.new_schedule(func)
    problem = problem_of(sch, cube.masters(sch)[0], chip)
    if not chip.multiplies(problem.dtype):
        raise NoFeasibleTile(name_of(func), f"the cube, which does not multiply {problem.dtype}")
    return MatmulSpace(func, problem, chip)


def schedule(func: Any, chip: Chip, attempt: int) -> Tiled:
    """Cut the product of a kernel into tiles, and bring its slaves to them."""
    found = space(func, chip)
    tile = cube.choose(candidates(found.problem, chip), found.problem, attempt)
    if tile is None:
        raise NoFeasibleTile(name_of(func), f"{attempt} tiles of a matrix product")
    return found.apply(tile)


# ---- the problem -------------------------------------------------------------------------------------------------


def problem_of(sch: Any, master: Master, chip: Chip) -> Problem:
    block = sch.get(master.block)
    a, b = cube.operands_of(block)
    extents = dict(zip((axis.var for axis in block.iter_vars), master.extents, strict=True))
    along = {role: [block.iter_vars[i].var for i in master.axes(role)] for role in ("m", "n", "k")}
    batch = master.batch_axes()
    ends = cube.followers(sch, master.block)
    return Problem(
        batch=tuple(master.extents[axis] for axis in batch),
        batch_of=tuple(master.roles[axis].removeprefix("batch").removeprefix(" of ") for axis in batch),
        m=prod(extents[v] for v in along["m"]),
        n=prod(extents[v] for v in along["n"]),
        k=prod(extents[v] for v in along["k"]),
        dtype=cube.isa_dtype(a.source),
        slave_bytes=cube.slave_bytes(sch, master.block, chip),
        transposed_a=cube.last_variable(a) in along["m"],
        transposed_b=cube.last_variable(b) in along["k"] and bool(along["n"]),
        result_bytes=DTYPES[cube.isa_dtype(sch.get(ends[-1] if ends else master.block).writes[0].source)].itemsize,
        has_columns=bool(along["n"]),
    )


# ---- the choice --------------------------------------------------------------------------------------------------


def candidates(problem: Problem, chip: Chip) -> list[Tile]:
    """All tiles worth a try that fit the chip, the cheapest first."""
    for slots in (2, 1):
        coarse = list(dict.fromkeys(_tiles(problem, chip, slots)))
        coarse.sort(key=lambda tile: _cycles(tile, problem, chip))
        scarce = "ub" if problem.slave_bytes else "l1"
        smaller = {tile.bytes_of(problem)[scarce].bit_length(): tile for tile in reversed(coarse)}
        coarse = list(dict.fromkeys([*coarse[:BLOCKS], *smaller.values()]))
        found = [fine for tile in coarse for fine in _refined(tile, problem, chip, slots)]
        if found:
            return sorted(found, key=lambda tile: _cycles(tile, problem, chip))
    return []


def _cycles(tile: Tile, problem: Problem, chip: Chip) -> float:
    """Of tiles whose busiest queue takes as long, the one whose other queues are less busy hides them better."""
    work = work_of(tile, problem, chip)
    others = work.cube_cycles + work.mte1_cycles + work.mte2_cycles + work.mte3_cycles + work.fix_cycles
    return analytical_cycles(work, chip) + others * EXPOSED


def _tiles(problem: Problem, chip: Chip, slots: int) -> Iterator[Tile]:
    """Ways to cut the result, with chunks of one step."""
    for grid in grids(problem.batch, ceil_div(problem.m, FRACTAL), ceil_div(problem.n, FRACTAL), chip):
        batch_trips = tuple(ceil_div(e, c) for e, c in zip(problem.batch, grid.batch, strict=True))
        for m_trips, m in _cuts(problem.m, grid.blocks[0]):
            fitting = 0
            for n_trips, n in _cuts(problem.n, grid.blocks[1]):
                step = _step(problem, chip, slots, m, n)
                if m * n * 4 > chip.memory.l0c_bytes or not step:
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
                if problem.slave_bytes:
                    tile = replace(tile, columns=_columns(tile, problem, chip, slots))
                held = [replace(tile, held=name) for name in _held(tile, problem)]
                those = [tile for tile in held if _fits(tile, problem, chip, slots)]
                yield from those
                fitting += bool(those)
                if fitting == 4:  # the widest, among them those that leave L0C room for a second result
                    break


def _held(tile: Tile, problem: Problem) -> Iterator[str]:
    """What may stay in L1 while another operand goes by."""
    yield ""
    if tile.n_trips > 1 or "b" in problem.batch_of:
        yield "a"
    if tile.m_trips > 1 or "a" in problem.batch_of:
        yield "b"


def _cuts(extent: int, blocks: int) -> list[tuple[int, int]]:
    """(trips, size): a block cut into even tiles of whole fractals, the largest first."""
    block = ceil_div(extent, blocks)
    found: dict[int, int] = {}
    for trips in range(1, TRIPS + 1):
        size = ceil_to(ceil_div(block, trips), FRACTAL)
        found.setdefault(size, ceil_div(block, size))
    return [(trips, size) for size, trips in found.items()]


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
    return max(parts, key=lambda width: width / _line_share(width * problem.result_bytes, line * line, line), default=0)


def _refined(tile: Tile, problem: Problem, chip: Chip, slots: int) -> Iterator[Tile]:
    """The tile with chunks of one step and of several, and results on all ways."""
    all_steps = ceil_div(problem.k, tile.step)
    for steps in sorted({ceil_div(all_steps, ceil_div(all_steps, steps)) for steps in (*STEPS, all_steps)}):
        fine = replace(tile, steps=steps)
        ways = [fine]
        if not problem.slave_bytes and cube.path(chip, "l0c", "ub"):
            ways.append(replace(fine, columns=_columns(fine, problem, chip, slots)))
        yield from (way for way in dict.fromkeys(ways) if _fits(way, problem, chip, slots))


def _fits(tile: Tile, problem: Problem, chip: Chip, slots: int) -> bool:
    taken = tile.bytes_of(problem)
    a, b = tile.l1_bytes(problem)
    # A second slot of what is held would only be of use from one block of the result to the next.
    taken["l1"] = (a if tile.held == "a" else a * slots) + (b if tile.held == "b" else b * slots)
    for name in ("l0a", "l0b", "ub"):
        taken[name] *= slots
    return (tile.columns > 0 or not problem.slave_bytes) and all(
        size <= chip.memory_bytes(name) for name, size in taken.items()
    )


def work_of(tile: Tile, problem: Problem, chip: Chip) -> Work:
    """What the busiest core does, where its cluster reads from DDR once what several of its cores need."""
    m16, n16, k = ceil_to(tile.m, FRACTAL), ceil_to(tile.n, FRACTAL), ceil_to(problem.k, problem.k0)
    steps, chunks = ceil_div(problem.k, tile.step), ceil_div(problem.k, tile.step * tile.steps)
    rounds, through_ub = tile.rounds, tile.columns > 0
    product = m16 * n16 * k / chip.macs_per_cycle(problem.dtype) + steps * chip.cube.overhead_cycles
    near = steps * sum(
        max(chip.path[path].issue_cycles, width * tile.step * problem.itemsize / rate(chip, path))
        for path, width in (("l1_l0a", m16), ("l1_l0b", n16))
    )
    lines = _line_shares(tile, problem, chip)
    loads = _loads(tile, problem, chip, lines, product)

    results = tile.m * tile.n
    out_path = "ub_ddr" if through_ub else "l0c_ddr"
    stored = results * problem.result_bytes * lines["c"]
    out = stored / rate(chip, out_path)
    taken_out = m16 * n16 * 4 / rate(chip, "l0c_ub") if through_ub else out
    vector = results * max(0, problem.slave_bytes - problem.result_bytes) / chip.vector.bytes_per_cycle
    groups = ceil_div(tile.n, tile.columns) if through_ub else 1
    ddr, ddr_rate = loads.ddr_bytes + rounds * tile.grid.count * stored, ddr_bytes_per_cycle(chip)

    last = max((taken_out + vector + out) / groups if through_ub else out, tile.grid.count * stored / ddr_rate)
    last += chip.path[out_path].latency_cycles + product / chunks
    # Without room for a second result the cube waits until the first is out.
    alone = 2 * m16 * n16 * 4 > chip.memory.l0c_bytes
    serial = (rounds - 1) * (taken_out + chip.path["l1_l0a"].latency_cycles) if alone else 0.0
    beside = rounds * max(product, near)
    busiest = max(ddr / ddr_rate, loads.cycles, beside)
    whole = max(loads.cycles + last, loads.first_cycles + beside + serial + last, ddr / ddr_rate)
    ends = whole - busiest - serial
    return Work(
        cores=tile.grid.count,
        cube_cycles=rounds * product,
        vector_cycles=rounds * vector,
        mte1_cycles=rounds * near,
        mte2_cycles=loads.cycles,
        mte3_cycles=rounds * out if through_ub else 0.0,
        fix_cycles=rounds * taken_out,
        ddr_bytes=ddr,
        llb_bytes=loads.llb_bytes,
        trips=rounds,
        turns=rounds * chunks,
        steps=rounds * steps,
        instructions=rounds * (steps * SCALAR_STEP + chunks * 2 * SCALAR_STEP + groups * SCALAR_STEP),
        first_cycles=max(0.0, ends - last) + chip.path["ddr_l1"].latency_cycles,
        last_cycles=max(0.0, min(ends, last)),
        serial_cycles=serial,
    )


@dataclass(frozen=True)
class _Loads:
    """What operands take on their way from afar."""

    cycles: float  # of MTE2
    first_cycles: float  # that the cube waits for operands: for the first, and for what is held beside them
    ddr_bytes: float
    llb_bytes: float


def _loads(tile: Tile, problem: Problem, chip: Chip, lines: Mapping[str, float], product: float) -> _Loads:
    """Cores that share a load wait for each other's parts, so that all use DDR at once and then all LLB. What fits LLB
    stays there. What is held comes in piece by piece beside the first round of the other operand.
    """
    chunks, rounds = ceil_div(problem.k, tile.step * tile.steps), tile.rounds
    only = {
        name: prod(t for t, of in zip(tile.batch_trips, problem.batch_of, strict=True) if of == name) for name in "ab"
    }
    again = {"a": only["b"] * tile.n_trips, "b": only["a"] * tile.m_trips}
    elements = {"a": tile.m * problem.k, "b": tile.n * problem.k}
    of_both = dict(zip("ab", readers(tile.grid, problem.batch_of, chip.cores_per_cluster), strict=True))
    cluster = min(tile.grid.count, chip.cores_per_cluster)
    clusters = ceil_div(tile.grid.count, chip.cores_per_cluster)
    ddr_rate = ddr_bytes_per_cycle(chip)
    llb_rate = min(rate(chip, "llb_l1"), chip.bandwidth.llb_bytes_per_kilocycle / 1000 / cluster)
    resident = sum(
        readers_of.blocks / clusters * rounds / again[name] * elements[name] * problem.itemsize
        for name, readers_of in of_both.items()
        if readers_of.shared
    )
    cycles, once_cycles = dict.fromkeys("ab", 0.0), dict.fromkeys("ab", 0.0)
    ddr = llb = fill = relay = 0.0
    for name, readers_of in of_both.items():
        once = rounds // again[name]
        loads = once if tile.held == name else rounds
        each = elements[name] * problem.itemsize * lines[name]
        if not readers_of.shared:
            ddr += readers_of.blocks * loads * each
            once_cycles[name] = max(
                chunks * chip.path["ddr_l1"].issue_cycles,
                each / rate(chip, "ddr_l1"),
                readers_of.blocks * each / ddr_rate,
            )
            cycles[name] = loads * once_cycles[name]
            fill += once_cycles[name] / chunks
            continue
        brought = once if resident <= chip.memory.llb_bytes else loads
        ddr += readers_of.blocks * brought * each
        llb += cluster * loads * each + readers_of.blocks / clusters * brought * each
        relay = relay_cycles(chip)
        told = chip.path["ddr_llb"].issue_cycles + 2 * cluster * chip.sync.flag_cycles
        part = readers_of.blocks / tile.grid.count * each / rate(chip, "ddr_llb")
        bring = max(part, readers_of.blocks * each / ddr_rate) + chunks * told
        load = max(chunks * chip.path["llb_l1"].issue_cycles, each / llb_rate)
        once_cycles[name] = max(bring, load)
        cycles[name] = max(brought * bring + loads * load, brought * chunks * relay / AHEAD)
        fill += (bring + load) / chunks
    first = fill + chip.path["ddr_l1"].latency_cycles + chip.path["l1_l0a"].latency_cycles + relay
    if tile.held:
        first += rounds // again[tile.held] * max(0.0, sum(once_cycles.values()) - product)
    return _Loads(sum(cycles.values()), first, ddr, llb)


def ddr_bytes_per_cycle(chip: Chip) -> float:
    return chip.bandwidth.ddr_bytes_per_kilocycle / 1000


def _line_shares(tile: Tile, problem: Problem, chip: Chip) -> dict[str, float]:
    """What each byte of a, b and c that is wanted costs DDR: the lines that rows touch, and for a and b what the core
    waits for whose rows end in the middle of a block of elements, which halves the rate.
    """
    size, chunk = problem.itemsize, min(tile.step * tile.steps, problem.k)
    of_k, of_m, of_n = (chunk, problem.k), (tile.m, problem.m), (tile.n, problem.n)
    a, b = of_m if problem.transposed_a else of_k, of_k if problem.transposed_b else of_n
    c = (tile.columns or tile.n, problem.n)
    shares = {
        name: _line_share(run * of, pitch * of, chip.transfer.ddr_line_bytes)
        for name, (run, pitch), of in (("a", a, size), ("b", b, size), ("c", c, problem.result_bytes))
    }
    own = {"a": tile.m * tile.m_trips if problem.transposed_a else problem.k}
    own["b"] = problem.k if problem.transposed_b else tile.n * tile.n_trips
    slower = 100 / chip.transfer.ragged_nz_percent - 1
    for name, (run, pitch) in (("a", a), ("b", b)):
        shares[name] *= _ragged(run, pitch, min(own[name], pitch), chip.block_bytes // size, slower)
    return shares


def _ragged(run: int, pitch: int, own: int, block: int, slower: float) -> float:
    """How much longer the loads of the last core along a row take than those of a core that has ``own`` elements of it,
    in runs of which those are slower that are no whole blocks.
    """
    if run % block:
        return 1 + slower
    last = pitch - (ceil_div(pitch, own) - 1) * own
    return max(1.0, (last + slower * (last % run)) / own) if pitch % block else 1.0


def _line_share(run: int, pitch: int, line: int) -> float:
    if run >= pitch:
        return 1.0
    start = gcd(run, pitch, line)
    return (run + line - start) / run


def relay_cycles(chip: Chip) -> int:
    """From when a core begins to bring a piece to LLB until another may load it."""
    return chip.path["ddr_llb"].latency_cycles + chip.sync.cross_flag_cycles + chip.path["llb_l1"].latency_cycles


def rate(chip: Chip, name: str) -> int:
    return chip.path[name].bytes_per_cycle


def describe(problem: Problem, tile: Tile) -> str:
    batch = "x".join(map(str, problem.batch))
    grid = tile.grid
    return (
        f"{batch + ' of ' if batch else ''}{problem.m}x{problem.n}x{problem.k} in tiles of {tile.m}x{tile.n}, "
        f"k by {tile.step * tile.steps} and {tile.step}, {grid.groups[0]}x{grid.groups[1]} groups of "
        f"{grid.cores[0]}x{grid.cores[1]} cores" + (f", {tile.held} held in L1" if tile.held else "")
    )


# ---- the schedule ------------------------------------------------------------------------------------------------


def apply(sch: Any, master: Master, problem: Problem, tile: Tile, chip: Chip) -> None:
    taken, slaves = cube.keep_result(sch, master.block, chip)
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
        if tile.held == name:
            at_chunk = placed.trips[holding - 1] if holding else placed.core
        cube.bring_operand(sch, master.block, index, scope, at_chunk, placed.step, transposed=transposed)
    columns = tile.columns if problem.has_columns and 0 < tile.columns < tile.n else None
    cube.place_slaves(sch, taken, slaves, placed, chip, columns, through_ub=tile.columns > 0)
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
