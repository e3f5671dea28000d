"""The flags that order the executions of a block which share the slots of rings.

In one execution of the block, what a queue reads from a slot is written before it by another: flags as everywhere.
The next execution that takes the same slot may not start before this one is through with it: for that, flags are
*carried*. Each is set behind the last touch of one queue and waited for before the first one of another in the next
execution with that slot; all are set once before the loops and waited for once behind them. The id of a flag is its
base plus the slot, so executions with other slots neither wait nor are waited for.

Seen from one slot, the block is a loop with a single buffer, whose executions follow one another. This module plans
that loop: ticks of its statements, and per queue up to which tick every other one is known to be complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import permutations
from math import inf, prod
from typing import Any

from tvm import tirx

from compiler.codegen.events import Event, Step
from compiler.codegen.footprint import LoopRange, Turn
from compiler.codegen.knowledge import Flag, Knowledge
from compiler.isa.dtypes import INTERLOCKED, Queue

Pair = tuple[Queue, Queue]
SPARE_IDS = 1  # of each pair of queues, that rings leave to others where they could share some


@dataclass(frozen=True, order=True)
class RingFlag:
    """Set behind a statement of the block, waited for before one; if carried, in the next execution with the slot."""

    source: Queue
    target: Queue
    after: int
    before: int
    carried: bool

    @property
    def pair(self) -> Pair:
        return self.source, self.target


@dataclass(frozen=True, eq=False)
class Ring:
    """All that orders the rings of one block: its flags, each with the id of slot zero."""

    turn: Turn
    slots: Mapping[object, int]  # the variable of each phase, and how many statements all phases before it have
    steps: tuple[Step, ...]  # of all phases
    flags: tuple[tuple[RingFlag, int], ...]

    def ids(self) -> Iterator[Flag]:
        """All flags of all slots."""
        for flag, base in self.flags:
            for slot in range(self.turn.slots):
                yield (flag.source, flag.target, base + slot)

    def told(self, flag: RingFlag, knowledge: Knowledge) -> int:
        """What a queue is through with once a carried flag of every execution is set."""
        members = 0
        for step in self.steps[: flag.after + 1]:
            for event in step.inside:
                if event.queue == flag.source:
                    members |= knowledge.levels(event)
        for other, base in self.flags:
            if other.target == flag.source and other.before <= flag.after:
                members |= knowledge.flags((*other.pair, base + slot) for slot in range(self.turn.slots))
        return members

    def tells(self, queue: Queue, after: int, before: int) -> set[Queue]:
        """Of which queues one knows by flags that go from one statement to another, or between these."""
        own = (flag for flag, _ in self.flags if flag.target == queue and not flag.carried)
        return {flag.source for flag in own if after <= flag.after and flag.before <= before}


@dataclass(frozen=True)
class Fill:
    """How long a queue is held by its part of one slot, and how long after that the data is there."""

    cycles: int
    latency_cycles: int

    def and_then(self, other: Fill) -> Fill:
        return Fill(self.cycles + other.cycles, max(self.latency_cycles, other.latency_cycles))


class OutOfIds(Exception):
    """A block's rings need more flags than the chip has; carries its turn, and of which queues, where it is these."""

    def __init__(self, turn: Turn, pair: Pair | None = None) -> None:
        super().__init__("too few flags")
        self.turn, self.pair = turn, pair


@dataclass(frozen=True)
class Rings:
    """The rings of a kernel, by the statement around all of their executions and by their block.

    Of some pairs of queues the flags of no other rings of the same block have the same ids, so that nobody waits
    between two loops: these flags are set in front of all loops, and waited for behind all. Of others those of the
    next rings have not: they are waited for behind these.
    """

    around: Mapping[int, tuple[Ring, ...]]  # by the id of the step
    of_turn: Mapping[Turn, Ring]
    apart: Mapping[int, frozenset[Pair]] = field(default_factory=dict)  # by the id of the step
    late: Mapping[int, frozenset[Pair]] = field(default_factory=dict)

    @property
    def of_buffer(self) -> dict[Any, Ring]:
        return {buffer: ring for turn, ring in self.of_turn.items() for buffer in turn.buffers}


def find_rings(steps: tuple[Step, ...], event_ids: int) -> Rings:
    """All rings with ids that no other has while it turns; where they last, apart from those of the same block."""
    blocks: dict[Turn, _Block] = {}
    for turn, slot, phase in _phases(steps):
        blocks.setdefault(turn, _Block(turn)).add(slot, phase)
    return _Ids(blocks, event_ids).within(steps, _Taken(), frozenset())


@dataclass
class _Block:
    """The statements of a block, phase by phase."""

    turn: Turn
    slots: dict[object, int] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()

    def add(self, slot: object, steps: tuple[Step, ...]) -> None:
        self.slots[slot] = len(self.steps)
        self.steps += steps

    @cached_property
    def flags(self) -> tuple[RingFlag, ...]:
        """Each waited for where its target first needs what its source did in front of it, to the ring or not: another
        flag for that would keep the source from running ahead, since it has one id for all executions.
        """
        flags = ring_flags(self.steps, self.turn)
        return tuple(flag if flag.carried else replace(flag, before=self._first_need(flag)) for flag in flags)

    def _first_need(self, flag: RingFlag) -> int:
        """In the phase in which it is waited for anyway."""
        begins = max(begin for begin in self.slots.values() if begin <= flag.before)
        done = [e for step in self.steps[begins : flag.after + 1] for e in step.inside if e.queue == flag.source]
        for at in range(max(begins, flag.after + 1), flag.before):
            waiting = (event for event in self.steps[at].inside if event.queue == flag.target)
            if any(event.conflicts(other, event.common_loops(other)) for event in waiting for other in done):
                return at
        return flag.before


def _phases(steps: tuple[Step, ...]) -> Iterator[tuple[Turn, object, tuple[Step, ...]]]:
    for step in steps:
        if step.turn is not None:
            yield step.turn, step.statement.var, steps
        for part in step.parts:
            yield from _phases(part)


# ---- ids ---------------------------------------------------------------------------------------------------------


class _Taken:
    """Ids of flags that are in use, of each pair of queues."""

    def __init__(self, ids: Mapping[Pair, frozenset[int]] | None = None) -> None:
        self._ids = dict(ids or {})

    def copy(self) -> _Taken:
        return _Taken(self._ids)

    def and_those(self, more: Mapping[Pair, frozenset[int]]) -> _Taken:
        return _Taken(self._ids | {pair: self._ids.get(pair, frozenset()) | ids for pair, ids in more.items()})

    def take(self, flag: RingFlag, block: _Block, event_ids: int) -> int:
        """The first of as many ids in a row as a flag of a ring has."""
        ids, slots = self._ids.get(flag.pair, frozenset()), block.turn.slots
        for first in range(event_ids - slots + 1):
            own = range(first, first + slots)
            if ids.isdisjoint(own):
                self._ids[flag.pair] = ids.union(own)
                return first
        raise OutOfIds(block.turn, flag.pair)


@dataclass
class _Ids:
    """Gives the rings of all blocks their ids."""

    blocks: Mapping[Turn, _Block]
    event_ids: int

    def within(self, steps: tuple[Step, ...], taken: _Taken, known: frozenset[Turn]) -> Rings:
        """The rings of a block of statements, those further in included, but for ``known`` ones."""
        buffers = {step.statement.buffer for step in steps if isinstance(step.statement, tirx.AllocBuffer)}
        around, own = [step for step in steps if step.turns], dict[int, list[_Block]]()
        for step in around:
            mine = [turn for turn in step.turns if turn.buffers & buffers and turn not in known]
            own[id(step)] = [self.blocks[turn] for turn in mine]
            known = known.union(mine)
        several = sum(map(bool, own.values())) > 1
        apart = {flag.pair for of in own.values() for block in of for flag in block.flags} if several else set()
        while True:
            try:
                return self._apart(around, own, taken, known, apart)
            except OutOfIds as error:
                if error.pair not in apart:
                    raise
                apart = apart - {error.pair}

    def _apart(
        self,
        around: Sequence[Step],
        own: Mapping[int, list[_Block]],
        taken: _Taken,
        known: frozenset[Turn],
        apart: Set[Pair],
    ) -> Rings:
        """Those of which flags of some pairs of queues are apart; of the others, those of loops one after another are,
        where there are enough ids for both.
        """
        taken, ids = taken.copy(), dict[tuple[Turn, RingFlag], int]()
        for block in (block for of in own.values() for block in of):
            for flag in (flag for flag in block.flags if flag.pair in apart):
                ids[block.turn, flag] = taken.take(flag, block, self.event_ids - SPARE_IDS)
        rings, inner = dict[int, tuple[Ring, ...]](), list[Rings]()
        late, before, key_before = dict[int, frozenset[Pair]](), dict[Pair, frozenset[int]](), 0
        for step in around:
            key = id(step)
            while True:
                here = taken.and_those(before)
                try:
                    mine = self._rings(own[key], here, ids, self.event_ids - SPARE_IDS if before else self.event_ids)
                    inside = [self.within(part, here, known) for part in step.parts]
                    break
                except OutOfIds as error:
                    if not before or error.pair in apart:
                        raise
                    before = {pair: of for pair, of in before.items() if error.pair in before and pair != error.pair}
            inner += inside
            if mine:
                rings[key] = mine
                late[key_before] = frozenset(before)
                before, key_before = _ids_of(mine, apart), key
        of_turn = {ring.turn: ring for of in rings.values() for ring in of}
        return _together([Rings(rings, of_turn, dict.fromkeys(rings, frozenset(apart)), late), *inner])

    @staticmethod
    def _rings(
        blocks: Sequence[_Block], taken: _Taken, ids: Mapping[tuple[Turn, RingFlag], int], event_ids: int
    ) -> tuple[Ring, ...]:
        found = list[Ring]()
        for block in blocks:
            flags = list[tuple[RingFlag, int]]()
            for flag in block.flags:
                known = ids.get((block.turn, flag))
                flags.append((flag, taken.take(flag, block, event_ids) if known is None else known))
            found.append(Ring(block.turn, block.slots, block.steps, tuple(flags)))
        return tuple(found)


def _ids_of(rings: Iterable[Ring], without: Set[Pair]) -> dict[Pair, frozenset[int]]:
    """Of all flags of all slots, by the queues; of some of these, none."""
    found: dict[Pair, frozenset[int]] = {}
    for ring in rings:
        for source, target, event in ring.ids():
            if (source, target) not in without:
                found[source, target] = found.get((source, target), frozenset()) | {event}
    return found


def _together(found: Iterable[Rings]) -> Rings:
    around, of_turn = dict[int, tuple[Ring, ...]](), dict[Turn, Ring]()
    apart, late = dict[int, frozenset[Pair]](), dict[int, frozenset[Pair]]()
    for one in found:
        around |= one.around
        of_turn |= one.of_turn
        apart |= one.apart
        late |= one.late
    return Rings(around, of_turn, apart, late)


# ---- how long a slot takes -----------------------------------------------------------------------------------------


def fills(ring: Ring) -> dict[Queue, Fill]:
    """By queue, the copies into the slots of one execution; what an engine computes is there when it is done."""
    found: dict[Queue, Fill] = {}
    for event, one in _timed(ring):
        writes = any(access.turn is ring.turn and access.writes for access in event.accesses)
        if writes and event.queue not in INTERLOCKED:
            found[event.queue] = found.get(event.queue, Fill(0, 0)).and_then(one)
    return found


def executions_at_once(ring: Ring) -> float:
    """How many executions of the block are under way at once, at the pace of its busiest queue: one takes what all
    queues do that touch the slots, one after another.
    """
    busy, own = dict[Queue, int](), dict[Queue, Fill]()
    for event, one in _timed(ring):
        busy[event.queue] = busy.get(event.queue, 0) + one.cycles
        if any(access.turn is ring.turn for access in event.accesses):
            own[event.queue] = own.get(event.queue, Fill(0, 0)).and_then(one)
    return sum(one.cycles + one.latency_cycles for one in own.values()) / max(1, *busy.values())


def _timed(ring: Ring) -> Iterator[tuple[Event, Fill]]:
    """All that is known to take some time in one execution of the block, and how long it does."""
    for event in (event for step in ring.steps for event in step.inside):
        if event.args is not None and event.args.row.timing is not None:
            timing = event.args.row.timing(event.args)
            times = prod(loop.extent for loop in event.loops[ring.turn.depth :] if loop.extent != inf)
            yield event, Fill(int(times) * timing.cycles, timing.latency_cycles)


# ---- which flags a block needs ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Need:
    """Before a statement, a queue has to know another one to be through with one, in this execution or the last."""

    source: Queue
    after: int
    target: Queue
    before: int
    carried: bool


def ring_flags(steps: tuple[Step, ...], turn: Turn) -> tuple[RingFlag, ...]:
    """A smallest set of flags of those that conflicts ask for directly; what others imply is not among them."""
    touches = [
        (at, event)
        for at, step in enumerate(steps)
        for event in step.inside
        if any(access.turn is turn for access in event.accesses)
    ]
    needs = tuple(sorted(set(_needs(touches, turn)), key=lambda need: (need.before, need.after, need.carried)))
    flags, length = _direct(needs), len(steps)
    for flag in sorted(flags, key=lambda flag: (not flag.carried, flag.pair, flag.after)):
        rest = tuple(other for other in flags if other is not flag)
        known = _Slot(rest, length)
        if all(known.met(need) for need in needs):
            flags = rest
    known = _Slot(flags, length)
    if not all(known.met(need) for need in needs) or not all(known.clear(flag) for flag in flags):
        raise OutOfIds(turn)
    return flags


def _needs(touches: list[tuple[int, Event]], turn: Turn) -> Iterator[_Need]:
    for (i, a), (k, b) in permutations(touches, 2):
        if i < k and not _in_order(a, b) and _conflict(a, b, turn, carried=False):
            yield _Need(a.queue, i, b.queue, k, carried=False)
    for i, a in touches:
        for k, b in touches:
            if not _in_order(a, b) and _conflict(a, b, turn, carried=True):
                yield _Need(a.queue, i, b.queue, k, carried=True)


def _in_order(a: Event, b: Event) -> bool:
    return a.queue == b.queue and a.queue in INTERLOCKED


def _conflict(a: Event, b: Event, turn: Turn, *, carried: bool) -> bool:
    """Whether two touch bytes in common of one slot, in one execution or in different ones."""
    anywhere: dict[LoopRange, str] = {turn.slot: "same"}
    here = anywhere if carried else anywhere | {loop: "same" for loop in b.loops[: turn.depth]}
    return any(
        mine.ring is other.ring and mine.meets(other, here if mine.phase == other.phase else anywhere)
        for mine in b.accesses
        if mine.turn is turn
        for other in a.accesses
        if other.turn is turn
    )


def _direct(needs: tuple[_Need, ...]) -> tuple[RingFlag, ...]:
    """For each pair of queues the fewest flags that meet all needs between them; one carried flag is always enough."""
    of_pair: dict[tuple[Queue, Queue, bool], list[_Need]] = {}
    for need in needs:
        if need.source != need.target:
            of_pair.setdefault((need.source, need.target, need.carried), []).append(need)
    flags = []
    for (source, target, carried), each in of_pair.items():
        if carried:
            after = max(need.after for need in each)
            spans = [(after, min(after, *(need.before for need in each)))]
        else:
            spans = _stabbed([(need.after, need.before) for need in each])
        flags += [RingFlag(source, target, after, before, carried) for after, before in spans]
    return tuple(flags)


def _stabbed(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The fewest spans such that each of the given ones has one of them inside."""
    found: list[tuple[int, int]] = []
    for after, before in sorted(spans, key=lambda span: (span[1], span[0])):
        if found and after < found[-1][1]:
            found[-1] = max(found[-1][0], after), found[-1][1]
        else:
            found.append((after, before))
    return found


class _Slot:
    """What the queues know in the second of two executions with one slot.

    A statement has an odd tick and the place in front of it the even one before; a queue that is known at a tick is
    through with everything up to there, waits included.
    """

    def __init__(self, flags: tuple[RingFlag, ...], length: int) -> None:
        self._period = 2 * length + 2
        self._states: list[dict[Queue, dict[Queue, int]]] = []  # in the second execution, in front of each statement
        state: dict[Queue, dict[Queue, int]] = {queue: {} for queue in Queue}
        messages: dict[RingFlag, dict[Queue, int]] = {}
        told, heard = dict[int, list[RingFlag]](), dict[int, list[RingFlag]]()
        for flag in flags:
            told.setdefault(flag.after + 1, []).append(flag)
            heard.setdefault(flag.before, []).append(flag)
        for execution in range(2):
            for at in range(length + 1):
                for flag in told.get(at, ()):
                    own = execution * self._period + 2 * flag.after + 1
                    messages[flag] = {**state[flag.source], flag.source: own}
                for flag in heard.get(at, ()):
                    # What was known before stays as it is: it may be what is known in front of other statements.
                    if flag in messages:
                        mine = state[flag.target]
                        hears = {queue: max(mine.get(queue, -1), tick) for queue, tick in messages[flag].items()}
                        state = {**state, flag.target: {**mine, **hears}}
                if execution:
                    self._states.append(state)

    def met(self, need: _Need) -> bool:
        tick = 2 * need.after + 1 + (0 if need.carried else self._period)
        return self._states[need.before][need.target].get(need.source, -1) >= tick

    def clear(self, flag: RingFlag) -> bool:
        tick = 2 * flag.before + (self._period if flag.carried else 0)
        # Behind a statement is in front of the next one, but for the waits that stand there.
        return self._states[flag.after][flag.source].get(flag.target, -1) >= tick
