"""Keeps a part of what is loaded again and again on the core."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from tvm import ir, tirx
from tvm.sym import detect_linear_equation

from compiler.codegen.instruction_form import memory_of
from compiler.isa.dtypes import SHARED_MEMORIES
from compiler.target import Chip
from compiler.tiling.cube import HELD
from compiler.tir.conditions import conditional, constant
from compiler.tir.nests import leaf_nest
from compiler.tir.rewriter import Rewriter, fresh, is_opaque, loop_with, sequence, statements, uses
from compiler.tir.structure import structural_map, structural_walk
from passes.base import Pass


@dataclass(frozen=True)
class HoldPieces(Pass):
    """The last pieces of an operand stay where they are loaded, the others pass by.

    for t in 4: held = 5: for c in 8: {x = alloc; mark: x[i, j] = a[i, 64*c + j]; use(x)}
    -> kept = alloc
       for t in 4: for c in 8: {x = alloc
                                if c < 3: mark: x[i, j] = a[i, 64*c + j]
                                else: if t == 0: mark: kept[i, 64*(c - 3) + j] = a[i, 64*c + j]
                                if c < 3: use(x) else: use(kept[.., 64*(c - 3) + ..])}

    So an operand of which the core has no room for all is read again only in part.

    1. The load is a marked nest in the body of the loop over pieces, of a buffer that is allocated there; other marked
       nests alone use that. It does not follow the loops around, from the innermost out to one that it does follow:
       there the pieces that stay begin anew.
    2. The load moves along one axis of its source with the loop, as far in each turn as the buffer is long there.
    """

    name: ClassVar[str] = "hold-pieces"
    requires: ClassVar[frozenset[str]] = frozenset({"loops"})

    def run(self, subject: Any, chip: Chip) -> Any:
        return _Holder().function(subject)


class _Load(NamedTuple):
    """A marked nest that fills a buffer of the core."""

    mark: Any
    store: Any

    @property
    def buffer(self) -> Any:
        return self.store.buffer

    @property
    def source(self) -> Any:
        found: list[Any] = []
        structural_walk(self.store.value, (ir.TensorLoad, found.append))
        return found[0]


@dataclass(frozen=True)
class _Pieces:
    """The loop over them, the first that stays, and the buffer for those that do."""

    loop: Any
    load: _Load
    axis: int
    first: int
    kept: Any
    begins: Any  # when pieces that stay are loaded

    def passing(self, nest: Any) -> Any:
        """A nest on the piece of its turn, from where that is."""
        return conditional(self.loop.loop_var < self.first, nest, self.of_kept(nest))

    def of_kept(self, nest: Any) -> Any:
        """The nest on the buffer for pieces that stay."""
        length = int(self.load.buffer.shape[self.axis])
        start = (self.loop.loop_var - self.first) * length

        def indices(access: Any) -> list[Any]:
            return [index + start if at == self.axis else index for at, index in enumerate(access.indices)]

        def load(access: Any) -> Any:
            return tirx.BufferLoad(self.kept, indices(access)) if access.source.same_as(self.load.buffer) else access

        def store(access: Any) -> Any:
            if not access.buffer.same_as(self.load.buffer):
                return access
            return tirx.BufferStore(self.kept, access.value, indices(access))

        return structural_map(fresh(nest), [(ir.TensorLoad, load), (tirx.BufferStore, store)])


class _Holder(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self.around: list[Any] = []
        self.allocated: dict[Any, Any] = {}  # in front of a loop, by its variable

    def loop(self, loop: tirx.For) -> Any | None:
        self.around.append(loop)
        done = super().loop(loop)
        self.around.pop()
        allocation = self.allocated.pop(loop.loop_var, None)
        return done if allocation is None else sequence([allocation, done])

    def statement(self, stmt: Any) -> Any | None:
        if isinstance(stmt, tirx.AttrStmt) and stmt.attr_key == HELD:
            return super().statement(self._held(stmt.body, int(stmt.value)))
        return super().statement(stmt)

    def _held(self, loop: Any, count: int) -> Any:
        body = statements(loop.body)
        load = next((load for load in map(_load, body) if load is not None and not self._follows(load)), None)
        allocations = [part for part in body if isinstance(part, tirx.AllocBuffer)]
        own = load and next((one for one in allocations if one.buffer.same_as(load.buffer)), None)
        turns = constant(loop.extent)
        axis = _axis(load, loop) if load else None
        if load is None or own is None or axis is None or not turns or not 0 < count < turns:
            return loop
        again: list[Any] = []
        while len(again) < len(self.around) and not uses(load.store, [self.around[-1 - len(again)].loop_var]):
            again.append(self.around[-1 - len(again)])
        if not again:
            return loop
        shape = [count * int(n) if at == axis else int(n) for at, n in enumerate(load.buffer.shape)]
        kept = tirx.decl_buffer(
            shape, load.buffer.dtype, f"{load.buffer.name}_kept", scope=load.buffer.scope(), layout=None
        )
        begins = None
        for each in again:
            first = tirx.EQ(each.loop_var, each.min)
            begins = first if begins is None else tirx.And(begins, first)
        pieces = _Pieces(loop, load, axis, turns - count, kept, begins)
        self.allocated[again[-1].loop_var] = tirx.AllocBuffer(kept, dict(own.annotations))
        return loop_with(loop, sequence(_with_pieces(part, pieces) for part in body))

    def _follows(self, load: _Load) -> bool:
        return not self.around or uses(load.store, [self.around[-1].loop_var])


def _with_pieces(stmt: Any, pieces: _Pieces) -> Any:
    """The statement with every nest on the buffer of a piece on that of the pieces that stay, too."""
    if isinstance(stmt, tirx.SeqStmt):
        return sequence(_with_pieces(part, pieces) for part in stmt.seq)
    if isinstance(stmt, tirx.For):
        return loop_with(stmt, _with_pieces(stmt.body, pieces))
    if isinstance(stmt, tirx.IfThenElse):
        then, otherwise = (part and _with_pieces(part, pieces) for part in (stmt.then_case, stmt.else_case))
        return tirx.IfThenElse(stmt.condition, then, otherwise)
    if not isinstance(stmt, tirx.AttrStmt) or not uses(stmt.body, [pieces.load.buffer]):
        return stmt
    if stmt.same_as(pieces.load.mark):
        kept = tirx.IfThenElse(pieces.begins, pieces.of_kept(stmt), None)
        return tirx.IfThenElse(pieces.loop.loop_var < pieces.first, stmt, kept)
    return pieces.passing(stmt)


def _load(part: Any) -> _Load | None:
    """A marked nest that brings something from afar."""
    if not isinstance(part, tirx.AttrStmt) or not is_opaque(part):
        return None
    nest = leaf_nest(part.body)
    if nest is None:
        return None
    _, store = nest
    sources: list[Any] = []
    structural_walk(store.value, (ir.TensorLoad, sources.append))
    if len(sources) != 1 or memory_of(sources[0].source) not in SHARED_MEMORIES:
        return None
    return None if memory_of(store.buffer) in SHARED_MEMORIES else _Load(part, store)


def _axis(load: _Load, loop: Any) -> int | None:
    """The axis of the buffer along which the pieces follow each other; None where they do not (2)."""
    moved = [index for index in load.source.indices if uses(index, [loop.loop_var])]
    linear: Any = detect_linear_equation(moved[0], [loop.loop_var]) if len(moved) == 1 else ()
    if len(linear) != 2:
        return None
    step = constant(linear[0])
    along = [at for at, index in enumerate(load.store.indices) if uses(linear[1], [index])]
    return along[0] if len(along) == 1 and step == int(load.buffer.shape[along[0]]) else None
