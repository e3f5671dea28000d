"""Softmax and its kin: the exponents of a row relative to its maximum, in float32.

Before opset 13 a row was everything from ``axis`` on; since then it is ``axis`` alone.
"""

from __future__ import annotations

from tvm import te, tirx

from compiler.operators.broadcast import FLOATS, literal, normalised_axis, require_dtype, result_dtype, shape_of
from compiler.operators.reduction import MAX, SUM, Rows, extreme_position
from compiler.operators.registry import operator

_ONE_AXIS_SINCE = 13


def softmax_rows(x: te.Tensor, axis: int | None, opset: int) -> Rows:
    require_dtype(FLOATS, x=x)
    rank = len(shape_of(x))
    if opset >= _ONE_AXIS_SINCE:
        return Rows.of(x, [normalised_axis(-1 if axis is None else axis, rank)])
    return Rows.of(x, range(normalised_axis(1 if axis is None else axis, rank), rank))


def _row_maximum(rows: Rows, x: te.Tensor) -> te.Tensor:
    return rows.reduce("row_max", MAX, result_dtype(x), lambda i: x[i])


@operator("Softmax", schedule="softmax")
def softmax(x: te.Tensor, *, axis: int | None = None, opset: int = _ONE_AXIS_SINCE) -> te.Tensor:
    rows = softmax_rows(x, axis, opset)
    largest = _row_maximum(rows, x)
    powers = te.compute(
        rows.shape,
        lambda *i: tirx.exp(x[i].astype("float32") - largest[rows.row(i)].astype("float32")),
        "powers",
    )
    total = rows.reduce("row_sum", SUM, "float32", lambda i: powers[i])
    return te.compute(rows.shape, lambda *i: (powers[i] / total[rows.row(i)]).astype(result_dtype(x)), "softmax")


@operator("LogSoftmax", schedule="softmax")
def log_softmax(x: te.Tensor, *, axis: int | None = None, opset: int = _ONE_AXIS_SINCE) -> te.Tensor:
    rows = softmax_rows(x, axis, opset)
    largest = _row_maximum(rows, x)
    relative = te.compute(
        rows.shape, lambda *i: x[i].astype("float32") - largest[rows.row(i)].astype("float32"), "relative"
    )
    total = rows.reduce("row_sum", SUM, "float32", lambda i: tirx.exp(relative[i]))
    return te.compute(
        rows.shape, lambda *i: (relative[i] - tirx.log(total[rows.row(i)])).astype(result_dtype(x)), "logsoftmax"
    )


@operator("Hardmax", schedule="softmax")
def hardmax(x: te.Tensor, *, axis: int | None = None, opset: int = _ONE_AXIS_SINCE) -> te.Tensor:
    """1 at the first of the row's largest elements, 0 elsewhere."""
    rows = softmax_rows(x, axis, opset)
    first = extreme_position(rows, x, MAX)
    dtype = result_dtype(x)
    return te.compute(
        rows.shape,
        lambda *i: tirx.Select(rows.place(i) == first[rows.row(i)], literal(1, dtype), literal(0, dtype)),
        "hardmax",
    )
