"""Products with a known matrix on the left, as `compiler.operators.left_products` makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from compiler.frontend.graph import GraphBuilder, Value
from compiler.frontend.inner_axes import Rewrite
from compiler.operators.left_products import left_product, pays


def narrow(graph: GraphBuilder, values: Sequence[Value | None], _attributes: Mapping[str, Any]) -> Value | None:
    """`MatMul` of one matrix and many narrow ones."""
    matrix, x = values
    if matrix is None or x is None or matrix.constant is None or x.constant is not None:
        return None
    fits = len(matrix.shape) == 2 and len(x.shape) > 2 and matrix.shape[1] == x.shape[-2] and 0 not in matrix.shape
    if not fits or matrix.dtype != x.dtype or not pays(x.shape, x.dtype):
        return None
    result: Value = left_product(graph, matrix.constant, x)
    return result


LEFT: Mapping[str, Rewrite] = {"MatMul": narrow}
