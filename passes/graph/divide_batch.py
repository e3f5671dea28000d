"""Let clusters of the chip run a model by themselves: one alone, or several that divide its batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import ir, relax

from compiler import graph
from compiler.clusters import CLUSTERS, COMMON, TOGETHER, clusters_of, run_by, with_rivals, with_thought
from compiler.codegen.residence import TIGHT_SHARE, llb_pays
from compiler.errors import InvalidError, Problem
from compiler.schedule.automatic import best_way, cycles_on_chip, fits, undivided_cycles
from compiler.schedule.cascades import Cascades
from compiler.schedule.cascading import best_cascades
from compiler.schedule.cuts import Cuts
from compiler.schedule.manual import Manual
from compiler.schedule.pieces import cut_axis
from compiler.schedule.storage import storage_of
from compiler.target import Chip
from passes.base import Pass

FEW = 4  # calls
RIVAL = 1.5  # times the cycles of the fastest, what another way may take to be compiled, too
WORTH = 0.95  # of the cycles of the whole, what a part is thought to take at most: less is not known so well


@dataclass(frozen=True)
class DivideBatch(Pass):
    """Make main that of one cluster's part of the batch, which so many clusters run side by side.

    main(x[8, ...], w): y = f(x, w)    ->    main(x[2, ...], w): y = f'(x, w)    with `tw.clusters = 4`

    Clusters talk through DDR only. Where each has its own part, what lies between kernels stays in its LLB, and no
    cluster waits for another; but each reads all weights, so that fewer than there are may be faster, and one alone
    where little is computed. Several run it where
    (1) each result of the model can be cut into as many pieces, and with it all that it is made of is cut, or does not
        depend on the batch (:mod:`compiler.schedule.pieces`),
    (2) inputs and constants are read in contiguous pieces, or as a whole, and not all inputs as a whole.
    As many do as are predicted to be fastest (:mod:`compiler.schedule.automatic`, :mod:`compiler.schedule.cascading`),
    or all work together on every kernel. Of few calls that is not known well, but all ways are soon compiled: main then
    says which others may be faster. Where it says already how many clusters run it, it stays as it is.
    """

    name: ClassVar[str] = "divide-batch"
    requires: ClassVar[frozenset[str]] = frozenset({"groups"})
    manual: Manual | None = None  # the schedule to be followed instead
    told: int | None = None  # the number of clusters that was found to be fastest

    def run(self, subject: Any, chip: Chip) -> Any:
        if self.manual is not None and self.manual.clusters is not None:
            return _as_told(subject, chip, self.manual.clusters, self.manual)
        if chip.clusters == 1 or graph.attribute(subject["main"], CLUSTERS) is not None:
            return subject
        if self.told is not None:
            found = None
            if self.told != TOGETHER:
                found = _part(subject, graph.read(subject["main"]), Cuts(subject), self.told)
            return subject if found is None else found
        return _fastest(subject, chip)


def _fastest(module: Any, chip: Chip) -> Any:
    together = undivided_cycles(module, chip)
    found, cycles, thought = module, together * WORTH, {TOGETHER: together}
    for least, part, one in sorted(_parts(module, chip), key=lambda way: way[0]):
        # Where there is no room for all that lives at once, pieces take hardly less than with room for it.
        thought[clusters_of(part)] = least
        if least < cycles and (taken := _part_cycles(part, one)) < cycles:
            found, cycles = part, taken
    found = with_thought(found, together if found is module else cycles)
    if len(graph.read(module["main"]).calls) > FEW:
        return found
    rivals = [each for each, taken in thought.items() if taken < cycles * RIVAL and each != clusters_of(found)]
    return with_rivals(found, rivals) if rivals else found


def _parts(module: Any, chip: Chip) -> Iterator[tuple[float, Any, Chip]]:
    """For each number of clusters that can run the model, and whose LLB is faster than their part of DDR: what a part
    takes with room for all, that part, and the chip that runs it.
    """
    body, cuts = graph.read(module["main"]), Cuts(module)
    for clusters in range(1, chip.clusters + 1):
        one = chip.one_cluster(clusters)
        if llb_pays(one) and (part := _part(module, body, cuts, clusters)) is not None:
            yield cycles_on_chip(part, one), part, one


def _part_cycles(module: Any, chip: Chip) -> float:
    """Of one cluster's part, in pieces of the batch or in bands."""
    pieces = best_way(module, Cuts(module), chip).choice.cycles
    if fits(storage_of(module, graph.read(module["main"])), chip, TIGHT_SHARE):
        return pieces
    return min(pieces, best_cascades(Cascades(module), chip).cycles)


def _as_told(module: Any, chip: Chip, told: int, manual: Manual) -> Any:
    body, cuts, all_of_it = graph.read(module["main"]), Cuts(module), told == TOGETHER or told == chip.clusters == 1
    if all_of_it or graph.attribute(module["main"], CLUSTERS) is not None:
        return module
    part = _part(module, body, cuts, told) if told <= chip.clusters else None
    if part is not None:
        return part
    inputs = _inputs(module, body)
    able = [1, *(n for n in range(2, chip.clusters + 1) if cut_values(body, inputs, cuts, n) is not None)]
    text = f"{told} clusters cannot divide the batch of this model on {chip.name}"
    hint = f"possible: {', '.join(map(str, able))}, or {TOGETHER}: all work together"
    raise InvalidError(Problem("TW2632", text, manual.place("clusters"), hint))


def _part(module: Any, body: graph.Body, cuts: Cuts, clusters: int) -> Any | None:
    """The module with a main that is the part of one of so many clusters."""
    if clusters == 1:
        return run_by(module, 1)
    cut = cut_values(body, _inputs(module, body), cuts, clusters)
    return None if cut is None else _divided(module, body, cuts, cut, clusters)


def cut_values(body: graph.Body, inputs: Sequence[Any], cuts: Cuts, clusters: int) -> dict[Any, int] | None:
    """By variable of main: the axis along which it is divided; None where main cannot be, with one of its inputs."""
    found = cuts.body_axes(body, clusters, dict.fromkeys(body.results))
    if found is None:
        return None
    given = {param: found[param] for param in body.params if param in found}
    if any(axis != cut_axis(graph.shape_of(param)) for param, axis in given.items()):
        return None
    return found if any(param in given for param in inputs) else None


def _inputs(module: Any, body: graph.Body) -> Sequence[Any]:
    return body.params[: int(graph.attribute(module["main"], "num_input", len(body.params)))]


def _divided(module: Any, body: graph.Body, cuts: Cuts, cut: Mapping[Any, int], clusters: int) -> Any:
    builder = relax.BlockBuilder(ir.IRModule({gv: f for gv, f in module.functions.items() if gv.name_hint != "main"}))
    common = [number for number, param in enumerate(body.params) if param not in cut]
    attributes = {**dict(module["main"].attrs.items()), CLUSTERS: clusters, COMMON: common}
    cuts.add_body(builder, "main", body, clusters, cut, attributes)
    return builder.get()
