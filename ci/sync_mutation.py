"""Take every synchronisation out of every hand-written program: does the hazard checker notice?

A mutant is a program without one sync instruction, or without all that belong to one flag: a set without its wait is
found by counting flags, a flag that is gone altogether only by the order of accesses. A mutant must be reported, or
else be harmless: free of races, and equal bit for bit to the intact program, however the queues are delayed. Cases
with the same code are one program; a mutant is judged on the smallest of them that execute what is taken out, and if
it is harmless there, also on the larger ones.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from compiler.errors import HazardError, Problem, TilewrightError
from compiler.isa.disassembler import instruction_text
from compiler.isa.model import Instr, Reg
from compiler.isa.program import Program
from compiler.isa.table import sync
from compiler.processors import processors
from compiler.sim.hazards import HazardReport
from compiler.sim.pipeline import schedule
from compiler.sim.simulator import Run, simulate
from tests.handwritten import Case, cases

SYNC = frozenset(row.kind for row in sync.ROWS)
REPORTS = ("race", "deadlock", "doubled", "leaked", "uninitialised")  # a mutant with several counts as the first
HARMLESS, MISSED, NOT_RUN = "harmless", "missed", "not run"
OUTCOMES = (*REPORTS, HARMLESS, MISSED, NOT_RUN)
_KINDS = {"TW1401": "deadlock", "TW1402": "uninitialised", "TW1403": "leaked", "TW1404": "doubled"}
MAX_WORKERS = 8  # each may need the memory of the largest case


# ---- mutants ------------------------------------------------------------------------------------------------


def without(program: Program, removed: Iterable[int]) -> Program:
    """The program without some instructions; what led to one of them leads to the next that is left."""
    gone = set(removed)
    moved = [0]  # the new index of every old one
    for index in range(len(program.instrs)):
        moved.append(moved[-1] + (index not in gone))
    kept = [index for index in range(len(program.instrs)) if index not in gone]
    return replace(
        program,
        instrs=tuple(_moved(program.instrs[index], index, moved) for index in kept),
        entries=tuple(moved[entry] for entry in program.entries),
        lines=tuple(program.lines[index] for index in kept) if program.lines else (),
        labels=tuple((name, moved[index]) for name, index in program.labels),
    )


def _moved(instr: Instr, index: int, moved: list[int]) -> Instr:
    values = tuple(
        moved[index + value] - moved[index] if slot.kind == "target" and not isinstance(value, Reg) else value
        for slot, value in zip(instr.row.slots(instr.mods), instr.values, strict=True)
    )
    return replace(instr, values=values)


def sync_instructions(program: Program) -> tuple[int, ...]:
    return tuple(index for index, instr in enumerate(program.instrs) if instr.row.kind in SYNC)


def whole_flags(program: Program) -> list[tuple[int, ...]]:
    """The instructions of each flag: by queues and id, or by queues alone where a register holds some of their ids.

    All cross-core flags of a program count as one.
    """
    flags: dict[tuple[str, ...], list[int]] = {}
    for index in sync_instructions(program):
        instr = program.instrs[index]
        if instr.row.kind in ("set_flag", "wait_flag"):
            flags.setdefault(instr.mods, []).append(index)
        elif instr.row.kind in ("cross_set", "cross_wait"):
            flags.setdefault(("cross",), []).append(index)
    found: list[tuple[int, ...]] = []
    for queues, indices in flags.items():
        ids = [program.instrs[index].values[0] for index in indices]
        if queues == ("cross",) or any(isinstance(each, Reg) for each in ids):
            found.append(tuple(indices))
        else:
            found += [
                tuple(i for i, own in zip(indices, ids, strict=True) if own == each) for each in dict.fromkeys(ids)
            ]
    return found


# ---- one mutant on one case -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant."""

    outcome: str  # one of OUTCOMES
    detail: str = ""
    seeds: int = 0


def judge(program: Program, case: Case, seeds: int) -> Verdict:
    """Whether a mutant of the case's program is reported or harmless."""
    try:
        run = checked(program, case)
    except HazardError as error:
        return Verdict(kind_of(error.problems))
    except TilewrightError as error:  # a wild address, say: noticed, but not for what it is
        return Verdict(MISSED, error.problems[0].message)
    if run.hazards:
        return Verdict(kind_of(run.hazards))
    inputs, intact, read = case.inputs(), intact_outputs(case.name), None
    for seed in range(seeds + 1):
        again = delayed(run, seed)
        if again.hazards:
            return Verdict(MISSED, f"not reported before its queues were delayed: {again.hazards[0].message}")
        loaded = again.execute(inputs, workers=1)
        read = loaded if read is None else read
        if loaded != read or not same(again.outputs, intact):
            return Verdict(MISSED, f"not reported, and it computes something else{f' with seed {seed}' * bool(seed)}")
    return Verdict(HARMLESS, seeds=seeds)


def checked(program: Program, case: Case) -> Run:
    """A run with hazards; with data only where what is executed depends on it."""
    loads = any(instr.row.kind == "sld" for instr in program.instrs)
    return simulate(program, case.chip, case.inputs() if loads else None, hazards=True, workers=1)


def delayed(run: Run, seed: int) -> Run:
    """The same instructions, their queues delayed at random, checked once more."""
    timed = schedule(run.stream, run.classes, run.chip, seed=seed)
    report = HazardReport(run.stream, run.classes, timed, run.program, run.chip)
    problems = report.stuck() or report.races() + report.leaks()
    # Known to be race-free or not, it is computed in order of time: that order is what is tried here.
    return Run(run.program, run.chip, run.stream, run.classes, timed, problems)


def kind_of(problems: list[Problem]) -> str:
    """The first of REPORTS that is among the problems."""
    kinds = {"doubled" if p.message.startswith("doubled flag") else _KINDS.get(p.code, "race") for p in problems}
    return next(kind for kind in REPORTS if kind in kinds)


@lru_cache(maxsize=4)
def intact_outputs(name: str) -> dict[str, np.ndarray]:
    case = case_named(name)
    return simulate(case.program, case.chip, case.inputs(), workers=1).outputs


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(array.view(np.uint8), other[name].view(np.uint8)) for name, array in one.items())


# ---- work for other processes: names in, small results out ------------------------------------------------------


def case_named(name: str) -> Case:
    return next(case for case in cases() if case.name == name)


@dataclass(frozen=True)
class Intact:
    """A case as it is: the length of its dynamic stream, what it executes, what is reported."""

    size: int
    executed: frozenset[int]
    problems: tuple[str, ...]


def examine(name: str) -> Intact:
    case = case_named(name)
    try:
        run = checked(case.program, case)
    except TilewrightError as error:
        return Intact(0, frozenset(), tuple(problem.message for problem in error.problems))
    executed = frozenset(np.unique(run.stream.pc).tolist())
    return Intact(run.stream.size, executed, tuple(problem.message for problem in run.hazards))


@dataclass(frozen=True)
class Mutant:
    """What is taken out of a program, on which of its cases it is judged, and which others may need it."""

    removed: tuple[int, ...]
    whole_flag: bool
    judged: tuple[str, ...]
    others: tuple[str, ...]


def settle(seeds: int, mutant: Mutant) -> Verdict:
    """Missed on any of the cases, else reported on any, else harmless."""
    if not mutant.judged:
        return Verdict(NOT_RUN)
    verdicts = [_judged_on(name, mutant, seeds) for name in mutant.judged]
    others = iter(mutant.others)
    while all(verdict.outcome == HARMLESS for verdict in verdicts) and (name := next(others, None)):
        verdicts.append(_judged_on(name, mutant, seeds=0))
    return min(verdicts, key=lambda verdict: (verdict.outcome != MISSED, verdict.outcome not in REPORTS))


def _judged_on(name: str, mutant: Mutant, seeds: int) -> Verdict:
    case = case_named(name)
    verdict = judge(without(case.program, mutant.removed), case, seeds)
    return replace(verdict, detail=f"{name}: {verdict.detail}") if verdict.detail else verdict


# ---- programs ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """The cases that run the same code on the same chip, the shortest dynamic stream first."""

    cases: tuple[Case, ...]
    chosen: tuple[str, ...]  # the shortest that together execute every sync instruction that any executes
    mutants: tuple[Mutant, ...]

    @property
    def name(self) -> str:
        return self.cases[0].name

    def what(self, mutant: Mutant) -> str:
        more = f" and {len(mutant.removed) - 1} more of this flag" if mutant.whole_flag else ""
        return f"{self.name}: {self.written(mutant.removed[0])}{more}"

    def written(self, index: int) -> str:
        """An instruction and its place in the source: copies that a macro makes are the same."""
        program = self.cases[0].program
        return f"{Path(program.source).name}:{program.place(index).line}: {instruction_text(program.instrs[index])}"


def grouped(found: list[Case], intact: dict[str, Intact], wanted: str) -> list[Group]:
    """The programs of the cases; only those with a case whose name starts with ``wanted``."""
    by_code: dict[Any, list[Case]] = {}
    for case in found:
        program = case.program
        by_code.setdefault((case.chip_name, program.cores, program.entries, program.instrs), []).append(case)
    return [
        _group(sorted(members, key=lambda case: (intact[case.name].size, case.name)), intact)
        for members in by_code.values()
        if any(case.name.startswith(wanted) for case in members)
    ]


def _group(members: list[Case], intact: dict[str, Intact]) -> Group:
    program = members[0].program
    chosen: list[str] = []
    left = set(sync_instructions(program))
    for case in members:
        if intact[case.name].executed & left:
            chosen.append(case.name)
            left -= intact[case.name].executed
    mutants = []
    single = [((index,), False) for index in sync_instructions(program)]
    for removed, whole in [*single, *((flag, True) for flag in whole_flags(program))]:
        concerned = [case.name for case in members if intact[case.name].executed & set(removed)]
        judged = tuple(name for name in concerned if name in chosen)
        mutants.append(Mutant(removed, whole, judged, tuple(name for name in concerned if name not in chosen)))
    return Group(tuple(members), tuple(chosen), tuple(mutants))


# ---- the job ------------------------------------------------------------------------------------------------------


class Workers:
    """Processes that work through a list; with only one, this process does."""

    def __init__(self, count: int) -> None:
        # Fresh processes: a fork of one that has threads may hang.
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(count, mp_context=context) if count > 1 else None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def map(self, function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        """The results in the order of the items."""
        return list((self._pool.map if self._pool else map)(function, items))


def run(wanted: str, seeds: int, count: int) -> int:
    """All mutants of all programs; prints what became of them and returns the exit code."""
    started = time.monotonic()
    found = [case for case in cases() if case.baseline]
    if not any(case.name.startswith(wanted) for case in found):
        print(f"no case starts with `{wanted}`; there are {', '.join(case.name for case in found)}", file=sys.stderr)
        return 1
    with Workers(count) as workers:
        names = [case.name for case in found]
        intact: dict[str, Intact] = dict(zip(names, workers.map(examine, names), strict=True))
        groups = grouped(found, intact, wanted)
        mutants = [(group, mutant) for group in groups for mutant in group.mutants]
        verdicts: list[Verdict] = workers.map(partial(settle, seeds), [mutant for _, mutant in mutants])
    results = [(group, mutant, verdict) for (group, mutant), verdict in zip(mutants, verdicts, strict=True)]
    print_table(groups, results)
    print_coverage(groups)
    for group, mutant, verdict in results:
        if verdict.outcome == HARMLESS:
            print(f"harmless: {group.what(mutant)}; {verdict.seeds} seeds on each of {', '.join(mutant.judged)}")
    faults = [f"reported although intact: {name}: {text}" for name in names for text in intact[name].problems]
    faults += [f"missed: {group.what(mutant)}: {v.detail}" for group, mutant, v in results if v.outcome == MISSED]
    faults += [f"executed by no case, nor is a copy of it: {text}" for text in untested(results)]
    for fault in faults:
        print(f"FAILED: {fault}")
    total = f"{len(names)} intact cases, {len(groups)} programs, {len(mutants)} mutants, {len(faults)} failures"
    print(f"\n{total}, {time.monotonic() - started:.0f} s")
    return 1 if faults else 0


def untested(results: list[tuple[Group, Mutant, Verdict]]) -> list[str]:
    """The sync instructions that no case executes, in no copy and at no size."""
    never, executed = dict[tuple[str, str], None](), set()
    for group, mutant, verdict in results:
        if not mutant.whole_flag:
            key = group.cases[0].chip_name, group.written(mutant.removed[0])
            if verdict.outcome == NOT_RUN:
                never[key] = None
            else:
                executed.add(key)
    return [f"{text} on {chip}" for chip, text in never if (chip, text) not in executed]


def print_table(groups: list[Group], results: list[tuple[Group, Mutant, Verdict]]) -> None:
    widths = [max(9, len(outcome)) for outcome in OUTCOMES]
    first = max(len("program, by its smallest case"), *(len(group.name) for group in groups))
    titles = " ".join(f"{outcome:>{width}}" for outcome, width in zip(OUTCOMES, widths, strict=True))
    print(f"{'program, by its smallest case':{first}} cases {'taken out':>17} {titles}")
    for group in groups:
        for whole, what in ((False, "instructions"), (True, "whole flags")):
            counts = Counter(v.outcome for each, mutant, v in results if each is group and mutant.whole_flag == whole)
            cells = " ".join(f"{counts[o] or '-':>{width}}" for o, width in zip(OUTCOMES, widths, strict=True))
            head = f"{'':{first}}      " if whole else f"{group.name:{first}} {len(group.cases):>5}"
            print(f"{head} {counts.total():>4} {what:12} {cells}")


def print_coverage(groups: list[Group]) -> None:
    print("\nevery sync instruction of a program is judged on the first of these cases that executes it:")
    for group in groups:
        others = [case.name for case in group.cases if case.name not in group.chosen]
        judged = ", ".join(group.chosen) or "none: it has no sync instruction"
        print(f"  {judged}" + (f"; where harmless, also on {', '.join(others)}" if others else ""))
    print()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ci.sync_mutation", description=__doc__)
    parser.add_argument("--case", default="", metavar="NAME", help="only programs with a case that starts so")
    parser.add_argument("--seeds", type=int, default=100, metavar="N", help="delays that a harmless mutant survives")
    workers = min(MAX_WORKERS, processors())
    parser.add_argument("--workers", type=int, default=workers, metavar="N", help="processes")
    options = parser.parse_args(arguments)
    return run(options.case, options.seeds, options.workers)


if __name__ == "__main__":
    sys.exit(main())
