"""The schedule template for rows that do not fit UB: reductions read their inputs piece by piece, again for each.

    result[i, j] = exp(a[i, j]) / sum_j exp(a[i, j])
->  for core: for i: for piece of j: a_ub = a[i, piece]; sum_ub += exp(a_ub)
                     for piece of j: a_ub = a[i, piece]; result_ub = exp(a_ub) / sum_ub; result[i, piece] = result_ub

Elementwise stages are worked out wherever they are needed: only results of reductions are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import ir, sym, tirx

from compiler.isa.timing import ceil_div
from compiler.target import Chip
from compiler.tiling import vector
from compiler.tiling.blocks import UB, block_facts
from compiler.tiling.effort import effort
from compiler.tiling.reads import Place
from compiler.tiling.stages import Stage, needs, stages_of
from compiler.tiling.transfers import transfer
from compiler.tiling.vector import Demand, Load, Tile
from compiler.tiling.vector_blocks import (
    ancestors,
    bind_tiles,
    new_schedule,
    read_pattern,
    result_blocks,
    root_blocks,
    split_cores,
    stage_inputs,
)
from compiler.tir.near import near_parameters
from compiler.tir.structure import structural_walk

PIECES = tuple(1 << k for k in range(15, 2, -2))  # elements that are read at once
STEP = 16  # rows side by side, in a block of 16-bit elements


@dataclass(frozen=True, eq=False)
class Streamed:
    """A kernel with all but its reductions worked out where they are needed. A tile's extents are those of rows."""

    func: Any
    chip: Chip
    stages: list[Stage]
    results: list[Stage]
    kept: tuple[int, ...]  # the axes of the result that are rows
    shape: tuple[int, ...]
    extents: tuple[int, ...]  # of the result
    near: frozenset[Any]  # the parameters that lie in LLB

    @staticmethod
    def of(func: Any, chip: Chip) -> Streamed | None:
        """None where nothing is reduced."""
        sch = new_schedule(func)
        _inline_all(sch)
        outs = result_blocks(sch)
        stages = stages_of(sch, root_blocks(sch))
        if not any(stage.reduced for stage in stages):
            return None
        names = [sch.get(block).name_hint for block in outs]
        results = [stage for stage in stages if stage.block.name_hint in names]
        extents = block_facts(sch.get(outs[0])).extents or (1,)
        kept = _kept_axes(sch, outs[0])
        shape = tuple(extents[axis] for axis in kept) or (1,)
        return Streamed(func, chip, stages, results, kept, shape, extents, near_parameters(sch.mod["main"]))

    def tiles(self) -> list[Tile]:
        """Rows with pieces of them: where what is reduced lies outside of the rows, many make long runs."""
        rows = vector.tiles(self.shape, self.chip.cores)
        return [Tile(row.extents, piece) for row in rows for piece in PIECES if prod(row.extents) <= piece]

    @property
    def side_by_side(self) -> bool:
        return _are_side_by_side(self.kept, len(self.extents))

    def whole_columns(self) -> list[Tile]:
        """Rows that lie side by side, all of each: some of them."""
        if not self.side_by_side:
            return []
        outer = (1,) * (len(self.kept) - 1)
        found = [(*outer, size) for size in _steps(self.shape[-1])]
        found += [row.extents for row in vector.tiles(self.shape, self.chip.cores)]
        cuts = [dict(zip(self.kept, extents, strict=True)) for extents in found]
        return [Tile(tuple(cut.get(axis, extent) for axis, extent in enumerate(self.extents))) for cut in cuts]

    def demand(self, tile: Tile) -> Demand:
        found = [self._demand(out, tile) for out in self.results]
        return max(found, key=lambda one: one.ub_bytes)

    def _demand(self, out: Stage, tile: Tile) -> Demand:
        rows = {out.kept[axis]: extent for axis, extent in zip(self.kept, tile.extents, strict=False)}
        found = needs(self.stages, out, rows, read_pattern)
        line = self.chip.transfer.ddr_line_bytes
        loads: list[Load] = []
        instructions, vector_bytes, kept, temporary = 0, 0.0, 0, 0
        for stage, lengths in found.lengths.items():
            columns = [axis for axis in stage.axes if axis not in rows] if stage is out else []
            along = [axis for axis in stage.axes if axis in stage.reduced] or columns
            results = prod(lengths[axis] for axis in stage.axes if axis not in along)
            at_once = stage.reduced or self.side_by_side
            cut, times = _pieces(along, lengths, tile.piece // results if at_once else tile.piece)
            for load, place in _distinct(stage):
                moved = transfer(place.box(cut), place.source.shape, place.source.itemsize, line)
                if not any(load.source is other.target for other in self.stages):
                    loads.append(Load(moved.moved_bytes, moved, times=times, near=place.source.node in self.near))
            made = effort(stage, cut)
            instructions += int(made.instructions * times)
            vector_bytes += made.weighted_bytes * times
            temporary = max(temporary, made.temporary_bytes)
            size = stage.made_bytes(cut)
            if stage is out:
                often = 1.0 if stage.reduced else times
                near = stage.stored[0].node in self.near
                loads.append(Load(size, vector.stored(stage, cut, line), stored=True, times=often, near=near))
            else:
                kept += size
        return Demand(tuple(loads), instructions, vector_bytes, kept + temporary)

    def apply(self, tile: Tile) -> Any:
        return _apply(self.func, tile.extents if self.kept else (1 << 62,), self.kept, tile.piece, self.chip.cores)

    def describe(self, tile: Tile) -> str:
        trips = tile.trips(self.shape)
        cores = prod(split_cores(trips, self.chip.cores))
        return f"pieces of {tile.piece} elements, {prod(trips)} rows of tiles on {cores} cores"


def _steps(size: int) -> list[int]:
    """Multiples of a step, few of them large."""
    found = {STEP * count << k for k in range(size.bit_length()) for count in range(1, 8)}
    return sorted(each for each in found if each < size)


def _distinct(stage: Stage) -> list[tuple[Any, Place]]:
    """Loads of different buffers."""
    found = dict[Any, tuple[Any, Place]]()
    for load, place in zip(stage.loads, stage.places, strict=True):
        found.setdefault(place.source, (load, place))
    return list(found.values())


def _pieces(along: Sequence[Any], lengths: Mapping[Any, int], elements: int) -> tuple[dict[Any, int], float]:
    """The positions of all axes in one piece, and how many pieces there are: the innermost axes are whole first."""
    cut, left, times = dict(lengths), max(1, elements), 1
    for axis in reversed(along):
        cut[axis] = max(1, min(lengths[axis], left))
        times *= ceil_div(lengths[axis], cut[axis])
        left //= cut[axis]
    return cut, float(times)


def _are_side_by_side(kept: tuple[int, ...], rank: int) -> bool:
    """Whether what rows have at one place lies side by side, and what one row has lies apart."""
    return rank - 1 in kept and len(kept) < rank


def _apply(func: Any, rows_of: tuple[int, ...], kept: tuple[int, ...], piece: int, cores: int) -> Any:
    sch = new_schedule(func)
    _inline_all(sch)
    for out in result_blocks(sch):
        store = sch.cache_write(out, 0, UB)
        loops = list(sch.get_loops(store))
        side_by_side = _are_side_by_side(kept, len(loops))
        columns = [loop for axis, loop in enumerate(loops) if axis not in kept]
        if kept and columns:
            sch.reorder(*(loops[axis] for axis in kept), *columns)
        rows = bind_tiles(sch, store, rows_of, cores)
        inner = _cut_columns(sch, store, rows, columns, piece, side_by_side) if columns else rows
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


def _cut_columns(sch: Any, store: Any, rows: Any, columns: list[Any], piece: int, side_by_side: bool) -> Any:
    """Of one row after the other, or of all rows of a tile at once where their elements lie ``side_by_side``."""
    if not side_by_side:
        return _cut(sch, columns, piece)
    elements = [loop for loop in _inside(sch, store, rows) if not _is_one_of(sch, loop, columns)]
    inner = _cut(sch, columns, max(1, piece // prod(int(sch.get(loop).extent) for loop in elements)), before=elements)
    of_columns = [loop for loop in _inside(sch, store, inner) if not _is_one_of(sch, loop, elements)]
    sch.reorder(*of_columns, *elements)
    return inner


def _inside(sch: Any, block: Any, loop: Any) -> list[Any]:
    """The loops of a block inside one of them."""
    loops = list(sch.get_loops(block))
    return loops[1 + [sch.get(each).loop_var for each in loops].index(sch.get(loop).loop_var) :]


def _is_one_of(sch: Any, loop: Any, loops: list[Any]) -> bool:
    return any(sch.get(loop).loop_var.same_as(sch.get(each).loop_var) for each in loops)


def _stream(sch: Any, reduction: Any, outside: Any, piece: int) -> None:
    """Take a reduction's loops piece by piece, reading the inputs of each piece right before."""
    loops = list(sch.get_loops(reduction))
    own = _inside(sch, reduction, outside)
    reduced = len(block_facts(sch.get(reduction)).reduced)
    spatial, axes = own[: len(own) - reduced], own[len(own) - reduced :]
    results = prod(_longest(sch, loops, loop) for loop in spatial)
    inner = _cut(sch, axes, max(1, piece // results), before=spatial)
    stage_inputs(sch, [reduction], inner)


def _longest(sch: Any, around: list[Any], loop: Any) -> int:
    """The most turns of a loop whose extent may depend on those around it."""
    analyzer = sym.Analyzer()
    for outer in (sch.get(each) for each in around):
        analyzer.bind(outer.loop_var, ir.Range.from_min_extent(outer.min, outer.extent))
    return max(1, int(analyzer.const_int_bound(sch.get(loop).extent).max_value))


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
