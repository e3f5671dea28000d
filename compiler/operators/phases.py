"""Convolutions in steps of several pixels, as convolutions in steps of one over more channels.

The cube works on blocks of channels. Three channels leave most of a block empty, for every element of the kernel; with
the pixels of a step as further channels, blocks are fuller and the kernel has fewer elements. And neither steps nor
kernels may be as long as one likes: in such steps they are short. Holes in a kernel may not either: as rows of an image
they are none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

import numpy as np

from compiler.operators.broadcast import shape_of
from compiler.operators.graph import Graph, Value
from compiler.operators.windows import Windows

MOST_STEP, MOST_SIZE = 63, 255  # of windows, that the cube takes
MOST_HOLE = 255  # from an element of a kernel to the next
WORTH = 3  # times fewer blocks, so that another pass over the image pays
# Elements of a kernel along one axis, so that it does: with 8 in steps of 4, it takes 17 % more on tw1 and 40 % more on
# tw2 in fp32; with 16 in steps of 8, 3 % more and 12 % less; with 200 in steps of 50, a third and a fifth.
LONG = 16


def by_phases(graph: Graph, x: Value, w: Value, windows: Windows, block: int) -> tuple[Value, Value, Windows]:
    """The operands and windows of the same convolution of one group, in steps of one along axes where that pays.

    1. There are several axes; along those, a whole number of steps covers the image, and the kernel has no holes.
    2. The weights are known: they are put in order at compile time.
    3. The cube has a third of the blocks to work on, each of ``block`` channels.
    """
    channels = shape_of(w)[1]

    def blocks(steps: Sequence[int]) -> int:
        return prod(_in_steps(windows, steps).kernel) * -(-channels * prod(steps) // block)

    before = prod(windows.kernel) * -(-channels // block)
    best = min(_ways(windows), key=lambda steps: (blocks(steps), steps), default=None)
    if best is None or w.constant is None or blocks(best) * WORTH > before:
        return x, w, windows
    apart = _in_steps(windows, best)
    leading = [
        after * step - begin if step > 1 else 0
        for after, step, begin in zip(apart.begins, best, windows.begins, strict=True)
    ]
    trailing = [
        size * step - first - given
        for size, step, first, given in zip(apart.kernel, best, leading, windows.kernel, strict=True)
    ]
    # Zeros around the kernel up to whole steps.
    around = np.array([0, 0, *leading, 0, 0, *trailing], np.int64)
    padded = graph.call("Pad", w, around) if any(around) else w
    return _phases_as_channels(graph, x, best), _phases_as_channels(graph, padded, best), apart


def _ways(windows: Windows) -> Iterator[tuple[int, ...]]:
    """For each axis the step that is taken apart, or one."""
    choices = [
        (step, 1) if step > 1 == dilation and extent % step == 0 else (1,)
        for step, dilation, extent in zip(windows.strides, windows.dilations, windows.extents, strict=True)
    ]
    if windows.rank > 1:
        yield from (steps for steps in product(*choices) if prod(steps) > 1)


def _in_steps(windows: Windows, steps: Sequence[int]) -> Windows:
    """Where the places within ``steps`` are channels; axes of which it is one stay as they are."""
    axes = [_axis_in_steps(windows, axis, step) for axis, step in enumerate(steps)]
    extents, kernel, begins, ends = (tuple(numbers) for numbers in zip(*axes, strict=True))
    strides = tuple(1 if step > 1 else given for step, given in zip(steps, windows.strides, strict=True))
    return Windows(extents, kernel, strides, windows.dilations, begins, ends)


def _axis_in_steps(windows: Windows, axis: int, step: int) -> tuple[int, int, int, int]:
    """Extent, size of the kernel, begin and end."""
    given, size, begin = windows.extents[axis], windows.kernel[axis], windows.begins[axis]
    if step == 1:
        return given, size, begin, windows.ends[axis]
    after, extent = -(-begin // step), given // step
    whole = -(-(size + after * step - begin) // step)
    return extent, whole, after, windows.outputs[axis] - 1 + whole - after - extent


def _phases_as_channels(graph: Graph, value: Value, steps: Sequence[int]) -> Value:
    """[n, c, *places] -> [n, product of steps * c, *places / steps]; of two axes it is SpaceToDepth."""
    first, channels, *places = shape_of(value)
    counts = [place // step for place, step in zip(places, steps, strict=True)]
    sides = [side for pair in zip(counts, steps, strict=True) for side in pair]
    apart = graph.call("Reshape", value, np.array([first, channels, *sides]))
    inside, outside = (range(at, 2 + len(sides), 2) for at in (3, 2))
    turned = graph.call("Transpose", apart, perm=(0, *inside, 1, *outside))
    result: Value = graph.call("Reshape", turned, np.array([first, channels * prod(steps), *counts]))
    return result


def by_rows(graph: Graph, x: Value, w: Value, windows: Windows) -> tuple[Value, Value, Windows]:
    """The operands and windows of the same convolution over an image, whose rows are as long as a hole in the kernel.

    x [n, c, width] -> [n, c, rows, hole], and weights [o, c, size] -> [o, c, size, 1]: where the axis is the only one,
    steps are single, and the hole is longer than the cube takes. The results lie row by row, too.
    """
    (hole, *others), begin = windows.dilations, windows.begins[0]
    if others or hole <= MOST_HOLE or windows.strides != (1,):
        return x, w, windows
    size, rows = windows.kernel[0], -(-windows.outputs[0] // hole)
    around = (begin, (rows + size - 1) * hole - begin - windows.extents[0])
    shape = np.array([*shape_of(x)[:2], rows + size - 1, hole])
    image = graph.call("Reshape", _padded(graph, x, 2, around), shape)
    of_rows = graph.call("Reshape", w, np.array([*shape_of(w), 1]))
    return image, of_rows, Windows((rows + size - 1, hole), (size, 1), (1, 1), (1, 1), (0, 0), (0, 0))


def by_long_steps(
    graph: Graph, x: Value, w: Value, windows: Windows, group: int, block: int
) -> tuple[Value, Value, Windows]:
    """The operands and windows of the same convolution in steps of one along axes where

    1. steps are too long for the cube; or the kernel is, and there are steps at all, or
    2. the axis is the only one, and the cube has a third of the blocks of channels to work on; of those of a short
       kernel it makes too little to pay for another pass over the input. Weights are known, and without holes.

    The channels of a group stay side by side.
    """
    for axis, (step, size) in enumerate(zip(windows.strides, windows.kernel, strict=True)):
        is_long = step > MOST_STEP or (size > MOST_SIZE and step > 1)
        if is_long or (windows.rank == group == 1 and _pays(w, windows, block)):
            x, w, windows = in_whole_steps(graph, x, w, windows, axis)
    return x, w, windows


def _pays(w: Value, windows: Windows, block: int) -> bool:
    ((size,), (step,)), channels = (windows.kernel, windows.strides), shape_of(w)[1]
    after = -(-size // step) * -(-channels * step // block)
    worth = size >= LONG and after * WORTH <= size * -(-channels // block)
    return worth and w.constant is not None and windows.dilations == (1,)


def in_whole_steps(graph: Graph, x: Value, w: Value, windows: Windows, axis: int) -> tuple[Value, Value, Windows]:
    """x [n, c, width] -> [n, c * step, width / step], and weights [o, c, size] alike.

    The image is cut, or has zeros around it, so that windows begin with its first step and end with its last one.
    """
    step, begin = windows.strides[axis], windows.begins[axis]
    w = _without_holes(graph, w, axis, windows.dilations[axis])
    size = -(-shape_of(w)[2 + axis] // step)
    extent = windows.outputs[axis] - 1 + size
    around = (begin, extent * step - begin - windows.extents[axis])
    x = _steps_as_channels(graph, _padded(graph, x, 2 + axis, around), 2 + axis, step)
    rest = size * step - shape_of(w)[2 + axis]
    w = _steps_as_channels(graph, _padded(graph, w, 2 + axis, (0, rest)), 2 + axis, step)
    at_step = Windows(
        extents=_with(windows.extents, axis, extent),
        kernel=_with(windows.kernel, axis, size),
        strides=_with(windows.strides, axis, 1),
        dilations=_with(windows.dilations, axis, 1),
        begins=_with(windows.begins, axis, 0),
        ends=_with(windows.ends, axis, 0),
    )
    return x, w, at_step


def _without_holes(graph: Graph, w: Value, axis: int, dilation: int) -> Value:
    """Zeros where a dilated kernel has holes."""
    shape, at = list(shape_of(w)), 2 + axis
    if dilation == 1:
        return w
    apart = graph.call("Reshape", w, np.array([*shape[: at + 1], 1, *shape[at + 1 :]]))
    filled = _padded(graph, apart, at + 1, (0, dilation - 1))
    whole = graph.call("Reshape", filled, np.array(_with(shape, at, shape[at] * dilation)))
    return _padded(graph, whole, at, (0, 1 - dilation))


def _steps_as_channels(graph: Graph, value: Value, axis: int, step: int) -> Value:
    """The places within a step are channels."""
    first, channels, *places = shape_of(value)
    rank, count = len(shape_of(value)), shape_of(value)[axis] // step
    split = np.array([first, channels, *places[: axis - 2], count, step, *places[axis - 1 :]])
    perm = (0, 1, axis + 1, *(at for at in range(2, rank + 1) if at != axis + 1))
    apart = graph.call("Transpose", graph.call("Reshape", value, split), perm=perm)
    result: Value = graph.call("Reshape", apart, np.array([first, channels * step, *_with(places, axis - 2, count)]))
    return result


def _padded(graph: Graph, value: Value, axis: int, around: tuple[int, int]) -> Value:
    if not any(around):
        return value
    result: Value = graph.call("Pad", value, np.array(around, np.int64), None, np.array([axis], np.int64))
    return result


def _with(numbers: Sequence[int], axis: int, number: int) -> tuple[int, ...]:
    return (*numbers[:axis], number, *numbers[axis + 1 :])
