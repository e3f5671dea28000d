"""Addresses for buffers that live at different times: few bytes more than what lives at once."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate


@dataclass(frozen=True)
class Span:
    """Bytes of a buffer, from ``low`` to before ``high``, that are needed from step ``first`` to step ``last``."""

    low: int
    high: int
    first: int
    last: int


@dataclass(frozen=True)
class Lifetime:
    """Bytes that are needed from step ``first`` to step ``last``, both included.

    Where not all of them are needed for so long, ``spans`` say which are needed when.
    """

    size_bytes: int
    first: int
    last: int
    spans: tuple[Span, ...] = ()

    def all_spans(self) -> tuple[Span, ...]:
        return self.spans or (Span(0, self.size_bytes, self.first, self.last),)

    def until(self, last: int) -> Lifetime:
        """The same with all that was needed up to then, needed up to a later step."""
        return replace(self, last=last, spans=tuple(replace(span, last=last) for span in self.spans))

    def meets(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


_ORDERS: tuple[Callable[[Lifetime], tuple[int, ...]], ...] = (
    lambda life: (-life.size_bytes, life.first),
    lambda life: (-life.size_bytes * (life.last - life.first + 1), life.first),
    lambda life: (life.first - life.last, -life.size_bytes),
    lambda life: (life.first, -life.size_bytes),
)


def live_by_step(lives: Sequence[Lifetime], alignment: int) -> list[int]:
    """By step, the bytes that live then."""
    changes = [0] * (max((life.last for life in lives), default=-1) + 2)
    for span in (span for life in lives for span in life.all_spans()):
        size = _aligned(span.high - span.low, alignment)
        changes[span.first] += size
        changes[span.last + 1] -= size
    return list(accumulate(changes))[:-1]


def live_peak(lives: Sequence[Lifetime], alignment: int) -> int:
    """The most bytes that live at one step: no packing needs less."""
    return max(live_by_step(lives, alignment), default=0)


def pack(lives: Sequence[Lifetime], alignment: int) -> tuple[list[int], int]:
    """(an address for each, bytes in all): the best of several orders, each buffer into the tightest gap for it."""
    bound = live_peak(lives, alignment)
    best: tuple[list[int], int] | None = None
    for order in _ORDERS:
        ranks = [(*order(life), which) for which, life in enumerate(lives)]
        found = _packed(lives, alignment, [rank[-1] for rank in sorted(ranks)])
        if best is None or found[1] < best[1]:
            best = found
        if best[1] == bound:
            break
    assert best is not None  # noqa: S101  there is an order
    return best


def spread(lives: Sequence[Lifetime], alignment: int, users: Sequence[Hashable], limit: int) -> tuple[list[int], int]:
    """As :func:`pack`, but lives share bytes only if one and the same user is theirs, or if there is no other room.

    A user that is ``None`` stands for several: whoever takes the bytes next has to wait for them.
    """
    for order in _ORDERS:
        ranks = [(*order(life), which) for which, life in enumerate(lives)]
        found = _packed(lives, alignment, [rank[-1] for rank in sorted(ranks)], users, limit)
        if found[1] <= limit:
            return found
    return pack(lives, alignment)


def _packed(
    lives: Sequence[Lifetime],
    alignment: int,
    order: Sequence[int],
    users: Sequence[Hashable] | None = None,
    limit: int = 0,
) -> tuple[list[int], int]:
    addresses = [0] * len(lives)
    placed: list[tuple[int, int, int]] = []  # (address, end, which)
    for which in order:
        size = _aligned(lives[which].size_bytes, alignment)
        address = -1
        if users is not None:
            alone = users[which] is None
            others = [
                (low, high)
                for low, high, other in placed
                if alone or users[other] != users[which] or lives[which].meets(lives[other])
            ]
            address = gap(size, others)
        if users is None or address + size > limit:
            address = gap(size, [(low, high) for low, high, other in placed if lives[which].meets(lives[other])])
        addresses[which] = address
        insort(placed, (address, address + size, which))
    return addresses, max((end for _, end, _ in placed), default=0)


def gap(size: int, taken: Sequence[tuple[int, int]]) -> int:
    """The start of the smallest gap that is large enough; ``taken`` is sorted by address."""
    best_size, best, end = -1, -1, 0
    for low, high in taken:
        if size <= low - end and (best < 0 or low - end < best_size):
            best_size, best = low - end, end
        end = max(end, high)
    return end if best < 0 else best


def _aligned(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
