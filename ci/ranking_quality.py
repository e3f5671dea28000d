"""How good the search picks tiles: `python -m ci.ranking_quality --chip tw1`, on kernels that nothing was learned from.

Of each kernel all tiles, or a sample of them, are lowered and timed on the simulator. *Pick* is how much longer the
pick of a ranking takes than the best of the sample: of the analytical cost alone, with what was learned, and of the
whole search, which also lowers a few tiles and asks the cycle model. A half of a sample is drawn from the first tiles
in order, so that its best is a good one; *Spearman*, the correlation of the ranks by predicted and by simulated cycles,
is that of the others, which are drawn from all tiles alike. One table has single operators, the other one fused kernels
of models. Fails where the search's mean pick is more than 3 % behind, or Spearman below 0.9, in one of them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, islice

import numpy as np

from ci.fused_shapes import drawn_fused
from ci.kernel_shapes import drawn, machine_of
from ci.tile_samples import in_processes, sampled, space_of
from compiler.kernel_pool import Job
from compiler.kernels import compile_kernel
from compiler.pipeline import Observer
from compiler.sim.expand import MAX_STEPS
from compiler.target import Chip, load_chip
from compiler.tiling.ranking import predicted_cycles, ranked
from compiler.timing import kernel_cycles

KERNELS, FUSED, TILES = 24, 12, 24
PICK_GATE, SPEARMAN_GATE = 0.03, 0.9
RANKINGS = {"analytical": False, "learned": True}


@dataclass(frozen=True)
class Quality:
    """Of one kernel; picks as shares of the best tile's cycles beyond it."""

    name: str
    tiles: int
    timed: int
    best_cycles: int
    picks: dict[str, float]
    spearman: dict[str, float]


def quality(job: Job, chip: Chip, count: int) -> Quality | None:
    """None where there is no choice."""
    chip = machine_of(job, chip)
    space = space_of(job, chip)
    if space is None:
        return None
    firsts = {name: ranked(space, chip, learned=learned)[0].tile for name, learned in RANKINGS.items()}
    found = sampled(job, chip, count, firsts.values())
    if sum(sample.at_random for sample in found.samples) < 3:
        return None
    cycles = {sample.tile: sample.cycles for sample in found.samples}
    searched = kernel_cycles(compile_kernel(job.func, job.schedule, chip, Observer(), job.name).code, chip, MAX_STEPS)
    best = min(searched, *cycles.values())
    picks = {name: cycles.get(tile, max(cycles.values())) / best - 1 for name, tile in firsts.items()}
    others = [sample for sample in found.samples if sample.at_random]
    works, simulated = [sample.work for sample in others], np.array([sample.cycles for sample in others])
    correlations = {
        name: spearman(predicted_cycles(works, chip, learned=learned, least=found.least), simulated)
        for name, learned in RANKINGS.items()
    }
    return Quality(job.name, found.tiles, len(cycles), best, picks | {"search": searched / best - 1}, correlations)


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Of ranks, equal values sharing the mean of theirs; tiles that all take as long are in order, however ranked."""
    ranks = [_ranks(values) for values in (a, b)]
    if ranks[1].std() == 0:
        return 1.0
    return 0.0 if ranks[0].std() == 0 else float(np.corrcoef(*ranks)[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    means: np.ndarray = (ends - (counts - 1) / 2)[inverse]
    return means


def means(found: Sequence[Quality]) -> dict[str, dict[str, float]]:
    names = ("analytical", "learned", "search")
    return {
        "pick": {name: float(np.mean([each.picks[name] for each in found])) for name in names},
        "worst pick": {name: max(each.picks[name] for each in found) for name in names},
        "spearman": {name: float(np.mean([each.spearman[name] for each in found])) for name in RANKINGS},
    }


def report(found: Sequence[Quality], chip: Chip) -> Iterator[str]:
    yield f"| {chip.name} | tiles | timed | best cycles | pick: analytical | learned | search | Spearman | learned |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    for each in found:
        picks = " | ".join(f"{each.picks[name]:+.1%}" for name in ("analytical", "learned", "search"))
        ranks = " | ".join(f"{each.spearman[name]:.2f}" for name in RANKINGS)
        yield f"| {each.name} | {each.tiles} | {each.timed} | {each.best_cycles:,} | {picks} | {ranks} |"
    mean = means(found)
    picks = " | ".join(f"{mean['pick'][name]:+.1%}" for name in ("analytical", "learned", "search"))
    ranks = " | ".join(f"{mean['spearman'][name]:.2f}" for name in RANKINGS)
    yield f"| mean | | | | {picks} | {ranks} |"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chip", default="tw1")
    parser.add_argument("--kernels", type=int, default=KERNELS, help="held-out single operators (default: %(default)s)")
    parser.add_argument("--fused", type=int, default=FUSED, help="held-out fused kernels (default: %(default)s)")
    parser.add_argument("--tiles", type=int, default=TILES, help="tiles of each at most (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="processes that time tiles (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="for programs")
    options = parser.parse_args(arguments)
    chip = load_chip(options.chip)
    drawn_jobs = {
        "single": drawn(options.kernels, held_out=True, seed=1),
        "fused": drawn_fused(options.fused, chip, held_out=True, seed=1),
    }
    judged = in_processes(
        partial(quality, chip=chip, count=options.tiles), [*chain(*drawn_jobs.values())], options.jobs
    )
    tables = {kind: [found for found in islice(judged, len(of)) if found] for kind, of in drawn_jobs.items()}
    if options.json:
        of = {
            kind: {"means": means(found), "kernels": [asdict(each) for each in found]} for kind, found in tables.items()
        }
        print(json.dumps({"chip": chip.name, **of}, indent=1))
    else:
        print("\n\n".join("\n".join(report(found, chip)) for found in tables.values()))
    return int(any(misses(means(found)) for found in tables.values()))


def misses(mean: dict[str, dict[str, float]]) -> bool:
    return mean["pick"]["search"] > PICK_GATE or mean["spearman"]["learned"] < SPEARMAN_GATE


if __name__ == "__main__":
    sys.exit(main())
