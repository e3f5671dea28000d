"""The schedule template for rows that do not fit UB: reductions read their inputs piece by piece, again for each.

    result[i, j] = exp(a[i, j]) / sum_j exp(a[i, j])
->  for core: for i: for piece of j: a_ub = a[i, piece]; sum_ub += exp(a_ub)
                     for piece of j: a_ub = a[i, piece]; result_ub = exp(a_ub) / sum_ub; result[i, piece] = result_ub

Elementwise stages are worked out wherever they are needed: only results of reductions are kept.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cache
from math import prod
from typing import Any

from tvm import ir, tirx
from tvm_ffi import structural_walk

from compiler.target import Chip
from compiler.tiling.blocks import UB, block_facts
from compiler.tiling.footprint import scope_bytes
from compiler.tiling.template import NoFeasibleTile, Tiled
from compiler.tiling.vector import (
    Tile,
    ancestors,
    bind_tiles,
    new_schedule,
    result_blocks,
    root_blocks,
    stage_inputs,
    tiles,
)

PIECES = tuple(1 << k for k in range(14, 2, -1))  # elements of one piece, before what fits is known
GOOD_PIECE = 256  # rows are kept few enough for pieces of this size: shorter ones spend their time on starting


def schedule(func: Any, chip: Chip, budget: int) -> Tiled:
    """The most rows per trip that keep all cores busy, and the largest piece, within ``budget`` bytes of UB."""
    sch = new_schedule(func)
    _inline_all(sch)
    outs = result_blocks(sch)
    shape = block_facts(sch.get(outs[0])).extents or (1,)
    kept = _kept_axes(sch, outs[0])
    kept_shape = tuple(shape[axis] for axis in kept)
    rows = tiles(kept_shape) if kept else []
    rows = [t for t in reversed(rows) if prod(t.outer(kept_shape)) >= chip.cores] or rows[:1] or [Tile(0, shape[0])]

    @cache
    def scheduled(row: Tile, piece: int) -> Any:
        """None where it does not fit."""
        found = _apply(func, row, kept, piece, chip.cores)
        return found if scope_bytes(found).get(UB, 0) <= budget else None

    def most_rows(piece: int) -> int:
        return bisect_left(rows, True, key=lambda row: scheduled(row, piece) is not None)

    for least in (GOOD_PIECE, PIECES[-1]):
        # Fewer rows and shorter pieces take less: the first that fits is found by halving.
        first = most_rows(least)
        if first == len(rows):
            continue
        row = rows[first]
        piece = next(piece for piece in PIECES if piece == least or scheduled(row, piece) is not None)
        trips = prod(row.outer(kept_shape)) if kept else 1
        text = f"pieces of {piece} elements, {trips} rows of tiles on {min(trips, chip.cores)} cores"
        return Tiled(scheduled(row, piece), text)
    raise NoFeasibleTile("the kernel", f"pieces down to {PIECES[-1]} elements")


def _apply(func: Any, row: Tile, kept: tuple[int, ...], piece: int, cores: int) -> Any:
    sch = new_schedule(func)
    _inline_all(sch)
    for out in result_blocks(sch):
        store = sch.cache_write(out, 0, UB)
        loops = list(sch.get_loops(store))
        columns = [loop for axis, loop in enumerate(loops) if axis not in kept]
        if kept and columns:
            sch.reorder(*(loops[axis] for axis in kept), *columns)
        rows = bind_tiles(sch, store, row if kept else Tile(0, 1 << 62), cores)
        inner = _cut(sch, columns, piece) if columns else rows
        sch.compute_at(out, inner, preserve_unit_loops=True)
        reductions = ancestors(sch, out)
        for reduction in reversed(reductions):
            sch.compute_at(reduction, rows, preserve_unit_loops=True)
            sch.set_scope(reduction, 0, UB)
        for reduction in reductions:
            _stream(sch, reduction, rows, piece)
        if block_facts(sch.get(out)).reduced:
            _stream(sch, out, inner, piece)
        else:
            stage_inputs(sch, [out], inner)
    return sch.mod["main"]


def _stream(sch: Any, reduction: Any, outside: Any, piece: int) -> None:
    """Take a reduction's loops piece by piece, reading the inputs of each piece right before."""
    loops = list(sch.get_loops(reduction))
    own = loops[1 + [sch.get(loop).loop_var for loop in loops].index(sch.get(outside).loop_var) :]
    reduced = len(block_facts(sch.get(reduction)).reduced)
    spatial, axes = own[: len(own) - reduced], own[len(own) - reduced :]
    results = prod(int(sch.get(loop).extent) for loop in spatial)
    inner = _cut(sch, axes, max(1, piece // results), before=spatial)
    stage_inputs(sch, [reduction], inner)


def _cut(sch: Any, loops: list[Any], elements: int, before: list[Any] | None = None) -> Any:
    """Cut nested loops into pieces of at most ``elements``; the innermost loop over pieces, ``before`` inside it."""
    outer: list[Any] = []
    inside: list[Any] = []
    left = elements
    for position in reversed(range(len(loops))):
        extent = int(sch.get(loops[position]).extent)
        if extent <= left:
            inside.insert(0, loops[position])
            left //= extent
        elif left > 1:
            count, inner = sch.split(loops[position], [None, left])
            outer.insert(0, count)
            inside.insert(0, inner)
            left = 1
        else:
            outer.insert(0, loops[position])
    if not outer:
        outer = [sch.add_unit_loop((before or inside)[0])]
    sch.reorder(*outer, *(before or []), *inside)
    return outer[-1]


def _inline_all(sch: Any) -> None:
    results = {sch.get(b).name_hint for b in result_blocks(sch)}
    for block in root_blocks(sch):
        facts = block_facts(sch.get(block))
        if sch.get(block).name_hint not in results and not facts.reduced and not facts.dynamic_write:
            sch.compute_inline(block)


def _kept_axes(sch: Any, out: Any) -> tuple[int, ...]:
    """The axes of the result that decide which results of reductions it needs: those are rows."""
    block = sch.get(out)
    if block_facts(block).reduced:
        return tuple(range(len(block_facts(block).extents)))
    reduced = {sch.get(b).writes[0].source.name for b in ancestors(sch, out)}
    position = {iteration.var: index for index, iteration in enumerate(block.iter_vars)}
    kept = set[int]()

    def visit(load: Any) -> None:
        if load.source.name in reduced:
            for index in load.indices:
                structural_walk(index, (tirx.Var, note))

    def note(variable: Any) -> None:
        if variable in position:
            kept.add(position[variable])

    structural_walk(block.body, (ir.TensorLoad, visit))
    return tuple(sorted(kept))
