"""When a loop has come to do the same in every period of its turns, and for how many more it will."""

from __future__ import annotations

import numpy as np

from compiler.cost.growth import FREE, TAKEN, Q, S
from compiler.isa.jit import inlined

# Columns of a loop on the stack.
FIRST, END, TRIPS, COUNT, COUNTER, SEEN = range(6)
TURNS_KEPT = 24
MARKS_KEPT = 96  # branches and inner loops of a turn
PERIODS = (1, 2, 3, 4, 6)
AGREEING = 0.003  # of a period: how far the clocks may be apart in a steady state
# Turns after which a loop that has not settled is taken to go on as it did on average.
PATIENCE, LAST_PATIENCE, AVERAGED, NEARLY = 20, 64, 8, 0.05


@inlined
def hashed(before, value):  # type: ignore[no-untyped-def]
    h = (before ^ np.uint64(value)) * np.uint64(0xBF58476D1CE4E5B9)
    return h ^ (h >> np.uint64(29))


@inlined
def mark(loops, depth, traces, mark_count, marks, key, difference):  # type: ignore[no-untyped-def]
    """Note what decides the way in all loops around that see it: inner loops show their first and last turn only."""
    for level in range(depth - 1, -1, -1):
        traces[level] = hashed(traces[level], key)
        if mark_count[level] < MARKS_KEPT:
            marks[level, (loops[level, SEEN] + 1) % TURNS_KEPT, mark_count[level]] = difference
        mark_count[level] += 1
        count = loops[level, COUNT]
        if count != 0 and count != loops[level, TRIPS] - 1:
            break


@inlined
def _same_way(level, seen, period, traces_kept):  # type: ignore[no-untyped-def]
    for turn in range(period):
        last, earlier = (seen - turn) % TURNS_KEPT, (seen - turn - period) % TURNS_KEPT
        if traces_kept[level, last] != traces_kept[level, earlier]:
            return False
    return True


@inlined
def _passed(level, earlier, later, since, grown):  # type: ignore[no-untyped-def]
    """(fewest, most) cycles that queues in use since a turn have gone on between two turns."""
    fewest = most = grown[level, later, FREE + S] - grown[level, earlier, FREE + S]
    for q in range(Q):
        if grown[level, later, TAKEN + q] != grown[level, since, TAKEN + q]:
            cycles = grown[level, later, FREE + q] - grown[level, earlier, FREE + q]
            fewest, most = min(fewest, cycles), max(most, cycles)
    return fewest, most


@inlined
def period_of(level, seen, grown, traces_kept):  # type: ignore[no-untyped-def]
    """(turns of a period of the steady state, its cycles); (0, 0) where the loop is not in one."""
    now = seen % TURNS_KEPT
    for period in PERIODS:
        if seen <= 2 * period:
            break
        if not _same_way(level, seen, period, traces_kept):
            continue
        before, first = (seen - period) % TURNS_KEPT, (seen - 2 * period) % TURNS_KEPT
        fewest, most = _passed(level, before, now, first, grown)
        earlier_fewest, earlier_most = _passed(level, first, before, first, grown)
        if max(most, earlier_most) - min(fewest, earlier_fewest) <= max(0.5, most * AGREEING):
            return period, most
    if seen >= PATIENCE and seen % AVERAGED == PATIENCE % AVERAGED:
        before, first = (seen - AVERAGED) % TURNS_KEPT, (seen - 2 * AVERAGED) % TURNS_KEPT
        fewest, most = _passed(level, before, now, first, grown)
        earlier_fewest, earlier_most = _passed(level, first, before, first, grown)
        if max(most, earlier_most) - min(fewest, earlier_fewest) <= NEARLY * most or seen >= LAST_PATIENCE:
            return AVERAGED, most
    return 0, 0.0


@inlined
def turns_alike(level, seen, period, mark_count, marks):  # type: ignore[no-untyped-def]
    """For how many more periods every branch of the loop goes the way it went, by its operands' steady growth."""
    least = np.int64(2**62)
    for turn in range(period):
        now, before = (seen - turn) % TURNS_KEPT, (seen - turn - period) % TURNS_KEPT
        for m in range(min(mark_count, MARKS_KEPT)):
            value = marks[level, now, m]
            growth = value - marks[level, before, m]
            if growth == 0:
                continue
            if value == 0 or (value > 0) == (growth > 0):
                periods = np.int64(0) if value == 0 else np.int64(2**62)
            else:
                periods = (abs(value) - 1) // abs(growth)
            least = min(least, periods)
    return least
