"""What each queue of a core knows to be complete, kept while a program is written down, so that sync is put in place.

The rules are those of the hazard checker, on straight-line code: a flag carries all that its source knew and did, a
barrier empties the queues, and the scalar unit passes on what it has waited for to whatever it dispatches later.
"""

from __future__ import annotations

from compiler.isa.dtypes import INTERLOCKED, Queue

Clock = list[int]
_COUNT = len(Queue)


def _join(clock: Clock, other: Clock) -> None:
    clock[:] = map(max, clock, other)


class QueueOrder:
    """Vector clocks: ``clock[p]`` instructions of queue p are complete before the next one of this queue starts."""

    def __init__(self) -> None:
        self._clocks: list[Clock] = [[0] * _COUNT for _ in Queue]
        self._done: Clock = [0] * _COUNT
        self._scalar: Clock = [0] * _COUNT  # what the scalar unit had waited for at its last wait
        self._waited: dict[tuple[Queue, Queue, int], int] = {}
        self._messages: dict[tuple[Queue, Queue, int], Clock] = {}

    def knows(self, queue: Queue, other: Queue, number: int) -> bool:
        """Whether instruction ``number`` of ``other`` is complete before the next one of ``queue`` starts."""
        return (queue == other and queue in INTERLOCKED) or self._entered(queue)[other] > number

    def step(self, queue: Queue) -> int:
        """One more instruction; returns its number in its queue."""
        self._entered(queue)
        self._done[queue] += 1
        if queue == Queue.S:
            self._clocks[queue][queue] = self._done[queue]
        return self._done[queue] - 1

    def may_set(self, source: Queue, target: Queue, event: int) -> bool:
        """Whether a flag is known to be clear: its last wait came before, whatever the timing."""
        flag = (source, target, event)
        return flag not in self._messages and (
            flag not in self._waited or self._entered(source)[target] > self._waited[flag]
        )

    def set_flag(self, source: Queue, target: Queue, event: int) -> None:
        number = self.step(source)
        message = self._messages[source, target, event] = list(self._clocks[source])
        message[source] = number + 1

    def wait_flag(self, source: Queue, target: Queue, event: int) -> None:
        self._waited[source, target, event] = self.step(target)
        _join(self._clocks[target], self._messages.pop((source, target, event)))
        if target == Queue.S:
            self._scalar = list(self._clocks[target])

    def pipe_barrier(self, queue: Queue) -> None:
        self._clocks[queue][queue] = self.step(queue)

    def barrier_all(self) -> None:
        self.step(Queue.S)
        for queue in Queue:
            _join(self._clocks[Queue.S], self._clocks[queue])
        self._clocks[Queue.S] = list(map(max, self._clocks[Queue.S], self._done))
        self._scalar = list(self._clocks[Queue.S])

    def _entered(self, queue: Queue) -> Clock:
        """The clock of a queue's next instruction, which the scalar unit dispatches now."""
        clock = self._clocks[queue]
        if queue != Queue.S:
            _join(clock, self._scalar)
            clock[Queue.S] = max(clock[Queue.S], self._done[Queue.S])
        if queue in INTERLOCKED:
            clock[queue] = self._done[queue]
        return clock
