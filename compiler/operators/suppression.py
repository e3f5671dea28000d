"""Picking the boxes of a class, the best first, and dropping those that overlap one of them too much.

The loops are written once. As an operator they run over plain buffers; :mod:`compiler.tiling.suppression` has them
built again with places: which cores pick for which classes, how many classes one instruction works on, and which
buffers lie on the chip.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import tirx as T

from compiler.operators.broadcast import dtype_of, shape_of
from compiler.operators.prim_functions import Buffer, loops, ordered_block, prim_function, scratch, store, when
from compiler.operators.registry import operator

_EDGES = 4  # of a box: where it begins and ends on one axis, then on the other
_AREA = _EDGES


def _f32(value: float) -> Any:
    return tirx.const(value, "float32")


_DEAD, _LOWEST = _f32(-3.4028234e38), _f32(-3.4e38)  # what cannot be selected; the least score of what can
Read = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Places:
    """Who works on what, and where it lies. The default is one core that has one memory."""

    rows: int = 1  # classes that one instruction works on
    image_cores: int = 1  # that share the images
    class_cores: int = 1  # that share the classes of an image
    scopes: bool = False
    held: bool = True  # whether all boxes and scores of a core lie on the chip
    piece: int = 1024  # boxes; more of them are worked on piece by piece


@operator("tilewright::PickBoxes", schedule="suppression")
def pick_boxes(
    boxes: te.Tensor,
    scores: te.Tensor,
    iou_threshold: te.Tensor | None = None,
    score_threshold: te.Tensor | None = None,
    *,
    most: int,
    iou_limit: float | None = None,
    score_limit: float | None = None,
    center_point_box: bool = False,
) -> tirx.PrimFunc:
    """For every image and class its rows [``most``, 3] of NonMaxSuppression, and how many of them count.

    A limit is known, or a tensor. Without one of the scores all can be selected.
    """
    known = {"iou_limit": iou_limit, "score_limit": score_limit}
    attributes = {name: limit for name, limit in known.items() if limit is not None}
    attributes |= {"most": most, "center_point_box": center_point_box}
    given = [limit for limit in (iou_threshold, score_threshold) if limit is not None]
    return _build([boxes, scores, *given], attributes, Places())


def built_again(func: Any, places: Places) -> tirx.PrimFunc:
    """The function of a kernel with other places."""
    return _build(list(func.params)[:-2], json.loads(str(func.attrs["tw.attributes"])), places)


def _build(inputs: list[Any], attributes: dict[str, Any], places: Places) -> tirx.PrimFunc:
    batches, classes, number = shape_of(inputs[1])
    most, rows = attributes["most"], places.rows
    outputs = [((batches * classes, most, 3), "int32"), ((batches * classes,), "int32")]
    images, chunks = batches // places.image_cores, classes // rows
    trips = -(-chunks // places.class_cores)

    def body(box: Buffer, score: Buffer, *rest: Buffer) -> None:
        *limits, picked, counts = rest
        kept = _Kept.of(number, most, (dtype_of(box), dtype_of(score)), places)
        near = [_Limit.of(limit, places) for limit in limits]
        own = [*kept.buffers, *(buffer for limit in near for buffer in (limit.given, limit.wide))]
        with (
            _cores(places) as (image_core, class_core),
            ordered_block("suppress", [box, score, *limits, *own, picked, counts], [picked, counts, *own]),
        ):
            work = _Suppression(kept, places.held, image_core * places.class_cores + class_core)
            iou_limit, score_limit = _limits(attributes, limits, near)
            work.number_places()
            with loops(images) as (image,):
                b = image_core * images + image
                work.read_boxes(box, b, attributes["center_point_box"])
                with loops(trips) as (trip,), ExitStack() as stack:
                    chunk = class_core * trips + trip
                    if places.class_cores * trips != chunks:
                        stack.enter_context(when(chunk < chunks))
                    work.suppress(score, b, chunk * rows, iou_limit, score_limit)
                    work.leave(picked, counts, b * classes + chunk * rows)

    return prim_function(inputs, outputs, body)


@contextmanager
def _cores(places: Places) -> Iterator[tuple[Any, Any]]:
    """The core's number among those that share the images, and among those that share the classes of one."""
    if not places.scopes:
        with loops(places.image_cores, places.class_cores) as (image_core, class_core):
            yield image_core, class_core
        return
    with T.thread_binding(0, places.image_cores * places.class_cores, thread="blockIdx.x") as core:
        if places.image_cores == 1:
            yield tirx.const(0, "int32"), core
        else:
            yield core // places.class_cores, core % places.class_cores


@dataclass(frozen=True)
class _Limit:
    """A limit that is only known when the program runs, as it is given and as it is compared with."""

    given: Buffer
    wide: Buffer

    @staticmethod
    def of(limit: Buffer, places: Places) -> _Limit:
        scope = "local.ub" if places.scopes else "global"
        return _Limit(scratch((1,), dtype_of(limit), scope), scratch((1,), "float32", scope))

    def read(self, limit: Buffer) -> Any:
        store(self.given, limit[tuple([0] * len(limit.shape))], 0)
        store(self.wide, self.given[0].astype("float32"), 0)
        return self.wide[0]


def _limits(attributes: dict[str, Any], buffers: Sequence[Buffer], near: Sequence[_Limit]) -> tuple[Any, Any | None]:
    """Of what overlaps, and of scores."""
    given = iter([limit.read(buffer) for limit, buffer in zip(near, buffers, strict=True)])
    known = [_f32(float(attributes[name])) if name in attributes else None for name in ("iou_limit", "score_limit")]
    iou = next(given) if known[0] is None else known[0]
    return iou, next(given, None) if known[1] is None else known[1]


def _pieces(extent: int, length: int) -> list[tuple[int, int, int]]:
    """An axis in pieces: (where they begin, how many, the length of each), those of full length and the last."""
    whole, left = divmod(extent, length)
    return [piece for piece in ((0, whole, length), (whole * length, 1, left)) if piece[1] and piece[2]]


@dataclass(frozen=True)
class _Kept:
    """What is kept of the boxes of an image and of several classes' scores."""

    boxes: Buffer  # [edges and area, box] as one row
    scores: Buffer  # [row, box]; dead ones are
    places: Buffer  # [box of a piece]: 0, 1, 2, ...
    offsets: Buffer  # [edges and area]: where each begins in ``boxes``
    best: Buffer  # [row]: the highest score
    first: Buffer  # [row]: the first box that has it
    chosen: Buffer  # the same as an integer
    where: Buffer  # [edges and area, row]: of the chosen boxes, in ``boxes``
    theirs: Buffer  # the same, what lies there
    picked: Buffer  # [row, step, 3]: image, class, box
    counts: Buffer  # [row]: how many steps found one
    top: Buffer  # [1]: the highest score of all rows
    # A piece of the boxes and the scores, as they are given and as they are kept.
    given_boxes: Buffer
    given_scores: Buffer
    near_boxes: Buffer
    near_scores: Buffer

    @staticmethod
    def of(number: int, most: int, dtypes: tuple[str, str], places: Places) -> _Kept:
        rows, near, cores = places.rows, min(number, places.piece), places.image_cores * places.class_cores
        scope = "local.ub" if places.scopes else "global"

        def buffer(dtype: str, *shape: int) -> Buffer:
            return scratch(shape, dtype, scope)

        def large(*shape: int) -> Buffer:
            """On the chip, or each core's part of a buffer beside it."""
            return buffer("float32", 1, *shape) if places.held else scratch((cores, *shape), "float32")

        return _Kept(
            boxes=large((_EDGES + 1) * number),
            scores=large(rows, number),
            places=buffer("float32", near),
            offsets=buffer("int32", _EDGES + 1),
            best=buffer("float32", rows),
            first=buffer("float32", rows),
            chosen=buffer("int32", rows),
            where=buffer("int32", _EDGES + 1, rows),
            theirs=buffer("float32", _EDGES + 1, rows),
            picked=buffer("int32", rows, most, 3),
            counts=buffer("int32", rows),
            top=buffer("float32", 1),
            given_boxes=buffer(dtypes[0], near, _EDGES),
            given_scores=buffer(dtypes[1], rows, near),
            near_boxes=buffer("float32", _EDGES + 1, 1 if places.held else near),
            near_scores=buffer("float32", rows, 1 if places.held else near),
        )

    @property
    def buffers(self) -> list[Buffer]:
        return list(vars(self).values())


@dataclass(frozen=True)
class _Suppression:
    """The vector unit does a step for several classes at once; the scalar unit only asks whether any box is left."""

    kept: _Kept
    held: bool
    core: Any  # whose part of what does not lie on the chip it is

    @property
    def _rows(self) -> int:
        return shape_of(self.kept.scores)[1]

    @property
    def _number(self) -> int:
        return shape_of(self.kept.scores)[2]

    def number_places(self) -> None:
        with loops(shape_of(self.kept.places)[0]) as (i,):
            store(self.kept.places, i.astype("float32"), i)
        for what in range(_EDGES + 1):
            store(self.kept.offsets, tirx.const(what * self._number, "int32"), what)

    def read_boxes(self, box: Buffer, b: Any, centred: bool) -> None:
        given = self.kept.given_boxes
        for start, length in self._pieces():
            with loops(length, _EDGES) as (i, edge):
                store(given, box[b, start + i, edge], i, edge)
            for axis in (0, 1):
                for side in (0, 1):
                    with loops(length) as (i,):
                        value = _interval(lambda edge, i: given[i, edge], i, axis, centred)[side]
                        store(self.kept.boxes, value, *self._box(2 * axis + side, start + i))
            edges = self._kept_boxes(start, length, _EDGES)
            with loops(length) as (i,):
                area = (edges(1, i) - edges(0, i)) * (edges(3, i) - edges(2, i))
                store(self.kept.boxes, area, *self._box(_AREA, start + i))

    def suppress(self, score: Buffer, b: Any, c: Any, iou_limit: Any, score_limit: Any) -> None:
        """Fill ``picked`` and ``counts`` for the classes from ``c`` on."""
        kept, most = self.kept, shape_of(self.kept.picked)[1]
        with loops(self._rows) as (row,):
            store(kept.counts, tirx.const(0, "int32"), row)
        with loops(self._rows) as (row,):
            for column, value in enumerate((b, c + row, tirx.const(0, "int32"))):
                with loops(most) as (step,):
                    store(kept.picked, value, row, step, column)
        given = kept.given_scores
        with self._new_best():
            for start, length in self._pieces():
                with loops(self._rows, length) as (row, i):
                    store(given, score[b, c + row, start + i], row, i)
                self._keep_scores(start, length, _candidates(lambda row, i: given[row, i], score_limit))
        with loops(most) as (step,), when(self._top[0] > _DEAD):
            self._choose(step)
            with self._new_best():  # of what neither is chosen nor overlaps that too much
                for start, length in self._pieces():
                    self._keep_scores(start, length, self._left(start, length, iou_limit))

    def leave(self, picked: Buffer, counts: Buffer, first: Any) -> None:
        kept = self.kept
        with loops(*shape_of(kept.picked)) as (row, step, column):
            store(picked, kept.picked[row, step, column], first + row, step, column)
        with loops(self._rows) as (row,):
            store(counts, kept.counts[row], first + row)

    def _choose(self, step: Any) -> None:
        kept, rows = self.kept, self._rows
        with loops(rows) as (row,):
            store(kept.first, _f32(self._number - 1), row)
        for start, length in self._pieces():
            scores = self._kept_scores(start, length)
            with loops(rows, length) as (row, i):
                here = tirx.EQ(scores(row, i), kept.best[row])
                place = tirx.Select(here, self._place(start, i), _f32(self._number))
                store(kept.first, tirx.min(kept.first[row], place), row)
        with loops(rows) as (row,):
            store(kept.chosen, kept.first[row].astype("int32"), row)
        with loops(rows) as (row,):
            store(kept.picked, kept.chosen[row], row, step, 2)
        with loops(rows) as (row,):
            one = tirx.const(1, "int32")  # a step is taken where some row has a box left
            found = one if rows == 1 else tirx.Select(kept.best[row] > _DEAD, one, tirx.const(0, "int32"))
            store(kept.counts, kept.counts[row] + found, row)
        with loops(_EDGES + 1, rows) as (what, row):
            store(kept.where, kept.offsets[what] + kept.chosen[row], what, row)
        with loops(_EDGES + 1, rows) as (what, row):
            store(kept.theirs, kept.boxes[self._part, kept.where[what, row]], what, row)

    def _left(self, start: Any, length: int, iou_limit: Any) -> Read:
        scores, boxes = self._kept_scores(start, length), self._kept_boxes(start, length)

        def score(row: Any, i: Any) -> Any:
            overlap = _overlap(lambda what: (boxes(what, i), self.kept.theirs[what, row]))
            gone = tirx.any(overlap > iou_limit, tirx.EQ(self._place(start, i), self.kept.first[row]))
            return tirx.Select(gone, _DEAD, scores(row, i))

        return score

    def _keep_scores(self, start: Any, length: int, value: Read) -> None:
        """Store them, and look for the best."""
        kept, rows = self.kept, self._rows
        if self.held:
            with loops(rows, length) as (row, i):
                store(kept.scores, value(row, i), 0, row, start + i)
            with loops(rows, length) as (row, i):
                store(kept.best, tirx.max(kept.best[row], kept.scores[0, row, start + i]), row)
            return
        near = kept.near_scores
        with loops(rows, length) as (row, i):
            store(near, value(row, i), row, i)
        with loops(rows, length) as (row, i):
            store(kept.best, tirx.max(kept.best[row], near[row, i]), row)
        with loops(rows, length) as (row, i):
            store(kept.scores, near[row, i], self.core, row, start + i)

    @property
    def _top(self) -> Buffer:
        return self.kept.best if self._rows == 1 else self.kept.top

    @contextmanager
    def _new_best(self) -> Iterator[None]:
        kept = self.kept
        with loops(self._rows) as (row,):
            store(kept.best, _DEAD, row)
        yield
        if self._rows > 1:
            store(kept.top, _DEAD, 0)
            with loops(self._rows) as (row,):
                store(kept.top, tirx.max(kept.top[0], kept.best[row]), 0)

    # ---- pieces ----

    @property
    def _part(self) -> Any:
        return 0 if self.held else self.core

    def _pieces(self) -> Iterator[tuple[Any, int]]:
        """(the first box, the length) of each piece; what follows is in a loop over them."""
        for first, count, length in _pieces(self._number, shape_of(self.kept.places)[0]):
            if count == 1:
                yield first, length
            else:
                with loops(count) as (piece,):
                    yield first + piece * length, length

    def _box(self, what: int, place: Any) -> tuple[Any, Any]:
        return self._part, what * self._number + place

    def _place(self, start: Any, i: Any) -> Any:
        places = self.kept.places
        return places[i] if isinstance(start, int) and start == 0 else places[i] + _as_f32(start)

    def _kept_scores(self, start: Any, length: int) -> Read:
        scores = self.kept.scores
        return self._near(self.kept.near_scores, self._rows, length, lambda row, i: scores[self._part, row, start + i])

    def _kept_boxes(self, start: Any, length: int, rows: int = _EDGES + 1) -> Read:
        boxes, number = self.kept.boxes, self._number

        def read(what: Any, i: Any) -> Any:
            return boxes[self._part, what * number + (start + i)]

        return self._near(self.kept.near_boxes, rows, length, read)

    def _near(self, near: Buffer, rows: int, length: int, read: Read) -> Read:
        """How to read a piece on the chip."""
        if self.held:
            return read
        with loops(rows, length) as (row, i):
            store(near, read(row, i), row, i)
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
