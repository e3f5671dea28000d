"""Elements and slices put where indices say.

Updates are stored one after the other, in the order of the indices: of two for the same place the later one wins,
and a reduction sees them all.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.operators import refusals
from compiler.operators.axes import existing_axis
from compiler.operators.broadcast import dtype_of, shape_of
from compiler.operators.gathering import (
    FEW_ROWS,
    MANY_ELEMENTS,
    counted_from_start,
    counted_in_rows,
    with_axis_last,
)
from compiler.operators.graph import Graph, Value
from compiler.operators.prim_functions import (
    Buffer,
    fill,
    loops,
    ordered_block,
    part,
    prim_function,
    region,
    scratch,
    store,
)
from compiler.operators.putting import KINDS, element_bytes
from compiler.operators.registry import composition, operator
from compiler.operators.signature import Constant

Combine = Callable[[Any, Any], Any]
MOST_BYTES = 3 << 16  # of a row into which elements are put in UB


def fits_as_row(length: int, dtype: str) -> bool:
    """Whether so many elements are put into in UB."""
    return length * element_bytes(dtype) <= MOST_BYTES


@composition("ScatterElements", "Scatter")
def scatter_elements(
    graph: Graph, data: Value, indices: Value, updates: Value, *, axis: int = 0, reduction: str = "none"
) -> Any:
    """Into rows, of an axis and all behind it, where these are whole and fit into UB; a place is counted in all.

    Where these are long and few, or do not fit, the axis comes last, for rows of it alone.
    """
    shape, picked = shape_of(data), shape_of(indices)
    given = {"axis": axis, "reduction": reduction}
    if len(shape) != len(picked) or picked != shape_of(updates):
        raise refusals.wrong_shape("indices and updates must have the same shape", indices=indices, updates=updates)
    axis = existing_axis(axis, len(shape))
    before, behind = shape[:axis], shape[axis + 1 :]
    length, count = prod(shape[axis:]), prod(picked[axis:])
    whole = (before, behind) == (picked[:axis], picked[axis + 1 :])
    in_rows = whole and reduction in KINDS and dtype_of(data) != "bool" and prod(shape) * count > 0
    fits, alone = (fits_as_row(extent, dtype_of(data)) for extent in (length, shape[axis]))
    is_idle = prod(before) < FEW_ROWS and count > MANY_ELEMENTS
    if in_rows and alone and prod(behind) > 1 and (is_idle or not fits):
        return with_axis_last(graph, "ScatterElements", (data, indices, updates), axis, reduction=reduction)
    if not in_rows or not fits:
        return graph.call("tilewright::PutOneByOne", data, indices, updates, **given)
    if prod(behind) > 1:
        own = np.arange(prod(behind)).reshape(behind)
        indices = counted_in_rows(graph, indices, shape[axis], prod(behind), own)
    rows = [
        graph.call("Reshape", value, np.array([prod(before), extent]))
        for value, extent in ((data, length), (indices, count), (updates, count))
    ]
    return graph.call("Reshape", graph.call("tilewright::PutInRows", *rows, reduction=reduction), np.array(shape))


@operator("tilewright::PutOneByOne", schedule="scatter")
def put_one_by_one(
    data: te.Tensor, indices: te.Tensor, updates: te.Tensor, *, axis: int = 0, reduction: str = "none"
) -> tirx.PrimFunc:
    """``out[..., indices[i], ...] = updates[i]``: one index for each update, along one axis."""
    shape, places = shape_of(data), shape_of(indices)
    axis = existing_axis(axis, len(shape))
    combine = _combination(reduction, dtype_of(data))

    def body(source: Buffer, index: Buffer, update: Buffer, out: Buffer) -> None:
        rows = scratch(places, "int32")
        _copy(source, out)
        region(
            places,
            rows,
            lambda point: point,
            lambda point: counted_from_start(index[tuple(point)], shape[axis]),
            "index",
        )
        with ordered_block("scatter", [rows, update, out], [out]), loops(*places) as at:
            place = (*at[:axis], rows[at], *at[axis + 1 :])
            store(out, combine(out[place], update[at]), *place)

    return prim_function([data, indices, updates], [(shape, dtype_of(data))], body)


@operator("ScatterND", schedule="scatter")
def scatter_nd(data: te.Tensor, indices: te.Tensor, updates: te.Tensor, *, reduction: str = "none") -> tirx.PrimFunc:
    """``out[indices[i]] = updates[i]``: an index tuple for each slice of updates."""
    shape, places = shape_of(data), shape_of(indices)
    depth = places[-1] if places else 0
    if not places or depth > len(shape) or shape_of(updates) != (*places[:-1], *shape[depth:]):
        raise refusals.wrong_shape(
            "updates must be [the axes of indices but the last, the axes of data left over]",
            data=data,
            indices=indices,
            updates=updates,
        )
    combine = _combination(reduction, dtype_of(data))

    def body(source: Buffer, index: Buffer, update: Buffer, out: Buffer) -> None:
        rows = scratch(places, "int32")
        _copy(source, out)
        for k in range(depth):
            part(
                places[:-1],
                rows,
                lambda point, k=k: (*point, k),  # type: ignore[misc]
                lambda point, k=k: counted_from_start(index[(*point, k)], shape[k]),  # type: ignore[misc]
                "index",
            )
        # What is combined is brought to where it can be as a whole.
        slices = scratch(shape[depth:], dtype_of(data)) if depth < len(shape) and reduction != "none" else None
        with ordered_block("scatter", [rows, update, out], [out]), loops(*places[:-1]) as at:
            slot = tuple(rows[(*at, k)] for k in range(depth))
            if slices is None:
                with loops(*shape[depth:]) as inner:
                    store(out, combine(out[(*slot, *inner)], update[(*at, *inner)]), *slot, *inner)
            else:
                with loops(*shape[depth:]) as inner:
                    store(slices, out[(*slot, *inner)], *inner)
                with loops(*shape[depth:]) as inner:
                    store(slices, combine(slices[inner], update[(*at, *inner)]), *inner)
                with loops(*shape[depth:]) as inner:
                    store(out, slices[inner], *slot, *inner)

    return prim_function([data, indices, updates], [(shape, dtype_of(data))], body)


@operator("TensorScatter", schedule="scatter")
def tensor_scatter(
    past_cache: te.Tensor,
    update: te.Tensor,
    write_indices: te.Tensor | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> tirx.PrimFunc:
    """Write ``update`` into a cache along ``axis``, from each batch's own position on (circular: around the end)."""
    shape, written = shape_of(past_cache), shape_of(update)
    axis = existing_axis(axis, len(shape))
    if axis == 0 or (*shape[:axis], *shape[axis + 1 :]) != (*written[:axis], *written[axis + 1 :]):
        raise refusals.wrong_shape(f"the update must differ on axis {axis} only", past_cache=past_cache, update=update)
    if mode not in ("linear", "circular"):
        raise refusals.wrong_value("must be linear or circular", "mode", mode)
    inputs = [past_cache, update] if write_indices is None else [past_cache, update, write_indices]

    def body(cache: Buffer, source: Buffer, *rest: Buffer) -> None:
        out = rest[-1]
        _copy(cache, out)
        with ordered_block("scatter", [source, *rest[:-1]], [out]), loops(*written) as at:
            start = rest[0][at[0]].astype("int32") if len(rest) == 2 else 0
            place = at[axis] + start
            if mode == "circular":
                place = tirx.floormod(place, shape[axis])
            store(out, source[at], *at[:axis], place, *at[axis + 1 :])

    return prim_function(inputs, [(shape, dtype_of(past_cache))], body)


@composition("MaxUnpool")
def max_unpool(
    graph: Graph,
    x: Value,
    indices: Value,
    output_shape: Constant | None = None,
    *,
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Any:
    """Zeros, and each element where its pooling found it: ``indices`` count elements of the unpooled tensor."""
    shape = shape_of(x)
    spatial = len(shape) - 2
    around = pads or (0,) * (2 * spatial)
    steps = strides or (1,) * spatial
    if not len(kernel_shape) == len(steps) == spatial or len(around) != 2 * spatial:
        raise refusals.wrong_shape(f"{spatial} spatial axes need as many kernel extents and strides", x=x)
    unpooled = (
        *shape[:2],
        *(
            (extent - 1) * steps[i] + kernel_shape[i] - around[i] - around[spatial + i]
            for i, extent in enumerate(shape[2:])
        ),
    )
    wanted = unpooled if output_shape is None else tuple(int(extent) for extent in output_shape.ravel())
    if len(wanted) != len(shape) or any(w < u for w, u in zip(wanted, unpooled, strict=True)):
        raise refusals.wrong_shape("output_shape must hold the unpooled tensor", output_shape=wanted, unpooled=unpooled)

    length = prod(wanted)
    if wanted != unpooled or not fits_as_row(length, dtype_of(x)) or not prod(shape):
        return graph.call("tilewright::PutAtPlaces", x, indices, shape=wanted, counted=unpooled)
    row = [graph.call("Reshape", value, np.array([1, -1])) for value in (indices, x)]  # a place may be in any map
    return graph.call("Reshape", graph.call("tilewright::PutInZeros", *row, length=length), np.array(wanted))


@operator("tilewright::PutAtPlaces", schedule="scatter")
def put_at_places(
    x: te.Tensor, indices: te.Tensor, *, shape: tuple[int, ...], counted: tuple[int, ...]
) -> tirx.PrimFunc:
    """Zeros of ``shape``, and the elements of ``x`` where indices say that count elements of another shape."""

    def body(source: Buffer, index: Buffer, out: Buffer) -> None:
        fill(out, tirx.const(0, dtype_of(x)))
        with ordered_block("scatter", [source, index], [out]), loops(*shape_of(x)) as at:
            position = index[at].astype("int32")
            place = [
                tirx.floormod(tirx.floordiv(position, prod(counted[axis + 1 :])), counted[axis])
                for axis in range(len(counted))
            ]
            store(out, source[at], *place)

    return prim_function([x, indices], [(shape, dtype_of(x))], body)


def _combination(reduction: str, dtype: str) -> Combine:
    combinations: dict[str, Combine] = {
        "none": lambda old, new: new,
        "add": lambda old, new: old + new,
        "mul": lambda old, new: old * new,
        "max": tirx.max,
        "min": tirx.min,
    }
    if dtype == "bool":
        either: Combine = tirx.Or
        both: Combine = tirx.And
        combinations |= {"add": either, "max": either, "mul": both, "min": both}
    if reduction not in combinations:
        raise refusals.wrong_value(f"must be one of {', '.join(combinations)}", "reduction", reduction)
    return combinations[reduction]


def _copy(source: Buffer, out: Buffer) -> None:
    part(shape_of(source), out, lambda point: point, lambda point: source[tuple(point)], "copy")
