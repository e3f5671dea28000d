"""Convolutions over few channels, as convolutions of single rows over more channels.

The cube works on blocks of channels, most of which are empty where an image has three, or one, for every element of the
kernel. With the rows that a window sees as further channels, blocks are fuller and the kernel has one row.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from tvm import te

from compiler.operators.broadcast import literal, result_dtype, shape_of
from compiler.operators.graph import Graph, Value
from compiler.operators.places_at_once import KERNEL_CYCLES, OUTPUTS, PASS_CYCLES
from compiler.operators.registry import operator
from compiler.operators.windows import Windows

# Cycles of MTE1 for each block of a place, beside those of the cube for as many outputs as it makes at once.
NEAR = 2
WORTH = 1.15  # times fewer cycles, so that it pays


def by_kernel_rows(graph: Graph, x: Value, w: Value, windows: Windows, block: int) -> tuple[Value, Value, Windows]:
    """The operands and windows of the same convolution of one group over two axes, with one row where that pays.

    1. Windows step from row to row.
    2. The weights are known: they are put in order at compile time.
    3. Cube and MTE1 take clearly less time, with the image put in order.
    """
    (outputs, channels), batch = shape_of(w)[:2], shape_of(x)[0]
    if windows.rank != 2 or windows.strides[0] != 1 or windows.kernel[0] == 1 or w.constant is None:
        return x, w, windows
    (rows, columns), places = windows.kernel, batch * prod(windows.outputs)
    per_block = max(NEAR, -(-outputs // OUTPUTS)) / OUTPUTS * places
    before = per_block * rows * columns * -(-channels // block)
    moved = batch * rows * channels * windows.outputs[0] * windows.extents[1]
    after = per_block * columns * -(-channels * rows // block) + KERNEL_CYCLES + PASS_CYCLES * moved
    if after * WORTH > before:
        return x, w, windows
    begins, ends = windows.begins, windows.ends
    own = {"rows": rows, "dilation": windows.dilations[0], "begin": begins[0], "end": ends[0]}
    image = graph.call("tilewright::KernelRows", x, **own)
    shape = np.array([batch, rows * channels, windows.outputs[0], windows.extents[1]])
    turned = graph.call("Transpose", w, perm=(0, 2, 1, 3))
    of_rows = graph.call("Reshape", turned, np.array([outputs, rows * channels, 1, columns]))
    single = replace(
        windows,
        extents=(windows.outputs[0], windows.extents[1]),
        kernel=(1, columns),
        dilations=(1, windows.dilations[1]),
        begins=(0, *begins[1:]),
        ends=(0, *ends[1:]),
    )
    return graph.call("Reshape", image, shape), of_rows, single


@operator("tilewright::KernelRows", schedule="movement")
def kernel_rows(x: te.Tensor, *, rows: int, dilation: int, begin: int, end: int) -> te.Tensor:
    """[n, rows, c, count, width]: for each row of a kernel those of the image that it sees, zeros beyond its edges."""
    batch, channels, height, width = shape_of(x)
    windows = Windows((height, width), (rows, 1), (1, 1), (dilation, 1), (begin, 0), (end, 0))
    none = literal(0, result_dtype(x))

    def seen(n: Any, row: Any, c: Any, *place: Any) -> Any:
        return windows.padded(x, (n, c), windows.positions(place, (row, 0)), none)

    return te.compute((batch, rows, channels, windows.outputs[0], width), seen, "kernel_rows")
