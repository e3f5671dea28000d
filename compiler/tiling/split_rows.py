"""Reductions of few long rows, as kernels one behind the other: each core reduces a part of a row.

    y[r, k] = x[r, k] / sum(x[r, :])
->  parts[r, p] = sum(x[r, p * K + k])        y[r, k] = x[r, k] / sum(parts[r, :])

Rows are spread over the cores otherwise, and where there are fewer of them than cores the others wait. A reduction of
what another one is needed for (the exponents of a softmax) is in a kernel behind that of the other; small ones, and
what is worked out element by element, are in all kernels that need them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import ir, sym, tirx
from tvm.s_tir import SBlock, SBlockRealize
from tvm_ffi import structural_equal

from compiler.codegen.residence import llb_pays
from compiler.isa.timing import ceil_div
from compiler.target import Chip
from compiler.tiling.blocks import DATA_PARALLEL, REDUCTION, block_facts
from compiler.tiling.in_parts import InParts, Part, function
from compiler.tir.rewriter import substitute
from compiler.tir.sblocks import distinct, point
from compiler.tir.scopes import itemsize
from compiler.tir.structure import structural_map, structural_walk

SWITCH = "split-rows"  # what ablations call it
CLASSES = ("reduction", "softmax", "norm", "pooling")
EVEN = 0.8  # of the parts that keep all cores busy, how many are enough where a row has as many that are alike
ALIGNED = 16  # elements: parts begin at a multiple of as many, where they cannot be alike
PIECE = 64  # results side by side that a core is worth
BORDERS = 1  # as long as so many kernels take to begin and end, one core alone has to read its rows
FAR = 1 << 62

# Of what may be combined in any order, the value that changes nothing; of the last two, any value that comes first may
# come again.
NEUTRAL: Mapping[Any, float | None] = {tirx.Add: 0, tirx.Mul: 1, tirx.Max: None, tirx.Min: None}


def split(func: Any, schedule: str, chip: Chip) -> tuple[InParts, ...]:
    """The kernels, if any of its reductions is worth it; compiled, they show whether they take less time."""
    if schedule not in CLASSES:
        return ()
    nests = _nests(func)
    if nests is None:
        return ()
    border = _border_cycles(chip)
    cuts = {nest.made: cut for nest in nests if (cut := _cut(nest, chip, border))}
    return (_in_parts(func, schedule, nests, cuts),) if cuts else ()


def _border_cycles(chip: Chip) -> float:
    """From one kernel to the next: cores wait for each other, the last results and the first reads for memory."""
    memory = "llb" if llb_pays(chip) else "ddr"
    ends = chip.path[f"{memory}_ub"].latency_cycles + chip.path["ub_ddr"].latency_cycles
    return chip.sync.cross_flag_cycles + ends


# ---- which reductions, and how ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Nest:
    """One stage of the function."""

    nest: Any
    block: Any
    made: Any  # the buffer that it fills
    read: tuple[Any, ...]  # the buffers that it needs


@dataclass(frozen=True)
class _Cut:
    """A reduction in parts along one of its axes; the ``rest`` elements behind them are another, smaller one."""

    axis: Any  # the variable
    at: int  # before which axis of the result that of the parts is
    parts: int
    width: int
    rest: int


def _nests(func: Any) -> list[_Nest] | None:
    """None where stages are not one block each, which always runs, or several fill a buffer, or data decides where they
    write.
    """
    body = func.body.block.body
    found = list[_Nest]()
    for nest in body.seq if isinstance(body, tirx.SeqStmt) else [body]:
        realized: list[Any] = []
        structural_walk(nest, (SBlockRealize, realized.append))
        blocks = [each.block for each in realized]
        if len(blocks) != 1 or not _is_one(realized[0].predicate) or block_facts(blocks[0]).dynamic_write:
            return None
        written, read = (list({region.source: None for region in side}) for side in (blocks[0].writes, blocks[0].reads))
        if len(written) != 1 or any(other.made.same_as(written[0]) for other in found):
            return None
        found.append(_Nest(nest, blocks[0], written[0], tuple(one for one in read if not one.same_as(written[0]))))
    return found


def _is_one(condition: Any) -> bool:
    return isinstance(condition, tirx.IntImm) and int(condition) == 1


def _cut(nest: _Nest, chip: Chip, border: float) -> _Cut | None:
    """How a reduction is cut, if that is worth it."""
    axes, value = _reduced(nest.block), _value(nest.block)
    extents = {axis.var: int(axis.dom.extent) for axis in nest.block.iter_vars}
    long = max(axes, key=extents.__getitem__, default=None)
    if long is None or value is None:
        return None
    loads: list[Any] = []
    structural_walk(value, (ir.TensorLoad, loads.append))
    load = next((each for each in loads if any(_uses(index, long) for index in each.indices)), None)
    if load is None:
        return None
    before, behind = _around(load, long, _kept(nest.block))
    rows = prod(extents[var] for var in before)
    wide = prod(extents[var] for var in behind)
    most = chip.cores // (rows * ceil_div(wide, PIECE))
    size = prod(extents.values()) // max(1, rows) * itemsize(load.source.dtype)
    if most < 2 or size / chip.path["ddr_ub"].bytes_per_cycle < BORDERS * border:
        return None
    innermost = _uses(load.indices[-1], long)
    parts, width = _widths(extents[long], most, ALIGNED if innermost else 1)
    return _Cut(long, len(before), parts, width, extents[long] - parts * width) if width else None


def _widths(extent: int, most: int, aligned: int) -> tuple[int, int]:
    """How many parts, and how long each is; zero where they would be too short."""
    even = next((parts for parts in range(most, ceil_div(int(10 * EVEN * most), 10) - 1, -1) if extent % parts == 0), 0)
    if even > 1:
        return even, extent // even
    return most, extent // most // aligned * aligned


def _around(load: Any, long: Any, kept: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The axes of the result that lie before an axis in what is read, and behind it: as many of the first as stand
    together.
    """
    place = next(at for at, index in enumerate(load.indices) if _uses(index, long))
    own, step = load.indices[place], _step(load.indices[place], long)
    inside = [var for var in kept if any(_uses(index, var) for index in load.indices[place + 1 :])]
    inside += [var for var in kept if _uses(own, var) and _step(own, var) < step]
    first = next((at for at, var in enumerate(kept) if any(var.same_as(one) for one in inside)), len(kept))
    return list(kept[:first]), list(kept[first:])


def _step(index: Any, variable: Any) -> int:
    """How far an index goes with a variable; as far as none does where that is not always the same."""
    found = sym.Analyzer().simplify(substitute(index, {variable: variable + 1}) - index)
    return abs(int(found)) if isinstance(found, tirx.IntImm) else FAR


def _uses(index: Any, variable: Any) -> bool:
    found: list[bool] = []
    structural_walk(index, (tirx.Var, lambda var: found.append(var.same_as(variable))))
    return any(found)


def _kept(block: Any) -> list[Any]:
    return [axis.var for axis in block.iter_vars if int(axis.iter_type) == DATA_PARALLEL]


def _reduced(block: Any) -> list[Any]:
    return [axis.var for axis in block.iter_vars if int(axis.iter_type) != DATA_PARALLEL]


def _value(block: Any) -> Any | None:
    """What a reduction combines, in terms of axes that count from zero; None where that is not all there is to it.

    1. It stores at its axes what was there, combined with a value: by something that may be done in any order.
    2. It begins with what changes nothing.
    """
    store = block.body
    if not isinstance(store, tirx.BufferStore) or type(store.value) not in NEUTRAL or block.init is None:
        return None
    if len(store.indices) != len(_kept(block)):
        return None
    if not all(index.same_as(var) for index, var in zip(store.indices, _kept(block), strict=True)):
        return None
    starts = {axis.var: axis.dom.min for axis in block.iter_vars if not _is_zero(axis.dom.min)}
    if any(var in starts for var in _kept(block)):
        return None
    neutral, first = NEUTRAL[type(store.value)], block.init.value
    if not isinstance(first, tirx.IntImm | tirx.FloatImm) or neutral not in (None, float(first.value)):
        return None
    own, value = store.value.a, store.value.b
    if not isinstance(own, ir.TensorLoad) or not own.source.same_as(store.buffer):
        own, value = value, own
    if not isinstance(own, ir.TensorLoad) or not structural_equal(list(own.indices), list(store.indices)):
        return None
    sources: list[Any] = []
    structural_walk(value, (ir.TensorLoad, lambda load: sources.append(load.source)))
    if not own.source.same_as(store.buffer) or any(source.same_as(store.buffer) for source in sources):
        return None
    return substitute(value, {var: var + start for var, start in starts.items()}) if starts else value


def _is_zero(number: Any) -> bool:
    return isinstance(number, tirx.IntImm) and int(number) == 0


# ---- the kernels ------------------------------------------------------------------------------------------------


def _in_parts(func: Any, schedule: str, nests: Sequence[_Nest], cuts: Mapping[Any, _Cut]) -> InParts:
    between = dict[Any, _Nest]()  # by buffer what fills it
    rest = dict[Any, _Nest]()  # the stages of the kernels that read those, by the buffer each fills
    for nest in nests:
        cut = cuts.get(nest.made)
        if cut is None:
            rest[nest.made] = nest
            continue
        parts, *others = _stages(nest, cut, rest)
        between[parts.made] = parts
        rest |= {other.made: other for other in others}
    needed = {made: _needed(nest, rest) for made, nest in (between | rest).items()}
    levels = _levels(between, needed, rest)
    params, last = list(func.params), [param for param in func.params if param in rest]
    groups = [[made for made in between if levels[made] == level] for level in range(max(levels.values()) + 1)]
    kernels, names = list[Part](), [*params, *between]
    for at, results in enumerate((*groups, last)):
        stages = [nest for made, nest in rest.items() if any(made in needed[result] for result in results)]
        stages += [(between | rest)[result] for result in results if result in between]
        made_here = {stage.made for stage in stages}
        read = [name for name in names if name not in made_here and any(name in stage.read for stage in stages)]
        inner = [stage.made for stage in stages if stage.made not in results]
        given = [*read, *results]
        made = function(func, given, [stage.nest for stage in stages], inner)
        arguments = tuple(next(i for i, name in enumerate(names) if name.same_as(one)) for one in given)
        if results is last:
            kernels.append(Part(made, schedule, arguments, "with its rows reduced"))
        else:
            kernels.append(Part(made, "reduction", arguments, f"parts of rows {at + 1}", f"parts{at + 1}"))
    return InParts(tuple(between), tuple(kernels))


def _needed(nest: _Nest, stages: Mapping[Any, _Nest]) -> set[Any]:
    """The buffers of stages that a stage needs, with its own."""
    found, waiting = {nest.made}, list(nest.read)
    while waiting:
        buffer = waiting.pop()
        if buffer not in found and buffer in stages:
            found.add(buffer)
            waiting += stages[buffer].read
    return found


def _levels(
    between: Mapping[Any, _Nest], needed: Mapping[Any, set[Any]], stages: Mapping[Any, _Nest]
) -> dict[Any, int]:
    """How many kernels each of the parts has to wait for."""
    found = dict[Any, int]()
    for made, nest in between.items():
        inside = [nest, *(stages[buffer] for buffer in needed[made] if buffer in stages)]
        found[made] = max((found[one] + 1 for stage in inside for one in stage.read if one in found), default=0)
    return found


# ---- their stages -----------------------------------------------------------------------------------------------


def _stages(nest: _Nest, cut: _Cut, before: Mapping[Any, _Nest]) -> Iterator[_Nest]:
    """What reduces the parts of rows; then what combines these, beside a stage for the rest of the rows."""
    shape, kind, name = [int(n) for n in nest.made.shape], str(nest.made.dtype), str(nest.block.name_hint)
    value, combine = _value(nest.block), type(nest.block.body.value)
    axes = [(axis.var, int(axis.dom.extent)) for axis in nest.block.iter_vars]
    kept, reduced = axes[: len(shape)], axes[len(shape) :]
    where = [var for var, _ in kept]

    def buffer(what: str, extents: Sequence[int]) -> Any:
        return tirx.decl_buffer(extents, kind, f"{name}_{what}", layout=None)

    def reduction(made: Any, at: Sequence[tuple[Any, int]], along: Sequence[tuple[Any, int]], element: Any) -> _Nest:
        there = tirx.BufferLoad(made, [var for var, _ in at])
        own_name = name if made.same_as(nest.made) else str(made.name)  # buffers may have the same name, blocks not
        return _stage(own_name, made, at, along, combine(there, element), nest.block)

    def along(extent: int) -> list[tuple[Any, int]]:
        return [(var, extent if var.same_as(cut.axis) else own) for var, own in reduced]

    part = tirx.Var("p", "int32")
    at = [*kept[: cut.at], (part, cut.parts), *kept[cut.at :]]
    parts = buffer("parts", [*shape[: cut.at], cut.parts, *shape[cut.at :]])
    yield reduction(parts, at, along(cut.width), substitute(value, {cut.axis: part * cut.width + cut.axis}))
    total = buffer("of_parts", shape) if cut.rest else nest.made
    yield reduction(total, kept, [(part, cut.parts)], tirx.BufferLoad(parts, [var for var, _ in at]))
    if cut.rest:
        rest = buffer("of_rest", shape)
        # What others read of the stages between is another part of them: their tiles would reach from one to the other.
        behind = substitute(_worked_out(value, before), {cut.axis: cut.axis + cut.parts * cut.width})
        yield reduction(rest, kept, along(cut.rest), behind)
        both = combine(tirx.BufferLoad(total, where), tirx.BufferLoad(rest, where))
        yield _stage(name, nest.made, kept, [], both)


def _worked_out(value: Any, stages: Mapping[Any, _Nest]) -> Any:
    """A value in terms of inputs and reductions only."""

    def visit(load: Any) -> Any:
        stage = stages.get(load.source)
        if stage is None or _reduced(stage.block) or not isinstance(stage.block.body, tirx.BufferStore):
            return load
        made = stage.block.body
        values = {
            index: at for index, at in zip(made.indices, load.indices, strict=True) if isinstance(index, tirx.Var)
        }
        if len(values) < len(_kept(stage.block)):
            return load
        return _worked_out(substitute(made.value, values), stages)

    return structural_map(value, (ir.TensorLoad, visit))


def _stage(
    name: str,
    made: Any,
    kept: Sequence[tuple[Any, int]],
    reduced: Sequence[tuple[Any, int]],
    value: Any,
    reduction: Any = None,
) -> _Nest:
    """A stage that stores at its kept axes a value in terms of all; it begins as the block of another one does."""
    axes = [tirx.Var(str(var.name), "int32") for var, _ in (*kept, *reduced)]
    loops = [tirx.Var(f"at_{var.name}", "int32") for var in axes]
    extents = [extent for _, extent in (*kept, *reduced)]
    value = substitute(value, dict(zip((var for var, _ in (*kept, *reduced)), axes, strict=True)))
    kinds = [DATA_PARALLEL] * len(kept) + [REDUCTION] * len(reduced)
    iterations = [
        tirx.IterVar(ir.Range(0, extent), var, kind, "") for var, extent, kind in zip(axes, extents, kinds, strict=True)
    ]
    at = axes[: len(kept)]
    found: list[Any] = []
    structural_walk(value, (ir.TensorLoad, found.append))
    read = distinct(point(load.source, load.indices) for load in found if not load.source.same_as(made))
    block = SBlock(
        iterations,
        read,
        [point(made, at)],
        name,
        tirx.BufferStore(made, value, at),
        init=None if reduction is None else tirx.BufferStore(made, reduction.init.value, at),
        annotations={} if reduction is None else reduction.annotations,
    )
    body = SBlockRealize(loops, True, block)
    for var, extent in reversed(list(zip(loops, extents, strict=True))):
        body = tirx.For(var, 0, extent, tirx.ForKind.SERIAL, body)
    return _Nest(body, block, made, tuple({region.source: None for region in read}))
