"""Loads what stays on the core piece by piece, each piece when it is used for the first time."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, NamedTuple

from tvm import ir, tirx
from tvm.sym import detect_linear_equation

from compiler.codegen.instruction_form import dtype_of, memory_of
from compiler.emission.cube.halves import HALVES
from compiler.emission.cube.places import MARK
from compiler.graph import attribute
from compiler.isa.declarations import BLOCK_BYTES
from compiler.isa.dtypes import DTYPES, SHARED_MEMORIES
from compiler.isa.timing import ceil_div
from compiler.target import Chip
from compiler.tiling.pieces import rows_may_be_cut
from compiler.tir.conditions import conditional, constant
from compiler.tir.loads_ahead import KEEP, SPREAD
from compiler.tir.nests import leaf_nest
from compiler.tir.rewriter import (
    Rewriter,
    contains,
    is_opaque,
    loop_with,
    sequence,
    simplified_indices,
    statements,
    substitute,
    uses,
)
from compiler.tir.structure import structural_walk
from passes.base import Pass


@dataclass(frozen=True)
class SpreadLoads(Pass):
    """A marked load in front of loops that use its result in order becomes a load per turn, in the first round of them.

    mark: for i in 64: for k in 512: l1[i, k] = a[i, k]
    for t in 4: for c in 8: use(l1[:, 64*c .. 64*c + 63])
    -> for t in 4: for c in 8: {if t == 0: mark: for i in 64: for k in 64: l1[i, 64*c + k] = a[i, 64*c + k]
                                use(l1[:, 64*c .. 64*c + 63])}

    So the first use waits for a piece, not for all, and the load beside it is not kept waiting.

    1. The load is a marked nest from DDR with one index per axis of its result, and the vector unit has no part in it:
       a piece would wait for results that are stored before. One statement behind it in the same block uses the
       result, and nothing else touches it.
    2. On the way to all uses stand loops of several turns, then the loop of pieces, and no branches. The n-th turn of
       the loop of pieces uses the n-th piece of one axis and nothing else of it.
    3. A piece is whole blocks, and whole lines or several of them of DDR where its axis is the contiguous one; and all
       of it takes longer than the first byte: else each piece would be waited for as long as the whole.
    4. In a function that says ``KEEP``, no loop around brings something else in each of its turns, where twice the
       buffer fits: then a ring of slots has the whole of the next turn under the work of this one, which pieces would
       begin only in that turn. Which of the two is faster shows when both are compiled; ``SPREAD`` says that there is
       a choice.
    """

    name: ClassVar[str] = "spread-loads"
    requires: ClassVar[frozenset[str]] = frozenset({"loops"})

    def run(self, subject: Any, chip: Chip) -> Any:
        spreader = _Spreader(chip, keep_ahead=bool(attribute(subject, KEEP)))
        func = spreader.function(subject)
        return func.with_attr(SPREAD, 1) if spreader.spread_ahead else func


class _Load(NamedTuple):
    """A marked nest that fills a buffer."""

    mark: Any
    loops: list[Any]
    store: Any

    @property
    def buffer(self) -> Any:
        return self.store.buffer


class _Pieces(NamedTuple):
    """Loops of several turns around the one over pieces, that one, the axis that it cuts, and how long a piece is."""

    around: tuple[Any, ...]
    loop: Any
    axis: int
    length: int


class _Spreader(Rewriter):
    def __init__(self, chip: Chip, *, keep_ahead: bool) -> None:
        super().__init__()
        self.chip, self.keep_ahead, self.spread_ahead = chip, keep_ahead, False
        self._turning: list[Any] = []  # variables of the loops of several turns around

    def loop(self, loop: tirx.For) -> Any | None:
        if constant(loop.extent) == 1:
            return super().loop(loop)
        self._turning.append(loop.loop_var)
        found = super().loop(loop)
        self._turning.pop()
        return found

    def sequence(self, seq: tirx.SeqStmt) -> Any | None:
        parts = list(seq.seq)
        for index, part in enumerate(parts):
            load = _load(part)
            if load is None:
                continue
            users = [at for at, other in enumerate(parts) if at != index and _touches(other, load.buffer)]
            if len(users) != 1 or users[0] < index:  # (1)
                continue
            pieces = self._pieces(load, parts[users[0]])
            ahead = pieces is not None and self._may_come_ahead(load)
            if pieces is not None and not (ahead and self.keep_ahead):  # (4)
                self.spread_ahead |= ahead
                parts[users[0]] = self._with_loads(parts[users[0]], load, pieces)
                del parts[index]
                return self.statement(sequence(parts))
        return super().sequence(seq)

    def _may_come_ahead(self, load: _Load) -> bool:
        """Whether the next turn's can be loaded under the work of this one."""
        (source,) = _loads_of(load.store.value)
        if not any(uses(index, self._turning) for index in source.indices):
            return False
        elements = prod(int(extent) for extent in load.buffer.shape)
        capacity = self.chip.memory_bytes(memory_of(load.buffer))
        return 2 * elements * DTYPES[dtype_of(load.buffer)].itemsize <= capacity

    def _pieces(self, load: _Load, user: Any) -> _Pieces | None:
        around: list[Any] = []
        structural_walk(user, (tirx.For, lambda loop: self.bind(loop.loop_var, loop.min, loop.extent)))
        while True:  # (2)
            while isinstance(user, tirx.AttrStmt) and not is_opaque(user):
                user = user.body
            if not isinstance(user, tirx.For) or user.step is not None or constant(user.min) != 0:
                return None
            reads = _reads(user.body, load.buffer)
            if reads is None:
                return None
            if any(uses(index, [user.loop_var]) for read in reads for index in read.indices):
                return self._cut(load, tuple(around), user, reads) if around else None
            if constant(user.extent) != 1:
                around.append(user)
            inside = [part for part in statements(user.body) if _touches(part, load.buffer)]
            if len(inside) != 1:
                return None
            user = inside[0]

    def _cut(self, load: _Load, around: tuple[Any, ...], loop: Any, reads: list[Any]) -> _Pieces | None:
        found = {(axis, self._length(loop, read.indices[axis])) for read in reads for axis in _moving(read, loop)}
        if len(found) != 1 or any(len(_moving(read, loop)) != 1 for read in reads):
            return None
        ((axis, length),) = found
        turns = constant(loop.extent)
        extent = next(
            (constant(one.extent) for one in load.loops if one.loop_var.same_as(load.store.indices[axis])), None
        )
        if not length or not turns or not extent or turns < 2 or ceil_div(extent, length) != turns:
            return None
        return _Pieces(around, loop, axis, length) if self._pays(load, axis, length) else None

    def _length(self, loop: Any, index: Any) -> int:
        """How far an index moves in a turn; zero where what it adds to that may leave the piece."""
        linear = detect_linear_equation(index, [loop.loop_var])
        step = constant(linear[0]) if len(linear) == 2 else None
        if not step or step < 0:
            return 0
        inside = self.analyzer.const_int_bound(linear[1])
        return step if inside.min_value >= 0 and inside.max_value < step else 0

    def _with_loads(self, stmt: Any, load: _Load, pieces: _Pieces) -> Any:
        """The statement that uses a buffer, with the load of a piece in front of what uses the piece."""
        if isinstance(stmt, tirx.SeqStmt):
            return tirx.SeqStmt(
                [self._with_loads(p, load, pieces) if _touches(p, load.buffer) else p for p in stmt.seq]
            )
        if isinstance(stmt, tirx.AttrStmt):
            body = self._with_loads(stmt.body, load, pieces)
            return tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, body, stmt.span)
        if not stmt.same_as(pieces.loop):
            return loop_with(stmt, self._with_loads(stmt.body, load, pieces))
        first: Any = None
        for loop in pieces.around:
            begins = tirx.EQ(loop.loop_var, 0)
            first = begins if first is None else tirx.And(first, begins)
        return loop_with(stmt, sequence([conditional(first, self._piece(load, pieces), None), stmt.body]))

    def _piece(self, load: _Load, pieces: _Pieces) -> Any:
        variable, start = load.store.indices[pieces.axis], pieces.loop.loop_var * pieces.length
        body = simplified_indices(substitute(load.store, {variable: variable + start}), self.analyzer)
        for loop in reversed(load.loops):
            moved = loop.loop_var.same_as(variable)
            length = tirx.min(pieces.length, loop.extent - start) if moved else loop.extent
            body = loop_with(loop, body, extent=self.analyzer.simplify(length))
        return tirx.AttrStmt(load.mark.node, load.mark.attr_key, load.mark.value, body, load.mark.span)

    def _pays(self, load: _Load, axis: int, length: int) -> bool:
        itemsize = DTYPES[dtype_of(load.buffer)].itemsize
        source = next(iter(_loads_of(load.store.value)))
        way = self.chip.path[f"{memory_of(source.source)}_{memory_of(load.buffer)}"]
        whole = prod(int(extent) for extent in load.buffer.shape) * itemsize / way.bytes_per_cycle
        if length * itemsize % BLOCK_BYTES or whole <= way.latency_cycles:  # (3)
            return False
        variable = load.store.indices[axis]
        if not uses(source.indices[-1], [variable]):
            return True
        return rows_may_be_cut(length * itemsize, int(source.source.shape[-1]) * itemsize, self.chip)


def _load(part: Any) -> _Load | None:
    """A marked nest from DDR whose indices into its result are variables of its own, or always the same."""
    if not isinstance(part, tirx.AttrStmt) or not is_opaque(part):
        return None
    if part.attr_key == MARK and getattr(part.value, "value", "") == HALVES:
        return None
    nest = leaf_nest(part.body)
    if nest is None:
        return None
    loops, store = nest
    sources = _loads_of(store.value)
    own = [loop.loop_var for loop in loops]
    if len(sources) != 1 or memory_of(sources[0].source) not in SHARED_MEMORIES:
        return None
    plain = all(constant(index) is not None or any(index.same_as(var) for var in own) for index in store.indices)
    return _Load(part, loops, store) if plain and memory_of(store.buffer) not in SHARED_MEMORIES else None


def _loads_of(node: Any) -> list[Any]:
    found: list[Any] = []
    structural_walk(node, (ir.TensorLoad, found.append))
    return found


def _touches(node: Any, buffer: Any) -> bool:
    stored = contains(node, tirx.BufferStore, lambda store: store.buffer.same_as(buffer))
    return stored or contains(node, ir.TensorLoad, lambda load: load.source.same_as(buffer))


def _reads(body: Any, buffer: Any) -> list[Any] | None:
    """All loads of a buffer; None where something stores to it."""
    if contains(body, tirx.BufferStore, lambda store: store.buffer.same_as(buffer)):
        return None
    return [load for load in _loads_of(body) if load.source.same_as(buffer)]


def _moving(read: Any, loop: Any) -> list[int]:
    """The axes of a read that the loop moves along."""
    return [axis for axis, index in enumerate(read.indices) if uses(index, [loop.loop_var])]
