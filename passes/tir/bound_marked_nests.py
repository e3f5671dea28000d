"""Turn the guards of marked nests into bounds of their loops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import tirx
from tvm.sym import detect_linear_equation

from compiler.target import Chip
from compiler.tir.conditions import conditional, conjuncts, constant, is_comparison, unhinted
from compiler.tir.rewriter import Rewriter, is_opaque, simplified_indices, substitute, uses
from passes.base import Pass


@dataclass(frozen=True)
class BoundMarkedNests(Pass):
    """Other passes leave a marked nest alone: it is one instruction. Its ragged edges become dynamic extents here.

    mark: for i in 16: for j in 8: if x < 5 and 1 <= y + i and z + j < 100: A(i, j)
    -> if x < 5: mark: for i in min(16 - max(0, 1 - y)): for j in min(8, 100 - z): A(i + max(0, 1 - y), j)

    1. The mark holds a perfect nest of loops around one store; guards stand anywhere between.
    2. A conjunct of a guard holds no loop variable of the nest, or one, by a factor of one or minus one.
    """

    name: ClassVar[str] = "bound-marked-nests"
    requires: ClassVar[frozenset[str]] = frozenset({"loops"})

    def run(self, subject: Any, chip: Chip) -> Any:
        return _Bounder().function(subject)


class _Bounder(Rewriter):
    def other(self, stmt: Any) -> Any | None:
        if isinstance(stmt, tirx.AttrStmt) and is_opaque(stmt):
            return self._bounded(stmt)
        return stmt

    def _bounded(self, mark: tirx.AttrStmt) -> Any | None:
        peeled = _peel(mark.body)
        if peeled is None:  # (1)
            return mark
        loops, conditions, store = peeled
        if not conditions and all(constant(loop.min) == 0 for loop in loops):
            return mark
        parts = [part for condition in conditions for part in conjuncts(unhinted(condition), self.analyzer)]
        lows: dict[Any, list[Any]] = {loop.loop_var: [] for loop in loops}
        highs: dict[Any, list[Any]] = {loop.loop_var: [] for loop in loops}
        outside: Any = None
        for part in parts:
            if not uses(part, lows):
                outside = part if outside is None else tirx.And(outside, part)
                continue
            cuts = [_cut(bound, list(lows), self.analyzer) for bound in _bounds(part)]
            known = [cut for cut in cuts if cut is not None]
            if not cuts or len(known) < len(cuts):  # (2)
                return mark
            for var, is_low, place in known:
                (lows if is_low else highs)[var].append(place)
        bounded = self._rebuilt(mark, loops, store, lows, highs)
        return bounded if outside is None else conditional(outside, bounded, None)

    def _rebuilt(
        self, mark: tirx.AttrStmt, loops: list[Any], store: Any, lows: dict[Any, Any], highs: dict[Any, Any]
    ) -> tirx.AttrStmt | None:
        shifts: dict[Any, Any] = {}
        extents = []
        for loop in loops:
            start, end = loop.min, loop.min + loop.extent
            for low in lows[loop.loop_var]:
                start = tirx.max(start, low)
            for high in highs[loop.loop_var]:
                end = tirx.min(end, high)
            start = self.analyzer.simplify(start)
            if constant(start) != 0:
                shifts[loop.loop_var] = loop.loop_var + start
            extents.append(self.analyzer.simplify(end - start))
            if (constant(extents[-1]) or 1) <= 0:
                return None
        for loop, extent in zip(loops, extents, strict=True):
            self.bind(loop.loop_var, tirx.IntImm("int32", 0), extent)
        body = simplified_indices(substitute(store, shifts) if shifts else store, self.analyzer)
        zero = tirx.IntImm("int32", 0)
        for loop, extent in reversed(list(zip(loops, extents, strict=True))):
            body = tirx.For(loop.loop_var, zero, extent, loop.kind, body)
        return tirx.AttrStmt(mark.node, mark.attr_key, mark.value, body, mark.span)


def _peel(stmt: Any) -> tuple[list[Any], list[Any], Any] | None:
    """Loops, guards and the store of a perfect nest."""
    loops, conditions = [], []
    while not isinstance(stmt, tirx.BufferStore):
        if isinstance(stmt, tirx.For):
            loops.append(stmt)
            stmt = stmt.body
        elif isinstance(stmt, tirx.IfThenElse) and stmt.else_case is None:
            conditions.append(stmt.condition)
            stmt = stmt.then_case
        else:
            return None
    return loops, conditions, stmt


def _bounds(condition: Any) -> list[Any]:
    """What is not negative where a comparison holds; nothing for other conditions."""
    if not is_comparison(condition) or isinstance(condition, tirx.NE):
        return []
    left, right = condition.a, condition.b
    if isinstance(condition, tirx.EQ):
        return [left - right, right - left]
    distance = right - left if isinstance(condition, tirx.LT | tirx.LE) else left - right
    return [distance - 1 if isinstance(condition, tirx.LT | tirx.GT) else distance]


def _cut(distance: Any, variables: list[Any], analyzer: Any) -> tuple[Any, bool, Any] | None:
    """(variable, whether it must be at least rather than below, the place), or None where it is no bound of one."""
    found = detect_linear_equation(analyzer.simplify(distance), variables)
    if len(found) != len(variables) + 1:
        return None
    factors = [constant(factor) for factor in found[:-1]]
    moving = [(var, factor) for var, factor in zip(variables, factors, strict=True) if factor != 0]
    if len(moving) != 1 or moving[0][1] not in (1, -1):
        return None
    var, factor = moving[0]
    place = analyzer.simplify(-found[-1]) if factor == 1 else analyzer.simplify(found[-1] + 1)
    return var, factor == 1, place
