"""Let every loop count from zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import ir, tirx

from compiler.target import Chip
from compiler.tir.conditions import conditional, constant
from compiler.tir.nests import NOT_OF_A_NEST
from compiler.tir.rewriter import Rewriter, contains, loop_with, same, simplified_indices, substitute, uses
from passes.base import Pass


@dataclass(frozen=True)
class LoopShift(Pass):
    """Shift loops to start at zero and step by one, and put a loop of one iteration down to its body.

    for v in [lo, lo + n) step s: A(v)  ->  for v in ceil(n / s): A(lo + s*v)
    for v in [lo, lo + 1): A(v)         ->  A(lo)
    for v in [lo, lo + m): A(v)         ->  if m >= 1: A(lo)  where m is at most one
    for v in [lo, lo - 3): A(v)         ->  nothing

    1. Always legal for a constant step.
    2. A loop with annotations or that is not serial means something to others: it stays a loop.
    3. No if comes to stand inside the nest that decides it.
    """

    name: ClassVar[str] = "loop-shift"
    establishes: ClassVar[frozenset[str]] = frozenset({"zero-based-loops"})

    def run(self, subject: Any, chip: Chip) -> Any:
        return _Shifter().function(subject)


class _Shifter(Rewriter):
    """``values`` holds what the variables of shifted loops stand for; it is put in where they are used."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[Any, Any] = {}
        self.nest_variables: set[Any] = set()

    def loop(self, loop: tirx.For) -> Any | None:
        start, extent = (self._expression(bound) for bound in (loop.min, loop.extent))
        step = 1 if loop.step is None else constant(loop.step)
        if step is None or step < 1:  # (1)
            return super().loop(loop)
        if step > 1:
            extent = self.analyzer.simplify(tirx.floordiv(extent + (step - 1), step))
        trips = constant(extent)
        if trips is not None and trips <= 0:
            return None
        if self._runs_once_at_most(loop, extent):
            self.values[loop.loop_var] = start
            return self._once(self.analyzer.simplify(extent >= 1), loop.body)
        if not contains(loop, NOT_OF_A_NEST):
            self.nest_variables.add(loop.loop_var)
        zero = tirx.IntImm(str(loop.loop_var.ty), 0)
        self.bind(loop.loop_var, zero, extent)
        shifts = step > 1 or constant(start) != 0
        if shifts:
            self.values[loop.loop_var] = loop.loop_var * step + start
        body = self.statement(loop.body)
        if body is None:
            return None
        if same(body, loop.body) and same(extent, loop.extent) and not shifts:
            return loop
        return loop_with(loop, body, min=zero, extent=extent, step=None)

    def _runs_once_at_most(self, loop: tirx.For, extent: Any) -> bool:
        if loop.kind != tirx.ForKind.SERIAL or loop.annotations:  # (2)
            return False
        if constant(extent) is not None:
            return constant(extent) == 1
        once = self.analyzer.const_int_bound(extent).max_value == 1
        return once and not uses(extent, self.nest_variables)  # (3)

    def _once(self, runs: Any, body: Any) -> Any | None:
        """The body where ``runs`` holds."""
        if constant(runs) is not None:
            return conditional(runs, self.statement(body), None)
        settled = isinstance(runs, tirx.EQ) and isinstance(runs.a, ir.Var) and runs.a not in self.values
        if settled:
            self.values[runs.a] = runs.b
        with self.analyzer.constraint_scope(runs):
            body = self.statement(body)
        if settled:
            del self.values[runs.a]
        return conditional(runs, body, None)

    def branch(self, branch: tirx.IfThenElse) -> Any | None:
        condition = self._expression(branch.condition)
        then, otherwise = self.statement(branch.then_case), self.statement(branch.else_case)
        if all(map(same, (condition, then, otherwise), (branch.condition, branch.then_case, branch.else_case))):
            return branch
        return conditional(condition, then, otherwise)

    def store(self, store: tirx.BufferStore) -> Any | None:
        moved = substitute(store, self.values)
        return store if moved.same_as(store) else simplified_indices(moved, self.analyzer)

    def other(self, stmt: Any) -> Any | None:
        return substitute(stmt, self.values)

    def _expression(self, expr: Any) -> Any:
        moved = substitute(expr, self.values)
        return expr if moved.same_as(expr) else self.analyzer.simplify(moved)
