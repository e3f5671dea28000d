"""One kernel from a group of operators: their stages one after another, over buffers that only the kernel sees.

What only moves elements to where another stage reads them is no stage: that one reads them where they were. Nor is what
one stage behind a product makes for one other of the same shape: a chain of them is one value, of which emission knows
more than of its parts (`x * sigmoid(x)` is one instruction, a GELU in parts is four passes more).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tvm import s_tir, tirx

from compiler import graph
from compiler.parts import MOVES
from compiler.tiling.blocks import block_facts
from compiler.tiling.factors import scaled_behind
from compiler.tiling.schedule import schedule_of
from compiler.tir.products import is_product
from compiler.tir.replaced import replaced
from compiler.tir.sblocks import block_with, distinct
from compiler.tir.structure import structural_map

MOST_FUSED = 1 << 12  # of which is remembered what was made

_MADE: dict[Any, tuple[Sequence[Any], Any]] = {}  # functions of a group, which stay alive, and the one made of them


def fuse(module: Any, group: Any) -> Any:
    """The PrimFunc of a group (a Relax function of calls of PrimFuncs): its parameters are the inputs, then results.

    Groups that are alike have the same one.
    """
    body = graph.read(group)
    functions = [module[call.callee] for call in body.calls]
    key = _likeness(body, functions)
    if key not in _MADE:
        if len(_MADE) == MOST_FUSED:
            _MADE.clear()
        _MADE[key] = functions, _fused(body, functions)
    return _MADE[key][1]


def _likeness(body: graph.Body, functions: Sequence[Any]) -> Any:
    """Equal for groups of the same functions, called alike; functions are known by their address."""
    number = {value: at for at, value in enumerate((*body.params, *(call.var for call in body.calls)))}
    calls = (
        (hash(function), *(number[argument] for argument in call.arguments), *map(_kind, call.types))
        for function, call in zip(functions, body.calls, strict=True)
    )
    # A tuple of results is none that a call makes.
    results = tuple(number.get(result, -1) for result in body.results)
    return tuple(_kind(param.ty) for param in body.params), tuple(calls), results


def _kind(kind: Any) -> tuple[str, tuple[int, ...]]:
    return str(kind.dtype), graph.extents_of(kind)


def _fused(body: graph.Body, functions: Sequence[Any]) -> Any:
    if len(body.calls) == 1 and len(body.calls[0].arguments) == len(body.params):
        return s_tir.renew_defs(functions[0])
    buffers = {param: _buffer(param, f"p{index}") for index, param in enumerate(body.params)}
    results: list[Any] = []
    inner: list[Any] = []
    statements = []
    names = dict[str, int]()
    moved, values, last = set[str](), set[str](), ""
    for call, callee in zip(body.calls, functions, strict=True):
        made = [_declare(kind, f"t{len(buffers) + k}") for k, kind in enumerate(call.types)]
        is_result = any(call.var.same_as(result) for result in body.results)
        (results if is_result else inner).extend(made)
        buffers[call.var] = made[0]
        kind = graph.attribute(callee, "tw.schedule")
        if kind in MOVES and is_result:
            last = made[0].name
        elif not is_result and (kind in MOVES or kind == "elementwise"):
            (moved if kind in MOVES else values).add(made[0].name)
        function = s_tir.renew_defs(callee)
        arguments = [*(buffers[argument] for argument in call.arguments), *made]
        if len(arguments) != len(function.params):
            raise ValueError(f"{call.callee} takes {len(function.params)} buffers, not {len(arguments)}")
        replaced = dict(zip(function.params, arguments, strict=True))
        realize = structural_map(function.body, (tirx.Var, lambda var, r=replaced: r.get(var, var)))
        inner.extend(realize.block.alloc_buffers)
        statements.append(renamed(realize.block.body, names))
    flat = [one for s in statements for one in (s.seq if isinstance(s, tirx.SeqStmt) else [s])]
    root = s_tir.SBlock([], [], [], "root", tirx.SeqStmt(flat) if len(flat) > 1 else flat[0], alloc_buffers=inner)
    params = [*(buffers[param] for param in body.params), *results]
    fused = tirx.PrimFunc(params, s_tir.SBlockRealize([], True, root))
    attributes = functions[0].attrs.items()
    fused = fused.with_attrs({key: value for key, value in attributes if not key.startswith("tw.")})
    fused = scaled_behind(fused)
    if moved or last:
        fused = _read_in_place(fused, moved, last)
    return _chained(fused, values) if values else fused


def replaced_by(module: Any, callee: Any) -> list[tuple[int, int]]:
    """Of what a call of main is given and makes, in this order: (result, input) of which the one may be written over
    the other, as far as is seen before there is a kernel.
    """
    function = module[callee]
    return replaced(function if isinstance(function, tirx.PrimFunc) else fuse(module, function))


def _read_in_place(func: Any, moved: set[str], last: str) -> Any:
    """The function without the stages that fill the buffers of these names, or the last one: that which is read by them
    is stored there."""
    sch = schedule_of(func)
    for block in sch.get_child_blocks(sch.get_sblock("root")):
        name = sch.get(block).writes[0].source.name
        if name in moved:
            sch.compute_inline(block)
        elif name == last and sch.get_producers(block):
            with suppress(s_tir.ScheduleError):  # of a sum: it is moved by a stage of its own
                sch.reverse_compute_inline(block)
    return sch.mod["main"]


def _chained(func: Any, values: set[str]) -> Any:
    """The function of a product without the stages that fill the buffers of these names for one other stage only.

    1. The other one computes element by element and is of the same shape, so nothing is computed twice.
    2. None of what the stage reads is a product: what takes that out of the matrix unit stands alone.
    """
    sch = schedule_of(func)
    blocks = sch.get_child_blocks(sch.get_sblock("root"))
    products = {sch.get(block).writes[0].source.name for block in blocks if is_product(sch.get(block))}
    for block in blocks if products else ():
        facts, readers = block_facts(sch.get(block)), sch.get_consumers(block)
        if facts.writes[0].name not in values or facts.guarded or facts.copies or facts.dynamic_reads:
            continue
        if len(readers) != 1 or any(buffer.name in products for buffer in facts.reads):  # (2)
            continue
        reader = block_facts(sch.get(readers[0]))
        if reader.writes[0].shape == facts.writes[0].shape and not (reader.reduced or reader.guarded or reader.copies):
            sch.compute_inline(block)
    return sch.mod["main"]


def _buffer(value: Any, name: str) -> Any:
    return tirx.decl_buffer(graph.shape_of(value), graph.dtype_of(value), name, layout=None)


def _declare(kind: Any, name: str) -> Any:
    return tirx.decl_buffer(graph.extents_of(kind), str(kind.dtype), name, layout=None)


def renamed(statement: Any, names: dict[str, int]) -> Any:
    """Blocks of one kernel need names of their own: schedules find them by name, and what one reads by its buffer."""

    def unique(block: Any) -> Any:
        count = names.get(block.name_hint, 0)
        names[block.name_hint] = count + 1
        reads = distinct(block.reads)
        if not count and len(reads) == len(block.reads):
            return block
        name = f"{block.name_hint}_{count}" if count else block.name_hint
        return block_with(block, reads=reads, name_hint=name)

    return structural_map(statement, (s_tir.SBlock, unique))
