"""Running sums and products of rows, each from its own beginning.

As an operator its loops take one step after the other; :mod:`compiler.tiling.running` has it built again with the
instruction that does a row, for some rows at once on every core.
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
from compiler.operators.prim_functions import Buffer, loops, ordered_block, prim_function, region, scratch, store, when
from compiler.operators.registry import operator
from compiler.operators.rows_on_cores import PITCH, NearRows, Spread
from compiler.tir.scopes import ISA_DTYPE

NARROW = ("float16", "bfloat16")
SUMS = "float32"  # what those are accumulated in, and rounded once


@dataclass(frozen=True)
class _Kind:
    mnemonic: str
    combine: Callable[[Any, Any], Any]
    neutral: int


KINDS = {"Sum": _Kind("vcumsum", lambda a, b: a + b, 0), "Prod": _Kind("vcumprod", lambda a, b: a * b, 1)}


@operator("tilewright::Running", schedule="running")
def running(x: te.Tensor, *, what: str, exclusive: bool = False, reverse: bool = False) -> tirx.PrimFunc:
    """Of [rows, length]: ``what`` is Sum or Prod, of all before each element, and of that one unless ``exclusive``."""
    return _build(x, {"what": what, "exclusive": exclusive, "reverse": reverse}, None)


def built_again(func: Any, spread: Spread) -> tirx.PrimFunc:
    """The function of a kernel, with scanning instructions on the cores."""
    return _build(func.params[0], json.loads(str(func.attrs["tw.attributes"])), spread)


def row_bytes(length: int) -> int:
    """Of UB, that a row takes at most: as it is given, and as it is accumulated."""
    return 2 * 4 * ceil_to(length, PITCH)


def _build(x: Any, attributes: dict[str, Any], spread: Spread | None) -> tirx.PrimFunc:
    rows, length = shape_of(x)
    scan = _Scan(rows, length, dtype_of(x), KINDS[attributes["what"]], attributes["exclusive"], attributes["reverse"])

    def body(source: Buffer, out: Buffer) -> None:
        if spread is None:
            scan.step_by_step(source, out)
        else:
            scan.on_cores(source, out, spread)

    return prim_function([x], [((rows, length), dtype_of(x))], body)


@dataclass(frozen=True)
class _Scan:
    rows: int
    length: int
    dtype: str
    kind: _Kind
    exclusive: bool
    reverse: bool

    @property
    def sums(self) -> str:
        return SUMS if self.dtype in NARROW else self.dtype

    def step_by_step(self, source: Buffer, out: Buffer) -> None:
        shape = (self.rows, self.length)
        kept = out if self.sums == self.dtype else scratch(shape, self.sums)

        def place(step: Any) -> Any:
            return self.length - 1 - step if self.reverse else step

        with ordered_block("scan", [source, kept], [kept]), loops(self.rows) as (row,):
            first = tirx.const(self.kind.neutral, self.sums)
            store(kept, first if self.exclusive else source[row, place(0)].astype(self.sums), row, place(0))
            if self.length > 1:
                with loops(self.length - 1) as (step,):
                    added = source[row, place(step if self.exclusive else step + 1)].astype(self.sums)
                    store(kept, self.kind.combine(kept[row, place(step)], added), row, place(step + 1))
        if kept is not out:
            region(shape, out, lambda point: point, lambda point: kept[tuple(point)].astype(self.dtype), "cast")

    def on_cores(self, source: Buffer, out: Buffer, spread: Spread) -> None:
        pitch = ceil_to(self.length, PITCH)
        given = NearRows.of(spread.rows, pitch, self.dtype)
        kept = given if self.sums == self.dtype else NearRows.of(spread.rows, pitch, self.sums)
        held = [each.buffer for each in dict.fromkeys((given, kept))]
        tiles = -(-self.rows // spread.rows)
        with (
            T.thread_binding(0, spread.cores, thread="blockIdx.x") as core,
            ordered_block("scan", [source, *held], [out, *held]),
            loops(spread.trips) as (trip,),
            when(core * spread.trips + trip < tiles),
        ):
            first = (core * spread.trips + trip) * spread.rows
            count = spread.rows if self.rows % spread.rows == 0 else tirx.min(spread.rows, self.rows - first)
            with loops(count, self.length) as (r, i):
                given.store(source[first + r, i], r, i)
            if kept is not given:
                with loops(count, self.length) as (r, i):
                    kept.store(given[r, i].astype(self.sums), r, i)
            self._scanned(kept, count)
            if kept is not given:
                with loops(count, self.length) as (r, i):
                    given.store(kept[r, i].astype(self.dtype), r, i)
            with loops(count, self.length) as (r, i):
                store(out, given[r, i], first + r, i)

    def _scanned(self, kept: NearRows, count: Any) -> None:
        form, order = "excl" if self.exclusive else "incl", "rev" if self.reverse else "fwd"
        rows = (calls.address(kept.buffer, [0]), kept.pitch, 1)
        modifiers = (ISA_DTYPE[self.sums], form, order, "2d")
        T.evaluate(calls.instruction(self.kind.mnemonic, modifiers, [*rows, *rows, count, self.length]).value)
