"""Convolutions whose windows take each element from a place of its own, which data says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.operators import refusals
from compiler.operators.broadcast import shape_of
from compiler.operators.cast import as_dtype
from compiler.operators.convolution import convolution_windows
from compiler.operators.graph import Graph, Value
from compiler.operators.registry import composition, operator
from compiler.operators.sampling import combined, reshaped, table_of
from compiler.operators.windows import Windows, check_kernel_shape


@composition("DeformConv")
def deform_conv(
    graph: Graph,
    x: Value,
    w: Value,
    offset: Value,
    b: Value | None = None,
    mask: Value | None = None,
    *,
    kernel_shape: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    dilations: tuple[int, ...] | None = None,
    group: int = 1,
    offset_group: int = 1,
) -> Value:
    """A product of the windows' matrix with the weights; an element of a window is interpolated between neighbours.

    ``offset_group`` parts of the channels have places of their own, and each is a table of rows of its channels: those
    that a window's elements pick lie side by side, as the matrix wants them.
    """
    check_kernel_shape(kernel_shape, w)
    windows = convolution_windows(x, w, strides, pads, dilations, "NOTSET", group)
    (batch, channels, *_), outputs = shape_of(x), shape_of(w)[0]
    if offset_group < 1 or channels % offset_group:
        raise refusals.wrong_value(f"must divide the {channels} channels", "offset_group", offset_group)
    elements, places = math.prod(windows.kernel), math.prod(windows.outputs)
    for name, value, each in (("offset", offset, windows.rank), ("mask", mask, 1)):
        expected = (batch, offset_group * elements * each, *windows.outputs)
        if value is not None and shape_of(value) != expected:
            raise refusals.wrong_shape(f"{name} must be {list(expected)}", x=x, w=w, **{name: value})
    where = _where(graph, offset, windows, offset_group)
    rows = graph.call("tilewright::NeighboursInWindows", where, extents=windows.extents)
    weights = graph.call("tilewright::WeightsInWindows", where, extents=windows.extents)
    if mask is not None:
        apart = reshaped(graph, mask, batch, offset_group, elements, places)
        in_order = graph.call("Transpose", as_dtype(graph, apart, "float32"), perm=(0, 3, 2, 1))
        weights = graph.call("Mul", weights, reshaped(graph, in_order, batch, places * elements, offset_group))
    number = batch * places * elements * offset_group
    rows, weights = (reshaped(graph, each, 2**windows.rank, number) for each in (rows, weights))
    parts = reshaped(graph, x, batch * offset_group, channels // offset_group, *windows.extents)
    picked = combined(graph, table_of(graph, parts, padded=True), rows, weights)
    product = _product(graph, reshaped(graph, picked, batch * places, elements, channels), w, b, group)
    first = graph.call("Transpose", reshaped(graph, product, batch, places, outputs), perm=(0, 2, 1))
    return reshaped(graph, first, batch, outputs, *windows.outputs)


def _where(graph: Graph, offset: Value, windows: Windows, parts: int) -> Value:
    """[axis, batch, element of a window, part of the channels]: coordinates in the image, in float32."""
    batch, elements, places = shape_of(offset)[0], math.prod(windows.kernel), math.prod(windows.outputs)
    apart = reshaped(graph, offset, batch, parts, elements, windows.rank, places)
    offsets = graph.call("Transpose", as_dtype(graph, apart, "float32"), perm=(3, 0, 4, 2, 1))
    stands = np.indices(windows.outputs).reshape(windows.rank, places, 1)
    steps = np.indices(windows.kernel).reshape(windows.rank, 1, elements)
    each: tuple[Any, ...] = (windows.strides, windows.begins, windows.dilations)
    strides, begins, dilations = (np.array(values).reshape(windows.rank, 1, 1) for values in each)
    regular = (stands * strides - begins + steps * dilations).astype(np.float32)
    known = graph.wide(graph.constant(regular.reshape(windows.rank, 1, places, elements, 1)))
    moved = graph.call("Add", offsets, known)
    return reshaped(graph, moved, windows.rank, batch, places * elements, parts)


def _product(graph: Graph, rows: Value, w: Value, b: Value | None, group: int) -> Value:
    """``rows`` [places, elements of a window, channels] times the weights of each group."""
    places, elements, channels = shape_of(rows)
    outputs, own, *_ = shape_of(w)
    last = graph.call("Transpose", reshaped(graph, w, outputs, own, elements), perm=(0, 2, 1))
    if group == 1:
        matrix = reshaped(graph, last, outputs, elements * channels)
        product: Value = graph.call("Gemm", reshaped(graph, rows, places, elements * channels), matrix, b, transB=1)
        return product
    apart = graph.call("Transpose", reshaped(graph, rows, places, elements, group, own), perm=(2, 0, 1, 3))
    matrices = reshaped(graph, last, group, outputs // group, elements * own)
    products = graph.call(
        "MatMul",
        reshaped(graph, apart, group, places, elements * own),
        graph.call("Transpose", matrices, perm=(0, 2, 1)),
    )
    product = reshaped(graph, graph.call("Transpose", products, perm=(1, 0, 2)), places, outputs)
    return product if b is None else graph.call("Add", product, b)


@operator("tilewright::NeighboursInWindows", schedule="elementwise")
def neighbours_in_windows(where: te.Tensor, *, extents: tuple[int, ...]) -> te.Tensor:
    """[side for each axis, batch, element, part]: a row of the table of all parts of all images; outside, the last."""
    rank, batch, elements, parts = shape_of(where)
    elems = math.prod(extents)

    def row(*i: Any) -> Any:
        *sides, n, element, part = i
        number: Any = (n * parts + part) * elems
        inside = []
        for axis, (extent, side) in enumerate(zip(extents, sides, strict=True)):
            neighbour = tirx.floor(_near(where[axis, n, element, part], extent)).astype("int32") + side
            inside += [neighbour >= 0, neighbour < extent]
            held = tirx.max(tirx.min(neighbour, extent - 1), 0)
            number = number + held * math.prod(extents[axis + 1 :])
        return tirx.Select(tirx.all(*inside), number, tirx.const(batch * parts * elems, "int32"))

    return te.compute((*(2 for _ in range(rank)), batch, elements, parts), row, "row")


@operator("tilewright::WeightsInWindows", schedule="elementwise")
def weights_in_windows(where: te.Tensor, *, extents: tuple[int, ...]) -> te.Tensor:
    """What each of these neighbours weighs."""
    rank, batch, elements, parts = shape_of(where)
    one = tirx.const(1, "float32")

    def weight(*i: Any) -> Any:
        *sides, n, element, part = i
        each = []
        for axis, (extent, side) in enumerate(zip(extents, sides, strict=True)):
            place = _near(where[axis, n, element, part], extent)
            ratio = place - tirx.floor(place)
            each.append(tirx.Select(tirx.EQ(side, 0), one - ratio, ratio))
        return math.prod(each[1:], start=each[0])

    return te.compute((*(2 for _ in range(rank)), batch, elements, parts), weight, "weight")


def _near(place: Any, extent: int) -> Any:
    """Near enough to be an int32; further out than this, both neighbours are outside."""
    return tirx.max(tirx.min(place, tirx.const(extent + 2.0, "float32")), tirx.const(-3.0, "float32"))
