"""How the transfers that a core has under way share what is the core's part of DDR and LLB."""

from __future__ import annotations

import numpy as np

from compiler.cost.growth import Q
from compiler.isa.jit import inlined


@inlined
def share(under_way, rate, uses, part, limits, rates):  # type: ignore[no-untyped-def]
    """The rate of every queue's transfer: what it could alone, or a max-min fair part of what the memories leave.

    ``part`` of its rate is taken from DDR: other clusters take the rest for theirs.
    """
    for q in range(Q):
        rates[q] = rate[q] if under_way[q] else 0.0
    for memory in range(2):
        total = 0.0
        for q in range(Q):
            if under_way[q] and uses[q] >> memory & 1:
                total += rates[q] * (part[q] if memory == 0 else 1.0)
        if total > limits[memory]:
            _lower(under_way, uses, part, memory, limits[memory], rates)


@inlined
def _lower(under_way, uses, part, memory, limit, rates):  # type: ignore[no-untyped-def]
    """Those that need less than an even part of what is left get what they need."""
    settled = np.zeros(Q, np.bool_)
    left, fair, changed = limit, 0.0, True
    while changed:
        changed = False
        waiting = 0.0
        for q in range(Q):
            if under_way[q] and uses[q] >> memory & 1 and not settled[q]:
                waiting += part[q] if memory == 0 else 1.0
        if waiting == 0:
            return
        fair = left / waiting
        for q in range(Q):
            if under_way[q] and uses[q] >> memory & 1 and not settled[q] and rates[q] <= fair:
                settled[q] = True
                left -= rates[q] * (part[q] if memory == 0 else 1.0)
                changed = True
    for q in range(Q):
        if under_way[q] and uses[q] >> memory & 1 and not settled[q]:
            rates[q] = fair
