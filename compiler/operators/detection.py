"""Selecting boxes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from compiler.operators import refusals
from compiler.operators.broadcast import shape_of
from compiler.operators.prim_functions import (
    Buffer,
    fill,
    loops,
    ordered_block,
    prim_function,
    scratch,
    store,
    when,
)
from compiler.operators.registry import operator
from compiler.operators.signature import Constant

VALID_COUNT = "tw.valid_count"
"""PrimFunc attribute: which output is the int32 count of the valid rows (along axis 0) of output 0.

The output that the model sees is cut to the count by whoever runs the program; the rows after it are zeros.
"""


@operator("NonMaxSuppression", schedule="library")
def non_max_suppression(
    boxes: te.Tensor,
    scores: te.Tensor,
    max_output_boxes_per_class: Constant | None = None,
    iou_threshold: te.Tensor | Constant | None = None,
    score_threshold: te.Tensor | Constant | None = None,
    *,
    center_point_box: bool = False,
) -> tirx.PrimFunc:
    """Rows (batch, class, box): for each class the best boxes that overlap no better one too much, best first.

    Outputs are as many rows as there can be, and how many there are.
    """
    batches, number = shape_of(boxes)[:2]
    classes = shape_of(scores)[1]
    if shape_of(boxes) != (batches, number, 4) or shape_of(scores) != (batches, classes, number):
        raise refusals.wrong_shape("boxes must be [b, n, 4] and scores [b, classes, n]", boxes=boxes, scores=scores)
    most = 0 if max_output_boxes_per_class is None else min(int(max_output_boxes_per_class.item()), number)
    if most <= 0:
        raise refusals.wrong_value("must be positive: no box would be selected", "max_output_boxes_per_class", most)
    thresholds = [value for value in (iou_threshold, score_threshold) if isinstance(value, te.Tensor)]

    def body(box: Buffer, score: Buffer, *rest: Buffer) -> None:
        *limits, selected, count = rest
        given = iter(limits)
        iou_limit = _limit(iou_threshold, given, 0.0)
        score_limit = None if score_threshold is None else _limit(score_threshold, given, 0.0)
        candidates = scratch((number,), "int32")
        state = scratch((3,), "int32")
        left, best, done = 0, 1, 2  # what state holds: how many candidates, the best's place among them, any left
        touched = [box, score, *limits, candidates, state, selected, count]
        fill(selected, tirx.const(0, "int32"))
        fill(count, tirx.const(0, "int32"))
        with (
            ordered_block("suppress", touched, [selected, count, candidates, state]),
            loops(batches, classes) as (b, c),
        ):

            def score_of(place: Any) -> Any:
                return score[b, c, candidates[place]]

            store(state, tirx.const(0, "int32"), left)
            with loops(number) as (i,):
                enough = tirx.const(True, "bool") if score_limit is None else score[b, c, i] > score_limit
                with when(enough):
                    store(candidates, i, state[left])
                    store(state, state[left] + 1, left)
            with loops(most), when(state[left] > 0):
                store(state, tirx.const(0, "int32"), best)
                with loops(state[left]) as (i,), when(score_of(i) > score_of(state[best])):
                    store(state, i, best)
                chosen = T.Bind(candidates[state[best]])
                for column, value in enumerate((b, c, chosen)):
                    store(selected, value, count[0], column)
                store(count, count[0] + 1, 0)
                store(state, tirx.const(0, "int32"), done)
                with loops(state[left]) as (i,):
                    other = T.Bind(candidates[i])
                    overlap = _overlap(box, b, chosen, other, center_point_box)
                    with when(tirx.all(tirx.NE(other, chosen), overlap <= iou_limit)):
                        store(candidates, other, state[done])
                        store(state, state[done] + 1, done)
                store(state, state[done], left)

    outputs = [((batches * classes * most, 3), "int32"), ((1,), "int32")]
    return prim_function([boxes, scores, *thresholds], outputs, body).with_attr(VALID_COUNT, 1)


def _limit(threshold: Any, buffers: Any, default: float) -> Any:
    if threshold is None:
        return tirx.const(default, "float32")
    if isinstance(threshold, np.ndarray):
        return tirx.const(float(threshold.item()), "float32")
    buffer = next(buffers)
    return buffer[tuple([0] * len(buffer.shape))].astype("float32")


def _overlap(box: Buffer, b: Any, one: Any, other: Any, centred: bool) -> Any:
    """Intersection over union; 0 where an area is."""
    zero = tirx.const(0, "float32")
    sides = [[_interval(box, b, which, axis, centred) for axis in (0, 1)] for which in (one, other)]
    common = [
        tirx.max(tirx.min(high, other_high) - tirx.max(low, other_low), zero)
        for (low, high), (other_low, other_high) in zip(*sides, strict=True)
    ]
    intersection = T.Bind(common[0] * common[1])
    areas = [_product([high - low for low, high in intervals]) for intervals in sides]
    union = T.Bind(areas[0] + areas[1] - intersection)
    empty = tirx.any(intersection <= zero, areas[0] <= zero, areas[1] <= zero, union <= zero)
    return tirx.Select(empty, zero, intersection / tirx.max(union, tirx.const(1e-30, "float32")))


def _interval(box: Buffer, b: Any, which: Any, axis: int, centred: bool) -> tuple[Any, Any]:
    first, second = (box[b, which, axis + 2 * side].astype("float32") for side in (0, 1))
    if centred:
        half = second * tirx.const(0.5, "float32")
        return T.Bind(first - half), T.Bind(first + half)
    return T.Bind(tirx.min(first, second)), T.Bind(tirx.max(first, second))


def _product(factors: Sequence[Any]) -> Any:
    return T.Bind(factors[0] * factors[1])
