"""TopK: the best of each block of a row in order, of these again, and so on until one block is left.

Sorting takes more for each element the longer a block is, but of short ones more candidates are left, and each round
is a kernel. Blocks of a round go to different cores.
"""

from __future__ import annotations

from functools import cache
from math import inf

import numpy as np

from compiler.operators import refusals
from compiler.operators.axes import existing_axis
from compiler.operators.broadcast import shape_of
from compiler.operators.graph import Graph, Value
from compiler.operators.registry import composition
from compiler.operators.signature import Constant, only

# Up to so many elements the sort merges as often, four runs into one: from runs of 32.
BLOCKS = (128, 512, 2048, 8192)
MOST_SORTED = BLOCKS[-1]  # at once: UB holds them with their places
_LEFT = 0.9  # of the elements, that a round may leave
# What a choice of blocks is compared by, near those of tw1 and tw2: measured cycles of a kernel without work, and
# elements that the vector unit works on at once.
_CORES, _KERNEL_CYCLES, _LANES = 20, 1000, 48
_SORT_CYCLES, _MERGE_CYCLES = 16, 78  # of as many elements


@composition("TopK")
def top_k(
    graph: Graph, x: Value, k: Constant, *, axis: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Value, Value]:
    """The ``k`` largest (or smallest) along ``axis`` in order, and their indices; the first of equal ones first."""
    axis = existing_axis(axis, len(shape_of(x)))
    extent, count = shape_of(x)[axis], int(only("k", k))
    if not 0 < count <= extent:
        raise refusals.wrong_value(f"must be 1 to {extent}, the extent of axis {axis}", "k", count)
    if count == 1:
        best, place = ("ReduceMax", "ArgMax") if largest else ("ReduceMin", "ArgMin")
        return graph.call(best, x, np.array([axis]), keepdims=True), graph.call(place, x, axis=axis, keepdims=True)
    if block_of(extent, count) is None:
        values, indices = graph.call("tilewright::TopKByLoops", x, k=count, axis=axis, largest=largest)
        return values, indices
    last = len(shape_of(x)) - 1
    perm = (*(other for other in range(last + 1) if other != axis), axis)
    turned = x if axis == last else graph.call("Transpose", x, perm=perm)
    rows = graph.call("Reshape", turned, np.array([-1, extent]))
    found = [
        graph.call("Reshape", each, np.array([*shape_of(turned)[:-1], count]))
        for each in _best(graph, rows, None, count, largest)
    ]
    if axis != last:
        found = [graph.call("Transpose", each, perm=tuple(map(perm.index, range(last + 1)))) for each in found]
    values, indices = found
    return values, indices


def _best(graph: Graph, x: Value, places: Value | None, k: int, largest: bool) -> tuple[Value, Value]:
    """Of rows, of whose elements ``places`` says where they were."""
    block = block_of(shape_of(x)[1], k)
    values, indices = graph.call("tilewright::BestOfBlocks", x, places, block=block, k=k, largest=largest)
    return (values, indices) if shape_of(values)[1] == k else _best(graph, values, indices, k, largest)


def block_of(length: int, k: int) -> int | None:
    """The elements of each block but the last, which has ``k`` at least; None where no blocks leave fewer elements."""
    return _cheapest(length, k)[1]


@cache
def _cheapest(length: int, k: int) -> tuple[float, int | None]:
    """The cycles of all rounds, and the block of the first."""
    found: list[tuple[float, int | None]] = [(inf, None)]
    if length <= MOST_SORTED:
        found = [(_KERNEL_CYCLES + _sort_cycles(length), length)]
    for most in BLOCKS:
        count = -(-length // most)
        block = -(-length // count)
        if count > 1 and count * k <= length * _LEFT and length - (count - 1) * block >= k:
            rest, further = _cheapest(count * k, k)
            if further is not None:
                found.append((_KERNEL_CYCLES + -(-count // _CORES) * _sort_cycles(block) + rest, block))
    return min(found, key=lambda one: one[0])


def _sort_cycles(length: int) -> float:
    merges = next((number for number, most in enumerate((32, *BLOCKS)) if length <= most), len(BLOCKS))
    return -(-length // _LANES) * (_SORT_CYCLES + merges * _MERGE_CYCLES)
