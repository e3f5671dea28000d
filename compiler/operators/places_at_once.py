"""Convolutions with few outputs, as convolutions that make those of several places at once.

The cube makes sixteen outputs of a place. Where there is one, it multiplies by zeros for all others, for each element
of the kernel. Windows in longer steps, each as long as those of several places together, fill them: the outputs of
places side by side are further outputs, of a kernel that is moved along in zeros. And where there are few channels
too, the places within a step are further channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import inf, prod
from typing import Any

import numpy as np

from compiler.operators.broadcast import shape_of
from compiler.operators.graph import Graph, Value
from compiler.operators.phases import MOST_SIZE, MOST_STEP, in_whole_steps
from compiler.operators.windows import Windows

OUTPUTS = 16  # of a place, that the cube makes at once
# Cycles of a core for each element that is read and written once more, of kernels that put 363,000 in another order, on
# both chips, where they stay on the chip; and of all cores for one more kernel, which takes some 400.
PASS_CYCLES = 1 / 8
KERNEL_CYCLES = 8_000
WORTH = 1.7  # times fewer cycles, so that it pays


@dataclass(frozen=True)
class _Way:
    """How many places along each axis are made at once, and along which axes those within a step are channels."""

    counts: tuple[int, ...]
    folded: tuple[bool, ...]

    def windows(self, windows: Windows) -> Windows:
        """Of as many places as it takes; whatever is made beyond the last one is left out."""
        outputs = [-(-made // count) for made, count in zip(windows.outputs, self.counts, strict=True)]
        strides = tuple(step * count for step, count in zip(windows.strides, self.counts, strict=True))
        kernel = tuple(
            size + step * (count - 1)
            for size, step, count in zip(windows.kernel, windows.strides, self.counts, strict=True)
        )
        ends = tuple(
            (made - 1) * step + size - begin - extent
            for made, step, size, begin, extent in zip(
                outputs, strides, kernel, windows.begins, windows.extents, strict=True
            )
        )
        return replace(windows, kernel=kernel, strides=strides, ends=ends, ceil_mode=False)

    def cycles(self, windows: Windows, channels: int, outputs: int, block: int) -> float:
        """Of the cube for all places, and of moving what is put in another order."""
        at_once = self.windows(windows)
        steps = [step if folded else 1 for step, folded in zip(at_once.strides, self.folded, strict=True)]
        taps = prod(-(-size // step) for size, step in zip(at_once.kernel, steps, strict=True))
        places = prod(at_once.outputs)
        found = places * taps * -(-channels * prod(steps) // block) / OUTPUTS
        if prod(self.counts) > 1:
            found += KERNEL_CYCLES + PASS_CYCLES * places * prod(self.counts) * outputs
        if any(self.folded):
            found += KERNEL_CYCLES + PASS_CYCLES * prod(windows.extents) * channels
        return found

    def is_able(self, windows: Windows) -> bool:
        at_once = self.windows(windows)
        return all(
            -(-size // step) <= MOST_SIZE if folded else size <= MOST_SIZE and step <= MOST_STEP
            for size, step, folded in zip(at_once.kernel, at_once.strides, self.folded, strict=True)
        )


def several_places(
    graph: Graph, x: Value, w: Value, b: Value | None, windows: Windows, block: int
) -> tuple[Value, Value, Value | None, Windows, tuple[int, ...]]:
    """The operands and windows of a convolution of one group that makes places at once, and how many along each axis.

    1. The weights are known, and the kernel has no holes.
    2. There are few outputs, and it takes little more than half the time, with the result put in order; or the kernel
       is longer than the cube takes: of half as many steps of twice as many channels it makes twice as many outputs.
    """
    (outputs, channels, *_), alone = shape_of(w), (1,) * windows.rank
    if w.constant is None or set(windows.dilations) != {1} or not outputs:
        return x, w, b, windows, alone
    costs = {way: way.cycles(windows, channels, outputs, block) for way in _ways(windows, OUTPUTS // outputs)}
    best = min(costs, key=costs.__getitem__, default=_shortest(windows))
    plain = min((cost for way, cost in costs.items() if way.counts == alone), default=inf)
    if best.counts == alone or (costs and costs[best] * WORTH > plain):
        return x, w, b, windows, alone
    if b is not None:
        of_each = graph.call("Reshape", b, np.array([outputs, 1]))
        spread = graph.call("Expand", of_each, np.array([outputs, prod(best.counts)]))
        b = graph.call("Reshape", spread, np.array([-1]))
    w = graph.constant(_moved_along(w.constant, best.counts, windows.strides))
    windows = best.windows(windows)
    for axis, folded in enumerate(best.folded):
        if folded:
            x, w, windows = in_whole_steps(graph, x, w, windows, axis)
    return x, w, b, windows, best.counts


def _ways(windows: Windows, most: int) -> Iterator[_Way]:
    """With at most so many places at once."""
    for counts in product(*(range(1, min(made, most) + 1) for made in windows.outputs)):
        if prod(counts) <= most:
            steps = [step * count for step, count in zip(windows.strides, counts, strict=True)]
            for folded in product(*((False, True) if step > 1 else (False,) for step in steps)):
                if (way := _Way(counts, folded)).is_able(windows):
                    yield way


def _shortest(windows: Windows) -> _Way:
    """With as many places at once as it takes for a kernel that the cube takes."""
    counts = [1] * windows.rank
    for axis, (size, step) in enumerate(zip(windows.kernel, windows.strides, strict=True)):
        while -(-(size - step) // (step * counts[axis])) + 1 > MOST_SIZE:
            counts[axis] += 1
    steps = zip(windows.kernel, windows.strides, counts, strict=True)
    return _Way(tuple(counts), tuple(count > 1 or size > MOST_SIZE or step > MOST_STEP for size, step, count in steps))


def _moved_along(w: np.ndarray[Any, Any], counts: tuple[int, ...], steps: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """[outputs, channels, *kernel] -> [outputs * counts, channels, *kernel]: each a step further in zeros."""
    outputs, channels, *kernel = w.shape
    longer = [size + step * (count - 1) for size, step, count in zip(kernel, steps, counts, strict=True)]
    found = np.zeros((outputs, *counts, channels, *longer), w.dtype)
    for place in np.ndindex(*counts):
        under = [slice(at * step, at * step + size) for at, step, size in zip(place, steps, kernel, strict=True)]
        found[(slice(None), *place, slice(None), *under)] = w
    return found.reshape(-1, channels, *longer)


def in_order(graph: Graph, made: Value, counts: tuple[int, ...], outputs: tuple[int, ...]) -> Any:
    """[n, o * counts, *places] -> [n, o, *places * counts]; along an axis there are as many as ``outputs`` says."""
    if prod(counts) == 1:
        return made
    (batch, channels, *places), rank = shape_of(made), len(counts)
    apart = graph.call("Reshape", made, np.array([batch, channels // prod(counts), *counts, *places]))
    beside = [axis for at in range(2, 2 + rank) for axis in (at + rank, at)]
    whole = [place * count for place, count in zip(places, counts, strict=True)]
    turned = graph.call("Transpose", apart, perm=(0, 1, *beside))
    result = graph.call("Reshape", turned, np.array([batch, channels // prod(counts), *whole]))
    cut = [axis for axis in range(rank) if whole[axis] > outputs[axis]]
    if not cut:
        return result
    ends = np.array([outputs[axis] for axis in cut])
    return graph.call("Slice", result, np.zeros_like(ends), ends, np.array([2 + axis for axis in cut]))
