"""Selecting boxes."""

from __future__ import annotations

import numpy as np
from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from compiler.operators import refusals
from compiler.operators.broadcast import shape_of
from compiler.operators.graph import Graph, Value
from compiler.operators.prim_functions import Buffer, fill, loops, ordered_block, prim_function, scratch, store
from compiler.operators.registry import composition, operator
from compiler.operators.signature import Constant, only

VALID_COUNT = "tw.valid_count"
"""PrimFunc attribute: which output is the int32 count of the valid rows (along axis 0) of output 0.

The output that the model sees is cut to the count by whoever runs the program; the rows after it are zeros.
"""


@composition("NonMaxSuppression")
def non_max_suppression(
    graph: Graph,
    boxes: Value,
    scores: Value,
    max_output_boxes_per_class: Constant | None = None,
    iou_threshold: Value | Constant | None = None,
    score_threshold: Value | Constant | None = None,
    *,
    center_point_box: bool = False,
) -> tuple[Value, ...]:
    """Rows (batch, class, box): for each class the best boxes that overlap no better one too much, best first.

    Outputs are as many rows as there can be, and how many there are. Cores pick for classes of their own; one of them
    collects what they found.
    """
    batches, number = shape_of(boxes)[:2]
    classes = shape_of(scores)[1]
    if shape_of(boxes) != (batches, number, 4) or shape_of(scores) != (batches, classes, number):
        raise refusals.wrong_shape("boxes must be [b, n, 4] and scores [b, classes, n]", boxes=boxes, scores=scores)
    wanted = max_output_boxes_per_class
    most = 0 if wanted is None else min(int(only("max_output_boxes_per_class", wanted)), number)
    if most <= 0:
        raise refusals.wrong_value("must be positive: no box would be selected", "max_output_boxes_per_class", most)
    limits = {"iou_limit": np.zeros(1) if iou_threshold is None else iou_threshold, "score_limit": score_threshold}
    known = {name: float(limit.item()) for name, limit in limits.items() if isinstance(limit, np.ndarray)}
    given = [None if name in known else limit for name, limit in limits.items()]
    picked = graph.call(
        "tilewright::PickBoxes", boxes, scores, *given, most=most, center_point_box=center_point_box, **known
    )
    rows, count = graph.call("tilewright::CollectBoxes", *picked)
    return rows, count


@operator("tilewright::CollectBoxes", schedule="library")
def collect_boxes(picked: te.Tensor, counts: te.Tensor) -> tirx.PrimFunc:
    """Of every class [class, most, 3] the rows that count, one class behind the other, and how many there are."""
    classes, most, columns = shape_of(picked)

    def body(rows: Buffer, valid: Buffer, selected: Buffer, count: Buffer) -> None:
        fill(selected, tirx.const(0, "int32"))
        near, firsts, *sums = [scratch((most, columns), "int32"), *(scratch((classes,), "int32") for _ in range(3))]
        touched = [selected, count, near, firsts, *sums]
        with ordered_block("collect", [rows, valid, *touched], touched):
            ends = _running_sums(valid, sums)
            with loops(classes) as (c,):
                store(firsts, ends[c] - valid[c], c)
            with loops(classes) as (c,):
                first = T.Bind(firsts[c])
                with loops(most, columns) as (step, column):
                    store(near, rows[c, step, column], step, column)
                with loops(most, columns) as (step, column):
                    store(selected, near[step, column], first + step, column)
            store(count, ends[classes - 1], 0)
            _clear_behind(selected, count, most)

    outputs = [((classes * most, columns), "int32"), ((1,), "int32")]
    return prim_function([picked, counts], outputs, body).with_attr(VALID_COUNT, 1)


def _running_sums(given: Buffer, sums: list[Buffer]) -> Buffer:
    """Of all up to each: in steps that add what is twice as far away each time, all of them at once."""
    (count,), source, distance = shape_of(given), given, 1
    if count == 1:
        with loops(1) as (i,):
            store(sums[0], given[i], i)
        return sums[0]
    while distance < count:
        target = sums[0] if source is not sums[0] else sums[1]
        with loops(distance) as (i,):
            store(target, source[i], i)
        with loops(count - distance) as (i,):
            store(target, source[distance + i] + source[i], distance + i)
        source, distance = target, 2 * distance
    return source


def _clear_behind(selected: Buffer, count: Buffer, most: int) -> None:
    """Each class brought as many rows as there can be, of which the next wrote over those that were none."""
    last = T.Bind(count[0])
    with loops(tirx.min(most, shape_of(selected)[0] - last), 3) as (i, column):
        store(selected, tirx.const(0, "int32"), last + i, column)
