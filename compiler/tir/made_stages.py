"""Stages that take the place of others, or stand before them, written as TE writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import ir, s_tir, te, tirx

from compiler.tir.rewriter import substitute
from compiler.tir.structure import structural_map


def made_stage(buffer: Any, element: Callable[..., Any], summed: int = 0, name: str = "") -> Any:
    """The nest that fills a buffer, of elements by their indices; of sums over one more index where there is one."""
    given = dict[Any, Any]()

    def load(one: Any) -> Any:
        shape = [int(extent) for extent in one.source.shape]
        tensor = given.setdefault(one.source, te.placeholder(shape, str(one.source.dtype), one.source.name))
        return tensor(*one.indices)

    def value(*index: Any) -> Any:
        if not summed:
            return structural_map(element(*index), (ir.TensorLoad, load))
        depth = te.reduce_axis((0, summed), "k")
        return te.sum(structural_map(element(*index, depth.var), (ir.TensorLoad, load)), axis=depth)

    shape = [int(extent) for extent in buffer.shape]
    result = te.compute(shape, value, name or buffer.name)
    func = te.create_prim_func([*given.values(), result])
    buffers = dict(zip(func.params, (*given, buffer), strict=True))
    return structural_map(func.body.block.body, (tirx.Var, lambda var: buffers.get(var, var)))


def stages_of(func: Any) -> list[Any]:
    """The nests of a function of TE, one after another."""
    body = func.body.block.body
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]


def with_stages(func: Any, nests: list[Any], made: list[Any]) -> Any:
    """The function with other nests, and the buffers that these need as well; the same where there are none."""
    return with_nests(func, nests, [*func.body.block.alloc_buffers, *made]) if made else func


def with_nests(func: Any, nests: list[Any], buffers: list[Any]) -> Any:
    """The function with other nests, and all the buffers that these need besides its own."""
    body = tirx.SeqStmt(nests) if len(nests) > 1 else nests[0]
    inner = s_tir.SBlock([], [], [], "root", body, alloc_buffers=buffers)
    return func.with_body(s_tir.SBlockRealize([], True, inner))


def is_plain(block: Any) -> bool:
    """Whether each element that a block makes is a value of its own, stored where the axes say."""
    store = block.body
    if block.init is not None or not isinstance(store, tirx.BufferStore) or len(block.annotations):
        return False
    axes = [axis.var for axis in block.iter_vars]
    return len(axes) == len(store.indices) and all(i.same_as(v) for i, v in zip(store.indices, axes, strict=True))


def reading(block: Any, other: Mapping[Any, Any]) -> Any:
    """The nest of a plain block with something else in the place of loads, calls and choices."""
    axes = [axis.var for axis in block.iter_vars]
    kinds = [(kind, lambda node: other.get(node, node)) for kind in (ir.Call, tirx.Select, ir.TensorLoad)]
    value = structural_map(block.body.value, kinds)
    return made_stage(block.body.buffer, lambda *at: substitute(value, dict(zip(axes, at, strict=True))))


class Names:
    """Names of buffers, and of the blocks that make them, that a function does not have yet."""

    def __init__(self, func: Any) -> None:
        self._taken = {buffer.name for buffer in (*func.params, *func.body.block.alloc_buffers)}

    def free(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name
