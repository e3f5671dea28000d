"""Integer products with zero points, exact in int32, out of products of int8 alone.

The cube multiplies int8. An unsigned tensor is therefore moved down by 128, and its zero point with it; what zero
points contribute to a product is added afterwards, out of sums of rows and columns:
``sum((a - p) * (b - q)) = sum(a * b) - p * sum(b) - q * sum(a) + p * q * k``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te

from compiler.operators import refusals
from compiler.operators.broadcast import dtype_of, read, shape_of
from compiler.operators.graph import Graph, Value
from compiler.operators.registry import composition, operator

_OFFSET = 128


@operator("tilewright::Signed", schedule="elementwise")
def signed(x: te.Tensor) -> te.Tensor:
    """uint8 as int8, 128 lower."""
    return te.compute(shape_of(x), lambda *i: (x[i].astype("int32") - _OFFSET).astype("int8"), "signed")


def as_signed(graph: Graph, x: Value, zero_point: Value | None, name: str) -> tuple[Value, Value | None]:
    """int8 and its zero point as int32, whichever type they were given in; None where that is zero."""
    if dtype_of(x) not in ("int8", "uint8"):
        raise refusals.wrong_dtype(f"{name} must be int8 or uint8", **{name: x})
    is_unsigned = dtype_of(x) == "uint8"
    lowered = _signed(graph, x) if is_unsigned else x
    offset = _OFFSET if is_unsigned else 0
    if zero_point is None or zero_point.constant is not None:
        known = np.zeros((), np.int32) if zero_point is None else np.asarray(zero_point.constant, np.int32)
        return lowered, graph.constant(known - offset) if (known != offset).any() else None
    wide = graph.call("Cast", zero_point, to=6)
    return lowered, graph.call("Sub", wide, np.array(offset, np.int32)) if offset else wide


def _signed(graph: Graph, x: Value) -> Value:
    if x.constant is not None:
        return graph.constant((x.constant.astype(np.int16) - _OFFSET).astype(np.int8))
    result: Value = graph.call("tilewright::Signed", x)
    return result


@composition("MatMulInteger")
def matmul_integer(
    graph: Graph, a: Value, b: Value, a_zero_point: Value | None = None, b_zero_point: Value | None = None
) -> Any:
    """A zero point of a is for all or for each row, one of b for all or for each column."""
    if len(shape_of(a)) < 2 or len(shape_of(b)) < 2:
        raise refusals.wrong_shape("the factors must be matrices", a=a, b=b)
    if a_zero_point is not None and len(shape_of(a_zero_point)) == 1 and shape_of(a_zero_point) != (1,):
        a_zero_point = graph.call("Unsqueeze", a_zero_point, np.array([1]))
    a, p = as_signed(graph, a, a_zero_point, "a")
    b, q = as_signed(graph, b, b_zero_point, "b")
    result = graph.call("tilewright::Product", a, b)
    if p is not None:
        columns = graph.call("ReduceSum", graph.call("Cast", b, to=6), np.array([-2]), keepdims=True)
        result = _less_product(graph, result, p, columns)
    if q is not None:
        rows = graph.call("ReduceSum", graph.call("Cast", a, to=6), np.array([-1]), keepdims=True)
        if p is not None:
            depth = np.array(shape_of(a)[-1], np.int32)
            rows = graph.call("Sub", rows, graph.call("Mul", p, depth))
        result = graph.call("tilewright::SubProduct", result, q, rows)
    return result


def _less_product(graph: Graph, sums: Value, p: Value, columns: Value) -> Value:
    """``sums - p * columns``; what is known is a bias, with which sums begin."""
    result: Value
    if p.constant is None or columns.constant is None or p.constant.size > 1:
        result = graph.call("tilewright::SubProduct", sums, p, columns)
    else:
        bias = (-p.constant.reshape(()).astype(np.int64) * columns.constant).astype(np.int32)
        result = graph.call("Add", sums, bias.reshape(shape_of(columns)[-1:]) if bias.ndim == 2 else bias)
    return result


@operator("tilewright::SubProduct", schedule="elementwise")
def sub_product(x: te.Tensor, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """``x - a * b``, all of one type; a and b broadcast to x."""
    return te.compute(shape_of(x), lambda *i: x[i] - read(a, i) * read(b, i), "sub_product")
