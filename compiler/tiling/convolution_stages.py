"""The stages behind a convolution's product: as few as can be, and channels side by side for as long as they are near.

Sums leave the cube with the channels of a position side by side, results stand in DDR channel by channel. A store takes
elements from wherever they lie in UB, so none has to be moved there. Sums leave it with all channels of all groups, of
which a result may have fewer: it is stored without the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tvm import ir, s_tir, te, tirx
from tvm.s_tir import ScheduleError
from tvm.sym import detect_linear_equation

from compiler.emission.cube.bias import BIAS as MARK
from compiler.emission.cube.halves import HALVES
from compiler.isa.layout import FRACTAL
from compiler.target import Chip
from compiler.tiling import cube
from compiler.tiling.blocks import block_facts
from compiler.tiling.convolution_tiles import KD, KH, KW
from compiler.tiling.epilogue import epilogue_of
from compiler.tiling.masters import masters_of
from compiler.tiling.schedule import schedule_of
from compiler.tir.products import operands_of
from compiler.tir.rewriter import substitute
from compiler.tir.sblocks import block_with
from compiler.tir.structure import structural_map, structural_walk

CHANNELS = 1  # which axis of a result these are
BT = "local.bt"
BIAS = 2  # which of the reads of a product


def merged(func: Any) -> Any:
    """The function with what follows its product in fewer stages.

    The stage that takes the sums out writes them to where the stages behind it move them, cut off below zero where
    that is all that one of these does. Other stages read what another one moves where it was. A stage that adds what
    other tensors hold cuts off below zero, too: one instruction does both.
    """
    while (further := _merged_once(func)) is not None:
        func = further
    sch = schedule_of(func)
    stages = cube.followers(sch, masters_of(sch)[0].block)
    for stage in stages[1:]:
        facts = block_facts(sch.get(stage))
        if facts.copies and not facts.guarded and _has_one_reader(sch, stage):
            sch.compute_inline(stage)
    return structural_map(sch.mod["main"], (tirx.Max, _cast_late))


def _merged_once(func: Any) -> Any | None:
    """The function with one stage less; None where there is none that can be a part of another."""
    sch = schedule_of(func)
    stages = cube.followers(sch, masters_of(sch)[0].block)
    stage = _merged_next(sch, stages)
    if stage is None:
        return None
    try:
        sch.reverse_compute_inline(stage)
    except ScheduleError:
        return None
    return with_all_channels(sch.mod["main"], str(sch.get(stages[0]).name_hint))


def _merged_next(sch: Any, stages: Sequence[Any]) -> Any | None:
    """A stage that can be a part of the one that it reads."""
    if len(stages) > 1 and _has_one_reader(sch, stages[0]) and _is_merged(sch, stages[1]) and not _cuts(sch, stages[1]):
        return stages[1]
    adding = [s for s in stages[1:] if isinstance(sch.get(s).body.value, tirx.Add) and _has_one_reader(sch, s)]
    readers = [sch.get_consumers(stage)[0] for stage in adding]
    return next((reader for reader in readers if _cuts_off(sch.get(reader))), None)


def _has_one_reader(sch: Any, stage: Any) -> bool:
    return len(sch.get_consumers(stage)) == 1


def _is_merged(sch: Any, stage: Any) -> bool:
    """Whether a stage only moves elements, or cuts them off below zero."""
    facts = block_facts(sch.get(stage))
    if facts.copies and not facts.guarded:
        return True
    return _cuts_off(sch.get(stage))


def _cuts(sch: Any, stage: Any) -> bool:
    """Whether a stage stores a part of what it reads."""
    block = sch.get(stage)
    read, made = block.reads[0].source, block.writes[0].source
    return cube.stores_only(block, list(sch.mod["main"].params)) and _shape(read) != _shape(made)


def _shape(buffer: Any) -> list[int]:
    return [int(extent) for extent in buffer.shape]


def _cuts_off(block: Any) -> bool:
    """Whether a stage only cuts off below zero."""
    value = block.body.value
    return isinstance(value, tirx.Max) and isinstance(value.a, ir.TensorLoad) and _is_zero(value.b)


def _is_zero(value: Any) -> bool:
    return isinstance(value, tirx.FloatImm | tirx.IntImm) and float(value.value) == 0


def _cast_late(value: Any) -> Any:
    """``max(cast(x), 0)`` -> ``cast(max(x, 0))``: rounding keeps signs, and the fixpipe and the vector unit do both."""
    if not isinstance(value.a, tirx.Cast) or not _is_zero(value.b):
        return value
    inside, wide, narrow = value.a.value, str(value.a.value.ty), str(value.a.ty)
    if not wide.startswith("float") or "float" not in narrow:
        return value
    return tirx.Cast(narrow, tirx.Max(inside, tirx.const(0, wide)))


def channels_last(sch: Any, result: Any, blocks: Sequence[Any] | None = None, columns: int | None = None) -> None:
    """Let all buffers of UB that are of the form of a result hold the channels of a position side by side, or those
    that some ``blocks`` write.

    Those may have the channels of whole blocks, and so many ``columns``: the result has the first ones.
    """
    shape = _shape(result)
    if len(shape) <= CHANNELS + 1:
        return
    last = lambda *axes: [*axes[:CHANNELS], *axes[CHANNELS + 1 :], axes[CHANNELS]]  # noqa: E731
    forms = [[*shape[:CHANNELS], *shape[CHANNELS + 1 : -1], width] for width in (shape[-1], columns or shape[-1])]
    for block in sch.get_child_blocks(sch.get_sblock("root")) if blocks is None else blocks:
        written = sch.get(block).writes[0].source
        extents = _shape(written)
        of_form = [*extents[:CHANNELS], *extents[CHANNELS + 1 :]] in forms
        if written.scope() == cube.UB and of_form and extents[CHANNELS] >= shape[CHANNELS]:
            sch.transform_layout(block, ("write", 0), tirx.IndexMap.from_func(last, ndim=len(shape)))


# ---- results that have fewer channels than all groups ------------------------------------------------------------


def with_all_channels(func: Any, name: str) -> Any | None:
    """The function whose stage ``name`` leaves nothing out, where its buffer has fewer elements than it has positions.

    The cube makes whole blocks of groups, and no instruction takes a part of them out of it.

        if g * 16 + o < 24: result[n, g * 16 + o, ..] = f(sums[n, g, .., o])      # 2 groups of 16
     -> all[n, g * 16 + o, ..] = f(sums[n, g, .., o]);  result[n, c, ..] = all[n, c, ..]     # c < 24

    A buffer that only the kernel sees becomes longer. None where two positions would be at the same place of it.
    """
    root = func.body.block
    found = next(one for one in realizes(root.body) if one.block.name_hint == name)
    if isinstance(found.predicate, tirx.IntImm):
        return func
    narrow, axes = found.block.body.buffer, {axis.var: int(axis.dom.extent) for axis in found.block.iter_vars}
    extents = _extents_of(found.block.body.indices, axes)
    if extents is None:
        return None

    def whole(one: Any) -> Any:
        return s_tir.SBlockRealize(one.iter_values, True, one.block) if one.block.name_hint == name else one

    of_stage = structural_map(func, (s_tir.SBlockRealize, whole))
    return in_wider_buffer(of_stage, narrow, extents)


def in_wider_buffer(func: Any, narrow: Any, extents: Sequence[int]) -> Any:
    """The function with a longer buffer in the place of one; where that is a parameter, its part is stored there."""
    root = func.body.block
    wide = tirx.decl_buffer(extents, str(narrow.dtype), f"{narrow.name}_all", layout=None)
    in_wide = (tirx.Var, lambda var: wide if var.same_as(narrow) else var)
    nests = [structural_map(nest, in_wide) for nest in root.body.seq]
    if any(narrow.same_as(parameter) for parameter in func.params):
        nests.append(_first_of(wide, narrow))
    inner = [buffer for buffer in root.alloc_buffers if not buffer.same_as(narrow)]
    made = s_tir.SBlock([], [], [], "root", tirx.SeqStmt(nests), alloc_buffers=[*inner, wide])
    return func.with_body(s_tir.SBlockRealize([], True, made))


def realizes(body: Any) -> list[Any]:
    found: list[Any] = []
    structural_walk(body, (s_tir.SBlockRealize, found.append))
    return found


def _extents_of(indices: Sequence[Any], axes: dict[Any, int]) -> list[int] | None:
    """Of a buffer with a place of its own for all positions of some axes; None where these would share places."""
    extents, seen = [], set[Any]()
    for index in indices:
        linear = [int(each) for each in detect_linear_equation(index, list(axes))]
        if not linear:
            return None
        *factors, rest = linear
        extent = rest + 1
        for factor, (axis, count) in sorted(zip(factors, axes.items(), strict=True), key=lambda pair: pair[0]):
            if not factor or count == 1:
                continue
            if axis in seen or factor < extent - rest:
                return None
            seen.add(axis)
            extent += factor * (count - 1)
        extents.append(extent)
    alone = all(axis in seen or count == 1 for axis, count in axes.items())
    return extents if alone else None


def _first_of(wide: Any, narrow: Any) -> Any:
    """The stage that stores the first elements of a buffer along each axis."""
    of_all = te.placeholder(_shape(wide), str(wide.dtype), "of_all")
    own = te.compute(_shape(narrow), lambda *i: of_all(*i), "own_channels")
    func = te.create_prim_func([of_all, own])
    buffers = dict(zip(func.params, (wide, narrow), strict=True))
    return structural_map(func.body.block.body, (tirx.Var, lambda var: buffers.get(var, var)))


# ---- what sums begin with ----------------------------------------------------------------------------------------


def started_with_bias(func: Any, chip: Chip) -> Any:
    """The function whose sums begin with the bias that its first stage adds, where the cube can begin so.

    It can where there is a table of it; where there is none, it can multiply ones with it, and does so where that pays.
    """
    sch = schedule_of(func)
    master = masters_of(sch)[0].block
    stages = cube.followers(sch, master)
    if not stages or not (begins_with_table(chip) or _can_multiply(sch, master, chip)):
        return func
    product, stage = sch.get(master), sch.get(stages[0])
    found: list[Any] = []

    def sum_alone(total: Any) -> Any:
        bias = _bias(total, product, stage, list(func.params))
        if bias is None:
            return total
        found.append(bias)
        return total.a

    alone = structural_map(stage.body, (tirx.Add, sum_alone))
    if len(found) != 1:
        return func
    own = [axis.var for axis in stage.iter_vars]
    index = substitute(found[0].indices[0], dict(zip(own, product.body.indices, strict=True)))
    (added,) = (region for region in stage.reads if region.source.same_as(found[0].source))
    init = tirx.BufferStore(product.body.buffer, tirx.BufferLoad(added.source, [index]), list(product.body.indices))
    region = tirx.BufferRegion(added.source, [ir.Range.from_min_extent(index, 1)])
    others = [region for region in stage.reads if not region.same_as(added)]
    begun = with_block(func, product, [*product.reads, region], product.body, init)
    begun = with_block(begun, stage, others, alone, None)
    return begun if begins_with_table(chip) or _pays_to_multiply(sch, begun, chip) else func


def begins_with_table(chip: Chip) -> bool:
    """Whether the cube reads what sums begin with from a table."""
    return cube.path(chip, "l1", "bt") and cube.path(chip, "ddr", "l1")


def _can_multiply(sch: Any, master: Any, chip: Chip) -> bool:
    """Whether what sums begin with can be a product of its own.

    Channels of a core begin with a block of them then, wherever they begin.
    """
    product = sch.get(master)
    factors = {cube.isa_dtype(operand.source) for operand in operands_of(product)}
    paths = (("ddr", "ub"), ("ub", "l1"), ("l1", "l0a"), ("l1", "l0b"))
    channels = int(product.iter_vars[len(product.body.indices) - 1].dom.extent)
    return factors == {"fp16"} and all(cube.path(chip, *each) for each in paths) and channels % FRACTAL == 0


def _pays_to_multiply(sch: Any, begun: Any, chip: Chip) -> bool:
    """Whether the vector unit would be busier without than the cube is with that product.

    Half as busy is enough where nothing is left for it then, since the fixpipe does the rest, and windows are single
    elements: what such short products make waits for whatever is behind them.
    """
    master, after = masters_of(sch)[0], schedule_of(begun)
    product = sch.get(master.block)
    extents = [int(axis.dom.extent) for axis in product.iter_vars]
    of_cube = prod(extents[len(product.body.indices) :]) / chip.macs_per_cycle("fp16")
    of_vector = epilogue_of(sch, master, joined=True).vector_bytes / chip.vector.bytes_per_cycle
    single = all(extents[axis] == 1 for axis in (KD, KH, KW))
    if single and not epilogue_of(after, masters_of(after)[0]).instructions:
        return of_vector * 2 >= of_cube
    return of_vector > of_cube + FRACTAL / chip.macs_per_cycle("fp16")


def _bias(total: Any, product: Any, stage: Any, parameters: Sequence[Any]) -> Any | None:
    """The load of the bias from a parameter, one element for each column of the product."""
    loads = (total.a, total.b)
    if not all(isinstance(load, ir.TensorLoad) for load in loads) or not total.a.source.same_as(product.body.buffer):
        return None
    added, axes = total.b, [axis.var for axis in stage.iter_vars]
    if not any(added.source.same_as(one) for one in parameters) or len(added.indices) != 1:
        return None
    in_order = all(i.same_as(v) for i, v in zip(total.a.indices, axes, strict=True))
    linear = detect_linear_equation(added.indices[0], axes)
    per_column = len(linear) == len(axes) + 1 and isinstance(linear[-2], tirx.IntImm) and int(linear[-2]) == 1
    return added if in_order and per_column and str(added.ty) == str(total.a.ty) else None


def bring_bias(sch: Any, master: Any, at_far: Any, at_near: Any, chip: Chip) -> None:
    """What sums begin with comes to L1 in every turn of a loop, and beside the cube in those of one in it."""
    beside, what = (BT, MARK) if begins_with_table(chip) else (cube.L0B, HALVES)
    far = sch.cache_read(master, BIAS, cube.L1)
    near = sch.cache_read(master, BIAS, beside)
    for copy, loop in ((near, at_near), (far, at_far)):
        sch.compute_at(copy, loop, preserve_unit_loops=True)
        cube.mark(sch, copy, loop, what)


def with_block(func: Any, block: Any, reads: Sequence[Any], body: Any, init: Any) -> Any:
    """The function with other contents of a block."""
    changed = block_with(block, reads=list(reads), body=body, init=init)
    return structural_map(func, (s_tir.SBlock, lambda one: changed if one.name_hint == block.name_hint else one))
