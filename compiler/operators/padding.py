"""Elements added around and between those of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.operators import refusals
from compiler.operators.broadcast import dtype_of, normalised_axis, read, shape_of
from compiler.operators.prim_functions import Buffer, Indices, part, prim_function
from compiler.operators.registry import operator
from compiler.operators.runs import Positions, pick, require_listable
from compiler.operators.signature import Constant


@operator("Pad", schedule="movement")
def pad(
    data: te.Tensor,
    pads: Constant,
    constant_value: te.Tensor | Constant | None = None,
    axes: Constant | None = None,
    *,
    mode: str = "constant",
    value: float = 0.0,
) -> te.Tensor | tirx.PrimFunc:
    """``pads`` counts what is added before each axis, then what is added after each; a negative count crops."""
    rank = len(shape_of(data))
    on = range(rank) if axes is None else [normalised_axis(int(axis), rank) for axis in axes.ravel()]
    if pads.size != 2 * len(on):
        raise refusals.wrong_value(f"two counts for each of {len(on)} axes", "pads", pads.ravel().tolist())
    before, after = [0] * rank, [0] * rank
    for axis, low, high in zip(on, pads.ravel()[: len(on)], pads.ravel()[len(on) :], strict=True):
        before[axis], after[axis] = int(low), int(high)
    if mode == "constant":
        filled = tirx.const(value, dtype_of(data)) if constant_value is None else constant_value
        if isinstance(filled, np.ndarray):
            filled = tirx.const(filled.item(), dtype_of(data))
        return padded(data, before, after, filled)
    extents = shape_of(data)
    return pick(data, [_positions(mode, n, low, high) for n, low, high in zip(extents, before, after, strict=True)])


@operator("CenterCropPad", schedule="movement")
def center_crop_pad(
    data: te.Tensor, shape: Constant, *, axes: tuple[int, ...] | None = None
) -> te.Tensor | tirx.PrimFunc:
    """Crop what is too large and pad with zeros what is too small, around the centre."""
    given = shape_of(data)
    on = range(len(given)) if axes is None else [normalised_axis(axis, len(given)) for axis in axes]
    if len(on) != shape.size:
        raise refusals.wrong_value("one extent for each axis", "shape", shape.ravel().tolist())
    before, after = [0] * len(given), [0] * len(given)
    for axis, extent in zip(on, shape.ravel().tolist(), strict=True):
        added = int(extent) - given[axis]
        # Of an odd difference the extra element is cut, or added, at the end.
        before[axis] = added // 2 if added > 0 else -(-added // 2)
        after[axis] = added - before[axis]
    return padded(data, before, after, tirx.const(0, dtype_of(data)))


def padded(data: te.Tensor, before: Sequence[int], after: Sequence[int], value: Any) -> te.Tensor | tirx.PrimFunc:
    """Constant padding; ``value`` is a scalar expression or a tensor of one element."""
    shape = shape_of(data)
    sides = list(zip(shape, before, after, strict=True))
    result = tuple(max(0, extent + low + high) for extent, low, high in sides)
    # Along each axis: what of the input is kept, and where it is put.
    first = [max(0, -low) for low in before]
    start = [min(max(0, low), total) for low, total in zip(before, result, strict=True)]
    kept = [
        max(0, min(extent + min(0, high), extent) - begin)
        for (extent, _, high), begin in zip(sides, first, strict=True)
    ]
    if tuple(kept) == result:
        return pick(data, [np.arange(begin, begin + count) for begin, count in zip(first, kept, strict=True)])
    inputs = [data, value] if isinstance(value, te.Tensor) else [data]

    def body(source: Buffer, *rest: Buffer) -> None:
        out = rest[-1]
        filled = read(rest[0], [0] * len(rest[0].shape)) if len(rest) == 2 else value
        for axis in range(len(shape)):
            for begin, end in ((0, start[axis]), (start[axis] + kept[axis], result[axis])):
                origin = (*start[:axis], begin, *[0] * (len(shape) - axis - 1))
                _fill_box(out, origin, (*kept[:axis], end - begin, *result[axis + 1 :]), filled)
        part(
            tuple(kept),
            out,
            lambda point: [i + at for i, at in zip(point, start, strict=True)],
            lambda point: source[tuple(i + at for i, at in zip(point, first, strict=True))],
            "copy",
        )

    return prim_function(inputs, [(result, dtype_of(data))], body)


def _positions(mode: str, extent: int, before: int, after: int) -> Positions:
    require_listable(before + extent + after)
    wanted = np.arange(-before, extent + after)
    if extent == 0 and wanted.size:
        raise refusals.wrong_value("cannot extend an axis without elements", "mode", mode)
    if mode == "edge":
        return wanted.clip(0, extent - 1)
    if mode == "wrap":
        return wanted % extent
    if mode == "reflect":
        period = max(1, 2 * (extent - 1))
        return extent - 1 - abs(extent - 1 - wanted % period)
    raise refusals.wrong_value("must be constant, reflect, edge or wrap", "mode", mode)


def _fill_box(out: Buffer, origin: Sequence[int], extents: tuple[int, ...], value: Any) -> None:
    def position(point: Indices) -> Indices:
        return [i + at for i, at in zip(point, origin, strict=True)]

    part(extents, out, position, lambda _: value, "fill")
