"""Split loops where ifs on their variables change, so that the ifs go away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import tirx

from compiler.target import Chip
from compiler.tir.conditions import Cut, conditional, constant, cut_of
from compiler.tir.nests import NOT_OF_A_NEST
from compiler.tir.rewriter import Rewriter, contains, fresh, loads, loop_with, same, sequence, uses
from passes.base import Pass


@dataclass(frozen=True)
class LoopPartition(Pass):
    """Split a loop at the boundaries of the ifs on its variable, into parts that need no if.

    for v in [0, n): if v < c: A(v) else: B(v)
    -> for v in [0, min(n, c)): A(v)
       for v in [max(0, c), n): B(v)

    for i in 60: for k in 3: if 2*i + k >= 1: A(i, k)
    -> for i in [0, 1): for k in [1, 3): A(i, k)
       for i in [1, 60): for k in 3: A(i, k)

    1. The if compares integers, affine in the loop's variable with a constant factor, and reads no data; the loop is
       serial and steps by one. Bounds may hold variables of outer loops; a part may then have an extent below one,
       and not run.
    2. An if that inner loops have a say in splits this loop only if they are left to decide few of its iterations:
       at most half. Else the innermost loop that decides it is split, along a slope.
    3. A loop whose body is copied defines nothing and runs no sequence of loops: tile loops are only ever cut short.
    4. At most ``parts`` parts for each loop nest; ifs that would need more stay.
    """

    parts: int = 256

    name: ClassVar[str] = "loop-partition"
    requires: ClassVar[frozenset[str]] = frozenset({"loops"})
    establishes: ClassVar[frozenset[str]] = frozenset({"guard-free"})
    breaks: ClassVar[frozenset[str]] = frozenset({"zero-based-loops"})

    def run(self, subject: Any, chip: Chip) -> Any:
        return _Partitioner(self.parts).function(subject)


@dataclass(frozen=True)
class _Part:
    """Iterations from every one of ``lows`` up to every one of ``highs``."""

    lows: tuple[Any, ...]
    highs: tuple[Any, ...]
    body: Any


class _Partitioner(Rewriter):
    def __init__(self, parts: int) -> None:
        super().__init__()
        self.parts = parts
        self.left = parts
        self.in_nest = False

    def loop(self, loop: tirx.For) -> Any | None:
        if self.in_nest or contains(loop, NOT_OF_A_NEST):
            return self._partitioned(loop)
        self.left = self.parts
        self.in_nest = True
        partitioned = self._partitioned(loop)
        self.in_nest = False
        return partitioned

    def _partitioned(self, loop: tirx.For) -> Any | None:
        if loop.step is not None or loop.kind != tirx.ForKind.SERIAL:  # (1)
            return super().loop(loop)
        splitter = _Splitter(self, loop)
        if not splitter.decides_something():
            return super().loop(loop)
        parts = splitter.parts()
        if len(parts) == 1 and parts[0].body.same_as(loop.body):
            return super().loop(loop)
        self.left -= max(0, len(parts) - 1)
        pieces: list[Any] = []
        for part in parts:
            piece = self._piece(loop, part, len(pieces))
            if piece is not None:
                pieces.append(piece)
        return sequence(pieces)

    def _piece(self, loop: tirx.For, part: _Part, position: int) -> Any | None:
        start = part.lows[0]
        for low in part.lows[1:]:
            start = tirx.max(start, low)
        end = part.highs[0]
        for high in part.highs[1:]:
            end = tirx.min(end, high)
        start = self.analyzer.simplify(start)
        extent = self.analyzer.simplify(end - start)
        if self.analyzer.const_int_bound(extent).max_value <= 0:
            return None
        piece = loop_with(loop, part.body, min=start, extent=extent)
        if position:
            piece = fresh(piece)
        self.bind(piece.loop_var, piece.min, piece.extent)
        return super().loop(piece)


class _Splitter:
    """The parts of one loop."""

    def __init__(self, partitioner: _Partitioner, loop: tirx.For) -> None:
        self.analyzer = partitioner.analyzer
        self.loop = loop
        self.left = partitioner.left
        self.cuts: dict[Any, Cut | None] = {}
        if _may_copy(loop.body):  # (3)
            self._collect(loop.body, (), partitioner)
        else:
            self._collect_root(loop.body)

    def decides_something(self) -> bool:
        return any(cut is not None for cut in self.cuts.values())

    def _collect(self, stmt: Any, inner: tuple[tirx.For, ...], partitioner: _Partitioner) -> None:
        """Where every if in the nest changes along this loop."""
        if isinstance(stmt, tirx.For):
            partitioner.bind(stmt.loop_var, stmt.min, stmt.extent)
            self._collect(stmt.body, (*inner, stmt), partitioner)
        elif isinstance(stmt, tirx.IfThenElse):
            if uses(stmt.condition, (self.loop.loop_var,)):
                self.cuts[stmt.condition] = self._cut(stmt.condition, inner)
            self._collect(stmt.then_case, inner, partitioner)
            self._collect(stmt.else_case, inner, partitioner)
        elif isinstance(stmt, tirx.SeqStmt) and not inner:
            for part in stmt.seq:
                if isinstance(part, tirx.IfThenElse):
                    self._collect(part, inner, partitioner)

    def _collect_root(self, stmt: Any) -> None:
        """Where the ifs change under which all of the body stands: they only cut the loop short."""
        while isinstance(stmt, tirx.IfThenElse) and stmt.else_case is None:
            if uses(stmt.condition, (self.loop.loop_var,)) and not isinstance(stmt.condition, tirx.NE):
                self.cuts[stmt.condition] = self._cut(stmt.condition, ())
            stmt = stmt.then_case

    def _cut(self, condition: Any, inner: tuple[tirx.For, ...]) -> Cut | None:
        if loads(condition):  # (1)
            return None
        deciding = tuple(loop for loop in inner if uses(condition, (loop.loop_var,)))
        cut = cut_of(condition, self.loop.loop_var, tuple(loop.loop_var for loop in deciding), self.analyzer)
        if cut is None or not deciding:
            return cut
        left_to_inner = self.analyzer.const_int_bound(self.analyzer.simplify(cut.second - cut.first)).max_value
        return cut if 2 * left_to_inner <= self.analyzer.const_int_bound(self.loop.extent).max_value else None  # (2)

    def parts(self) -> list[_Part]:
        end = self.analyzer.simplify(self.loop.min + self.loop.extent)
        return self._split(_Part((self.loop.min,), (end,), self.loop.body))

    def _split(self, part: _Part) -> list[_Part]:
        body = self._decided(part.body, part)
        if body is None:
            return []
        part = _Part(part.lows, part.highs, body)
        place = self._next_place(body, part) if self.left else None
        if place is None:
            return [part]
        self.left -= 1  # (4)
        highs = [high for high in part.highs if not self._at_least(high, place)]
        lows = [low for low in part.lows if not self._at_least(place, low)]
        below = self._split(_Part(part.lows, (*highs, place), body))
        return below + self._split(_Part((*lows, place), part.highs, body))

    def _decided(self, stmt: Any | None, part: _Part) -> Any | None:
        """The body without the ifs that the part settles."""
        if isinstance(stmt, tirx.For):
            body = self._decided(stmt.body, part)
            return None if body is None else stmt if body.same_as(stmt.body) else loop_with(stmt, body)
        if isinstance(stmt, tirx.SeqStmt):
            parts = [self._decided(item, part) for item in stmt.seq]
            unchanged = all(new is not None and new.same_as(old) for new, old in zip(parts, stmt.seq, strict=True))
            return stmt if unchanged else sequence(parts)
        if not isinstance(stmt, tirx.IfThenElse):
            return stmt
        truth = self._truth(stmt.condition, part)
        if truth is not None:
            return self._decided(stmt.then_case if truth else stmt.else_case, part)
        then, otherwise = self._decided(stmt.then_case, part), self._decided(stmt.else_case, part)
        if same(then, stmt.then_case) and same(otherwise, stmt.else_case):
            return stmt
        decided = conditional(stmt.condition, then, otherwise)
        cut = self.cuts.get(stmt.condition)
        if then is None and decided is not None and cut is not None:
            self.cuts[decided.condition] = cut.opposite()
        return decided

    def _truth(self, condition: Any, part: _Part) -> bool | None:
        cut = self.cuts.get(condition)
        if cut is None:
            return None
        if self._ends_by(part, cut.first):
            return cut.below
        if self._starts_from(part, cut.second):
            return cut.above
        return cut.between if self._starts_from(part, cut.first) and self._ends_by(part, cut.second) else None

    def _next_place(self, stmt: Any | None, part: _Part) -> Any | None:
        """Where the first if that the part does not settle changes, or None if all are settled as far as can be."""
        if isinstance(stmt, tirx.For):
            return self._next_place(stmt.body, part)
        if isinstance(stmt, tirx.SeqStmt):
            places = (self._next_place(item, part) for item in stmt.seq)
            return next((place for place in places if place is not None), None)
        if not isinstance(stmt, tirx.IfThenElse):
            return None
        cut = self.cuts.get(stmt.condition)
        if cut is not None:
            for place in (cut.first, cut.second):
                if not self._ends_by(part, place) and not self._starts_from(part, place):
                    return place
        place = self._next_place(stmt.then_case, part)
        return place if place is not None else self._next_place(stmt.else_case, part)

    def _ends_by(self, part: _Part, place: Any) -> bool:
        return any(self._at_least(place, high) for high in part.highs)

    def _starts_from(self, part: _Part, place: Any) -> bool:
        return any(self._at_least(low, place) for low in part.lows)

    def _at_least(self, left: Any, right: Any) -> bool:
        known = constant(left), constant(right)
        if known[0] is not None and known[1] is not None:
            return known[0] >= known[1]
        return bool(self.analyzer.const_int_bound(self.analyzer.simplify(left - right)).min_value >= 0)


def _may_copy(body: Any) -> bool:
    return not contains(body, NOT_OF_A_NEST) and (
        not contains(body, tirx.SeqStmt, lambda seq: any(contains(part, tirx.For) for part in seq.seq))
    )
