"""How many flags and barriers a kernel needs: `python -m ci.sync_count` counts them before and after minimising.

Small random kernels of which one run is as all others. A flag counts once, its set and its wait together; those of
rings count apart, one for each pair of queues and direction. The minimum is the smallest part of what was put in
without which the hazard checker finds nothing, by trying: those that it misses when they alone are gone are in every
such part, and of the rest all parts are run, the small ones first.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from compiler.codegen import GraphBuffer, PlacedKernel, generate, link
from compiler.codegen.events import Reader
from compiler.codegen.ordering import Candidate, Order
from compiler.errors import HazardError
from compiler.sim.simulator import simulate
from compiler.target import Chip, load_chip
from passes.tir.allocate_memory import AllocateMemory
from passes.tir.double_buffer import DoubleBuffer
from passes.tir.insert_sync import InsertSync
from passes.tir.minimise_sync import MinimiseSync, without
from tests.codegen.random_kernels import ARGUMENTS, ROLES, inputs, random_kernel

CHIPS = ("tiny", "tw1", "tw2")
MOST_OPEN = 12  # flags that the checker can do without one at a time; more of them are too many parts to try


@dataclass(frozen=True)
class Count:
    """Flags and barriers of one kernel, but for those of rings."""

    seed: int
    chip: str
    put_in: int
    left: int
    minimum: int
    of_rings: int


def counted(seed: int, chip: Chip) -> Count:
    kernel = random_kernel(seed, local=seed % 2 == 0, fixed=True, most=4)
    synced = InsertSync().run(AllocateMemory().run(DoubleBuffer().run(kernel, chip), chip), chip)
    order = _order(synced, chip)
    found = list(order.candidates())
    left = list(_order(MinimiseSync().run(synced, chip), chip).candidates())
    of_rings = sum(len(ring.flags) for ring in order.rings.of_turn.values())
    return Count(seed, chip.name, len(found), len(left), _minimum(synced, found, seed, chip), of_rings)


def _order(func: Any, chip: Chip) -> Order:
    reader = Reader(chip, synchronised=True)
    return Order(reader.kernel(func), reader.events, chip.event_ids)


def _minimum(func: Any, found: Sequence[Candidate], seed: int, chip: Chip) -> int:
    """The size of the smallest part that the hazard checker is content with; -1 where it cannot be told."""

    def enough(gone: Sequence[Candidate]) -> bool:
        statements = {step.statement for candidate in gone for step in candidate.steps}
        return not hazards(func.with_body(without(func.body, statements)), seed, chip)

    free = [candidate for candidate in found if enough([candidate])]
    if len(free) > MOST_OPEN:
        return -1
    for size in range(len(free), 0, -1):
        if any(enough(part) for part in combinations(free, size)):
            return len(found) - size
    return len(found)


def hazards(func: Any, seed: int, chip: Chip) -> bool:
    """Whether the checker finds anything in a run of a kernel."""
    code = generate(func, chip)
    buffers = [GraphBuffer(p.name, p.dtype, p.shape, p.size_bytes, ROLES[p.name]) for p in code.parameters]
    program = link([PlacedKernel("kernel", code, ARGUMENTS)], chip, buffers).program
    try:
        return bool(simulate(program, chip, inputs(seed), hazards=True).hazards)
    except HazardError:
        return True


def counts(first: int, number: int) -> Iterator[Count]:
    for seed in range(first, first + number):
        yield counted(seed, load_chip(CHIPS[seed % len(CHIPS)]))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ci.sync_count", description=__doc__)
    parser.add_argument("--count", type=int, default=25, help="kernels; each on one chip, in turn")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    print("seed  chip  put in  left  minimum  of rings")
    found = list(counts(options.first, options.count))
    for count in found:
        minimum = count.minimum if count.minimum >= 0 else "-"
        print(
            f"{count.seed:>4}  {count.chip:<4}  {count.put_in:>6}  {count.left:>4}  {minimum:>7}  {count.of_rings:>8}"
        )
    known = [count for count in found if count.minimum >= 0]
    put_in, left, minimum = (sum(getattr(c, name) for c in known) for name in ("put_in", "left", "minimum"))
    print(f"{len(known)} of {len(found)} kernels with a minimum: put in {put_in}, left {left}, minimum {minimum}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
