"""Sorting along the rows. Values travel with int32 indices; equal values keep their order; NaN comes last.

``vsort32`` and the merges are the steps of the hardware's merge sort: sort groups of 32, then merge runs. A merge
of runs that are not sorted gives what sorting the whole row gives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.isa.dtypes import NUMBERS, Queue
from compiler.isa.model import RANK, Args, Int, Modifier, Operand, Row, Shape, Tensor, Timing, dtype_modifier
from compiler.isa.table import vector_costs as cost
from compiler.isa.table.rules import (
    VECTOR_RULES,
    destinations_apart,
    inner_extent_is_multiple_of_2,
    inner_extent_is_multiple_of_4,
    inner_extent_is_multiple_of_32,
    k_is_at_most_n0,
)
from compiler.isa.table.vector_operands import elements
from compiler.isa.timing import vector_timing

ORDER = Modifier("order", ("asc", "desc"))


def _ranking(args: Args, a: Any) -> Any:
    """The stable order of the last axis. Both ways of reversing map NaN to NaN and equals to equals."""
    if args.order == "desc":
        a = -a if a.dtype.kind == "f" else ~a
    return np.argsort(a, axis=-1, kind="stable")


def _sorted(args: Args, a: Any) -> Any:
    order = _ranking(args, a)
    return np.take_along_axis(a, order, axis=-1), order


def _pairs_sorted(args: Args, a: Any, index: Any) -> Any:
    order = _ranking(args, a)
    return np.take_along_axis(a, order, axis=-1), np.take_along_axis(index, order, axis=-1)


def _groups_sorted(args: Args, a: Any, index: Any) -> Any:
    grouped = (*args.shape[:-1], args.n0 // 32, 32)
    values, order = _pairs_sorted(args, a.reshape(grouped), index.reshape(grouped))
    return values.reshape(args.shape), order.reshape(args.shape)


def _best(args: Args, a: Any) -> Any:
    order = _ranking(args, a)[..., : args.k]
    return np.take_along_axis(a, order, axis=-1), order


def _merge_passes(length: int) -> int:
    """How often four runs become one, from runs of 32 to one run."""
    passes, run = 0, 32
    while run < length:
        passes, run = passes + 1, run * 4
    return passes


def _sort_timing(args: Args) -> Timing:
    return vector_timing(args, cost.SORT32 + cost.MERGE * _merge_passes(args.n0), lanes=elements(args))


def _sort(
    opcode: int,
    mnemonic: str,
    function: Callable[..., Any],
    doc: str,
    operands: tuple[Operand, ...],
    timing: Callable[[Args], Timing],
    rule: Callable[[Any], bool] | None = None,
) -> Row:
    return Row(
        opcode,
        mnemonic,
        Queue.V,
        doc,
        operands=(*operands, Shape()),
        modifiers=(dtype_modifier(*NUMBERS), ORDER, RANK),
        rules=(*VECTOR_RULES, destinations_apart, *((rule,) if rule else ())),
        semantics=function,
        timing=timing,
    )


def _step(cycles: int) -> Callable[[Args], Timing]:
    return lambda args: vector_timing(args, cycles, lanes=elements(args))


def _chosen(args: Any) -> tuple[int, ...]:
    return (*args.shape[:-1], args.k)


_RESULTS = (Tensor("dst", "w"), Tensor("dst_index", "w", dtype="int32"))
_PAIRS = (*_RESULTS, Tensor("a", "r"), Tensor("a_index", "r", dtype="int32"))

ROWS = [
    _sort(
        896, "vsort", _sorted, "dst = each row of a sorted; dst_index = where its elements were",
        (*_RESULTS, Tensor("a", "r")), _sort_timing,
    ),
    _sort(
        897, "vsortpairs", _pairs_sorted, "dst = each row of a sorted; dst_index = a_index in the same order",
        _PAIRS, _sort_timing,
    ),
    _sort(
        898, "vsort32", _groups_sorted, "each group of 32 elements of a row sorted, with its indices",
        _PAIRS, _step(cost.SORT32), inner_extent_is_multiple_of_32,
    ),
    _sort(
        899, "vmrgsort2", _pairs_sorted, "dst = the two sorted halves of each row merged, with their indices",
        _PAIRS, _step(cost.MERGE // 2), inner_extent_is_multiple_of_2,
    ),
    _sort(
        900, "vmrgsort4", _pairs_sorted, "dst = the four sorted quarters of each row merged, with their indices",
        _PAIRS, _step(cost.MERGE), inner_extent_is_multiple_of_4,
    ),
    _sort(
        901, "vtopk", _best, "dst = the first k of each row sorted (.desc: the k largest); dst_index = where they were",
        (
            Tensor("dst", "w", extents=_chosen),
            Tensor("dst_index", "w", dtype="int32", extents=_chosen),
            Tensor("a", "r"),
            Int("k", 1, 65535),
        ),
        _sort_timing, k_is_at_most_n0,
    ),
]  # fmt: skip
