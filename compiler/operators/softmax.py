"""Softmax and its kin: the exponents of a row relative to its maximum, in float32.

Before opset 13 a row was everything from ``axis`` on; since then it is ``axis`` alone.
"""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from compiler.operators.axes import along_last
from compiler.operators.broadcast import FLOATS, literal, normalised_axis, require_dtype, result_dtype, shape_of
from compiler.operators.graph import Graph, Value
from compiler.operators.reduction import MAX, SUM, Rows, extreme_position
from compiler.operators.registry import composition, operator

_ONE_AXIS_SINCE = 13


def _rows(x: te.Tensor, axis: int, to_end: bool) -> Rows:
    """Along an axis, or all from that one ``to_end``."""
    require_dtype(FLOATS, x=x)
    rank = len(shape_of(x))
    first = normalised_axis(axis, rank)
    return Rows.of(x, range(first, rank) if to_end else [first])


def _row_maximum(rows: Rows, x: te.Tensor) -> te.Tensor:
    return rows.reduce("row_max", MAX, result_dtype(x), lambda i: x[i])


@composition("Softmax")
def softmax(graph: Graph, x: Value, *, axis: int | None = None, opset: int = _ONE_AXIS_SINCE) -> Any:
    return _by_rows(graph, "tilewright::Softmax", x, axis, opset)


@composition("LogSoftmax")
def log_softmax(graph: Graph, x: Value, *, axis: int | None = None, opset: int = _ONE_AXIS_SINCE) -> Any:
    return _by_rows(graph, "tilewright::LogSoftmax", x, axis, opset)


@composition("Hardmax")
def hardmax(graph: Graph, x: Value, *, axis: int | None = None, opset: int = _ONE_AXIS_SINCE) -> Any:
    """1 at the first of the row's largest elements, 0 elsewhere."""
    return _by_rows(graph, "tilewright::Hardmax", x, axis, opset)


def _by_rows(graph: Graph, name: str, x: Value, axis: int | None, opset: int) -> Any:
    if opset < _ONE_AXIS_SINCE:
        return graph.call(name, x, axis=1 if axis is None else axis, to_end=True)
    return along_last(graph, x, -1 if axis is None else axis, lambda rows, own: graph.call(name, rows, axis=own))


@operator("tilewright::Softmax", schedule="softmax")
def softmax_of(x: te.Tensor, *, axis: int = -1, to_end: bool = False) -> te.Tensor:
    rows = _rows(x, axis, to_end)
    largest = _row_maximum(rows, x)
    powers = te.compute(
        rows.shape,
        lambda *i: tirx.exp(x[i].astype("float32") - largest[rows.row(i)].astype("float32")),
        "powers",
    )
    total = rows.reduce("row_sum", SUM, "float32", lambda i: powers[i])
    return te.compute(rows.shape, lambda *i: (powers[i] / total[rows.row(i)]).astype(result_dtype(x)), "softmax")


@operator("tilewright::LogSoftmax", schedule="softmax")
def log_softmax_of(x: te.Tensor, *, axis: int = -1, to_end: bool = False) -> te.Tensor:
    rows = _rows(x, axis, to_end)
    largest = _row_maximum(rows, x)
    relative = te.compute(
        rows.shape, lambda *i: x[i].astype("float32") - largest[rows.row(i)].astype("float32"), "relative"
    )
    total = rows.reduce("row_sum", SUM, "float32", lambda i: tirx.exp(relative[i]))
    return te.compute(
        rows.shape, lambda *i: (relative[i] - tirx.log(total[rows.row(i)])).astype(result_dtype(x)), "logsoftmax"
    )


@operator("tilewright::Hardmax", schedule="softmax")
def hardmax_of(x: te.Tensor, *, axis: int = -1, to_end: bool = False) -> te.Tensor:
    rows = _rows(x, axis, to_end)
    first = extreme_position(rows, x, MAX)
    dtype = result_dtype(x)
    return te.compute(
        rows.shape,
        lambda *i: tirx.Select(rows.place(i) == first[rows.row(i)], literal(1, dtype), literal(0, dtype)),
        "hardmax",
    )
