"""Weighted sums of neighbours along one axis: what resizing consists of."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.operators.broadcast import element_dtype, normalised_axis, shape_of
from compiler.operators.prim_functions import Buffer, part, prim_function, region
from compiler.operators.registry import operator
from compiler.operators.runs import MAX_PERIOD, Positions, progressions
from compiler.operators.signature import Constant

# Weights closer than this are one weight: rounding alone makes those of two periods of a pattern differ.
WEIGHT_STEP = 2.0**-20


@operator("tilewright::Interpolate", schedule="movement")
def interpolate(
    x: te.Tensor, sources: Constant, weights: Constant, outside: Constant, *, axis: int, dtype: str
) -> tirx.PrimFunc:
    """``out[o] = outside[o] + sum_k weights[o, k] * x[sources[o, k]]`` along ``axis``: a nest for each stretch of
    outputs that have the same weights and evenly spaced sources."""
    shape = shape_of(x)
    axis = normalised_axis(axis, len(shape))
    period, stretches = stretches_of(sources, weights, outside)
    write = region if len(stretches) == 1 else part

    def copy(source: Buffer, out: Buffer, start: int, count: int) -> None:
        steps = sources[start + period] - sources[start] if count > 1 else np.zeros_like(sources[start])

        def value(point: Any) -> Any:
            terms = [
                (float(weight), source[(*point[:axis], point[axis] * int(step) + int(at), *point[axis + 1 :])])
                for weight, at, step in zip(weights[start], sources[start], steps, strict=True)
            ]
            return rounded(weighted_sum(terms, float(outside[start])), dtype)

        write(
            (*shape[:axis], count, *shape[axis + 1 :]),
            out,
            lambda point: [*point[:axis], point[axis] * period + start, *point[axis + 1 :]],
            value,
            "interpolate",
        )

    def body(source: Buffer, out: Buffer) -> None:
        for start, count in stretches:
            copy(source, out, start, count)

    return prim_function([x], [((*shape[:axis], len(sources), *shape[axis + 1 :]), dtype)], body)


@operator("tilewright::InterpolateByTable", schedule="gather")
def interpolate_by_table(
    x: te.Tensor, sources: te.Tensor, weights: te.Tensor, outside: te.Tensor, *, axis: int, dtype: str
) -> te.Tensor:
    """As ``tilewright::Interpolate``, for tables without a pattern: they are read while it runs."""
    shape = shape_of(x)
    axis = normalised_axis(axis, len(shape))
    outputs, neighbours = shape_of(sources)
    k = te.reduce_axis((0, neighbours), "k")

    def element(*i: Any) -> Any:
        neighbour = x[(*i[:axis], sources[i[axis], k], *i[axis + 1 :])]
        return te.sum(weights[i[axis], k] * neighbour.astype("float32"), axis=k)

    result = (*shape[:axis], outputs, *shape[axis + 1 :])
    sums = te.compute(result, element, "weighted_sum")
    return te.compute(result, lambda *i: rounded(sums[i] + outside[i[axis]], dtype), "interpolate")


def stretches_of(sources: Positions, weights: Positions, outside: Positions) -> tuple[int, list[tuple[int, int]]]:
    """A period, and (start, count) of the stretches of outputs ``start, start + period, ...`` that one nest can do."""
    rows = np.rint(np.column_stack([weights, outside]) / WEIGHT_STEP).astype(np.int64)
    labels = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
    periods = range(1, min(MAX_PERIOD, max(len(sources), 1)) + 1)
    return min(((p, progressions(sources, p, labels)) for p in periods), key=lambda found: len(found[1]))


def rounded(value: Any, dtype: str) -> Any:
    """As ``dtype``; a sum becomes the nearest integer that the type has."""
    if element_dtype(value) != "float32" or "int" not in dtype:
        return value.astype(dtype)
    limits = np.iinfo(dtype)
    low, high = np.float32(limits.min), np.float32(limits.max)
    if high > limits.max:  # the largest int32 has no float32 of its own
        high = np.nextafter(high, np.float32(0))
    limited = tirx.max(
        tirx.min(tirx.nearbyint(value), tirx.const(float(high), "float32")), tirx.const(float(low), "float32")
    )
    return limited.astype(dtype)


def weighted_sum(terms: list[tuple[float, Any]], added: float) -> Any:
    """In float32, but for a single element with weight one."""
    used = [(weight, element) for weight, element in terms if abs(weight) >= WEIGHT_STEP]
    if len(used) == 1 and used[0][0] == 1.0 and added == 0.0:
        return used[0][1]
    total: Any = None
    for weight, element in used:
        product = element.astype("float32") * tirx.const(weight, "float32")
        total = product if total is None else total + product
    if total is None:
        return tirx.const(added, "float32")
    return total if added == 0.0 else total + tirx.const(added, "float32")
