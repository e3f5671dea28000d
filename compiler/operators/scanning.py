"""Running sums and products along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.operators.axes import existing_axis
from compiler.operators.broadcast import dtype_of, shape_of
from compiler.operators.cast import as_dtype
from compiler.operators.graph import Graph, Value
from compiler.operators.prim_functions import Buffer, loops, ordered_block, prim_function, region, scratch, store
from compiler.operators.registry import composition, operator
from compiler.operators.signature import Constant, only

# Of so few elements loops of the scalar unit take no longer than a kernel for each doubling.
_FEW_ELEMENTS = 16


@composition("CumSum")
def cum_sum(graph: Graph, x: Value, axis: Constant, *, exclusive: bool = False, reverse: bool = False) -> Any:
    return _doubling(graph, "Sum", x, int(only("axis", axis)), exclusive, reverse)


@composition("CumProd")
def cum_prod(graph: Graph, x: Value, axis: Constant, *, exclusive: bool = False, reverse: bool = False) -> Any:
    return _doubling(graph, "Prod", x, int(only("axis", axis)), exclusive, reverse)


def _doubling(graph: Graph, what: str, x: Value, axis: int, exclusive: bool, reverse: bool) -> Any:
    """Each element with the one before it, then each of these with the one two before it, and so on: the vector unit
    goes through all elements as often as their number along the axis can be halved.

    A type of 16 bits is accumulated in float32 and rounded once at the end.
    """
    shape, dtype = shape_of(x), dtype_of(x)
    axis = existing_axis(axis, len(shape))
    if math.prod(shape) <= _FEW_ELEMENTS:
        return graph.call(f"tilewright::Cum{what}ByLoops", x, axis=axis, exclusive=exclusive, reverse=reverse)
    neutral, combine, extent = (0, "Add", shape[axis]) if what == "Sum" else (1, "Mul", shape[axis])
    result = as_dtype(graph, x, "float32") if dtype in ("float16", "bfloat16") else x
    fill = np.array(neutral, np.float32 if "float" in dtype_of(result) else np.int32)

    def moved(value: Value, by: int) -> Any:
        """By so many places, the first of which get what changes nothing."""
        ends = (-by, by) if reverse else (by, -by)
        return graph.call("Pad", value, np.array(ends), fill, np.array([axis]))

    if exclusive:
        result = moved(result, 1)
    for power in range((extent - 1).bit_length()):
        result = graph.call(combine, result, moved(result, 1 << power))
    return as_dtype(graph, result, dtype)


@operator("tilewright::CumSumByLoops", schedule="library")
def cum_sum_by_loops(x: te.Tensor, *, axis: int, exclusive: bool, reverse: bool) -> tirx.PrimFunc:
    return _scan(x, axis, exclusive, reverse, lambda a, b: a + b, 0)


@operator("tilewright::CumProdByLoops", schedule="library")
def cum_prod_by_loops(x: te.Tensor, *, axis: int, exclusive: bool, reverse: bool) -> tirx.PrimFunc:
    return _scan(x, axis, exclusive, reverse, lambda a, b: a * b, 1)


def _scan(
    x: te.Tensor, axis: int, exclusive: bool, reverse: bool, combine: Callable[[Any, Any], Any], neutral: int
) -> tirx.PrimFunc:
    """One step along the axis after the other; the loops inside a step are independent of each other.

    A type of 16 bits is accumulated in float32 and rounded once at the end.
    """
    shape = shape_of(x)
    axis = existing_axis(axis, len(shape))
    extent = shape[axis] if shape else 1
    dtype = dtype_of(x)
    sums = "float32" if dtype in ("float16", "bfloat16") else dtype

    def body(source: Buffer, out: Buffer) -> None:
        running = out if sums == dtype else scratch(shape, sums)

        def along(index: Any) -> Any:
            return extent - 1 - index if reverse else index

        def place(at: tuple[Any, ...], inner: tuple[Any, ...], step: Any) -> tuple[Any, ...]:
            return (*at, along(step), *inner)

        with ordered_block("scan", [source, running], [running]), loops(*shape[:axis]) as at:
            with loops(*shape[axis + 1 :]) as inner:
                first = tirx.const(neutral, sums) if exclusive else source[place(at, inner, 0)].astype(sums)
                store(running, first, *place(at, inner, 0))
            if extent > 1:
                with loops(extent - 1) as (step,), loops(*shape[axis + 1 :]) as inner:
                    added = source[place(at, inner, step if exclusive else step + 1)].astype(sums)
                    store(running, combine(running[place(at, inner, step)], added), *place(at, inner, step + 1))
        if running is not out:
            region(shape, out, lambda point: point, lambda point: running[tuple(point)].astype(dtype), "cast")

    return prim_function([x], [(shape, dtype)], body)
