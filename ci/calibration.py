"""Hold the tw2 chip against public measurements of the part it is modelled on: `python -m ci.calibration [--write]`.

Every figure is measured by simulating a small program, the way it was measured on the board: the same thing many
times, and the difference between two repeat counts, so that start-up cancels. Writes docs/calibration.md, or without
--write fails if that page is not what these programs give now.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from compiler.isa.assembler import assemble
from compiler.isa.dtypes import Queue
from compiler.sim.simulator import Run, simulate
from compiler.target import load_chip

CHIP = load_chip("tw2")
PAGE = Path(__file__).parent.parent / "docs" / "calibration.md"
TOLERANCE = 0.15


@dataclass(frozen=True)
class Line:
    """One measurement beside its public value; ``lowest`` and ``highest`` are what is accepted."""

    what: str
    public: str
    simulated: float
    lowest: float
    highest: float
    source: str

    @property
    def holds(self) -> bool:
        return self.lowest <= self.simulated <= self.highest


def near(what: str, public: float, simulated: float, source: str) -> Line:
    return Line(what, f"{public:g}", simulated, public * (1 - TOLERANCE), public * (1 + TOLERANCE), source)


def run(text: str) -> Run:
    return simulate(assemble(text, chip=CHIP), CHIP)


def per_repeat(text: Callable[[int], str], few: int = 100, many: int = 300) -> float:
    """Cycles that one more repeat of a program's body costs."""
    return (run(text(many)).cycles - run(text(few)).cycles) / (many - few)


# ---- vector unit ------------------------------------------------------------------------------------------

BANK_BYTES = 1 << CHIP.vector.banks.bank_shift
HALF_THE_GROUPS = CHIP.block_bytes * CHIP.vector.banks.groups // 2


def add_cycles(dst: int, a: int, b: int) -> float:
    """One fp32 add of 64 repeats (4096 elements) with its operands at these UB addresses."""
    return per_repeat(
        lambda count: (
            f"""
            .cores 1
            loop x1, {count}, end
            vadd.fp32.1d [{dst}], [{a}], [{b}], <4096>
        end:
            halt
        """
        )
    )


def vector_lines() -> list[Line]:
    source = "1000 fp32 Add of 64 repeats on A2: 2390 / 4167 / 3751 ticks of 50 MHz at 1.85 GHz"
    apart = BANK_BYTES * 2 + HALF_THE_GROUPS
    return [
        near("fp32 add, 64 repeats, no bank conflict", 88, add_cycles(BANK_BYTES, 0, apart), source),
        near("... read-read conflict", 154, add_cycles(BANK_BYTES, 0, BANK_BYTES * 2), source),
        near("... read-write conflict", 139, add_cycles(BANK_BYTES // 2 + HALF_THE_GROUPS, 0, apart), source),
    ]


# ---- cube -------------------------------------------------------------------------------------------------


def cube_lines() -> list[Line]:
    cycles = per_repeat(
        lambda count: (
            f"""
            .cores 1
            loop x1, {count}, end
            mad.fp16 [0], [0], [0], <128, 256, 64>
        end:
            halt
        """
        )
    )
    return [near("128x64x256 fp16 mad", 522, cycles, "8192^3 GEMM on 910B1: 521.9 cycles per mad, 512 ideal")]


# ---- copies -----------------------------------------------------------------------------------------------


def copy_cycles(size_bytes: int, waited: bool) -> float:
    """One copy DDR -> UB, back to back or each waited for."""
    wait = "set_flag.mte2.v 0\n wait_flag.mte2.v 0\n set_flag.v.mte2 0\n wait_flag.v.mte2 0" if waited else ""
    return per_repeat(
        lambda count: (
            f"""
            .cores 1
            .input x ddr int8 {max(size_bytes, 512)}
            loop x1, {count}, end
            ld.ddr.ub.int8.1d [0], [x], <{size_bytes}>
            {wait}
        end:
            halt
        """
        )
    )


def copy_lines() -> list[Line]:
    sizes = np.array([4096, 8192, 16384, 32768, 49152])
    times = np.array([copy_cycles(int(size), waited=True) for size in sizes])
    slope, latency = np.polyfit(sizes, times, 1)
    residual = float(np.abs(times - (latency + slope * sizes)).max() / times.min())
    fit = "least-squares fit of the public cost model, GM -> UB: latency 214 cycles"
    rate = "GM -> UB alone: 100.9 GiB/s at 1.85 GHz"
    return [
        near("copy DDR -> UB, latency (intercept of time over bytes), cycles", 214, float(latency), fit),
        near("copy DDR -> UB, rate (slope), bytes per cycle", 58.6, float(1 / slope), rate),
        Line("... largest distance from that line", "latency + linear", residual, 0.0, 0.02, fit),
        near("128-byte copies back to back, cycles each", 20.6, copy_cycles(128, waited=False), "data_copy, 910B1"),
    ]


# ---- three stages -----------------------------------------------------------------------------------------

STAGE_BYTES = 24576


def stage_cycles() -> int:
    """What a load of STAGE_BYTES holds its queue, plus its latency: the length of each of the three stages."""
    path = CHIP.path["ddr_ub"]
    return path.latency_cycles + -(-STAGE_BYTES // path.bytes_per_cycle)


def three_stages(tiles: int, doubled: bool) -> Run:
    """Load, compute and store tiles that take equally long each.

    Single: one tile's space, computed in place, so the next load waits for the store. Doubled: two spaces for what
    comes in and two for what goes out.
    """
    path = CHIP.path["ub_ddr"]
    overhead = CHIP.vector.head_cycles + CHIP.vector.tail_cycles
    whole = STAGE_BYTES // CHIP.vector.bytes_per_cycle + overhead  # cycles of one pass over the tile
    rest = stage_cycles() % whole - overhead  # repeats that are left
    half_bytes = (stage_cycles() - path.latency_cycles) * path.bytes_per_cycle // 64 * 32
    # Who releases the space that the next load fills, and where results go.
    releaser, out, ids = ("v", f"x4 + {STAGE_BYTES}", "x3") if doubled else ("mte3", "x4", "0")
    spaces = range(2) if doubled else range(1)
    release = "\n".join(
        f"set_flag.{releaser}.mte2 {n}" + (f"\n set_flag.mte3.v {n}" if doubled else "") for n in spaces
    )
    collect = release.replace("set_flag", "wait_flag")
    return run(
        f"""
        .cores 1
        .input x ddr fp32 {STAGE_BYTES // 4}
        .output y ddr int8 {2 * half_bytes}
        {release}
        loop x2, {tiles}, end
        sand x3, x2, {len(spaces) - 1}
        smul x4, x3, {BANK_BYTES}
        wait_flag.{releaser}.mte2 {ids}
        ld.ddr.ub.fp32.1d [x4], [x], <{STAGE_BYTES // 4}>
        set_flag.mte2.v {ids}
        wait_flag.mte2.v {ids}
        {"wait_flag.mte3.v x3" if doubled else ""}
        ; the tile again and again, until the stage is as long as a load
        loop x5, {stage_cycles() // whole}, again
        vadds.fp32.1d [{out}], [x4], 1.0, <{STAGE_BYTES // 4}>
    again:
        vadds.fp32.1d [{out}], [x4], 1.0, <{rest * CHIP.vector.bytes_per_cycle // 4}>
        {"set_flag.v.mte2 x3" if doubled else ""}
        set_flag.v.mte3 {ids}
        wait_flag.v.mte3 {ids}
        st.ddr.int8.1d [y], [{out}], <{half_bytes}>
        st.ddr.int8.1d [y + {half_bytes}], [{out}], <{half_bytes}>
        set_flag.mte3.{"v" if doubled else "mte2"} {ids}
    end:
        {collect}
        halt
        """
    )


def stage_lines() -> list[Line]:
    tiles = 200
    single, double = (three_stages(tiles, doubled) for doubled in (False, True))
    busy = [float(each.schedule.busy[0, Queue.V] / each.cycles) for each in (single, double)]
    source = "public guidance: three equal stages give a vector utilisation of 1/3, double-buffered about 1"
    return [
        near("three equal stages, single-buffered: vector busy", 1 / 3, busy[0], source),
        Line("... double-buffered: vector busy", "at least 0.9", busy[1], 0.9, 1.0, source),
    ]


# ---- a whole GEMM -----------------------------------------------------------------------------------------


def gemm_lines() -> list[Line]:
    from tests.handwritten.gemm import CASES

    case = next(each for each in CASES if each.name == "gemm-tw2-6144")
    timed = simulate(case.program, case.chip)
    peak = case.chip.macs_per_cycle("fp16") * case.chip.cores
    efficiency = case.macs / (peak * timed.cycles)
    source = "6144^3 fp16 on 24 cores of A3: cube busy 86.7 %, 308 of 364 TFLOP/s"
    return [Line("GEMM 6144^3 fp16 without unitFlag: share of peak", "0.8 to 0.9", efficiency, 0.80, 0.90, source)]


def lines() -> list[Line]:
    return [*vector_lines(), *cube_lines(), *copy_lines(), *stage_lines(), *gemm_lines()]


def page(found: list[Line]) -> str:
    rows = [
        f"| {line.what} | {line.public} | {line.simulated:.4g} | {line.lowest:.4g} to {line.highest:.4g} "
        f"| {'yes' if line.holds else '**no**'} | {line.source} |"
        for line in found
    ]
    return "\n".join(
        [
            "# Calibration of tw2",
            "",
            "Generated by `make calibrate`. Cycles unless said otherwise; each row is a simulated program.",
            "",
            "| measurement | public | simulated | accepted | holds | source |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--write", action="store_true", help="write docs/calibration.md instead of comparing with it")
    options = parser.parse_args(argv)
    found = lines()
    text = page(found)
    print(text)
    if options.write:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        print("docs/calibration.md is out of date: run `python -m ci.calibration --write`", file=sys.stderr)
        return 1
    missed = [line.what for line in found if not line.holds]
    for what in missed:
        print(f"not within bounds: {what}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
