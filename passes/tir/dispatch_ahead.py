"""Dispatches the loads of a loop's next turn, or its products, before the work of this one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import tirx
from tvm_ffi import StructuralKey

from compiler.codegen.dispatch import calls, entries, queues, reads_data
from compiler.graph import attribute
from compiler.isa.dtypes import Queue
from compiler.target import Chip
from compiler.tir.loads_ahead import FAR_AHEAD, IN_TURN
from compiler.tir.rewriter import Rewriter, contains, fresh, loads, loop_with, sequence, statements, substitute, uses
from compiler.tir.structure import structural_walk
from passes.base import Pass

LOADS = frozenset({Queue.MTE2})
PRODUCTS = frozenset({Queue.MTE2, Queue.MTE1, Queue.M})


@dataclass(frozen=True)
class DispatchAhead(Pass):
    """Puts the loads of a turn in front of the work of the turn before, where that fills a queue. Where that is what
    the vector unit does with a product, all that makes the next product goes in front of it.

    for t in 8: {load t; work on t} -> load 0; for t in 8: {if t + 1 < 8: load t + 1; work on t}

    The scalar unit dispatches in the order of the program and stands still before a queue that is full. Work of more
    instructions than a queue holds would keep the next loads from theirs until nearly all of it is done, however many
    slots wait for them. No queue's own order changes, and flags order the queues as they did.

    1. The loop counts at least two known turns from zero. Statements of its body are of the queues that go ahead alone,
       or of none of these, and none makes the scalar unit wait. What goes ahead asks it for no data.
    2. What goes ahead waits for no other queue but for slots of rings, whose flags the turn before the last has set, or
       one before that: not for what the work sets in front of it in its own turn. Where it waits for other cores, only
       what goes ahead there is what it waits for.
    3. Loads that a queue does not hold are put off by their own queue: beside the cube's work they may be as many as it
       holds for each slot that is filled ahead.

    More loads than that, and products, keep the work waiting that they are put in front of, where that has more to do.
    ``FAR_AHEAD`` says that there are such; in a function that says ``IN_TURN`` there are none.
    """

    name: ClassVar[str] = "dispatch-ahead"
    requires: ClassVar[frozenset[str]] = frozenset({"synchronised"})

    def run(self, subject: Any, chip: Chip) -> Any:
        rotation = _Rotation(chip.queues.depth, in_turn=bool(attribute(subject, IN_TURN)))
        func = rotation.function(subject)
        return func.with_attr(FAR_AHEAD, 1) if rotation.far_ahead else func


class _Rotation(Rewriter):
    def __init__(self, depth: int, *, in_turn: bool) -> None:
        super().__init__()
        self._depth, self._in_turn = depth, in_turn
        self.far_ahead = False

    def loop(self, loop: tirx.For) -> Any | None:
        body = self.statement(loop.body)
        if body is None:
            return None
        loop = loop if body.same_as(loop.body) else loop_with(loop, body)
        turns = loop.extent if isinstance(loop.extent, tirx.IntImm) and loop.step is None else 0
        if not isinstance(loop.min, tirx.IntImm) or int(loop.min) or int(turns) < 2:
            return loop
        return self._rotated(loop, PRODUCTS) or self._rotated(loop, LOADS) or loop

    def _rotated(self, loop: tirx.For, first: frozenset[Queue]) -> Any | None:
        parts = statements(loop.body)
        bindings = [part for part in parts if isinstance(part, tirx.Bind)]
        ahead = [part for part in parts if queues(part) and queues(part) <= first]
        work = [part for part in parts if not queues(part) or not queues(part) <= first]
        used = [binding for binding in bindings if any(uses(part, [binding.var]) for part in ahead)]
        local = [part.buffer for part in parts if isinstance(part, tirx.AllocBuffer)]
        if (
            not _pays_off(work, self._depth)
            or any((first | {Queue.S}) & queues(part) or contains(part, tirx.BufferStore) for part in work)
            or any(reads_data(part) or uses(part, local) for part in ahead)
            or any(loads(binding.value) for binding in used)
            or _needs_its_turn(parts, first)
        ):
            return None
        slots = _slots_ahead(ahead, work, used, first)
        held = not any(queues(part) - LOADS for part in ahead) and entries(ahead)[Queue.MTE2] <= self._depth * slots
        if not slots or (not held and (first == LOADS or self._in_turn)):
            return None
        self.far_ahead |= not held

        def at(turn: Any) -> Any:
            return fresh(substitute(sequence([*used, *ahead]), {loop.loop_var: turn}))

        following = loop.loop_var + 1
        body = sequence([tirx.IfThenElse(following < loop.extent, at(following), None), *work])
        return sequence([at(tirx.IntImm("int32", 0)), loop_with(loop, body)])


def _pays_off(work: list[Any], depth: int) -> bool:
    return max(entries(work).values(), default=0) > depth


def _slots_ahead(ahead: list[Any], work: list[Any], bindings: list[Any], first: frozenset[Queue]) -> int:
    """How many slots of the rings that are filled are filled ahead at least; none against condition 2."""
    slots = {binding.var: _slots(binding.value) for binding in bindings}
    found = []
    for call in (call for part in ahead for call in calls(part)):
        if call.row.mnemonic == "wait_flag" and Queue[call.mods[0].upper()] not in first:
            ring = [count for slot, count in slots.items() if uses(call.operands[0], [slot])]
            found.append(min(ring, default=1))
        elif call.row.mnemonic == "cross_wait" and any(_is_cross_set(part) for part in work):
            return 0
    return min(found, default=0) - 1 if found else 0


def _needs_its_turn(parts: list[Any], first: frozenset[Queue]) -> bool:
    """Whether what goes ahead waits for a flag that work in front of it sets in the same turn, or may set."""
    values: dict[Any, Any] = {}
    is_set = set[tuple[tuple[str, ...], StructuralKey | None]]()  # the queues, and which flag where that is known
    for part in parts:
        if isinstance(part, tirx.Bind):
            values[part.var] = substitute(part.value, values)
            continue
        inner = _bound_within(part)
        for call in calls(part):
            if call.row.mnemonic not in ("set_flag", "wait_flag"):
                continue
            known = None if uses(call.operands[0], inner) else StructuralKey(substitute(call.operands[0], values))
            if call.row.mnemonic == "set_flag" and call.queue not in first:
                is_set.add((call.mods, known))
            elif call.row.mnemonic == "wait_flag" and call.queue in first:
                among = {flag for queues_of, flag in is_set if queues_of == call.mods}
                if among and (known is None or None in among or known in among):
                    return True
    return False


def _bound_within(stmt: Any) -> list[Any]:
    """The variables of loops and bindings in a statement."""
    found: list[Any] = []
    structural_walk(stmt, (tirx.For, lambda loop: found.append(loop.loop_var)))
    structural_walk(stmt, (tirx.Bind, lambda binding: found.append(binding.var)))
    return found


def _slots(slot: Any) -> int:
    """Of the ring whose slot a value is; one where it is none."""
    return int(slot.b) if isinstance(slot, tirx.FloorMod) and isinstance(slot.b, tirx.IntImm) else 1


def _is_cross_set(stmt: Any) -> bool:
    return any(call.row.mnemonic == "cross_set" for call in calls(stmt))
