"""Give every store a nest of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import tirx

from compiler.target import Chip
from compiler.tir.conditions import conditional, negated
from compiler.tir.dependence import Accesses, may_meet_backwards
from compiler.tir.rewriter import Rewriter, fresh, loads, loop_with, sequence, statements
from passes.base import Pass


@dataclass(frozen=True)
class LoopFission(Pass):
    """Distribute loops over the statements in them, as far as what these read and write allows.

    for i, k: {if k == 0: s[i] = 0; s[i] = s[i] + a[i, k]}
    -> for i, k: if k == 0: s[i] = 0
       for i, k: s[i] = s[i] + a[i, k]

    A loop splits between two statements if
    1. no iteration of the later one touches what a following iteration of the earlier one touches, unless both only
       read, or both are steps of one reduction, which may run in any order; distinct buffers never overlap;
    2. the loop's bounds, and the conditions of ifs that are split with it, read no data;
    3. it holds nothing but loops, ifs and stores: a definition or a call keeps it together.
    """

    name: ClassVar[str] = "loop-fission"
    requires: ClassVar[frozenset[str]] = frozenset({"loops"})
    establishes: ClassVar[frozenset[str]] = frozenset({"one-store-per-nest"})

    def run(self, subject: Any, chip: Chip) -> Any:
        return _Distributor().function(subject)


class _Distributor(Rewriter):
    def loop(self, loop: tirx.For) -> Any | None:
        loop = super().loop(loop)
        if loop is None or loads(loop.min) or loads(loop.extent):  # (2)
            return loop
        parts = _parts(loop.body)
        groups = self._groups(parts, loop) if len(parts) > 1 else []
        if len(groups) < 2:
            return loop
        return sequence(self._loop_over(group, loop, position) for position, group in enumerate(groups))

    def _loop_over(self, group: list[Any], loop: tirx.For, position: int) -> tirx.For:
        distributed = loop_with(loop, sequence(group))
        if position == 0:
            return distributed
        distributed = fresh(distributed)
        self._bind_all(distributed)
        return distributed

    def _bind_all(self, stmt: Any) -> None:
        """Note the ranges of renamed loops, for the loops around them."""
        if isinstance(stmt, tirx.For):
            self.bind(stmt.loop_var, stmt.min, stmt.extent)
            self._bind_all(stmt.body)
        elif isinstance(stmt, tirx.IfThenElse):
            self._bind_all(stmt.then_case)
            self._bind_all(stmt.else_case)
        else:
            for part in statements(stmt) if isinstance(stmt, tirx.SeqStmt) else ():
                self._bind_all(part)

    def _groups(self, parts: list[Any], loop: tirx.For) -> list[list[Any]]:
        """The parts in order, those together that must stay in one loop."""
        touched: list[Accesses] = []
        for part in parts:
            accesses = Accesses.of(part, self.analyzer)
            if accesses is None:  # (3)
                return [parts]
            touched.append(accesses)
        joined = [False] * len(parts)  # whether a part stays with the one before it
        for later in range(1, len(parts)):
            for earlier in range(later):
                if all(joined[earlier + 1 : later + 1]):
                    break
                if may_meet_backwards(touched[earlier], touched[later], loop, self.analyzer):  # (1)
                    joined[earlier + 1 : later + 1] = [True] * (later - earlier)
        groups: list[list[Any]] = []
        for part, stays in zip(parts, joined, strict=True):
            if stays:
                groups[-1].append(part)
            else:
                groups.append([part])
        return groups


def _parts(stmt: Any) -> list[Any]:
    """What the statement runs in order, ifs over several statements taken as several ifs."""
    if isinstance(stmt, tirx.SeqStmt):
        return [part for item in statements(stmt) for part in _parts(item)]
    if not isinstance(stmt, tirx.IfThenElse) or loads(stmt.condition):  # (2)
        return [stmt]
    then = _parts(stmt.then_case)
    otherwise = [] if stmt.else_case is None else _parts(stmt.else_case)
    if len(then) < 2 and len(otherwise) < 2:
        return [stmt]
    ifs = [conditional(stmt.condition, part, None) for part in then]
    return ifs + [conditional(negated(stmt.condition), part, None) for part in otherwise]
