"""The stages behind a product: as few as can be, and channels side by side for as long as they are near.

Sums of a convolution leave the cube with the channels of a position side by side, results stand in DDR channel by
channel. A store takes elements from wherever they lie in UB, so none has to be moved there. Sums leave it with all
channels of all groups, of which a result may have fewer: it is stored without the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir, s_tir, te, tirx
from tvm.s_tir import ScheduleError
from tvm.sym import detect_linear_equation

from compiler.tiling import cube
from compiler.tiling.blocks import block_facts
from compiler.tiling.masters import masters_of
from compiler.tiling.schedule import schedule_of
from compiler.tir.structure import structural_map, structural_walk

CHANNELS = 1  # which axis of a result these are


def merged(func: Any, *, moves: bool = True) -> Any:
    """The function with what follows its product in fewer stages; without ``moves``, only such as move nothing.

    The stage that takes the sums out writes them to where the stages behind it move them, cut off below zero where
    that is all that one of these does. Other stages read what another one moves where it was. A stage that adds what
    other tensors hold cuts off below zero, too: one instruction does both.
    """
    while (further := _merged_once(func, moves)) is not None:
        func = further
    sch = schedule_of(func)
    stages = cube.followers(sch, masters_of(sch)[0].block)
    for stage in stages[1:] if moves else ():
        facts = block_facts(sch.get(stage))
        if facts.copies and not facts.guarded and _has_one_reader(sch, stage):
            sch.compute_inline(stage)
    return structural_map(sch.mod["main"], (tirx.Max, _cast_late))


def _merged_once(func: Any, moves: bool) -> Any | None:
    """The function with one stage less; None where there is none that can be a part of another."""
    sch = schedule_of(func)
    stages = cube.followers(sch, masters_of(sch)[0].block)
    stage = _merged_next(sch, stages, moves)
    if stage is None:
        return None
    try:
        sch.reverse_compute_inline(stage)
    except ScheduleError:
        return None
    return with_all_channels(sch.mod["main"], str(sch.get(stages[0]).name_hint))


def _merged_next(sch: Any, stages: Sequence[Any], moves: bool) -> Any | None:
    """A stage that can be a part of the one that it reads."""
    if len(stages) > 1 and _has_one_reader(sch, stages[0]) and _is_merged(sch, stages[1]) and not _cuts(sch, stages[1]):
        if moves or _in_order(sch.get(stages[1]).body):
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


def _in_order(store: Any) -> bool:
    """Whether a stage stores what it reads where it read it."""
    loads: list[Any] = []
    structural_walk(store.value, (ir.TensorLoad, loads.append))
    return all(
        len(load.indices) == len(store.indices)
        and all(i.same_as(j) for i, j in zip(load.indices, store.indices, strict=True))
        for load in loads
    )


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
