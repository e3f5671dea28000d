"""What is wrong with a run, in words: races, deadlocks, leaked and doubled flags, each naming its instructions."""

from __future__ import annotations

import numpy as np

from compiler.errors import Problem
from compiler.isa.dtypes import Queue
from compiler.isa.program import Program
from compiler.sim import classes as k
from compiler.sim.classes import QUEUES, ClassTable
from compiler.sim.expand import Stream
from compiler.sim.order import RACE_NAMES, Race, check_order
from compiler.sim.pipeline import CROSS_OVERFLOW, DEADLOCK, DOUBLE_FLAG, Schedule
from compiler.target import Chip


class HazardReport:
    """Builds the list of problems of one run."""

    def __init__(self, stream: Stream, classes: ClassTable, schedule: Schedule, program: Program, chip: Chip) -> None:
        self.stream, self.classes, self.schedule, self.program, self.chip = stream, classes, schedule, program, chip

    def stuck(self) -> list[Problem]:
        """Why the run did not end: always an error, whether hazards were asked for or not."""
        outcome, fault = self.schedule.outcome, self.schedule.fault
        if outcome == DOUBLE_FLAG:
            hint = "wait for the flag in the destination queue before it is set again"
            return [
                self._problem("TW1404", f"doubled flag: {self._what(fault)} sets a flag that is still set", fault, hint)
            ]
        if outcome == CROSS_OVERFLOW:
            text = f"{self._what(fault)} would pend more than {self.chip.cross_flag_max} times"
            return [self._problem("TW1404", f"doubled flag: {text}", fault)]
        return self._deadlock() if outcome == DEADLOCK else []

    def races(self) -> list[Problem]:
        return [
            self._race(race) for race in check_order(self.stream, self.classes, self.schedule, self.program, self.chip)
        ]

    def leaks(self) -> list[Problem]:
        """Flags that are set more often than waited for: the next program would find them set."""
        kind = self.classes.kind[self.stream.klass]
        argument = self.classes.flags(self.stream, self.chip)
        found = []
        for core in range(self.stream.cores):
            span = slice(int(self.stream.core_start[core]), int(self.stream.core_start[core + 1]))
            sets, waits = (argument[span][kind[span] == which] for which in (k.SET, k.WAIT))
            for flag in np.unique(sets):
                extra = int((sets == flag).sum() - (waits == flag).sum())
                if extra > 0:
                    last = span.start + int(np.flatnonzero((kind[span] == k.SET) & (argument[span] == flag))[-1])
                    found.append(self._problem("TW1403", f"leaked flag: {self._what(last)} is never waited for", last))
        return self._once(found + self._cross_leaks(kind, argument))

    def _cross_leaks(self, kind: np.ndarray, argument: np.ndarray) -> list[Problem]:
        balance: dict[tuple[int, int, int], list[int]] = {}
        for index in np.flatnonzero((kind == k.CROSS_SET) | (kind == k.CROSS_WAIT)):
            other, number = divmod(int(argument[index]), self.chip.cross_flag_ids)
            mine, is_set = self.stream.core_of(int(index)), kind[index] == k.CROSS_SET
            key = (mine, other, number) if is_set else (other, mine, number)
            pending = balance.setdefault(key, [0, -1])
            pending[0] += 1 if is_set else -1
            if is_set:
                pending[1] = int(index)
        return [
            self._problem("TW1403", f"leaked flag: {self._what(last)} is never waited for", last)
            for count, last in balance.values()
            if count > 0
        ]

    @staticmethod
    def _once(problems: list[Problem]) -> list[Problem]:
        """One problem per place: cores that run the same code make the same mistake."""
        return list({(p.code, p.place): p for p in reversed(problems)}.values())[::-1]

    # ---- words

    def _what(self, index: int) -> str:
        pc = int(self.stream.pc[index])
        instr = self.program.instrs[pc]
        name = ".".join([instr.row.mnemonic, *instr.mods])
        place = self.program.place(pc)
        line = f", line {place.line}" if place.line else ""
        return f"{name} (instruction {pc}{line}, core {self.stream.core_of(index)})"

    def _problem(self, code: str, message: str, index: int, hint: str = "") -> Problem:
        return Problem(code, message, self.program.place(int(self.stream.pc[index])), hint)

    def _race(self, race: Race) -> Problem:
        name, what = RACE_NAMES[race.kind], self._what(race.later)
        where = f" at {race.memory} address {race.address}" if race.memory else ""
        if race.earlier < 0:
            return self._problem("TW1402", f"{name}: {what} reads bytes nobody has written{where}", race.later)
        text = f"{name}: {what} is not ordered after {self._what(race.earlier)}{where}"
        return self._problem("TW1405", text, race.later, self._missing(race))

    def _missing(self, race: Race) -> str:
        """The synchronisation that would order the two."""
        later, earlier = (int(self.classes.queue[self.stream.klass[i]]) for i in (race.later, race.earlier))
        if self.stream.core_of(race.later) != self.stream.core_of(race.earlier):
            return "order the cores with a core barrier or a cross-core flag"
        names = [Queue(q).name.lower() for q in (earlier, later)]
        if later == earlier:
            return f"put pipe_barrier.{names[0]} between them"
        return f"set_flag.{names[0]}.{names[1]} after the first, wait_flag.{names[0]}.{names[1]} before the second"

    # ---- deadlock

    def _deadlock(self) -> list[Problem]:
        """What every stuck queue waits for; a cycle of waiters first, where there is one."""
        waiting = self._waiting()
        cycle = _cycle({node: blocker for node, (_, _, blocker) in waiting.items()})
        problems = []
        if cycle:
            chain = " -> ".join(f"core {core} {Queue(queue).name}" for core, queue in [*cycle, cycle[0]])
            problems.append(self._problem("TW1401", f"deadlock: a cycle of waiters: {chain}", waiting[cycle[0]][0]))
        for (core, queue), (index, reason, _) in sorted(waiting.items()):
            text = f"deadlock: core {core} queue {Queue(queue).name} stands at {self._what(index)}: {reason}"
            problems.append(self._problem("TW1401", text, index))
        return problems[:32]

    def _waiting(self) -> dict[tuple[int, int], tuple[int, str, tuple[int, int]]]:
        """(core, queue) -> (instruction it stands at, why, the (core, queue) that could free it)."""
        waiting = {}
        for core in range(self.stream.cores):
            for queue in range(1, QUEUES):
                index = int(self.schedule.heads[core, queue])
                if index >= 0:
                    waiting[core, queue] = (index, *self._blocked(core, queue, index))
            index = int(self.schedule.next_index[core])
            if index < int(self.stream.core_start[core + 1]):
                waiting[core, 0] = (index, *self._blocked(core, 0, index))
        return waiting

    def _blocked(self, core: int, queue: int, index: int) -> tuple[str, tuple[int, int]]:
        klass = int(self.stream.klass[index])
        kind, argument, args = (
            int(self.classes.kind[klass]),
            int(self.classes.argument[klass]),
            self.classes.args[klass],
        )
        if kind == k.WAIT:
            source = argument // self.chip.event_ids // QUEUES
            return f"flag {args.id} from {Queue(source).name} is not set", (core, source)
        if kind == k.CROSS_WAIT:
            first = core - core % self.chip.cores_per_cluster
            other = int(args.core) + (first if self.classes.in_cluster[klass] else 0)
            return f"cross-core flag {args.id} from core {other} is not set", (other, 0)
        if kind in (k.CORE_BARRIER, k.CLUSTER_BARRIER) and queue == 0:
            others = [c for c in range(self.stream.cores) if c != core and not self._at_barrier(c)]
            return f"other cores do not arrive: {others[:8]}", (others[0] if others else core, 0)
        own = int(self.classes.queue[klass])
        if queue == own and self.classes.broadcast[klass]:
            number, each = core % self.chip.cores_per_cluster, self.chip.cores_per_cluster
            others = [c for c in range(number, self.stream.cores, each) if not self._at_broadcast(c, own)]
            return f"cores of other clusters do not load it, too: {others[:8]}", (others[0] if others else core, own)
        if queue == 0 and own != 0:
            return f"queue {Queue(own).name} is full", (core, own)
        full = [q for q in range(1, QUEUES) if self.schedule.heads[core, q] >= 0]
        return "queues of the core do not drain", (core, full[0] if full else 0)

    def _at_broadcast(self, core: int, queue: int) -> bool:
        index = int(self.schedule.heads[core, queue])
        return index >= 0 and bool(self.classes.broadcast[self.stream.klass[index]])

    def _at_barrier(self, core: int) -> bool:
        index = int(self.schedule.next_index[core])
        if index >= int(self.stream.core_start[core + 1]):
            return False
        return int(self.classes.kind[self.stream.klass[index]]) in (k.CORE_BARRIER, k.CLUSTER_BARRIER)


def _cycle(blockers: dict[tuple[int, int], tuple[int, int]]) -> list[tuple[int, int]]:
    """A cycle in the waits-for relation, starting at its smallest member; empty where there is none.

    A queue with nothing in it waits for its core's scalar unit to dispatch.
    """
    for start in sorted(blockers):
        path: list[tuple[int, int]] = []
        node = start
        while node not in path:
            path.append(node)
            following = blockers.get(node)
            if following is None:
                following = (node[0], 0)
            if following not in blockers and (following[0], 0) not in blockers:
                break
            node = following
        else:
            found = path[path.index(node) :]
            lowest = found.index(min(found))
            return found[lowest:] + found[:lowest]
    return []
