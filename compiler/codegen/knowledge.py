"""What each queue of a core knows to be complete, at one point of a kernel and for every way to get there.

The hazard checker follows vector clocks along one run; this follows sets along all of them. For every queue, the set
holds the events that may have been started, by some run, and are not known to be complete. An event that ran in an
earlier iteration of a loop is another member than the same event in this iteration, so that loops over disjoint bytes
need no order. Sets are integers, one bit per member.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from compiler.codegen.events import Event
from compiler.isa.dtypes import INTERLOCKED, Queue

_FREE_ROUNDS = 4  # after so many joins a loop's state only grows, which ends

Found = TypeVar("Found")
State = tuple[int, ...]  # per queue, what it does not know to be complete
Flag = tuple[Queue, Queue, int]
NOTHING: State = (0,) * len(Queue)


def union(a: State, b: State) -> State:
    return tuple(map(int.__or__, a, b))


def within(a: State, b: State) -> bool:
    """Whether a state leaves no more open than another."""
    return all(mine & ~others == 0 for mine, others in zip(a, b, strict=True))


@dataclass(frozen=True)
class Message:
    """What a flag carries: what its source did not know when it was set, and all that began since then."""

    unknown: int
    since: int


class Knowledge:
    """The members of one kernel's sets, and how instructions change a state."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events
        self._first: list[int] = []  # per event, the bit of its outermost level
        count = 0
        for event in events:
            self._first.append(count)
            count += len(event.loops) + 1
        self._count = count
        self.of_queue = [0] * len(Queue)
        for event in events:
            for level in range(len(event.loops) + 1):
                self.of_queue[event.queue] |= self.bit(event, level)
        self.flag_members = 0
        self._flags: dict[Flag, int] = {}
        self._conflicts: dict[int, int] = {}

    def bit(self, event: Event, level: int) -> int:
        """The member for instances that differ from this iteration first at a level; the last level: in none."""
        return 1 << (self._first[event.number] + level)

    def flag(self, flag: Flag) -> int:
        """The member for waits on a flag."""
        if flag not in self._flags:
            self._flags[flag] = 1 << (self._count + len(self._flags))
            self.of_queue[flag[1]] |= self._flags[flag]
            self.flag_members |= self._flags[flag]
        return self._flags[flag]

    def flags(self, flags: Iterable[Flag]) -> int:
        """The members for waits on any of several flags."""
        members = 0
        for flag in flags:
            members |= self.flag(flag)
        return members

    def levels(self, event: Event, first: int = 0) -> int:
        """All members of an event, from a level on."""
        return (self.bit(event, len(event.loops)) << 1) - self.bit(event, first)

    def conflicts(self, event: Event) -> int:
        """All members that an event has to know to be complete before it starts."""
        if event.number not in self._conflicts:
            found = 0
            for other in self.events:
                if other.queue == Queue.S or (other.queue == event.queue and event.queue in INTERLOCKED):
                    continue  # ordered by the hardware
                for level in range(event.common_loops(other) + 1):
                    if event.conflicts(other, level):
                        found |= self.bit(other, level)
            self._conflicts[event.number] = found
        return self._conflicts[event.number]

    # ---- what instructions do to a state

    def run(self, state: State, event: Event) -> State:
        return self.began(state, event.queue, self.bit(event, len(event.loops)))

    def began(self, state: State, queue: Queue, members: int) -> State:
        """Something starts in a queue: nobody knows it to be complete, but what the hardware keeps in order."""
        if queue == Queue.S:
            return state
        return tuple(
            unknown if which == queue and queue in INTERLOCKED else unknown | members
            for which, unknown in enumerate(state)
        )

    def message(self, state: State, source: Queue, since: int = 0) -> Message:
        """What a flag that is set in this state carries."""
        return Message(state[source] & ~self.of_queue[source], since)

    def wait(self, state: State, flag: Flag, message: Message) -> State:
        """A queue waits for a flag; what the scalar unit knows, all know that it dispatches to from then on."""
        target = flag[1]
        after = self.hear(state, target, message)
        if target == Queue.S:
            return tuple(each & after[Queue.S] for each in after)
        return self.began(after, target, self.flag(flag))

    def hear(self, state: State, target: Queue, message: Message) -> State:
        """A queue learns what a flag carries."""
        return self.forget(state, target, ~(message.unknown | message.since))

    def forget(self, state: State, queue: Queue, members: int) -> State:
        """Members are complete, as one queue knows."""
        unknown = list(state)
        unknown[queue] &= ~members
        return tuple(unknown)

    def pipe_barrier(self, state: State, queue: Queue) -> State:
        unknown = list(state)
        unknown[queue] &= ~self.of_queue[queue]
        return tuple(unknown)

    # ---- loops

    def any_turn(
        self,
        turn: Callable[[State], tuple[Found, State]],
        entry: State,
        inside: Iterable[Event],
        depth: int,
        guess: State | None = None,
    ) -> tuple[Found, State, State]:
        """What ``turn`` finds in a state that holds before every iteration of the loop at ``depth``, this state, and
        that behind every iteration. A ``guess`` at this state saves turns: any is right that turns out to hold.
        """
        head, rounds = entry if guess is None else guess, 0
        while True:
            found, end = turn(head)
            end = self.next_turn(end, inside, depth)
            joined = union(entry, end)
            if within(joined, head):
                return found, head, end
            rounds += 1
            head = joined if rounds < _FREE_ROUNDS else union(head, joined)

    def next_turn(self, state: State, inside: Iterable[Event], depth: int) -> State:
        """After an iteration of the loop at ``depth``, or after the loop: what ran in it ran in an earlier one."""
        unknown = list(state)
        for event in inside:
            deeper = 0
            for level in range(depth + 1, len(event.loops) + 1):
                deeper |= self.bit(event, level)
            for which, members in enumerate(unknown):
                if members & deeper:
                    unknown[which] = members & ~deeper | self.bit(event, depth)
        return tuple(unknown)
