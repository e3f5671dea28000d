"""What the templates of the cube classes share: the product's loops cut into core, trip, chunk and step; its operands
brought through L1 beside the cube; its result taken out, and the stages behind it kept on the tile.

    for core: for trip: { c0 = 0
                          for chunk: { a1 = a; b1 = b                      # DDR -> L1
                                       for step: { a0 = a1; b0 = b1        # L1 -> L0A, L0B
                                                   c0 += a0 * b0 } }
                          slaves }
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

from tvm import ir, s_tir, tirx

from compiler.isa.dtypes import DTYPES
from compiler.target import Chip
from compiler.tiling.masters import Master
from compiler.tiling.template import NoFeasibleTile
from compiler.tir.products import roles_of, variables_in
from compiler.tir.scopes import ISA_DTYPE
from compiler.tir.structure import structural_walk

L1, L0A, L0B, L0C, UB = "shared.l1", "local.l0a", "local.l0b", "local.l0c", "local.ub"
REDUCED = 2  # the kind of an axis that a stage sums over
CUBE = "pragma_tw_cube"  # marks the nests that are whole instructions of the cube's side: nobody reshapes them
FIXPIPE = "tw.fixpipe"  # of a stage: the fixpipe does what it does to the sums that it reads
HELD = "pragma_held_pieces"  # of the loop over chunks: how many, the last ones, of an operand stay in L1


@dataclass(frozen=True)
class Cut:
    """How a loop of the master is cut: into groups of cores x cores x trips x inner iterations, a loop over k into
    chunks x steps x inner iterations. The first number follows from the extent.
    """

    second: int  # trips of one core, or steps of one chunk
    inner: int  # iterations inside one instruction
    cores: int = 1  # of one group: cores with consecutive numbers


@contextmanager
def schedulable(name: str) -> Iterator[None]:
    """Where TVM's schedule refuses a step, a kernel of such stages has no tile: they need kernels of their own."""
    try:
        yield
    except s_tir.ScheduleError as error:
        reason = str(error).strip().splitlines()
        raise NoFeasibleTile(name, f"stages that do not follow the product: {reason[-1] if reason else ''}") from error


@dataclass
class Placed:
    """The loops at which the parts of a tiled product stand."""

    core: Any
    trips: list[Any]
    first_chunk: Any  # outermost loop of k
    chunk: Any  # innermost loop over chunks
    step: Any  # innermost loop over steps
    inner: list[Any] = field(default_factory=list)
    result: str = ""  # " rows" where the result has no axis of columns
    rows_of_product: tuple[int, int] | None = None  # where a tile has several products: an axis, and what one has of it


def cut_master(sch: Any, master: Master, cuts: Sequence[Cut], trip_order: Sequence[int]) -> Placed:
    """Cut and order the master's loops; ``trip_order`` lists the axes that are not reduced, outermost first."""
    loops = sch.get_loops(master.block)
    kept = [axis for axis, role in enumerate(master.roles) if role != "k"]
    reduced = master.axes("k")
    groups, cores, parts = {}, {}, {}
    for axis, (loop, cut) in enumerate(zip(loops, cuts, strict=True)):
        if axis in reduced:
            parts[axis] = sch.split(loop, [None, cut.second, cut.inner])
        else:
            groups[axis], cores[axis], *parts[axis] = sch.split(loop, [None, cut.cores, cut.second, cut.inner])
    together = [*groups.values(), *cores.values()]
    order = together + [parts[axis][0] for axis in trip_order]
    order += [parts[axis][0] for axis in reduced] + [parts[axis][1] for axis in reduced]
    inner = [parts[axis][-1] for axis in [*kept, *reduced]]
    sch.reorder(*order, *inner)
    if kept:
        core = sch.fuse(*together)
    else:
        core = sch.add_unit_loop(order[0])
    sch.bind(core, "blockIdx.x")
    trips = [parts[axis][0] for axis in trip_order]
    return Placed(
        core,
        trips,
        parts[reduced[0]][0],
        parts[reduced[-1]][0],
        parts[reduced[-1]][1],
        inner,
        "" if master.axes("n") else " rows",
    )


def cut_inside(sch: Any, master: Master, loop: Any, step: Cut) -> Placed:
    """Cut k of a product that was moved inside ``loop``, all of whose other loops belong to one instruction."""
    inside = loops_below(sch, master.block, loop)
    kept = [inside[axis] for axis, role in enumerate(master.roles) if role != "k"]
    parts = [sch.split(inside[axis], [None, step.second, step.inner]) for axis in master.axes("k")]
    inner = [*kept, *(part[2] for part in parts)]
    sch.reorder(*(part[0] for part in parts), *(part[1] for part in parts), *inner)
    return Placed(loop, [loop], parts[0][0], parts[-1][0], parts[-1][1], inner)


def loops_below(sch: Any, block: Any, outside: Any) -> list[Any]:
    loops = sch.get_loops(block)
    depth = next(i for i, loop in enumerate(loops) if sch.get(loop).same_as(sch.get(outside)))
    return list(loops[depth + 1 :])


def start_sum(sch: Any, master: Any, placed: Placed) -> Any:
    """Set the sum to zero before its first chunk, and mark both nests. Returns what sets it."""
    sch.annotate(placed.inner[0], CUBE, "product")
    loops = sch.get_loops(master)
    first = next(i for i, loop in enumerate(loops) if sch.get(loop).same_as(sch.get(placed.first_chunk)))
    start = sch.decompose_reduction(master, placed.first_chunk)
    own = sch.get_loops(start)[first + (placed.rows_of_product is not None) :]
    if own:
        sch.annotate(own[0], CUBE, f"start{placed.result}")
    return start


def mark(sch: Any, block: Any, outside: Any, what: str) -> None:
    """Say that the nest of a block inside the loop ``outside`` is one instruction."""
    loops = loops_below(sch, block, outside) or [sch.add_unit_loop(block)]  # a result may have no axes
    sch.annotate(loops[0], CUBE, what)


def slave_bytes(sch: Any, master: Any, chip: Chip, *, through_ub: bool = False) -> int:
    """Bytes of UB for each element of the result that the stages behind the product take.

    None where results leave L0C for DDR, unless they are to go ``through_ub``.
    """
    result = sch.get(master).writes[0].source
    stages = working(sch, master)
    fixed = takes_itself_out(sch, master)
    if not through_ub and path(chip, "l0c", "ddr") and (not stages or (fixed and len(stages) == 1)):
        return 0
    return -(-peak_bytes(result, stages, fixed) // prod(int(n) for n in result.shape))


def working(sch: Any, master: Any) -> list[Any]:
    """The blocks of the stages behind a product, without those that are the store of what another stage made."""
    parameters = list(sch.mod["main"].params)
    blocks = [sch.get(stage) for stage in followers(sch, master)]
    return blocks[:1] + [block for block in blocks[1:] if not stores_only(block, parameters)]


def stores_only(block: Any, parameters: Sequence[Any]) -> bool:
    """Whether a stage only stores what another stage made, or the first elements of it along each axis."""
    store = block.body
    if not isinstance(store, tirx.BufferStore) or not isinstance(store.value, ir.TensorLoad) or block.init is not None:
        return False
    pairs = zip(store.indices, store.value.indices, strict=False)
    in_order = len(store.indices) == len(store.value.indices) and all(one.same_as(other) for one, other in pairs)
    return in_order and _is_one_of(store.buffer, parameters) and not _is_one_of(store.value.source, parameters)


def takes_itself_out(sch: Any, master: Any) -> bool:
    """Whether the only stage that reads a product is work of the fixpipe."""
    consumers = sch.get_consumers(master)
    return len(consumers) == 1 and _is_fixpipe_work(sch.get(consumers[0]), sch.get(master).writes[0].source)


def peak_bytes(result: Any, stages: Sequence[Any], fixed: bool) -> int:
    """Bytes that live in UB at once while stages run one after another, for all of the result.

    Compound values are computed by way of temporaries in fp32: one of the size of the stage is counted.
    """
    first: dict[Any, int] = {} if fixed else {result: -1}
    last: dict[Any, int] = dict.fromkeys(first, 0)
    for position, block in enumerate(stages):
        read = {region.source for region in block.reads} - ({result} if fixed else set())
        for buffer in {block.writes[0].source, *read}:
            first.setdefault(buffer, position if buffer.same_as(block.writes[0].source) else -1)
            last[buffer] = position
    peak = 0 if fixed else _buffer_bytes(result)
    for position, block in enumerate(stages):
        live = sum(_buffer_bytes(b) for b in first if first[b] <= position <= last[b])
        simple = (fixed and position == 0) or _is_one_instruction(block.body)
        peak = max(peak, live + (0 if simple else 4 * prod(int(n) for n in block.writes[0].source.shape)))
    return peak


def _is_one_instruction(body: Any) -> bool:
    """Whether a value is computed in its own type, by as few operations as one instruction does at most."""
    casts: list[Any] = []
    operations: list[Any] = []
    structural_walk(body.value, (tirx.Cast, casts.append))
    value = body.value
    if isinstance(value, tirx.Max) and isinstance(value.a, tirx.Add):  # where it is cut off below zero
        value = value.a
    for kind in (tirx.Add, tirx.Sub, tirx.Mul, tirx.Max, tirx.Min):
        structural_walk(value, (kind, operations.append))
    return not casts and len(operations) <= 1


def _buffer_bytes(buffer: Any) -> int:
    return DTYPES[isa_dtype(buffer)].itemsize * prod(int(n) for n in buffer.shape)


def isa_dtype(buffer: Any) -> str:
    return ISA_DTYPE[str(buffer.dtype)]


def path(chip: Chip, source: str, target: str) -> bool:
    return f"{source}_{target}" in chip.path


def choose(ranked: Sequence[Any], problem: Any, attempt: int) -> Any | None:
    """The best tile; for later attempts the best that takes clearly less than the one before, of UB where it needs any.

    What the other memories take is known exactly beforehand.
    """
    chosen = ranked[0] if ranked else None
    for _ in range(attempt):
        if chosen is None:
            return None
        taken = chosen.bytes_of(problem)
        scarce = "ub" if taken["ub"] else "l1"
        most = taken[scarce] * SHRINK
        chosen = next((tile for tile in ranked if tile.bytes_of(problem)[scarce] <= most), None)
    return chosen


# ---- operands ----------------------------------------------------------------------------------------------------


def bring_operand(
    sch: Any,
    master: Any,
    index: int,
    scope: str,
    at_chunk: Any,
    at_step: Any,
    what: str = "operand",
    transposed: bool = False,
    alone: bool = False,
) -> None:
    """Copy the operand ``index`` of the product to L1 inside ``at_chunk`` and beside the cube inside ``at_step``.

    What else reads it reads the same copy, unless this product has its own ``alone``.
    """
    order = _matrices_last(sch.get(master), index)
    readers = [master] if alone else None
    far = sch.cache_read(master, index, L1, readers)
    near = sch.cache_read(master, index, scope, readers)
    if order != sorted(order):
        sch.transform_layout(far, ("write", 0), lambda *i: [i[at] for at in order])
        sch.transform_layout(near, ("write", 0), lambda *i: [i[at] for at in order])
    sch.compute_at(near, at_step, preserve_unit_loops=True)
    sch.compute_at(far, at_chunk, preserve_unit_loops=True)
    mark(sch, near, at_step, what + " transposed" if transposed else what)
    mark(sch, far, at_chunk, what)


def _matrices_last(block: Any, index: int) -> list[int]:
    """The axes of an operand, those that say which matrix it is first: on the core, it is rows and columns."""
    roles = dict(zip((axis.var for axis in block.iter_vars), roles_of(block), strict=True))
    moved = [variables_in([axis.min]) for axis in block.reads[index].region]
    matrix = [any(roles.get(variable) in INNER for variable in variables) for variables in moved]
    return sorted(range(len(moved)), key=lambda at: matrix[at])


# ---- the result and what follows it ------------------------------------------------------------------------------


def keep_result(sch: Any, master: Any) -> tuple[Any, list[Any]]:
    """Sum in L0C; the stage that takes the result out through the fixpipe, and the stages behind it in order."""
    consumers = sch.get_consumers(master)
    if not consumers:
        taken = sch.cache_write(master, 0, L0C)
        return taken, []
    fixed = takes_itself_out(sch, master)
    sch.set_scope(master, 0, L0C)
    result = sch.get(master).writes[0].source
    if fixed:
        taken = consumers[0]
    else:
        reads = [region.source.same_as(result) for region in sch.get(consumers[0]).reads]
        taken = sch.cache_read(consumers[0], reads.index(True), UB, consumers)
    return taken, followers(sch, taken)


def followers(sch: Any, block: Any) -> list[Any]:
    """All stages that need a stage, in program order."""
    return _reached(sch, block, sch.get_consumers)


def makers(sch: Any, block: Any) -> list[Any]:
    """All stages that a stage needs, in program order."""
    return _reached(sch, block, sch.get_producers)


def made_otherwise(sch: Any, master: Any, others: Sequence[Any] = ()) -> str:
    """A stage that a tile of a product has no place for: what it makes is read by the product, or behind it."""
    placed = {sch.get(block) for block in (master, *followers(sch, master), *others)}
    blocks = (sch.get(block) for block in sch.get_child_blocks(sch.get_sblock("root")))
    return next((str(block.name_hint) for block in blocks if block not in placed), "")


def _reached(sch: Any, block: Any, neighbours: Callable[[Any], Sequence[Any]]) -> list[Any]:
    found: set[Any] = set()
    frontier = [block]
    while frontier:
        for other in neighbours(frontier.pop()):
            if sch.get(other) not in found:
                found.add(sch.get(other))
                frontier.append(other)
    return [b for b in sch.get_child_blocks(sch.get_sblock("root")) if sch.get(b) in found]


def _is_fixpipe_work(block: Any, result: Any) -> bool:
    """Whether a stage only scales or cuts off below zero, and rounds, the elements of the result, each for itself."""
    if FIXPIPE in block.annotations:
        return True
    value = block.body.value if isinstance(block.body, tirx.BufferStore) else None
    value = value.value if isinstance(value, tirx.Cast) else value
    if isinstance(value, tirx.Max) and isinstance(value.b, tirx.FloatImm) and float(value.b.value) == 0:
        value = value.a.value if isinstance(value.a, tirx.Cast) else value.a
    if isinstance(value, tirx.Mul) and isinstance(value.b, tirx.FloatImm):
        value = value.a.value if isinstance(value.a, tirx.Cast) else value.a
    if not isinstance(value, ir.TensorLoad) or block.init is not None:
        return False
    rounded = str(block.body.buffer.dtype) in {"float32": FIXED, "int32": ("int32",)}[str(result.dtype)]
    return rounded and takes_all(block, value)


def takes_all(block: Any, sums: Any) -> bool:
    """Whether a stage takes the sums that it loads one after the other, columns side by side."""
    in_order = [_walks(index, axis) for index, axis in zip(sums.indices, block.iter_vars, strict=False)]
    whole = all(in_order) and len(sums.indices) == len(block.iter_vars)
    return whole and not _is_turned(block.body.indices, block.iter_vars)


def _is_turned(stored: Sequence[Any], axes: Sequence[Any]) -> bool:
    """Whether columns of a product of matrices come to lie elsewhere than side by side.

    Those of a convolution, whose groups and depth are axes of the product only, are put there by the tile.
    """
    return 0 < len(stored) == len(axes) and not _walks(stored[-1], axes[-1])


def _walks(index: Any, axis: Any) -> bool:
    """Whether an index is the axis: of one with a single place it may be that place."""
    return bool(index.same_as(axis.var)) or (int(axis.dom.extent) == 1 and isinstance(index, tirx.IntImm))


INNER = frozenset({"m", "n", "k"})  # roles of the loops of one matrix
CONSTANTS_SHARE = 32  # inputs of a stage that take less of UB than one part in so many stay there
SHRINK = 0.7  # of the memory that the attempt before took
FIXED = ("float32", "float16", "bfloat16")  # what the fixpipe rounds an fp32 sum to


def place_slaves(
    sch: Any,
    taken: Any,
    slaves: Sequence[Any],
    placed: Placed,
    chip: Chip,
    columns: int | None = None,
    through_ub: bool = False,
) -> None:
    """Move the stages behind the product to the tile: in UB, with their other inputs brought there.

    With ``columns``, so many columns of the tile go through UB at a time: L0C may hold more than UB does. A result that
    nothing follows goes there only where it has to, or ``through_ub`` says so: it leaves L0C sooner.
    """
    parameters = list(sch.mod["main"].params)
    trip = placed.trips[-1] if placed.trips else placed.core
    for block in [taken, *slaves]:
        if not follows(sch.get(block), parameters):
            raise NoFeasibleTile(
                str(sch.get(block).name_hint), "a stage behind a product that needs more than its tile"
            )
    product = trip
    sch.reverse_compute_at(taken, trip, preserve_unit_loops=True)
    if placed.rows_of_product is not None:
        axis, rows = placed.rows_of_product
        loops = loops_below(sch, taken, trip)
        product, inner = sch.split(loops[axis], [None, rows])
        sch.reorder(product, *loops[:axis], inner, *loops[axis + 1 :])
    if columns is not None:
        *outer, last = loops_below(sch, taken, trip)
        trip = sch.split(last, [None, columns])[0]
        sch.reorder(trip, *outer)
        product = trip if placed.rows_of_product is None else product
    for block in slaves:
        sch.reverse_compute_at(block, trip, preserve_unit_loops=True)
    mark(sch, taken, product, f"result{placed.result}")
    for block in [taken, *slaves]:
        leaves = _is_one_of(sch.get(block).writes[0].source, parameters)
        if not leaves:
            sch.set_scope(block, 0, UB)
        elif block is not taken and stores_only(sch.get(block), parameters):
            continue
        elif block is not taken or through_ub or not path(chip, "l0c", "ddr"):
            stored = sch.cache_write(block, 0, UB)
            sch.reverse_compute_at(stored, trip, preserve_unit_loops=True)
    for block in slaves:
        stage_inputs(sch, block, trip, parameters, (placed.core, chip.memory.ub_bytes // CONSTANTS_SHARE))


def follows(block: Any, parameters: Sequence[Any]) -> bool:
    """Whether a stage computes, of any tile, the elements of that tile only.

    Its indices into what other stages made are axes of its own, or an axis in groups: then the group has to be a single
    one in every tile, as it is in convolutions.
    """
    if any(int(axis.iter_type) == REDUCED for axis in block.iter_vars):
        return False
    loads: list[Any] = []
    structural_walk(block.body, (ir.TensorLoad, loads.append))
    for load in loads:
        if _is_one_of(load.source, parameters):
            continue
        grouped = [index for index in load.indices if isinstance(index, tirx.FloorDiv | tirx.FloorMod)]
        plain = [index for index in load.indices if isinstance(index, tirx.Var)]
        fixed = [index for index in load.indices if isinstance(index, tirx.IntImm)]
        if len(plain) + len(fixed) + len(grouped) != len(load.indices) or len(set(plain)) != len(plain):
            return False
        if grouped and not _is_group(grouped, load):
            return False
    return True


def _is_group(indices: list[Any], load: Any) -> bool:
    """Whether two indices are the group of an axis and the place in it, of a buffer with groups on its second axis."""
    group, place = load.indices[1], load.indices[-1]
    if len(indices) != 2 or not isinstance(group, tirx.FloorDiv) or not isinstance(place, tirx.FloorMod):
        return False
    return bool(group.a.same_as(place.a) and int(group.b) == int(place.b) == int(load.source.shape[-1]))


def stage_inputs(
    sch: Any,
    block: Any,
    loop: Any,
    parameters: Sequence[Any],
    constants: tuple[Any, int] | None = None,
    alone: bool = False,
) -> None:
    """Copy what a stage reads of the kernel's inputs to UB inside the loop, or small inputs inside another.

    All stages that read an input read the same copy, unless this one has its own ``alone``.
    """
    for index in reversed(range(len(sch.get(block).reads))):
        source = sch.get(block).reads[index].source
        if _is_one_of(source, parameters):
            extra = sch.cache_read(block, index, UB, [block] if alone else None)
            once = constants is not None and _buffer_bytes(source) <= constants[1]
            sch.compute_at(extra, constants[0] if constants and once else loop, preserve_unit_loops=True)


def _is_one_of(buffer: Any, parameters: Sequence[Any]) -> bool:
    return any(buffer.same_as(parameter) for parameter in parameters)
