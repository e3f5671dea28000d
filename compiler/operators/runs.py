"""Picking elements by lists of positions that are known at compile time, as a few affine loop nests.

A list of source positions (the one for each output position) is cut into runs: nested loops whose output and source
positions both move by fixed steps, so that each run is one strided copy.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.operators import refusals
from compiler.operators.broadcast import dtype_of, shape_of
from compiler.operators.prim_functions import Buffer, Indices, part, prim_function, region

Positions = np.ndarray[Any, Any]
MAX_PERIOD = 16
MAX_POSITIONS = 1 << 24  # of one axis that are listed: lists of more take gigabytes


@dataclass(frozen=True)
class Loop:
    count: int
    output_step: int
    source_step: int


@dataclass(frozen=True)
class Run:
    """``output = output_start + sum(i * output_step)`` comes from ``source_start + sum(i * source_step)``."""

    output_start: int
    source_start: int
    loops: tuple[Loop, ...]

    @property
    def is_plain(self) -> bool:
        """One loop that writes consecutive positions from the first on."""
        return self.output_start == 0 and len(self.loops) == 1 and self.loops[0].output_step == 1

    def output_at(self, variables: Indices) -> Any:
        return _affine(self.output_start, [loop.output_step for loop in self.loops], variables)

    def source_at(self, variables: Indices) -> Any:
        return _affine(self.source_start, [loop.source_step for loop in self.loops], variables)


def require_listable(*counts: int) -> None:
    """To be asked before positions are listed; the counts may come from whoever wrote the model."""
    for count in counts:
        if count > MAX_POSITIONS:
            raise refusals.too_many("positions along one axis are too many to list", count, MAX_POSITIONS)


def runs_of(positions: Positions) -> list[Run]:
    """Few runs that together pick ``positions``, each output position once."""
    if len(positions) == 0:
        return []
    repeated = _repeated(positions)
    if repeated is not None:
        return [repeated]
    return min((_periodic(positions, period) for period in range(1, min(MAX_PERIOD, len(positions)) + 1)), key=len)


def progressions(table: Positions, period: int, labels: Positions | None = None) -> list[tuple[int, int]]:
    """The rows ``start, start + period, ...`` of a table in stretches (start, count) that grow by equal steps.

    ``labels``: a number for each row; the rows of a stretch have the same.
    """
    kinds = np.zeros(len(table), np.int64) if labels is None else labels
    stretches = []
    for phase in range(min(period, len(table))):
        rows, kind = table[phase::period], kinds[phase::period]
        steps = np.diff(rows, axis=0)
        begin = 0
        while begin < len(rows):
            end = begin + 1
            while end < len(rows) and kind[end] == kind[begin] and np.array_equal(steps[end - 1], steps[begin]):
                end += 1
            stretches.append((phase + begin * period, end - begin))
            begin = end
    return stretches


def count_of_nests(lists: Sequence[Positions]) -> int:
    """How many nests :func:`pick` makes of these lists."""
    return math.prod(len(runs_of(positions)) for positions in lists)


def pick(x: te.Tensor, lists: Sequence[Positions]) -> te.Tensor | tirx.PrimFunc:
    """``out[i, j, ...] = x[lists[0][i], lists[1][j], ...]``: in TE where that is one nest, else a PrimFunc."""
    return pick_runs(x, tuple(len(positions) for positions in lists), [runs_of(positions) for positions in lists])


def pick_runs(x: te.Tensor, shape: Sequence[int], runs: Sequence[Sequence[Run]]) -> te.Tensor | tirx.PrimFunc:
    """As :func:`pick`, for lists that are runs already; ``shape`` is the result's."""
    if all(len(of_axis) == 1 and of_axis[0].is_plain for of_axis in runs):
        return te.compute(
            shape, lambda *i: x[tuple(run.source_at([at]) for (run,), at in zip(runs, i, strict=True))], "pick"
        )
    return prim_function([x], [(tuple(shape), dtype_of(x))], lambda source, out: copy_runs(source, out, runs))


def copy_runs(source: Buffer, out: Buffer, runs: Sequence[Sequence[Run]]) -> None:
    """A region for every combination of the axes' runs."""
    combinations = list(itertools.product(*runs))
    for combination in combinations:
        _copy(source, out, combination, region if len(combinations) == 1 else part)


def whole(x: te.Tensor) -> list[Positions]:
    """The lists that pick every element."""
    return [np.arange(extent) for extent in shape_of(x)]


def _repeated(positions: Positions) -> Run | None:
    """The same stretch over and over (tile), or each position several times (nearest neighbour)."""
    length = len(positions)
    for inner in range(1, length + 1):
        if length % inner:
            continue
        grid = positions.reshape(-1, inner)
        steps = [int(axis[1] - axis[0]) if len(axis) > 1 else 0 for axis in (grid[:, 0], grid[0])]
        expected = grid[0, 0] + steps[0] * np.arange(len(grid))[:, None] + steps[1] * np.arange(inner)
        if np.array_equal(grid, expected):
            pair = (Loop(length // inner, inner, steps[0]), Loop(inner, 1, steps[1]))
            return Run(0, int(positions[0]), tuple(loop for loop in pair if loop.count > 1) or pair[:1])
    return None


def _periodic(positions: Positions, period: int) -> list[Run]:
    runs = []
    for start, count in progressions(positions, period):
        step = int(positions[start + period] - positions[start]) if count > 1 else 0
        runs.append(Run(start, int(positions[start]), (Loop(count, period, step),)))
    return runs


def _copy(source: Buffer, out: Buffer, combination: Sequence[Run], write: Callable[..., None]) -> None:
    write(
        tuple(loop.count for run in combination for loop in run.loops),
        out,
        lambda point: [run.output_at(variables) for run, variables in _by_run(combination, point)],
        lambda point: source[tuple(run.source_at(variables) for run, variables in _by_run(combination, point))],
        "copy",
    )


def _affine(start: int, steps: Sequence[int], variables: Indices) -> Any:
    position: Any = start
    for step, variable in zip(steps, variables, strict=True):
        if step:
            position = position + (variable if step == 1 else variable * step)
    return position


def _by_run(combination: Sequence[Run], point: Indices) -> list[tuple[Run, Indices]]:
    """The loop variables of each run."""
    variables = iter(point)
    return [(run, [next(variables) for _ in run.loops]) for run in combination]
