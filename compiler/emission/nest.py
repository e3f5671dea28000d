"""A leaf nest as recognisers see it: its loops, the one store in them, and how every access moves with the loops.

An :class:`Access` is affine in a loop if the flat element offset grows by the same number with each of the loop's
iterations; its coefficient is that number, and ``None`` where there is none (a division, an index that is data).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.sym import Analyzer, detect_linear_equation

from compiler.emission.terms import Term, loads_of, term_of
from compiler.emission.written import Written
from compiler.isa.model import dense_strides
from compiler.tir.conditions import variables_of
from compiler.tir.scopes import ISA_DTYPE, MEMORY_OF_SCOPE
from compiler.tir.structure import structural_map, structural_walk

_TRIED = 128  # combinations of values
_FAR = 1 << 20


class Surroundings:
    """What is known around a nest: the ranges of the variables that outer loops define, what was written before, and
    which parameters will lie in LLB.
    """

    def __init__(self, analyzer: Analyzer | None = None, near: frozenset[Any] = frozenset()) -> None:
        self.analyzer, self.near = analyzer or Analyzer(), near
        self.written = Written()
        self._known: dict[Any, tuple[int, int] | None] = {}
        self._layouts: dict[Any, tuple[tuple[int, ...], tuple[int, ...]]] = {}

    def bind(self, var: Any, extent: Any) -> None:
        """``var`` counts from zero to ``extent``."""
        self.analyzer.bind(var, tvm.ir.Range(0, extent), allow_override=True)

    def bounds(self, expr: Any) -> tuple[int, int]:
        """The least and the greatest value that an integer expression can have."""
        if isinstance(expr, int):
            return expr, expr
        if isinstance(expr, tirx.IntImm):
            return int(expr.value), int(expr.value)
        bound = self.analyzer.const_int_bound(expr)
        return self._tried(expr) or (int(bound.min_value), int(bound.max_value))

    def _tried(self, expr: Any) -> tuple[int, int] | None:
        """The bounds by trying all values of its variables, where intervals would lose how its limits go together."""
        limits: list[Any] = []
        structural_walk(expr, ((tirx.Min, tirx.Max), limits.append))
        if len(limits) < 2:
            return None
        key = tvm_ffi.StructuralKey(expr)
        if key not in self._known:
            self._known[key] = self._try(expr)
        return self._known[key]

    def _try(self, expr: Any) -> tuple[int, int] | None:
        variables = variables_of(expr)
        ranges = [self.analyzer.const_int_bound(var) for var in variables]
        spans = [range(int(r.min_value), int(r.max_value) + 1) if r.max_value < _FAR else None for r in ranges]
        if None in spans or prod(len(span) for span in spans if span is not None) > _TRIED:
            return None
        found = []
        for values in product(*(span for span in spans if span is not None)):
            numbers = {var: tirx.IntImm("int32", value) for var, value in zip(variables, values, strict=True)}
            value = _constant(self.analyzer.simplify(tirx_substitute(expr, numbers)))
            if value is None:
                return None
            found.append(value)
        return (min(found), max(found)) if found else None

    def layout(self, buffer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(the constant shape of a buffer, elements between neighbours of each of its dimensions)."""
        known = self._layouts.get(buffer)
        if known is None:
            shape = tuple(int(extent) for extent in buffer.shape)
            strides = tuple(int(stride) for stride in buffer.strides)
            known = self._layouts[buffer] = (shape, strides or dense_strides(shape))
        return known

    def simplify(self, expr: Any) -> Any:
        return expr if isinstance(expr, int | tirx.IntImm) else self.analyzer.simplify(expr)


@dataclass(frozen=True, eq=False)
class Loop:
    """One loop of a nest; it counts from zero. ``bound`` is the greatest extent it can have, ``least`` the least."""

    var: Any
    extent: Any  # int, or a TIR expression over outer variables
    bound: int
    least: int

    @property
    def is_dynamic(self) -> bool:
        return not isinstance(self.extent, int)

    @property
    def may_be_empty(self) -> bool:
        return self.least < 1


@dataclass(eq=False)
class Access:
    """One place a nest reads or writes: a buffer at indices that depend on the loops."""

    buffer: Any
    indices: tuple[Any, ...]
    loops: tuple[Loop, ...]
    surroundings: Surroundings = field(repr=False)

    @cached_property
    def memory(self) -> str:
        return MEMORY_OF_SCOPE.get(self.buffer.scope(), self.buffer.scope())

    @cached_property
    def dtype(self) -> str:
        return ISA_DTYPE.get(str(self.buffer.dtype), str(self.buffer.dtype))

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The buffer's constant shape."""
        return self.surroundings.layout(self.buffer)[0]

    @cached_property
    def pitches(self) -> tuple[int, ...]:
        """Elements between neighbours of each dimension of the buffer."""
        return self.surroundings.layout(self.buffer)[1]

    @cached_property
    def flat(self) -> Any:
        """The flat element offset as a TIR expression over all variables."""
        offset: Any = 0
        for index, pitch in zip(self.indices, self.pitches, strict=True):
            offset = offset + (index if pitch == 1 else index * pitch)
        return tirx.IntImm("int32", offset) if isinstance(offset, int) else offset

    @cached_property
    def _linear(self) -> tuple[tuple[int | None, ...], Any]:
        """(coefficient per loop, the offset where every loop variable is zero or None if a loop is not affine)."""
        variables = [loop.var for loop in self.loops]
        found = detect_linear_equation(self.flat, variables)
        if len(found) != len(variables) + 1:  # collapsed loops step through `i // n` and `i % n` of a buffer's rows
            found = detect_linear_equation(self.surroundings.simplify(self.flat), variables)
        if len(found) == len(variables) + 1:
            coefficients = tuple(_constant(c) for c in found[:-1])
            if None not in coefficients:
                return coefficients, found[-1]
        return tuple(self._coefficient(var) for var in variables), None

    def _coefficient(self, var: Any) -> int | None:
        """That of one loop alone, where others' are not numbers."""
        found = detect_linear_equation(self.flat, [var])
        if len(found) != 2:
            found = detect_linear_equation(self.surroundings.simplify(self.flat), [var])
        return _constant(found[0]) if len(found) == 2 else None

    @property
    def coefficients(self) -> tuple[int | None, ...]:
        """Elements per iteration of each loop; ``None`` where the access is not affine in it."""
        return self._linear[0]

    @property
    def is_affine(self) -> bool:
        return None not in self.coefficients

    @cached_property
    def base(self) -> Any:
        """The flat offset of the first iteration, simplified: a TIR expression over outer variables."""
        affine = self._linear[1]
        if affine is None:
            affine = tirx_substitute(self.flat, {loop.var: tirx.IntImm("int32", 0) for loop in self.loops})
        return self.surroundings.simplify(affine)

    def is_there(self, known: Sequence[Any] = ()) -> bool:
        """Whether all that is read has been written, in every iteration in which the conditions ``known`` hold."""
        for index, extent in zip(self.indices, self.shape, strict=True):
            low, high = self.surroundings.bounds(index)
            if low < 0 or high >= extent:
                return False
        return self.surroundings.written.covers(self, known)

    def coefficient(self, loop: Loop) -> int | None:
        return self.coefficients[self.loops.index(loop)]

    def at(self, values: dict[Any, Any]) -> tuple[Any, ...]:
        """The indices with loop variables replaced, simplified."""
        return tuple(self.surroundings.simplify(tirx_substitute(index, values)) for index in self.indices)

    def load(self, values: dict[Any, Any] | None = None) -> Any:
        """The access as a BufferLoad."""
        return tirx.BufferLoad(self.buffer, list(self.at(values) if values else self.indices))

    def same_place(self, other: Access) -> bool:
        """Whether both touch the same element in every iteration."""
        if self is other:
            return True
        if not self.buffer.same_as(other.buffer):
            return False
        return all(
            tvm_ffi.structural_equal(a, b) or self.surroundings.analyzer.can_prove_equal(a, b)
            for a, b in zip(self.indices, other.indices, strict=True)
        )

    def __str__(self) -> str:
        return f"{self.buffer.name}[{', '.join(map(str, self.indices))}]"


def _constant(expr: Any) -> int | None:
    return int(expr.value) if isinstance(expr, tirx.IntImm) else None


def tirx_substitute(node: Any, values: dict[Any, Any]) -> Any:
    """``node`` with variables replaced; integers pass."""
    if isinstance(node, int) or not values:
        return node
    return structural_map(node, (tvm.ir.Var, lambda var: values.get(var, var)))


@dataclass(eq=False)
class Nest:
    """A perfect nest of serial loops around one store.

    Attributes
    ----------
    loops: outermost first; loops of one iteration are gone, their variable is zero in the store.
    store: the BufferStore; ``target`` is where it writes and ``value`` what.
    pragmas: attributes with keys ``tw.*`` or ``pragma_tw*`` around the store, by key.
    """

    loops: tuple[Loop, ...]
    store: Any
    surroundings: Surroundings
    pragmas: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def target(self) -> Access:
        return Access(self.store.buffer, tuple(self.store.indices), self.loops, self.surroundings)

    @cached_property
    def value(self) -> Term:
        seen: dict[Any, Access] = {}

        def access_of(load: Any) -> Access:
            key = tvm_ffi.StructuralKey(load)
            if key not in seen:
                seen[key] = Access(load.source, tuple(load.indices), self.loops, self.surroundings)
            return seen[key]

        return term_of(self.store.value, self.loop_vars, access_of)

    @cached_property
    def loop_vars(self) -> frozenset[Any]:
        return frozenset(loop.var for loop in self.loops)

    @cached_property
    def sources(self) -> tuple[Access, ...]:
        """Every place that is read as data, once, in the order of the value; indices that are data do not count."""
        return tuple(loads_of(self.value))

    @cached_property
    def iterations(self) -> int:
        """How often the store runs at most."""
        return prod(loop.bound for loop in self.loops)

    def __str__(self) -> str:
        head = " ".join(f"{loop.var.name}<{loop.extent}" for loop in self.loops)
        return f"for {head}: {self.target} = {self.value}"


def nest_of(stmt: Any, surroundings: Surroundings) -> Nest | None:
    """The leaf nest that ``stmt`` is, or None if it is something else: a sequence, an if, a loop not from zero.

    What a pragma marks is a nest of its own: loops around it are no part of it.
    """
    loops: list[tuple[Any, Any]] = []
    pragmas: dict[str, Any] = {}
    while not isinstance(stmt, tirx.BufferStore):
        if isinstance(stmt, tirx.For):
            if not _is_plain(stmt) or _constant(stmt.min) != 0:
                return None
            loops.append((stmt.loop_var, stmt.extent))
            for key, value in stmt.annotations.items():
                if is_pragma(key):
                    pragmas[str(key)] = value
        elif isinstance(stmt, tirx.AttrStmt):
            if loops or not is_pragma(stmt.attr_key):
                return None
            pragmas[str(stmt.attr_key)] = stmt.value
        else:
            return None
        stmt = stmt.body
    return make_nest(loops, stmt, surroundings, pragmas)


def make_nest(
    loops: Iterable[tuple[Any, Any]], store: Any, surroundings: Surroundings, pragmas: dict[str, Any] | None = None
) -> Nest:
    """A nest of (variable, extent) pairs, outermost first."""
    kept: list[Loop] = []
    unit: dict[Any, Any] = {}
    for var, extent in loops:
        extent = surroundings.simplify(extent)
        least, bound = surroundings.bounds(extent)
        if least == bound == 1:
            unit[var] = tirx.IntImm(str(var.ty), 0)
            continue
        constant = least == bound
        kept.append(Loop(var, bound if constant else extent, bound, least))
        surroundings.bind(var, extent)
    return Nest(tuple(kept), tirx_substitute(store, unit), surroundings, pragmas or {})


def is_pragma(key: Any) -> bool:
    return str(key).startswith(("tw.", "pragma_tw"))


def _is_plain(loop: Any) -> bool:
    serial = loop.kind in (tirx.ForKind.SERIAL, tirx.ForKind.UNROLLED)
    return serial and (loop.step is None or _constant(loop.step) == 1)
