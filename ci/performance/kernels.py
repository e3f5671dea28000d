"""Every operator of the list on every chip: cycles, the lower bound, and the hand-written program if there is one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from multiprocessing import get_context
from typing import Any

from ci.performance.measure import Measured, measure
from ci.performance.operators import OPERATORS, Operator
from ci.performance.tables import geometric_mean, markdown
from compiler.report.bounds import Bound
from compiler.target import load_chip

CHIPS = ("tw1", "tw2")
MEAN_LIMIT, WORST_LIMIT = 1.15, 1.5


@dataclass(frozen=True)
class Row:
    """One operator on one chip."""

    operator: str
    family: str
    chip: str
    bound: Bound
    measured: Measured
    handwritten: int | None = None

    @property
    def ratio(self) -> float:
        return self.measured.cycles / self.bound.cycles


def row(name: str, chip: str, tune: int | None = None) -> Row:
    operator = next(each for each in OPERATORS if each.name == name)
    return Row(
        name,
        operator.family,
        chip,
        operator.bound(load_chip(chip)),
        measure(operator.model(), chip, tune=tune),
        _handwritten_cycles(operator, chip),
    )


def _handwritten_cycles(operator: Operator, chip: str) -> int | None:
    from compiler.sim.simulator import simulate
    from tests.handwritten import cases

    if not operator.handwritten:
        return None
    name = operator.handwritten.format(chip=chip)
    found = [case for case in cases() if case.name == name]
    return simulate(found[0].program, found[0].chip).cycles if found else None


def rows(names: Sequence[str], chips: Sequence[str], jobs: int, tune: int | None = None) -> Iterator[Row]:
    """In the order of the list; a name may be a pattern, and no name stands for all."""
    chosen = [
        (each.name, chip, tune)
        for each in OPERATORS
        if not names or any(fnmatchcase(each.name, name) for name in names)
        for chip in chips
    ]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(row, *zip(*chosen, strict=True)) if chosen else ()


def cells(one: Row) -> tuple[str, ...]:
    by_hand, cycles = one.handwritten, one.measured.cycles
    compared = "" if by_hand is None else f"{by_hand:,} ({cycles / by_hand:.3f})"
    reason = one.measured.reason if one.ratio > WORST_LIMIT else ""
    return (
        one.operator, one.chip, f"{cycles:,}", f"{one.bound.cycles:,.0f}", one.bound.by,
        f"{one.ratio:.3f}", compared, reason,
    )  # fmt: skip


HEAD = ("operator", "chip", "cycles", "lower bound", "by", "ratio", "hand-written (ratio)", "why above 1.5")


def summary(found: Iterable[Row]) -> list[str]:
    everything = list(found)
    lines = []
    for chip in dict.fromkeys(one.chip for one in everything):
        mine = [one for one in everything if one.chip == chip]
        worst = max(mine, key=lambda one: one.ratio)
        over = sum(one.ratio > WORST_LIMIT for one in mine)
        lines.append(
            f"{chip}: geometric mean {geometric_mean(one.ratio for one in mine):.3f} (target {MEAN_LIMIT}), "
            f"worst {worst.ratio:.2f} ({worst.operator}), {over} of {len(mine)} above {WORST_LIMIT}"
        )
        families = {
            family: geometric_mean(one.ratio for one in mine if one.family == family)
            for family in dict.fromkeys(one.family for one in mine)
        }
        lines.append("  by family: " + ", ".join(f"{family} {mean:.3f}" for family, mean in families.items()))
    compared = [one for one in everything if one.handwritten is not None]
    slower = [f"{one.operator} on {one.chip}" for one in compared if one.measured.cycles > (one.handwritten or 0)]
    text = f"hand-written programs: {len(compared) - len(slower)} of {len(compared)} are met or beaten"
    return [*lines, text + (f"; not {', '.join(slower)}" if slower else "")]


def section(found: Sequence[Row]) -> str:
    return "\n\n".join([markdown(HEAD, map(cells, found)), "\n".join(f"- {line.strip()}" for line in summary(found))])


def as_json(found: Iterable[Row]) -> Mapping[str, Any]:
    return {
        f"{one.operator}/{one.chip}": {
            "cycles": one.measured.cycles,
            "bound": one.bound.cycles,
            "by": one.bound.by,
            "handwritten": one.handwritten,
            "ddr_bytes": one.measured.ddr_bytes,
            "busiest": one.measured.busiest,
            "busy_share": round(one.measured.busy_share, 4),
        }
        for one in found
    }
