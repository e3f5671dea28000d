"""The schedule template of attention over many keys: the scores of a part of the keys are on the core at once.

    for core: for batch, rows of queries:
        for part of keys: scores = q * keys                       # L0C, then UB
                          largest = max(largest, scores)
        for part of keys: scores = q * keys                       # again
                          weights = exp(scores - largest); sums += weights
                          result += weights * values              # weights go from UB back to L1
        result / sums

Scores are multiplied twice, which the cube does while the vector unit works on others. In turn any number of keys takes
as little of UB as a part of them, so many queries are under way at once, and keys and values are read for all of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tvm import ir, s_tir, tirx

from compiler.isa.dtypes import DTYPES
from compiler.isa.layout import FRACTAL, ceil_to
from compiler.isa.timing import ceil_div
from compiler.target import Chip
from compiler.tiling import attention, cube
from compiler.tiling.attention import HANDOVER_CYCLES, SCALAR_STEP, SCALAR_TRIP, Problem
from compiler.tiling.cube import Cut
from compiler.tiling.late_division import Parts, prepare_in_parts
from compiler.tiling.masters import masters_of
from compiler.tiling.scaled_scores import KIND, scaled_at_once
from compiler.tiling.schedule import schedule_of
from compiler.tiling.search import Work, queue_cycles
from compiler.tiling.template import NoFeasibleTile, Tiled, name_of
from compiler.tir.rewriter import fresh, sequence, statements, substitute
from compiler.tir.sblocks import block_with, in_other_buffers, point
from compiler.tir.structure import structural_map, structural_walk

TWICE = "_for_largest"  # of the names of stages that are worked out twice
FEW = 24  # queries at once: where all keys allow for more, or for all queries, they are not worth two products
LEAST, MOST = 64, 1024  # keys of a part
RAGGED = (256, 128)  # keys of a part where no number of parts is even
LEAST_ROWS = 16
TRIES = 3
HANDOVER = 1.3  # of the busiest queue's cycles of a part, what it takes while another part is under way


@dataclass(frozen=True)
class Tile:
    rows: int
    part: int  # of the keys, whose scores are in UB at once
    keys: int  # whose scores are in L0C at once, and of a step of the second product
    width_step: int  # of k of the first product
    batch_trips: tuple[int, ...]
    row_trips: int

    @property
    def rounds(self) -> int:
        return prod(self.batch_trips) * self.row_trips

    def bytes_of(self, problem: Problem) -> dict[str, int]:
        size, k0 = DTYPES[problem.dtype].itemsize, DTYPES[problem.dtype].fractal_k
        rows16, part = ceil_to(self.rows, FRACTAL), ceil_to(self.part, FRACTAL)
        values, width = ceil_to(problem.value_width, FRACTAL), ceil_to(problem.width, k0)
        keys = ceil_to(self.keys, FRACTAL)
        return {
            "l1": (part * (ceil_to(values, k0) + width) + rows16 * (width + ceil_to(part, k0))) * size,
            "l0a": 2 * rows16 * max(self.width_step, keys) * size,
            "l0b": 2 * keys * max(self.width_step, values) * size,
            "l0c": rows16 * (2 * keys + values) * 4,
            "ub": self.rows * (part * ceil_div(problem.row_bytes, problem.keys) + values * (4 + size)),
        }


@dataclass(frozen=True)
class PartsSpace:
    """All tiles of one attention, cut along its keys, too, that fit the chip."""

    prepared: Prepared
    problem: Problem
    chip: Chip
    tries: int = TRIES

    def tiles(self) -> list[Tile]:
        return [tile for tile in dict.fromkeys(_tiles(self.problem, self.chip)) if self._fits(tile)]

    def _fits(self, tile: Tile) -> bool:
        return all(size <= self.chip.memory_bytes(name) for name, size in self.taken(tile).items())

    def work(self, tile: Tile) -> Work:
        return work_of(tile, self.problem, self.chip)

    def taken(self, tile: Tile) -> dict[str, int]:
        return tile.bytes_of(self.problem)

    def apply(self, tile: Tile) -> Tiled:
        sch = schedule_of(self.prepared.func)
        with cube.schedulable(name_of(self.prepared.func, KIND)):
            apply(sch, self.prepared, tile, self.chip)
        return Tiled(self.prepared.finish(sch.mod["main"]), describe(self.problem, tile))


def space(func: Any, chip: Chip) -> PartsSpace:
    """Refuses what is better done with all keys at once."""
    name = name_of(func, KIND)
    scaled = scaled_at_once(func, chip)
    _, problem = attention.prepared_for(scaled)
    most = max((tile.rows for tile in attention.candidates(problem, chip)), default=0)
    if most > min(FEW, problem.queries - 1):
        raise NoFeasibleTile(name, f"parts of {problem.keys} keys: all of them fit")
    prepared = Prepared.of(scaled)
    if prepared is None:
        raise NoFeasibleTile(name, "parts of a softmax that is not the quotient of powers and their sums")
    found = PartsSpace(prepared, problem, chip)
    if not found.tiles():
        raise NoFeasibleTile(name, f"the scores of {LEAST_ROWS} queries with {LEAST} keys")
    return found


def _tiles(problem: Problem, chip: Chip) -> Iterator[Tile]:
    size, k0 = DTYPES[problem.dtype].itemsize, DTYPES[problem.dtype].fractal_k
    memory = chip.memory
    values = ceil_to(problem.value_width, FRACTAL)
    even = [part for part in range(LEAST, min(MOST, problem.keys) + 1) if problem.keys % part == 0]
    for rows in attention.rows_of(problem.queries):
        rows16 = ceil_to(rows, FRACTAL)
        l0a = memory.l0a_bytes // (2 * rows16 * size)
        width_step = min(l0a // k0 * k0, ceil_to(problem.width, k0))
        if rows < min(LEAST_ROWS, problem.queries) or not width_step:
            continue
        l0b = memory.l0b_bytes // (2 * max(width_step, values) * size)
        l0c = (memory.l0c_bytes // (4 * rows16) - values) // 2
        most = min(l0a, l0b, l0c) // max(k0, FRACTAL) * max(k0, FRACTAL)
        if most <= 0:
            continue
        for part in even or RAGGED:
            keys = ceil_to(ceil_div(part, ceil_div(part, most)), max(k0, FRACTAL))
            for trips in attention.spread(problem, chip, ceil_div(problem.queries, rows)):
                yield Tile(rows, part, min(keys, part), width_step, *trips)


def work_of(tile: Tile, problem: Problem, chip: Chip) -> Work:
    """What the busiest core does. The scores of a part are multiplied while those of the one before are worked on."""
    size, k0 = DTYPES[problem.dtype].itemsize, DTYPES[problem.dtype].fractal_k
    rows16, parts = ceil_to(tile.rows, FRACTAL), ceil_div(problem.keys, tile.part)
    pieces = ceil_div(tile.part, tile.keys)
    keys = parts * pieces * ceil_to(tile.keys, FRACTAL)
    width, values = ceil_to(problem.width, k0), ceil_to(problem.value_width, FRACTAL)
    rounds = tile.rounds
    of_batch = prod(ceil_div(e, t) for e, t in zip(problem.batch, tile.batch_trips, strict=True))
    of_rows = ceil_div(ceil_div(problem.queries, tile.rows), tile.row_trips)
    cores = of_batch * of_rows
    rate = {name: spec.bytes_per_cycle for name, spec in chip.path.items()}

    score_steps = parts * pieces * ceil_div(problem.width, tile.width_step)
    value_steps = parts * pieces
    macs, overhead = chip.macs_per_cycle(problem.dtype), chip.cube.overhead_cycles
    scores = rows16 * keys * width / macs + score_steps * overhead
    weighed = rows16 * keys * values / macs + value_steps * overhead
    near_scores = (rows16 * width * parts * pieces / rate["l1_l0a"] + keys * width / rate["l1_l0b"]) * size
    near_values = (rows16 * keys / rate["l1_l0a"] + keys * values / rate["l1_l0b"]) * size
    taken = rows16 * keys * 4 / rate["l0c_ub"]
    result = tile.rows * problem.value_width
    out = result * 4 / rate["l0c_ub"]
    heads = chip.vector.head_cycles + chip.vector.tail_cycles
    row_bytes = ceil_to(tile.part * size, chip.vector.bytes_per_cycle)
    vector = (problem.passes + 1) * parts * (tile.rows * row_bytes / chip.vector.bytes_per_cycle + 2 * heads)
    memory = "llb" if problem.near else "ddr"
    weights_out = tile.rows * keys * size / rate["ub_l1"]
    stored = result * size / rate[f"ub_{memory}"]

    held = problem.keys * (2 * problem.width + problem.value_width) * size
    own = rounds * tile.rows * problem.width * size
    in_cluster = min(cores, chip.cores_per_cluster)
    llb_rate = min(rate["llb_l1"], chip.bandwidth.llb_bytes_per_kilocycle / 1000 / in_cluster)
    far = own / rate[f"{memory}_l1"] + rounds * held / llb_rate
    llb = ddr = 0.0
    if problem.near:
        llb = in_cluster * (own + rounds * (result * size + held))
    else:
        brought = attention.times_brought(of_batch, of_rows, chip.cores_per_cluster)
        ddr = cores * (own + rounds * result * size) + brought * rounds * held
    queues = Work(
        cores=cores,
        cube_cycles=rounds * (2 * scores + weighed),
        vector_cycles=rounds * vector,
        mte1_cycles=rounds * (2 * near_scores + near_values),
        mte2_cycles=far,
        mte3_cycles=rounds * (weights_out + stored),
        fix_cycles=rounds * (2 * taken + out),
        ddr_bytes=ddr,
        llb_bytes=llb,
        trips=rounds * 2 * parts,
        turns=rounds * 3 * parts,
        steps=rounds * (2 * score_steps + value_steps),
        instructions=rounds * ((2 * score_steps + value_steps) * SCALAR_STEP + 2 * parts * SCALAR_TRIP),
        rows=tile.rows,
        columns=tile.part,
    )
    # One pass ends before the next begins, and with it what is under way of one part.
    one = (scores + taken + vector / 2 + weights_out + weighed) / parts + HANDOVER_CYCLES
    waits = rounds * 2 * one + (HANDOVER - 1) * max(queue_cycles(queues, chip))
    if problem.keys % tile.part:
        waits += rounds * parts * tile.rows * problem.passes * heads  # a row at a time
    return queues._replace(first_cycles=chip.path[f"{memory}_l1"].latency_cycles, serial_cycles=waits)


def describe(problem: Problem, tile: Tile) -> str:
    batch = "x".join(map(str, problem.batch))
    return (
        f"{batch + ' of ' if batch else ''}{problem.queries} queries and {problem.keys} keys, {tile.rows} queries and "
        f"{tile.part} keys at once, scores by {tile.keys} keys, twice"
    )


# ---- the schedule ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prepared:
    """An attention that may be cut along its keys: the largest scores have scores of their own, and nobody sums."""

    func: Any
    parts: Parts
    largest: str  # the stage that finds the largest scores

    @staticmethod
    def of(func: Any) -> Prepared | None:
        parts = prepare_in_parts(func)
        if parts is None:
            return None
        nests = statements(parts.func.body.block.body)
        kept = [nest for nest in nests if _name(nest) != parts.summing]
        alone = _with_body(parts.func, kept, without=[parts.sums])
        sch = schedule_of(alone)
        scores, values = masters_of(sch)
        found = [sch.get(block) for block in cube.followers(sch, scores.block) if _reduces(sch.get(block))]
        if len(found) != 2 or found[1].name_hint != sch.get(values.block).name_hint or not _finds_largest(found[0]):
            return None
        if len(values.axes("k")) != 1 or len(values.axes("m")) != 1 or not parts.are_summed_as(found[0]):
            return None
        makers = [str(sch.get(block).name_hint) for block in cube.makers(sch, sch.get_sblock(found[0].name_hint))]
        return Prepared(_with_own(alone, found[0].name_hint, makers), parts, found[0].name_hint)

    def finish(self, scheduled: Any) -> Any:
        """With sums of weights where the largest scores were found in the same way, and divided by these."""
        sums = tirx.decl_buffer(
            [int(n) for n in self.parts.sums.shape],
            self.parts.sums.dtype,
            self.parts.sums.name,
            scope=cube.UB,
            layout=None,
        )
        summed = scheduled.with_body(_summed(scheduled.body, self, sums))
        root = summed.body.block
        return self.parts.finish(_with_body(summed, [root.body], also=[sums]), sums)


def _reduces(block: Any) -> bool:
    return any(int(axis.iter_type) == cube.REDUCED for axis in block.iter_vars)


def _finds_largest(block: Any) -> bool:
    value = block.body.value if isinstance(block.body, tirx.BufferStore) else None
    return isinstance(value, tirx.Max) and all(isinstance(side, ir.TensorLoad) for side in (value.a, value.b))


def _with_body(func: Any, nests: Sequence[Any], also: Sequence[Any] = (), without: Sequence[Any] = ()) -> Any:
    root = func.body.block
    buffers = [buffer for buffer in root.alloc_buffers if not any(buffer.same_as(one) for one in without)]
    block = block_with(root, body=sequence(nests), alloc_buffers=[*buffers, *also])
    return func.with_body(s_tir.SBlockRealize([], True, block))


def _with_own(func: Any, reader: str, makers: Sequence[str]) -> Any:
    """The function in which one stage reads copies of what these stages make."""
    nests = statements(func.body.block.body)
    names = [_name(nest) for nest in nests]
    copied = [_block(nest).writes[0].source for nest, name in zip(nests, names, strict=True) if name in makers]
    own = {b: tirx.decl_buffer([int(n) for n in b.shape], b.dtype, b.name + TWICE, layout=None) for b in copied}

    def copy(nest: Any, suffix: str) -> Any:
        def block(old: Any) -> Any:
            return in_other_buffers(old, own, name_hint=old.name_hint + suffix)

        def load(old: Any) -> Any:
            return tirx.BufferLoad(own[old.source], old.indices) if old.source in own else old

        def store(old: Any) -> Any:
            return tirx.BufferStore(own[old.buffer], old.value, old.indices) if old.buffer in own else old

        return structural_map(nest, [(ir.TensorLoad, load), (tirx.BufferStore, store), (s_tir.SBlock, block)])

    at = names.index(reader)
    twice = [fresh(copy(nest, TWICE)) for nest, name in zip(nests, names, strict=True) if name in makers]
    return _with_body(func, [*nests[:at], *twice, copy(nests[at], ""), *nests[at + 1 :]], also=list(own.values()))


def _summed(body: Any, of: Prepared, sums: Any) -> Any:
    """The scheduled attention that sums its weights, part by part, as it finds the largest scores."""
    start, update = f"{of.largest}_init", f"{of.largest}_update"
    loops: dict[str, Any] = {}

    def visit(loop: Any) -> None:
        for part in statements(loop.body):
            name = _name(part)
            if name in (start, update, of.parts.powers) and isinstance(part, tirx.For):
                loops.setdefault(name, (loop.loop_var, part))

    structural_walk(body, (tirx.For, visit), "pre")
    if len(loops) < len((start, update, of.parts.powers)):
        raise NoFeasibleTile(of.largest, "sums of weights in the loops of the largest score")
    (_, started), (own_part, updated), (part, powered) = (loops[name] for name in (start, update, of.parts.powers))
    powers = _block(powered).writes[0].source

    def sum_of(nest: Any) -> Any:
        def block(old: Any) -> Any:
            store = old.body
            if old.name_hint == start:
                value, reads = tirx.FloatImm(str(sums.dtype), 0.0), []
            else:
                (load,) = (one for one in (store.value.a, store.value.b) if not one.source.same_as(store.buffer))
                new = tirx.BufferLoad(powers, load.indices)
                value = tirx.BufferLoad(sums, store.indices) + new
                reads = [point(sums, store.indices), point(powers, load.indices)]
            body = tirx.BufferStore(sums, value, store.indices)
            name = old.name_hint.replace(of.largest, of.parts.summing)
            return block_with(old, body=body, reads=reads, writes=[point(sums, store.indices)], name_hint=name)

        return fresh(substitute(structural_map(nest, (s_tir.SBlock, block)), {own_part: part}))

    def also(seq: Any) -> Any:
        found = []
        for one in seq.seq:
            found.append(one)
            if _name(one) == start:
                found.append(sum_of(started))
            elif _name(one) == of.parts.powers:
                found.append(sum_of(updated))
        return tirx.SeqStmt(found) if len(found) > len(seq.seq) else seq

    return structural_map(body, (tirx.SeqStmt, also))


def _block(nest: Any) -> Any:
    found: list[Any] = []
    structural_walk(nest, (s_tir.SBlock, found.append))
    return found[0]


def _name(nest: Any) -> str:
    """Of the block of a nest; nothing where it has several."""
    found: list[str] = []
    structural_walk(nest, (s_tir.SBlock, lambda block: found.append(str(block.name_hint))))
    return found[0] if len(found) == 1 else ""


def apply(sch: Any, prepared: Prepared, tile: Tile, chip: Chip) -> None:
    scores, own_scores, values = masters_of(sch)
    parameters = list(sch.mod["main"].params)
    found = sch.get_sblock(prepared.largest)
    taken, slaves = cube.keep_result(sch, values.block)
    scores_taken, _ = cube.keep_result(sch, scores.block)
    own_taken, _ = cube.keep_result(sch, own_scores.block)
    apart = {sch.get(block) for block in (found, values.block, taken, *slaves)}
    between = [block for block in cube.followers(sch, scores_taken) if sch.get(block) not in apart]
    before = [block for block in cube.followers(sch, own_taken) if sch.get(block).name_hint.endswith(TWICE)]
    placed = attention.cut_values(sch, values, tile, Cut(1, tile.part))
    *outer, keys = placed.inner
    step, one = sch.split(keys, [None, tile.keys])
    sch.reorder(step, *outer, one)
    placed = replace(placed, step=step, inner=[*outer, one])
    trip, part = placed.trips[-1], placed.chunk
    transposed = attention.is_transposed(sch, values)
    cube.bring_operand(sch, values.block, 1, cube.L0B, part, placed.step, transposed=transposed, alone=True)
    cube.bring_operand(sch, values.block, 0, cube.L0A, part, placed.step)
    cube.place_slaves(sch, taken, slaves, placed, chip)
    _place_stages(sch, between, part, parameters)
    attention.place_scores(sch, scores, scores_taken, tile, part, trip, None, alone=True)
    sch.compute_at(found, trip, preserve_unit_loops=True)
    sch.set_scope(found, 0, cube.UB)
    *rows, keys = cube.loops_below(sch, found, trip)
    own_part, one = sch.split(keys, [None, tile.part])
    sch.reorder(own_part, *rows, one)
    _place_stages(sch, before, own_part, parameters)
    attention.place_scores(sch, own_scores, own_taken, tile, own_part, trip, None, alone=True)
    sch.decompose_reduction(found, own_part)
    cube.start_sum(sch, values.block, placed)


def _place_stages(sch: Any, stages: Sequence[Any], part: Any, parameters: Sequence[Any]) -> None:
    for block in reversed(stages):
        sch.compute_at(block, part, preserve_unit_loops=True)
        sch.set_scope(block, 0, cube.UB)
    for block in stages:
        cube.stage_inputs(sch, block, part, parameters, alone=True)
