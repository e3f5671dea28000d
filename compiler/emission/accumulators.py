"""Reductions into DDR: the sums are kept in UB while the nest runs, and stored when it is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from compiler.emission.temporaries import SCOPE, ChainLoop
from compiler.isa.dtypes import DTYPES
from compiler.tir.conditions import variables_of
from compiler.tir.rewriter import fresh
from compiler.tir.scopes import ISA_DTYPE, MEMORY_OF_SCOPE
from compiler.tir.structure import structural_map, structural_walk


@dataclass(frozen=True, eq=False)
class Accumulator:
    """A buffer of DDR that a nest reduces into, always at the same place of an iteration."""

    store: Any  # one of the stores into it
    moved: tuple[ChainLoop, ...]
    guards: tuple[Any, ...]
    initialised: bool
    local: Any  # what stands for it in UB

    @property
    def bytes(self) -> int:
        return prod(loop.bound for loop in self.moved) * DTYPES[ISA_DTYPE[str(self.local.dtype)]].itemsize

    def inside(self, nest: Any) -> Any:
        """The nest with the sums in UB."""
        place = [loop.position for loop in self.moved] or [tirx.IntImm("int32", 0)]
        buffer = self.store.buffer

        def load(access: Any) -> Any:
            return tirx.BufferLoad(self.local, place) if access.source.same_as(buffer) else access

        def store(one: Any) -> Any:
            return tirx.BufferStore(self.local, one.value, place) if one.buffer.same_as(buffer) else one

        return structural_map(nest, [(ir.TensorLoad, load), (tirx.BufferStore, store)])

    def _copy(self, into_ub: bool) -> Any:
        place = [loop.position for loop in self.moved] or [tirx.IntImm("int32", 0)]
        far = list(self.store.indices)
        body: Any
        if into_ub:
            body = tirx.BufferStore(self.local, tirx.BufferLoad(self.store.buffer, far), place)
        else:
            body = tirx.BufferStore(self.store.buffer, tirx.BufferLoad(self.local, place), far)
        for condition in reversed(self.guards):
            body = tirx.IfThenElse(condition, body, None)
        for loop in reversed(self.moved):
            body = tirx.For(loop.var, loop.start, loop.extent, tirx.ForKind.SERIAL, body)
        return fresh(body)

    def before(self) -> list[Any]:
        return [] if self.initialised else [self._copy(into_ub=True)]

    def after(self) -> Any:
        return self._copy(into_ub=False)


@dataclass(frozen=True, eq=False)
class _Place:
    store: Any
    conditions: tuple[Any, ...]


def accumulator(nest: Any, loops: Sequence[ChainLoop]) -> Accumulator | None:
    """The reduction into DDR in a nest, if there is one that can be kept in UB.

    1. Every access of the buffer in the nest is at the same place, which some loop does not move.
    2. What guards all of its stores depends on the loops that move it alone.
    """
    places = _stores(nest, ())
    updates = [place for place in places if _in_ddr(place.store.buffer) and _reads(place.store)]
    if not updates:
        return None
    store = updates[0].store
    used = set(variables_of(list(store.indices)))
    moved = tuple(loop for loop in loops if loop.var in used)
    reduced = [loop for loop in loops if loop.var not in used and loop.bound > 1]
    if not reduced or not _always_there(nest, store):  # (1)
        return None
    own = [place for place in places if place.store.buffer.same_as(store.buffer)]
    shared = [c for c in own[0].conditions if all(_among(c, place.conditions) for place in own)]
    inner = {loop.var for loop in reduced}
    guards = tuple(c for c in shared if not inner & set(variables_of(c)))
    for place in updates:
        if any(not _among(c, guards) and used & set(variables_of(c)) for c in place.conditions):  # (2)
            return None
    initialised = any(
        not _reads(place.store) and all(_among(c, guards) or _first(c, reduced) for c in place.conditions)
        for place in own
    )
    shape = [loop.bound for loop in moved] or [1]
    local = tirx.decl_buffer(shape, str(store.buffer.dtype), f"{store.buffer.name}_sum", scope=SCOPE)
    return Accumulator(store, moved, guards, initialised, local)


def _stores(stmt: Any, conditions: tuple[Any, ...]) -> list[_Place]:
    if isinstance(stmt, tirx.BufferStore):
        return [_Place(stmt, conditions)]
    if isinstance(stmt, tirx.For):
        return _stores(stmt.body, conditions)
    if isinstance(stmt, tirx.SeqStmt):
        return [place for part in stmt.seq for place in _stores(part, conditions)]
    found = _stores(stmt.then_case, (*conditions, stmt.condition))
    if stmt.else_case is not None:
        found += _stores(stmt.else_case, (*conditions, tirx.Not(stmt.condition)))
    return found


def _in_ddr(buffer: Any) -> bool:
    return MEMORY_OF_SCOPE.get(buffer.scope()) == "ddr"


def _reads(store: Any) -> bool:
    def visit(load: Any) -> Any:
        return tvm_ffi.VisitInterrupt(True) if load.source.same_as(store.buffer) else None

    return structural_walk(store.value, (ir.TensorLoad, visit)) is not None


def _always_there(nest: Any, store: Any) -> bool:
    def elsewhere(buffer: Any, indices: Any) -> Any:
        if buffer.same_as(store.buffer) and not tvm_ffi.structural_equal(indices, store.indices):
            return tvm_ffi.VisitInterrupt(True)
        return None

    callbacks = [
        (ir.TensorLoad, lambda load: elsewhere(load.source, load.indices)),
        (tirx.BufferStore, lambda one: elsewhere(one.buffer, one.indices)),
    ]
    return structural_walk(nest, callbacks) is None


def _among(condition: Any, others: Sequence[Any]) -> bool:
    return any(tvm_ffi.structural_equal(condition, other) for other in others)


def _first(condition: Any, reduced: Sequence[ChainLoop]) -> bool:
    """Whether a condition says that reducing loops are in their first iteration."""
    if isinstance(condition, tirx.And):
        return _first(condition.a, reduced) and _first(condition.b, reduced)
    if not isinstance(condition, tirx.EQ):
        return False
    return any(condition.a.same_as(loop.var) and tvm_ffi.structural_equal(condition.b, loop.start) for loop in reduced)
