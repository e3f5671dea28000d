"""Whole models in fp16, at the batch of the zoo and at sixteen times that: cycles beside the lower bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from multiprocessing import get_context

from ci.performance.measure import Measured, measure
from ci.performance.tables import geometric_mean, markdown
from compiler.report.bounds import Bound
from compiler.report.model_bounds import model_bound
from compiler.target import load_chip
from models import zoo

CHIPS = ("tw1", "tw2")
BATCHES = (1, 16)
MEAN_LIMIT = 1.6


@dataclass(frozen=True)
class Row:
    model: str
    chip: str
    batch: int
    bound: Bound
    measured: Measured

    @property
    def ratio(self) -> float:
        return self.measured.cycles / self.bound.cycles


def row(name: str, chip: str, batch: int) -> Row:
    manifest = zoo.batched(name, batch)
    model, shapes = zoo.build(manifest), {each.name: each.shape for each in manifest.inputs if each.symbols}
    feeds = zoo.inputs(manifest)
    measured = measure(model, chip, shapes=shapes, inputs=feeds)
    return Row(name, chip, batch, model_bound(model, load_chip(chip), "fp16", shapes, feeds=feeds), measured)


def rows(names: Sequence[str], chips: Sequence[str], batches: Sequence[int], jobs: int) -> Iterator[Row]:
    chosen = [
        (name, chip, batch)
        for name in zoo.measured()
        if not names or any(fnmatchcase(name, pattern) for pattern in names)
        for chip in chips
        for batch in batches
    ]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        yield from pool.map(row, *zip(*chosen, strict=True)) if chosen else ()


HEAD = ("model", "chip", "batch", "cycles", "lower bound", "by", "ratio", "queue")


def cells(one: Row) -> tuple[str, ...]:
    return (
        one.model, one.chip, str(one.batch), f"{one.measured.cycles:,}", f"{one.bound.cycles:,.0f}", one.bound.by,
        f"{one.ratio:.2f}", one.measured.reason,
    )  # fmt: skip


def summary(found: Sequence[Row]) -> list[str]:
    lines = []
    for chip in dict.fromkeys(one.chip for one in found):
        for batch in dict.fromkeys(one.batch for one in found):
            mine = sorted((one for one in found if (one.chip, one.batch) == (chip, batch)), key=lambda one: -one.ratio)
            worst = ", ".join(f"{one.model} {one.ratio:.2f} ({one.measured.reason})" for one in mine[:3])
            mean = geometric_mean(one.ratio for one in mine)
            of_rates = geometric_mean(one.measured.cycles / one.bound.of_rates for one in mine)
            lines.append(
                f"{chip}, batch {batch}: geometric mean {mean:.2f} (target {MEAN_LIMIT}; {of_rates:.2f} of the bound "
                f"without latency); worst: {worst}"
            )
    return lines


def section(found: Sequence[Row]) -> str:
    return "\n\n".join([markdown(HEAD, map(cells, found)), "\n".join(f"- {line}" for line in summary(found))])
