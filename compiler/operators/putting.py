"""Elements put into rows where each row's own indices say.

As an operator its loops put one after the other; :mod:`compiler.tiling.putting` has it built again with the instruction
that puts many into a row in UB, for some rows on every core.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from compiler.emission import calls
from compiler.isa.layout import ceil_to
from compiler.operators.broadcast import dtype_of, shape_of
from compiler.operators.gathering import counted_from_start
from compiler.operators.prim_functions import (
    Buffer,
    fill,
    loops,
    ordered_block,
    part,
    prim_function,
    region,
    scratch,
    store,
    when,
)
from compiler.operators.registry import operator
from compiler.operators.rows_on_cores import PITCH, Spread
from compiler.tir.scopes import ISA_DTYPE, itemsize

PIECE = 2048  # indices of a row at once
NARROW = ("float16", "bfloat16")
SUMS = "float32"  # what those are added in, and rounded once


@dataclass(frozen=True)
class _Kind:
    mnemonic: str
    combine: Callable[[Any, Any], Any]


KINDS = {
    "none": _Kind("vscatter", lambda old, new: new),
    "add": _Kind("vscatteradd", lambda old, new: old + new),
    "max": _Kind("vscattermax", tirx.max),
    "min": _Kind("vscattermin", tirx.min),
}


@operator("tilewright::PutInRows", schedule="putting")
def put_in_rows(data: te.Tensor, indices: te.Tensor, updates: te.Tensor, *, reduction: str = "none") -> tirx.PrimFunc:
    """``data`` [rows, length] with ``updates`` [rows, count] where ``indices`` say, in their order."""
    return _build([data, indices, updates], {"reduction": reduction}, None)


@operator("tilewright::PutInZeros", schedule="putting")
def put_in_zeros(indices: te.Tensor, updates: te.Tensor, *, length: int) -> tirx.PrimFunc:
    """As :func:`put_in_rows`, where there are zeros [rows, length] else."""
    return _build([indices, updates], {"length": length}, None)


def built_again(func: Any, spread: Spread, piece: int) -> tirx.PrimFunc:
    """The function of a kernel, with instructions that put on the cores, so many elements each."""
    return _build(list(func.params)[:-1], json.loads(str(func.attrs["tw.attributes"])), (spread, piece))


def element_bytes(dtype: str) -> int:
    """Of UB, for an element at most: as it is given, and as it is summed."""
    return itemsize(dtype) + (itemsize(SUMS) if dtype in NARROW else 0)


def index_bytes(dtype: str) -> int:
    """Of UB, for an index, as it is given and from the start, and its update."""
    return 4 + 4 + element_bytes(dtype)


def _build(inputs: list[Any], attributes: dict[str, Any], on_cores: tuple[Spread, int] | None) -> tirx.PrimFunc:
    *given, indices, updates = inputs
    (rows, count), dtype = shape_of(indices), dtype_of(updates)
    length = shape_of(given[0])[1] if given else attributes["length"]
    work = _Putting(rows, length, count, dtype, KINDS[attributes.get("reduction", "none")])

    def body(*buffers: Buffer) -> None:
        source, (index, update, out) = buffers[0] if given else None, buffers[-3:]
        if on_cores is None:
            work.one_by_one(source, index, update, out)
        else:
            work.on_cores(source, index, update, out, *on_cores)

    return prim_function(inputs, [((rows, length), dtype)], body)


@dataclass(frozen=True)
class _Putting:
    rows: int
    length: int
    count: int
    dtype: str
    kind: _Kind

    @property
    def sums(self) -> str:
        return SUMS if self.kind is KINDS["add"] and self.dtype in NARROW else self.dtype

    def one_by_one(self, source: Buffer | None, index: Buffer, update: Buffer, out: Buffer) -> None:
        shape = (self.rows, self.length)
        kept = out if self.sums == self.dtype else scratch(shape, self.sums)
        if source is None:
            fill(kept, tirx.const(0, self.sums))
        else:
            part(shape, kept, lambda point: point, lambda point: source[tuple(point)].astype(self.sums), "copy")
        with ordered_block("put", [index, update, kept], [kept]), loops(self.rows, self.count) as (row, i):
            place = counted_from_start(index[row, i], self.length)
            store(kept, self.kind.combine(kept[row, place], update[row, i].astype(self.sums)), row, place)
        if kept is not out:
            region(shape, out, lambda point: point, lambda point: kept[tuple(point)].astype(self.dtype), "cast")

    def on_cores(
        self, source: Buffer | None, index: Buffer, update: Buffer, out: Buffer, spread: Spread, piece: int
    ) -> None:
        """Row by row: of each there is one in UB, and ``piece`` of its indices."""
        row_near, kept = self._near(self.length)
        update_near, added = self._near(piece)
        given, places = (scratch((ceil_to(piece, PITCH),), "int32", "local.ub") for _ in range(2))
        held = list(dict.fromkeys((row_near, kept, update_near, added, given, places)))
        with (
            T.thread_binding(0, spread.cores, thread="blockIdx.x") as core,
            ordered_block("put", [*([] if source is None else [source]), index, update, *held], [out, *held]),
            loops(spread.trips) as (trip,),
            when(core * spread.trips + trip < self.rows),
        ):
            row = core * spread.trips + trip
            if source is None:
                with loops(self.length) as (i,):
                    store(kept, tirx.const(0, self.sums), i)
            else:
                with loops(self.length) as (i,):
                    store(row_near, source[row, i], i)
                self._cast(row_near, kept, self.length)
            with loops(-(-self.count // piece)) as (number,):
                first = number * piece
                count = piece if self.count % piece == 0 else tirx.min(piece, self.count - first)
                with loops(count) as (i,):
                    store(given, index[row, first + i], i)
                with loops(count) as (i,):
                    store(update_near, update[row, first + i], i)
                self._cast(update_near, added, count)
                with loops(count) as (i,):
                    store(places, counted_from_start(given[i], self.length), i)
                self._put(kept, added, places, count)
            self._cast(kept, row_near, self.length)
            with loops(self.length) as (i,):
                store(out, row_near[i], row, i)

    def _near(self, elements: int) -> tuple[Buffer, Buffer]:
        """What is moved, and what is worked with, which may be the same."""
        moved = scratch((ceil_to(elements, PITCH),), self.dtype, "local.ub")
        return moved, moved if self.sums == self.dtype else scratch((ceil_to(elements, PITCH),), self.sums, "local.ub")

    def _cast(self, source: Buffer, target: Buffer, count: Any) -> None:
        if source is not target:
            with loops(count) as (i,):
                store(target, source[i].astype(str(target.dtype)), i)

    def _put(self, kept: Buffer, added: Buffer, places: Buffer, count: Any) -> None:
        into, what, where = (calls.address(buffer, [0]) for buffer in (kept, added, places))
        operands = [into, what, 1, where, 1, self.length, count]
        T.evaluate(calls.instruction(self.kind.mnemonic, (ISA_DTYPE[self.sums], "1d"), operands).value)
