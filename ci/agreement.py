"""Do both engines, the encoding and the text agree on what programs mean? On random programs over the whole table.

Each random program must verify, survive encoding and disassembly, run without hazards and give the same bytes in the
interpreter and in the simulator: with its queues undisturbed and delayed at random, with one worker and with two.
Program N is made from seed N around row N / 3 of the table, so that a run reaches all rows; hand-written programs
follow. Last, every rule of every row must refuse something.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from random import Random

import numpy as np

from compiler.errors import TilewrightError
from compiler.isa.assembler import assemble
from compiler.isa.disassembler import disassemble
from compiler.isa.encoding import decode, encode
from compiler.isa.generator import TRAP_CODE, Unreachable, random_program
from compiler.isa.model import Args, Instr, Row, Rule
from compiler.isa.program import Buffer, Program
from compiler.isa.sampler import Sampler
from compiler.isa.table import by_mnemonic, rows
from compiler.isa.verifier import verify
from compiler.sim.interpreter import interpret
from compiler.sim.simulator import simulate
from compiler.target import Chip, load_chip
from tests.handwritten import Case, cases

CHIPS = ("tiny", "tw1", "tw2")
PROCESSES = 2
_BATCH = 20
_WILD = 30_000  # instructions tried until a rule refuses one
Outputs = Mapping[str, np.ndarray]
# A bug in an engine shows as one of these just as well.
_BUGS = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)


@dataclass
class Report:
    """What came of one program, or of several."""

    programs: int = 0
    static: int = 0
    dynamic: int = 0
    executed: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)

    def add(self, other: Report) -> None:
        self.programs += other.programs
        self.static += other.static
        self.dynamic += other.dynamic
        self.executed |= other.executed
        self.failures += other.failures


class Disagreement(Exception):
    """Two ways to run or write the same program gave different things."""


class _Recording(tuple[Instr, ...]):
    """A program's instructions that remember which were looked up: those that the interpreter executed."""

    def __new__(cls, instrs: tuple[Instr, ...]) -> _Recording:
        self = super().__new__(cls, instrs)
        self.executed = set()
        return self

    executed: set[int]

    def __getitem__(self, index: int) -> Instr:  # type: ignore[override]
        self.executed.add(index)
        return super().__getitem__(index)


# ---- one program --------------------------------------------------------------------------------------------


def row_of(seed: int) -> Row:
    """The row that program ``seed`` is made around."""
    return rows()[seed // len(CHIPS) % len(rows())]


def make(seed: int, chip: Chip) -> tuple[Program, dict[str, np.ndarray]]:
    try:
        return random_program(seed, chip, row_of(seed))
    except Unreachable:
        return random_program(seed, chip)


def check_random(seed: int, chip: Chip) -> Report:
    program, inputs = make(seed, chip)
    report = Report(1, len(program.instrs))
    try:
        check_forms(program, chip)
        if any(instr.row.kind == "trap" for instr in program.instrs[-2:]):
            report.executed = check_trap(program, chip, inputs)
        else:
            report.dynamic, report.executed = check_runs(program, chip, inputs, seed)
    except (Disagreement, TilewrightError, *_BUGS) as error:
        report.failures.append(_reproduction(program, seed, chip, f"{type(error).__name__}: {error}"))
    return report


def check_forms(program: Program, chip: Chip) -> None:
    """Legal, and the same after each way to write it down."""
    verify(program, chip)
    if decode(encode(program.instrs)) != program.instrs:
        raise Disagreement("decoding what was encoded gives other instructions")
    if not assemble(disassemble(program), chip=chip).same_code(program):
        raise Disagreement("assembling the disassembly gives another program")


def check_runs(program: Program, chip: Chip, inputs: Outputs, seed: int) -> tuple[int, set[str]]:
    """The engines agree; returns how many instructions ran and the rows among them."""
    recorded = _Recording(program.instrs)
    reference = interpret(replace(program, instrs=recorded), chip, inputs).outputs
    run = simulate(program, chip, inputs, hazards=True, workers=1)
    delayed = simulate(program, chip, inputs, hazards=True, seed=seed + 1, workers=2)
    for name, each in (("simulator", run), ("simulator with delays and two workers", delayed)):
        if each.hazards:
            raise Disagreement(f"{name}: " + "; ".join(problem.message for problem in each.hazards[:3]))
        compare(reference, each.outputs, name)
    # The second execution records the work, here on other inputs; the third plays it.
    run.execute({name: np.zeros_like(array) for name, array in inputs.items()}, workers=2)
    run.execute(inputs, workers=2)
    compare(reference, run.outputs, "simulator from its record")
    return run.stream.steps, {program.instrs[index].row.mnemonic for index in recorded.executed}


def compare(expected: Outputs, found: Outputs, name: str) -> None:
    for buffer, array in expected.items():
        if array.tobytes() != found[buffer].tobytes():
            differing = np.flatnonzero(array.view(np.uint8).reshape(-1) != found[buffer].view(np.uint8).reshape(-1))
            raise Disagreement(
                f"{name}: {len(differing)} bytes of output {buffer} differ from the interpreter's, first {differing[0]}"
            )


def check_trap(program: Program, chip: Chip, inputs: Outputs) -> set[str]:
    """A program that ends in a trap ends both engines with the same words."""
    recorded = _Recording(program.instrs)
    said = []
    for engine in (partial(interpret, replace(program, instrs=recorded)), partial(simulate, program)):
        try:
            engine(chip, inputs)
        except TilewrightError as error:
            said.append(error.problems[0].message)
    if len(said) != 2 or said[0] != said[1] or f"trapped with code {TRAP_CODE}" not in said[0]:
        raise Disagreement(f"a trap gives {said}")
    return {program.instrs[index].row.mnemonic for index in recorded.executed}


def check_case(case: Case) -> Report:
    """A hand-written program, on its own inputs."""
    report = Report(1, len(case.program.instrs))
    try:
        check_forms(case.program, case.chip)
        report.dynamic, report.executed = check_runs(case.program, case.chip, case.inputs(), seed=0)
    except (Disagreement, TilewrightError, *_BUGS) as error:
        report.failures.append(f"{case.name}: {type(error).__name__}: {error}")
    return report


def _reproduction(program: Program, seed: int, chip: Chip, text: str) -> str:
    with tempfile.NamedTemporaryFile("w", suffix=".twasm", prefix=f"{chip.name}-{seed}-", delete=False) as file:
        file.write(disassemble(program))
    again = f"python -m ci.agreement --programs 1 --seed {seed} --chip {chip.name}"
    return f"seed {seed} on {chip.name}: {text}\n  program: {file.name}\n  again: {again}"


# ---- what runs in one process -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """Some random programs, or a hand-written one."""

    seeds: tuple[tuple[int, str], ...] = ()
    case: str = ""


def work(job: Job) -> Report:
    total = Report()
    if job.case:
        total.add(check_case(next(case for case in cases() if case.name == job.case)))
    for seed, chip in job.seeds:
        total.add(check_random(seed, load_chip(chip)))
    return total


def jobs(first: int, count: int, chips: tuple[str, ...]) -> Iterator[Job]:
    seeds = [(seed, chips[seed % len(chips)]) for seed in range(first, first + count)]
    for start in range(0, count, _BATCH):
        yield Job(tuple(seeds[start : start + _BATCH]))


# ---- every rule refuses something ---------------------------------------------------------------------------


def refusal(row: Row, rule: Rule, chips: tuple[Chip, ...], rng: Random) -> Program | None:
    """A program of one instruction that the verifier refuses because of this rule, if one was found."""
    reason = " ".join(str(rule.__doc__).split())
    samplers = [Sampler(rng, chip) for chip in chips]
    for attempt in range(_WILD):
        sampler = samplers[attempt % len(samplers)]
        args = sampler.wild(row)
        if rule(args):
            continue
        program = _alone(args)
        try:
            verify(program, sampler.chip)
        except TilewrightError as error:
            if any(reason in problem.message for problem in error.problems):
                return program
    return None


def _alone(args: Args) -> Program:
    row = args.row
    mods = tuple(getattr(args, modifier.name) for modifier in row.modifiers)
    values = tuple(
        0 if slot.kind == "float" else getattr(args, slot.name.replace(".", "_")) for slot in row.slots(mods)
    )
    size = 1 << 16
    buffers = tuple(Buffer(memory, memory, 0, size, "uint8", (size,), "inout") for memory in ("ddr", "llb"))
    return Program("alone", None, 1, (Instr(row, mods, values), Instr(by_mnemonic()["halt"], (), ())), buffers)


def check_rules() -> tuple[int, list[str]]:
    """How many (row, rule) pairs there are, and those for which nothing that they refuse was found."""
    shipped = [load_chip(name) for name in CHIPS]
    # No shipped chip lacks the paths that every program needs.
    chips = (*shipped, replace(shipped[0], name="pathless", path={}))
    rng, missing, count = Random(1), [], 0
    for row in rows():
        for rule in row.rules:
            count += 1
            if refusal(row, rule, chips, rng) is None:
                missing.append(f"{row.mnemonic}: nothing was found that is refused because {rule.__doc__}")
    return count, missing


# ---- the whole ----------------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ci.agreement", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--programs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--chip", choices=(*CHIPS, "all"), default="all")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    chips = CHIPS if options.chip == "all" else (options.chip,)
    todo = list(jobs(options.seed, options.programs, chips))
    whole = options.chip == "all" and options.programs >= len(CHIPS) * len(rows())
    total, by_hand = work(todo[0]), Report()  # alone, so that the kernels are compiled once
    if len(todo) > 1 or whole:
        named = [Job(case=case.name) for case in cases() if case.baseline] if whole else []
        with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
            for job, report in zip([*named, *todo[1:]], pool.map(work, [*named, *todo[1:]]), strict=True):
                (by_hand if job.case else total).add(report)
    failures = total.failures + by_hand.failures
    if whole:
        failures += [f"{row.mnemonic}: no program executed it" for row in rows() if row.mnemonic not in total.executed]
        count, missing = check_rules()
        failures += missing
        print(f"rules: {count - len(missing)} of {count} refuse something")
    print(f"random programs: {total.programs}, {total.static} instructions, {total.dynamic} executed")
    print(f"hand-written programs: {by_hand.programs}, {by_hand.static} instructions, {by_hand.dynamic} executed")
    print(f"rows executed: {len(total.executed)} of {len(rows())}")
    print(f"failures: {len(failures)}; {time.monotonic() - started:.0f} s")
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
