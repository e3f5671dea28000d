"""The schedule template of everything the vector unit and the copy engines do: elementwise, reductions, norms, moves.

The result is copied out of UB tile by tile; whatever a tile needs is computed in UB right before, and read into UB
before that. A tile is ``extent`` positions of one axis of the result and all of the axes inside it; the tiles are
spread over the cores in contiguous runs.

    result[i, j] = f(a[i, j], max_j a[i, j])
->  for core: for tile: a_ub = a[tile]; max_ub = ...; f_ub = ...; result[tile] = f_ub

Where not even one position of the outermost axis that works fits, :mod:`compiler.tiling.streaming` reads its inputs
piece by piece instead.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

from tvm import ir, s_tir, tirx
from tvm_ffi import structural_walk

from compiler.isa.timing import ceil_div
from compiler.target import Chip
from compiler.tiling.blocks import UB, block_facts
from compiler.tiling.footprint import scope_bytes
from compiler.tiling.template import NoFeasibleTile, Tiled

# UB that a first attempt may fill: the rest is for temporaries of split expressions and for a second tile in flight.
FIRST_SHARE = 0.45
NEXT_SHARE = 0.6
ATTEMPTS = 8
# What a trip costs beside its bytes: latency of a load, a store and a few vector heads.
TRIP_CYCLES = 600
GOOD_ENOUGH = 0.7  # of the budget: no larger tile is looked for
# Loops over tiles that may be spread over cores; `compiler.tiling.cores` makes one core number of them.
CORE_AXES = ("blockIdx.x", "blockIdx.y", "blockIdx.z")


@dataclass(frozen=True)
class Tile:
    """``extent`` positions of ``axis`` of the result, and all of the axes after it."""

    axis: int
    extent: int

    def elements(self, shape: tuple[int, ...]) -> int:
        return self.extent * prod(shape[self.axis + 1 :])

    def outer(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Trips of the loops over tiles."""
        return (*shape[: self.axis], ceil_div(shape[self.axis], self.extent))


def schedule(func: Any, chip: Chip, attempt: int) -> Tiled:
    """Cut a kernel of vector work into tiles."""
    budget = int(chip.memory.ub_bytes * FIRST_SHARE * NEXT_SHARE**attempt)
    if attempt >= ATTEMPTS or budget < chip.block_bytes:
        raise NoFeasibleTile("the kernel", f"tiles down to {budget} bytes of UB")
    plan = _Plan(func)
    tile = plan.best_tile(chip, budget)
    if tile is None:
        from compiler.tiling import streaming

        return streaming.schedule(func, chip, budget)
    return Tiled(plan.apply(tile, chip.cores), plan.describe(tile, chip))


class _Plan:
    """The kernel, and how it looks under a tile."""

    def __init__(self, func: Any) -> None:
        self._func = func
        sch = new_schedule(func)
        self._shapes = [block_facts(sch.get(out)).extents or (1,) for out in result_blocks(sch)]
        self._shape = max(self._shapes, key=prod)
        self._bytes: dict[Tile, int] = {}

    def best_tile(self, chip: Chip, budget: int) -> Tile | None:
        """The cheapest tile whose buffers fit the budget."""
        choices = tiles(self._shape)
        largest = self._largest_fitting(choices, budget)
        if largest is None:
            return None
        rate = min(chip.vector.bytes_per_cycle, chip.bandwidth.ddr_bytes_per_kilocycle / 1000 / chip.cores)
        bytes_per_element = self._bytes_of(choices[largest]) / choices[largest].elements(self._shape)

        def cost(tile: Tile) -> tuple[float, int]:
            trips = busiest_core(tile.outer(self._shape), chip.cores)
            elements = tile.elements(self._shape)
            return trips * (TRIP_CYCLES + elements * bytes_per_element / rate), -elements

        return min(choices[: largest + 1], key=cost)

    def _largest_fitting(self, choices: list[Tile], budget: int) -> int | None:
        """Bytes grow about in proportion to the tile: guess where they meet the budget, measure, and guess again."""
        low, high = -1, len(choices)  # fits, does not fit
        guess = high - 1
        while high - low > 1:
            needed = self._bytes_of(choices[guess])
            if needed <= budget:
                low = guess
                if needed > budget * GOOD_ENOUGH:
                    break
            else:
                high = guess
            wanted = choices[guess].elements(self._shape) * budget / max(1, needed)
            guess = bisect_right(choices, wanted, key=lambda tile: tile.elements(self._shape)) - 1
            guess = min(max(guess, low + 1), high - 1)
        return low if low >= 0 else None

    def _bytes_of(self, tile: Tile) -> int:
        """Bytes of UB that all buffers of a tile take."""
        if tile not in self._bytes:
            self._bytes[tile] = scope_bytes(self.apply(tile, 1)).get(UB, 0)
        return self._bytes[tile]

    def apply(self, tile: Tile, cores: int) -> Any:
        sch = new_schedule(self._func)
        inline_elementwise(sch)
        for out in result_blocks(sch):
            _tile_result(sch, out, tile, cores)
        return sch.mod["main"]

    def describe(self, tile: Tile, chip: Chip) -> str:
        trips = prod(tile.outer(self._shape))
        inner = "x".join(str(n) for n in (tile.extent, *self._shape[tile.axis + 1 :]))
        return f"tiles of {inner} of {'x'.join(map(str, self._shape))}, {trips} on {min(trips, chip.cores)} cores"


def tiles(shape: tuple[int, ...]) -> list[Tile]:
    """All tiles worth a try, the smallest first: halvings and even cuts of each axis."""
    found = dict[int, Tile]()
    for axis, size in enumerate(shape):
        extents = {ceil_div(size, parts) for parts in range(1, min(size, 64) + 1)}
        extents |= {size >> k for k in range(size.bit_length()) if size >> k}
        for extent in extents:
            tile = Tile(axis, extent)
            found.setdefault(tile.elements(shape), tile)
    return [found[elements] for elements in sorted(found)]


# ---- schedules ---------------------------------------------------------------------------------------------------


def new_schedule(func: Any) -> Any:
    # A copy: of a function with blocks inside blocks, a schedule changes the inner ones in place.
    return s_tir.Schedule(ir.IRModule({"main": s_tir.renew_defs(func)}), error_render_level="fast")


def root_blocks(sch: Any) -> list[Any]:
    """The blocks that store something, in program order; a block of blocks stands for those inside it."""
    found: list[Any] = []
    for block in sch.get_child_blocks(sch.get_sblock("root")):
        found += sch.get_child_blocks(block) or [block]
    return found


def result_blocks(sch: Any) -> list[Any]:
    """The blocks that write what the kernel gives back, in program order."""
    parameters = {p.name for p in sch.mod["main"].params}
    return [b for b in root_blocks(sch) if sch.get(b).writes[0].source.name in parameters]


def inline_elementwise(sch: Any) -> None:
    """Let a stage that one other stage of the same size reads, element by element, disappear into it."""
    for block in root_blocks(sch)[:-1]:
        facts = block_facts(sch.get(block))
        consumers = sch.get_consumers(block)
        if facts.reduced or facts.guarded or len(consumers) != 1 or facts.dynamic_write or facts.dynamic_reads:
            continue
        consumer = block_facts(sch.get(consumers[0]))
        if prod(consumer.extents) * prod(consumer.reduced) != prod(facts.extents) or consumer.copies:
            continue
        if facts.writes[0].name in consumer.dynamic_reads:
            continue
        sch.compute_inline(block)


def _tile_result(sch: Any, out: Any, tile: Tile, cores: int) -> None:
    facts = block_facts(sch.get(out))
    store = out
    if not (facts.copies and not facts.guarded and not facts.dynamic_reads and not facts.dynamic_write):
        store = sch.cache_write(out, 0, UB)
    inner = bind_tiles(sch, store, tile, cores)
    bring_producers(sch, store, inner)


def bind_tiles(sch: Any, block: Any, tile: Tile, cores: int) -> Any:
    """Split a block's loops into core, tile and positions; the innermost tile loop.

    Loops over tiles are not fused: bounds of what a tile reads stay simple expressions of single variables.
    """
    loops = list(sch.get_loops(block))
    if not loops:
        loops = [sch.add_unit_loop(block)]
    axis = min(tile.axis, len(loops) - 1)
    outer, extent = loops[:axis], int(sch.get(loops[axis]).extent)
    if tile.extent < extent:
        cut, _ = sch.split(loops[axis], [None, tile.extent])
        outer.append(cut)
    if not outer:
        outer = [sch.add_unit_loop(loops[0])]
    trips = tuple(int(sch.get(loop).extent) for loop in outer)
    shares = [ceil_div(n, parts) for n, parts in zip(trips, split_cores(trips, cores), strict=True)]
    parts = [sch.split(loop, [None, share]) for loop, share in zip(outer, shares, strict=True)]
    sch.reorder(*(core for core, _ in parts), *(inner for _, inner in parts))
    grid = iter(CORE_AXES)
    for core, _ in parts:
        if int(sch.get(core).extent) > 1 or len(parts) == 1:
            sch.bind(core, next(grid))
    return parts[-1][1]


def busiest_core(trips: tuple[int, ...], cores: int) -> int:
    return prod(ceil_div(n, k) for n, k in zip(trips, split_cores(trips, cores), strict=True))


@cache
def split_cores(trips: tuple[int, ...], cores: int) -> tuple[int, ...]:
    """How many parts to cut each loop over tiles into, so that the busiest core has the fewest trips."""
    best, least = (1,) * len(trips), prod(trips)

    def search(position: int, left: int, used: int, chosen: tuple[int, ...], busiest: int) -> None:
        nonlocal best, least
        if position == len(trips):
            if busiest < least:
                best, least = chosen, busiest
            return
        extent = trips[position]
        last = min(extent, left) if used < len(CORE_AXES) else 1
        previous = 0
        for parts in range(last, 0, -1):
            each = ceil_div(extent, parts)
            if each != previous:  # fewer parts of the same size are the same split
                parts = ceil_div(extent, each)
                search(position + 1, left // parts, used + (parts > 1), (*chosen, parts), busiest * each)
            previous = each

    search(0, cores, 0, (), 1)
    return best


def bring_producers(sch: Any, block: Any, loop: Any) -> None:
    """Compute what a block needs inside the loop, in UB, down to copies of the kernel's inputs."""
    producers = [b for b in ancestors(sch, block)]
    for producer in reversed(producers):
        sch.compute_at(producer, loop, preserve_unit_loops=True)
        buffer = sch.get(producer).writes[0].source
        if buffer.scope() == "global":
            sch.set_scope(producer, 0, UB)
    stage_inputs(sch, [*producers, block], loop)


def stage_inputs(sch: Any, readers: list[Any], loop: Any) -> None:
    """Copy what blocks read of the kernel's inputs into UB, once for all that read the same of an input.

    A block that itself only copies reads them directly.
    """
    parameters = {p.name for p in sch.mod["main"].params}
    shared = dict[Any, list[Any]]()
    for reader in readers:
        facts = block_facts(sch.get(reader))
        written_on_chip = facts.writes[0].scope() != "global"
        if facts.copies and written_on_chip and not facts.dynamic_reads:
            continue
        for buffer in facts.reads:
            if buffer.name not in parameters or buffer.name in facts.dynamic_reads:
                continue
            if not any(int(extent) == 0 for extent in buffer.shape):
                same = shared.setdefault((buffer.name, read_pattern(sch.get(reader), buffer)), [])
                if reader not in same:
                    same.append(reader)
    for (name, _), same in reversed(shared.items()):
        index = [buffer.name for buffer in block_facts(sch.get(same[0])).reads].index(name)
        staged = sch.cache_read(same[0], index, UB, same)
        sch.compute_at(staged, loop, preserve_unit_loops=True)


def read_pattern(block: Any, buffer: Any) -> tuple[Any, ...] | str:
    """What a block reads of each dimension of a buffer: all positions of an axis, or one position.

    Other blocks of the same pattern read the same. Where it is more than that, the block stands for itself.
    """
    axes = {iteration.var: (at, int(iteration.dom.extent)) for at, iteration in enumerate(block.iter_vars)}
    found = set[tuple[Any, ...]]()

    def visit(load: Any) -> None:
        if load.source.same_as(buffer):
            used = sorted(axes[index][0] for index in load.indices if index in axes)
            found.add(tuple(_position(index, axes, used) for index in load.indices))

    structural_walk(block.body, (ir.TensorLoad, visit))
    only = found.pop() if len(found) == 1 else (None,)
    return str(block.name_hint) if None in only else only


def _position(index: Any, axes: dict[Any, tuple[int, int]], used: list[int]) -> tuple[str, int, int] | None:
    if isinstance(index, tirx.IntImm):
        return "at", int(index), 1
    if index not in axes:
        return None
    at, extent = axes[index]
    return "along", used.index(at), extent


def ancestors(sch: Any, block: Any) -> list[Any]:
    """All blocks whose results a block needs, in program order."""
    wanted = dict[str, Any]()
    frontier = [block]
    while frontier:
        reader = frontier.pop()
        needed = {buffer.name for buffer in block_facts(sch.get(reader)).reads}
        for producer in sch.get_producers(reader):  # blocks that write other parts of the reader's result, too
            facts = sch.get(producer)
            if facts.name_hint not in wanted and facts.writes[0].source.name in needed:
                wanted[facts.name_hint] = producer
                frontier.append(producer)
    order = {name: index for index, name in enumerate(_program_order(sch))}
    return sorted(wanted.values(), key=lambda b: order[sch.get(b).name_hint])


def _program_order(sch: Any) -> list[str]:
    names: list[str] = []
    structural_walk(sch.mod["main"].body, (s_tir.SBlock, lambda block: names.append(block.name_hint)))
    return names
