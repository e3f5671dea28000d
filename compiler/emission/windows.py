"""Reductions over windows, ``d[y, x] = op(d[y, x], a[y * s + i, x * t + j])``, by the rows that pool.

A pooling row walks rows, columns and channels of its result; which of a nest's loops those are follows from how far
each moves the source: a loop over rows and one over a window's rows move it by multiples of the same step. Sums of
what is converted to fp32 are those of a copy of all that the windows touch, each element of which is converted once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import gcd, prod
from typing import Any

from compiler.emission.candidates import Found
from compiler.emission.copies import instruction_candidate
from compiler.emission.dims import Dim, Placement, eligible, merged
from compiler.emission.nest import Access, Nest
from compiler.emission.operands import Operands
from compiler.emission.patterns import matches
from compiler.emission.reductions import accumulation, new_buffer
from compiler.emission.terms import Term
from compiler.emission.vector import MEMORY
from compiler.emission.widening import WIDE, is_widened
from compiler.isa.model import dense_strides
from compiler.isa.table import by_mnemonic
from compiler.target import Chip

_ROWS = {"max": "vmaxpool", "min": "vminpool", "add": "vsumpool"}


def pooling(nest: Nest, chip: Chip) -> Iterator[Found]:
    """Rows that write the combined windows: right where the destination holds the operation's identity."""
    found = accumulation(nest)
    if found is None or found.op not in _ROWS or nest.target.memory != MEMORY or len(found.sources) != 1:
        return
    (source,) = found.sources
    row, widens = by_mnemonic()[_ROWS[found.op]], is_widened(found.op, found.rest)
    plain = found.rest.op == "load" and source.dtype == nest.target.dtype
    if source.memory != MEMORY or not (plain or widens) or nest.target.dtype not in row.modifiers[0].choices:
        return
    if source.buffer.same_as(nest.target.buffer):
        return
    dims = eligible(nest, [nest.target, source])
    window = [dim for dim in dims if dim.strides[0] == 0]
    kept = [dim for dim in dims if dim.strides[0] > 0]
    reduced = sum(coefficient == 0 for coefficient in nest.target.coefficients)
    if len(window) != reduced or reduced > 2 or any(dim.loops[0].least != dim.bound for dim in window):
        return
    for axes in _pairs(window, kept):
        yield _candidate(nest, row, axes, kept, source, chip, widens=widens)


@dataclass(frozen=True)
class _Axis:
    """Rows or columns: the result's dimension, the window's if it has one, and the step that both move in."""

    kept: Dim | None
    window: Dim | None

    @property
    def step(self) -> int:
        return gcd(*(dim.strides[1] for dim in (self.kept, self.window) if dim is not None)) or 1

    @property
    def scalars(self) -> tuple[int, int, int]:
        """The window's elements, how far apart windows and the elements of one are."""
        size = 1 if self.window is None else self.window.bound
        stride, dilation = (1 if d is None else d.strides[1] // self.step for d in (self.kept, self.window))
        return size, max(1, stride), max(1, dilation)

    @property
    def touched(self) -> tuple[Any, int]:
        """Elements from the first to the last one that is in a window: how many there are, and at most."""
        size, stride, dilation = self.scalars
        extent, bound = ((count - 1) * stride + (size - 1) * dilation + 1 for count in _lengths(self.kept))
        return extent, bound

    @property
    def covers(self) -> bool:
        """Whether windows leave nothing out between the first and the last element: the row reads all of that.

        It holds for every number of windows that there may be: the last core's part can have fewer than the others'.
        """
        fewest, most = (1, 1) if self.kept is None else (self.kept.loops[0].least, self.kept.bound)
        size, stride, dilation = self.scalars
        return (dilation == 1 and (stride <= size or most == 1)) or (stride == 1 and (dilation <= fewest or size == 1))


def _pairs(window: list[Dim], kept: list[Dim]) -> Iterator[tuple[_Axis, _Axis]]:
    """Each dimension of the window with a dimension of the result, the further apart ones as rows; near ones first."""
    ordered = sorted(window, key=lambda dim: -dim.strides[1])
    choices: list[Dim | None] = [*kept, None, None]
    higher, wider = ordered[0] if len(ordered) > 1 else None, ordered[-1] if ordered else None
    found = [(_Axis(first, higher), _Axis(second, wider)) for first, second in dict.fromkeys(permutations(choices, 2))]
    complete = [axes for axes in found if all(_is_complete(axis) for axis in axes)]
    yield from sorted(complete, key=lambda axes: sum(axis.scalars[1] for axis in axes))


def _is_complete(axis: _Axis) -> bool:
    """Whether a row can walk it: both dimensions move the source, and the window has one of the result beside it."""
    moves = all(dim is None or dim.strides[1] > 0 for dim in (axis.kept, axis.window))
    return moves and axis.covers and (axis.window is None or axis.kept is not None)


def _candidate(
    nest: Nest, row: Any, axes: tuple[_Axis, _Axis], kept: list[Dim], source: Access, chip: Chip, *, widens: bool
) -> Found:
    used = [axis.kept for axis in axes if axis.kept is not None]
    channels = max((dim for dim in kept if dim not in used), key=lambda dim: dim.bound, default=None)
    rows, columns = axes
    shape = [rows.kept, columns.kept, channels]
    inside = {id(loop) for dim in (*shape, rows.window, columns.window) if dim is not None for loop in dim.loops}
    placement = Placement(
        tuple(dim for dim in (*shape, rows.window, columns.window) if dim is not None),
        tuple(loop for loop in nest.loops if id(loop) not in inside),
    )
    (kernel_h, stride_h, dilation_h), (kernel_w, stride_w, dilation_w) = rows.scalars, columns.scalars
    steps, temporaries = list[Operands](), list[Access]()
    strides = [rows.step, columns.step, 1 if channels is None else channels.strides[1]]
    if widens:
        touched = [rows.touched, columns.touched, _lengths(channels)]
        widened = _widened(nest, source, strides, touched)
        source, strides = widened.accesses["dst"], _in_copy(strides, [bound for _, bound in touched])
        steps, temporaries = [widened], [source]
    steps.append(
        Operands(
            row,
            (nest.target.dtype, "3d"),
            {"dst": nest.target, "a": source},
            {
                "dst": [_dense(shape[k + 1 :]) if dim is None else dim.strides[0] for k, dim in enumerate(shape)],
                "a": strides,
            },
            {
                "kernel_h": kernel_h, "kernel_w": kernel_w, "stride_h": stride_h, "stride_w": stride_w,
                "dilation_h": dilation_h, "dilation_w": dilation_w,
            },
            [1 if dim is None else dim.extent for dim in shape],
            [1 if dim is None else dim.bound for dim in shape],
        )
    )  # fmt: skip
    return instruction_candidate(steps, placement, temporaries, chip, "vector")


def _lengths(dim: Dim | None) -> tuple[Any, int]:
    """How many there are, and at most."""
    return (1, 1) if dim is None else (dim.extent, dim.bound)


def _widened(nest: Nest, source: Access, strides: Sequence[int], touched: Sequence[tuple[Any, int]]) -> Operands:
    """Converts all that windows touch; what lies side by side there does so in the copy."""
    (match, *_) = matches(Term("cast", WIDE, (Term("load", source.dtype, value=0),)), WIDE)
    ordered = sorted(zip(strides, touched, strict=True), key=lambda dim: -dim[0])
    dims = merged(Dim((), extent, bound, (stride,)) for stride, (extent, bound) in ordered)
    bounds = [dim.bound for dim in dims]
    return Operands(
        match.row,
        match.mods_at(f"{len(dims)}d"),
        {"dst": new_buffer(nest, "widened", bounds), "a": source},
        {"dst": dense_strides(tuple(bounds)), "a": [dim.strides[0] for dim in dims]},
        dict(match.scalars),
        [dim.extent for dim in dims],
        bounds,
    )


def _in_copy(strides: Sequence[int], bounds: Sequence[int]) -> list[int]:
    """The strides of a copy without gaps, along the same dimensions."""
    order = sorted(range(len(strides)), key=lambda at: -strides[at])
    dense = dict(zip(order, dense_strides(tuple(bounds[at] for at in order)), strict=True))
    return [dense[at] for at in range(len(strides))]


def _dense(inner: list[Dim | None]) -> int:
    """A stride for a dimension of one."""
    return max(1, prod(1 if one is None else one.bound for one in inner))
