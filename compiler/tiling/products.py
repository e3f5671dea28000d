"""The schedule template of products of matrices of which each multiplies only what the one before it makes.

Rows of the first matrix are spread over the cores, and stay where they are: what lies between two products goes from
UB to L1, with all of its columns, and from there beside the cube. Only the other matrices come from afar, piece by
piece; where all of them fit L1, they stay there for all rows of a core.

    for core: for trip: { l1 = rows of a
                          for piece of columns: { c = l1 * w;  ub = stages(c);  made[piece] = ub }   # each but the last
                          for piece of columns: { c = made * w;  slaves } }
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice, pairwise, product
from typing import Any, ClassVar, NamedTuple

from compiler.isa.layout import FRACTAL, ceil_to
from compiler.isa.timing import ceil_div
from compiler.target import Chip
from compiler.tiling import cube
from compiler.tiling.apart import Parts, may_stay
from compiler.tiling.cube import Cut, Placed
from compiler.tiling.masters import Master, masters_of
from compiler.tiling.matmul import as_one_matrix
from compiler.tiling.matmul_problem import TABLE_BYTES, Problem, problem_of
from compiler.tiling.matmul_tiles import MOST
from compiler.tiling.matmul_work import line_share
from compiler.tiling.schedule import schedule_of
from compiler.tiling.search import Work
from compiler.tiling.started_sums import bring_begin, matrix_started_with_bias
from compiler.tiling.template import NoFeasibleTile, Tiled
from compiler.tir.products import operands_of

NAME = "products"
AXES = ("m", "n", "k")  # of each product, one of each
TRIPS = 8  # of a core, at most, that are worth a try
PIECES = 4  # ways to cut the columns of one product that are tried
CHUNK_BYTES = (0, 1 << 14)  # about so much of a matrix comes to L1 at once, or what one step takes
TRIES = 6  # tiles that the first one is compared with: how products go over into one another, their work tells badly
SHORTEST = 4096  # elements of a matrix beside the cube that may be enough for one step: the first one waits for fewer
SMALL = 16  # a matrix of which L1 holds so many comes at once
HANDOVER_CYCLES = 300  # from a product's last results to the next one's first
ENTRIES = 3  # of a queue, for one part of a result: its work and the flags around it
SCALAR_STEP = 24  # instructions that the scalar unit runs for one step


class Piece(NamedTuple):
    """Of one product: columns that are summed at once, how many of them leave at a time, how much of k is beside the
    cube, how much more in L1, and whether the matrix stays there.
    """

    columns: int
    leaving: int
    step: int
    steps: int
    held: bool = False

    @property
    def chunk(self) -> int:
        return self.step * self.steps


class Tile(NamedTuple):
    """Rows at once, how often a core has so many and how many cores have, and a piece of each product."""

    rows: int
    trips: int
    cores: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class ProductsSpace:
    """All tiles of several products in one kernel."""

    func: Any
    problems: tuple[Problem, ...]
    chip: Chip
    tries: ClassVar[int] = TRIES

    def tiles(self) -> list[Tile]:
        return self._all

    @cached_property
    def _all(self) -> list[Tile]:
        return next((found for slots in (2, 1) if (found := [*_tiles(self.problems, self.chip, slots)])), [])

    def work(self, tile: Tile) -> Work:
        return work_of(tile, self.problems, self.chip)

    def taken(self, tile: Tile) -> dict[str, int]:
        return bytes_of(tile, self.problems)

    def apply(self, tile: Tile) -> Tiled:
        sch = schedule_of(self.func)
        with cube.schedulable(NAME):
            apply(sch, masters_of(sch), self.problems, tile, self.chip)
        return Tiled(sch.mod["main"], describe(self.problems, tile))


def space(func: Any, chip: Chip) -> ProductsSpace:
    if not cube.path(chip, "ub", "l1"):
        raise NoFeasibleTile(NAME, "a path from UB to L1, which the chip has not")
    func = as_one_matrix(func)
    prepared = [matrix_started_with_bias(part, chip) for part in Parts.of(func, chip, NAME, _begin).functions]
    problems = [_problem_of_part(part, chip) for part in prepared]
    able = tuple(problem for problem in problems if problem is not None)
    if len(able) < len(problems) or not all(follows(*pair) for pair in pairwise(able)):
        raise NoFeasibleTile(NAME, "products that do not multiply all of what the one before makes")
    found = ProductsSpace(Parts(tuple(prepared)).joined(func), able, chip)
    if not found.tiles():
        raise NoFeasibleTile(NAME, "tiles of all columns")
    return found


def _begin(sch: Any, master: Master) -> tuple[Any, Any]:
    """The first block of a product that multiplies what another one makes: itself; and what it multiplies."""
    block = sch.get(master.block)
    return block, operands_of(block)[0].source


def _problem_of_part(func: Any, chip: Chip) -> Problem | None:
    """Of matrices of rows and columns, that all share no axis; None of others."""
    sch = schedule_of(func)
    (master,) = masters_of(sch)
    roles = zip(master.roles, master.extents, strict=True)
    if sorted(role for role, extent in roles if role in AXES or extent > 1) != sorted(AXES):
        return None
    problem = problem_of(sch, master, chip)
    if not chip.multiplies(problem.dtype) or problem.transposed_a:
        return None
    return replace(problem, slave_bytes=cube.slave_bytes(sch, master.block, chip, through_ub=True))


def problem_alone(func: Any, chip: Chip) -> Problem | None:
    """Of a kernel of one product; None of any other."""
    return _problem_of_part(as_one_matrix(func), chip) if len(masters_of(schedule_of(func))) == 1 else None


def follows(first: Problem, second: Problem) -> bool:
    """Whether the second multiplies what the first makes, all of it, and nothing as large comes from elsewhere."""
    same = first.m == second.m and first.n == second.k and first.dtype == second.dtype
    return same and first.result_bytes == second.itemsize and not first.epilogue.side_bytes


def is_possible(problems: Sequence[Problem | None], chip: Chip) -> bool:
    """Whether one kernel may do what several products do, as far as their shapes tell."""
    return may_stay(problems, chip, follows)


# ---- tiles -------------------------------------------------------------------------------------------------------


def _tiles(problems: Sequence[Problem], chip: Chip, slots: int) -> Iterator[Tile]:
    rows_of = dict[tuple[int, int], None]()
    for trips in range(1, TRIPS + 1):
        rows = ceil_to(ceil_div(problems[0].m, chip.cores * trips), FRACTAL)
        rows_of[rows, ceil_div(problems[0].m, chip.cores * rows)] = None
    for rows, trips in rows_of:
        cores = ceil_div(problems[0].m, rows * trips)
        rows = min(rows, problems[0].m)
        chunked = [[_pieces(problem, rows, size, chip, slots) for problem in problems] for size in CHUNK_BYTES]
        for pieces in dict.fromkeys(chain.from_iterable(product(*each) for each in chunked)):
            # What stays comes all at once: what is not small, for several trips only.
            small = [_is_small(problem, chip) for problem in problems]
            for held in ([True] * len(pieces) if trips > 1 else small, small, [False] * len(pieces)):
                kept = tuple(piece._replace(held=each) for piece, each in zip(pieces, held, strict=True))
                tile = Tile(rows, trips, cores, kept)
                if _fits(tile, problems, chip, slots):
                    yield tile
                    break


def _is_small(problem: Problem, chip: Chip) -> bool:
    """Whether a matrix comes at once: there is little of it, and no core brings it to LLB for others."""
    return "b" in problem.near and _matrix_bytes(problem) * SMALL <= chip.memory.l1_bytes


def _matrix_bytes(problem: Problem) -> int:
    return ceil_to(problem.k, problem.k0) * ceil_to(problem.n, FRACTAL) * problem.itemsize


def _pieces(problem: Problem, rows: int, chunk_bytes: int, chip: Chip, slots: int) -> list[Piece]:
    """Those for which there is room beside the cube and in UB, and that take the shortest time."""
    memory, size, rows16 = chip.memory, problem.itemsize, ceil_to(rows, FRACTAL)
    most = min(memory.l0c_bytes // (rows16 * 4), MOST)
    if problem.bias_bytes:
        most = min(most, memory.bt_bytes // TABLE_BYTES)
    found = list[Piece]()
    widths = {ceil_to(ceil_div(problem.n, count), FRACTAL) for count in range(1, ceil_div(problem.n, FRACTAL) + 1)}
    for columns in sorted(width for width in widths if width <= most):
        room = min(memory.l0a_bytes // (slots * rows16 * size), memory.l0b_bytes // (slots * columns * size), MOST)
        longest = room // problem.k0 * problem.k0
        shortest = min(longest, SHORTEST // columns // problem.k0 * problem.k0)
        for length in {longest, shortest} - {0}:
            step = min(ceil_to(ceil_div(problem.k, ceil_div(problem.k, length)), problem.k0), length)
            steps = min(max(1, chunk_bytes // (step * columns * size)), ceil_div(problem.k, step))
            for leaving in _leaving(columns, rows, problem, chip, slots):
                found.append(Piece(min(columns, problem.n), min(leaving, problem.n), step, steps))

    return sorted(found, key=lambda piece: _effort(problem, piece, rows, chip).cycles)[:PIECES]


def _leaving(columns: int, rows: int, problem: Problem, chip: Chip, slots: int) -> Iterator[int]:
    """Even parts of a piece's columns for which there is room in UB, the two widest."""
    room = chip.memory.ub_bytes // (slots * rows * problem.ub_bytes)
    parts = (part for part in range(columns, 0, -FRACTAL) if part <= room and columns % part == 0)
    yield from islice(parts, 2)


class _Effort(NamedTuple):
    """What one product makes queues do, for the rows of one trip, but for loads from afar."""

    cube: float
    mte1: float
    fix: float
    vector: float
    store: float  # out of UB
    pieces: int
    parts: int  # in which all of them leave
    steps: int  # of each piece
    chunks: int
    held: float  # of these parts, in a queue
    alone: bool  # whether L0C has no room for a second piece

    @property
    def behind(self) -> float:
        """From when all is summed until all is out: of the last piece, and what the busiest of those that take it out
        has left to do. What comes next is not even dispatched while they have more to do than a queue holds.
        """
        slowest = max(self.fix, self.vector)
        waiting = 2 if slowest > self.cube and self.pieces > 1 else 1
        of_part = self.fix + self.vector + self.store
        late = min(slowest * max(0.0, 1 - self.held / self.parts), HANDOVER_CYCLES)
        return waiting * slowest / self.pieces + of_part / self.parts + late

    @property
    def ahead(self) -> float:
        """From when what the product before makes is there until the cube begins: of the first step."""
        return self.mte1 / (self.pieces * self.steps)

    @property
    def waits(self) -> float:
        """That the cube waits for room."""
        return max(self.fix, self.vector) * (self.pieces - 1) / self.pieces if self.alone else 0.0

    @property
    def cycles(self) -> float:
        return max(self.cube + self.waits, self.mte1, self.vector, self.fix) + self.ahead + self.behind


def _effort(problem: Problem, piece: Piece, rows: int, chip: Chip) -> _Effort:
    rows16, width, size = ceil_to(rows, FRACTAL), ceil_to(piece.columns, FRACTAL), problem.itemsize
    pieces, steps = ceil_div(problem.n, piece.columns), ceil_div(problem.k, piece.step)
    parts = pieces * ceil_div(piece.columns, piece.leaving)
    macs = rows16 * width * ceil_to(problem.k, problem.k0) / chip.macs_per_cycle(problem.dtype)
    near = 0.0
    for path, lines in ((chip.path["l1_l0a"], rows16), (chip.path["l1_l0b"], width)):
        near += max(path.issue_cycles, lines * piece.step * size / path.bytes_per_cycle)
    return _Effort(
        cube=pieces * (macs + steps * chip.cube.overhead_cycles),
        mte1=pieces * steps * near,
        fix=pieces * rows16 * width * 4 / chip.path["l0c_ub"].bytes_per_cycle,
        vector=problem.epilogue.vector_cycles(rows * problem.n, parts, chip),
        store=rows * problem.n * problem.result_bytes / chip.path["ub_l1"].bytes_per_cycle,
        pieces=pieces,
        parts=parts,
        steps=steps,
        chunks=ceil_div(steps, piece.steps),
        held=chip.queues.depth / ENTRIES,
        alone=2 * rows16 * width * 4 > chip.memory.l0c_bytes,
    )


def _fits(tile: Tile, problems: Sequence[Problem], chip: Chip, slots: int) -> bool:
    taken = bytes_of(tile, problems)
    times = {"l1": 1, "l0a": slots, "l0b": slots, "l0c": 1, "ub": slots, "bt": 1}
    return all(taken[name] * count <= chip.memory_bytes(name) for name, count in times.items())


def bytes_of(tile: Tile, problems: Sequence[Problem]) -> dict[str, int]:
    """Of each memory; those around the cube are taken by all products in turn. L1 holds what is filled again twice."""
    size, k0, rows16 = problems[0].itemsize, problems[0].k0, ceil_to(tile.rows, FRACTAL)
    again = 2 if tile.trips > 1 else 1
    l1 = sum(again * rows16 * ceil_to(problem.k, k0) * size for problem in problems)
    for problem, piece in zip(problems, tile.pieces, strict=True):
        slot = ceil_to(piece.chunk, k0) * ceil_to(piece.columns, FRACTAL) * size
        l1 += _matrix_bytes(problem) if piece.held else 2 * slot
        l1 += problem.n * problem.bias_bytes
    widths = [ceil_to(piece.columns, FRACTAL) for piece in tile.pieces]
    both = list(zip(problems, tile.pieces, widths, strict=True))
    return {
        "l1": l1,
        "l0a": max(rows16 * piece.step * size for piece in tile.pieces),
        "l0b": max(piece.step * width * size for _, piece, width in both),
        "l0c": max(rows16 * width * 4 for width in widths),
        "ub": max(tile.rows * ceil_to(piece.leaving, FRACTAL) * problem.ub_bytes for problem, piece, _ in both),
        "bt": max(width * TABLE_BYTES if problem.bias_bytes else 0 for problem, _, width in both),
    }


def work_of(tile: Tile, problems: Sequence[Problem], chip: Chip) -> Work:
    """What a core does. Cores of a cluster bring to LLB once what all of them multiply with."""
    size, trips, path = problems[0].itemsize, tile.trips, chip.path
    in_cluster, clusters = min(tile.cores, chip.cores_per_cluster), ceil_div(tile.cores, chip.cores_per_cluster)
    of_core = chip.bandwidth.llb_bytes_per_kilocycle / 1000 / in_cluster
    to_l1 = min(path.get("llb_l1", path["ddr_l1"]).bytes_per_cycle, of_core)
    first, last = problems[0], problems[-1]
    entry, leave = (path[_way(*way)] for way in ((None, first, "a"), ("ub", last, "c")))
    efforts = [_effort(*each, tile.rows, chip) for each in zip(problems, tile.pieces, strict=True)]
    brought, made = tile.rows * first.k * size, tile.rows * last.n * last.result_bytes * _result_lines(last, tile, chip)
    moved = {"ddr": 0.0, "llb": 0.0}
    moved[_memory(first, "a")] += trips * brought * (in_cluster if "a" in first.near else tile.cores)
    moved[_memory(last, "c")] += trips * made * (in_cluster if "c" in last.near else tile.cores)
    mte2, mte3, serial, turns = trips * brought / entry.bytes_per_cycle, 0.0, 0.0, 0
    if beside := last.epilogue.side_bytes * made / last.result_bytes:  # what is added to the last one's results
        near = last.epilogue.sides_near
        moved["llb" if near else "ddr"] += trips * beside * (in_cluster if near else tile.cores)
        mte2 += trips * beside / path["llb_ub" if near else "ddr_ub"].bytes_per_cycle
    for problem, piece, effort in zip(problems, tile.pieces, efforts, strict=True):
        held, loads = piece.held, 1 if piece.held else effort.pieces * effort.chunks
        times = 1 if held else trips
        matrix = problem.k * problem.n * size * (1.0 if held else _lines(problem, piece, chip))
        mte2 += times * max(matrix / to_l1, loads * entry.issue_cycles)
        moved["llb"] += times * in_cluster * matrix
        if "b" not in problem.near:
            moved["ddr"] += times * matrix * clusters / (chip.alike if "b" in problem.common else 1)
        mte3 += trips * (made / leave.bytes_per_cycle if problem is last else effort.store)
        turns += times * loads
        # The next product begins when the last piece is there.
        serial += trips * (effort.ahead + effort.behind + effort.waits + HANDOVER_CYCLES)
    steps = trips * sum(effort.pieces * effort.steps for effort in efforts)
    return Work(
        cores=tile.cores,
        cube_cycles=trips * sum(effort.cube for effort in efforts),
        vector_cycles=trips * sum(effort.vector for effort in efforts),
        mte1_cycles=trips * sum(effort.mte1 for effort in efforts),
        mte2_cycles=mte2,
        mte3_cycles=mte3,
        fix_cycles=trips * sum(effort.fix for effort in efforts),
        ddr_bytes=moved["ddr"],
        llb_bytes=moved["llb"],
        trips=trips,
        turns=turns,
        steps=steps,
        instructions=(steps + 2 * turns) * SCALAR_STEP,
        first_cycles=entry.latency_cycles + brought / entry.bytes_per_cycle,
        last_cycles=leave.latency_cycles,
        serial_cycles=serial,
        loads=turns + trips,
        rows=tile.rows,
        columns=max(piece.columns for piece in tile.pieces),
    )


def _lines(problem: Problem, piece: Piece, chip: Chip) -> float:
    """What each byte of a matrix costs DDR and LLB, which move lines: rows of a piece may begin and end within one."""
    run, pitch = (piece.chunk, problem.k) if problem.transposed_b else (piece.columns, problem.n)
    return float(line_share(run * problem.itemsize, pitch * problem.itemsize, chip.transfer.ddr_line_bytes))


def _result_lines(last: Problem, tile: Tile, chip: Chip) -> float:
    """The same of the last one's results."""
    run, pitch = (columns * last.result_bytes for columns in (tile.pieces[-1].leaving, last.n))
    return float(line_share(run, pitch, chip.transfer.ddr_line_bytes))


def _memory(problem: Problem, name: str) -> str:
    return "llb" if name in problem.near else "ddr"


def _way(inside: str | None, problem: Problem, name: str) -> str:
    """From UB to where a result goes, or from where an operand lies to L1."""
    memory = _memory(problem, name)
    return f"{memory}_l1" if inside is None else f"{inside}_{memory}"


def describe(problems: Sequence[Problem], tile: Tile) -> str:
    each = [
        f"{problem.m}x{problem.n}x{problem.k} in tiles of {tile.rows}x{piece.columns}, "
        f"{f'leaving by {piece.leaving}, ' if piece.leaving < piece.columns else ''}k by {piece.chunk} and {piece.step}"
        + (", held in L1" if piece.held else "")
        for problem, piece in zip(problems, tile.pieces, strict=True)
    ]
    return "; then ".join(each) + f"; on {tile.cores} cores"


# ---- the schedule ------------------------------------------------------------------------------------------------


def apply(sch: Any, masters: Sequence[Master], problems: Sequence[Problem], tile: Tile, chip: Chip) -> None:
    parameters = list(sch.mod["main"].params)
    ends = [_maker(sch, master) for master in masters[1:]]  # the last stage of each but the last one
    taken = [cube.keep_result(sch, master.block)[0] for master in masters[:-1]]
    result, slaves = cube.keep_result(sch, masters[-1].block)
    placed = _cut_last(sch, masters[-1], tile)
    trip = placed.trips[0]
    made = _bring_operands(sch, masters[-1].block, placed, trip, problems[-1], tile, -1)
    columns = tile.pieces[-1].leaving if tile.pieces[-1].leaving < tile.pieces[-1].columns else None
    cube.place_slaves(sch, result, slaves, placed, chip, columns, through_ub=True)
    _bring_begin(sch, masters[-1], placed, trip, placed.trips[-1], problems[-1], chip)
    starts = [(masters[-1].block, placed)]
    for at in range(len(masters) - 2, -1, -1):
        piece = tile.pieces[at]
        *rows, columns = cube.loops_below(sch, made, trip)
        count = ceil_div(problems[at].n, piece.columns)
        pieces, parts, inside = sch.split(columns, [count, ceil_div(piece.columns, piece.leaving), piece.leaving])
        sch.reorder(pieces, parts, *rows, inside)
        cube.mark(sch, made, parts, "operand")
        behind = [sch.get(one) for one in cube.followers(sch, ends[at])]
        own = [taken[at], *(s for s in cube.followers(sch, taken[at]) if not _is_among(sch.get(s), behind))]
        for stage in reversed(own):
            sch.compute_at(stage, parts, preserve_unit_loops=True)
            sch.set_scope(stage, 0, cube.UB)
        for stage in own[1:]:
            cube.stage_inputs(
                sch, stage, parts, parameters, (placed.core, chip.memory.ub_bytes // cube.CONSTANTS_SHARE)
            )
        cube.mark(sch, taken[at], parts, "result")
        sch.compute_at(masters[at].block, pieces, preserve_unit_loops=True)
        inner = cube.cut_inside(sch, masters[at], pieces, Cut(piece.steps, piece.step))
        inner = replace(inner, core=placed.core)
        made = _bring_operands(sch, masters[at].block, inner, trip, problems[at], tile, at)
        _bring_begin(sch, masters[at], placed, trip, pieces, problems[at], chip)
        starts.append((masters[at].block, inner))
    cube.mark(sch, made, trip, "operand")
    for block, loops in starts:
        cube.start_sum(sch, block, loops)


def _bring_begin(
    sch: Any, master: Master, placed: Placed, trip: Any, pieces: Any, problem: Problem, chip: Chip
) -> None:
    """Bring what sums begin with, where it is a bias: that of all columns at once, where the table holds so many."""
    if problem.bias_bytes:
        stays = ceil_to(problem.n, FRACTAL) * TABLE_BYTES <= chip.memory.bt_bytes
        bring_begin(sch, master.block, placed.core, trip if stays else pieces)


def _is_among(block: Any, blocks: Sequence[Any]) -> bool:
    return any(block.same_as(one) for one in blocks)


def _maker(sch: Any, master: Master) -> Any:
    """The stage that makes what a product multiplies."""
    made = operands_of(sch.get(master.block))[0].source
    return next(block for block in sch.get_producers(master.block) if sch.get(block).writes[0].source.same_as(made))


def _cut_last(sch: Any, master: Master, tile: Tile) -> Placed:
    piece = tile.pieces[-1]
    count = ceil_div(master.extents[master.axes("n")[0]], piece.columns)
    cuts = {
        "m": Cut(tile.trips, tile.rows, tile.cores),
        "n": Cut(count, piece.columns),
        "k": Cut(piece.steps, piece.step),
    }
    order = [*master.axes("m"), *master.batch_axes(), *master.axes("n")]
    return cube.cut_master(sch, master, [cuts.get(role, Cut(1, 1)) for role in master.roles], order)


def _bring_operands(sch: Any, block: Any, placed: Placed, trip: Any, problem: Problem, tile: Tile, at: int) -> Any:
    """Rows of the left matrix come to L1 for a trip, with all of their columns; the block that brings them."""
    piece = tile.pieces[at]
    # Of one trip, each comes when it is needed. It is there sooner than what the product before makes.
    at_weights = placed.chunk if not piece.held else placed.core if tile.trips > 1 else trip
    cube.bring_operand(sch, block, 1, cube.L0B, at_weights, placed.step, transposed=problem.transposed_b)
    far = sch.cache_read(block, 0, cube.L1)
    near = sch.cache_read(block, 0, cube.L0A)
    sch.compute_at(near, placed.step, preserve_unit_loops=True)
    cube.mark(sch, near, placed.step, "operand")
    sch.compute_at(far, trip, preserve_unit_loops=True)
    return far
