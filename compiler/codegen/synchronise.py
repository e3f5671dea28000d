"""Where flags and barriers go: every event is ordered after those that it conflicts with, on all ways.

One walk in program order keeps what each queue knows (:mod:`compiler.codegen.knowledge`). Where an event needs more,
its queue waits for a flag of the queue that knows, right before the event; the flag is set in the same block, right
behind the last event that is needed. Both ends of a flag thus run equally often on every way. Before loops the
state is joined with that of the loop's end until it holds for every iteration, and the decisions of the last
walk over the body stay: they were made knowing the least.

1. A flag is set only where its last wait is known to be complete; else another id is taken, or the source first waits
   for the target, or, with no id left for that, the scalar unit does.
2. What only the first iteration of a loop needs is waited for before the loop.
3. What stands behind a guard that mostly holds is waited for in front of it: one that is passed by would leave open
   what all that follows needs again.
4. What a branch does in the first iteration of a loop alone is told within it to whoever needs it in the same block:
   a flag behind it would be set and waited for in all iterations.
5. A wait never stands before its set in program order, so the queues cannot wait for one another in a circle.

Executions of a block that take the slots of rings in turn are kept apart by flags of their own
(:mod:`compiler.codegen.rings`): nobody else uses their ids while they turn, and what they tell is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

from compiler.codegen.events import Event, Step
from compiler.codegen.knowledge import NOTHING, Flag, Knowledge, State, union
from compiler.codegen.rings import Pair, Ring, RingFlag, Rings, find_rings
from compiler.isa.dtypes import Queue

_HOISTING_ROUNDS = 3
ALL_PAIRS = frozenset(permutations(Queue, 2))


@dataclass(frozen=True)
class Sync:
    """One synchronising instruction: its mnemonic, its queues, and a flag's id, or that of slot zero."""

    mnemonic: str
    queues: tuple[Queue, ...] = ()
    event: int = -1
    slot: Any = None  # the variable that is added to the id
    slots: int = 1

    @property
    def flags(self) -> Iterator[Flag]:
        """All that it may be, if it sets or waits for one."""
        if self.event >= 0:
            for slot in range(self.slots):
                yield (self.queues[0], self.queues[1], self.event + slot)


@dataclass(frozen=True)
class Planned:
    """A statement and the plans of what it holds."""

    step: Step
    parts: tuple[Plan, ...] = ()


Plan = tuple["Sync | Planned", ...]


def synchronise(steps: tuple[Step, ...], events: list[Event], event_ids: int) -> Plan:
    """The kernel's statements in order, with what has to stand between them."""
    return _Planner(Knowledge(events), event_ids, find_rings(steps, event_ids)).block(steps, NOTHING, 0)[0]


def syncs(plan: Plan) -> Iterator[Sync]:
    """All synchronisation of a plan, inner ones included."""
    for entry in plan:
        if isinstance(entry, Sync):
            yield entry
        else:
            for part in entry.parts:
                yield from syncs(part)


@dataclass
class _Planner:
    knowledge: Knowledge
    event_ids: int
    rings: Rings
    _turning: frozenset[Flag] = frozenset()
    _taken: Counter[Flag] = field(default_factory=Counter)  # by the rings that turn here
    _known: dict[tuple[int, State], tuple[Plan, State, State]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        around = self.rings.around.values()
        self._turning = frozenset(flag for rings in around for ring in rings for flag in ring.ids())

    def block(
        self, steps: tuple[Step, ...], state: State, depth: int, told: Sequence[tuple[Queue, int]] = ()
    ) -> tuple[Plan, State]:
        """The plan of a block within ``depth`` loops, and the state after it; queues are ``told`` of members there."""
        block = _Block(self.knowledge, self.event_ids, self._turning, self._taken, state)
        rings = [(self.rings.of_turn[step.turn], step.statement.var) for step in steps if step.turn is not None]
        apart = [(step, self.rings.apart[id(step)]) for step in steps if id(step) in self.rings.apart]
        for step, pairs in apart:  # nobody waits for a queue to come to the loops, or to be through with them
            self._prime(step, pairs, block)
        before: list[tuple[Step, frozenset[Pair]]] = []  # whose flags the next rings do not have
        for at, step in enumerate(steps):
            turns = id(step) in self.rings.around
            others = ALL_PAIRS - self.rings.apart.get(id(step), frozenset())
            if turns:
                self._prime(step, others, block)
            block.turn(rings, at)
            for event in step.events:
                block.order(event)
                block.begin(event)
            if step.loop is not None:
                self._loop(block, step, depth)
            elif step.parts:
                self._parts(block, step, depth, self._to_be_told(steps, at, rings, depth))
            else:
                block.add(Planned(step))
            if turns:
                self._drain(before, block)
                late = self.rings.late.get(id(step), frozenset())
                self._drain([(step, others - late)], block)
                before = [(step, late)]
        block.turn(rings, len(steps), last=True)
        self._drain([*before, *apart], block)
        for queue, members in told:
            block.make_known(queue, members)
        return block.plan(), block.state

    def _prime(self, step: Step, pairs: frozenset[Pair], block: _Block) -> None:
        for ring in self.rings.around[id(step)]:
            self._taken.update(flag for flag in ring.ids() if flag[:2] in pairs)
            block.prime(ring, pairs)

    def _drain(self, steps: Sequence[tuple[Step, frozenset[Pair]]], block: _Block) -> None:
        for step, pairs in steps:
            for ring in self.rings.around[id(step)]:
                self._taken.subtract(flag for flag in ring.ids() if flag[:2] in pairs)
                block.drain(ring, pairs)

    def _parts(self, block: _Block, step: Step, depth: int, told: Sequence[tuple[Queue, int]]) -> None:
        """A branch: whatever either side leaves open is open."""
        if step.guards:  # condition 3
            block.order_ahead(step.inside)
        planned = [self.block(part, block.state, depth, told if part else ()) for part in step.parts]
        state = planned[0][1]
        for _, other in planned[1:]:
            state = union(state, other)
        block.add(Planned(step, tuple(plan for plan, _ in planned)), state, self._began(step, planned, depth))

    def _to_be_told(
        self, steps: tuple[Step, ...], at: int, rings: Iterable[tuple[Ring, object]], depth: int
    ) -> list[tuple[Queue, int]]:
        """Queues, and what a branch does that they need behind it (condition 4)."""
        inside = [event for event in steps[at].inside if event.queue != Queue.S]
        if not all(event.first_of.intersection(event.loops[:depth]) for event in inside):
            return []
        members: dict[Queue, int] = {}
        for event in inside:
            members[event.queue] = members.get(event.queue, 0) | self.knowledge.levels(event, depth)
        found = dict[tuple[Queue, int], None]()
        for later in range(at + 1, len(steps)):
            for event in (event for event in steps[later].inside if event.queue != Queue.S):
                known = {event.queue}
                for ring, slot in rings:
                    known |= ring.tells(event.queue, at + ring.slots[slot], later + ring.slots[slot])
                needed = [of for source, of in members.items() if source not in known]
                found |= {(event.queue, of): None for of in needed if self.knowledge.conflicts(event) & of}
        return list(found)

    def _loop(self, block: _Block, step: Step, depth: int) -> None:
        inner = Counter(_kinds(self._turns(step, NOTHING, depth)[0]))
        for _ in range(_HOISTING_ROUNDS):  # condition 2
            more = Counter(_kinds(self._turns(step, block.state, depth)[0])) - inner
            before = block.state
            for queues in more:
                block.order_ahead(step.inside, queues)
            if block.state == before:
                break
        plan, head, end = self._turns(step, block.state, depth)
        state = end if step.least_trips else union(block.state, end)
        block.add(Planned(step, (plan,)), state, self._began(step, [(plan, head)], depth))

    def _turns(self, step: Step, entry: State, depth: int) -> tuple[Plan, State, State]:
        """(plan of the body, state before every iteration, state after it) of a loop that is entered in a state."""
        key = (id(step), entry)
        if key not in self._known:
            # What one iteration leaves to the next on its own account is a good guess.
            guess = entry if entry == NOTHING else union(entry, self._turns(step, NOTHING, depth)[2])

            def turn(head: State) -> tuple[Plan, State]:
                return self.block(step.parts[0], head, depth + 1)

            self._known[key] = self.knowledge.any_turn(turn, entry, step.inside, depth, guess)
        return self._known[key]

    def _began(self, step: Step, planned: list[tuple[Plan, State]], depth: int) -> int:
        """All that may begin within a statement, as a block within ``depth`` loops sees it."""
        members = 0
        for event in step.inside:
            if event.queue != Queue.S:
                members |= self.knowledge.bit(event, min(depth, len(event.loops)))
        for plan, _ in planned:
            for sync in syncs(plan):
                if sync.mnemonic == "wait_flag":
                    members |= self.knowledge.flags(sync.flags)
        return members


def _kinds(plan: Plan) -> Iterator[tuple[Queue, ...]]:
    """The queues of every wait and barrier."""
    for sync in syncs(plan):
        if sync.mnemonic in ("wait_flag", "pipe_barrier"):
            yield sync.queues


def _syncs(ring: Ring, mnemonic: str) -> Iterator[tuple[Sync, RingFlag]]:
    """A set, or a wait, of each flag of a ring, of all slots."""
    for flag, base in ring.flags:
        yield _sync(mnemonic, ring, flag, base), flag


def _sync(mnemonic: str, ring: Ring, flag: RingFlag, base: int, slot: Any = None) -> Sync:
    """A set, or a wait, of one flag of a ring: of the slot that is a variable, or of all."""
    return Sync(mnemonic, flag.pair, base, slot, ring.turn.slots)


class _Block:
    """The statements of one block so far, with the state at the end and behind each of them."""

    def __init__(
        self, knowledge: Knowledge, event_ids: int, turning: frozenset[Flag], taken: Counter[Flag], state: State
    ) -> None:
        self.knowledge, self.event_ids, self.state = knowledge, event_ids, state
        self.turning, self.taken = turning, taken  # by any ring, and by those that turn here
        self._entries: list[Planned] = []
        self._before: list[list[Sync]] = [[]]  # in front of each entry, and behind the last
        self._states: list[State] = [state]  # behind each entry, before what was put there since
        self._began: list[int] = [0]  # from each of these points to the next
        self._set: dict[tuple[Ring, RingFlag], tuple[int, State]] = {}  # flags of rings: where, in which state

    def plan(self) -> Plan:
        entries: list[Sync | Planned] = []
        for between, entry in zip(self._before, [*self._entries, None], strict=True):
            entries += between
            if entry is not None:
                entries.append(entry)
        return tuple(entries)

    def begin(self, event: Event) -> None:
        self.state = self.knowledge.run(self.state, event)
        if event.queue != Queue.S:
            self._began[-1] |= self.knowledge.bit(event, len(event.loops))

    def add(self, entry: Planned, state: State | None = None, began: int = 0) -> None:
        """A statement follows; one that holds others gives the state behind it and what began in it."""
        self._entries.append(entry)
        self._began[-1] |= began
        self.state = self.state if state is None else state
        self._before.append([])
        self._states.append(self.state)
        self._began.append(0)

    # ---- rings

    def prime(self, ring: Ring, pairs: frozenset[Pair]) -> None:
        """Set the carried flags of all slots, of some pairs of queues, once what waited for their ids before is known
        to have done so. As early as that is so: the queue may have something else to wait for in front of the loops.
        """
        for sync, flag in _syncs(ring, "wait_flag"):
            if flag.pair in pairs:
                self.make_known(flag.source, self.knowledge.flags(sync.flags))
        for sync, flag in _syncs(ring, "set_flag"):
            if flag.carried and flag.pair in pairs:
                self._put_early(sync)

    def drain(self, ring: Ring, pairs: frozenset[Pair]) -> None:
        """Wait for the carried flags of all slots, of some pairs of queues: all executions are over, up to where the
        flags were set.

        What waits here does so behind all of that: none of the flags tells of it. Nor does any tell of what is waited
        for at another time.
        """
        waits = [(sync, flag) for sync, flag in _syncs(ring, "wait_flag") if flag.carried and flag.pair in pairs]
        others = self.knowledge.flags(flag for flag in ring.ids() if flag[:2] not in pairs)
        for sync, flag in waits:
            self._put(sync)
            told = ring.told(flag, self.knowledge) & ~others
            self.state = self.knowledge.forget(self.state, flag.target, told)
        for sync, _ in waits:
            self._wait(sync)

    def turn(self, rings: list[tuple[Ring, object]], at: int, *, last: bool = False) -> None:
        """What stands in front of a statement of the block, or behind the last one, in every execution."""
        here = [(ring, slot, at + ring.slots[slot]) for ring, slot in rings]
        for ring, slot, place in here:
            for flag, base in ring.flags:
                if at and flag.after + 1 == place:
                    self._put(_sync("set_flag", ring, flag, base, slot))
                    self._set[ring, flag] = len(self._entries), self.state
        for ring, slot, place in here:
            for flag, base in ring.flags:
                if not last and flag.before == place:
                    sync = _sync("wait_flag", ring, flag, base, slot)
                    self._put(sync)
                    if not flag.carried and (ring, flag) in self._set:  # else a phase before this one has set it
                        self._learn(*self._set[ring, flag], flag)
                    self._wait(sync)

    def _learn(self, point: int, state: State, flag: RingFlag) -> None:
        since = 0
        for began in self._began[point:]:
            since |= began
        message = self.knowledge.message(state, flag.source, since)
        self.state = self.knowledge.hear(self.state, flag.target, message)

    def _wait(self, sync: Sync) -> None:
        members = self.knowledge.flags(sync.flags)
        self.state = self.knowledge.began(self.state, sync.queues[1], members)
        self._began[-1] |= members

    # ---- what an event needs

    def order(self, event: Event) -> None:
        """Make everything that the event conflicts with known to its queue."""
        self.make_known(event.queue, self.knowledge.conflicts(event))

    def order_ahead(self, events: Iterable[Event], queues: tuple[Queue, ...] = ()) -> None:
        """The same for events further in, what the scalar unit waits for excepted; or for one pair of queues only.

        Where the scalar unit is the one that waits, it may do so for any other queue, for which there was no flag.
        """
        needed: dict[Queue, int] = {}
        for event in events:
            if event.queue != Queue.S if not queues else queues[-1] in (event.queue, Queue.S):
                needed[event.queue] = needed.get(event.queue, 0) | self.knowledge.conflicts(event)
        for queue, members in needed.items():
            self.make_known(queue, members & self.knowledge.of_queue[queues[0]] if queues else members)

    def make_known(self, queue: Queue, conflicts: int) -> None:
        while needed := self.state[queue] & conflicts:
            sources = [source for source in Queue if needed & self.knowledge.of_queue[source]]
            others = [source for source in sources if source != queue]
            if others:
                self._flag(self._most_telling(others, needed), queue, needed)
            else:
                self._put(Sync("pipe_barrier", (queue,)))
                self.state = self.knowledge.pipe_barrier(self.state, queue)

    def _most_telling(self, sources: list[Queue], needed: int) -> Queue:
        """The source whose flag leaves least to be waited for."""
        return min(sources, key=lambda s: (needed & self.knowledge.message(self.state, s).unknown).bit_count())

    # ---- flags

    def _flag(self, source: Queue, target: Queue, needed: int) -> None:
        point, since = self._earliest(source, needed)
        event = self._clear_id(source, target, point, since)
        if event is None:
            point, since = len(self._entries), 0
            event = self._clear_id(source, target, point, since)
        if event is None:  # condition 1
            back = self._clear_id(target, source, point, 0)
            if back is None:  # the scalar unit waits, whose waits all queues know
                self._pair(target, Queue.S, 0, point, 0)
            else:
                self._pair(target, source, back, point, 0)
            event = self._clear_id(source, target, point, 0)
        if event is None:  # rings have all ids: the scalar unit waits, and dispatches to the target only then
            self._pair(source, Queue.S, 0, point, 0)
        else:
            self._pair(source, target, event, point, since)

    def _pair(self, source: Queue, target: Queue, event: int, point: int, since: int) -> None:
        """Set a flag at an earlier point of the block (or here) and wait for it here."""
        sync = Sync("set_flag", (source, target), event)
        here = point == len(self._entries) and not since
        message = self.knowledge.message(self.state if here else self._states[point], source, since)
        if here:
            self._put(sync)
        else:
            self._before[point].insert(0, sync)
        self._put(Sync("wait_flag", (source, target), event))
        flag = (source, target, event)
        self.state = self.knowledge.wait(self.state, flag, message)
        self._began[-1] |= self.knowledge.flag(flag)

    def _earliest(self, source: Queue, needed: int) -> tuple[int, int]:
        """The earliest point behind all needed events of a queue, and what began since; here, where that is as good."""
        needed &= self.knowledge.of_queue[source]
        point, since = len(self._entries), self._began[-1]
        if since & needed:
            return point, 0
        while point > 0 and not self._began[point - 1] & needed:
            point -= 1
            since |= self._began[point]
        works = since & self.knowledge.of_queue[source] & ~self.knowledge.flag_members
        return (point, since) if works else (len(self._entries), 0)

    def _clear_id(self, source: Queue, target: Queue, point: int, since: int) -> int | None:
        """An id whose last wait the source knows to be complete where it sets the flag; best one that no ring has."""
        here = point == len(self._entries) and not since
        unknown = (self.state if here else self._states[point])[source] | since
        for event in sorted(range(self.event_ids), key=lambda event: (source, target, event) in self.turning):
            flag = source, target, event
            if not self.taken[flag] and not unknown & self.knowledge.flag(flag):
                return event
        return None

    def _put(self, sync: Sync) -> None:
        self._before[-1].append(sync)

    def _put_early(self, sync: Sync) -> None:
        """Put the set of a flag behind the last thing that uses its ids."""
        flags, best = set(sync.flags), len(self._entries)
        for point in range(len(self._entries), -1, -1):
            if any(flags.intersection(other.flags) for other in self._before[point]):
                break
            if not self._states[point][sync.queues[0]] & self.knowledge.flags(sync.flags):
                best = point
            if point and any(flags.intersection(other.flags) for other in syncs((self._entries[point - 1],))):
                break
        self._before[best].append(sync)
