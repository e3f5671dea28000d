"""How templates of vector work cut blocks of a kernel into tiles, spread these over cores, and bring what they need."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

from tvm import ir, s_tir, tirx

from compiler.isa.timing import ceil_div
from compiler.tiling.blocks import UB, block_facts
from compiler.tiling.schedule import schedule_of
from compiler.tir.structure import structural_walk

# Loops over tiles that may be spread over cores; `passes.tir.merge_core_axes` makes one core number of them.
CORE_AXES = ("blockIdx.x", "blockIdx.y", "blockIdx.z")


def new_schedule(func: Any) -> Any:
    # A copy: of a function with blocks inside blocks, a schedule changes the inner ones in place.
    return schedule_of(s_tir.renew_defs(func))


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
    """Let a stage that one other stage of the same size reads, element by element, disappear into it.

    Not where an input would have to be copied once more, since others read it in another order.
    """
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
        reordered = isinstance(read_pattern(sch.get(consumers[0]), facts.writes[0]), str)
        if reordered and any(_reads_besides(sch, block, buffer) for buffer in facts.reads):
            continue
        if facts.copies and _reads_in_another_order(sch.get(consumers[0]), sch.get(block), facts.reads[0]):
            continue
        sch.compute_inline(block)


def _reads_in_another_order(one: Any, other: Any, buffer: Any) -> bool:
    """Whether both read all of a buffer, each along other axes: a tile of the one is no tile of the other."""
    if not any(region.source.same_as(buffer) for region in one.reads):
        return False
    first, second = read_pattern(one, buffer), read_pattern(other, buffer)
    return first != second and not isinstance(first, str) and not isinstance(second, str)


def without_tables(func: Any) -> Any:
    """The function with readers that data has pick from the inputs themselves, not from copies in UB."""
    sch = new_schedule(func)
    for block in root_blocks(sch)[:-1]:
        facts, readers = block_facts(sch.get(block)), sch.get_consumers(block)
        if facts.copies and all(facts.writes[0].name in block_facts(sch.get(each)).dynamic_reads for each in readers):
            sch.compute_inline(block)
    return sch.mod["main"]


def _reads_besides(sch: Any, block: Any, buffer: Any) -> bool:
    """Whether other blocks read an input of the kernel that a block reads."""
    if not any(parameter.same_as(buffer) for parameter in sch.mod["main"].params):
        return False
    name = sch.get(block).name_hint
    others = [block_facts(facts) for facts in map(sch.get, root_blocks(sch)) if facts.name_hint != name]
    return any(each.same_as(buffer) for facts in others for each in facts.reads)


def tile_result(sch: Any, out: Any, extents: tuple[int, ...], cores: int) -> None:
    facts = block_facts(sch.get(out))
    store = out
    if not (facts.copies and not facts.guarded and not facts.dynamic_reads and not facts.dynamic_write):
        store = sch.cache_write(out, 0, UB)
    inner = bind_tiles(sch, store, extents, cores)
    bring_producers(sch, store, inner)


def bind_tiles(sch: Any, block: Any, extents: tuple[int, ...], cores: int) -> Any:
    """Split a block's loops, or the first ones, into core, tile and positions; the innermost tile loop.

    Loops over tiles are not fused: bounds of what a tile reads stay simple expressions of single variables.
    """
    loops = list(sch.get_loops(block)) or [sch.add_unit_loop(block)]
    outer, inside = [], []
    for loop, extent in zip(loops, extents, strict=False):
        if extent == 1:
            outer.append(loop)
        elif extent < int(sch.get(loop).extent):
            cut, inner = sch.split(loop, [None, extent])
            outer.append(cut)
            inside.append(inner)
        else:
            inside.append(loop)
    if not outer:
        outer = [sch.add_unit_loop(loops[0])]
    trips = tuple(int(sch.get(loop).extent) for loop in outer)
    shares = [ceil_div(n, parts) for n, parts in zip(trips, split_cores(trips, cores), strict=True)]
    parts = [sch.split(loop, [None, share]) for loop, share in zip(outer, shares, strict=True)]
    sch.reorder(*(core for core, _ in parts), *(inner for _, inner in parts), *inside)
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

    All positions may be those of two axes, block by block. Other blocks of the same pattern read the same. Where it is
    more than that, the block stands for itself.
    """
    places = _places_of_axes(block, buffer)
    axes = {one.var: (at, int(one.dom.extent)) for at, one in zip(places, block.iter_vars, strict=True)}
    found = set[tuple[Any, ...]]()

    def visit(load: Any) -> None:
        if load.source.same_as(buffer):
            runs = [_run(index, axes) for index in load.indices]
            used = sorted(run[0] for run in runs if run is not None)
            found.add(tuple(_position(index, run, used) for index, run in zip(load.indices, runs, strict=True)))

    structural_walk(block.body, (ir.TensorLoad, visit))
    only = found.pop() if len(found) == 1 else (None,)
    return str(block.name_hint) if None in only else only


def _places_of_axes(block: Any, buffer: Any) -> list[int]:
    """Where each axis of a block stands among the others: what is reduced, where the result keeps a single position."""
    read = set[Any]()

    def visit(load: Any) -> None:
        if load.source.same_as(buffer):
            for index in load.indices:
                structural_walk(index, (tirx.Var, read.add))

    structural_walk(block.body, (ir.TensorLoad, visit))
    axes = list(enumerate(block.iter_vars))
    reduced = [at for at, one in axes if one.iter_type == tirx.IterVar.CommReduce]
    kept = [at for at, one in axes if at not in reduced and int(one.dom.extent) == 1 and one.var not in read]
    places = dict(zip(reduced, kept, strict=True)) if len(reduced) == len(kept) else {}
    return [places.get(at, at) for at, _ in axes]


def _run(index: Any, axes: dict[Any, tuple[int, int]]) -> tuple[int, int] | None:
    """(first axis, extent) where an index takes all positions from zero on, in turn: an axis, or blocks of another."""
    if index in axes:
        return axes[index]
    if not isinstance(index, tirx.Add) or index.b not in axes or not isinstance(index.a, tirx.Mul):
        return None
    blocks, width = index.a.a, index.a.b
    if blocks not in axes or not isinstance(width, tirx.IntImm) or int(width) != axes[index.b][1]:
        return None
    return min(axes[blocks][0], axes[index.b][0]), axes[blocks][1] * int(width)


def _position(index: Any, run: tuple[int, int] | None, used: list[int]) -> tuple[str, int, int] | None:
    if isinstance(index, tirx.IntImm):
        return "at", int(index), 1
    return None if run is None else ("along", used.index(run[0]), run[1])


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
