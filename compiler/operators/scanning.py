"""Running sums and products along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx

from compiler.operators.axes import existing_axis
from compiler.operators.broadcast import dtype_of, shape_of
from compiler.operators.prim_functions import Buffer, loops, ordered_block, prim_function, region, scratch, store
from compiler.operators.registry import operator
from compiler.operators.signature import Constant, only


@operator("CumSum", schedule="library")
def cum_sum(x: te.Tensor, axis: Constant, *, exclusive: bool = False, reverse: bool = False) -> tirx.PrimFunc:
    return _scan(x, int(only("axis", axis)), exclusive, reverse, lambda a, b: a + b, 0)


@operator("CumProd", schedule="library")
def cum_prod(x: te.Tensor, axis: Constant, *, exclusive: bool = False, reverse: bool = False) -> tirx.PrimFunc:
    return _scan(x, int(only("axis", axis)), exclusive, reverse, lambda a, b: a * b, 1)


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
