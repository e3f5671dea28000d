"""What transfers leave of a core's share of DDR and LLB, as intervals of time in which the same is used."""

from __future__ import annotations

from compiler.isa.jit import inlined

MAX_FLOWS = 1024


@inlined
def _cut(at, when, flows, flow_from, flow_used):  # type: ignore[no-untyped-def]
    """Make two intervals of one."""
    for other in range(flows, at + 1, -1):
        flow_from[other] = flow_from[other - 1]
        flow_used[other] = flow_used[other - 1]
    flow_from[at + 1] = when
    flow_used[at + 1] = flow_used[at]


@inlined
def transferred(begin, amount, rate, uses, limits, flows, flow_from, flow_used):  # type: ignore[no-untyped-def]
    """(when a transfer ends, number of intervals): it takes what those before it have left of the core's share."""
    at = flows - 1
    while at > 0 and flow_from[at] > begin:
        at -= 1
    if flow_from[at] < begin:
        _cut(at, begin, flows, flow_from, flow_used)
        flows += 1
        at += 1
    now = max(begin, flow_from[at])
    while True:
        left = rate
        for memory in range(2):
            if uses >> memory & 1:
                left = min(left, limits[memory] - flow_used[at, memory])
        last = at == flows - 1
        if left > 1e-9:
            end = now + amount / left
            if last or end < flow_from[at + 1]:
                _cut(at, end, flows, flow_from, flow_used)
                flows += 1
            else:
                end = flow_from[at + 1]
            amount -= left * (end - now)
            for memory in range(2):
                if uses >> memory & 1:
                    flow_used[at, memory] += left
            if amount <= 1e-6 or last:
                return end, flows
        now = flow_from[at + 1]
        at += 1


@inlined
def forgotten(before, flows, flow_from, flow_used):  # type: ignore[no-untyped-def]
    """The number of intervals once those that ended before a time are gone."""
    first = 0
    while first < flows - 1 and (flow_from[first + 1] <= before or flows - first > MAX_FLOWS - 64):
        first += 1
    if first > 0:
        for at in range(first, flows):
            flow_from[at - first] = flow_from[at]
            flow_used[at - first, 0] = flow_used[at, 0]
            flow_used[at - first, 1] = flow_used[at, 1]
    return flows - first
