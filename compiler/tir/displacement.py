"""Functions that only say where something lies: how far each element of the result is from where it was."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tvm import ir, tirx

from compiler.tir.structure import structural_walk


def copies_in_order(func: Any) -> bool:
    """Whether the bytes of the result are those of the only input."""
    if len(func.params) != 2:
        return False
    source, result = func.params
    elements = [prod(int(extent) for extent in each.shape) for each in (source, result)]
    return source.dtype == result.dtype and elements[0] == elements[1] > 0 and displacement(func) == 0


def displacement(func: Any) -> int | None:
    """Of a function that reads one element for each of its result: how far behind these they all are."""
    stores: list[Any] = []
    structural_walk(func.body, (tirx.BufferStore, stores.append))
    if len(stores) != 1 or not isinstance(stores[0].value, ir.TensorLoad):
        return None
    source, result, store = func.params[0].shape, func.params[-1].shape, stores[0]
    still = [index for index, extent in zip(store.indices, result, strict=True) if int(extent) == 1]
    read, written = terms(store.value.indices, source, still), terms(store.indices, result, still)
    if read is None or written is None or read[0] != written[0]:
        return None
    return read[1] - written[1]


def terms(indices: Sequence[Any], shape: Sequence[Any], still: Sequence[Any]) -> tuple[dict[Any, int], int] | None:
    """An address in elements: how far each variable moves it, and where it starts; None where it is no sum of these.

    Variables that are ``still`` are zero.
    """
    factors, start, stride = dict[Any, int](), 0, 1
    for index, extent in zip(reversed(list(indices)), reversed(list(shape)), strict=True):
        waiting = [index]
        while waiting:
            term = waiting.pop()
            if isinstance(term, tirx.Add):
                waiting += [term.a, term.b]
            elif isinstance(term, tirx.IntImm):
                start += int(term) * stride
            elif isinstance(term, tirx.Var):
                if not any(term.same_as(other) for other in still):
                    factors[term] = factors.get(term, 0) + stride
            else:
                return None
        stride *= int(extent)
    return factors, start
