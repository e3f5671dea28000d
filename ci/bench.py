"""Measure how fast the emulation itself is: `python -m ci.bench [--check]`.

Figures that are compared are measured in turn, several rounds of each, and the median counts. What one core does is
measured in processor time, which other work on the machine disturbs less; what several cores or another process do,
in wall time. With --check a target that is missed is an error.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from threadpoolctl import threadpool_limits

from compiler.isa.assembler import assemble, assemble_file
from compiler.isa.encoding import decode, encode
from compiler.isa.program import Program
from compiler.sim.classes import check_bounds, classify
from compiler.sim.expand import expand
from compiler.sim.hazards import HazardReport
from compiler.sim.pipeline import schedule
from compiler.sim.simulator import prepare, simulate
from compiler.target import Chip, load_chip

ROOT = Path(__file__).parents[1]
ROUNDS = 5
CHIP = load_chip("tw2")


@dataclass(frozen=True)
class Figure:
    """One measurement beside its target, if it has one."""

    what: str
    value: float
    unit: str
    target: float | None = None
    at_most: bool = False  # else at least

    @property
    def margin(self) -> float:
        """How many times better than its target."""
        if self.target is None:
            return float("inf")
        return self.target / self.value if self.at_most else self.value / self.target

    @property
    def holds(self) -> bool:
        return self.margin >= 1

    def __str__(self) -> str:
        line = f"{self.what:62}{self.value:>10.4g} {self.unit:14}"
        if self.target is None:
            return line
        sign = "<=" if self.at_most else ">="
        return f"{line}{sign} {self.target:<8g}{'holds' if self.holds else 'MISSED':8}{self.margin:.1f}x"


def medians(
    *functions: Callable[[], object],
    rounds: int = ROUNDS,
    clock: Callable[[], float] = time.process_time,
    pause: float = 0.0,
) -> list[float]:
    """The median seconds of each function, measured in turn: after a pause, if there is one, each warms up again and is
    then called several times."""
    seconds: list[list[float]] = [[] for _ in functions]
    for _ in range(rounds):
        for function, taken in zip(functions, seconds, strict=True):
            if pause:
                time.sleep(pause)
                for _ in range(3):
                    function()
            for _ in range(4 if pause else 1):
                started = clock()
                function()
                taken.append(clock() - started)
    return [median(taken) for taken in seconds]


# ---- (a) and (b): timing and hazard checking -----------------------------------------------------------------

TRIPS = 200_000
TILE_ELEMS = 4096


def loop_program(trips: int = TRIPS) -> Program:
    """A double-buffered vector add over and over: two loads, an add and a store for each tile, eight flags, and the
    arithmetic that finds the tile's addresses."""
    slot_bytes, tile_bytes = 3 * TILE_ELEMS * 2, TILE_ELEMS * 2
    slots = "\n".join(f"set_flag.v.mte2 {n}\nset_flag.mte3.v {n}" for n in range(2))
    return assemble(
        f"""
        .cores 1
        .input a ddr fp16 {8 * TILE_ELEMS}
        .input b ddr fp16 {8 * TILE_ELEMS}
        .output c ddr fp16 {8 * TILE_ELEMS}
        .buffer tiles ub fp16 [2, 3, {TILE_ELEMS}]
        {slots}
        loop x1, {trips}, end
        sand x2, x1, 1
        smul x3, x2, {slot_bytes}
        sand x4, x1, 7
        smul x4, x4, {tile_bytes}
        wait_flag.v.mte2 x2
        ld.ddr.ub.fp16.1d [x3 + tiles], [x4 + a], <{TILE_ELEMS}>
        ld.ddr.ub.fp16.1d [x3 + tiles + {tile_bytes}], [x4 + b], <{TILE_ELEMS}>
        set_flag.mte2.v x2
        wait_flag.mte2.v x2
        wait_flag.mte3.v x2
        vadd.fp16.1d [x3 + tiles + {2 * tile_bytes}], [x3 + tiles], [x3 + tiles + {tile_bytes}], <{TILE_ELEMS}>
        set_flag.v.mte2 x2
        set_flag.v.mte3 x2
        wait_flag.v.mte3 x2
        st.ddr.fp16.1d [x4 + c], [x3 + tiles + {2 * tile_bytes}], <{TILE_ELEMS}>
        set_flag.mte3.v x2
    end:
        {slots.replace("set_flag", "wait_flag")}
        halt
        """,
        chip=CHIP,
    )


def pipeline_figures() -> Iterator[Figure]:
    program = loop_program()
    assert not prepare(program, CHIP, hazards=True).hazards
    timing, checked = medians(lambda: prepare(program, CHIP), lambda: prepare(program, CHIP, hazards=True))
    stream = expand(program, CHIP, 1)
    print(f"(a), (b): {stream.steps:,} dynamic instructions on one core: {stream.size:,} dispatched, the others scalar")
    million = stream.steps / 1e6
    yield Figure("(a) expand, classify, bounds and timing", million / timing, "M instr/s", 5)
    yield Figure("(b) the same with hazard checking", million / checked, "M instr/s", 0.5)
    classes = classify(stream, program, CHIP)
    timed = schedule(stream, classes, CHIP)
    report = HazardReport(stream, classes, timed, program, CHIP)
    parts: dict[str, Callable[[], object]] = {
        "expand": lambda: expand(program, CHIP, 1),
        "bounds": lambda: check_bounds(stream, classes, program, CHIP),
        "schedule": lambda: schedule(stream, classes, CHIP),
        "races": report.races,
        "leaks": report.leaks,
    }
    for name, seconds in zip(parts, medians(*parts.values()), strict=True):
        yield Figure(f"    of which {name}", seconds / stream.steps * 1e9, "ns each")


# ---- (c): data -------------------------------------------------------------------------------------------------


# After a product with several threads those that wait for the next one spin for some 30 ms, on the processor that
# whatever is measured next should have. After a pause, in turn, a processor that slept takes time to come back.
BLAS_SPIN_SECONDS = 0.1


def timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def gemm_figures() -> Iterator[Figure]:
    from tests.handwritten.gemm import CASES

    case = next(each for each in CASES if each.name == "gemm-tw2-1024")
    inputs = case.inputs()
    a, b = (inputs[name].astype(np.float32) for name in ("a", "b"))
    program, chip = case.program, case.chip
    run = prepare(program, chip, hazards=True)
    assert not run.hazards
    set_up = timed(lambda: prepare(program, chip, hazards=True))
    recorded = timed(run.record)
    first = timed(lambda: run.execute(inputs))
    case.check(inputs, run.outputs)

    def product() -> None:
        with threadpool_limits(1, "blas"):
            np.matmul(a, b)

    one, many, numpy_one, numpy_many = medians(
        lambda: run.execute(inputs, workers=1), lambda: run.execute(inputs), product, lambda: np.matmul(a, b),
        rounds=ROUNDS, clock=time.perf_counter, pause=BLAS_SPIN_SECONDS,
    )  # fmt: skip
    case.check(inputs, run.outputs)
    print(
        f"(c): GEMM 1024^3 on {chip.name}, {run.stream.size:,} dispatched instructions, executed again and again;\n"
        f"     numpy fp32 with its default threads {numpy_many * 1e3:.1f} ms, with one {numpy_one * 1e3:.1f} ms"
    )
    yield Figure("(c) GEMM 1024^3 by the default number of workers", many / numpy_many, "x numpy", 4, True)
    yield Figure("    by one worker", one / numpy_many, "x numpy")
    yield Figure("    one worker, numpy with one BLAS thread", one / numpy_one, "x numpy")
    yield Figure("    the default number of workers", many * 1e3, "ms")
    yield Figure("    one worker", one * 1e3, "ms")
    yield Figure("    the first one after set-up", first * 1e3, "ms")
    yield Figure("    set up once: expand, classify, time, check", set_up * 1e3, "ms")
    yield Figure("    set up once: record", recorded * 1e3, "ms")


# ---- (d): the command ------------------------------------------------------------------------------------------


def command_figures() -> Iterator[Figure]:
    add = str(ROOT / "docs" / "examples" / "add.twasm")

    def command(*words: str) -> Callable[[], object]:
        line = [sys.executable, "-m", "compiler.cli.main", *words]
        return lambda: subprocess.run(line, cwd=ROOT, check=True, capture_output=True)

    def python(code: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)

    names = {
        "(d) tilewright --help": command("--help"),
        "    python, nothing else": python(""),
        "    import compiler.isa.assembler": python("import compiler.isa.assembler"),
        "    import compiler.artifact": python("import compiler.artifact"),
        "    import compiler.sim.simulator": python("import compiler.sim.simulator"),
        "    tilewright asm --check": command("asm", add, "--chip", "tw2", "--check"),
        "    tilewright exec --hazards": command("exec", add, "--chip", "tw2", "--random-inputs", "1", "--hazards"),
    }
    for function in names.values():  # compiled kernels and byte code are there afterwards
        function()
    for name, seconds in zip(names, medians(*names.values(), clock=time.perf_counter), strict=True):
        yield Figure(name, seconds, "s", *((0.2, True) if "--help" in name else ()))


# ---- (e): programs as text and bytes -----------------------------------------------------------------------------


def text_figures() -> Iterator[Figure]:
    source = ROOT / "tests" / "handwritten" / "conv3x3_tw2.twasm"
    lines = 20_000
    body = "vadd.fp16.2d [x3 + 64; 128, 1], [x4 + 128; 128, 1], [512; 0, 1], <x5, 64>\nsmadd x3, x4, 128, x5\n"
    text = body * (lines // 2) + "halt\n"
    program = assemble(text, chip=CHIP)
    data = encode(program.instrs)
    assembled, encoded, decoded = medians(
        lambda: assemble(text, chip=CHIP), lambda: encode(program.instrs), lambda: decode(data), rounds=3
    )
    thousand = len(program.instrs) / 1e3
    yield Figure("(e) assemble", thousand / assembled, "k instr/s")
    yield Figure("    encode", thousand / encoded, "k instr/s")
    yield Figure("    decode", thousand / decoded, "k instr/s")
    yield Figure(
        "    assemble a program of 200 lines", 1e3 * medians(lambda: assemble_file(source, chip=CHIP))[0], "ms"
    )
    yield from _classify_figures(CHIP)


def _classify_figures(chip: Chip, count: int = 4000) -> Iterator[Figure]:
    """Classes are costed once each: here every dispatched instruction is one.

    A class costs less where an equal one was costed before, so each round has addresses of its own.
    """
    programs = [
        assemble(
            f".cores 1\nloop x1, {count}, end\nsmadd x2, x1, 32, {32 * n}\n"
            "vadds.fp16.1d [x2], [x2], 1.0, <128>\nend:\nhalt",
            chip=chip,
        )
        for n in range(ROUNDS)
    ]
    streams = iter([(program, expand(program, chip, 1)) for program in programs])

    def one() -> None:
        program, stream = next(streams)
        classify(stream, program, chip)

    (seconds,) = medians(one)
    yield Figure("    classify", count / seconds / 1e3, "k classes/s")


# ---- the job -----------------------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ci.bench", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 where a target is missed")
    options = parser.parse_args(arguments)
    simulate(loop_program(8), CHIP)  # compiled kernels are loaded before the first measurement
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{os.cpu_count()} processors ({platform.machine()}), Python {platform.python_version()}, load {load}\n")
    figures = [
        figure
        for group in (pipeline_figures, gemm_figures, command_figures, text_figures)
        for figure in group()
    ]  # fmt: skip
    print()
    for figure in figures:
        print(figure)
    missed = [figure.what.strip() for figure in figures if not figure.holds]
    print(
        f"\n{len(missed)} of {sum(f.target is not None for f in figures)} targets missed"
        + "".join(f"; {w}" for w in missed)
    )
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
