"""Puts the body of a loop under the one condition that guards all that it does for others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import tirx
from tvm_ffi import structural_equal

from compiler.codegen.instruction_form import read_call
from compiler.isa.dtypes import Queue
from compiler.target import Chip
from compiler.tir.rewriter import Rewriter, loads, loop_with, uses
from compiler.tir.structure import structural_map, structural_walk
from passes.base import Pass

ALONE = frozenset({Queue.M, Queue.V, Queue.MTE1, Queue.FIX})  # what these do in a core no other core takes part in


@dataclass(frozen=True)
class GuardTurns(Pass):
    """Asks once in a turn whether there is one, not before each instruction.

    for i: {b = w; if p(i): a = x[i]; for j: {if p(i): c += a * b}; if p(i): y[i] = c}
    -> for i: if p(i): {b = w; a = x[i]; for j: c += a * b; y[i] = c}

    Tiles that are not there at the end of the cores' work are left out instruction by instruction, by each in its own
    nest. What a condition does not guard, of weights for example, keeps it from being one of the whole turn.

    1. The condition reads no data, and depends on the loop, but on nothing in its body.
    2. What it does not guard fills only what is allocated in the body, on queues that work for their own core: nobody
       reads that but what it guards. Or it runs under another condition, under which this one holds.
    3. It guards several statements: of one, nothing is asked less often.
    """

    name: ClassVar[str] = "guard-turns"
    requires: ClassVar[frozenset[str]] = frozenset({"instruction-form"})

    def run(self, subject: Any, chip: Chip) -> Any:
        return _Guarder().function(subject)


class _Guarder(Rewriter):
    def loop(self, loop: tirx.For) -> Any | None:
        found = super().loop(loop)
        if found is None:
            return None
        guard = self._guard(found)
        if guard is None:
            return found
        return loop_with(found, tirx.IfThenElse(guard, _without(found.body, guard), None))

    def _guard(self, loop: tirx.For) -> Any | None:
        guards, defined, own = list[Any](), list[Any](), set[Any]()
        structural_walk(
            loop.body,
            [
                (tirx.IfThenElse, guards.append),
                (tirx.For, lambda inner: defined.append(inner.loop_var)),
                (tirx.Bind, lambda bound: defined.append(bound.var)),
                (tirx.AllocBuffer, lambda allocated: own.add(allocated.buffer)),
            ],
        )
        tried = list[Any]()
        for each in guards:
            guard = each.condition
            if any(structural_equal(guard, one) for one in tried):
                continue
            tried.append(guard)
            several = sum(structural_equal(guard, other.condition) for other in guards) > 1  # (3)
            able = several and uses(guard, [loop.loop_var]) and not uses(guard, defined) and not loads(guard)  # (1)
            if able and self._is_needless(loop.body, guard, own):
                return guard
        return None

    def _is_needless(self, stmt: Any | None, guard: Any, own: set[Any]) -> bool:
        """Condition 2, of all that the guard does not guard."""
        match stmt:
            case None | tirx.AllocBuffer():
                return True
            case tirx.SeqStmt():
                return all(self._is_needless(part, guard, own) for part in stmt.seq)
            case tirx.For():
                return self._is_needless(stmt.body, guard, own)
            case tirx.IfThenElse():
                if self._is_under(stmt.condition, guard):
                    return self._is_needless(stmt.else_case, guard, own)
                return all(self._is_needless(case, guard, own) for case in (stmt.then_case, stmt.else_case))
            case tirx.Bind():
                return not loads(stmt.value)
            case tirx.Evaluate():
                call = read_call(stmt)
                return call is not None and call.queue in ALONE and own.issuperset(call.buffers("w"))
        return False

    def _is_under(self, condition: Any, guard: Any) -> bool:
        if structural_equal(condition, guard):
            return True
        if loads(condition):
            return False
        with self.analyzer.constraint_scope(condition):
            return bool(self.analyzer.can_prove(guard))


def _without(body: Any, guard: Any) -> Any:
    """The body where the guard holds."""

    def settled(branch: Any) -> Any:
        return branch.then_case if structural_equal(branch.condition, guard) else branch

    return structural_map(body, (tirx.IfThenElse, settled))
