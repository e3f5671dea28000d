"""How long cores of several kinds take that share one memory, from how long each kind takes at any share of it.

Whoever is done leaves its part to the others, and so does, all along, who needs less than its part. Work that is left
goes on at the pace of the share that its core has now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

# Kinds that end this close together end together.
TOGETHER = 0.02
REFINED = 4  # times that a share is worked out again from what comes of it
# Kinds that take so much of the cycles of the slowest, walked apart, go together where they wait for one another: what
# one seems to wait for, another does meanwhile (of 89 kernels of operators on tw1 and tw2 the error is 3.6 % so, and
# 4.2 % with the pace of the slowest).
HELD_UP = 0.8
# Cores that do the same are in the same bursts for so long: of 77 kernels of the zoo on tw1, which share their loads,
# the error is least with 4,000 to 6,000.
ALIKE_CYCLES = 5_000


@dataclass(frozen=True)
class Pace:
    """Cycles of a core from beginning to end at some share of the bandwidth, and the bytes it moves."""

    cycles: float
    moved_bytes: float


# Of a kind of cores, at a share of one of so many equal parts.
PaceOf = Callable[[int, float], Pace]


def cycles_together(members: Mapping[int, int], pace_of: PaceOf) -> float:
    """Until the last core is done; ``members`` says how many cores there are of each kind."""
    left, now = dict.fromkeys(members, 1.0), 0.0
    while left:
        paces = _paces({kind: members[kind] for kind in left}, pace_of)
        ends = {kind: now + left[kind] * pace.cycles for kind, pace in paces.items()}
        until = min(ends.values())
        together = until + TOGETHER * until
        until = max(end for end in ends.values() if end <= together)
        left = {kind: left[kind] - (until - now) / paces[kind].cycles for kind in left if ends[kind] > together}
        now = until
    return now


def cycles_in_step(members: Mapping[int, int], pace_of: PaceOf, turns: float, bytes_per_cycle: float) -> float:
    """Until the last core is done, where all wait for one another on the way: nobody is early.

    Kinds that are nearly as slow as the slowest go at their mean pace.
    Of cores that move theirs in the same bursts, each one's part of the bandwidth is its part of the bytes. Where so
    many parts of the cores take ``turns`` in it, those of one part do, and of the others as many as are at it then. So
    it is with all cores as time goes on: their bursts come apart.
    """
    active = sum(members.values())
    even = {kind: pace_of(kind, active) for kind in members}
    moved = sum(members[kind] * pace.moved_bytes for kind, pace in even.items())
    least = HELD_UP * max(pace.cycles for pace in even.values())
    slow = {kind: members[kind] for kind in members if even[kind].cycles >= least}
    parts, pace = float(active), _mean(slow, pace_of, active)
    most = min(active, moved / max(1.0, pace.moved_bytes))
    for _ in range(REFINED):
        busy = min(1.0, pace.moved_bytes * parts / bytes_per_cycle / pace.cycles)
        in_turns = most / turns * (1 + (turns - 1) * busy)
        apart = max(0.0, 1 - ALIKE_CYCLES / pace.cycles)
        parts = min(in_turns, most - apart * (most - 1) * (1 - busy))
        pace = _mean(slow, pace_of, round(max(1.0, parts), 1))
    return max(pace.cycles, moved / bytes_per_cycle)


def _mean(members: Mapping[int, int], pace_of: PaceOf, parts: float) -> Pace:
    paces = [(count, pace_of(kind, parts)) for kind, count in members.items()]
    active = sum(members.values())
    return Pace(sum(n * one.cycles for n, one in paces) / active, sum(n * one.moved_bytes for n, one in paces) / active)


def _paces(members: Mapping[int, int], pace_of: PaceOf) -> dict[int, Pace]:
    """Of kinds that are all at work, first at even shares, then at shares in proportion to what each can use."""
    active = sum(members.values())
    even = {kind: pace_of(kind, active) for kind in members}
    if len(even) == 1:
        return even
    rates = {kind: pace.moved_bytes / pace.cycles for kind, pace in even.items()}
    used = sum(members[kind] * rate for kind, rate in rates.items())
    parts = {kind: max(1.0, used / max(rate, 1e-9)) for kind, rate in rates.items()}  # of no bytes, they are all of it
    return {
        kind: pace_of(kind, round(parts[kind], 1)) if parts[kind] < active * (1 - TOGETHER) else even[kind]
        for kind in members
    }
