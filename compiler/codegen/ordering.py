"""Is a synchronised kernel in order on all ways, and would it be without some of its flags and barriers?

One walk as that which put them there (:mod:`compiler.codegen.synchronise`), but nothing is inserted: every event must
know all that it conflicts with to be complete, and every flag's last wait must be over where it is set again. The
flags of rings keep executions apart that take the same slot; they are taken for granted, and never for redundant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from compiler.codegen.events import Event, Signal, Step
from compiler.codegen.knowledge import NOTHING, Flag, Knowledge, State, union
from compiler.codegen.rings import Ring, RingFlag, Rings, find_rings
from compiler.isa.dtypes import Queue

_MOST_WORK = 1 << 16  # trials times statements that one kernel is worth


class _Unordered(Exception):
    """Something may start too early."""


@dataclass(frozen=True)
class Candidate:
    """A flag, as the steps that set it and wait for it, or a barrier; and how many loops are around it."""

    steps: tuple[Step, ...]
    depth: int


def redundant(steps: tuple[Step, ...], events: list[Event], event_ids: int) -> frozenset[Step]:
    """Statements without which the kernel still is in order; what is left is all needed."""
    order = Order(steps, events, event_ids)
    count, gone = sum(1 for _ in _all(steps)), frozenset[Step]()
    candidates = sorted([*order.candidates()][::-1], key=lambda candidate: -candidate.depth)
    for candidate in candidates[: max(1, _MOST_WORK // count)]:
        if order.holds(gone | {*candidate.steps}):
            gone |= {*candidate.steps}
    return gone


def _all(steps: tuple[Step, ...]) -> Iterator[Step]:
    for step in steps:
        yield step
        for part in step.parts:
            yield from _all(part)


class Order:
    """What stands in a kernel, with all that its queues may know."""

    def __init__(self, steps: tuple[Step, ...], events: list[Event], event_ids: int) -> None:
        self.steps, self.knowledge, self.rings = steps, Knowledge(events), find_rings(steps, event_ids)

    def holds(self, without: frozenset[Step] = frozenset()) -> bool:
        """Whether everything is in order, some statements left out."""
        try:
            _Walk(self.knowledge, self.rings, without).block(self.steps, NOTHING, 0)
        except _Unordered:
            return False
        return True

    def candidates(self) -> Iterator[Candidate]:
        """All flags and barriers, but for the flags of rings."""
        yield from self._candidates(self.steps, 0)

    def _candidates(self, steps: tuple[Step, ...], depth: int) -> Iterator[Candidate]:
        open_sets: dict[Signal, Step] = {}
        for step in steps:
            signal = step.signal
            for ring in self.rings.around.get(id(step), ()):
                for source, target, event in ring.ids():
                    open_sets.pop(Signal("set_flag", (source, target), event), None)
            if signal is not None and signal.mnemonic == "pipe_barrier":
                yield Candidate((step,), depth)
            elif signal is not None and signal.slot is None:
                key = Signal("set_flag", signal.queues, signal.event)
                if signal.mnemonic == "set_flag":
                    open_sets[key] = step
                elif key in open_sets:
                    yield Candidate((open_sets.pop(key), step), depth)
            for part in step.parts:
                yield from self._candidates(part, depth + (step.loop is not None))


@dataclass
class _Sent:
    """A flag that is set: in which state, and what began since."""

    state: State
    since: int = 0


@dataclass
class _Turned:
    """Rings that were come to; their carried flags are waited for behind all executions, one after another."""

    knowledge: Knowledge
    _waited: dict[Ring, int] = field(default_factory=dict)  # members of such waits, so far
    _open: dict[Ring, list[tuple[RingFlag, int]]] = field(default_factory=dict)  # that were not waited for

    def add(self, ring: Ring) -> None:
        self._waited[ring] = 0
        self._open[ring] = [(flag, base) for flag, base in ring.flags if flag.carried]

    def told(self, waited_for: Flag) -> int:
        """What a queue learns that waits for this flag, if that is behind a ring and it did so for all other slots."""
        for ring, carried in self._open.items():
            for flag, base in carried:
                slot = waited_for[2] - base
                if flag.pair != waited_for[:2] or not 0 <= slot < ring.turn.slots:
                    continue
                self._waited[ring] |= self.knowledge.flag(waited_for)
                if slot < ring.turn.slots - 1:
                    return 0
                carried.remove((flag, base))
                # These waits themselves are behind all that a flag could tell of.
                return ring.told(flag, self.knowledge) & ~self._waited[ring]
        return 0


@dataclass
class _Walk:
    """One walk over all ways through a kernel."""

    knowledge: Knowledge
    rings: Rings
    without: frozenset[Step]
    _loops: dict[tuple[int, State], tuple[State, int]] = field(default_factory=dict)

    def block(self, steps: tuple[Step, ...], state: State, depth: int) -> tuple[State, int]:
        """The state behind a block, and all that began in it."""
        sent: dict[Signal, _Sent] = {}
        turning = {step.statement.var: self.rings.of_turn[step.turn] for step in steps if step.turn is not None}
        turned = _Turned(self.knowledge)
        everything = 0
        for step in steps:
            began = 0
            for ring in self.rings.around.get(id(step), ()):
                turned.add(ring)
                self._enter(ring, state)
            if step in self.without:
                continue
            if step.signal is not None:
                state, began = self._signal(step.signal, state, sent, turning, turned)
            for event in step.events:
                state, began = self._event(event, state), began | self._bits(event, len(event.loops))
            if step.loop is not None:
                state, more = self._loop(step, state, depth)
                began |= more
            elif step.parts:
                ends = [self.block(part, state, depth) for part in step.parts]
                state = ends[0][0]
                for end, _ in ends[1:]:
                    state = union(state, end)
                for _, more in ends:
                    began |= more
            everything |= began
            for flag in sent.values():
                flag.since |= began
        return state, everything

    def _enter(self, ring: Ring, state: State) -> None:
        """What waited for the ids of a ring's flags before must be known to have done so where they are set."""
        for flag, base in ring.flags:
            ids = ((*flag.pair, base + slot) for slot in range(ring.turn.slots))
            if not flag.carried and state[flag.source] & self.knowledge.flags(ids):
                raise _Unordered

    def _event(self, event: Event, state: State) -> State:
        if state[event.queue] & self.knowledge.conflicts(event):
            raise _Unordered
        return self.knowledge.run(state, event)

    def _bits(self, event: Event, level: int) -> int:
        return 0 if event.queue == Queue.S else self.knowledge.bit(event, min(level, len(event.loops)))

    def _loop(self, step: Step, entry: State, depth: int) -> tuple[State, int]:
        key = id(step), entry
        if key not in self._loops:

            def turn(head: State) -> tuple[int, State]:
                end, began = self.block(step.parts[0], head, depth + 1)
                return began, end

            began, _, end = self.knowledge.any_turn(turn, entry, step.inside, depth)
            for event in step.inside:
                began |= self._bits(event, depth)
            self._loops[key] = (end if step.least_trips else union(entry, end)), began
        return self._loops[key]

    # ---- flags

    def _signal(
        self,
        signal: Signal,
        state: State,
        sent: dict[Signal, _Sent],
        turning: dict[object, Ring],
        turned: _Turned,
    ) -> tuple[State, int]:
        """The state behind a synchronising instruction, and what began."""
        if signal.mnemonic == "pipe_barrier":
            return self.knowledge.pipe_barrier(state, signal.queues[0]), 0
        source, target = signal.queues
        ring = turning.get(signal.slot)
        slots = 1 if ring is None else ring.turn.slots
        members = self.knowledge.flags((source, target, signal.event + slot) for slot in range(slots))
        key = Signal("", signal.queues, signal.event, signal.slot)
        if signal.mnemonic == "set_flag":
            if ring is None and state[source] & members:
                raise _Unordered
            sent[key] = _Sent(state)
            return state, 0
        before = sent.pop(key, None)
        if before is not None:
            message = self.knowledge.message(before.state, source, before.since)
            if target == Queue.S:
                return self.knowledge.wait(state, (source, target, signal.event), message), 0
            state = self.knowledge.hear(state, target, message)
        if signal.slot is None:
            state = self.knowledge.forget(state, target, turned.told((source, target, signal.event)))
        return self.knowledge.began(state, target, members), members
