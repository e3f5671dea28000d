"""Run the graph in pieces whose tensors stay on the chip."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from tvm import ir, relax

from compiler import graph
from compiler.clusters import chip_of
from compiler.codegen.residence import llb_pays
from compiler.operators import TensorType
from compiler.schedule.automatic import Way, best_way, fits
from compiler.schedule.cuts import Cuts
from compiler.schedule.manual import Manual
from compiler.schedule.movement import added_movement, operator_kernel
from compiler.schedule.noted import PIECES, SEARCH, WAY, is_view, members_of
from compiler.schedule.pieces import cut_axis, piece_type
from compiler.schedule.plan import Cut, Join, Piece, Run, Step, steps_of
from compiler.schedule.storage import storage_of
from compiler.target import Chip
from passes.base import Pass


@dataclass(frozen=True)
class ScheduleGraph(Pass):
    """Cut tensors into pieces along their first axis, and run calls once for each piece, depth first.

    a = f(x, w); b = g(a)
    -> x0, x1 = x;    a0 = f'(x0, w); b0 = g'(a0);    a1 = f'(x1, w); b1 = g'(a1);    b = b0, b1

    A call is cut where
    (1) a piece of its results is proven to be made of the same piece of some of its inputs, and of others as a whole
        (:mod:`compiler.schedule.pieces`), and
    (2) what it needs as a whole the model is given, so that it is there before all pieces.
    Pieces are all alike, so that they share their kernels. No kernel cuts or joins: pieces lie where they belong
    (:mod:`compiler.parts`). How many there are, and in which order calls run, is decided by predicted cycles
    (:mod:`compiler.schedule.choice`). Nothing is cut where all that lives at once fits on the chip, or a person says it
    (:mod:`compiler.schedule.manual`).
    """

    name: ClassVar[str] = "schedule-graph"
    requires: ClassVar[frozenset[str]] = frozenset({"groups"})
    manual: Manual | None = None  # the schedule to be followed instead
    found: Way | None = None  # the way that a search for the same graph found before

    def run(self, subject: Any, chip: Chip) -> Any:
        if self.manual is not None:
            cuts = Cuts(subject)
            body = self.manual.ordered(subject, graph.read(subject["main"]))
            counts, breaks = self.manual.counts(subject, body, cuts), self.manual.breaks(subject, body)
            return scheduled(subject, body, cuts, counts, breaks)
        chip = chip_of(subject, chip)
        if not llb_pays(chip) or fits(storage_of(subject, graph.read(subject["main"])), chip):
            return subject
        cuts, body = Cuts(subject), graph.read(subject["main"])
        found = self.found
        way = found if found is not None and found.suits(body, cuts) else best_way(subject, cuts, chip)
        choice = way.choice
        body = replace(body, calls=tuple(body.calls[at] for at in choice.order))
        said = {SEARCH: [choice.cycles, choice.bound_cycles], WAY: way.numbers}
        return scheduled(subject, body, cuts, choice.counts, choice.breaks, said)


def scheduled(
    module: Any,
    body: graph.Body,
    cuts: Cuts,
    counts: Sequence[int],
    breaks: Collection[int] = (),
    attributes: Mapping[str, Any] | None = None,
) -> Any:
    """The module with a main that runs the calls of ``body``, each in so many pieces, and those of ``breaks`` after all
    before.
    """
    steps = steps_of(body, cuts, counts, breaks)
    builder = relax.BlockBuilder(ir.IRModule({gv: f for gv, f in module.functions.items() if gv.name_hint != "main"}))
    functions = [_function(builder, cuts, step) for step in steps]
    made: dict[Piece, Any] = {Piece(param): param for param in body.params}
    pieces = [
        (members_of(module, call), count, at in breaks)
        for at, (call, count) in enumerate(zip(body.calls, counts, strict=True))
        if not is_view(module, call)
    ]
    attributes = {**dict(module["main"].attrs.items()), PIECES: pieces, **(attributes or {})}
    with builder.function("main", list(body.params), attrs=attributes):
        with builder.dataflow():
            for step, function in zip(steps, functions, strict=True):
                _emit(builder, body, step, function, made)
            results = [made[Piece(result)] for result in body.results]
            output = builder.emit_output(relax.Tuple(results) if len(results) != 1 else results[0])
        builder.emit_func_output(output)
    return builder.get()


def _emit(builder: Any, body: graph.Body, step: Step, function: Any, made: dict[Piece, Any]) -> None:
    if not isinstance(step, Run):
        parts = step.parts if isinstance(step, Join) else (step.source,)
        made[step.made] = builder.emit(ir.Call(function, [made[part] for part in parts]), str(step.made.value.name))
        return
    call, inputs = step.call, [made[piece] for piece in step.inputs]
    if isinstance(builder.get()[function], relax.Function):
        value = ir.Call(function, inputs)
    else:
        kinds = [piece_type(kind, step.count) for kind in call.types] if step.count > 1 else list(call.types)
        value = relax.call_tir(function, inputs, kinds)
    whole = builder.emit(value, call.name)
    made[Piece(call.var, step.count, step.number)] = whole
    for var, (source, index) in body.fields.items():
        if source.same_as(call.var):
            made[Piece(var, step.count, step.number)] = builder.emit(relax.TupleGetItem(whole, index), str(var.name))


# ---- functions ---------------------------------------------------------------------------------------------------


def _function(builder: Any, cuts: Cuts, step: Step) -> Any:
    """The function that a step calls, which is there before main is begun."""
    if isinstance(step, Run):
        if step.count > 1:
            return cuts.added(builder, step.call.callee, step.count)
        return builder.get().get_global_var(step.call.callee)
    value, count, number = step.made.value, step.made.count, step.made.number
    if isinstance(step, Cut):
        times = count // step.source.count
        shape = _piece_shape(step.source)
        axis = cut_axis(shape)
        first, rows = number % times * (shape[axis] // times), shape[axis] // times
        given = [np.array([each]) for each in (first, first + rows, axis)]
        kernel = operator_kernel("Slice", [TensorType(shape, graph.dtype_of(value)), *given], {})
        return added_movement(builder, kernel, value)
    shapes = [_piece_shape(part) for part in step.parts]
    axis = cut_axis(_piece_shape(step.made))
    types = [TensorType(shape, graph.dtype_of(value)) for shape in shapes]
    return added_movement(builder, operator_kernel("Concat", types, {"axis": axis}), value)


def _piece_shape(piece: Piece) -> tuple[int, ...]:
    kind = piece_type(piece.value.ty, piece.count) if piece.count > 1 else piece.value.ty
    return tuple(int(n) for n in kind.shape)
