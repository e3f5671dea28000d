"""What each optimisation is good for: the models of the zoo with all of them, and with each one left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from multiprocessing import get_context

from ci.performance.measure import Measured, measure
from ci.performance.tables import geometric_mean, markdown
from models import zoo

SWITCHES: Mapping[str, str] = {
    "double-buffer": "double buffering",
    "shift-addresses": "bank shifting",
    "minimise-sync": "sync minimisation",
    "share-loads": "loads shared by a cluster",
    "overlap": "cross-kernel overlap",
    "fetches": "loads for kernels behind others",
    "llb-placement": "what lives between kernels in LLB",
    "learned-ranking": "learned ranking",
    "timed-rivals": "rivals simulated",
    "split-k": "long sums in parts",
    "split-rows": "long rows in parts",
    "split-scatters": "copies for scatters by all cores",
    "split-stages": "products with what they read made before",
    "keep-in-l1": "several convolutions in one kernel",
    "sum-rows-on-cube": "rows summed by the matrix unit",
}
ALL = ""
PASSES = {"shift-addresses": frozenset({"shift-addresses", "pad-rows"})}  # what a switch stands for, if for several


@dataclass(frozen=True)
class Row:
    """A model on a chip with everything (under ``ALL``) and with each switch off."""

    model: str
    chip: str
    measured: Mapping[str, Measured]


def row(name: str, chip: str, switches: Sequence[str]) -> Row:
    manifest = zoo.manifest(name)
    model = zoo.build(name)
    shapes = {each.name: each.shape for each in manifest.inputs if each.symbols}
    found = {}
    for switch in (ALL, *switches):
        without = PASSES.get(switch, frozenset({switch} - {ALL}))
        found[switch] = measure(model, chip, without=without, shapes=shapes, inputs=zoo.inputs(name), hazards=True)
    return Row(name, chip, found)


def rows(names: Sequence[str], chips: Sequence[str], switches: Sequence[str], jobs: int) -> Iterator[Row]:
    chosen = [
        (name, chip)
        for name in zoo.measured()
        if not names or any(fnmatchcase(name, pattern) for pattern in names)
        for chip in chips
    ]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        yield from pool.map(row, *zip(*((*each, switches) for each in chosen), strict=True)) if chosen else ()


def head(switches: Sequence[str]) -> tuple[str, ...]:
    return ("model", "chip", "cycles", *(f"without {SWITCHES[each]}" for each in switches))


def cells(one: Row) -> tuple[str, ...]:
    base = one.measured[ALL].cycles
    ratios = (f"{measured.cycles / base:.3f}x" for switch, measured in one.measured.items() if switch != ALL)
    return one.model, one.chip, f"{base:,}", *ratios


def summary(found: Sequence[Row], switches: Sequence[str]) -> list[str]:
    lines = []
    for switch in switches:
        mean = geometric_mean(one.measured[switch].cycles / one.measured[ALL].cycles for one in found)
        lines.append(f"without {SWITCHES[switch]}: {mean:.3f}x the cycles (geometric mean over {len(found)} cases)")
    if "shift-addresses" in switches:
        before, after = (_conflict_share(found, which) for which in ("shift-addresses", ALL))
        lines.append(f"bank conflicts: {before} without shifting, {after} with it")
    if "minimise-sync" in switches:
        before, after = (sum(one.measured[which].syncs for one in found) for which in ("minimise-sync", ALL))
        lines.append(f"synchronising instructions that run: {before:,} without minimisation, {after:,} with it")
    hazards = sum(measured.hazards for one in found for measured in one.measured.values())
    return [*lines, f"hazards in all of these runs: {hazards}"]


def _conflict_share(found: Sequence[Row], switch: str) -> str:
    lost = sum(one.measured[switch].conflict_cycles for one in found)
    vector = sum(one.measured[switch].vector_cycles for one in found)
    return f"{lost:,} of {vector:,} vector cycles ({lost / max(1, vector):.2%})"


def section(found: Sequence[Row], switches: Sequence[str]) -> str:
    lines = "\n".join(f"- {line}" for line in summary(found, switches))
    return "\n\n".join([markdown(head(switches), map(cells, found)), lines])
