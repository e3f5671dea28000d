"""What of a buffer has been written before a nest that reads it.

A store under a condition, or in a loop of varying extent, may leave elements of its buffer out. An element that is
read has been written if there is an iteration of the store that writes it: the iteration follows from where the
element is, and the store's conditions have to hold in it by what is known where the element is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import tvm_ffi
from tvm import tirx

from compiler.tir.conditions import conjuncts, constant, is_comparison, linear_in, negated, variables_of
from compiler.tir.rewriter import substitute, uses

if TYPE_CHECKING:
    from compiler.emission.nest import Access, Surroundings


class Span(NamedTuple):
    """What a loop counts through."""

    var: Any
    start: Any
    extent: Any

    @property
    def varies(self) -> bool:
        return constant(self.extent) is None

    @property
    def limits(self) -> list[Any]:
        offset = self.var - self.start
        return [tirx.GE(offset, tirx.IntImm(str(self.var.ty), 0)), tirx.LT(offset, self.extent)]


@dataclass(frozen=True, eq=False)
class _Writer:
    """A store, what it is in, outermost first, and the conditions that it is under."""

    indices: tuple[Any, ...]
    spans: tuple[Span, ...]
    conditions: tuple[Any, ...]


class Written:
    """The stores that a walk has passed, and the loops and conditions that it is in."""

    def __init__(self) -> None:
        self._writers: dict[Any, list[_Writer]] = {}
        self._spans: list[Span] = []
        self._conditions: list[Any] = []

    @contextmanager
    def inside(self, loop: tirx.For) -> Iterator[None]:
        self._spans.append(Span(loop.loop_var, loop.min, loop.extent))
        yield
        self._spans.pop()

    @contextmanager
    def under(self, condition: Any) -> Iterator[None]:
        self._conditions.append(condition)
        yield
        self._conditions.pop()

    def note(self, stmt: Any) -> None:
        """Remember the stores of a statement. One that changes what is there adds nothing to that."""
        if isinstance(stmt, tirx.For):
            with self.inside(stmt):
                self.note(stmt.body)
        elif isinstance(stmt, tirx.IfThenElse):
            with self.under(stmt.condition):
                self.note(stmt.then_case)
            with self.under(negated(stmt.condition)):
                self.note(stmt.else_case)
        elif isinstance(stmt, tirx.SeqStmt):
            for part in stmt.seq:
                self.note(part)
        elif isinstance(stmt, tirx.AttrStmt):
            self.note(stmt.body)
        elif isinstance(stmt, tirx.BufferStore) and not uses(stmt.value, [stmt.buffer]):
            writer = _Writer(tuple(stmt.indices), tuple(self._spans), tuple(self._conditions))
            self._writers.setdefault(stmt.buffer, []).append(writer)

    def covers(self, access: Access, known: Sequence[Any]) -> bool:
        """Whether one of the stores wrote all that is read where the conditions ``known`` hold, or none is known."""
        writers = self._writers.get(access.buffer, [])
        if not writers:
            return True
        limits = [limit for span in self._spans if span.varies for limit in span.limits]
        proof = _Proof(access.surroundings, (*self._conditions, *limits, *known))
        common = {span.var for span in self._spans} | {loop.var for loop in access.loops}
        return any(_has_written(writer, access, common, proof) for writer in writers)


def _has_written(writer: _Writer, access: Access, common: set[Any], proof: _Proof) -> bool:
    own = [span for span in writer.spans if span.var not in common]
    ours = [span.var for span in own]
    moved = {var for index in writer.indices for var in variables_of(index)}
    conditions = _parts(writer.conditions, access.surroundings)
    limits = [limit for span in own for limit in span.limits if span.varies]
    # A store's own variables keep their ranges after it, in which its limits hold whatever is read.
    goals = [goal for goal in (*conditions, *limits) if uses(goal, ours) or not proof.holds(goal)]
    first = {span.var: span.start for span in writer.spans if span.var not in moved}
    # What does not decide on places decides on iterations, of which the first will do.
    goals = [goal for goal in goals if uses(goal, moved) or not proof.holds(substitute(goal, first))]
    if not goals:
        return True
    place = _iteration(writer, access, [span for span in own if span.var in moved], proof)
    if place is None:
        return False
    for span in own:
        goals += span.limits if span.var in moved and not span.varies else []
    place |= {span.var: span.start for span in own if span.var not in moved}
    return all(proof.holds(substitute(goal, place)) for goal in goals)


def _iteration(writer: _Writer, access: Access, spans: list[Span], proof: _Proof) -> dict[Any, Any] | None:
    """The iteration that writes what an access reads, or None where the store's indices do not tell."""
    found: dict[Any, Any] = {}
    for written, read in zip(writer.indices, access.indices, strict=True):
        used = set(variables_of(written))
        variables = tuple(span.var for span in spans if span.var in used)
        linear = linear_in(written, variables)
        if linear is None or found.keys() & set(variables):
            return None
        rest = proof.simplify(read - linear[1])
        for factor, position in sorted(((factor, n) for n, factor in enumerate(linear[0])), reverse=True):
            if factor < 1:
                return None
            found[variables[position]] = proof.simplify(tirx.floordiv(rest, factor))
            rest = proof.simplify(tirx.floormod(rest, factor))
        if constant(rest) != 0:
            return None
    return found


class _Proof:
    """What follows from conditions, one at a time, and from the ranges of variables."""

    def __init__(self, surroundings: Surroundings, known: Iterable[Any]) -> None:
        self.simplify = surroundings.simplify
        self._bounds = surroundings.bounds
        self._known = _parts(known, surroundings)
        self._gaps = [gap for each in self._known for gap in (_gap(each), *map(_gap, _weaker(each))) if gap is not None]

    def holds(self, goal: Any) -> bool:
        if constant(self.simplify(goal)) == 1 or any(tvm_ffi.structural_equal(goal, each) for each in self._known):
            return True
        gap = _gap(goal)
        if gap is None:
            return False
        if self._most(gap) < 0 or any(self._most(gap - given) <= 0 for given in self._gaps):
            return True
        parts = _weaker(goal)
        return bool(parts) and all(self.holds(part) for part in parts)

    def _most(self, expr: Any) -> int:
        return int(self._bounds(self.simplify(expr))[1])


def _parts(conditions: Iterable[Any], surroundings: Surroundings) -> list[Any]:
    """Conditions one by one that all hold exactly if the given ones do."""
    plain = [negated(each.a) if isinstance(each, tirx.Not) else each for each in conditions]
    return [part for each in plain for part in conjuncts(each, surroundings.analyzer)]


def _gap(condition: Any) -> Any | None:
    """What is less than zero exactly if an order of two integers holds."""
    if not is_comparison(condition):
        return None
    left, right = condition.a, condition.b
    if isinstance(condition, tirx.GT | tirx.GE):
        left, right = right, left
    if isinstance(condition, tirx.LT | tirx.GT):
        return left - right
    return left - right - 1 if isinstance(condition, tirx.LE | tirx.GE) else None


def _weaker(condition: Any) -> list[Any]:
    """``x < a`` and ``x < b`` of ``x < min(a, b)``, which together say the same; nothing of what has no limits."""
    if isinstance(condition, tirx.LT | tirx.LE) and isinstance(condition.b, tirx.Min):
        limits = (condition.b.a, condition.b.b)
        return [type(condition)(condition.a, limit) for limit in limits]
    return []
