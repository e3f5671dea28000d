"""Convolutions in steps of several pixels over few channels, as convolutions in steps of one over more channels.

The cube works on blocks of channels. Three channels leave most of a block empty, for every element of the kernel; with
the pixels of a step as further channels, blocks are fuller and the kernel has fewer elements.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from compiler.operators.broadcast import shape_of
from compiler.operators.graph import Graph, Value
from compiler.operators.windows import Windows

WORTH = 3  # times fewer blocks, so that another pass over the image pays


def by_phases(graph: Graph, x: Value, w: Value, windows: Windows, block: int) -> tuple[Value, Value, Windows]:
    """The operands and windows of the same convolution of one group, in steps of one where that pays.

    1. Steps are alike along both axes, a whole number of them covers the image, and the kernel has no holes.
    2. The weights are known: they are put in order at compile time.
    3. The cube has a third of the blocks to work on, each of ``block`` channels.
    """
    steps, channels = set(windows.strides), shape_of(w)[1]
    step = min(steps, default=1)
    whole = all(extent % step == 0 for extent in windows.extents)
    if windows.rank != 2 or len(steps) > 1 or step == 1 or not whole or set(windows.dilations) != {1}:
        return x, w, windows
    begins = tuple(-(-begin // step) for begin in windows.begins)
    kernel = tuple(
        -(-(size + after * step - begin) // step)
        for size, begin, after in zip(windows.kernel, windows.begins, begins, strict=True)
    )
    before = prod(windows.kernel) * -(-channels // block)
    if w.constant is None or prod(kernel) * -(-channels * step**2 // block) * WORTH > before:
        return x, w, windows
    extents = tuple(extent // step for extent in windows.extents)
    ends = tuple(
        count - 1 + size - begin - extent
        for count, size, begin, extent in zip(windows.outputs, kernel, begins, extents, strict=True)
    )
    apart = Windows(extents, kernel, (1, 1), (1, 1), begins, ends)
    leading = [after * step - begin for after, begin in zip(begins, windows.begins, strict=True)]
    trailing = [
        size * step - first - before for size, first, before in zip(kernel, leading, windows.kernel, strict=True)
    ]
    return graph.call("SpaceToDepth", x, blocksize=step), _weights(graph, w, kernel, step, leading, trailing), apart


def _weights(
    graph: Graph, w: Value, kernel: tuple[int, ...], step: int, leading: list[int], trailing: list[int]
) -> Any:
    """Zeros around the kernel up to whole steps; then the places within a step are channels, as in SpaceToDepth."""
    outputs, channels = shape_of(w)[:2]
    around = np.array([0, 0, *leading, 0, 0, *trailing], np.int64)
    padded = graph.call("Pad", w, around) if any(around) else w
    split = np.array([outputs, channels, kernel[0], step, kernel[1], step])
    ordered = graph.call("Transpose", graph.call("Reshape", padded, split), perm=(0, 3, 5, 1, 2, 4))
    return graph.call("Reshape", ordered, np.array([outputs, channels * step**2, *kernel]))
