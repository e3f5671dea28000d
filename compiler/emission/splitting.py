"""One store of a compound value as several stores, each of what one instruction can do, with temporaries in UB.

A temporary has one element per iteration of the loops that its value depends on. Where these are not all of the
nest's loops, and nothing in the nest changes what it reads, it is worked out in a nest of its own before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from tvm import ir, tirx
from tvm.sym import detect_linear_equation

from compiler.emission.candidates import Candidate, recognise
from compiler.emission.cover import Cover, Step
from compiler.emission.dataflow import as_data, leaves
from compiler.emission.expressions import by_reciprocal, expression
from compiler.emission.hazards import order_matters
from compiler.emission.logistic import in_logistic_form
from compiler.emission.nest import Access, Loop, Nest, Surroundings
from compiler.emission.reductions import FOLDED
from compiler.emission.temporaries import SCOPE, ChainLoop, Temporary
from compiler.emission.terms import LEAVES, Term, loads_of, numbered, renumbered, term_of
from compiler.emission.widening import is_widened
from compiler.target import Chip
from compiler.tir.conditions import conjuncts, negated, variables_of
from compiler.tir.rewriter import fresh, loads
from compiler.tir.scopes import TIR_DTYPE

_PLAIN = ("load", "const", "scalar")
_MANY = 8  # elements for one of the divisor's, for its reciprocal to be worked out first


@dataclass(eq=False)
class Split:
    """What splitting a nest's stores gave: statements that go before it, and the temporaries of all."""

    loops: tuple[ChainLoop, ...]
    written: frozenset[Any]  # buffers that the nest writes
    surroundings: Surroundings
    chip: Chip
    before: list[Any] = field(default_factory=list)
    temporaries: list[Temporary] = field(default_factory=list)
    clock: int = 0

    @property
    def peak_bytes(self) -> int:
        """UB bytes of the temporaries that live at once."""
        return max(
            (sum(t.bytes for t in self.temporaries if t.first <= now <= t.last) for now in range(self.clock + 1)),
            default=0,
        )

    def store(self, store: Any, conditions: tuple[Any, ...]) -> list[Any]:
        """The statements that replace a store; the store alone if it needs no splitting."""
        loops = tuple(
            Loop(one.var, one.bound if isinstance(one.extent, tirx.IntImm) else one.extent, one.bound, one.least)
            for one in self.loops
        )
        nest = Nest(loops, store, self.surroundings)
        # One by one: a part of a value keeps those that say something of its own loops.
        single = tuple(one for each in conditions for one in conjuncts(each, self.surroundings.analyzer))
        splitter = _Splitter(self, nest, single)
        return splitter.statements() or [store]


class _Splitter:
    def __init__(self, split: Split, nest: Nest, conditions: tuple[Any, ...]) -> None:
        self.split = split
        self.nest = nest
        self.conditions = conditions
        self.target = nest.target
        self.out: list[Any] = []
        self.places: dict[Term, Any] = {}
        term, self.accesses = numbered(as_data(nest, self._known_in(self._every())))
        self.cover = Cover(split.chip, self._is_operand, self._elements)
        self.term = self._cheaper(self._with_reciprocals(term))
        self._uses: Counter[Term] = Counter()

    # ---- the whole store

    def statements(self) -> list[Any]:
        """The replacement; empty if the store stays as it is."""
        if not self._may_split():
            return []
        own = next((n for n, a in enumerate(self.accesses) if a.same_place(self.target)), None)
        mine = None if own is None else Term("load", self.target.dtype, value=own)
        if mine is not None and self._reduces():
            return self._reduction(mine)
        if self.target.memory == "ub":
            return self._into_target(mine)
        return self._through_temporary(mine)

    def _may_split(self) -> bool:
        if self.target.memory not in ("ub", "ddr"):
            return False
        if any(order_matters(self.nest, access) for access in self.accesses):
            return False
        foreign = any(access.memory not in ("ub", "ddr") for access in self.accesses)
        return not (foreign and any(isinstance(one, Candidate) for one in recognise(self.nest, self.split.chip)))

    def _reduces(self) -> bool:
        steps = zip(self.target.coefficients, self.split.loops, strict=True)
        return any(step == 0 and loop.bound > 1 for step, loop in steps)

    def _reduction(self, mine: Term) -> list[Any]:
        """``d = op(d, rest)``: what is folded comes from temporaries, the fold stays one store."""
        term = self.term
        if term.op not in FOLDED or mine not in term.args or self.target.memory != "ub":
            return []
        rest = term.args[1] if term.args[0] == mine else term.args[0]
        if mine in leaves(rest):
            return []
        if is_widened(term.op, rest) and self._is_operand(rest.args[0]):
            return []  # emission converts what it sums
        step = self.cover.fold_step(term.op, rest, self.target.dtype)
        if step is None or all(self._is_operand(operand) for operand in step.operands):
            return []
        self._count(step)
        for operand in dict.fromkeys(step.operands):
            self._place(operand)
        value = expression(Term(term.op, term.dtype, (mine, rest)), self._known)
        self._emit(self._target_store(value))
        return self.out

    def _into_target(self, mine: Term | None) -> list[Any]:
        if self.term.op in _PLAIN and not self._has_data_index():
            return []
        if self.term.op == "choice" and all(arg.op == "load" for arg in self.term.args):
            return []
        if self.term.op == "index" and self._is_pattern(self.term):
            return []
        self.cover.in_place = mine
        step = self.cover.step(self.term)
        if step is None or self._is_one_instruction(step):
            return []
        self._count(step)
        covers = all(step != 0 or loop.bound == 1 for step, loop in self._moves())
        overwritten = mine is None and covers and self.target.is_affine
        self._compute(self.term, self._store_target, self._every() if overwritten else None)
        return self.out

    def _through_temporary(self, mine: Term | None) -> list[Any]:
        if self.term.op == "load" and not any(loads(index) for a in self.accesses for index in a.indices):
            return []
        if self.term.op == "choice" and all(arg.op == "load" for arg in self.term.args):
            return []
        step = self.cover.step(self.term)
        if step is None or mine is not None:
            return []
        self._count(step)
        place = self._place(self.term, everywhere=True)
        self._emit(self._target_store(place))
        return self.out

    def _is_one_instruction(self, step: Step) -> bool:
        if step.term != self.term or self.term.op in ("choice", "load", "index"):
            return False
        return all(self._is_operand(operand) for operand in step.operands)

    def _has_data_index(self) -> bool:
        """Whether an index is worked out from data, and not just read."""
        accesses = [self.target, *self.accesses]
        return any(loads(i) and not self._is_plain_index(a, i) for a in accesses for i in a.indices)

    def _moves(self) -> Iterator[tuple[int | None, ChainLoop]]:
        return zip(self.target.coefficients, self.split.loops, strict=True)

    # ---- terms

    def _is_operand(self, term: Term) -> bool:
        if term in self.places:
            return True
        if term.op != "load":
            return False
        access = self.accesses[term.value]
        return access.memory == "ub" and all(step is not None and step >= 0 for step in access.coefficients)

    def _depends(self, term: Term) -> frozenset[int]:
        """The loops, by position, that a term's value changes with."""
        found: set[int] = set()
        loops = self.split.loops
        for leaf in leaves(term):
            if leaf.op == "load":
                coefficients = self.accesses[leaf.value].coefficients
                found |= {n for n, step in enumerate(coefficients) if step != 0}
            elif leaf.op in ("index", "condition"):
                used = set(variables_of(leaf.value.key))
                found |= {n for n, loop in enumerate(loops) if loop.var in used}
        return frozenset(n for n in found if loops[n].bound > 1)

    def _every(self) -> frozenset[int]:
        return frozenset(n for n, loop in enumerate(self.split.loops) if loop.bound > 1)

    def _elements(self, term: Term) -> int:
        return prod(self.split.loops[n].bound for n in self._depends(term))

    def _with_reciprocals(self, term: Term) -> Term:
        """The term with quotients of a divisor that has one element for many of the dividend's as products."""
        args = tuple(self._with_reciprocals(arg) for arg in term.args)
        if args != term.args:
            term = replace(term, args=args)
        if term.op == "div" and term.dtype == "fp32" and term.args[1].op != "const":
            dividend, divisor = (self._elements(arg) for arg in term.args)
            return by_reciprocal(term) if divisor * _MANY <= dividend else term
        return term

    def _cheaper(self, term: Term) -> Term:
        """The term in logistic form, where that takes fewer cycles."""
        quotient = in_logistic_form(term)
        if quotient == term:
            return term
        return min(term, quotient, in_logistic_form(term, by_reciprocals=True), key=self.cover.cycles)

    def _is_pattern(self, term: Term) -> bool:
        """Whether an index term is what ``viota`` writes."""
        if term.dtype not in ("int32", "int16"):
            return False
        variables = [loop.var for loop in self.split.loops]
        return len(detect_linear_equation(term.value.key, variables)) == len(variables) + 1

    def _count(self, step: Step) -> None:
        """Count how often each term is read, along the steps that are taken."""
        for operand in dict.fromkeys(step.operands):
            self._uses[operand] += 1
            if self._uses[operand] == 1 and not self._is_operand(operand):
                below = self.cover.step(operand)
                if below is not None:
                    self._count(below)

    # ---- statements

    def _emit(self, statement: Any) -> None:
        self.out.append(statement)
        self.split.clock += 1

    def _target_store(self, value: Any) -> Any:
        indices = [self._index(self.target, index) for index in self.target.indices]
        return tirx.BufferStore(self.target.buffer, value, indices)

    def _store_target(self, value: Any) -> None:
        self._emit(self._target_store(value))

    def _place(self, term: Term, everywhere: bool = False) -> Any:
        """The load of a term's value, worked out into a temporary where it is not in UB yet."""
        if term in self.places:
            self._touch(self.places[term])
            return self.places[term]
        if self._is_operand(term) and not everywhere:
            return self._loaded(term)
        dependencies = self._depends(term)
        apart = not everywhere and dependencies != self._every() and self._may_go_before(term, dependencies)
        if not apart:
            dependencies = self._every()
        load = self._temporary(term, dependencies)
        store = self._storing(load)
        if apart:
            with self._before(dependencies):
                self._compute(term, store, dependencies)
        else:
            self._compute(term, store, dependencies)
        self.places[term] = load
        return load

    def _temporary(self, term: Term, dependencies: frozenset[int]) -> Any:
        loops = [self.split.loops[n] for n in self._order(term, dependencies)]
        name = f"{self.target.buffer.name}_{term.op if term.op not in LEAVES else 'staged'}"
        shape = [loop.bound for loop in loops] or [1]
        buffer = tirx.decl_buffer(shape, TIR_DTYPE[term.dtype], name, scope=SCOPE)
        self.split.temporaries.append(Temporary(buffer, self.split.clock, self.split.clock))
        return tirx.BufferLoad(buffer, [loop.position for loop in loops] or [tirx.IntImm("int32", 0)])

    def _order(self, term: Term, dependencies: frozenset[int]) -> list[int]:
        """Loops as the largest of what a term reads walks them, so that it is read and written in long runs."""
        reads = [self.accesses[leaf.value] for leaf in leaves(term) if leaf.op == "load"]
        moved = [[abs(access.coefficients[n] or 0) for n in sorted(dependencies)] for access in reads]
        steps = max(moved, key=lambda one: sum(step > 0 for step in one), default=[])
        if not steps or not all(steps):
            return sorted(dependencies)
        by_loop = dict(zip(sorted(dependencies), steps, strict=True))
        return sorted(dependencies, key=lambda n: -by_loop[n])

    def _storing(self, load: Any) -> Any:
        def store(value: Any) -> None:
            self._emit(tirx.BufferStore(load.source, value, list(load.indices)))
            self._touch(load)

        return store

    def _touch(self, load: Any) -> None:
        for temporary in self.split.temporaries:
            if temporary.buffer.same_as(load.source):
                temporary.last = self.split.clock

    def _compute(self, term: Term, store: Any, place: frozenset[int] | None) -> None:
        """Emit the statements that give ``store`` the term's value.

        ``place`` is what the destination depends on if it may hold an operand in the meantime, else None.
        """
        if term.op == "choice":
            self._choose(term, store, place)
            return
        step = self.cover.step(term)
        if step is None or not step.operands:
            store(self._leaf(term))
            return
        spine = self._spine(step, place)
        for operand in dict.fromkeys(step.operands):
            if operand != spine:
                self._place(operand)
        if spine is None:
            store(expression(step.term, self._known))
            return
        held: list[Any] = []

        def hold(value: Any) -> None:
            store(value)
            statement = self.out[-1]
            held.append(tirx.BufferLoad(statement.buffer, list(statement.indices)))

        self._compute(spine, hold, place)
        self.places[spine] = held[-1] if held else self.places[spine]
        store(expression(step.term, self._known))
        del self.places[spine]

    def _spine(self, step: Step, place: frozenset[int] | None) -> Term | None:
        """The operand that is worked out where the result goes: it needs no room of its own."""
        if step.accumulates is not None and step.accumulates != self.cover.in_place:
            return step.accumulates
        if place is None:
            return None
        for operand in step.operands:
            if self._is_operand(operand) or operand.dtype != step.term.dtype or operand.op == "choice":
                continue
            if self._uses[operand] == 1 and step.operands.count(operand) == 1 and self._depends(operand) == place:
                return operand
        return None

    def _choose(self, term: Term, store: Any, place: frozenset[int] | None) -> None:
        """A value that loop variables choose: an if with statements of its own in its branches.

        A branch that is the same number everywhere is written everywhere, and the other one over it: one fill and
        one smaller nest, where two branches would cut every loop around them.
        """
        condition = term.value.key
        for number, other, holds in (
            (term.args[1], term.args[0], condition),
            (term.args[0], term.args[1], negated(condition)),
        ):
            if number.op == "const" and place is not None:
                store(expression(number, lambda one: None))
                self._emit(tirx.IfThenElse(holds, self._branch(other, holds, store, place), None))
                return
        opposite = negated(condition)
        first = self._branch(term.args[0], condition, store, place)
        self._emit(tirx.IfThenElse(condition, first, self._branch(term.args[1], opposite, store, place)))

    def _branch(self, term: Term, holds: Any, store: Any, place: frozenset[int] | None) -> Any:
        """The statements that store a term where a condition holds."""
        outer, self.out = self.out, []
        places, self.places = self.places, dict(self.places)
        self.conditions = (*self.conditions, holds)
        step = self.cover.step(term)
        if step is not None:
            self._count(step)
        self._compute(term, store, place)
        self.conditions = self.conditions[:-1]
        body = _sequence(self.out)
        self.out, self.places = outer, places
        return body

    def _leaf(self, term: Term) -> Any:
        if term.op == "load":
            return self._loaded(term)
        return expression(term, lambda one: None)

    def _known(self, term: Term) -> Any:
        """The load of a term that is in memory; None if it is not."""
        if term in self.places:
            self._touch(self.places[term])
            return self.places[term]
        return self._loaded(term) if term.op == "load" else None

    def _loaded(self, term: Term) -> Any:
        access = self.accesses[term.value]
        return tirx.BufferLoad(access.buffer, [self._index(access, index) for index in access.indices])

    # ---- indices that are data

    def _is_plain_index(self, access: Access, index: Any) -> bool:
        if not isinstance(index, ir.TensorLoad) or loads(index.indices):
            return False
        chosen = Access(index.source, tuple(index.indices), access.loops, access.surroundings)
        return chosen.memory == "ub" and chosen.dtype == "int32" and chosen.is_affine

    def _index(self, access: Access, index: Any) -> Any:
        """An index as it is, or the int32 temporary that holds what has to be worked out from data."""
        if not loads(index) or self._is_plain_index(access, index):
            return index
        found: dict[int, Access] = {}

        def access_of(load: Any) -> Access:
            return found.setdefault(
                len(found), Access(load.source, tuple(load.indices), access.loops, access.surroundings)
            )

        term = term_of(index, self.nest.loop_vars, access_of)
        for one in loads_of(term):
            self.accesses.append(one)
        term = renumbered(term, self.accesses)
        step = self.cover.step(term)
        if step is not None:
            self._count(step)
        return self._place(term)

    # ---- nests of their own

    def _may_go_before(self, term: Term, dependencies: frozenset[int]) -> bool:
        """Whether a term has the same value before the nest, and may be worked out there.

        Nothing that it reads is written in the nest, and either no condition about loops it does not depend on
        guards it, or all it reads is there whatever the loops are.
        """
        for leaf in leaves(term):
            if leaf.op == "load" and self.accesses[leaf.value].buffer in self.split.written:
                return False
        if all(self._decided(condition, dependencies) for condition in self.conditions):
            return True
        known = self._known_in(dependencies)
        return all(self.accesses[leaf.value].is_there(known) for leaf in leaves(term) if leaf.op == "load")

    def _decided(self, condition: Any, dependencies: frozenset[int]) -> bool:
        used = set(variables_of(condition))
        return not any(loop.var in used for n, loop in enumerate(self.split.loops) if n not in dependencies)

    def _known_in(self, dependencies: frozenset[int]) -> list[Any]:
        """The conditions that hold inside those of the loops that are given by position."""
        spans = [self.split.loops[n].span for n in sorted(dependencies)]
        limits = [limit for span in spans if span.varies for limit in span.limits]
        return [*limits, *(c for c in self.conditions if self._decided(c, dependencies))]

    @contextmanager
    def _before(self, dependencies: frozenset[int]) -> Iterator[None]:
        """Statements emitted meanwhile form a nest before the one being split."""
        outer, self.out = self.out, []
        yield
        body = _sequence(self.out)
        for condition in reversed(self.conditions):
            if self._decided(condition, dependencies):
                body = tirx.IfThenElse(condition, body, None)
        for n in sorted(dependencies, reverse=True):
            loop = self.split.loops[n]
            body = tirx.For(loop.var, loop.start, loop.extent, tirx.ForKind.SERIAL, body)
        self.split.before.append(fresh(body))
        self.out = outer


def _sequence(statements: list[Any]) -> Any:
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(statements)
