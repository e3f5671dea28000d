"""Parts of a tensor, and tensors joined from parts."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.operators import refusals
from compiler.operators.axes import existing_axis, within
from compiler.operators.broadcast import dtype_of, normalised_axis, shape_of
from compiler.operators.prim_functions import Buffer, Indices, part, prim_function
from compiler.operators.registry import operator
from compiler.operators.runs import pick, whole
from compiler.operators.signature import Constant, only


@operator("Slice", schedule="movement")
def slice_(
    data: te.Tensor, starts: Constant, ends: Constant, axes: Constant | None = None, steps: Constant | None = None
) -> te.Tensor | tirx.PrimFunc:
    """Python's slices, one for each of ``axes`` (by default the first ones)."""
    shape = shape_of(data)
    count = starts.size
    on = range(count) if axes is None else [normalised_axis(int(axis), len(shape)) for axis in axes.ravel()]
    by = np.ones(count, np.int64) if steps is None else steps.ravel()
    if not count == ends.size == len(on) == by.size or count > len(shape):
        raise refusals.wrong_value("one start, end and step for each axis", "starts", starts.ravel().tolist())
    if 0 in by:
        raise refusals.wrong_value("a step must not be 0", "steps", by.tolist())
    lists = whole(data)
    for axis, start, end, step in zip(on, starts.ravel().tolist(), ends.ravel().tolist(), by.tolist(), strict=True):
        lists[axis] = lists[axis][start:end:step]
    return pick(data, lists)


@operator("Split", schedule="movement")
def split(
    data: te.Tensor, split: Constant | None = None, *, axis: int = 0, num_outputs: int | None = None
) -> tuple[te.Tensor, ...]:
    """Parts of the sizes ``split``, or ``num_outputs`` equal parts of which the last may be smaller."""
    shape = shape_of(data)
    axis = existing_axis(axis, len(shape))
    extent = shape[axis]
    if split is not None:
        sizes = [int(size) for size in split.ravel()]
    elif num_outputs is not None and num_outputs > 0:
        part = -(-extent // num_outputs)
        sizes = [min(part, max(0, extent - part * i)) for i in range(num_outputs)]
    else:
        raise refusals.missing_attribute("num_outputs")
    if sum(sizes) != extent or min(sizes, default=0) < 0:
        raise refusals.wrong_value(f"the parts must add up to the extent {extent}", "split", sizes)

    def piece(start: int, size: int) -> te.Tensor:
        part_shape = (*shape[:axis], size, *shape[axis + 1 :])
        return te.compute(part_shape, lambda *i: data[(*i[:axis], i[axis] + start, *i[axis + 1 :])], "split")

    return tuple(piece(sum(sizes[:i]), size) for i, size in enumerate(sizes))


@operator("Concat", schedule="movement")
def concat(*inputs: te.Tensor, axis: int) -> te.Tensor | tirx.PrimFunc:
    shapes = [shape_of(tensor) for tensor in inputs]
    axis = existing_axis(axis, len(shapes[0]))
    if len({(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}) != 1 or len({len(s) for s in shapes}) != 1:
        raise refusals.wrong_shape(
            f"the inputs must differ on axis {axis} only", **{f"input{i}": shape for i, shape in enumerate(shapes)}
        )
    if len({dtype_of(tensor) for tensor in inputs}) != 1:
        raise refusals.wrong_dtype("the inputs must have one type", **{f"input{i}": x for i, x in enumerate(inputs)})
    if len(inputs) == 1:
        return pick(inputs[0], whole(inputs[0]))
    total = sum(shape[axis] for shape in shapes)

    def copy(source: Buffer, out: Buffer, start: int) -> None:
        def position(point: Indices) -> Indices:
            return [*point[:axis], point[axis] + start, *point[axis + 1 :]]

        part(shape_of(source), out, position, lambda point: source[tuple(point)])

    def body(*buffers: Buffer) -> None:
        *sources, out = buffers
        start = 0
        for source in sources:
            copy(source, out, start)
            start += shape_of(source)[axis]

    out_shape = (*shapes[0][:axis], total, *shapes[0][axis + 1 :])
    return prim_function(inputs, [(out_shape, dtype_of(inputs[0]))], body)


@operator("Trilu", schedule="movement")
def trilu(data: te.Tensor, k: Constant | None = None, *, upper: bool = True) -> te.Tensor:
    """The triangle of each matrix on one side of diagonal ``k``; zero on the other side."""
    if len(shape_of(data)) < 2:
        raise refusals.wrong_shape("the input must hold matrices", data=data)
    diagonal = 0 if k is None else within(int(only("k", k)), shape_of(data)[-2:])
    zero = tirx.const(0, dtype_of(data))

    def element(*i: Any) -> Any:
        distance = i[-1] - i[-2]
        kept = distance >= diagonal if upper else distance <= diagonal
        return tirx.if_then_else(kept, data[i], zero)

    return te.compute(shape_of(data), element, "trilu")
