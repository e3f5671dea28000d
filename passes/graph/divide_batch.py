"""Divide the batch of a model among the clusters of the chip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import ir, relax

from compiler import graph
from compiler.clusters import CLUSTERS
from compiler.codegen.residence import llb_pays
from compiler.errors import InvalidError, Problem
from compiler.schedule.automatic import best, undivided_cycles
from compiler.schedule.cuts import Cuts
from compiler.schedule.manual import Manual
from compiler.schedule.pieces import piece_type
from compiler.target import Chip
from passes.base import Pass

WORTH = 0.95  # of the cycles of the whole, what a part is thought to take at most: less is not known so well


@dataclass(frozen=True)
class DivideBatch(Pass):
    """Make main that of one cluster's part of the batch, which all clusters run side by side.

    main(x[8, ...], w): y = f(x, w)    ->    main(x[2, ...], w): y = f'(x, w)    with `tw.clusters = 4`

    Clusters talk through DDR only. Where each has its own part, what lies between kernels stays in its LLB, and no
    cluster waits for another; but each reads all weights. That is done where
    (1) all calls can be cut into as many pieces as there are clusters (:mod:`compiler.schedule.pieces`),
    (2) each input of the model is read in pieces, or as a whole, and each constant as a whole, and
    (3) it is predicted to be faster (:mod:`compiler.schedule.automatic`).
    Where main says already how many clusters divide it, it stays as it is.
    """

    name: ClassVar[str] = "divide-batch"
    requires: ClassVar[frozenset[str]] = frozenset({"groups"})
    manual: Manual | None = None  # the schedule to be followed instead

    def run(self, subject: Any, chip: Chip) -> Any:
        if self.manual is not None and self.manual.clusters is not None:
            return _as_told(subject, chip, self.manual)
        if chip.clusters == 1 or graph.attribute(subject["main"], CLUSTERS) is not None:
            return subject
        if not llb_pays(chip.one_cluster()):
            return subject
        body, cuts = graph.read(subject["main"]), Cuts(subject)
        cut = cut_parameters(subject, body, cuts, chip.clusters)
        if cut is None:  # (1), (2)
            return subject
        divided = _divided(subject, body, cuts, cut, chip.clusters)
        cycles = best(divided, Cuts(divided), chip.one_cluster()).cycles
        return divided if cycles < undivided_cycles(subject, chip) * WORTH else subject  # (3)


def _as_told(module: Any, chip: Chip, manual: Manual) -> Any:
    told, body, cuts = manual.clusters, graph.read(module["main"]), Cuts(module)
    if told == 1 or graph.attribute(module["main"], CLUSTERS) is not None:
        return module
    cut = cut_parameters(module, body, cuts, chip.clusters) if told == chip.clusters else None
    if cut is None:
        able = "1" if told == chip.clusters else f"1 or {chip.clusters}"
        text = f"{told} clusters cannot divide the batch of this model on {chip.name}"
        raise InvalidError(Problem("TW2632", text, manual.place("clusters"), f"possible: {able}"))
    return _divided(module, body, cuts, cut, chip.clusters)


def cut_parameters(module: Any, body: graph.Body, cuts: Cuts, clusters: int) -> frozenset[Any] | None:
    """The parameters of main that go in pieces; None where not all of main does."""
    inputs = body.params[: int(graph.attribute(module["main"], "num_input", len(body.params)))]
    given = dict[Any, bool]()
    for call in body.calls:
        taken = cuts.inputs(call.callee, clusters)
        if taken is None:
            return None
        if any(given.setdefault(value, cut) != cut for value, cut in zip(call.arguments, taken, strict=True)):
            return None
        given.update((value, True) for value in made_by(body, call))
    found = frozenset(param for param in body.params if given.get(param, False))
    return found if found and found <= set(inputs) else None


def made_by(body: graph.Body, call: graph.Call) -> list[Any]:
    return [call.var, *(var for var, (source, _) in body.fields.items() if source.same_as(call.var))]


def _divided(module: Any, body: graph.Body, cuts: Cuts, cut: frozenset[Any], clusters: int) -> Any:
    builder = relax.BlockBuilder(ir.IRModule({gv: f for gv, f in module.functions.items() if gv.name_hint != "main"}))
    functions = [cuts.added(builder, call.callee, clusters) for call in body.calls]
    params = [
        relax.Var(str(param.name), piece_type(param.ty, clusters)) if param in cut else param for param in body.params
    ]
    made = dict(zip(body.params, params, strict=True))
    attributes = {**dict(module["main"].attrs.items()), CLUSTERS: clusters}
    with builder.function("main", params, attrs=attributes):
        with builder.dataflow():
            for call, function in zip(body.calls, functions, strict=True):
                arguments = [made[argument] for argument in call.arguments]
                if isinstance(builder.get()[function], relax.Function):
                    value = ir.Call(function, arguments)
                else:
                    value = relax.call_tir(function, arguments, [piece_type(kind, clusters) for kind in call.types])
                made[call.var] = builder.emit(value, call.name)
                for var, (source, index) in body.fields.items():
                    if source.same_as(call.var):
                        made[var] = builder.emit(relax.TupleGetItem(made[call.var], index), str(var.name))
            results = [made[result] for result in body.results]
            output = builder.emit_output(relax.Tuple(results) if len(results) != 1 else results[0])
        builder.emit_func_output(output)
    return builder.get()
