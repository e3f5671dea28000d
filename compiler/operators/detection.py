"""Selecting boxes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
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


def _f32(value: float) -> Any:
    return tirx.const(value, "float32")


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
        fill(selected, tirx.const(0, "int32"))
        fill(count, tirx.const(0, "int32"))
        held = _Held.of(number, min(classes, max(1, _AT_ONCE // number)), most, str(box.dtype), str(score.dtype))
        touched = [box, score, *limits, selected, count, *held.buffers]
        with ordered_block("suppress", touched, [selected, count, *held.buffers]), loops(batches) as (b,):
            held.read_boxes(box, b, center_point_box)
            for first, chunks, together in _pieces(classes, held.rows):
                with loops(chunks) as (chunk,):
                    c = first + chunk * together
                    held.suppress(score, b, c, together, iou_limit, score_limit)
                    with loops(together) as (row,):
                        held.append(selected, count, b, c + row, row)
            _clear_behind(selected, count, most)

    outputs = [((batches * classes * most, 3), "int32"), ((1,), "int32")]
    return prim_function([boxes, scores, *thresholds], outputs, body).with_attr(VALID_COUNT, 1)


def _limit(threshold: Any, buffers: Any, default: float) -> Any:
    if threshold is None:
        return tirx.const(default, "float32")
    if isinstance(threshold, np.ndarray):
        return tirx.const(float(threshold.item()), "float32")
    buffer = next(buffers)
    return buffer[tuple([0] * len(buffer.shape))].astype("float32")


def _pieces(extent: int, length: int) -> list[tuple[int, int, int]]:
    """An axis in pieces: (where they begin, how many, the length of each), those of full length and the last."""
    whole, left = divmod(extent, length)
    return [piece for piece in ((0, whole, length), (whole * length, 1, left)) if piece[1] and piece[2]]


def _clear_behind(selected: Buffer, count: Buffer, most: int) -> None:
    """Each class brought as many rows as there can be, of which the next wrote over those that were none."""
    last = T.Bind(count[0])
    with loops(tirx.min(most, shape_of(selected)[0] - last), 3) as (i, column):
        store(selected, tirx.const(0, "int32"), last + i, column)


_EDGES = 4  # of a box: where it begins and ends on one axis, then on the other
_AREA = _EDGES
_AT_ONCE = 4096  # scores that one instruction works on
_NEAR = 1024  # boxes; where there are more, they may lie in DDR and are brought piece by piece
_DEAD, _LOWEST = _f32(-3.4028234e38), _f32(-3.4e38)  # what cannot be selected; the least score of what can
Read = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class _Held:
    """What is kept of the boxes of an image and of several classes' scores. The vector unit does a step for all of
    them at once; the scalar unit only asks whether any box is left."""

    boxes: Buffer  # [edges and area, box]
    places: Buffer  # [box of a piece]: 0, 1, 2, ...
    scores: Buffer  # [row, box]; dead ones are
    best: Buffer  # [row]: the highest score
    first: Buffer  # [row]: the first box that has it
    chosen: Buffer  # the same as an integer
    theirs: Buffer  # [edges and area, row]: of the chosen boxes
    picked: Buffer  # [row, step]
    counts: Buffer  # [row]: how many steps found one
    top: Buffer  # [1]: the highest score of all rows
    # A piece of the boxes and the scores, as they are given and as they are kept.
    near_given_boxes: Buffer
    near_boxes: Buffer
    near_given_scores: Buffer
    near_scores: Buffer

    @staticmethod
    def of(number: int, rows: int, most: int, box_dtype: str, score_dtype: str) -> _Held:
        near = min(number, _NEAR)
        rows = rows if number <= _NEAR else 1
        return _Held(
            boxes=scratch((_EDGES + 1, number), "float32"),
            places=scratch((near,), "float32"),
            scores=scratch((rows, number), "float32"),
            best=scratch((rows,), "float32"),
            first=scratch((rows,), "float32"),
            chosen=scratch((rows,), "int32"),
            theirs=scratch((_EDGES + 1, rows), "float32"),
            picked=scratch((rows, most), "int32"),
            counts=scratch((rows,), "int32"),
            top=scratch((1,), "float32"),
            near_given_boxes=scratch((_EDGES, near), box_dtype),
            near_boxes=scratch((_EDGES + 1, near), "float32"),
            near_given_scores=scratch((rows, near), score_dtype),
            near_scores=scratch((rows, near), "float32"),
        )

    @property
    def buffers(self) -> list[Buffer]:
        return [getattr(self, each.name) for each in fields(self)]

    @property
    def rows(self) -> int:
        return shape_of(self.scores)[0]

    @property
    def number(self) -> int:
        return shape_of(self.scores)[1]

    def read_boxes(self, box: Buffer, b: Any, centred: bool) -> None:
        near = shape_of(self.places)[0]
        with loops(near) as (i,):
            store(self.places, i.astype("float32"), i)
        for start, length in self._near():
            self._read_piece(lambda edge, place: box[b, place, edge], start, length, centred)

    def _read_piece(self, given: Read, start: Any, length: int, centred: bool) -> None:
        near = self._brought(self.near_given_boxes, _EDGES, length, given, start)
        for axis in (0, 1):
            for side in (0, 1):
                with loops(length) as (i,):
                    store(self.boxes, _interval(near, i, axis, centred)[side], 2 * axis + side, start + i)
        edges = self._kept_boxes(start, length, _EDGES)
        with loops(length) as (i,):
            store(self.boxes, (edges(1, i) - edges(0, i)) * (edges(3, i) - edges(2, i)), _AREA, start + i)

    def suppress(self, score: Buffer, b: Any, c: Any, rows: int, iou_limit: Any, score_limit: Any) -> None:
        """Fill ``picked`` and ``counts`` for the classes from ``c`` on."""
        with loops(rows) as (row,):
            store(self.counts, tirx.const(0, "int32"), row)
        with loops(rows, shape_of(self.picked)[1]) as (row, step):
            store(self.picked, tirx.const(0, "int32"), row, step)
        with self._new_best(rows):
            for start, length in self._near():
                given = self._brought(
                    self.near_given_scores, rows, length, lambda row, place: score[b, c + row, place], start
                )
                self._keep_scores(rows, start, length, _candidates(given, score_limit))
        with loops(shape_of(self.picked)[1]) as (step,), when(self.top[0] > _DEAD):
            self._choose(rows, step)
            self._drop(rows, iou_limit)

    def append(self, selected: Buffer, count: Buffer, b: Any, c: Any, row: Any) -> None:
        last = T.Bind(count[0])
        steps = shape_of(self.picked)[1]
        for column, value in enumerate((b, c)):
            with loops(steps) as (step,):
                store(selected, value, last + step, column)
        with loops(steps) as (step,):
            store(selected, self.picked[row, step], last + step, 2)
        store(count, count[0] + self.counts[row], 0)

    def _choose(self, rows: int, step: Any) -> None:
        with loops(rows) as (row,):
            store(self.first, _f32(self.number - 1), row)
        for start, length in self._near():
            scores = self._kept_scores(rows, start, length)
            with loops(rows, length) as (row, i):
                here = tirx.EQ(scores(row, i), self.best[row])
                place = tirx.Select(here, self._place(start, i), _f32(self.number))
                store(self.first, tirx.min(self.first[row], place), row)
        with loops(rows) as (row,):
            store(self.chosen, self.first[row].astype("int32"), row)
        with loops(rows) as (row,):
            store(self.picked, self.chosen[row], row, step)
        with loops(rows) as (row,):
            found = tirx.Select(self.best[row] > _DEAD, tirx.const(1, "int32"), tirx.const(0, "int32"))
            store(self.counts, self.counts[row] + found, row)
        for what in range(_EDGES + 1):
            with loops(rows) as (row,):
                store(self.theirs, self.boxes[what, self.chosen[row]], what, row)

    def _drop(self, rows: int, iou_limit: Any) -> None:
        """The chosen ones, and those that overlap them too much."""
        with self._new_best(rows):
            for start, length in self._near():
                self._keep_scores(rows, start, length, self._left(rows, start, length, iou_limit))

    def _left(self, rows: int, start: Any, length: int, iou_limit: Any) -> Read:
        scores, boxes = self._kept_scores(rows, start, length), self._kept_boxes(start, length)

        def score(row: Any, i: Any) -> Any:
            overlap = _overlap(lambda what: (boxes(what, i), self.theirs[what, row]))
            gone = tirx.any(overlap > iou_limit, tirx.EQ(self._place(start, i), self.first[row]))
            return tirx.Select(gone, _DEAD, scores(row, i))

        return score

    def _keep_scores(self, rows: int, start: Any, length: int, value: Read) -> None:
        """Store them, and look for the best."""
        near = self.scores if self._is_near else self.near_scores
        with loops(rows, length) as (row, i):
            store(near, value(row, i), row, i)
        with loops(rows, length) as (row, i):
            store(self.best, tirx.max(self.best[row], near[row, i]), row)
        if not self._is_near:
            with loops(rows, length) as (row, i):
                store(self.scores, near[row, i], row, start + i)

    @contextmanager
    def _new_best(self, rows: int) -> Iterator[None]:
        with loops(rows) as (row,):
            store(self.best, _DEAD, row)
        yield
        store(self.top, _DEAD, 0)
        with loops(rows) as (row,):
            store(self.top, tirx.max(self.top[0], self.best[row]), 0)

    # ---- pieces ----

    @property
    def _is_near(self) -> bool:
        return self.number <= _NEAR

    def _near(self) -> Iterator[tuple[Any, int]]:
        """(the first box, the length) of each piece; what follows is in a loop over them."""
        for first, count, length in _pieces(self.number, shape_of(self.places)[0]):
            if count == 1:
                yield first, length
            else:
                with loops(count) as (piece,):
                    yield first + piece * length, length

    def _place(self, start: Any, i: Any) -> Any:
        return self.places[i] if isinstance(start, int) and start == 0 else self.places[i] + _as_f32(start)

    def _kept_scores(self, rows: int, start: Any, length: int) -> Read:
        return self._brought(self.near_scores, rows, length, lambda row, place: self.scores[row, place], start)

    def _kept_boxes(self, start: Any, length: int, rows: int = _EDGES + 1) -> Read:
        return self._brought(self.near_boxes, rows, length, lambda what, place: self.boxes[what, place], start)

    def _brought(self, near: Buffer, rows: int, length: int, read: Read, start: Any) -> Read:
        """How to read a piece of what ``read`` gives for a row and a box."""
        if self._is_near:
            return lambda row, i: read(row, start + i)
        with loops(rows, length) as (row, i):
            store(near, read(row, start + i), row, i)
        return lambda row, i: near[row, i]


def _candidates(given: Read, limit: Any | None) -> Read:
    """Scores, of which those that are not above the limit can never be selected."""

    def score(row: Any, i: Any) -> Any:
        value = given(row, i).astype("float32")
        least, otherwise = (_LOWEST, _LOWEST) if limit is None else (limit, _DEAD)
        return tirx.Select(value > least, value, otherwise)

    return score


def _overlap(pair: Callable[[int], tuple[Any, Any]]) -> Any:
    """Intersection over union of two boxes of which ``pair`` gives each edge and the area."""
    sides = []
    for axis in (0, 1):
        (low, other_low), (high, other_high) = pair(2 * axis), pair(2 * axis + 1)
        sides.append(tirx.max(tirx.min(high, other_high) - tirx.max(low, other_low), _f32(0)))
    common = sides[0] * sides[1]
    area, other_area = pair(_AREA)
    return common / tirx.max(area + other_area - common, _f32(1e-30))


def _interval(given: Read, i: Any, axis: int, centred: bool) -> tuple[Any, Any]:
    """Where a box begins and ends on one axis."""
    first, second = (given(axis + 2 * side, i).astype("float32") for side in (0, 1))
    if centred:
        half = second * _f32(0.5)
        return first - half, first + half
    return tirx.min(first, second), tirx.max(first, second)


def _as_f32(value: Any) -> Any:
    return _f32(value) if isinstance(value, int) else value.astype("float32")
