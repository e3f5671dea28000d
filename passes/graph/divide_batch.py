"""Divide the batch of a model among the clusters of the chip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import ir, relax

from compiler import graph
from compiler.clusters import CLUSTERS
from compiler.codegen.residence import TIGHT_SHARE, llb_pays
from compiler.errors import InvalidError, Problem
from compiler.schedule.automatic import best, fits, undivided_cycles
from compiler.schedule.cascades import Cascades
from compiler.schedule.cascading import best_cascades
from compiler.schedule.cuts import Cuts
from compiler.schedule.manual import Manual
from compiler.schedule.pieces import cut_axis
from compiler.schedule.storage import storage_of
from compiler.target import Chip
from passes.base import Pass

WORTH = 0.95  # of the cycles of the whole, what a part is thought to take at most: less is not known so well


@dataclass(frozen=True)
class DivideBatch(Pass):
    """Make main that of one cluster's part of the batch, which all clusters run side by side.

    main(x[8, ...], w): y = f(x, w)    ->    main(x[2, ...], w): y = f'(x, w)    with `tw.clusters = 4`

    Clusters talk through DDR only. Where each has its own part, what lies between kernels stays in its LLB, and no
    cluster waits for another; but each reads all weights. That is done where
    (1) each result of the model can be cut into as many pieces as there are clusters, and with it all that it is made
        of is cut, or does not depend on the batch (:mod:`compiler.schedule.pieces`),
    (2) inputs and constants are read in contiguous pieces, or as a whole, and not all inputs as a whole, and
    (3) it is predicted to be faster (:mod:`compiler.schedule.automatic`, :mod:`compiler.schedule.cascading`).
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
        cut = cut_values(subject, body, cuts, chip.clusters)
        if cut is None:  # (1), (2)
            return subject
        divided = _divided(subject, body, cuts, cut, chip.clusters)
        pays = _part_cycles(divided, chip.one_cluster()) < undivided_cycles(subject, chip) * WORTH  # (3)
        return divided if pays else subject


def _part_cycles(module: Any, chip: Chip) -> float:
    """Of one cluster's part, in pieces of the batch or in bands."""
    pieces = best(module, Cuts(module), chip).cycles
    if fits(storage_of(module, graph.read(module["main"])), chip, TIGHT_SHARE):
        return pieces
    return min(pieces, best_cascades(Cascades(module), chip).cycles)


def _as_told(module: Any, chip: Chip, manual: Manual) -> Any:
    told, body, cuts = manual.clusters, graph.read(module["main"]), Cuts(module)
    if told == 1 or graph.attribute(module["main"], CLUSTERS) is not None:
        return module
    cut = cut_values(module, body, cuts, chip.clusters) if told == chip.clusters else None
    if cut is None:
        able = "1" if told == chip.clusters else f"1 or {chip.clusters}"
        text = f"{told} clusters cannot divide the batch of this model on {chip.name}"
        raise InvalidError(Problem("TW2632", text, manual.place("clusters"), f"possible: {able}"))
    return _divided(module, body, cuts, cut, chip.clusters)


def cut_values(module: Any, body: graph.Body, cuts: Cuts, clusters: int) -> dict[Any, int] | None:
    """By variable of main: the axis along which it is divided; None where main cannot be."""
    found = cuts.body_axes(body, clusters, dict.fromkeys(body.results))
    if found is None:
        return None
    given = {param: found[param] for param in body.params if param in found}
    if any(axis != cut_axis(graph.shape_of(param)) for param, axis in given.items()):
        return None
    inputs = body.params[: int(graph.attribute(module["main"], "num_input", len(body.params)))]
    return found if any(param in given for param in inputs) else None


def _divided(module: Any, body: graph.Body, cuts: Cuts, cut: Mapping[Any, int], clusters: int) -> Any:
    builder = relax.BlockBuilder(ir.IRModule({gv: f for gv, f in module.functions.items() if gv.name_hint != "main"}))
    attributes = {**dict(module["main"].attrs.items()), CLUSTERS: clusters}
    cuts.add_body(builder, "main", body, clusters, cut, attributes)
    return builder.get()
