"""Lets a cluster read once what its cores have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import tvm_ffi
from tvm import tirx

from compiler.codegen.far_loads import FarLoad, Sites, far_bytes, far_load
from compiler.codegen.kernel import CONSTANTS
from compiler.codegen.residence import llb_pays
from compiler.codegen.sharing import Sharing, sharing
from compiler.codegen.staging import Staging
from compiler.target import Chip
from compiler.tir.rewriter import sequence, thread_variable
from passes.base import Pass


@dataclass(frozen=True)
class ShareLoads(Pass):
    """Cores of a cluster that load the same bytes bring them to LLB together, each a share, and load them from there.

    Before, on cores that all load the same chunks of b::

        for k in range(8):
            tw.ldnz.ddr.fp16(b_l1[0], b[k * 64, 0], 64, 512, 512, 64)

    after, with chunks brought ``ahead`` turns before they are loaded::

        stage(0), stage(1)
        for k in range(8):
            if k + 2 < 8:
                stage(k + 2)           # tw.ld.ddr.llb... of 8 of the 64 rows; tw.cross_set.mte2(every core, 0)
            tw.cross_wait.mte2(every core, 0)
            tw.ldnz.llb.fp16(b_l1[0], b_llb[k * 32768], 64, 512, 512, 64)

    Cores have consecutive numbers within a cluster; which of them load the same is worked out for every core and turn,
    so a template may map its tiles to cores as it likes: rows by ``core // 8`` share what columns need, columns by
    ``core % 4`` what rows need. A turn is one of the loops that the bytes depend on; where other loops load them again
    they are in LLB already.

    1. Nobody writes the bytes, and they are known from core and loops alone.
    2. All cores that load take part in a group, alone if need be, and the cores of a group run through the same turns:
       the piece of a turn is complete when each of them has said so.
    3. A core brings the pieces in the order in which it loads them, and no more than ``ahead`` before it waits for one
       of the others': so no flag is set more often than it can count, and nobody waits for what comes later.
    4. Where not all pieces fit in LLB, its slots are used in turn: a core that has loaded a piece tells the others, and
       who brings one waits until all have loaded the one that lies there. For that all cores run in all turns.
    5. DDR and the queue of the busiest core take less time by more than it takes until the first piece is there, and
       with each further load by more than a flag takes between cores.
    6. A parameter that another kernel may write stays what it is where the linker may keep it in LLB altogether.
    """

    name: ClassVar[str] = "share-loads"
    requires: ClassVar[frozenset[str]] = frozenset({"instruction-form"})

    ahead: int = 2
    always: bool = False  # whether condition 5 is left out

    def run(self, subject: Any, chip: Chip) -> Any:
        sites = Sites.of(subject)
        if sites.core is None or sites.cores < 2:
            return subject
        # Condition 3: two cores may be this far apart, and the next kernel may have begun on one of them.
        ahead = max(1, min(self.ahead, chip.cross_flag_max // 3 - 1))
        constants = _constants(subject)
        chosen = _Choice(sites, chip, ahead, None if constants is None or not llb_pays(chip) else constants).best(
            self.always
        )
        if not chosen:
            return subject
        staged, flag = list[Staging](), 0
        for each in chosen:
            staged.append(Staging(each, sites.core, chip, flag, ahead))
            flag += each.flags
        return _rewritten(subject, staged, constants or frozenset())


def _constants(func: Any) -> frozenset[Any] | None:
    """The parameters that no kernel writes; None where that is not known."""
    if func.attrs is None or CONSTANTS not in func.attrs:
        return None
    return frozenset(func.params[int(index)] for index in func.attrs[CONSTANTS])


def _rewritten(func: Any, staged: list[Staging], constants: frozenset[Any]) -> Any:
    # What nobody writes need not wait for other kernels: it comes first.
    early = sorted(staged, key=lambda each: each.sharing.load.address.buffer not in constants)

    def replaced(statement: Any) -> Any:
        for each in staged:
            if statement.same_as(each.sharing.load.site.statement):
                return each.instead
        return statement

    def begun(attribute: Any) -> Any:
        if thread_variable(attribute) is None:
            return attribute
        body = sequence([*(statement for each in early for statement in each.before), attribute.body])
        return tirx.AttrStmt(attribute.node, attribute.attr_key, attribute.value, body, attribute.span)

    within = tvm_ffi.structural_map(func, (tirx.Evaluate, replaced))
    return tvm_ffi.structural_map(within, (tirx.AttrStmt, begun))


class _Choice:
    """Which loads to share: by what moves between the cores and DDR, and through the queue of each core.

    ``far``: the parameters that lie in DDR; None for all.
    """

    def __init__(self, sites: Sites, chip: Chip, ahead: int, far: frozenset[Any] | None) -> None:
        self.sites, self.chip, self.ahead, self.far = sites, chip, ahead, far
        written = sites.written
        loads = [far_load(site, sites.core, sites.cores, written, chip) for site in sites.found]
        self.loads = [load for load in loads if load is not None]

    def best(self, always: bool) -> list[Sharing]:
        """The loads that pay, in program order."""
        possible = self._possible()
        if not possible:
            return []
        sites = self.sites
        self.far_bytes = sum(far_bytes(site, sites.core, sites.cores, self.chip, self.far) for site in sites.found)
        self.queue_cycles = sum(self._queue_cycles(load) for load in self.loads)
        chosen: dict[int, Sharing] = {}
        for at in sorted(range(len(possible)), key=lambda at: -possible[at].saved_bytes):
            others = list(chosen.values())
            fitting = self._fitting(possible[at], others)
            if fitting is not None and (always or self._gain(fitting, others) > self.chip.sync.cross_flag_cycles):
                chosen[at] = fitting
        return [chosen[at] for at in sorted(chosen)]

    def _gain(self, sharing: Sharing, others: list[Sharing]) -> float:
        return self._cycles(others) - self._cycles([*others, sharing])

    def _fitting(self, sharing: Sharing, chosen: list[Sharing]) -> Sharing | None:
        """Condition 4: the load in what the others leave of LLB and of the flags, the last of which is the linker's."""
        room = self.chip.memory_bytes("llb") - sum(each.size_bytes for each in chosen)
        flags = max(1, self.chip.cross_flag_ids - 1) - sum(each.flags for each in chosen)
        fitting = sharing.within(room, self.ahead + 2, self.chip.cross_flag_max)
        return fitting if fitting is not None and fitting.flags <= flags else None

    def _possible(self) -> list[Sharing]:
        """One of each statement: one that stands in the kernel twice is left alone."""
        statements = [load.site.statement for load in self.loads]
        found = []
        for load in self.loads:
            lies_far = self.far is None or load.address.buffer in self.far
            if lies_far and sum(load.site.statement.same_as(other) for other in statements) == 1:
                shared = sharing(load, self.chip) if load.moved_bytes.any() else None
                if shared is not None:
                    found.append(shared)
        return found

    def _queue_cycles(self, load: FarLoad) -> Any:
        rate = self._rate("ddr", load)
        return load.moved_bytes.reshape(self.sites.cores, -1).sum(axis=1) / rate

    def _rate(self, source: str, load: FarLoad) -> float:
        tensor = next(t for t in load.site.call.row.tensors if "w" in t.role)
        names = [m.name for m in load.site.call.row.modifiers]
        target = load.site.call.mods[names.index("target")] if tensor.memory.startswith("@") else tensor.memory
        return self.chip.path[f"{source}_{target}"].bytes_per_cycle

    def _cycles(self, chosen: list[Sharing]) -> float:
        """Condition 5: of DDR, LLB or the busiest queue, and until the first piece is there."""
        chip = self.chip
        far = self.far_bytes - sum(each.saved_bytes for each in chosen)
        queues = self.queue_cycles + np.zeros(self.sites.cores)
        llb = np.zeros(chip.clusters)
        for each in chosen:
            bring, load = chip.path["ddr_llb"], each.load
            queues += each.staged_bytes / bring.bytes_per_cycle + each.loaded_bytes / self._rate("llb", load)
            queues -= self._queue_cycles(load)
            for group in each.groups:
                cores = list(group.cores)
                queues[cores] += each.pieces * 2 * group.count * chip.sync.flag_cycles
                moved = each.loaded_bytes[cores].sum() + each.staged_bytes[cores].sum()
                llb[chip.cluster_of(group.first)] += moved
        bandwidth = chip.bandwidth
        busiest = max(
            far * 1000 / bandwidth.ddr_bytes_per_kilocycle,
            llb.max() * 1000 / bandwidth.llb_bytes_per_kilocycle,
            queues.max(),
        )
        first_piece = chip.path["ddr_llb"].latency_cycles + chip.sync.cross_flag_cycles
        return float(busiest) + (first_piece if chosen else 0)
