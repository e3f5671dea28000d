"""Lets a cluster read once what its cores have in common."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import ceil, prod
from typing import Any, ClassVar

import numpy as np
from tvm import tirx

from compiler.codegen.far_loads import FarLoad, Sites, far_bytes, far_load, load_rate
from compiler.codegen.kernel import TURNS
from compiler.codegen.sharing import Sharing, rotation_cycles, sharing
from compiler.codegen.staging import Staging
from compiler.target import Chip
from compiler.tir.near import common_parameters, constant_parameters, near_parameters, room_bytes
from compiler.tir.rewriter import sequence, thread_variable
from compiler.tir.structure import structural_map
from passes.base import Pass

FLAG_CYCLES = 3  # of the scalar unit for a flag between cores, in a loop over cores
IN_L1 = 2  # turns for which the cube has work there
FLAGS_OF_A_TURN = 2  # of one core that may pend: one nobody has waited for yet, while it brings the next piece
FELT = 0.05  # of all cycles, that the first load waits longer


@dataclass(frozen=True)
class ShareLoads(Pass):
    """Cores of a cluster that load the same bytes bring them to LLB together, each a share, and load them from there.

    Before, on cores that all load the same chunks of b::

        for k in range(8):
            tw.ldnz.ddr.fp16(b_l1[0], b[k * 64, 0], 64, 512, 512, 64)

    after, with two parts of the cores (``place`` 0 and 1) that take turns in bringing chunks::

        stage(place)
        for k in range(8):
            if k % 2 == place and k + 2 < 8:
                stage(k + 2)                        # tw.ld.ddr.llb of this core's share of the chunk, and
                                                    # tw.cross_set.mte2(every core, 0)
            tw.cross_wait.mte2(cores of part k % 2, 0)
            tw.ldnz.llb.fp16(b_l1[0], b_llb[k * 32768], 64, 512, 512, 64)

    Cores have consecutive numbers within a cluster; which of them load the same is worked out for every core and turn,
    so a template may map its tiles to cores as it likes: rows by ``core // 8`` share what columns need, columns by
    ``core % 4`` what rows need. A turn is one of the loops that the bytes depend on; where other loops load them again
    they are in LLB already. With several parts, some cores keep DDR busy while others load from LLB, and there are
    fewer flags; with few turns, all bring a share of each piece, so that the first one is there soon.

    1. Nobody writes the bytes, and they are known from core and loops alone.
    2. All cores that load take part in a group, alone if need be, and the cores of a group run through the same turns:
       the piece of a turn is complete when each of them has said so.
    3. A core brings the pieces in the order in which it loads them, so that nobody waits for what comes later, and as
       far ahead as it takes them to arrive. It waits for the others' pieces on the way: no flag is set more often than
       it can count, if it counts to two.
    4. Where not all pieces fit in what the kernel may take of LLB, its slots are used in turn: a core that has loaded a
       piece tells the others, and who brings one waits until all have loaded the one that lies there. For that all
       cores run in all turns.
    5. DDR and the queue of the busiest core take less time by more than it takes until the first piece is there, and
       with each further load by more than a flag takes between cores.
    6. A parameter that lies in LLB altogether stays what it is, and takes none of DDR's time.

    Where several clusters do the same, each on its own part of the data, what they have in common comes to all of them
    at once (`tw.pld`, which waits for the others), and DDR moves it once.
    """

    name: ClassVar[str] = "share-loads"
    requires: ClassVar[frozenset[str]] = frozenset({"instruction-form"})

    always: bool = False  # whether condition 5 is left out

    def run(self, subject: Any, chip: Chip) -> Any:
        sites = Sites.of(subject)
        if sites.core is None or sites.cores < 2 or chip.cross_flag_max < FLAGS_OF_A_TURN:
            return subject
        room = room_bytes(subject, chip) - sites.near_bytes
        choice = _Choice(sites, chip, near_parameters(subject), common_parameters(subject, chip), room)
        chosen = choice.best(self.always)
        if not chosen:
            return subject
        staged, flag = list[Staging](), sites.cross_flags
        for each, ahead in zip(chosen, choice.ahead(chosen), strict=True):
            staged.append(Staging(each, sites.core, flag, ahead))
            flag += each.flags
        rewritten, turns = _rewritten(subject, staged, constant_parameters(subject)), choice.turns(chosen)
        return rewritten if turns == 1 else rewritten.with_attr(TURNS, tirx.FloatImm("float64", turns))


def _rewritten(func: Any, staged: list[Staging], constants: frozenset[Any]) -> Any:
    made = [statement for each in staged for statement in each.made]
    first = _first_pieces(staged, constants)

    def replaced(statement: Any) -> Any:
        for each in staged:
            if statement.same_as(each.sharing.load.site.statement):
                return each.instead
        return statement

    def begun(attribute: Any) -> Any:
        if thread_variable(attribute) is None:
            return attribute
        body = sequence([*made, *first, attribute.body])
        return tirx.AttrStmt(attribute.node, attribute.attr_key, attribute.value, body, attribute.span)

    within = structural_map(func, (tirx.Evaluate, replaced))
    return structural_map(within, (tirx.AttrStmt, begun))


def _first_pieces(staged: list[Staging], constants: frozenset[Any]) -> list[Any]:
    """What brings pieces before all loops. What nobody writes need not wait for other kernels: it comes first; then
    pieces in the order of the turns that load them, of each load one.
    """
    found = []
    for each in staged:
        waits = each.sharing.load.address.buffer not in constants
        found += [(waits, turn, statement) for turn, statement in each.first]
    return [statement for *_, statement in sorted(found, key=lambda one: one[:2])]


class _Choice:
    """Which loads to share: by what moves between the cores and DDR, and through the queue of each core.

    ``near``: the parameters that lie in LLB; ``common``: those that other clusters load, too; ``room_bytes``: what the
    kernel may take of LLB.
    """

    def __init__(self, sites: Sites, chip: Chip, near: frozenset[Any], common: frozenset[Any], room_bytes: int) -> None:
        self.sites, self.chip, self.near, self.common, self.room_bytes = sites, chip, near, common, room_bytes
        written = sites.written
        loads = [far_load(site, sites.core, sites.cores, written, chip, common) for site in sites.found]
        self.loads = [load for load in loads if load is not None]

    def best(self, always: bool) -> list[Sharing]:
        """The loads that pay, in program order."""
        possible = self._possible()
        if not possible:
            return []
        sites = self.sites
        self.far_bytes = sum(
            far_bytes(site, sites.core, sites.cores, self.chip, self.near, self.common) for site in sites.found
        )
        self.queue_cycles = sum(self._queue_cycles(load) for load in self.loads)
        chosen: dict[int, Sharing] = {}
        hoped: dict[int, Sharing] = {}  # what does not pay without one of those that come
        for at in sorted(range(len(possible)), key=lambda at: -possible[at].saved_bytes):
            fitting = self._fitting(possible[at], [*chosen.values(), *hoped.values()])
            if fitting is None:
                continue
            hoped[at] = fitting
            if always or self._gain(hoped.values(), chosen.values()) > self.chip.sync.cross_flag_cycles:
                chosen, hoped = chosen | hoped, {}
        return [chosen[at] for at in sorted(chosen)]

    def _gain(self, sharings: Iterable[Sharing], others: Iterable[Sharing]) -> float:
        return self._cycles([*others]) - self._cycles([*others, *sharings])

    def _fitting(self, sharing: Sharing, chosen: list[Sharing]) -> Sharing | None:
        """Condition 4: the load in what the others leave of LLB and of the flags, the last of which is the linker's."""
        room = self.room_bytes - sum(each.size_bytes for each in chosen)
        flags = max(1, self.chip.cross_flag_ids - 1) - self.sites.cross_flags - sum(each.flags for each in chosen)
        found = []
        for period in sharing.periods:
            fitting = replace(sharing, period=period).within(room, self.chip.cross_flag_max)
            if fitting is not None and fitting.flags <= flags:
                found.append(fitting)
        return min(found, key=self._load_cycles, default=None)

    def _load_cycles(self, sharing: Sharing) -> float:
        """What all turns of a load take, if nothing else takes longer, and the first piece."""
        chip, turns = self.chip, prod(sharing.load.grid.trips)
        sharers = max(group.count for group in sharing.groups)
        flags = 2 * sharers / sharing.period * FLAG_CYCLES
        far = sharing.far_bytes / sharing.pieces * 1000 / chip.bandwidth.ddr_bytes_per_kilocycle
        bring = sharing.staged_bytes.max() / sharing.pieces / chip.path["ddr_llb"].bytes_per_cycle
        near = max(
            sharing.loaded_bytes.max() / turns / load_rate(sharing.load, "llb", self.chip),
            self._llb_bytes([sharing]).max() / turns * 1000 / chip.bandwidth.llb_bytes_per_kilocycle,
        )
        near += flags
        turn = rotation_cycles(sharing.period, far, near + max(0.0, bring - far / sharing.period))
        # While it brings a share, a core loads nothing: more than what L1 holds for some turns is felt.
        late = max(0.0, (turn - near) * sharing.period - IN_L1 * turn)
        first, again = sharing.pieces, turns - sharing.pieces
        return turn * first + near * again + late * first / sharing.period + far * sharing.period

    def ahead(self, chosen: list[Sharing]) -> list[int]:
        """Condition 3: how many periods before it is loaded each piece is brought.

        A turn more than it takes, unless the first load would wait for that: a part of all cycles that is felt.

        Of two cores, one may be this many periods ahead of what the other waits for, and be told of as many by a kernel
        that has begun on it already.
        """
        cycles, most, found = self._cycles(chosen), (self.chip.cross_flag_max - FLAGS_OF_A_TURN) // 2, []
        ddr_rate = self.chip.bandwidth.ddr_bytes_per_kilocycle / 1000
        for each in chosen:
            period = each.period
            share = each.staged_bytes.max() / each.pieces * period / self.chip.path["ddr_llb"].bytes_per_cycle
            together = each.far_bytes / each.pieces * period / ddr_rate
            turn = cycles / prod(each.load.grid.trips)
            spare = together <= max(self._arrival_cycles, FELT * cycles)
            periods = ceil((spare + (self._arrival_cycles + share) / turn) / period)
            found.append(min(periods, most, (each.slots - 2) // period if each.reuses else periods))
        return found

    def turns(self, chosen: list[Sharing]) -> float:
        """How many parts of the cores take turns in reading from DDR, in the mean over the bytes that are moved."""
        staged = [each.far_bytes for each in chosen]
        others = self.far_bytes - sum(float(each.loaded_bytes.sum()) / each.load.alike for each in chosen)
        at_once = sum(moved / each.period for moved, each in zip(staged, chosen, strict=True))
        return (sum(staged) + others) / (at_once + others)

    @property
    def _arrival_cycles(self) -> int:
        """From when a share is brought until the others know."""
        return self.chip.path["ddr_llb"].latency_cycles + self.chip.sync.cross_flag_cycles

    def _possible(self) -> list[Sharing]:
        """One of each statement: one that stands in the kernel twice is left alone."""
        statements = [load.site.statement for load in self.loads]
        found = []
        for load in self.loads:
            lies_far = load.address.buffer not in self.near
            if lies_far and sum(load.site.statement.same_as(other) for other in statements) == 1:
                shared = sharing(load, self.chip) if load.moved_bytes.any() else None
                if shared is not None:
                    found.append(shared)
        return found

    def _queue_cycles(self, load: FarLoad) -> Any:
        """Of each core. What has a loop of its own, before or behind those of other loads, all cores load at once: at
        no more than their part of DDR's rate, whatever others leave of it before and behind."""
        near, moved = load.address.buffer in self.near, load.taken_bytes.reshape(self.sites.cores, -1).sum(axis=1)
        rate = load_rate(load, "llb" if near else "ddr", self.chip)
        if not near and self._has_its_own_loop(load):
            of_all = self.chip.bandwidth.ddr_bytes_per_kilocycle / 1000 * load.alike
            rate = min(rate, of_all / max(1, int(np.count_nonzero(moved))))
        return moved / rate

    def _has_its_own_loop(self, load: FarLoad) -> bool:
        outermost = [other.site.loops[0] for other in self.loads if other.site.loops]
        own = load.site.loops
        return bool(own) and any(not loop.same_as(own[0]) for loop in outermost)

    def _cycles(self, chosen: list[Sharing]) -> float:
        """Condition 5: of DDR, LLB or the busiest queue, and until the first piece is there."""
        chip = self.chip
        far = self.far_bytes - sum(each.saved_bytes for each in chosen)
        queues = self.queue_cycles + np.zeros(self.sites.cores)
        for each in chosen:
            bring, load = chip.path["ddr_llb"], each.load
            queues += each.staged_bytes / bring.bytes_per_cycle + each.loaded_bytes / load_rate(load, "llb", chip)
            queues -= self._queue_cycles(load)
            for group in each.groups:
                queues[list(group.cores)] += each.pieces * 2 * group.count / each.period * chip.sync.flag_cycles
        bandwidth = chip.bandwidth
        busiest = max(
            far * 1000 / bandwidth.ddr_bytes_per_kilocycle,
            self._llb_bytes(chosen).max() * 1000 / bandwidth.llb_bytes_per_kilocycle,
            queues.max(),
        )
        return float(busiest) + (self._arrival_cycles if chosen else 0)

    def _llb_bytes(self, chosen: list[Sharing]) -> Any:
        """What moves into and out of the LLB of each cluster."""
        moved = np.zeros(self.chip.clusters)
        for each in chosen:
            for group in each.groups:
                cores = list(group.cores)
                moved[self.chip.cluster_of(group.first)] += (each.loaded_bytes + each.staged_bytes)[cores].sum()
        return moved
