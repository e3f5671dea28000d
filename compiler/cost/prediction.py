"""From one core's walk to the cycles of a kernel: cores that do alike are walked once, and share DDR and LLB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compiler.codegen.kernel import KernelCode
from compiler.cost import walk as w
from compiler.cost.classes import Class, class_of
from compiler.cost.code import DISPATCH, MAX_SLOTS, Code, lay_out
from compiler.cost.data import is_decided_by_data
from compiler.cost.growth import BUSY, CONFLICT, DDR_BYTES, GROWING, Q
from compiler.cost.phases import Pace, cycles_in_step, cycles_together
from compiler.cost.steady_state import MARKS_KEPT, TURNS_KEPT
from compiler.cost.ways import way
from compiler.isa.dtypes import INTERLOCKED, Queue
from compiler.isa.model import REGISTERS, Instr
from compiler.isa.program import Program
from compiler.isa.table.control import LOOP_DEPTH
from compiler.isa.table.sync import IN_CLUSTER
from compiler.target import Chip

MAX_STEPS = 1 << 22
MAX_WAY_STEPS = 1 << 16
MOST_WAYS = 12  # of these the ones that most cores go; the others are like them
IDLE = 0.1  # of the cycles of the slowest core: what takes less leaves its part of the bandwidth to others
BOUND = 0.3  # of the time that a core's transfers take: then its share of the bandwidth matters
ALIKE = 0.01
_FLAGS = 16


@dataclass(frozen=True)
class Prediction:
    """What a kernel does when it runs alone; busy cycles and conflicts are those of the core that is last."""

    cycles: int
    busy: dict[str, int]
    ddr_bytes: int
    conflict_cycles: int
    steps: int  # instructions that were walked to know it


class Unpredictable(Exception):
    """What the kernel does depends on data, or it is too long to be walked."""


@dataclass(frozen=True)
class _Walked:
    """One core's clocks and sums at the end."""

    cycles: float
    grown: np.ndarray
    barriers: np.ndarray
    steps: int


def predict(code: KernelCode, chip: Chip) -> Prediction:
    """The cycles of a kernel that runs alone on the chip, without running it."""
    # Every parameter begins at a whole line.
    return _Walker(_Known(code.instrs, chip), np.zeros(1, np.int64), code.turns).predict(code.cores)


def predict_program(program: Program, chip: Chip, turns: Mapping[str, float] | None = None) -> Prediction:
    """The cycles of a whole program, as its tiling data has it; ``turns`` are those of its kernels' code, by label.

    The sum of its kernels, each as long as its last core takes, corrected by what is different where they follow each
    other: the next one's loads under the end of the one before, flags between cores. That is seen on one core, which is
    walked through all of them and through each. Of clusters that do all the same, one is followed, with its part of the
    bandwidth.
    """
    words, cores = np.array([word.value for word in program.tiling] or [0], np.int64), program.cores or chip.cores
    clusters, rest = divmod(cores, chip.cores_per_cluster)
    if chip.clusters > 1 and not rest and all(map(_is_of_cluster, program.instrs)):
        one = predict_program(replace(program, cores=chip.cores_per_cluster), chip.one_cluster(clusters), turns)
        return replace(one, ddr_bytes=one.ddr_bytes * clusters)
    whole = _Walker(_Known(program.instrs, chip), words)
    labels = _without_parts(program.labels)
    if len(labels) < 2:
        return whole.predict(cores)
    names, starts = zip(*labels, strict=True)
    found, apart = [], 0.0
    for name, begin, end in zip(names, (0, *starts[1:]), (*starts[1:], len(program.instrs)), strict=True):
        kernel = whole.part(begin, end, (turns or {}).get(name, 1))
        found.append(kernel.predict(cores))
        apart += kernel.alone_cycles(cores)
    return Prediction(
        cycles=round(sum(each.cycles for each in found) + whole.alone_cycles(cores) - apart),
        busy={queue: sum(each.busy[queue] for each in found) for queue in found[0].busy},
        ddr_bytes=sum(each.ddr_bytes for each in found),
        conflict_cycles=sum(each.conflict_cycles for each in found),
        steps=sum(each.steps for each in found) + whole.steps,
    )


def _without_parts(labels: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Those of kernels one after another; of such as take turns that of the first, for all of them."""
    last = {name: at for at, (name, _) in enumerate(labels)}
    found, end = list[tuple[str, int]](), -1
    for at, label in enumerate(labels):
        if at > end:
            found.append(label)
        end = max(end, last[label[0]])
    return found


def _is_of_cluster(instr: Instr) -> bool:
    """Whether an instruction does the same for every cluster."""
    if instr.row.kind == "getsr":
        return instr.mods[0] in ("core_in_cluster", "cores_per_cluster")
    return instr.row.kind not in ("core_barrier", "cross_set", "cross_wait") or instr.row.mnemonic in IN_CLUSTER


class _Known:
    """Instructions in arrays, and what is known of their classes: which there are, of each what it costs."""

    def __init__(self, instrs: tuple[Instr, ...], chip: Chip) -> None:
        self.instrs, self.chip = instrs, chip
        self.code: Code = lay_out(instrs, chip)
        self.first_class = np.full(len(instrs), -1, np.int64)
        self.classes = _Classes()
        self._learn_what_is_fixed()

    def part(self, begin: int, end: int) -> _Known:
        """The instructions from ``begin`` to ``end``; what is learned of them is known of the whole, too."""
        found = object.__new__(_Known)
        found.instrs, found.chip, found.classes = self.instrs[begin:end], self.chip, self.classes
        found.code, found.first_class = self.code.part(begin, end), self.first_class[begin:end]
        return found

    def learn(self, pc: int, wanted: np.ndarray) -> None:
        """Enter the class of an instruction that has these values."""
        used = int(self.code.slots[pc])
        masked = wanted[:used] & self.code.key_mask[pc, :used]
        instr = self.instrs[pc]
        costs = class_of(instr.row, instr.mods, tuple(masked.tolist()), self.chip)
        self.first_class[pc] = self.classes.add(masked, costs, int(self.first_class[pc]))

    def _learn_what_is_fixed(self) -> None:
        """Enter the classes of instructions whose registers change nothing of them, before any is met."""
        code = self.code
        fixed = ~((code.register != 0) & (code.key_mask != 0)).any(axis=1) & (code.kind == DISPATCH)
        for pc in np.flatnonzero(fixed).tolist():
            self.learn(pc, code.immediate[pc])


class _Classes:
    """Arrays of classes, those of an instruction in a list; they grow by doubling."""

    def __init__(self) -> None:
        self.count = 0
        self.next = np.zeros(0, np.int64)
        self.values, self.numbers = np.zeros((0, MAX_SLOTS), np.int64), np.zeros((0, 4), np.int64)
        self.costs = np.zeros((0, 6))

    def add(self, masked: np.ndarray, costs: Class, before: int) -> int:
        """The number of a class; ``before`` is another one of its instruction."""
        if self.count == len(self.next):
            self._grow(max(256, self.count))
        number = self.count
        self.numbers[number], self.costs[number] = costs
        self.values[number, : len(masked)] = masked
        self.next[number] = before
        self.count += 1
        return number

    def _grow(self, more: int) -> None:
        self.next = np.concatenate([self.next, np.full(more, -1, np.int64)])
        self.values = np.concatenate([self.values, np.zeros((more, MAX_SLOTS), np.int64)])
        self.numbers = np.concatenate([self.numbers, np.zeros((more, 4), np.int64)])
        self.costs = np.concatenate([self.costs, np.zeros((more, 6))])


class _Walker:
    """The walks of one kernel; they share what is known of its instructions."""

    def __init__(self, known: _Known, words: np.ndarray, turns: float = 1) -> None:
        self._known, self._words, self._chip, self._turns = known, words, known.chip, turns
        self._code = known.code
        if is_decided_by_data(self._code):
            raise Unpredictable("what it reads from memory decides how long it takes")
        self._walked: dict[tuple[int, float], _Walked] = {}
        self._steps = 0

    def part(self, begin: int, end: int, turns: float) -> _Walker:
        """The walks of one kernel of a program."""
        return _Walker(self._known.part(begin, end), self._words, turns)

    def predict(self, cores: int) -> Prediction:
        """All ways at an even share of the bandwidth, then by phases, where some leave of theirs."""
        ways, others = self._ways(cores)
        walked = {core: self._walk(core, cores) for core in ways}
        least = IDLE * max(each.cycles for each in walked.values())
        ways[next(core for core, each in walked.items() if each.cycles >= least)] += others
        cores -= sum(len(ways[core]) for core, each in walked.items() if each.cycles < least)
        walked = {core: self._walk(core, cores) for core in ways}
        last = max(walked, key=lambda core: walked[core].cycles)
        cycles = max(walked[last].cycles, self._by_barriers(list(walked.values())))
        if len(ways) > 1 and self._is_bound(walked[last], cores):
            members = _alike(walked, ways)
            if any(map(self._keeps_step, self._known.instrs)):
                far = self._chip.bandwidth.ddr_bytes_per_kilocycle / 1000
                cycles = cycles_in_step(members, self._pace, self._turns, far)
            else:
                cycles = cycles_together(members, self._pace)
        grown = walked[last].grown
        return Prediction(
            cycles=round(cycles),
            busy={queue.name.lower(): round(grown[BUSY + queue]) for queue in Queue},
            ddr_bytes=round(sum(each.grown[DDR_BYTES] * len(ways[core]) for core, each in walked.items())),
            conflict_cycles=round(grown[CONFLICT]),
            steps=self._steps,
        )

    @property
    def steps(self) -> int:
        return self._steps

    def alone_cycles(self, cores: int) -> float:
        """Of the first core, with an even share of the bandwidth."""
        return self._walk(0, cores).cycles

    def _pace(self, core: int, parts: float) -> Pace:
        walked = self._walk(core, parts)
        return Pace(walked.cycles, float(walked.grown[DDR_BYTES]))

    def _ways(self, cores: int) -> tuple[dict[int, list[int]], list[int]]:
        """Cores by how they go through the kernel: of the most common ways, the first core and all; and other cores."""
        found: dict[int, list[int]] = {}
        code, loops = self._code, np.zeros((LOOP_DEPTH, 6), np.int64)
        for core in range(cores):
            trace = way(
                code.kind, code.operation, code.slots, code.register, code.immediate, code.line_mask, code.destination,
                code.target, code.system, self._words, self._system(core), np.zeros(REGISTERS, np.int64), loops,
                MAX_WAY_STEPS,
            )  # fmt: skip
            found.setdefault(int(trace), []).append(core)
        common = sorted(found.values(), key=lambda members: (-len(members), members[0]))
        others = [core for members in common[MOST_WAYS:] for core in members]
        return {members[0]: members for members in common[:MOST_WAYS]}, others

    def _system(self, core: int) -> np.ndarray:
        chip, each = self._chip, self._chip.cores_per_cluster
        return np.array([core, chip.cores, core // each, chip.clusters, core % each, each], np.int64)

    def _is_bound(self, walked: _Walked, cores: int) -> bool:
        """Whether a larger share of the bandwidth could change much."""
        share = self._chip.bandwidth.ddr_bytes_per_kilocycle / 1000 / cores
        return bool(walked.grown[DDR_BYTES] / share > BOUND * walked.cycles)

    def _keeps_step(self, instr: Instr) -> bool:
        """Whether cores wait for each other within a kernel, not by the flag with which the linker orders kernels."""
        return instr.row.kind == "cross_wait" and instr.values[1] != self._chip.cross_flag_ids - 1

    def _by_barriers(self, walked: list[_Walked]) -> float:
        """Cores that meet at barriers leave each of them when the last one has come."""
        met = min(len(each.barriers) for each in walked)
        if not met or len(walked) == 1:
            return 0.0
        between = [np.diff([0.0, *each.barriers[:met], each.cycles]) for each in walked]
        return float(np.max(between, axis=0).sum())

    # ---- one walk

    def _walk(self, core: int, parts: float) -> _Walked:
        """One core with one of so many equal parts of the bandwidth."""
        if (core, parts) not in self._walked:
            self._walked[core, parts] = self._walked_anew(core, parts)
            self._steps += self._walked[core, parts].steps
        return self._walked[core, parts]

    def _walked_anew(self, core: int, parts: float) -> _Walked:
        chip, code = self._chip, self._code
        limits = np.array([
            chip.bandwidth.ddr_bytes_per_kilocycle / 1000 / parts,
            chip.bandwidth.llb_bytes_per_kilocycle / 1000 / min(parts, chip.cores_per_cluster),
        ])  # fmt: skip
        regs, state, now = np.zeros(REGISTERS, np.int64), np.zeros(7, np.int64), np.zeros(GROWING)
        wanted = np.zeros(MAX_SLOTS, np.int64)
        flags = Q * Q * chip.event_ids
        crossing = chip.cores * chip.cross_flag_ids
        barriers = np.zeros(64)
        uses_spills = bool(code.in_ub.any())
        kept, queued = (LOOP_DEPTH, TURNS_KEPT), (Q, chip.queues.depth)
        arrays = (
            regs, state, np.zeros((LOOP_DEPTH, 6), np.int64), np.zeros((*kept, GROWING)),
            np.zeros(LOOP_DEPTH, np.uint64), np.zeros(kept, np.uint64), np.zeros(LOOP_DEPTH, np.int64),
            np.zeros((*kept, MARKS_KEPT), np.int64), np.zeros(kept, np.int64), now,
            np.zeros(Q, np.int64), np.zeros(Q, np.int64), np.zeros(queued, np.int64), np.zeros(queued),
            np.zeros(queued), np.zeros(Q, np.int64), np.zeros((Q, 4)), np.ones(Q), np.zeros(Q, np.int64), np.ones(Q),
            np.zeros(1), np.zeros(flags, np.bool_), np.zeros(flags), np.full(flags, -1, np.int64),
            np.zeros((crossing, _FLAGS)), np.zeros(crossing, np.int64), np.zeros(crossing, np.int64),
            barriers,
            np.zeros(chip.memory.ub_bytes // 4 if uses_spills else 1, np.int64),
        )  # fmt: skip
        system, classes = self._system(core), self._known.classes
        while True:
            ended = w.walk(
                code.kind, code.operation, code.slots, code.register, code.immediate, code.key_mask,
                code.destination, code.target, code.cycles, code.system, code.in_ub, self._words, system,
                chip.scalar.branch_taken_cycles, chip.scalar.issue_cycles, chip.queues.depth, _INTERLOCKED, limits,
                MAX_STEPS, self._known.first_class, classes.next,
                classes.values, classes.numbers, classes.costs, wanted, *arrays,
            )  # fmt: skip
            if ended == w.DONE:
                break
            if ended != w.NEEDS_CLASS:
                raise Unpredictable("it is too long to be walked")
            self._known.learn(int(state[w.PC]), wanted)
        cycles = float(max(now[:BUSY]))
        return _Walked(cycles, now, barriers[: state[w.BARRIERS]], int(state[w.STEPS]))


def _alike(walked: dict[int, _Walked], ways: dict[int, list[int]]) -> dict[int, int]:
    """How many cores there are of each way, ways with nearly the same cycles and bytes counted as one."""
    found: dict[int, int] = {}
    for core, each in walked.items():
        for other in found:
            cycles, moved = walked[other].cycles, walked[other].grown[DDR_BYTES]
            if abs(each.cycles - cycles) + abs(each.grown[DDR_BYTES] - moved) * cycles / (moved + 1) <= ALIKE * cycles:
                found[other] += len(ways[core])
                break
        else:
            found[core] = len(ways[core])
    return found


_INTERLOCKED = np.array([queue in INTERLOCKED for queue in Queue])
