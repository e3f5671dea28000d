"""The schedule template of everything the vector unit and the copy engines do: elementwise, reductions, norms, moves.

The result is copied out of UB tile by tile; whatever a tile needs is computed in UB right before, and read into UB
before that. A tile is a block of the result: so many positions of each axis. The tiles are spread over the cores in
contiguous runs.

    result[i, j] = f(a[i, j], max_j a[i, j])
->  for core: for tile: a_ub = a[tile]; max_ub = ...; f_ub = ...; result[tile] = f_ub

Where the inputs of a reduction are better read piece by piece, :mod:`compiler.tiling.streaming` does that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

from compiler.isa.timing import ceil_div
from compiler.target import Chip
from compiler.tiling import narrow_softmax, narrow_sums
from compiler.tiling.effort import Effort, effort
from compiler.tiling.search import Work, cheapest_first
from compiler.tiling.stages import Made, Stage, most_bytes, needs, stages_of
from compiler.tiling.template import NoFeasibleTile, Tiled
from compiler.tiling.transfers import Transfer, transfer
from compiler.tiling.vector_blocks import (
    busiest_core,
    inline_elementwise,
    new_schedule,
    read_pattern,
    result_blocks,
    root_blocks,
    split_cores,
    tile_result,
    without_tables,
)
from compiler.tir.near import near_parameters

SLOTS = 2  # of what crosses queues
NOTHING: Mapping[Stage, Effort] = {}
PARTS = 48  # into which an axis is cut evenly, at most
RUNS = 16  # positions of an axis along which an input is contiguous, at least: more are doublings
# Instructions of the scalar unit for a tile, and for each instruction of another queue: addresses, flags.
TRIP_INSTRUCTIONS, CALL_INSTRUCTIONS = 12, 5


@dataclass(frozen=True)
class Tile:
    """Positions of each axis of the result; ``piece`` elements of what is reduced are read at once, or all.

    Where the matrix unit sums the rows, it does so in as many ``steps``.
    """

    extents: tuple[int, ...]
    piece: int = 0
    steps: int = 0

    def trips(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Of the loops over tiles."""
        return tuple(ceil_div(size, extent) for size, extent in zip(shape, self.extents, strict=True))


@dataclass(frozen=True)
class Load:
    """What a tile takes of UB for something that comes from afar or is stored there."""

    bytes: int
    transfer: Transfer | None = None
    stored: bool = False
    times: float = 1.0  # per tile
    near: bool = False  # in LLB, else in DDR

    @property
    def path(self) -> str:
        memory = "llb" if self.near else "ddr"
        return f"ub_{memory}" if self.stored else f"{memory}_ub"


@dataclass(frozen=True)
class Demand:
    """What one tile takes of UB, the vector unit and DDR."""

    loads: tuple[Load, ...]
    instructions: int
    vector_bytes: float  # times cycles per repeat
    kept_bytes: int  # of UB that no other queue touches
    gathers: bool = False  # whether what it loads depends on what it has loaded before

    @property
    def ub_bytes(self) -> int:
        return self.kept_bytes + SLOTS * sum(load.bytes for load in self.loads)


def space(func: Any, chip: Chip) -> VectorSpace:
    found = VectorSpace(func, chip)
    if not found.fitting:
        found = VectorSpace(without_tables(func), chip)
    if not found.fitting:
        raise NoFeasibleTile("the kernel", f"{len(found.candidates)} tiles, of which the smallest does not fit UB")
    return found


def schedule(func: Any, chip: Chip, attempt: int) -> Tiled:
    """Cut a kernel of vector work into tiles."""
    found = space(func, chip)
    ranked = cheapest_first(found, found.tiles(), chip)
    for _ in range(attempt):
        limit = found.demand(ranked[0]).ub_bytes * 0.7
        ranked = [tile for tile in ranked if found.demand(tile).ub_bytes <= limit]
        if not ranked:
            raise NoFeasibleTile("the kernel", f"{attempt} tiles")
    return found.apply(ranked[0])


class VectorSpace:
    """The blocks of a result that fit UB twice, or once where none does."""

    def __init__(self, func: Any, chip: Chip) -> None:
        self.wide, self.chip = narrow_softmax.narrowed(func), chip
        self.func = narrow_sums.narrowed(self.wide)
        sch = new_schedule(self.func)
        inline_elementwise(sch)
        self.stages, self.near = stages_of(sch, root_blocks(sch)), near_parameters(sch.mod["main"])
        names = [sch.get(block).name_hint for block in result_blocks(sch)]
        self.results = [stage for stage in self.stages if stage.block.name_hint in names]
        self.shapes = [tuple(stage.axes[axis] for axis in stage.kept) or (1,) for stage in self.results]
        self.shape = max(self.shapes, key=prod)
        self._demands: dict[Tile, Demand] = {}

    @cached_property
    def streamed(self) -> Any | None:
        """The same kernel with reductions that read their inputs piece by piece; None where nothing is reduced.

        Their sums are rounded once for each piece, so none is narrow.
        """
        from compiler.tiling import streaming

        return streaming.Streamed.of(self.wide, self.chip)

    @cached_property
    def candidates(self) -> list[Tile]:
        whole = tiles(self.shape, self.chip.cores, self._run_axes())
        columns = self.streamed.whole_columns() if self.streamed else ()
        return [*dict.fromkeys((*whole, *columns)), *(self.streamed.tiles() if self.streamed else ())]

    @cached_property
    def fitting(self) -> list[Tile]:
        room = self.chip.memory.ub_bytes
        twice = [tile for tile in self.candidates if self.demand(tile).ub_bytes <= room]
        return twice or [tile for tile in self.candidates if self.demand(tile).ub_bytes <= SLOTS * room]

    def tiles(self) -> list[Tile]:
        return self.fitting

    def taken(self, tile: Tile) -> dict[str, int]:
        return {"ub": self.demand(tile).ub_bytes}

    def demand(self, tile: Tile) -> Demand:
        if tile not in self._demands:
            self._demands[tile] = self.streamed.demand(tile) if tile.piece and self.streamed else self._demand(tile)
        return self._demands[tile]

    def _demand(self, tile: Tile) -> Demand:
        """Of the result that takes most."""
        found = []
        for stage, shape in zip(self.results, self.shapes, strict=True):
            extents = [min(e, n) for e, n in zip(_fitted(tile.extents, len(shape)), shape, strict=True)]
            found.append(
                demand_of(
                    self.stages,
                    stage,
                    dict(zip(stage.kept, extents, strict=False)),
                    self.chip,
                    self.near,
                    self._instead(tile),
                )
            )
        return max(found, key=lambda one: one.ub_bytes)

    def _instead(self, tile: Tile) -> Mapping[Stage, Effort]:
        """What stages of a tile take that the vector unit does not do itself."""
        return NOTHING

    def _run_axes(self) -> list[int]:
        """The axes of the result along which an input is contiguous."""
        found = dict[int, None]()
        for stage in self.results:
            for load in stage.loads:
                last = load.indices[-1] if load.indices else None
                if last in stage.kept and len(stage.kept) == len(self.shape):
                    found.setdefault(stage.kept.index(last))
        return [axis for axis in found if axis < len(self.shape) - 1]

    def work(self, tile: Tile) -> Work:
        if tile.piece and self.streamed:
            return work_of(self.demand(tile), tile, self.streamed.shape, self.chip)
        return work_of(self.demand(tile), tile, self.shape, self.chip)

    def apply(self, tile: Tile) -> Tiled:
        if tile.piece and self.streamed:
            return Tiled(self.streamed.apply(tile), self.streamed.describe(tile))
        sch = new_schedule(self.func)
        inline_elementwise(sch)
        for out in result_blocks(sch):
            tile_result(sch, out, tile.extents, self.chip.cores)
        return Tiled(sch.mod["main"], self.describe(tile))

    def describe(self, tile: Tile) -> str:
        trips = tile.trips(self.shape)
        cores = prod(split_cores(trips, self.chip.cores))
        sizes = ("x".join(map(str, each)) for each in (tile.extents, self.shape))
        return f"tiles of {' of '.join(sizes)}, {prod(trips)} on {cores} cores"


# ---- what tiles take ---------------------------------------------------------------------------------------------


def demand_of(
    stages: list[Stage],
    out: Stage,
    cut: dict[Any, int],
    chip: Chip,
    near: frozenset[Any] = frozenset(),
    instead: Mapping[Stage, Effort] = NOTHING,
) -> Demand:
    """What a block of one result needs, where the parameters ``near`` lie in LLB. Some stages take something else than
    their own work ``instead``.
    """
    line = chip.transfer.ddr_line_bytes
    found = needs(stages, out, cut, read_pattern)
    inputs = {buffer for buffer, _ in found.inputs}
    loads: list[Load] = []
    direct = {buffer for stage in found.lengths for buffer in inputs if stage.gathers(buffer)}  # read without a copy
    instructions, vector_bytes = 0, 0.0
    made: dict[Stage, Made] = {}
    for stage, lengths in found.lengths.items():
        size = stage.made_bytes(lengths)
        copies = stage.facts.copies and not stage.facts.guarded and not stage.facts.dynamic_reads
        if copies and stage is not out and stage.places[0].source in inputs:
            direct.add(stage.places[0].source)
        if stage is out:
            if not copies:
                loads.append(Load(size, stored(stage, lengths, line), stored=True, near=stage.stored[0].node in near))
            else:
                loads.append(Load(0, stored(stage, lengths, line), stored=True, near=stage.stored[0].node in near))
                continue
        elif copies and stage.places[0].source in inputs:
            loads.append(Load(size))
            continue
        took = instead.get(stage) or effort(stage, lengths)
        instructions += took.instructions
        vector_bytes += took.weighted_bytes
        made[stage] = Made(0 if stage is out else size, took.temporary_bytes)
    for (buffer, _), box in found.inputs.items():
        moved = transfer(box, buffer.shape, buffer.itemsize, line)
        loads.append(Load(0 if buffer in direct else moved.moved_bytes, moved, near=buffer.node in near))
    gathers = any(stage.gathers(buffer) for stage in found.lengths for buffer in inputs)
    return Demand(tuple(loads), instructions, vector_bytes, most_bytes(stages, made), gathers)


def stored(stage: Stage, lengths: dict[Any, int], line: int) -> Transfer:
    buffer, axes = stage.stored
    box = tuple(
        [n if axis is None else min(n, lengths.get(axis, 1)) for axis, n in zip(axes, buffer.shape, strict=True)]
    )
    return transfer(box or (1,), buffer.shape or (1,), buffer.itemsize, line)


def work_of(demand: Demand, tile: Tile, shape: tuple[int, ...], chip: Chip) -> Work:
    """What the busiest core does with its tiles."""
    trips = tile.trips(shape)
    busiest, cores = busiest_core(trips, chip.cores), prod(split_cores(trips, chip.cores))
    tiles_in_all = prod(size / extent for size, extent in zip(shape, tile.extents, strict=True))
    vector = chip.vector
    bandwidth = {
        "ddr": chip.bandwidth.ddr_bytes_per_kilocycle / 1000,
        "llb": chip.bandwidth.llb_bytes_per_kilocycle / 1000,
    }
    heads = vector.head_cycles + vector.tail_cycles
    vector_cycles = demand.instructions * heads + demand.vector_bytes / vector.bytes_per_cycle
    mte2, mte3, ddr, llb, copies = _moved(demand, chip)
    in_cluster = min(cores, chip.cores_per_cluster)
    of_cluster = llb * tiles_in_all * in_cluster / cores
    in_all = max(ddr * tiles_in_all / bandwidth["ddr"], of_cluster / bandwidth["llb"])
    read, written = (
        sum(
            x.times * x.transfer.line_bytes * (in_cluster / bandwidth["llb"] if x.near else cores / bandwidth["ddr"])
            for x in demand.loads
            if x.transfer and x.stored == stored
        )
        for stored in (False, True)
    )
    there, back = (_latency(demand, chip, stored=stored) for stored in (False, True))
    loading, storing = there + max(mte2, read), back + max(mte3, written)
    # A slot is filled again when all have done with it: what is only copied passes through one ring, else through two.
    around = [loading + vector_cycles, vector_cycles + storing] if demand.instructions else [loading + storing]
    if demand.gathers:  # indices of the next tile wait behind what is gathered by those of this one
        around.append(SLOTS * (there + vector_cycles + loading))
    by_queue = {"v": vector_cycles * busiest, "mte2": mte2 * busiest, "mte3": mte3 * busiest, "far": in_all}
    bound = max(by_queue, key=lambda name: by_queue[name])
    outside = {
        "v": there + back + max(mte2, read) + max(mte3, written),
        "mte2": there + back + vector_cycles + max(mte3, written),
        "mte3": there + back + vector_cycles + max(mte2, read),
        "far": there + back + vector_cycles,
    }
    return Work(
        cores=cores,
        vector_cycles=by_queue["v"],
        mte2_cycles=by_queue["mte2"],
        mte3_cycles=by_queue["mte3"],
        ddr_bytes=ddr * tiles_in_all,
        llb_bytes=of_cluster,
        trips=busiest,
        turns=busiest,
        instructions=busiest * (TRIP_INSTRUCTIONS + CALL_INSTRUCTIONS * (demand.instructions + copies)),
        first_cycles=outside[bound],
        serial_cycles=max(0.0, max(around) / SLOTS * busiest - by_queue[bound]),
        rows=prod(tile.extents[:-1]),
        columns=prod(tile.extents[-1:]),
    )


class _Moved(NamedTuple):
    """Of the loads and stores of one tile: cycles of their queues, bytes of lines that they touch, instructions."""

    mte2_cycles: float
    mte3_cycles: float
    ddr_bytes: float
    llb_bytes: float
    instructions: int


def _moved(demand: Demand, chip: Chip) -> _Moved:
    mte2 = mte3 = ddr = llb = 0.0
    instructions = 0
    for load in demand.loads:
        if load.transfer is None:
            continue
        path = chip.path[load.path]
        one = max(path.issue_cycles, load.transfer.moved_bytes / load.transfer.instructions / path.bytes_per_cycle)
        cycles = load.times * load.transfer.instructions * one
        mte2, mte3 = (mte2, mte3 + cycles) if load.stored else (mte2 + cycles, mte3)
        if load.near:
            llb += load.times * load.transfer.line_bytes
        else:
            ddr += load.times * load.transfer.line_bytes
        instructions += int(load.times * load.transfer.instructions)
    return _Moved(mte2, mte3, ddr, llb, instructions)


def _latency(demand: Demand, chip: Chip, *, stored: bool) -> int:
    """Of what comes in last, or of what is stored."""
    paths = {load.path for load in demand.loads if load.transfer and load.stored == stored}
    return max((chip.path[path].latency_cycles for path in paths), default=0)


# ---- candidates --------------------------------------------------------------------------------------------------


def tiles(shape: tuple[int, ...], cores: int, runs: list[int] | None = None) -> list[Tile]:
    """All tiles worth a try: one axis cut and all behind it whole, and with it some of an axis in ``runs``."""
    found = dict[Tile, None]()
    for axis in range(len(shape)):
        for extent in _cuts(shape[axis], cores if prod(shape[:axis]) == 1 else 1):
            whole = (*(1,) * axis, extent, *shape[axis + 1 :])
            found.setdefault(Tile(whole))
            for run in runs or ():
                if run < axis:
                    for length in _doublings(shape[run]):
                        found.setdefault(Tile((*whole[:run], length, *whole[run + 1 :])))
    return list(found)


def _cuts(size: int, cores: int) -> list[int]:
    """Even cuts of all and of a core's share, and halvings, the largest first."""
    even = {ceil_div(each, parts) for each in (size, ceil_div(size, cores)) for parts in range(1, min(each, PARTS) + 1)}
    return sorted(even | {size >> k for k in range(size.bit_length()) if size >> k}, reverse=True)


def _doublings(size: int) -> Iterator[int]:
    length = RUNS
    while length < size:
        yield length
        length *= 2
    yield size


def _fitted(extents: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """As many as there are axes: of those that lack, all positions."""
    return (*extents, *(1 << 62,) * rank)[:rank]
