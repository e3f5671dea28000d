"""Rows of places that lie one after another: where one ends means nothing to who works on each place by itself.

Convolutions whose windows are single elements, side by side, have rows as long as a line of DDR: tiles of whole rows
begin and end where lines do, and cores can have as many places as each other. Products of many matrices with one have
the rows of all of them as those of one matrix: none is filled up to whole fractals, and tiles need not end with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import gcd, prod
from typing import Any

from tvm import ir, s_tir, sym, tirx

from compiler.isa.dtypes import DTYPES
from compiler.isa.layout import FRACTAL
from compiler.target import Chip
from compiler.tir.near import strided, strides_of_parameters
from compiler.tir.rewriter import loop_with, uses
from compiler.tir.sblocks import block_with, distinct, point
from compiler.tir.scopes import ISA_DTYPE
from compiler.tir.structure import structural_map, structural_walk

WINDOWS = "windows"  # the block that makes the windows' matrix


# What is cut anew, by two axes of places, outer and inner. A function stays as it was where not all of this holds:
#
# 1. Each block works at one place in each turn; which one decides nothing but what the block reads and writes.
# 2. Tensors have inner places behind outer ones, all those of the result and no others: windows neither step nor stand
#    over an edge, and nothing is the same for all places of an axis but for both.
# 3. Of a parameter that is a band of another tensor, places lie as far from each other at the end of a row as in it.


def in_lines(func: Any, rows_axis: int, chip: Chip) -> Any:
    """A convolution with rows as long as a line of DDR, or as the part of one that all places are a multiple of.

    ``rows_axis``: which axis of the windows' matrix counts rows of places; the next one counts columns. A row fills a
    block of bytes, and rows of a fractal: shorter ones cannot be cut as well as they were.
    """
    places = _places(func, WINDOWS, rows_axis)
    if places is None:
        return func
    far = [tensor for tensor in places.tensors if any(tensor.same_as(one) for one in func.params)]
    itemsize = min((DTYPES[ISA_DTYPE[str(tensor.dtype)]].itemsize for tensor in far), default=1)
    width = gcd(prod(places.extents), chip.transfer.ddr_line_bytes // itemsize)
    return func if width < max(FRACTAL, chip.block_bytes // itemsize) else places.rewritten(func, width)


def in_one_row(func: Any, rows_axis: int) -> Any | None:
    """A convolution with one row of all places; None where they cannot be cut anew."""
    windows = next(realize.block for realize in _realizations(func) if realize.block.name_hint == WINDOWS)
    if int(windows.iter_vars[rows_axis].dom.extent) == 1:
        return func
    places = _places(func, WINDOWS, rows_axis)
    made = func if places is None else places.rewritten(func, prod(places.extents))
    return None if made is func else made


def in_one_matrix(func: Any, product: str, outer: Sequence[int], rows_axis: int) -> Any:
    """A product of many matrices with one, of the rows of all of them.

    ``outer``: the axes of its block ``product`` that count matrices, those before that of the rows.
    """
    made = _read_at_single_rows(func)
    for first in reversed(outer):
        for axis in range(first, rows_axis):
            places = _places(made, product, axis)
            if places is None:
                return func
            made = places.rewritten(made, prod(places.extents))
    return made


def _read_at_single_rows(func: Any) -> Any:
    """The function with reads of single rows at the axis that counts them: operators that broadcast read those at 0.

    ::

        c[i, j, n] = a[i, 0, n]   ->   a[i, j, n]     # j counts one row
    """

    def block(node: Any) -> Any:
        axes = list(node.iter_vars)
        single = {outer.var: row.var for outer, row in pairwise(axes) if int(row.dom.extent) == 1}
        if node.init is not None or not single:
            return node

        def at_rows(load: Any) -> Any:
            indices = list(load.indices)
            for axis, (outer, index) in enumerate(pairwise(load.indices), 1):
                if outer in single and isinstance(index, tirx.IntImm) and int(load.source.shape[axis]) == 1:
                    indices[axis] = single[outer]
            return tirx.BufferLoad(load.source, indices)

        body, found = structural_map(node.body, (ir.TensorLoad, at_rows)), list[Any]()
        structural_walk(body, (ir.TensorLoad, lambda load: found.append(point(load.source, load.indices))))
        return block_with(node, body=body, reads=distinct(found))

    return structural_map(func, (s_tir.SBlock, block))


def _places(func: Any, first: str, axis: int) -> _Places | None:
    """The places of an axis and the next one of the block that is called ``first``, where they can be cut anew."""
    places, blocks = _Places(first), list(_realizations(func))
    at = next((index for index, realize in enumerate(blocks) if realize.block.name_hint == first), 0)
    # What is before it is known by what it reads.
    found = all(places.take(realize, axis) for realize in (*blocks[at::-1], *blocks[at + 1 :]))
    return places if found and places.tensors else None


@dataclass
class _Places:
    """Which axes count rows; the next ones count columns."""

    leader: str  # the block whose axes are known
    extents: tuple[int, int] = (0, 0)
    tensors: dict[Any, int] = field(default_factory=dict)
    without: set[Any] = field(default_factory=set)  # tensors that have no places
    counted: tuple[set[Any], set[Any]] = field(default_factory=lambda: (set(), set()))  # variables of rows, of columns

    def take(self, realize: Any, rows_axis: int) -> bool:
        """Note what a block does; False where condition 1 or 2 does not hold."""
        block, touched = realize.block, _touched(realize.block)
        first = rows_axis if block.name_hint == self.leader else self._rows_of(block, touched)
        if first is None:
            self.without.update(tensor for tensor, _ in touched)
            return not any(tensor in self.tensors for tensor, _ in touched)
        pair = block.iter_vars[first : first + 2]
        if len(pair) < 2:
            return False
        variables, loops = [axis.var for axis in pair], list(realize.iter_values)[first : first + 2]
        extents = (int(pair[0].dom.extent), int(pair[1].dom.extent))
        if not any(self.extents):
            self.extents = extents
        plain = all(int(axis.iter_type) == int(tirx.IterVar.DataPar) for axis in pair)
        if not plain or extents != self.extents or not all(isinstance(loop, ir.Var) for loop in loops):
            return False
        if any(uses(value, variables) for value in _without_reads(block)):
            return False
        for found, axis in zip(self.counted, zip(variables, loops, strict=True), strict=True):
            found.update(axis)
        return all(self._at_place(tensor, indices, variables) for tensor, indices in touched)

    def _rows_of(self, block: Any, touched: Sequence[tuple[Any, Any]]) -> int | None:
        """The axis that counts rows, as the first tensor that has places shows it."""
        rows = next((indices[self.tensors[tensor]] for tensor, indices in touched if tensor in self.tensors), None)
        axes = range(len(block.iter_vars) - 1)
        return None if rows is None else next((axis for axis in axes if block.iter_vars[axis].var.same_as(rows)), None)

    def _at_place(self, tensor: Any, indices: Sequence[Any], variables: Sequence[Any]) -> bool:
        axes = [axis for axis, index in enumerate(indices) if uses(index, variables)]
        if not axes:
            return tensor not in self.tensors
        first = axes[0]
        if axes != [first, first + 1] or tensor in self.without or self.tensors.setdefault(tensor, first) != first:
            return False
        in_order = all(index.same_as(var) for index, var in zip(indices[first : first + 2], variables, strict=True))
        return in_order and tuple(int(extent) for extent in tensor.shape[first : first + 2]) == self.extents

    def rewritten(self, func: Any, width: int) -> Any:
        """The function with so many columns in a row; the same where condition 3 does not hold."""
        if width == self.extents[1]:
            return func
        strides = self._strides(func, width)
        if strides is None:
            return func
        counts = (prod(self.extents) // width, width)
        extents = {variable: count for found, count in zip(self.counted, counts, strict=True) for variable in found}
        shaped = {tensor: _with_extents(tensor, axis, counts) for tensor, axis in self.tensors.items()}

        def block(node: Any) -> Any:
            return block_with(node, iter_vars=[with_extent(axis, extents.get(axis.var)) for axis in node.iter_vars])

        def loop(node: Any) -> Any:
            extent = extents.get(node.loop_var)
            return node if extent is None else loop_with(node, node.body, extent=tirx.IntImm("int32", extent))

        # Blocks and loops first: they are found by their variables.
        cut_anew = structural_map(func, [(s_tir.SBlock, block), (tirx.For, loop)])
        return strided(structural_map(cut_anew, (tirx.Var, lambda var: shaped.get(var, var))), strides)

    def _strides(self, func: Any, width: int) -> dict[int, tuple[int, ...]] | None:
        """Those of parameters that are bands, with rows that are so long; None where condition 3 does not hold."""
        found = dict[int, tuple[int, ...]]()
        for index, strides in strides_of_parameters(func).items():
            axis = self.tensors.get(func.params[index])
            if axis is not None:
                if strides[axis] != self.extents[1] * strides[axis + 1]:
                    return None
                strides = (*strides[:axis], width * strides[axis + 1], *strides[axis + 1 :])
            found[index] = strides
        return found


def _with_extents(tensor: Any, axis: int, extents: tuple[int, int]) -> Any:
    shape = [int(extent) for extent in tensor.shape]
    shape[axis : axis + 2] = extents
    return tirx.decl_buffer(shape, tensor.dtype, tensor.name, scope=tensor.scope(), layout=None)


def with_extent(axis: Any, extent: int | None) -> Any:
    if extent is None:
        return axis
    return tirx.IterVar(ir.Range.from_min_extent(0, extent), axis.var, axis.iter_type, axis.thread_tag)


def _realizations(func: Any) -> Iterator[Any]:
    """Of the blocks that hold no others, in program order."""
    found: list[Any] = []
    structural_walk(func.body, (s_tir.SBlockRealize, found.append))
    return (realize for realize in found if realize.block.iter_vars)


def _parts(block: Any) -> list[Any]:
    return [part for part in (block.init, block.body) if part is not None]


def _touched(block: Any) -> list[tuple[Any, list[Any]]]:
    """The tensors that a block reads and writes, at which indices."""
    found: list[tuple[Any, Sequence[Any]]] = []
    for part in _parts(block):
        structural_walk(part, (ir.TensorLoad, lambda load: found.append((load.source, load.indices))))
        structural_walk(part, (tirx.BufferStore, lambda store: found.append((store.buffer, store.indices))))
    analyzer = sym.Analyzer()
    for axis in block.iter_vars:
        analyzer.bind(axis.var, axis.dom)
    return [(tensor, [_simplified(index, analyzer) for index in indices]) for tensor, indices in found]


def _simplified(index: Any, analyzer: Any) -> Any:
    """What is an axis stays one, if only of one place."""
    return index if isinstance(index, ir.Var) else analyzer.simplify(index)


def _without_reads(block: Any) -> list[Any]:
    """The values that a block writes, an unknown in the place of each element that is read."""
    values: list[Any] = []
    for part in _parts(block):
        structural_walk(part, (tirx.BufferStore, lambda store: values.append(store.value)))
    unknown = ir.TensorLoad, lambda load: tirx.Var("read", str(load.source.dtype))
    return [structural_map(value, unknown, order="pre") for value in values]
