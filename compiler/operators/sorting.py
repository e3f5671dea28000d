"""Order by value."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from compiler.operators.broadcast import dtype_of, shape_of
from compiler.operators.prim_functions import Buffer, loops, ordered_block, prim_function, scratch, store
from compiler.operators.registry import operator


@operator("tilewright::TopKByLoops", schedule="library")
def top_k_by_loops(x: te.Tensor, *, k: int, axis: int, largest: bool = True) -> tirx.PrimFunc:
    """As TopK, for rows of which more are wanted than are sorted at once: a merge sort."""
    shape = shape_of(x)
    result = (*shape[:axis], k, *shape[axis + 1 :])
    body = _Rows(shape, axis, k, largest).merge
    return prim_function([x], [(result, dtype_of(x)), (result, "int32")], body)


class _Rows:
    """Loops over the rows along one axis, each of which is put in order."""

    def __init__(self, shape: tuple[int, ...], axis: int, count: int, largest: bool) -> None:
        self.outer = (*shape[:axis], *shape[axis + 1 :])
        self.axis = axis
        self.extent = shape[axis]
        self.count = count
        self.largest = largest

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
