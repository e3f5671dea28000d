"""Random cases, compiled, run on the emulated chip free of hazards, and compared: `python -m ci.random_cases KIND`.

``kernels`` are TE kernels (:mod:`ci.random_kernels`), ``products`` those of parts of matrices
(:mod:`tests.tiling.random_products`), ``contractions`` sums of products over any axes
(:mod:`tests.tiling.random_contractions`), ``chains`` convolutions that share a kernel
(:mod:`tests.tiling.random_chains`, :mod:`tests.tiling.random_pairs`), one with what makes its map
(:mod:`tests.tiling.random_prepared`) or pools its result (:mod:`tests.tiling.random_pooled`), or products that do
(:mod:`tests.tiling.random_product_rows`), ``networks`` such of convolutions and more that run in bands
(:mod:`tests.schedule.random_networks`), ``sections`` such that clusters run each on some rows
(:mod:`tests.schedule.random_sections`), ``transformers`` blocks of these (:mod:`tests.tiling.random_transformers`),
``quantised`` networks of integers (:mod:`tests.frontend.random_quantised`), ``chips`` models of the zoo on machines
with other numbers (:mod:`tests.target.random_chips`). Prints, for a failure, the seed that repeats it, and counts what
it met.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module

KINDS = {
    "kernels": "ci.random_kernels",
    "products": "tests.tiling.random_products",
    "contractions": "tests.tiling.random_contractions",
    "chains": "tests.tiling.random_chains",
    "networks": "tests.schedule.random_networks",
    "sections": "tests.schedule.random_sections",
    "transformers": "tests.tiling.random_transformers",
    "quantised": "tests.frontend.random_quantised",
    "chips": "tests.target.random_chips",
}
CHIPS = ("tw1", "tw2", "tiny")


@dataclass(frozen=True)
class Outcome:
    seed: int
    chip: str
    text: str  # "" where all is right
    counted: Counter[str] = field(default_factory=Counter)


Check = Callable[[int, str], Outcome]


def _check(kind: str) -> Check:
    found: Check = import_module(KINDS[kind]).check
    return found


def _job(case: tuple[str, int, str]) -> Outcome:
    kind, seed, chip = case
    return _check(kind)(seed, chip)


def outcomes(cases: list[tuple[str, int, str]], jobs: int) -> Iterator[Outcome]:
    if jobs == 1:
        yield from map(_job, cases)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(_job, cases, chunksize=4)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--count", type=int, default=1000, help="cases; each runs on one chip, in turn")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--chip", choices=CHIPS, help="all on this chip")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.count)
    cases = [(options.kind, seed, options.chip or CHIPS[seed % len(CHIPS)]) for seed in seeds]
    start, failures, counted = time.perf_counter(), 0, Counter[str]()
    for outcome in outcomes(cases, options.jobs):
        counted += outcome.counted
        if outcome.text:
            failures += 1
            print(f"seed {outcome.seed} on {outcome.chip}: {outcome.text}", flush=True)
    total = sum(counted.values()) or 1
    shares = ", ".join(f"{kind} {count} ({100 * count / total:.1f} %)" for kind, count in counted.most_common())
    print(f"{len(cases)} {options.kind} (seeds {seeds.start} to {seeds.stop - 1}), {failures} failures")
    print(f"{shares}\n{time.perf_counter() - start:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
