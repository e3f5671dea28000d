"""Elements repeated: broadcast to a shape, or tiled."""

from __future__ import annotations

from itertools import starmap

import numpy as np
from tvm import te, tirx

from compiler.operators import refusals
from compiler.operators.broadcast import read, shape_of
from compiler.operators.registry import operator
from compiler.operators.runs import Loop, Run, pick_runs
from compiler.operators.signature import Constant


@operator("Expand", schedule="movement")
def expand(data: te.Tensor, shape: Constant) -> te.Tensor:
    """To the shape that ``data`` and ``shape`` broadcast to."""
    try:
        result = np.broadcast_shapes(shape_of(data), tuple(int(extent) for extent in shape.ravel()))
    except ValueError:
        raise refusals.wrong_shape(
            "the input must broadcast to the shape", data=data, shape=shape.ravel().tolist()
        ) from None
    return te.compute(result, lambda *i: read(data, i), "expand")


@operator("Tile", schedule="movement")
def tile(data: te.Tensor, repeats: Constant) -> te.Tensor | tirx.PrimFunc:
    shape = shape_of(data)
    if repeats.size != len(shape) or min(repeats.ravel().tolist(), default=0) < 0:
        raise refusals.wrong_value(f"one count for each of {len(shape)} axes", "repeats", repeats.ravel().tolist())
    counts = [int(count) for count in repeats.ravel()]
    result = tuple(extent * count for extent, count in zip(shape, counts, strict=True))
    if 0 in result:
        return te.compute(result, lambda *i: data[i], "tile")
    return pick_runs(data, result, [[run] for run in starmap(_over_and_over, zip(shape, counts, strict=True))])


def _over_and_over(extent: int, count: int) -> Run:
    """An axis ``count`` times, one after the other."""
    loops = (Loop(count, extent, 0), Loop(extent, 1, 1))
    return Run(0, 0, tuple(loop for loop in loops if loop.count > 1) or loops[1:])
