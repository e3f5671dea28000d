"""Feed damaged, mislabelled and hostile files to everything that reads files: `python -m ci.fuzz`.

Each input must end in success or in an error with a documented exit code, within SECONDS and MEMORY_MIB. What can
still be read is run too: verified, simulated with hazards looked for, interpreted; and where the simulator finds no
race both engines must agree on every bit. Inputs run in worker processes, so that one that hangs, crashes or eats
memory is seen, whatever it does there. `--replay 'KIND/NUMBER'` repeats one input here, with a traceback.
"""

from __future__ import annotations

import argparse
import faulthandler
import multiprocessing
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from ci.fuzz_files import NPY_BUFFER, ROOT, seeds, whole_files
from ci.fuzz_inputs import KINDS, Input, mislabelled, mutation, truncations
from compiler.errors import EXIT_CODES, HazardError, TilewrightError
from compiler.isa.program import Program
from compiler.processors import processors
from compiler.target import Chip

SEED = 20261120
SECONDS = 10.0  # of processor time for one input, from reading to the last engine
WAITING = 10  # times as long an input may take by the clock, on a machine that has other things to do
MEMORY_MIB = 1024  # of one worker, the interpreter and all libraries included
ADDRESS_SPACE_BYTES = 16 << 30  # a backstop: code, stacks and reserved pages count here, too
MAX_STEPS = 8000  # of one run, in each engine
# The budgets that a person has, scaled down as the programs are, so that ten thousand inputs meet them in minutes.
BUDGET_BYTES = 256 << 20
REFUSALS = (2, 3, 4, 5, 6, 7, 8, 9, 10)  # what an input can be refused with; 70 is a bug in tilewright


class Broken(Exception):
    """Something that no input may bring about; the message says what."""


# ---- one input ----------------------------------------------------------------------------------------------


@dataclass
class Verdict:
    """What became of one input."""

    name: str
    code: int = 0  # the exit code it amounts to
    ran: bool = False  # whether it got as far as the engines
    fault: str = ""  # why this is a failure; empty if it is none
    seconds: float = 0.0
    memory_mib: int = 0


def judge(one: Input, folder: Path) -> Verdict:
    """Read the input and run what it holds."""
    verdict = Verdict(one.name)
    path = folder / f"input.{one.suffix}"
    path.write_bytes(one.content)
    _forget_peak()
    started = time.process_time()
    try:
        _use(path, one.suffix, verdict)
        if one.never_accepted:
            verdict.fault = "accepted, although its bytes were changed"
    except TilewrightError as error:
        verdict.code = error.exit_code
        if error.exit_code not in REFUSALS:
            verdict.fault = f"exit code {error.exit_code}: {error}"
        elif not error.problems or not all(problem.message and problem.code for problem in error.problems):
            verdict.fault = f"an error that says nothing: {error!r}"
    except Exception as error:  # noqa: BLE001 - finding these is what the job is for
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}:{where.lineno} {where.name}"
        verdict.fault = f"{type(error).__name__} in {place}: {str(error)[:300]}"
    verdict.seconds = time.process_time() - started
    verdict.memory_mib = _peak_mib()
    if verdict.memory_mib > MEMORY_MIB and not verdict.fault:
        verdict.fault = f"{verdict.memory_mib} MiB; the limit is {MEMORY_MIB}"
    return verdict


def _use(path: Path, suffix: str, verdict: Verdict) -> None:
    """What the verbs do with a file of this name."""
    from compiler.artifact import arrays, read_program
    from compiler.isa.assembler import assemble, assemble_file
    from compiler.isa.disassembler import disassemble
    from compiler.isa.verifier import verify
    from compiler.target import load_chip

    if suffix == "npy":
        arrays.read(path, NPY_BUFFER)
    elif suffix == "toml":
        chip = load_chip(path)
        program = assemble(seeds()[0].text.replace(".chip tiny\n", ""), chip=chip)
        verify(program, chip)
        _run(program, chip, verdict)
    elif suffix == "twasm":
        program = assemble_file(path)
        chip = load_chip(program.chip or "tiny")
        verify(program, chip)
        _run(program, chip, verdict)
    else:
        artifact = read_program(path)
        disassemble(artifact.program)
        _run(artifact.program, artifact.chip, verdict, artifact.constants)


def _run(program: Program, chip: Chip, verdict: Verdict, constants: Any = None) -> None:
    from compiler.sim.interpreter import interpret
    from compiler.sim.simulator import simulate
    from compiler.sim.statistics import statistics

    verdict.ran = True
    inputs = _inputs(program) | dict(constants or {})
    run = simulate(program, chip, inputs, hazards=True, max_steps=MAX_STEPS, workers=1)
    statistics(run)
    if run.hazards:
        raise HazardError(run.hazards)
    try:
        reference = interpret(program, chip, inputs, max_steps=MAX_STEPS + program_cores(program, chip)).outputs
    except TilewrightError as error:
        raise Broken(f"simulated without an error, but interpreted: {error}") from error
    for name, array in reference.items():
        if array.tobytes() != run.outputs[name].tobytes():
            raise Broken(f"the engines disagree on output {name}")


def program_cores(program: Program, chip: Chip) -> int:
    return program.cores or chip.cores


def _inputs(program: Program) -> dict[str, np.ndarray]:
    """The same small integers for every input; of what is too large to be emulated, only the shape."""
    from compiler.isa.dtypes import DTYPES

    buffers = [b for b in program.buffers if b.role in ("input", "inout")]
    small = sum(b.size_bytes for b in buffers) <= BUDGET_BYTES // 4
    found = {}
    for buffer in buffers:
        dtype = DTYPES[buffer.dtype].numpy
        if small:
            values = np.arange(np.prod(buffer.shape)) % (2 if buffer.dtype == "bool" else 7)
            found[buffer.name] = values.astype(dtype).reshape(buffer.shape)
        else:
            found[buffer.name] = np.broadcast_to(np.zeros((), dtype), buffer.shape)
    return found


def _forget_peak() -> None:
    """Let the peak of this process's memory start again from what it has now, where the system can do that."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


def _peak_mib() -> int:
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) >> 10
    except (OSError, IndexError, ValueError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


# ---- worker processes -----------------------------------------------------------------------------------------


def work(pipe: Connection, seconds: float) -> None:
    """Judge what comes through the pipe until it closes. A timer ends the process, in compiled code too."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("error")  # a warning is text that the user of a verb would see
    with tempfile.TemporaryDirectory(prefix="tilewright-fuzz-") as name:
        folder = Path(name)
        prepare_process(folder)
        report = (folder / "stack").open("w+", encoding="utf-8")
        faulthandler.enable(report)
        for number in (signal.SIGPROF, signal.SIGALRM):
            faulthandler.register(number, report, all_threads=True, chain=True)
        pipe.send(report.name)
        while True:
            try:
                one = pipe.recv()
            except EOFError:
                report.close()
                return
            signal.setitimer(signal.ITIMER_PROF, seconds)
            signal.setitimer(signal.ITIMER_REAL, seconds * WAITING)
            verdict = judge(one, folder)
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
            pipe.send(verdict)


def prepare_process(folder: Path) -> None:
    """Lower the budgets, and do once what the first input should not be charged for: imports and compiled kernels."""
    from compiler.sim import memory, pipeline, shadow

    for module, name in ((memory, "MAX_HOST_BYTES"), (shadow, "MAX_SHADOW_BYTES"), (pipeline, "MAX_STATE_BYTES")):
        if not getattr(module, name) > BUDGET_BYTES:
            raise Broken(f"{module.__name__}.{name} is not the budget that it was")
        setattr(module, name, BUDGET_BYTES)
    for suffix, content in whole_files():
        verdict = judge(Input("whole", 0, suffix, content), folder)
        if verdict.fault or verdict.code:
            raise Broken(f"a file without damage (.{suffix}) is refused: {verdict}")


class Worker:
    """A process and the input that it is at."""

    def __init__(self, seconds: float) -> None:
        context = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, seconds), daemon=True)
        self.process.start()
        theirs.close()
        self.current: Input | None = None
        self.stack = Path(self.pipe.recv())

    def give(self, one: Input) -> None:
        self.current = one
        self.pipe.send(one)

    def result(self) -> Verdict | None:
        """The verdict on the current input; None where the process has died of it."""
        try:
            verdict: Verdict = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            return None
        self.current = None
        return verdict

    def post_mortem(self, seconds: float) -> Verdict:
        self.process.join()
        name = self.current.name if self.current else "?"
        code = self.process.exitcode or 0
        if -code in (signal.SIGPROF, signal.SIGALRM):
            fault = f"not done after {seconds:g} s" + (
                " of processor time" if -code == signal.SIGPROF else " of waiting"
            )
        else:
            fault = f"the process died: {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"
        stack = self.stack.read_text(encoding="utf-8").splitlines() if self.stack.exists() else []
        frames = [line.strip() for line in stack if line.startswith("  File")][:4]
        return Verdict(name, 70, fault="; ".join([fault, *frames]), seconds=seconds)

    def close(self) -> None:
        self.pipe.close()
        self.process.join()


def judged(inputs: Iterable[Input], workers: int, seconds: float = SECONDS) -> Iterator[tuple[Input, Verdict]]:
    """The verdict on every input, as they come; a worker that dies is replaced."""
    waiting = iter(inputs)
    pool = [Worker(seconds) for _ in range(workers)]
    try:
        for worker in pool:
            if (one := next(waiting, None)) is not None:
                worker.give(one)
        while busy := [worker for worker in pool if worker.current]:
            for pipe in wait([worker.pipe for worker in busy]):
                worker = next(w for w in busy if w.pipe is pipe)
                one = worker.current
                verdict = worker.result()
                if verdict is None:
                    verdict = worker.post_mortem(seconds)
                    pool[pool.index(worker)] = worker = Worker(seconds)
                if one is not None:
                    yield one, verdict
                if (following := next(waiting, None)) is not None:
                    worker.give(following)
    finally:
        for worker in pool:
            worker.close()


# ---- the command line -------------------------------------------------------------------------------------------


def command_lines(seed: int, folder: Path) -> Iterator[tuple[list[str], str]]:
    """Verbs on damaged files, each in a process of its own; and what was wrong with how it ended."""
    rng = Random(f"{seed} command lines")
    by_suffix = {
        "twm": (["inspect", "{}"], ["disasm", "{}"], ["exec", "{}", "--random-inputs", "1", "--max-steps", "5000"]),
        "twasm": (["asm", "{}", "--check"], ["exec", "{}", "--hazards", "--max-steps", "5000", "--chip", "tiny"]),
        "toml": (["chips", "{}"], ["exec", str(seeds()[0].path), "--chip", "{}", "--max-steps", "5000"]),
        "npy": (["exec", str(seeds()[0].path), "--chip", "tiny", "--input", "a={}", "--input", "b={}"],),
    }
    for kind in KINDS:
        one = mutation(kind, rng.randrange(10**6), seed)
        path = folder / f"{kind.name.replace(' ', '-')}.{kind.suffix}"
        path.write_bytes(one.content)
        for words in by_suffix[kind.suffix]:
            command = [word.replace("{}", str(path)) for word in words]
            yield command, _fault_of(command)


def _fault_of(command: list[str]) -> str:
    try:
        done = subprocess.run(
            [sys.executable, "-m", "compiler.cli.main", *command],
            cwd=ROOT, capture_output=True, text=True, errors="backslashreplace", timeout=60, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "not done after 60 s"
    if done.returncode not in (0, *REFUSALS):
        return f"exit code {done.returncode}: {done.stderr[-300:]}"
    if "Traceback" in done.stderr or "Warning" in done.stderr:
        return f"a traceback or a warning: {done.stderr[-300:]}"
    if done.returncode and "error[TW" not in done.stderr and not done.stdout:
        return f"exit code {done.returncode} without a word"
    return ""


# ---- the job ----------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """The verdicts of one kind of input."""

    inputs: int = 0
    ran: int = 0
    codes: dict[int, int] = field(default_factory=dict)
    slowest: float = 0.0
    memory_mib: int = 0
    faults: int = 0

    def add(self, verdict: Verdict) -> None:
        self.inputs += 1
        self.ran += verdict.ran
        self.slowest = max(self.slowest, verdict.seconds)
        self.memory_mib = max(self.memory_mib, verdict.memory_mib)
        if verdict.fault:
            self.faults += 1
        else:
            self.codes[verdict.code] = self.codes.get(verdict.code, 0) + 1


def inputs_for(mutations: int, seed: int) -> Iterator[Input]:
    yield from truncations()
    yield from mislabelled()
    whole = sum(kind.share for kind in KINDS)
    for kind in KINDS:
        for number in range(-(-mutations * kind.share // whole)):
            yield mutation(kind, number, seed)


def run(mutations: int, seed: int, workers: int) -> int:
    started = time.monotonic()
    tallies: dict[str, Tally] = {}
    faults: list[Verdict] = []
    for one, verdict in judged(inputs_for(mutations, seed), workers):
        tallies.setdefault(one.kind, Tally()).add(verdict)
        if verdict.fault:
            faults.append(verdict)
    with tempfile.TemporaryDirectory(prefix="tilewright-fuzz-") as folder:
        commands = list(command_lines(seed, Path(folder)))
    print_table(tallies)
    print(
        f"\nlimits for one input: {SECONDS:g} s of processor time, {MEMORY_MIB} MiB; {MAX_STEPS} instructions in each "
        f"engine, {BUDGET_BYTES >> 20} MiB each for memories, for shadows, for flags"
    )
    broken = [f"tilewright {' '.join(words)}: {fault}" for words, fault in commands if fault]
    print(f"command lines: {len(commands)}, of which end badly: {len(broken)}")
    for verdict in sorted(faults, key=lambda v: v.name)[:100]:
        print(f"FAILED: {verdict.name}: {verdict.fault}")
    for text in broken:
        print(f"FAILED: {text}")
    if faults:
        print(f"repeat one by: python -m ci.fuzz --seed {seed} --replay '{faults[0].name}'")
    total = sum(tally.inputs for tally in tallies.values())
    seconds = time.monotonic() - started
    print(f"\n{total} inputs, {len(faults) + len(broken)} failures, seed {seed}, {seconds:.0f} s")
    return 1 if faults or broken else 0


def print_table(tallies: dict[str, Tally]) -> None:
    width = max(map(len, tallies)) + 2
    used = [code for code in REFUSALS if any(code in tally.codes for tally in tallies.values())]
    names = {code: EXIT_CODES[code].partition(":")[0] for code in used}
    heads = "".join(f"{names[code]:>14}" for code in used)
    print(f"{'kind':{width}}{'inputs':>7}{'ran':>7}{'accepted':>10}{heads}{'failed':>8}{'slowest':>9}{'peak':>10}")
    for kind, tally in tallies.items():
        cells = "".join(f"{tally.codes.get(code) or '-':>14}" for code in used)
        print(
            f"{kind:{width}}{tally.inputs:>7}{tally.ran:>7}{tally.codes.get(0, 0):>10}{cells}{tally.faults or '-':>8}"
            f"{tally.slowest:>7.2f} s{tally.memory_mib:>6} MiB"
        )


def replay(name: str, seed: int, keep: Path | None) -> int:
    """One input again, in this process, under the same budgets and with a traceback."""
    kind_name, _, number = name.rpartition("/")
    kind = next((kind for kind in KINDS if kind.name == kind_name), None)
    if kind is not None:
        one = mutation(kind, int(number), seed)
    else:
        one = next(one for one in (*truncations(), *mislabelled()) if one.name == name)
    if keep is not None:
        keep.write_bytes(one.content)
        print(f"{keep}: {len(one.content)} bytes")
        return 0
    with tempfile.TemporaryDirectory(prefix="tilewright-fuzz-") as folder:
        prepare_process(Path(folder))
        warnings.simplefilter("error")
        path = Path(folder) / f"input.{one.suffix}"
        path.write_bytes(one.content)
        faulthandler.dump_traceback_later(2 * SECONDS, exit=True)
        _use(path, one.suffix, Verdict(one.name))
    print("accepted")
    return 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ci.fuzz", description=__doc__)
    parser.add_argument("--mutations", type=int, default=10_000, metavar="N", help="damaged inputs in all")
    parser.add_argument("--seed", type=int, default=SEED, metavar="N")
    parser.add_argument("--workers", type=int, default=processors(), metavar="N", help="processes")
    parser.add_argument("--replay", metavar="KIND/NUMBER", help="repeat one input in this process")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="with --replay: only write the input to a file")
    options = parser.parse_args(arguments)
    if options.replay:
        return replay(options.replay, options.seed, options.keep)
    return run(options.mutations, options.seed, options.workers)


if __name__ == "__main__":
    sys.exit(main())
