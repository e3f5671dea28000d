"""Which inputs a kernel's result may be written over: where each element is made of the one that lies there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tvm import ir, s_tir, tirx

from compiler.tir.structure import answered_once, structural_walk

REPLACED = "tw.replaced"  # attribute of a PrimFunc: pairs of parameters, a result and the input below it


def with_replaced(func: Any) -> Any:
    """The function, before any stage of it is cut, with what it says of itself."""
    return func.with_attr(REPLACED, [list(pair) for pair in replaced(func)])


def replaced_of(func: Any) -> list[tuple[int, int]]:
    pairs = func.attrs[REPLACED] if func.attrs is not None and REPLACED in func.attrs else ()
    return [(int(result), int(source)) for result, source in pairs]


@answered_once
def replaced(func: Any) -> list[tuple[int, int]]:
    """(result, input), both by the number of their parameters.

    1. They are alike: element type and shape.
    2. An element of the result is worked out from the element of the input at its own place, alone or with others'.
    """
    writers: dict[Any, list[Any]] = {}
    found: list[Any] = []
    structural_walk(func.body, (s_tir.SBlock, found.append))
    for block in found:
        if block.iter_vars:
            for region in block.writes:
                writers.setdefault(region.source, []).append(block)
    params = list(func.params)
    inputs = {param: number for number, param in enumerate(params) if param not in writers}
    pairs = []
    for number, param in enumerate(params):
        for source in _below(param, writers, inputs) if param in writers else ():
            alike = param.dtype == source.dtype and _shape(param) == _shape(source)  # (1)
            if alike and (number, inputs[source]) not in pairs:
                pairs.append((number, inputs[source]))
    return pairs


def _below(buffer: Any, writers: dict[Any, list[Any]], inputs: dict[Any, int]) -> Iterable[Any]:
    """Condition 2: the inputs at an element's own place, through stages that do nothing else."""
    blocks = writers.get(buffer, [])
    if len(blocks) != 1 or blocks[0].init is not None or not isinstance(blocks[0].body, tirx.BufferStore):
        return
    store, loads = blocks[0].body, list[Any]()
    if not all(isinstance(index, tirx.Var) for index in store.indices) or len(set(store.indices)) < len(store.indices):
        return
    structural_walk(store.value, (ir.TensorLoad, loads.append))
    for load in loads:
        if _shape(load.source) == _shape(buffer) and _is_there(load, store):
            if load.source in inputs:
                yield load.source
            else:
                yield from _below(load.source, writers, inputs)


def _is_there(load: Any, store: Any) -> bool:
    """Whether it is the element at the place of the one that is stored; along an axis of one element, that is zero."""
    places = zip(load.indices, store.indices, _shape(load.source), strict=True)
    return all(i.same_as(j) or (extent == 1 and isinstance(i, tirx.IntImm)) for i, j, extent in places)


def _shape(buffer: Any) -> list[int]:
    return [int(extent) for extent in buffer.shape]
