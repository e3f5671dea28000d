"""The best elements of each block of a row, in order: what long rows are put in order by, block after block.

As an operator its loops insert element after element in a list, over plain buffers; :mod:`compiler.tiling.sorting`
has it built again with an instruction that sorts, on as many cores as there are blocks for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from compiler.emission import calls
from compiler.isa.layout import ceil_to
from compiler.operators.broadcast import dtype_of, shape_of
from compiler.operators.prim_functions import Buffer, loops, ordered_block, prim_function, scratch, store, when
from compiler.operators.registry import operator
from compiler.operators.rows_on_cores import PITCH, NearRows, Spread
from compiler.tir.scopes import ISA_DTYPE


@operator("tilewright::BestOfBlocks", schedule="sorting")
def best_of_blocks(
    x: te.Tensor, places: te.Tensor | None = None, *, block: int, k: int, largest: bool = True
) -> tirx.PrimFunc:
    """Of [rows, length], whose blocks but the last are of ``block`` elements: [rows, blocks * k] values, and their
    places in the row, or what ``places`` says of them. The first of equal ones comes first.
    """
    attributes = {"block": block, "k": k, "largest": largest}
    return _build([x] if places is None else [x, places], attributes, None)


def built_again(func: Any, spread: Spread) -> tirx.PrimFunc:
    """The function of a kernel, with sorting instructions on the cores."""
    return _build(list(func.params)[:-2], json.loads(str(func.attrs["tw.attributes"])), spread)


def _build(inputs: list[Any], attributes: dict[str, Any], spread: Spread | None) -> tirx.PrimFunc:
    rows, length = shape_of(inputs[0])
    result = (rows, -(-length // attributes["block"]) * attributes["k"])
    work = _Blocks(rows, length, **attributes)

    def body(*buffers: Buffer) -> None:
        *given, values, indices = buffers
        if spread is None:
            work.insert(given, values, indices)
        else:
            work.sort(given, values, indices, spread)

    return prim_function(inputs, [(result, dtype_of(inputs[0])), (result, "int32")], body)


@dataclass(frozen=True)
class _Blocks:
    rows: int
    length: int
    block: int
    k: int
    largest: bool

    @property
    def blocks(self) -> int:
        return -(-self.length // self.block)

    def insert(self, given: list[Buffer], values: Buffer, indices: Buffer) -> None:
        kept = _Inserted(self.k, str(values.dtype), self.largest)
        with (
            ordered_block("insert", [*given, *kept.buffers], [values, indices, *kept.buffers]),
            loops(self.rows, self.blocks) as (row, number),
        ):
            kept.clear()
            with loops(self._length_of(number)) as (i,):
                place = number * self.block + i
                kept.insert(given[0][row, place], place if len(given) == 1 else given[1][row, place])
            with loops(self.k) as (p,):
                store(values, kept.values[p], row, number * self.k + p)
                store(indices, kept.places[p], row, number * self.k + p)

    def sort(self, given: list[Buffer], values: Buffer, indices: Buffer, spread: Spread) -> None:
        """Several rows at once where they are a block each. With places, both are sorted where they are."""
        pitch, rows = ceil_to(min(self.block, self.length), PITCH), spread.rows
        near = [NearRows.of(rows, pitch, str(buffer.dtype)) for buffer in given]
        best = near
        if len(given) == 1:
            best = [NearRows.of(rows, ceil_to(self.k, PITCH), str(each.dtype)) for each in (values, indices)]
        held = [each.buffer for each in dict.fromkeys((*near, *best))]
        tiles = -(-self.rows // rows) * self.blocks
        with (
            T.thread_binding(0, spread.cores, thread="blockIdx.x") as core,
            ordered_block("sort", [*given, *held], [values, indices, *held]),
            loops(spread.trips) as (trip,),
            when(core * spread.trips + trip < tiles),
        ):
            tile = core * spread.trips + trip
            first, number = tile // self.blocks * rows, tile % self.blocks
            count = rows if self.rows % rows == 0 else tirx.min(rows, self.rows - first)
            length = self._length_of(number)
            for source, each in zip(given, near, strict=True):
                with loops(count, length) as (r, i):
                    each.store(source[first + r, number * self.block + i], r, i)
            self._sorted(near, best, count, length)
            moves = (0, number * self.block if len(given) == 1 and self.blocks > 1 else 0)
            for each, target, moved in zip(best, (values, indices), moves, strict=True):
                with loops(count, self.k) as (r, p):
                    value = each[r, p] if isinstance(moved, int) else each[r, p] + moved
                    store(target, value, first + r, number * self.k + p)

    def _sorted(self, near: list[NearRows], best: list[NearRows], count: Any, length: Any) -> None:
        mnemonic, most = ("vtopk", [self.k]) if len(near) == 1 else ("vsortpairs", [])
        modifiers = (ISA_DTYPE[str(near[0].buffer.dtype)], "desc" if self.largest else "asc", "2d")
        tensors = [slot for each in (*best, *near) for slot in (calls.address(each.buffer, [0]), each.pitch, 1)]
        T.evaluate(calls.instruction(mnemonic, modifiers, [*tensors, *most, count, length]).value)

    def _length_of(self, number: Any) -> Any:
        if self.length % self.block == 0:
            return self.block
        return tirx.min(self.block, self.length - number * self.block)


class _Inserted:
    """A list of ``count`` elements and their places, ordered at any time; place -1 is a free one."""

    def __init__(self, count: int, dtype: str, largest: bool) -> None:
        self.count, self.largest = count, largest
        self.values, self.places = scratch((count,), dtype), scratch((count,), "int32")
        self._moving, self._moving_place = scratch((1,), dtype), scratch((1,), "int32")

    @property
    def buffers(self) -> list[Buffer]:
        return [self.values, self.places, self._moving, self._moving_place]

    def clear(self) -> None:
        with loops(self.count) as (p,):
            store(self.values, tirx.const(0, str(self.values.dtype)), p)
            store(self.places, tirx.const(-1, "int32"), p)

    def insert(self, value: Any, place: Any) -> None:
        store(self._moving, value, 0)
        store(self._moving_place, place, 0)
        with when(self._comes_before(self.count - 1)), loops(self.count) as (p,), when(self._comes_before(p)):
            kept, kept_place = T.Bind(self.values[p]), T.Bind(self.places[p])
            store(self.values, self._moving[0], p)
            store(self.places, self._moving_place[0], p)
            store(self._moving, kept, 0)
            store(self._moving_place, kept_place, 0)

    def _comes_before(self, p: Any) -> Any:
        mine, other = self._moving[0], self.values[p]
        return tirx.any(
            self.places[p] < 0,
            mine > other if self.largest else mine < other,
            tirx.all(tirx.EQ(mine, other), self._moving_place[0] < self.places[p]),
        )
