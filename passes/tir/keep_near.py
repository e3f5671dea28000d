"""Keeps in LLB what a core loads from DDR again and again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from tvm import tirx

from compiler.codegen.far_loads import FarLoad, Sites, far_bytes, far_load, load_rate
from compiler.codegen.keeping import Keeping, Repeated, repeated
from compiler.target import Chip
from compiler.tir.near import common_parameters, near_parameters, room_bytes
from compiler.tir.rewriter import sequence, thread_variable
from compiler.tir.structure import structural_map
from passes.base import Pass


@dataclass(frozen=True)
class KeepNear(Pass):
    """A load that a loop repeats comes from LLB, from the second time on, where that is what DDR has no time for.

    Before, on cores of which each has columns of b of its own::

        for t in range(16):
            for k in range(12):
                tw.ldnz.ddr.fp16(b_l1[0], b[k * 64, core * 128], 64, 128, 4096, 64)

    after::

        for t in range(16):
            for k in range(12):
                if t == 0:
                    tw.ld.ddr.llb.fp16.2d(b_llb[core % 8 * 98304 + k * 8192], b[k * 64, core * 128], 64, 128)
                    tw.cross_set.mte2(core, 0)
                    tw.cross_wait.mte2(core, 0)
                tw.ldnz.llb.fp16(b_l1[0], b_llb[core % 8 * 98304 + k * 8192], 64, 128, 128, 64)

    1. Nobody writes the bytes, and they are known from core and loops alone. They do not lie in LLB.
       A core tells itself when they are there; before others come in their place, that it has loaded them.
    2. No other core of the cluster loads them: that is `ShareLoads`' to see.
    3. All that a core loads until the bytes change fits in what the kernel may take of LLB.
    4. DDR takes longer than the queue of the busiest core, and does so by more than what the core waits when it brings
       something, even if that queue had to move all of it twice.
    """

    name: ClassVar[str] = "keep-near"
    requires: ClassVar[frozenset[str]] = frozenset({"instruction-form"})

    always: bool = False  # whether condition 4 is left out

    def run(self, subject: Any, chip: Chip) -> Any:
        sites = Sites.of(subject)
        if sites.core is None or chip.cross_flag_ids < 2:
            return subject
        choice = _Choice(
            sites, chip, near_parameters(subject), common_parameters(subject, chip), room_bytes(subject, chip)
        )
        chosen = choice.best(self.always)
        return (
            _rewritten(subject, [Keeping.of(each, sites.core, flag=sites.cross_flags) for each in chosen])
            if chosen
            else subject
        )


def _rewritten(func: Any, kept: list[Keeping]) -> Any:
    def replaced(statement: Any) -> Any:
        found = [each for each in kept if statement.same_as(each.sharing.load.site.statement)]
        return found[0].instead if found else statement

    def begun(attribute: Any) -> Any:
        if thread_variable(attribute) is None:
            return attribute
        body = sequence([*(statement for each in kept for statement in each.made), attribute.body])
        return tirx.AttrStmt(attribute.node, attribute.attr_key, attribute.value, body, attribute.span)

    within = structural_map(func, (tirx.Evaluate, replaced))
    return structural_map(within, (tirx.AttrStmt, begun))


class _Choice:
    """Which loads to keep: those that save DDR most, as long as it is DDR that holds up the kernel."""

    def __init__(self, sites: Sites, chip: Chip, near: frozenset[Any], common: frozenset[Any], room: int) -> None:
        self.sites, self.chip, self.near, self.common, self.room = sites, chip, near, common, room
        found = [far_load(site, sites.core, sites.cores, sites.written, chip, common) for site in sites.found]
        self.loads = [load for load in found if load is not None and load.address.buffer not in near]

    def best(self, always: bool) -> list[Repeated]:
        """In program order."""
        possible = [each for each in (repeated(load, self.chip) for load in self._single()) if each is not None]
        if not possible:
            return []
        core, cores = self.sites.core, self.sites.cores
        far = sum(far_bytes(site, core, cores, self.chip, self.near, self.common) for site in self.sites.found)
        ddr_rate = self.chip.bandwidth.ddr_bytes_per_kilocycle / 1000
        queue = sum(
            load.taken_bytes.reshape(self.sites.cores, -1).sum(axis=1) / self._rate(load) for load in self.loads
        )
        chosen: list[int] = []
        room = self.room
        for at in sorted(range(len(possible)), key=lambda at: -self._saved_bytes(possible[at])):
            each = possible[at]
            saved = self._saved_bytes(each)
            more = each.brought_bytes / self.chip.path["ddr_llb"].bytes_per_cycle
            late = each.times * self._late_cycles * (2 if each.begins_anew else 1)
            pays = saved / ddr_rate > late and (queue + more).max() < far / ddr_rate
            if each.bytes_per_cluster <= room and (pays or always):
                chosen.append(at)
                far, queue, room = far - saved, queue + more, room - each.bytes_per_cluster
        return [possible[at] for at in sorted(chosen)]

    def _single(self) -> list[FarLoad]:
        """One of each statement: one that stands in the kernel twice is left alone."""
        statements = [load.site.statement for load in self.loads]
        return [load for load in self.loads if sum(map(load.site.statement.same_as, statements)) == 1]

    def _saved_bytes(self, each: Repeated) -> float:
        return float(np.sum(each.loaded_bytes) - np.sum(each.brought_bytes)) / each.load.alike

    @property
    def _late_cycles(self) -> int:
        """Of a core, that waits until what it has asked for is in LLB."""
        return self.chip.path["ddr_llb"].latency_cycles + self.chip.sync.cross_flag_cycles

    def _rate(self, load: FarLoad) -> float:
        return load_rate(load, "ddr", self.chip)
