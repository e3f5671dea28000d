"""Calls that clusters of the chip run together on one image, each on some of its rows.

    b = conv(a); c = conv(b)    by two clusters    ->    cluster 0: rows 0:20 of a    rows 0:20 of b    rows 0:16 of c
    of 32 rows each                                      cluster 1: rows 12:32        rows 12:32        rows 16:32

All clusters run the same program, so that their windows are all as large; where later calls need fewer rows, they read
windows of windows. A window holds all rows that the cluster's part of the results needs, itself or by what is between.
Those at its edges within the image may be wrong, for an operator takes the edge of a window for that of the image; what
is needed is far enough from them. That is proven for each call and each cluster: the rows that are needed of it are the
same function of those that are needed of what it reads, whether it is given whole tensors or windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from math import ceil, floor, lcm, prod
from typing import Any, Protocol

import numpy as np
import tvm_ffi
from tvm import s_tir, tirx

from compiler import graph
from compiler.errors import TilewrightError
from compiler.isa.dtypes import DTYPES
from compiler.operators import TensorType
from compiler.schedule.bands import Band, Bands, hull
from compiler.schedule.movement import operator_kernel
from compiler.tir.scopes import ISA_DTYPE
from compiler.tir.structure import structural_map

JOIN, VIEW, FOLLOWER = "Concat", "view", "elementwise"
LEAST_BYTES = 256  # that lie in one piece of a window in DDR
ALIKE = 1.2  # times the rows of a window, what one may have that serves more calls: each shape takes its own kernels


@dataclass(frozen=True)
class Section:
    """Calls of the imported graph by their names, and how many clusters run them on some rows each; 0: as ever."""

    names: frozenset[str]
    clusters: int


@dataclass(frozen=True)
class Window:
    """Of a tensor along an axis: as many rows for each cluster, beginning at rows of their own."""

    axis: int
    extent: int  # of the tensor
    starts: tuple[int, ...]
    rows: int

    @property
    def bands(self) -> list[Band]:
        return [(start, start + self.rows) for start in self.starts]

    def holds(self, bands: Sequence[Band]) -> bool:
        """Whether the rows of each cluster are in its window."""
        pairs = zip(self.bands, bands, strict=True)
        return all(first <= low and high <= end for (first, end), (low, high) in pairs)

    def of(self, shape: Sequence[int]) -> tuple[int, ...]:
        return (*shape[: self.axis], self.rows, *shape[self.axis + 1 :])


@dataclass(frozen=True)
class Spread:
    """The windows that calls of a body make, by their results, those that they read, and the functions that do so."""

    clusters: int
    made: Mapping[Any, Window]
    read: Mapping[tuple[Any, Any], Window]  # by call and argument
    functions: Mapping[Any, Any]

    def shape_read(self, call: graph.Call, value: Any) -> tuple[int, ...]:
        window = self.read.get((call.var, value))
        return graph.shape_of(value) if window is None else window.of(graph.shape_of(value))


class _Joined:
    """What lies side by side along another axis than rows, in bands."""

    def __init__(self, inputs: int, axis: int) -> None:
        self.inputs = (axis,) * inputs

    def inputs_of(self, band: Band) -> tuple[Band, ...]:
        return (band,) * len(self.inputs)

    def ratios(self) -> tuple[Fraction, ...]:
        return (Fraction(1),) * len(self.inputs)


class _Seen:
    """A tensor under another shape, whose rows are some of its rows, or a part of one, in order."""

    def __init__(self, axis: int, extent: int, of: int) -> None:
        self.inputs, self._ratio = (axis,), Fraction(extent, of)

    @staticmethod
    def of(function: Any, axis: int) -> _Seen | None:
        source, result = ([int(n) for n in param.shape] for param in function.params)
        extent, before = result[axis], prod(result[:axis])
        for own, rows in enumerate(source):
            if prod(source[:own]) == before and rows > 1 and (rows % extent == 0 or extent % rows == 0):
                return _Seen(own, rows, extent)
        return None

    def inputs_of(self, band: Band) -> tuple[Band, ...]:
        low, high = (row * self._ratio for row in band)
        return ((floor(low), ceil(high)),)

    def ratios(self) -> tuple[Fraction, ...]:
        return (self._ratio,)


Local = Bands | _Joined | _Seen


class Recipe(Protocol):
    """How a function was made."""

    def made_for(self, shapes: Sequence[Sequence[int]], told: Mapping[tuple[int, ...], tuple[int, ...]]) -> Any: ...


class Spreads:
    """Answers for the functions of one imported module; each is asked once."""

    def __init__(self, module: Any, recipes: Mapping[str, Recipe]) -> None:
        self.module, self.recipes = module, recipes
        self.local = cache(self._local)
        self._made = cache(self._made_for)

    def _local(self, callee: str, axis: int) -> Local | None:
        """What rows of its arguments a function needs for some of its result; None where that is not known."""
        function = self.module[callee]
        if callee not in self.recipes or axis >= len(function.params[-1].shape):
            return None
        if graph.attribute(function, "tw.schedule") == VIEW and len(function.params) == 2:
            return _Seen.of(function, axis)
        if graph.attribute(function, "tw.operator") == JOIN and _lies_across(function, axis):
            return _Joined(len(function.params) - 1, axis)
        return Bands.of(function, axis)

    def _made_for(self, callee: str, shapes: tuple[tuple[int, ...], ...], made: tuple[int, ...]) -> Any | None:
        """The function for operands of other shapes, whose result has this shape if it has rows as expected."""
        function = self.module[callee]
        if graph.attribute(function, "tw.schedule") == VIEW:
            given = TensorType(shapes[0], str(function.params[0].dtype))
            return operator_kernel("Reshape", [given, np.array(made)], {}).without_attr("global_symbol")
        result = tuple(int(n) for n in function.params[-1].shape)
        try:
            return self.recipes[callee].made_for(shapes, {result: made}).without_attr("global_symbol")
        except TilewrightError:
            return None

    def needed(self, body: graph.Body, clusters: int) -> tuple[dict[Any, int], dict[Any, list[Band]]] | None:
        """By value, the axis of its rows and those that each cluster needs; None where calls of a body need all."""
        axes, needed, whole = dict[Any, int](), dict[Any, list[Band]](), set[Any]()
        for value in body.results:
            shape = graph.shape_of(value)
            axis = axis_of_rows(shape)
            if axis is None or shape[axis] % clusters:
                return None
            own = shape[axis] // clusters
            axes[value], needed[value] = axis, [(n * own, (n + 1) * own) for n in range(clusters)]
        for call in reversed(body.calls):
            local = self.local(call.callee, axes[call.var]) if call.var in axes and len(call.types) == 1 else None
            if local is None or not any(axis is not None for axis in local.inputs):
                return None
            for number, (value, axis) in enumerate(zip(call.arguments, local.inputs, strict=True)):
                if axis is None:
                    whole.add(value)
                    continue
                rows = _rows_read(local, needed[call.var], number)
                if rows is None or axes.setdefault(value, axis) != axis:
                    return None
                before = needed.get(value, rows)
                needed[value] = [hull(one, other) for one, other in zip(before, rows, strict=True)]
        return None if whole & axes.keys() else (axes, needed)

    def of(self, body: graph.Body, clusters: int) -> Spread | None:
        """How so many clusters run a body; None where they cannot, or where that is not proven."""
        found = self.needed(body, clusters)
        scales = None if found is None else self._scales(body, found[0])
        if found is None or scales is None:
            return None
        axes, needed = found
        levels = self._levels(body, axes, needed, scales)
        if levels is None:
            return None
        made, read = dict[Any, Window](), dict[tuple[Any, Any], Window]()
        for call in body.calls:
            local: Any = self.local(call.callee, axes[call.var])
            cut = [value for value, axis in zip(call.arguments, local.inputs, strict=True) if axis is not None]
            for value in (call.var, *cut):
                window = levels[call.var].window(axes[value], graph.shape_of(value)[axes[value]], scales[value])
                if value is call.var:
                    made[value] = window
                else:
                    read[call.var, value] = window
        spread = self._with_functions(body, Spread(clusters, made, read, {}))
        return spread if spread is not None and self._proven(body, spread, needed) else None

    def _levels(
        self,
        body: graph.Body,
        axes: Mapping[Any, int],
        needed: Mapping[Any, Sequence[Band]],
        scales: Mapping[Any, Fraction],
    ) -> dict[Any, _Level] | None:
        """By call: the windows on which it works. Those of a call hold what calls behind it read of its result."""
        aligned = lcm(*(scale.denominator for scale in scales.values()))
        least, behind = dict[Any, _Level](), dict[Any, list[_Level]]()
        for call in reversed(body.calls):
            local: Any = self.local(call.callee, axes[call.var])
            spans = [_Span.of(call.var, axes, scales, needed[call.var])]
            for number, (value, axis) in enumerate(zip(call.arguments, local.inputs, strict=True)):
                if axis is not None:
                    read = _rows_read(local, needed[call.var], number) or ()
                    spans.append(_Span.of(value, axes, scales, read))
            own = _Level.of(spans, aligned)
            for other in behind.get(call.var, ()):
                own = own.around(other)
            if own.most <= 0:
                return None
            least[call.var] = own
            for value, axis in zip(call.arguments, local.inputs, strict=True):
                if axis is not None:
                    behind.setdefault(value, []).append(own)
        first = next(value for value, scale in scales.items() if scale == 1)
        levels = _in_levels([least[call.var] for call in reversed(body.calls)], graph.shape_of(first)[axes[first]])
        found = {call.var: level for call, level in zip(reversed(body.calls), levels, strict=True)}
        # What follows in the same kernel, or without one, works on all that is made.
        for call in body.calls:
            if graph.attribute(self.module[call.callee], "tw.schedule") in (VIEW, FOLLOWER):
                before = [found[value] for value in call.arguments if value in found]
                found[call.var] = max(before, key=lambda level: level.most, default=found[call.var])
        return found if all(level.most > 0 for level in levels) else None

    def _scales(self, body: graph.Body, axes: Mapping[Any, int]) -> dict[Any, Fraction] | None:
        """By value: how many rows of it there are to one of the first, where an image is seen at several scales."""
        scales = dict[Any, Fraction]()
        for call in body.calls:
            local: Any = self.local(call.callee, axes[call.var])
            every = zip(call.arguments, local.inputs, local.ratios(), strict=True)
            pairs = [(value, ratio) for value, axis, ratio in every if axis is not None]
            if any(not ratio for _, ratio in pairs):
                return None
            known = [scales[value] / ratio for value, ratio in pairs if value in scales]
            own = known[0] if known else 1 / Fraction(pairs[0][1])
            scales[call.var] = own
            for value, ratio in pairs:
                if scales.setdefault(value, own * ratio) != own * ratio:
                    return None
        return scales

    def _with_functions(self, body: graph.Body, spread: Spread) -> Spread | None:
        found = dict[Any, Any]()
        for call in body.calls:
            shape = spread.made[call.var].of(graph.shape_of(call.var))
            function = self._made(call.callee, tuple(spread.shape_read(call, value) for value in call.arguments), shape)
            if function is None or tuple(int(n) for n in function.params[-1].shape) != shape:
                return None
            found[call.var] = function
        return replace(spread, functions=found)

    def _proven(self, body: graph.Body, spread: Spread, needed: Mapping[Any, Sequence[Band]]) -> bool:
        """Whether windows hold what is read of them, and calls make all that is needed of that."""
        if not all(spread.made[value].holds(needed[value]) for value in spread.made):
            return False
        for (_, value), window in spread.read.items():
            if value in spread.made and not spread.made[value].holds(window.bands):
                return False
        for call in body.calls:
            window = spread.made[call.var]
            local: Any = self.local(call.callee, window.axis)
            if not isinstance(local, Bands):
                read = [spread.read[call.var, value] for value in call.arguments]
                bands = list(zip(*(each.bands for each in read), strict=True))
                if [local.inputs_of(band) for band in window.bands] != bands:
                    return False
                continue
            own = Bands.of(spread.functions[call.var], window.axis)
            if own is None or own.inputs != local.inputs:
                return False
            for number, band in enumerate(needed[call.var]):
                moved = [
                    0 if axis is None else spread.read[call.var, value].starts[number]
                    for value, axis in zip(call.arguments, local.inputs, strict=True)
                ]
                if not _are_same(local, own, band, window.starts[number], moved):
                    return False
        return True


@dataclass(frozen=True)
class _Span:
    """How many rows a tensor has, and those that each cluster needs, in rows of the first tensor."""

    extent: Fraction
    rows: tuple[tuple[Fraction, Fraction], ...]

    @staticmethod
    def of(value: Any, axes: Mapping[Any, int], scales: Mapping[Any, Fraction], bands: Sequence[Band]) -> _Span:
        extent, scale = graph.shape_of(value)[axes[value]], scales[value]
        return _Span(extent / scale, tuple((low / scale, high / scale) for low, high in bands))


@dataclass(frozen=True)
class _Level:
    """Where windows of tensors begin, and how many rows before the end the last one does, in rows of the first tensor.

    All end as far behind where they begin, and the last with the tensor.
    """

    starts: tuple[int, ...]
    most: int

    @staticmethod
    def of(spans: Sequence[_Span], aligned: int) -> _Level:
        """The smallest windows with some rows of tensors: each begins as late as it may, and the last then no later
        than all of them hold what is needed.
        """
        clusters = len(spans[0].rows)
        starts = [_down(min(span.rows[n][0] for span in spans), aligned) for n in range(clusters)]
        room = [span.extent - span.rows[n][1] + starts[n] for span in spans for n in range(clusters)]
        return _Level._settled(starts, _down(min(*room, Fraction(starts[-1])), aligned))

    @staticmethod
    def _settled(starts: Sequence[int], most: int) -> _Level:
        return _Level(tuple(min(start, most) for start in starts), most)

    def around(self, other: _Level) -> _Level:
        """The smallest with both."""
        starts = [min(pair) for pair in zip(self.starts, other.starts, strict=True)]
        room = [
            start + level.most - own for level in (self, other) for start, own in zip(starts, level.starts, strict=True)
        ]
        return _Level._settled(starts, min(room))

    def holds(self, other: _Level) -> bool:
        return self.around(other) == self

    def window(self, axis: int, extent: int, scale: Fraction) -> Window:
        starts = tuple(int(start * scale) for start in self.starts)
        return Window(axis, extent, starts, extent - int(self.most * scale))


def _down(rows: Fraction, aligned: int) -> int:
    return floor(rows) // aligned * aligned


def _in_levels(least: Sequence[_Level], rows: int) -> list[_Level]:
    """For calls from the last to the first: windows that hold the least ones, and those before; few different ones."""
    found = list[_Level]()
    for at, own in enumerate(least):
        if found and found[-1].holds(own):
            found.append(found[-1])
            continue
        level = own.around(found[-1]) if found else own
        limit = (rows - level.most) * ALIKE
        for other in least[at + 1 :]:
            wider = level.around(other)
            if rows - wider.most > limit:
                break
            level = wider
        found.append(level)
    return found


def row_bytes(value: Any, axis: int) -> int:
    """Of a row of a tensor, that lie in one piece with those of the next row."""
    kind = DTYPES[ISA_DTYPE[graph.dtype_of(value)]]
    return prod(graph.shape_of(value)[axis + 1 :]) * kind.itemsize


def _rows_read(local: Local, bands: Sequence[Band], number: int) -> list[Band] | None:
    """Of an input, for each of these bands of a result."""
    found = list[Band]()
    for band in bands:
        inputs = local.inputs_of(band)
        own = None if inputs is None else inputs[number]
        if own is None:
            return None
        found.append(own)
    return found


def axis_of_rows(shape: Sequence[int]) -> int | None:
    """Of an image, behind its channels."""
    return 2 if len(shape) in (4, 5) else None


def _lies_across(function: Any, axis: int) -> bool:
    """Whether the arguments of a function that joins these have as many rows as its result."""
    return all(int(param.shape[axis]) == int(function.params[-1].shape[axis]) for param in function.params)


def _are_same(whole: Bands, own: Bands, band: Band, moved: int, moved_inputs: Sequence[int]) -> bool:
    """Whether a function of windows makes of theirs what one of whole tensors makes of these rows."""
    there = band[0] - moved, band[1] - moved
    wanted, given = whole.needed(band), own.needed(there)
    if wanted is None or given is None:
        return False
    for one, other, rows in zip(whole.func.params, own.func.params, (*moved_inputs, moved), strict=True):
        if one in whole.axes and wanted[one] != tuple(row + rows for row in given[other]):
            return False
    return bool(tvm_ffi.structural_equal(_bare(whole.function(wanted)), _bare(own.function(given))))


def _bare(function: Any) -> Any:
    """Without what says how it was made, and what its blocks say that they read and write."""

    def block(node: Any) -> Any:
        return s_tir.SBlock(
            node.iter_vars, [], [], "", node.body, node.init, node.alloc_buffers, node.match_buffers, {},
        )  # fmt: skip

    return tirx.PrimFunc(function.params, structural_map(function.body, (s_tir.SBlock, block)))
