"""Sums that are scaled on their way out of L0C: nothing of it is left to the vector unit.

    c[m, n] += a[m, k] * b[k, n];  t[m, n] = c[m, n];  result[m, n] = saturate(round(cast(t[m, n]) * scale[n]) + z)
 -> c[m, n] += a[m, k] * b[k, n];  result[m, n] = saturate(round(cast(c[m, n]) * scale[n]) + z)      # the fixpipe

One scale is an operand of its instruction; where there is one for each column, they lie in a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import ir, s_tir, tirx
from tvm.s_tir import ScheduleError
from tvm_ffi import structural_equal

from compiler.emission.cube.bias import BIAS
from compiler.emission.cube.results import SCALED, Taken
from compiler.emission.terms import term_of
from compiler.target import Chip
from compiler.tiling import cube
from compiler.tiling.blocks import block_facts
from compiler.tiling.convolution_stages import with_all_channels
from compiler.tiling.masters import masters_of
from compiler.tiling.schedule import schedule_of
from compiler.tir.rewriter import substitute
from compiler.tir.sblocks import block_with, distinct, point
from compiler.tir.scopes import ISA_DTYPE
from compiler.tir.structure import structural_map, structural_walk

FB = "local.fb"
SCALE_BYTES = 4  # of an element of the table


@dataclass(frozen=True)
class _Place:
    """What a stage reads, as the fixpipe sees it."""

    memory: str
    load: Any


def scaled_on_the_way(func: Any, chip: Chip) -> Any:
    """The function whose sums of integers are scaled by the stage that takes them out, where the fixpipe can do that:
    all that the stage behind does, or that part of it which is done first.
    """
    sch = schedule_of(func)
    master = masters_of(sch)[0].block
    readers = sch.get_consumers(master)
    if str(sch.get(master).writes[0].source.dtype) != "int32" or len(readers) != 1:
        return func
    found = _marked(func, chip)
    if found is None and block_facts(sch.get(readers[0])).copies and len(sch.get_consumers(readers[0])) == 1:
        found = _all_of_the_next(func, chip) or _first_of_the_next(func, chip)
    return found or func


def _all_of_the_next(func: Any, chip: Chip) -> Any | None:
    """The function whose sums are taken out by the stage behind the one that takes them out."""
    sch = schedule_of(func)
    taken = sch.get_consumers(masters_of(sch)[0].block)[0]
    name = str(sch.get(taken).name_hint)
    try:
        sch.reverse_compute_inline(sch.get_consumers(taken)[0])
    except ScheduleError:
        return None
    whole = with_all_channels(sch.mod["main"], name)
    return None if whole is None else _marked(whole, chip)


def _first_of_the_next(func: Any, chip: Chip) -> Any | None:
    """The function whose sums are scaled where they are taken out, and not by the stage behind."""
    sch = schedule_of(func)
    taken = sch.get(sch.get_consumers(masters_of(sch)[0].block)[0])
    behind = sch.get(sch.get_consumers(sch.get_sblock(taken.name_hint))[0])
    part = _scaled_part(behind, taken.body.buffer)
    if part is None:
        return None
    loads = _loads_of(part, taken.body.buffer)
    places = dict(zip(loads[0].indices, taken.body.indices, strict=True))
    if not all(isinstance(index, tirx.Var | tirx.IntImm) for index in places):
        return None
    made = tirx.decl_buffer(taken.body.buffer.shape, str(part.ty), f"{taken.body.buffer.name}_scaled", layout=None)
    value = structural_map(part, (ir.TensorLoad, lambda one: taken.body.value if one in loads else one))
    value = substitute(value, {index: place for index, place in places.items() if isinstance(index, tirx.Var)})

    def rest(node: Any) -> Any:
        return tirx.BufferLoad(made, list(loads[0].indices)) if structural_equal(node, part) else node

    body = structural_map(behind.body, (type(part), rest))
    scales = [load for load in _all_loads(value) if load.source not in {one.source for one in _all_loads(taken.body)}]
    reads = [*taken.reads, *distinct(point(load.source, load.indices) for load in scales)]
    changed = {
        taken.name_hint: block_with(
            taken,
            reads=reads,
            writes=[tirx.BufferRegion(made, taken.writes[0].region)],
            body=tirx.BufferStore(made, value, list(taken.body.indices)),
        ),
        behind.name_hint: block_with(
            behind, reads=distinct(point(load.source, load.indices) for load in _all_loads(body.value)), body=body
        ),
    }
    narrow = taken.body.buffer
    func = structural_map(func, (s_tir.SBlock, lambda one: changed.get(one.name_hint, one)))
    func = structural_map(func, (tirx.Var, lambda var: made if var.same_as(narrow) else var))
    return None if _loads_of(body, narrow) else _marked(func, chip)


def _scaled_part(block: Any, sums: Any) -> Any | None:
    """The largest part of what a block computes that the fixpipe makes of sums."""
    found: list[Any] = []

    def look(node: Any) -> None:
        if not found and _scale_of(node, sums) is not None:
            found.append(node)

    structural_walk(block.body.value, ((tirx.Cast, tirx.Mul), look), order="pre")
    return found[0] if found else None


def _loads_of(node: Any, buffer: Any) -> list[Any]:
    return [load for load in _all_loads(node) if load.source.same_as(buffer)]


def _all_loads(node: Any) -> list[Any]:
    found: list[Any] = []
    structural_walk(node, (ir.TensorLoad, found.append))
    return found


def _scale_of(value: Any, sums: Any) -> Taken | None:
    """What the fixpipe does to sums, if a value is that and they are scaled."""

    def place(load: Any) -> _Place:
        return _Place("l0c" if load.source.same_as(sums) else "fb", load)

    found = Taken.of(term_of(value, frozenset(), place)) if ISA_DTYPE.get(str(value.ty)) in SCALED else None
    return None if found is None or found.scale is None else found


def _marked(func: Any, chip: Chip) -> Any | None:
    """The function whose first stage behind its product is marked as work of the fixpipe; None where it is not."""
    sch = schedule_of(func)
    master = masters_of(sch)[0].block
    stage = sch.get(sch.get_consumers(master)[0])
    if not isinstance(stage.body, tirx.BufferStore):
        return None
    found = _scale_of(stage.body.value, sch.get(master).writes[0].source)
    if found is None or not cube.takes_all(stage, found.source.load):
        return None
    if isinstance(found.scale, _Place):
        scales = found.scale.load
        is_known = any(scales.source.same_as(parameter) for parameter in func.params)
        if not (is_known and chip.scales_columns and _is_by_column(scales, found.source.load)):
            return None
    changed = block_with(stage, annotations={**stage.annotations, cube.FIXPIPE: True})
    return structural_map(func, (s_tir.SBlock, lambda one: changed if one.name_hint == stage.name_hint else one))


def _is_by_column(scales: Any, sums: Any) -> bool:
    """Whether scales move with the columns of the sums alone, one after the other."""
    moving = [index for index in scales.indices if not isinstance(index, tirx.IntImm)]
    return len(moving) == 1 and bool(moving[0].same_as(sums.indices[-1]))


def scale_bytes(sch: Any, master: Any) -> int:
    """Of the scale of a column; none where there is one for all."""
    return 0 if _scales_of(sch, sch.get_consumers(master)) is None else SCALE_BYTES


def _scales_of(sch: Any, readers: Any) -> int | None:
    """Which read of the stage that takes sums out is that of scales."""
    stage = sch.get(readers[0]) if len(readers) == 1 else None
    if stage is None or cube.FIXPIPE not in stage.annotations:
        return None
    parameters = list(sch.mod["main"].params)
    known = [at for at, read in enumerate(stage.reads) if any(read.source.same_as(one) for one in parameters)]
    return known[0] if known else None


def bring_scales(sch: Any, taken: Any, at_far: Any, at_near: Any) -> None:
    """Scales come to L1 in every turn of a loop, and to their table in those of one in it."""
    index = _scales_of(sch, [taken])
    far = sch.cache_read(taken, index, cube.L1)
    near = sch.cache_read(taken, index, FB)
    for copy, loop in ((near, at_near), (far, at_far)):
        sch.compute_at(copy, loop, preserve_unit_loops=True)
        cube.mark(sch, copy, loop, BIAS)
