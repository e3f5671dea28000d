"""Vector instructions that address by data: gather, scatter, packing by mask, tables, histograms.

Indices are int32 and count elements or rows of a table whose length is an operand, so that what may be touched is
known before the data is. An index outside the table reads zero, and writes nothing. Elements are taken in row-major
order: where a scatter meets the same place twice, the last one stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.isa.dtypes import NUMBERS, Queue
from compiler.isa.model import RANK, Args, Int, Modifier, Operand, Row, Shape, Tensor, dtype_modifier
from compiler.isa.table import vector_costs as cost
from compiler.isa.table.rules import (
    MOVE_RULES,
    destinations_apart,
    sources_apart_from_destinations,
)
from compiler.isa.table.vector_numerics import truth
from compiler.isa.table.vector_operands import MOVABLE, ONLY_2D, elements, per_row
from compiler.isa.timing import vector_timing


def _by_data(
    opcode: int,
    mnemonic: str,
    function: Callable[..., Any],
    doc: str,
    operands: tuple[Operand, ...],
    dtypes: tuple[Modifier, ...] = (dtype_modifier(*MOVABLE),),
    rank: Modifier = RANK,
    rules: tuple[Callable[[Any], bool], ...] = MOVE_RULES,
    cycles: int = cost.GATHER,
    raw: bool = True,
) -> Row:
    """``dst = function(args, *inputs)``; the cost follows the elements of the iteration shape, not the table's."""
    return Row(
        opcode,
        mnemonic,
        Queue.V,
        doc,
        operands=(*operands, Shape()),
        modifiers=(*dtypes, rank),
        rules=rules,
        semantics=function,
        raw=raw,
        timing=lambda args: vector_timing(args, cycles, lanes=elements(args)),
    )


# ---- tables -----------------------------------------------------------------------------------------------


def _whole_table(args: Any) -> tuple[int, ...]:
    return (args.table_elems,)


def _table_of_rows(args: Any) -> tuple[int, ...]:
    return (args.table_rows, args.n0)


def _table_per_row(args: Any) -> tuple[int, ...]:
    return (*args.shape[:-1], args.table_elems)


def _inside(index: Any, length: int) -> Any:
    return (index >= 0) & (index < length)


def _gathered(args: Args, table: Any, index: Any) -> Any:
    inside = _inside(index, table.shape[0])
    values = table[np.where(inside, index, 0)]
    values[~inside] = 0
    return values


def _gathered_per_row(args: Args, table: Any, index: Any) -> Any:
    inside = _inside(index, table.shape[-1])
    values = np.take_along_axis(table, np.where(inside, index, 0), axis=-1)
    values[~inside] = 0
    return values


def _winners(index: Any, length: int) -> tuple[Any, Any]:
    """(places that are written, the position of the last index that names each)."""
    last = np.full(length, -1, np.int64)
    positions = np.flatnonzero(_inside(index, length))
    np.maximum.at(last, index[positions], positions)
    places = np.flatnonzero(last >= 0)
    return places, last[places]


def _scattered(args: Args, dst: Any, a: Any, index: Any) -> Any:
    places, positions = _winners(index.reshape(-1), dst.shape[0])
    result = dst.copy()
    result[places] = a.reshape(-1)[positions]
    return result


def _scattered_rows(args: Args, dst: Any, a: Any, index: Any) -> Any:
    places, positions = _winners(index, dst.shape[0])
    result = dst.copy()
    result[places] = a[positions]
    return result


def _combined(combine: np.ufunc) -> Callable[..., Any]:
    def semantics(args: Args, dst: Any, a: Any, index: Any) -> Any:
        index, values, result = index.reshape(-1), a.reshape(-1), dst.copy()
        inside = _inside(index, dst.shape[0])
        combine.at(result, index[inside], values[inside])
        return result

    return semantics


def _added_rows(args: Args, dst: Any, a: Any, index: Any) -> Any:
    inside = _inside(index, dst.shape[0])
    places = index[inside].astype(np.int64)[:, None] * args.n0 + np.arange(args.n0)
    result = np.ascontiguousarray(dst).reshape(-1).copy()
    np.add.at(result, places.reshape(-1), a[inside].reshape(-1))
    return result.reshape(dst.shape)


# ---- masks ------------------------------------------------------------------------------------------------


def _true_first(mask: Any) -> tuple[Any, Any]:
    """(for each row the positions of true elements, then of the others; how many are true)."""
    return np.argsort(~mask, axis=-1, kind="stable"), mask.sum(axis=-1)


def _compressed(args: Args, a: Any, mask: Any) -> Any:
    order, count = _true_first(truth(mask))
    packed = np.take_along_axis(a, order, axis=-1)
    packed[np.arange(args.n0) >= count[..., None]] = 0
    return packed, count


def _nonzero(args: Args, mask: Any) -> Any:
    order, count = _true_first(truth(mask))
    return np.where(np.arange(args.n0) < count[..., None], order, -1), count


def _expanded(args: Args, a: Any, mask: Any) -> Any:
    chosen = truth(mask)
    spread = np.take_along_axis(a, np.maximum(np.cumsum(chosen, axis=-1) - 1, 0), axis=-1)
    spread[~chosen] = 0
    return spread


# ---- codes ------------------------------------------------------------------------------------------------


def _looked_up(args: Args, table: Any, a: Any) -> Any:
    return table[a.astype(np.uint8)]


def _bins(args: Any) -> tuple[int, ...]:
    return (args.bins,)


def _histogram(args: Args, dst: Any, a: Any) -> Any:
    codes = a.reshape(-1)
    inside = _inside(codes, args.bins)
    return dst + np.bincount(codes[inside], minlength=args.bins).astype(np.int32)


_TABLE_ELEMS, _TABLE_ROWS = Int("table_elems", 1, 2**20), Int("table_rows", 1, 65535)
_INDEX = Tensor("index", "r", dtype="int32")
_ROW_INDEX = per_row("index", "r", "int32")
_TABLE = Tensor("table", "r", extents=_whole_table, strides="dense")
_TABLE_DST = Tensor("dst", "rw", extents=_whole_table, strides="dense")
_ROWS_DST = Tensor("dst", "rw", extents=_table_of_rows)
_MASK = Tensor("mask", "r", dtype="bool")
_COUNT = per_row("count", "w", "int32")
_NUMERIC = (dtype_modifier(*NUMBERS),)
_DENSE_RULES = (sources_apart_from_destinations,)
_PACK_RULES = (*MOVE_RULES, destinations_apart)

ROWS = [
    # ---- gather
    _by_data(
        832, "vgather", _gathered, "dst = table[index]", (Tensor("dst", "w"), _TABLE, _INDEX, _TABLE_ELEMS),
    ),
    _by_data(
        833, "vgatherlane", _gathered_per_row, "dst[i, j] = table[i, index[i, j]]: each row has its own table",
        (Tensor("dst", "w"), Tensor("table", "r", extents=_table_per_row), _INDEX, _TABLE_ELEMS),
    ),
    _by_data(
        834, "vgatherrow", _gathered, "dst[i, :] = table[index[i], :]",
        (Tensor("dst", "w"), Tensor("table", "r", extents=_table_of_rows), _ROW_INDEX, _TABLE_ROWS), rank=ONLY_2D,
        cycles=cost.SIMPLE,
    ),
    # ---- scatter
    _by_data(
        840, "vscatter", _scattered, "dst[index] = a; other elements stay",
        (_TABLE_DST, Tensor("a", "r"), _INDEX, _TABLE_ELEMS), rules=_DENSE_RULES,
    ),
    _by_data(
        841, "vscatteradd", _combined(np.add), "dst[index] = dst[index] + a, one after the other; integers wrap",
        (_TABLE_DST, Tensor("a", "r"), _INDEX, _TABLE_ELEMS), _NUMERIC, rules=_DENSE_RULES, raw=False,
    ),
    _by_data(
        842, "vscattermax", _combined(np.maximum), "dst[index] = the greater of dst[index] and a",
        (_TABLE_DST, Tensor("a", "r"), _INDEX, _TABLE_ELEMS), _NUMERIC, rules=_DENSE_RULES, raw=False,
    ),
    _by_data(
        843, "vscattermin", _combined(np.minimum), "dst[index] = the lesser of dst[index] and a",
        (_TABLE_DST, Tensor("a", "r"), _INDEX, _TABLE_ELEMS), _NUMERIC, rules=_DENSE_RULES, raw=False,
    ),
    _by_data(
        844, "vscatterrow", _scattered_rows, "dst[index[i], :] = a[i, :]; other rows stay",
        (_ROWS_DST, Tensor("a", "r"), _ROW_INDEX, _TABLE_ROWS), rank=ONLY_2D, cycles=cost.SIMPLE,
    ),
    _by_data(
        845, "vscatteraddrow", _added_rows, "dst[index[i], :] = dst[index[i], :] + a[i, :]; integers wrap",
        (_ROWS_DST, Tensor("a", "r"), _ROW_INDEX, _TABLE_ROWS), _NUMERIC, ONLY_2D, cycles=cost.SIMPLE, raw=False,
    ),
    # ---- masks
    _by_data(
        850, "vcompress", _compressed, "dst = the elements of each row where mask, then zeros; count = how many",
        (Tensor("dst", "w"), _COUNT, Tensor("a", "r"), _MASK), rules=_PACK_RULES, cycles=cost.COMPRESS,
    ),
    _by_data(
        851, "vexpand", _expanded, "dst = the next element of each row of a where mask, else zero",
        (Tensor("dst", "w"), Tensor("a", "r"), _MASK), cycles=cost.COMPRESS,
    ),
    _by_data(
        852, "vnonzero", _nonzero, "dst = the positions in each row where mask, then -1; count = how many",
        (Tensor("dst", "w"), _COUNT, _MASK), (dtype_modifier("int32"),), rules=_PACK_RULES, cycles=cost.COMPRESS,
    ),
    # ---- codes
    _by_data(
        856, "vonehot", lambda args, index: np.arange(args.n0) == index[..., None],
        "dst[..., j] = 1 where j is the row's index, else 0", (Tensor("dst", "w"), per_row("index", "r", "int32")),
        (dtype_modifier(*NUMBERS, "bool"),), cycles=cost.COMPARE,
    ),
    _by_data(
        857, "vlut", _looked_up, "dst = table[a] of 256 entries; int8 counts on from 127 to -128",
        (
            Tensor("dst", "w"),
            Tensor("table", "r", extents=lambda args: (256,), strides="dense"),
            Tensor("a", "r", dtype="@src"),
        ),
        (dtype_modifier("uint8", "int8", name="src"), dtype_modifier(*MOVABLE)),
    ),
    _by_data(
        858, "vhist", _histogram, "dst[v] = dst[v] + number of elements of a equal to v; others do not count",
        (Tensor("dst", "rw", dtype="int32", extents=_bins, strides="dense"), Tensor("a", "r"), Int("bins", 1, 65535)),
        (dtype_modifier("uint8", "int8", "int16", "int32"),), rules=_DENSE_RULES,
    ),
]  # fmt: skip
