"""Transfers in order of time, and how those under way share the bandwidth of DDR and LLB: max-min fair, in integers."""

from __future__ import annotations

import numpy as np

from compiler.isa.jit import inlined


@inlined
def heap_push(heap, size, item):  # type: ignore[no-untyped-def]
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if heap[parent] <= item:
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = item


@inlined
def heap_pop(heap, size):  # type: ignore[no-untyped-def]
    top = heap[0]
    item = heap[size - 1]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size - 1:
            break
        if child + 1 < size - 1 and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= item:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = item
    return top


@inlined
def share(flows, rate, cap, uses, limit, bit, cluster, first_cluster, last_cluster, shared_by_all):  # type: ignore[no-untyped-def]
    """Lower ``rate`` to a max-min fair share of one memory's bandwidth; flows that need less leave it to the others."""
    total, waiting = np.int64(0), 0
    for f in range(flows):
        if uses[f] & bit and (shared_by_all or first_cluster[f] <= cluster <= last_cluster[f]):
            total += cap[f]
            waiting += 1
    if total <= limit:
        return
    left, fair = limit, limit // waiting
    changed = True
    settled = np.zeros(flows, np.bool_)
    while changed and waiting > 0:
        changed = False
        fair = left // waiting
        for f in range(flows):
            shares = uses[f] & bit and (shared_by_all or first_cluster[f] <= cluster <= last_cluster[f])
            if shares and not settled[f] and cap[f] <= fair:
                settled[f] = True
                left -= cap[f]
                waiting -= 1
                changed = True
    for f in range(flows):
        if uses[f] & bit and (shared_by_all or first_cluster[f] <= cluster <= last_cluster[f]) and not settled[f]:
            rate[f] = max(np.int64(1), min(rate[f], fair))
