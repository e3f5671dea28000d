"""Assemble, check and run a matrix multiplication on both generations, and show what it cost: `python -m ci.demo`."""

from __future__ import annotations

import sys

from compiler.errors import HazardError, TilewrightError
from compiler.isa.verifier import verify
from compiler.sim.simulator import Run, simulate
from compiler.sim.statistics import statistics, table
from tests.handwritten import Arrays, Case
from tests.handwritten.gemm import CASES

SHOWN = ("gemm-tw2-1024", "gemm-tw1-1024")


def run(case: Case) -> tuple[Run, Arrays]:
    """The finished run and its inputs; a program that is illegal or has a hazard raises."""
    verify(case.program, case.chip)
    inputs = case.inputs()
    finished = simulate(case.program, case.chip, inputs, hazards=True)
    if finished.hazards:
        raise HazardError(finished.hazards)
    return finished, inputs


def report(case: Case, finished: Run, inputs: Arrays) -> str:
    """Raises AssertionError where a result is wrong."""
    case.check(inputs, finished.outputs)
    shapes = ", ".join(f"{name} {'x'.join(map(str, array.shape))} {array.dtype}" for name, array in inputs.items())
    return "\n".join([
        f"{case.name}: {case.source}, {len(case.program.instrs)} instructions",
        f"inputs: {shapes}",
        f"results: equal to numpy's in float64 within {case.rtol:g} of each + {case.atol:g}; hazards: none",
        "",
        table(statistics(finished)),
    ])  # fmt: skip


def main() -> int:
    failed = 0
    for case in sorted((case for case in CASES if case.name in SHOWN), key=lambda case: SHOWN.index(case.name)):
        try:
            print(report(case, *run(case)), end="\n\n")
        except (AssertionError, TilewrightError) as error:
            print(f"{case.name} failed: {error}", file=sys.stderr)
            failed = 1
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
