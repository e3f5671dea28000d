"""Order by value."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from compiler.operators.broadcast import dtype_of, shape_of
from compiler.operators.prim_functions import Buffer, loops, ordered_block, prim_function, scratch, store, when
from compiler.operators.registry import operator


@operator("tilewright::TopKByLoops", schedule="library")
def top_k_by_loops(x: te.Tensor, *, k: int, axis: int, largest: bool = True) -> tirx.PrimFunc:
    """As TopK, for rows too long to compare every two elements.

    A few are kept in a list, in which each element that belongs there is inserted. More come out of a merge sort.
    """
    shape = shape_of(x)
    extent, count = shape[axis], k
    rows = _Rows(shape, axis, count, largest)
    # An insertion walks the list: with more than this, its worst case is slower than merging.
    few = count <= 2 * extent.bit_length()
    body = rows.insert if few else rows.merge
    result = (*shape[:axis], count, *shape[axis + 1 :])
    return prim_function([x], [(result, dtype_of(x)), (result, "int32")], body)


class _Rows:
    """Loops over the rows along one axis, each of which is put in order."""

    def __init__(self, shape: tuple[int, ...], axis: int, count: int, largest: bool) -> None:
        self.outer = (*shape[:axis], *shape[axis + 1 :])
        self.axis = axis
        self.extent = shape[axis]
        self.count = count
        self.largest = largest

    def insert(self, source: Buffer, values: Buffer, indices: Buffer) -> None:
        """A list of ``count`` elements and their positions, ordered at any time; position -1 is a free place."""
        kept = scratch((self.count,), str(source.dtype))
        places = scratch((self.count,), "int32")
        moving = scratch((1,), str(source.dtype))
        moving_place = scratch((1,), "int32")
        zero = tirx.const(0, str(source.dtype))

        def comes_before(p: Any) -> Any:
            return tirx.any(
                places[p] < 0,
                self._better(moving[0], kept[p]),
                tirx.all(tirx.EQ(moving[0], kept[p]), moving_place[0] < places[p]),
            )

        held = [kept, places, moving, moving_place]
        with ordered_block("insert", [source, *held], [values, indices, *held]), loops(*self.outer) as row:
            with loops(self.count) as (p,):
                store(kept, zero, p)
                store(places, tirx.const(-1, "int32"), p)
            with loops(self.extent) as (i,):
                store(moving, source[self._at(row, i)], 0)
                store(moving_place, i, 0)
                with when(comes_before(self.count - 1)), loops(self.count) as (p,), when(comes_before(p)):
                    value, place = T.Bind(kept[p]), T.Bind(places[p])
                    store(kept, moving[0], p)
                    store(places, moving_place[0], p)
                    store(moving, value, 0)
                    store(moving_place, place, 0)
            with loops(self.count) as (p,):
                store(values, kept[p], *self._at(row, p))
                store(indices, places[p], *self._at(row, p))

    def merge(self, source: Buffer, values: Buffer, indices: Buffer) -> None:
        """Positions in runs of 1, 2, 4, ... elements that are in order, merged from one list into the other."""
        orders = [scratch((self.extent,), "int32"), scratch((self.extent,), "int32")]
        heads = scratch((2,), "int32")
        held = [*orders, heads]
        with ordered_block("merge", [source, *held], [values, indices, *held]), loops(*self.outer) as row:
            with loops(self.extent) as (i,):
                store(orders[0], i, i)
            width = 1
            while width < self.extent:
                self._merge_pairs(source, row, orders, heads, width)
                orders.reverse()
                width *= 2
            with loops(self.count) as (p,):
                store(values, source[self._at(row, orders[0][p])], *self._at(row, p))
                store(indices, orders[0][p], *self._at(row, p))

    def _merge_pairs(self, source: Buffer, row: Any, orders: list[Buffer], heads: Buffer, width: int) -> None:
        before, after = orders
        left, right = heads[0], heads[1]
        with loops(-(-self.extent // (2 * width))) as (pair,):
            start = pair * (2 * width)
            middle = tirx.min(start + width, self.extent)
            end = tirx.min(start + 2 * width, self.extent)
            store(heads, start, 0)
            store(heads, middle, 1)
            with loops(end - start) as (i,):
                # Both heads are read even where one list has run out: at a place that exists.
                first = source[self._at(row, before[tirx.min(left, self.extent - 1)])]
                second = source[self._at(row, before[tirx.min(right, self.extent - 1)])]
                from_right = T.Bind(
                    tirx.any(left >= middle, tirx.all(right < end, self._better(second, first))).astype("int32")
                )
                store(after, before[tirx.Select(tirx.EQ(from_right, 1), right, left)], start + i)
                store(heads, right + from_right, 1)
                store(heads, left + 1 - from_right, 0)

    def _at(self, row: Any, index: Any) -> tuple[Any, ...]:
        return (*row[: self.axis], index, *row[self.axis :])

    def _better(self, a: Any, b: Any) -> Any:
        return a > b if self.largest else a < b
