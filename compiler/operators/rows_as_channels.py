"""Convolutions over few channels, as convolutions of single rows over more channels.

The cube works on blocks of channels, most of which are empty where an image has three, or one, for every element of the
kernel. With the rows that a window sees as further channels, blocks are fuller and the kernel has one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
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


def by_kernel_rows(
    graph: Graph, x: Value, w: Value, windows: Windows, block: int, pad_value: int = 0
) -> tuple[Value, Value, Windows]:
    """The operands and windows of the same convolution of one group, with a kernel of one row where that pays.

    Of three axes, a kernel of one plane, or one of each.

    1. Windows step from row to row, and there is another axis behind.
    2. The weights are known: they are put in order at compile time.
    3. Cube and MTE1 take clearly less time, with the image put in order.
    """
    (outputs, channels), batch = shape_of(w)[:2], shape_of(x)[0]
    per_block = max(NEAR, -(-outputs // OUTPUTS)) / OUTPUTS * batch * prod(windows.outputs)

    def cycles(axes: tuple[int, ...]) -> float:
        rows = prod(windows.kernel[axis] for axis in axes)
        blocks = windows.elements // rows * -(-channels * rows // block)
        if not axes:
            return per_block * blocks
        seen = prod((windows.outputs if axis in axes else windows.extents)[axis] for axis in range(windows.rank))
        return per_block * blocks + KERNEL_CYCLES + PASS_CYCLES * batch * rows * channels * seen

    able = [a for a in range(windows.rank - 1) if windows.strides[a] == 1 < windows.kernel[a]]
    axes = min((axes for count in (1, 2) for axes in combinations(able, count)), key=cycles, default=())
    if w.constant is None or not axes or cycles(axes) * WORTH > cycles(()):
        return x, w, windows
    return _rows_of(graph, x, axes, windows, pad_value), _weights(graph, w, axes), _single(windows, axes)


def _rows_of(graph: Graph, x: Value, axes: tuple[int, ...], windows: Windows, pad_value: int) -> Value:
    def of_axes(numbers: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(numbers[axis] for axis in axes)

    rows = of_axes(windows.kernel)
    others = {"dilations": of_axes(windows.dilations), "begins": of_axes(windows.begins), "ends": of_axes(windows.ends)}
    image = graph.call("tilewright::KernelRows", x, axes=axes, rows=rows, padding=pad_value, **others)
    batch, channels = shape_of(x)[:2]
    places = shape_of(image)[len(axes) + 2 :]
    result: Value = graph.call("Reshape", image, np.array([batch, prod(rows) * channels, *places]))
    return result


def _weights(graph: Graph, w: Value, axes: tuple[int, ...]) -> Value:
    outputs, channels, *kernel = shape_of(w)
    rows = [2 + axis for axis in axes]
    turned = graph.call("Transpose", w, perm=(0, *rows, 1, *(a for a in range(2, len(kernel) + 2) if a not in rows)))
    single = [1 if axis in axes else size for axis, size in enumerate(kernel)]
    result: Value = graph.call(
        "Reshape", turned, np.array([outputs, channels * prod(kernel[axis] for axis in axes), *single])
    )
    return result


def _single(windows: Windows, axes: tuple[int, ...]) -> Windows:
    def where_rows_are(rows: Sequence[int], others: Sequence[int]) -> tuple[int, ...]:
        return tuple((rows if axis in axes else others)[axis] for axis in range(windows.rank))

    ones, zeros = (1,) * windows.rank, (0,) * windows.rank
    return replace(
        windows,
        extents=where_rows_are(windows.outputs, windows.extents),
        kernel=where_rows_are(ones, windows.kernel),
        dilations=where_rows_are(ones, windows.dilations),
        begins=where_rows_are(zeros, windows.begins),
        ends=where_rows_are(zeros, windows.ends),
    )


@operator("tilewright::KernelRows", schedule="movement")
def kernel_rows(
    x: te.Tensor,
    *,
    axes: tuple[int, ...],
    rows: tuple[int, ...],
    dilations: tuple[int, ...],
    begins: tuple[int, ...],
    ends: tuple[int, ...],
    padding: int = 0,
) -> te.Tensor:
    """[n, *rows, c, *places]: for each row of a kernel those of the image that it sees, ``padding`` beyond."""
    batch, channels, *extents = shape_of(x)

    def spread(numbers: tuple[int, ...], other: int) -> tuple[int, ...]:
        of_axes = dict(zip(axes, numbers, strict=True))
        return tuple(of_axes.get(axis, other) for axis in range(len(extents)))

    kernel, steps = spread(rows, 1), (1,) * len(extents)
    windows = Windows(tuple(extents), kernel, steps, spread(dilations, 1), spread(begins, 0), spread(ends, 0))
    none = literal(padding, result_dtype(x))

    def seen(n: Any, *index: Any) -> Any:
        offsets, (c, *place) = index[: len(axes)], index[len(axes) :]
        of_axes = dict(zip(axes, offsets, strict=True))
        positions = windows.positions(place, [of_axes.get(axis, 0) for axis in range(len(extents))])
        return windows.padded(x, (n, c), positions, none)

    return te.compute((batch, *rows, channels, *windows.outputs), seen, "kernel_rows")
