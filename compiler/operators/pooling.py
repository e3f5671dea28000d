"""Pooling: windows over the spatial axes, channel by channel."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.operators import refusals
from compiler.operators.broadcast import NUMBERS, literal, require_dtype, result_dtype, shape_of
from compiler.operators.graph import Graph, Value
from compiler.operators.reduction import MAX, MIN, SUM, lowest, lp_norm
from compiler.operators.registry import composition, operator
from compiler.operators.windows import Windows


def _windows(
    x: Any,
    kernel_shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    pads: tuple[int, ...] | None,
    dilations: tuple[int, ...] | None,
    auto_pad: str,
    ceil_mode: bool,
) -> Windows:
    require_dtype(NUMBERS, x=x)
    if len(shape_of(x)) < 3:
        raise refusals.wrong_shape("x must be [batch, channels, ...]", x=x)
    return Windows.of(shape_of(x)[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)


@operator("MaxPool", schedule="pooling")
def max_pool(
    x: te.Tensor,
    *,
    kernel_shape: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    dilations: tuple[int, ...] | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: bool = False,
    storage_order: int = 0,
) -> tuple[te.Tensor, te.Tensor]:
    """Also where in x each maximum first stands; ``storage_order`` 1 counts the spatial axes in reverse."""
    windows = _windows(x, kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    dtype = result_dtype(x)
    shape = (*shape_of(x)[:2], *windows.outputs)

    def largest(n: Any, c: Any, *place: Any) -> Any:
        offsets = windows.reduce_axes()
        element = windows.padded(x, (n, c), windows.positions(place, offsets), literal(lowest(dtype), dtype))
        return MAX.reducer(element, axis=offsets)

    maxima = te.compute(shape, largest, "maxpool")

    def first(n: Any, c: Any, *place: Any) -> Any:
        offsets = windows.reduce_axes()
        positions = windows.positions(place, offsets)
        none = tirx.const(np.iinfo(np.int32).max, "int32")
        number = tirx.Cast("int32", _number(shape_of(x), (n, c, *positions), storage_order == 1))
        element = windows.padded(x, (n, c), positions, literal(lowest(dtype), dtype))
        is_largest = tirx.all(*windows.inside(positions), element == maxima[(n, c, *place)])
        return MIN.reducer(tirx.if_then_else(is_largest, number, none), axis=offsets)

    return maxima, te.compute(shape, first, "maxpool_indices")


def _number(shape: tuple[int, ...], indices: tuple[Any, ...], reverses: bool) -> Any:
    """How many elements of the tensor lie before the one at ``indices``."""
    order = [0, 1, *(reversed(range(2, len(shape))) if reverses else range(2, len(shape)))]
    number: Any = 0
    for axis in order:
        number = number * shape[axis] + indices[axis]
    return number


@composition("AveragePool")
def average_pool(
    graph: Graph,
    x: Value,
    *,
    kernel_shape: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    dilations: tuple[int, ...] | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Any:
    """Sums of windows times one over the number of elements that count, a table where windows differ in it."""
    windows = _windows(x, kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    counts = window_counts(windows, count_include_pad)
    uniform = bool((counts == counts.flat[0]).all())
    return graph.call(
        "tilewright::SumPool",
        x,
        None if uniform else (1 / counts).astype(np.float32),
        kernel_shape=windows.kernel,
        strides=windows.strides,
        pads=windows.pads,
        dilations=windows.dilations,
        ceil_mode=windows.ceil_mode,
        scale=1 / float(counts.flat[0]) if uniform else 1.0,
    )


def window_counts(windows: Windows, includes_padding: bool) -> np.ndarray[Any, Any]:
    """How many elements of each window are in the input; or in the input and the padding asked for."""
    table = np.ones((), np.int64)
    for axis in range(windows.rank):
        starts = np.arange(windows.outputs[axis]) * windows.strides[axis] - windows.begins[axis]
        positions = starts[:, None] + np.arange(windows.kernel[axis]) * windows.dilations[axis]
        low, high = 0, windows.extents[axis]
        if includes_padding:
            low, high = -windows.begins[axis], high + windows.ends[axis]
        table = np.multiply.outer(table, ((positions >= low) & (positions < high)).sum(axis=1))
    return np.maximum(table, 1)


@operator("tilewright::SumPool", schedule="pooling")
def sum_pool(
    x: te.Tensor,
    table: te.Tensor | None = None,
    *,
    kernel_shape: tuple[int, ...],
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    ceil_mode: bool,
    scale: float,
) -> te.Tensor:
    """Sums of windows in float32, times ``scale`` or the factor that ``table`` has for each place."""
    windows = _windows(x, kernel_shape, strides, pads, dilations, "NOTSET", ceil_mode)
    shape = (*shape_of(x)[:2], *windows.outputs)
    if table is not None and shape_of(table) != windows.outputs:
        raise refusals.wrong_shape("table must have a factor for each window", table=table, windows=windows.outputs)

    def total(n: Any, c: Any, *place: Any) -> Any:
        offsets = windows.reduce_axes()
        element = windows.padded(x, (n, c), windows.positions(place, offsets), literal(0, result_dtype(x)))
        return SUM.reducer(element.astype("float32"), axis=offsets)

    sums = te.compute(shape, total, "window_sum")
    return te.compute(
        shape,
        lambda *i: (sums[i] * (literal(scale, "float32") if table is None else table[i[2:]])).astype(result_dtype(x)),
        "averagepool",
    )


@operator("LpPool", schedule="pooling")
def lp_pool(
    x: te.Tensor,
    *,
    kernel_shape: tuple[int, ...],
    p: int = 2,
    strides: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    dilations: tuple[int, ...] | None = None,
    auto_pad: str = "NOTSET",
    ceil_mode: bool = False,
) -> te.Tensor:
    windows = _windows(x, kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    norm = lp_norm(p)
    shape = (*shape_of(x)[:2], *windows.outputs)

    def total(n: Any, c: Any, *place: Any) -> Any:
        offsets = windows.reduce_axes()
        element = windows.padded(x, (n, c), windows.positions(place, offsets), literal(0, result_dtype(x)))
        return SUM.reducer(norm.before(element.astype("float32")), axis=offsets)

    sums = te.compute(shape, total, "window_sum")
    return te.compute(shape, lambda *i: norm.after(sums[i]).astype(result_dtype(x)), "lppool")
