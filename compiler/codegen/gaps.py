"""Addresses for many buffers in a memory that is never full, found in one pass: in DDR."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from heapq import heappop, heappush

from compiler.codegen.packing import Lifetime


def pack_in_order(lives: Mapping[str, Lifetime], rest: int) -> tuple[dict[str, int], int]:
    """Offsets for all, in the order in which they come to life, and the bytes that all take.

    Each takes the tightest gap; a gap is free again ``rest`` steps after the last use.
    """
    gaps, ending, offsets, end = _Gaps(), list[tuple[int, int, int]](), dict[str, int](), 0
    for name, life in sorted(lives.items(), key=lambda one: one[1].first):
        while ending and ending[0][0] + rest < life.first:
            _, low, high = heappop(ending)
            gaps.free(low, high)
        offset = gaps.take(life.size_bytes)
        if offset is None:
            offset = gaps.last_start(end)
            gaps.cut_last(end)
            end = offset + life.size_bytes
        offsets[name] = offset
        heappush(ending, (life.last, offset, offset + life.size_bytes))
    return offsets, end


class _Gaps:
    """Free pieces between what is taken, sorted by address; no two of them touch."""

    def __init__(self) -> None:
        self._gaps: list[tuple[int, int]] = []

    def free(self, low: int, high: int) -> None:
        if low == high:
            return
        at = bisect_left(self._gaps, (low, high))
        if at < len(self._gaps) and self._gaps[at][0] == high:
            high = self._gaps.pop(at)[1]
        if at and self._gaps[at - 1][1] == low:
            low = self._gaps.pop(at - 1)[0]
        insort(self._gaps, (low, high))

    def take(self, size: int) -> int | None:
        """The start of the tightest gap that is large enough."""
        fitting = [(high - low, low, high) for low, high in self._gaps if high - low >= size]
        if not fitting:
            return None
        _, low, high = min(fitting)
        self._gaps.remove((low, high))
        if low + size < high:
            insort(self._gaps, (low + size, high))
        return low

    def last_start(self, end: int) -> int:
        """Where something larger than all gaps would start: in the gap at the end, if there is one."""
        return self._gaps[-1][0] if self._gaps and self._gaps[-1][1] == end else end

    def cut_last(self, end: int) -> None:
        if self._gaps and self._gaps[-1][1] == end:
            self._gaps.pop()
