"""What has to stand between two kernels of a program: what each core knows of the others, and what the next one needs.

A core that passes a *gate* has waited, in the queue that loads, for flags that others set at the end of the kernel
before: from there on it knows that their kernels up to that one are complete. Its other queues know it from the next
kernel on, since between kernels a core waits for itself. A *barrier* of all cores tells everyone, and costs more.
All cores wait where one has to, so that none is ahead of the others by more than two gates: where a flag counts no
further than to one, there are barriers only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from compiler.target import Chip

LOADING = "mte2"  # the queue that waits at a gate
AHEAD = 2  # kernels whose end a core may have told another one before that waits for the first of them
_HORIZON = 256  # accesses that are kept in mind; a barrier costs less than more of them


@dataclass(frozen=True)
class Lane:
    """``run`` bytes of every ``period``, of which the first ones begin ``start`` bytes behind a multiple of it."""

    start: int
    run: int
    period: int

    def is_beside(self, other: Lane | None) -> bool:
        """Whether the two have no byte in common, however long they are."""
        if other is None or self.period != other.period:
            return False
        ahead = (other.start - self.start) % self.period
        return self.run <= ahead <= self.period - other.run


@dataclass(frozen=True)
class Reach:
    """Bytes that a kernel's queue touches, from ``low`` to before ``high`` on each core that runs the kernel.

    ``gated`` where it does so behind the kernel's gate only. Of what lies there it may touch a ``lane`` only.
    """

    memory: str
    queue: str
    writes: bool
    low: np.ndarray
    high: np.ndarray
    gated: bool
    lane: Lane | None = None

    def meets(self, other: Reach, *, also_own: bool = False) -> bool:
        """Whether both touch bytes, on two different cores or ``also_own``, that one of them writes."""
        if self.memory != other.memory or not (self.writes or other.writes):
            return False
        if self.high.max() <= other.low.min() or other.high.max() <= self.low.min():
            return False
        if self.lane is not None and self.lane.is_beside(other.lane):
            return False
        shared = (self.low[:, None] < other.high) & (other.low < self.high[:, None])
        shared &= (self.low < self.high)[:, None] & (other.low < other.high)
        if not also_own:
            np.fill_diagonal(shared, val=False)
        return bool(shared.any())


class Order(Enum):
    """How a kernel is ordered after what other cores did; each order implies the ones before it."""

    NONE = 0
    GATE = 1  # where the kernel has its gate
    GATE_AHEAD = 2  # a gate in front of the kernel
    BARRIER = 3


@dataclass(frozen=True)
class Border:
    order: Order
    setters: int = 0  # cores that tell the others


class Borders:
    """Goes along a program, kernel by kernel."""

    def __init__(self, chip: Chip, *, gates: bool = True) -> None:
        self.chip, self.gates = chip, gates and chip.cross_flag_max >= AHEAD and _gates_pay(chip)
        # The kernels that every core knows to be complete on all cores: those before.
        self._loading_knows = self._others_know = 0
        self._open: list[tuple[int, Reach]] = []  # what not all queues know to be complete
        self._number = 0

    def is_free(self, memory: str, low: int, high: int) -> bool:
        """Whether the queue that loads knows, at the end of the last kernel, that no core touches these bytes."""
        return not any(self._unknown(memory, low, high))

    def is_written(self, memory: str, low: int, high: int) -> bool:
        """Whether it knows there that no core writes them."""
        return not any(reach.writes for reach in self._unknown(memory, low, high))

    def _unknown(self, memory: str, low: int, high: int) -> Iterator[Reach]:
        """What cores may still do to these bytes, as far as the queue that loads knows."""
        for number, reach in self._open:
            there = int(reach.low.min()) < high and low < int(reach.high.max())
            if number >= self._loading_knows and reach.memory == memory and there:
                yield reach

    def next(self, reaches: Sequence[Reach], *, gateable: bool = True) -> Border:
        """What stands in front of the next kernel."""
        self._others_know = self._loading_knows
        self._open = [entry for entry in self._open if entry[0] >= self._others_know]
        order = self._needed(reaches)
        if (order is not Order.NONE and not (self.gates and gateable)) or len(self._open) > _HORIZON:
            order = Order.BARRIER
        setters = max((len(reach.low) for _, reach in self._open), default=0)
        if order is not Order.NONE:
            self._loading_knows = self._number
        if order is Order.BARRIER:
            self._others_know, self._open = self._number, []
        self._open += [(self._number, reach) for reach in reaches]
        self._number += 1
        return Border(order, setters)

    def are_beside(self, reaches: Sequence[Reach], company: Sequence[Reach]) -> bool:
        """Whether a kernel needs no order after what other cores did, nor after the last kernels of its own core. Then
        it counts as one of these. It may begin before their gate, behind which they know more.
        """
        if any(reach.meets(other, also_own=True) for reach in reaches for other in company):
            return False
        before = [other for number, other in self._open if number >= self._others_know]
        if any(reach.meets(other) for reach in reaches for other in before):
            return False
        self._open += [(self._number - 1, reach) for reach in reaches]
        return True

    def _needed(self, reaches: Sequence[Reach]) -> Order:
        needed = Order.NONE
        for reach in reaches:
            loads = reach.queue == LOADING
            known = self._loading_knows if loads else self._others_know
            order = Order.BARRIER if not loads else Order.GATE if reach.gated else Order.GATE_AHEAD
            if order.value > needed.value and any(
                number >= known and reach.meets(earlier) for number, earlier in self._open
            ):
                needed = order
        return needed


def _gates_pay(chip: Chip) -> bool:
    sync = chip.sync
    return sync.cross_flag_cycles + 2 * chip.cores * sync.flag_cycles < sync.core_barrier_cycles
