"""The schedule template of attention: scores of some queries with all keys stay on the core until values are weighed.

    for core: for batch, rows of queries:
        for some keys: scores = q * keys        # L0C, then UB
        scale, mask, softmax                    # UB
        result = weights * values               # weights go from UB back to L1
        slaves

All keys of the rows that a core works on lie in UB at once, which bounds the rows; a row alone that is too long has no
tile. Where keys and values fit L1 they stay there for all rows of a batch. Where scores of two trips fit UB, trips
overlap (`CutTrips`): the cube works on one while the vector unit works on the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from compiler.isa.dtypes import DTYPES
from compiler.isa.layout import FRACTAL, ceil_to
from compiler.isa.timing import ceil_div
from compiler.target import Chip
from compiler.tiling import cube
from compiler.tiling.cube import Cut
from compiler.tiling.late_division import Prepared, prepare
from compiler.tiling.masters import Master, last_variable, masters_of
from compiler.tiling.matmul_work import AHEAD, relay_cycles
from compiler.tiling.scaled_scores import KIND, scaled_at_once
from compiler.tiling.schedule import schedule_of
from compiler.tiling.search import Work, analytical_cycles, queue_cycles
from compiler.tiling.template import NoFeasibleTile, Tiled, name_of
from compiler.tir.near import memory_of_parameter
from compiler.tir.products import operands_of

ROWS = (256, 192, 128, 96, 80, 64, 48, 40, 32, 24, 16, 8, 4, 2, 1)
EVEN, LEAST_EVEN = 2, 24  # parts of queries have a multiple of so many of them, and about so many at least
MOST = 4095  # keys of one product
# Of L0A and L0B: both products take turns, each with operands in two slots; or in one; or one after the other.
PARTS = (4, 2, 1)
HANDOVER_CYCLES = 400  # of a trip: latencies between queues that wait for each other
TURN_SHARE = 1.15  # of the busiest queue's cycles of a trip, what it takes while another trip is under way
SCALAR_STEP, SCALAR_TRIP = 24, 150  # instructions of the scalar unit


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
    passes: int  # of the vector unit over all scores
    near: bool = False  # whether all of it lies in LLB


@dataclass(frozen=True)
class Tile:
    rows: int
    keys: int  # whose scores are in L0C at once
    width_step: int  # of k of the first product
    key_step: int  # of k of the second
    batch_trips: tuple[int, ...]
    row_trips: int
    holds: bool  # keys and values stay in L1 for all rows

    @property
    def rounds(self) -> int:
        return prod(self.batch_trips) * self.row_trips

    @property
    def trips_in_a_row(self) -> int:
        """Of the innermost loop; what stays in L1 changes with the loops over the batch."""
        loops = (self.row_trips,) if self.holds else (self.row_trips, *reversed(self.batch_trips))
        return next((trips for trips in loops if trips > 1), 1)

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


@dataclass(frozen=True)
class AttentionSpace:
    """All tiles of one attention that fit the chip."""

    prepared: Prepared
    problem: Problem
    chip: Chip

    def tiles(self) -> list[Tile]:
        return candidates(self.problem, self.chip)

    def work(self, tile: Tile) -> Work:
        return work_of(tile, self.problem, self.chip)

    def taken(self, tile: Tile) -> dict[str, int]:
        return tile.bytes_of(self.problem)

    def apply(self, tile: Tile) -> Tiled:
        sch = schedule_of(self.prepared.func)
        with cube.schedulable(name_of(self.prepared.func, KIND)):
            apply(sch, masters_of(sch), tile, self.chip)
        return Tiled(self.prepared.finish(sch.mod["main"]), describe(self.problem, tile))


def space(func: Any, chip: Chip) -> AttentionSpace:
    prepared, problem = prepared_for(scaled_at_once(func, chip))
    if not candidates(problem, chip):
        raise NoFeasibleTile(name_of(func, KIND), f"the scores of one query with {problem.keys} keys")
    return AttentionSpace(prepared, problem, chip)


def prepared_for(func: Any) -> tuple[Prepared, Problem]:
    prepared = prepare(func)
    sch = schedule_of(prepared.func)
    return prepared, problem_of(sch, masters_of(sch), prepared.vanishing)


def schedule(func: Any, chip: Chip, attempt: int) -> Tiled:
    """Cut the rows of queries of an attention into tiles; later attempts take less of UB."""
    found = space(func, chip)
    tile = cube.choose(candidates(found.problem, chip), found.problem, attempt)
    if tile is None:
        raise NoFeasibleTile(name_of(func, KIND), f"{attempt} numbers of queries at once")
    return found.apply(tile)


# ---- the problem -------------------------------------------------------------------------------------------------


def problem_of(sch: Any, products: Sequence[Master], vanishing: str) -> Problem:
    scores, values = products
    behind = [sch.get(block) for block in cube.followers(sch, values.block)]
    last = {sch.get(values.block), *behind}
    between = [sch.get(block) for block in cube.followers(sch, scores.block)]
    between = [block for block in between if block not in last and block.name_hint != vanishing]
    extents = values.extents
    rows = prod(extents[axis] for axis in [*values.batch_axes(), *values.axes("m")])
    results = [sch.get(master.block).writes[0].source for master in (scores, values)]
    fixed = [cube.takes_itself_out(sch, master.block) for master in (scores, values)]
    scores_of = prod(int(n) for n in results[0].shape)
    func = sch.mod["main"]
    operands = [operands_of(sch.get(master.block)) for master in products]
    result = (behind[-1] if behind else sch.get(values.block)).writes[0].source
    moved = [*(load.source for load in operands[0]), operands[1][1].source, result]
    peaks = [cube.peak_bytes(*of) for of in zip(results, (between, behind), fixed, strict=True)]
    return Problem(
        batch=tuple(extents[axis] for axis in values.batch_axes()),
        queries=prod(extents[axis] for axis in values.axes("m")),
        keys=prod(extents[axis] for axis in values.axes("k")),
        width=prod(scores.extents[axis] for axis in scores.axes("k")),
        value_width=prod(extents[axis] for axis in values.axes("n")),
        dtype=cube.isa_dtype(operands_of(sch.get(scores.block))[0].source),
        row_bytes=-(-max(peaks) // rows),
        passes=sum(prod(int(axis.dom.extent) for axis in block.iter_vars) >= scores_of for block in between),
        near=all(memory_of_parameter(func, buffer) == "llb" for buffer in moved),
    )


# ---- the choice --------------------------------------------------------------------------------------------------


def candidates(problem: Problem, chip: Chip) -> list[Tile]:
    """Tiles that fit the chip, the cheapest first."""
    for parts in PARTS:
        tiles = dict.fromkeys(_tiles(problem, chip, parts))
        if found := [tile for tile in tiles if _fits(tile, problem, chip, parts)]:
            return sorted(found, key=lambda tile: analytical_cycles(work_of(tile, problem, chip), chip))
    return []


def _fits(tile: Tile, problem: Problem, chip: Chip, parts: int) -> bool:
    taken = tile.bytes_of(problem)
    taken["l0c"] *= min(parts, 2)
    return all(size <= chip.memory_bytes(name) for name, size in taken.items())


def _tiles(problem: Problem, chip: Chip, parts: int) -> Iterator[Tile]:
    size, k0 = DTYPES[problem.dtype].itemsize, DTYPES[problem.dtype].fractal_k
    memory = chip.memory
    values = ceil_to(problem.value_width, FRACTAL)
    for rows in rows_of(problem.queries):
        rows16 = ceil_to(rows, FRACTAL)
        at_once = min(memory.l0c_bytes // (min(parts, 2) * rows16 * 4), MOST) // FRACTAL * FRACTAL
        l0a = memory.l0a_bytes // (parts * rows16 * size)
        width_step = min(l0a, memory.l0b_bytes // (parts * FRACTAL * size)) // k0 * k0
        key_step = min(l0a, memory.l0b_bytes // (parts * values * size)) // k0 * k0
        if not at_once or not width_step or not key_step:
            continue
        width_step, key_step = min(width_step, ceil_to(problem.width, k0)), min(key_step, ceil_to(problem.keys, k0))
        keys = min(at_once, memory.l0b_bytes // (parts * width_step * size) // FRACTAL * FRACTAL)
        keys = ceil_to(ceil_div(problem.keys, ceil_div(problem.keys, keys)), FRACTAL)
        for batch_trips, row_trips in spread(problem, chip, ceil_div(problem.queries, rows)):
            for holds in (True, False):
                yield Tile(rows, min(keys, problem.keys), width_step, key_step, batch_trips, row_trips, holds)


def rows_of(queries: int) -> list[int]:
    """Numbers of queries at once: steps and even parts, so that for any number of cores there is a number of trips
    in which each of them has about as many queries."""
    even = {ceil_to(ceil_div(queries, parts), EVEN) for parts in range(1, ceil_div(queries, LEAST_EVEN) + 1)}
    return sorted({min(rows, queries) for rows in {*ROWS, *(rows for rows in even if rows <= ROWS[0])}}, reverse=True)


def spread(problem: Problem, chip: Chip, row_tiles: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """Trips of a core along the batch and along rows, for every number of cores that the batch may take."""
    for most in range(1, min(prod(problem.batch), chip.cores) + 1):
        left, batch_trips = most, []
        for extent in problem.batch:
            trips = ceil_div(extent, min(extent, left))
            left //= ceil_div(extent, trips)
            batch_trips.append(trips)
        of_batch = prod(ceil_div(e, t) for e, t in zip(problem.batch, batch_trips, strict=True))
        yield tuple(batch_trips), ceil_div(row_tiles, min(row_tiles, chip.cores // of_batch))


def work_of(tile: Tile, problem: Problem, chip: Chip) -> Work:
    """What the busiest core does. Of one trip, scores, softmax and result follow each other; of several, too."""
    size, k0 = DTYPES[problem.dtype].itemsize, DTYPES[problem.dtype].fractal_k
    rows16, keys = ceil_to(tile.rows, FRACTAL), ceil_to(problem.keys, FRACTAL)
    width, values = ceil_to(problem.width, k0), ceil_to(problem.value_width, FRACTAL)
    rounds, batches = tile.rounds, prod(tile.batch_trips)
    of_batch = prod(ceil_div(e, t) for e, t in zip(problem.batch, tile.batch_trips, strict=True))
    of_rows = ceil_div(ceil_div(problem.queries, tile.rows), tile.row_trips)
    cores = of_batch * of_rows
    rate = {name: spec.bytes_per_cycle for name, spec in chip.path.items()}

    score_steps = ceil_div(problem.keys, tile.keys) * ceil_div(problem.width, tile.width_step)
    value_steps = ceil_div(problem.keys, tile.key_step)
    macs, overhead = chip.macs_per_cycle(problem.dtype), chip.cube.overhead_cycles
    cube_scores = rows16 * keys * width / macs + score_steps * overhead
    cube_values = rows16 * keys * values / macs + value_steps * overhead
    near_scores = (
        rows16 * width * ceil_div(problem.keys, tile.keys) / rate["l1_l0a"] + keys * width / rate["l1_l0b"]
    ) * size
    near_values = (rows16 * keys / rate["l1_l0a"] + keys * values / rate["l1_l0b"]) * size
    fix_scores = rows16 * keys * 4 / rate["l0c_ub"]
    heads = chip.vector.head_cycles + chip.vector.tail_cycles
    vector = problem.passes * (tile.rows * keys * size / chip.vector.bytes_per_cycle + 2 * heads)
    weights_out = tile.rows * keys * size / rate["ub_l1"]
    result = tile.rows * problem.value_width
    memory = "llb" if problem.near else "ddr"
    stored = result * size / rate[f"ub_{memory}"]
    out = result * 4 / rate["l0c_ub"] + result * 4 / chip.vector.bytes_per_cycle + stored
    chain = (
        max(cube_scores, near_scores, fix_scores)
        + vector
        + weights_out
        + max(cube_values, near_values)
        + out
        + HANDOVER_CYCLES
    )

    loads, turns = (batches, 2 * batches) if tile.holds else (rounds, rounds * (score_steps + value_steps))
    far, ddr, llb = _from_afar(tile, problem, chip, of_batch, of_rows)
    first = far / loads / (1 if tile.holds else value_steps)
    queues = Work(
        cores=cores,
        cube_cycles=rounds * (cube_scores + cube_values),
        vector_cycles=rounds * vector,
        mte1_cycles=rounds * (near_scores + near_values),
        mte2_cycles=far,
        mte3_cycles=rounds * (weights_out + stored),
        fix_cycles=rounds * (fix_scores + result * 4 / rate["l0c_ub"]),
        ddr_bytes=ddr,
        llb_bytes=llb,
        trips=rounds,
        turns=turns,
        steps=rounds * (score_steps + value_steps),
        instructions=rounds * ((score_steps + value_steps) * SCALAR_STEP + SCALAR_TRIP),
        rows=tile.rows,
        columns=tile.keys,
    )
    # A trip fills the queues: what is loaded all at once for the next one is dispatched when it is half done, and small
    # pieces of it, where trips overlap, all along.
    busiest = max(queue_cycles(queues, chip))
    in_a_row = tile.trips_in_a_row if _overlaps(tile, problem, chip) else 1
    computed = rounds / in_a_row * (chain + (in_a_row - 1) * TURN_SHARE * busiest / rounds)
    late_share = 1 / 2 if tile.holds else 1 / 4 if in_a_row == 1 else 1 / 8
    waits = max(0.0, computed - busiest) + min(computed, far) * late_share
    return queues._replace(first_cycles=chip.path[f"{memory}_l1"].latency_cycles + first, serial_cycles=waits)


def _from_afar(tile: Tile, problem: Problem, chip: Chip, of_batch: int, of_rows: int) -> tuple[float, float, float]:
    """Cycles of the queue that loads queries, keys and values, and the bytes of DDR and LLB that move in all.

    Cores that share a head bring its keys and values to LLB piece by piece, and wait for each other's parts.
    """
    size, rounds, batches = DTYPES[problem.dtype].itemsize, tile.rounds, prod(tile.batch_trips)
    own, result = rounds * tile.rows * problem.width * size, tile.rows * problem.value_width
    held = problem.keys * (problem.width + problem.value_width) * size
    loads, cores = batches if tile.holds else rounds, of_batch * of_rows
    in_cluster = min(cores, chip.cores_per_cluster)
    rate = {name: spec.bytes_per_cycle for name, spec in chip.path.items()}
    llb_rate = min(rate["llb_l1"], chip.bandwidth.llb_bytes_per_kilocycle / 1000 / in_cluster)
    if problem.near:
        llb = in_cluster * (own + rounds * result * size + loads * held)
        return own / rate["llb_l1"] + loads * held / llb_rate, 0.0, llb
    brought = times_brought(of_batch, of_rows, chip.cores_per_cluster)
    ddr = cores * (own + rounds * result * size) + brought * batches * held
    far = own / rate["ddr_l1"] + brought * batches * held / (chip.bandwidth.ddr_bytes_per_kilocycle / 1000)
    if of_rows > 1 or batches < loads:
        # Small pieces are brought as far ahead as it takes.
        late = 2 * batches * relay_cycles(chip) / AHEAD if tile.holds else 0.0
        far = max(far + loads * held / llb_rate, late)
    return far, ddr, 0.0


def times_brought(of_batch: int, of_rows: int, cluster: int) -> int:
    """How often clusters bring what the cores of one part of the batch share; these have consecutive numbers."""
    firsts = range(0, of_batch * of_rows, of_rows)
    return sum((first + of_rows - 1) // cluster - first // cluster + 1 for first in firsts)


def _overlaps(tile: Tile, problem: Problem, chip: Chip) -> bool:
    """Whether the scores of two trips fit UB, so that one is multiplied while the other is on the vector unit."""
    size = DTYPES[problem.dtype].itemsize
    results = problem.value_width * (4 + 2 * size)
    return tile.rows * (2 * problem.keys * size + results) <= chip.memory.ub_bytes


def describe(problem: Problem, tile: Tile) -> str:
    batch = "x".join(map(str, problem.batch))
    return (
        f"{batch + ' of ' if batch else ''}{problem.queries} queries and {problem.keys} keys, "
        f"{tile.rows} queries at once, scores by {tile.keys} keys" + (", keys held in L1" if tile.holds else "")
    )


# ---- the schedule ------------------------------------------------------------------------------------------------


def apply(sch: Any, products: Sequence[Master], tile: Tile, chip: Chip) -> None:
    scores, values = products
    parameters = list(sch.mod["main"].params)
    taken, slaves = cube.keep_result(sch, values.block)
    scores_taken, _ = cube.keep_result(sch, scores.block)
    between = _between(sch, scores, values)
    keys = max(values.extents[axis] for axis in values.axes("k"))
    steps = ceil_div(keys, tile.key_step) if tile.holds else 1
    placed = cut_values(sch, values, tile, Cut(steps, tile.key_step))
    trip = placed.trips[-1]
    holding = (placed.trips[-2] if len(placed.trips) > 1 else placed.core) if tile.holds else None
    transposed = is_transposed(sch, values)
    at_values = placed.chunk if holding is None else holding
    cube.bring_operand(sch, values.block, 1, cube.L0B, at_values, placed.step, transposed=transposed)
    cube.bring_operand(sch, values.block, 0, cube.L0A, placed.chunk, placed.step)
    cube.place_slaves(sch, taken, slaves, placed, chip)
    for block in reversed(between):
        sch.compute_at(block, trip, preserve_unit_loops=True)
        sch.set_scope(block, 0, cube.UB)
    for block in between:
        cube.stage_inputs(sch, block, trip, parameters)
    place_scores(sch, scores, scores_taken, tile, trip, trip, holding)
    cube.start_sum(sch, values.block, placed)  # last: behind the scores, which then may share L0C


def _between(sch: Any, scores: Master, values: Master) -> list[Any]:
    """The stages that make the weights and the sums of these, behind the one that takes the scores out of L0C."""
    first = {sch.get(scores.block), *(sch.get(block) for block in sch.get_consumers(scores.block))}
    last = {sch.get(values.block), *(sch.get(block) for block in cube.followers(sch, values.block))}
    return [block for block in cube.followers(sch, scores.block) if sch.get(block) not in first | last]


def cut_values(sch: Any, values: Master, tile: Any, keys: Cut) -> cube.Placed:
    """The second product cut as a tile says: along its batch and rows, and along the keys as given."""
    cuts = [Cut(1, 1)] * len(values.roles)
    for axis, trips in zip(values.batch_axes(), tile.batch_trips, strict=True):
        cuts[axis] = Cut(trips, 1)
    for axis in values.axes("m"):
        cuts[axis] = Cut(tile.row_trips, tile.rows)
    for axis in values.axes("n"):
        cuts[axis] = Cut(1, values.extents[axis])
    for axis in values.axes("k"):
        cuts[axis] = keys
    order = [*values.batch_axes(), *values.axes("n"), *values.axes("m")]
    return cube.cut_master(sch, values, cuts, order)


def place_scores(
    sch: Any,
    scores: Master,
    taken: Any,
    tile: Any,
    trip: Any,
    queries_at: Any,
    holding: Any | None,
    alone: bool = False,
) -> None:
    """The first product inside ``trip``, by some keys at a time; its queries come inside another loop, keys are held
    inside a third or come as they are multiplied. Where it is worked out twice, its operands are its own ``alone``."""
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
    transposed = is_transposed(sch, scores)
    at_keys = placed.chunk if holding is None else holding
    cube.bring_operand(sch, scores.block, 1, cube.L0B, at_keys, placed.step, transposed=transposed, alone=alone)
    cube.bring_operand(sch, scores.block, 0, cube.L0A, queries_at, placed.step, alone=alone)
    cube.start_sum(sch, scores.block, placed)


def is_transposed(sch: Any, master: Master) -> bool:
    """Whether b is stored with its columns outermost."""
    block = sch.get(master.block)
    _, b = operands_of(block)
    along_k = [block.iter_vars[axis].var for axis in master.axes("k")]
    return last_variable(b) in along_k and bool(master.axes("n"))
