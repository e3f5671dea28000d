"""Lay short rows of UB that are summed out by columns, so that elements of many rows lie side by side."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any, ClassVar

from tvm import ir, tirx

from compiler.codegen.instruction_form import BYTES
from compiler.codegen.memory import free_bytes
from compiler.isa.layout import ceil_to
from compiler.target import Chip
from compiler.tir.conditions import variables_of
from compiler.tir.nests import leaf_nest
from compiler.tir.rewriter import Rewriter, loads
from compiler.tir.scopes import itemsize
from compiler.tir.structure import structural_map, structural_walk
from passes.base import Pass

MEMORY, SCOPE = "ub", "local.ub"
SLOTS = 2  # that every buffer may get: rings are made later
LONGEST = 2  # repeats of a row: longer ones are folded by themselves as fast


@dataclass(frozen=True)
class TurnRows(Pass):
    """Give a buffer in UB that is loaded to be folded strides by which the axes that are folded are the outermost.

    for c in 256, p in 49: x[c, p] = image[c, p];   for c in 256, p in 49: sum[c] += x[c, p]
    -> the same, but x[0, 1] is 256 elements behind x[0, 0], and x[1, 0] the next one

    The vector unit sums many rows side by side. Rows of 98 bytes have their elements in as many blocks, of which each
    repeat reads all; elements side by side fill blocks. A load puts them wherever they are wanted.

    1. One nest fills the buffer, from another memory; all others fold it, along all of its last axes.
    2. Axes in front of these move the result; there are rows enough for a repeat, and each is shorter than two.
    3. Nothing under an opaque mark touches the buffer.
    4. All buffers in UB fit twice with what is added so that columns begin with a block.
    """

    name: ClassVar[str] = "turn-rows"
    requires: ClassVar[frozenset[str]] = frozenset({"one-store-per-nest", "zero-based-loops"})

    def run(self, subject: Any, chip: Chip) -> Any:
        found = _Uses()
        found.function(subject)
        room = free_bytes(MEMORY, chip) - SLOTS * sum(_bytes(buffer) for buffer in found.allocated)
        turned: dict[Any, Any] = {}
        for buffer in found.allocated:
            folded = found.folded(buffer)
            if folded is None or not _pays(buffer, folded, chip):
                continue
            strides, size = _upright(buffer, folded, chip)
            more = SLOTS * (size * itemsize(buffer.dtype) - _bytes(buffer))
            if more <= room:  # (4)
                room -= more
                turned[buffer] = tirx.decl_buffer(
                    buffer.shape, buffer.dtype, buffer.name, strides=strides, scope=SCOPE, layout=None
                )
        if not turned:
            return subject
        return subject.with_body(
            structural_map(subject.body, (tirx.Var, lambda var: turned.get(var, var))), subject.span
        )


@dataclass
class _Use:
    """What nests do with a buffer."""

    fills: int = 0
    folds: set[int | None] = field(default_factory=set)  # axes that are folded, the last ones; None: anything else


class _Uses(Rewriter):
    """How buffers in UB are filled and read."""

    def __init__(self) -> None:
        super().__init__()
        self.allocated: list[Any] = []
        self.uses: dict[Any, _Use] = {}

    def folded(self, buffer: Any) -> int | None:
        """How many of a buffer's last axes are folded by all that read it."""
        use = self.uses.get(buffer, _Use())
        return next(iter(use.folds)) if use.fills == 1 and len(use.folds) == 1 else None

    def loop(self, loop: tirx.For) -> Any:
        nest = leaf_nest(loop)
        if nest is None:
            return super().loop(loop)
        self._note({each.loop_var for each in nest[0]}, nest[1])
        return loop

    def store(self, store: tirx.BufferStore) -> Any:
        self._note(set(), store)
        return store

    def other(self, stmt: Any) -> Any:
        if isinstance(stmt, tirx.AllocBuffer):
            if stmt.buffer.scope() == SCOPE:
                self.allocated.append(stmt.buffer)
                if stmt.buffer.strides or BYTES in stmt.annotations:
                    self._use(stmt.buffer).folds.add(None)
        else:  # (3)
            structural_walk(stmt, (ir.TensorLoad, lambda load: self._use(load.source).folds.add(None)))
            structural_walk(stmt, (tirx.BufferStore, lambda store: self._use(store.buffer).folds.add(None)))
        return stmt

    def _use(self, buffer: Any) -> _Use:
        return self.uses.setdefault(buffer, _Use())

    def _note(self, loops: set[Any], store: Any) -> None:
        read: list[Any] = []
        structural_walk(store.value, (ir.TensorLoad, read.append))
        for index in store.indices:
            structural_walk(index, (ir.TensorLoad, read.append))
        if isinstance(store.value, ir.TensorLoad) and store.value.source.scope() != SCOPE:
            self._use(store.buffer).fills += 1
        elif store.buffer.scope() == SCOPE:
            self._use(store.buffer).folds.add(None)
        made = loops.intersection(variables_of(list(store.indices)))
        is_fold = any(load.source.same_as(store.buffer) for load in read)
        for load in read:
            if load.source.scope() == SCOPE:
                self._use(load.source).folds.add(_folded_axes(load, loops, made) if is_fold else None)


def _folded_axes(load: Any, loops: set[Any], made: set[Any]) -> int | None:
    """How many of the last axes of what is loaded a nest folds, if it folds these, all others move the result (2)."""
    moved = [loops.intersection(variables_of(index)) for index in load.indices]
    if any(loads(index) for index in load.indices):
        return None
    last = len(moved)
    while last and not moved[last - 1] & made:
        last -= 1
    if any(variables - made for variables in moved[:last]):
        return None
    return len(moved) - last or None


def _pays(buffer: Any, folded: int, chip: Chip) -> bool:
    shape, each = [int(n) for n in buffer.shape], itemsize(buffer.dtype)
    rows, columns = prod(shape[: len(shape) - folded]), prod(shape[len(shape) - folded :])
    repeat = chip.vector.bytes_per_cycle
    return rows * each >= repeat and columns > 1 and columns * each <= LONGEST * repeat


def _upright(buffer: Any, folded: int, chip: Chip) -> tuple[list[int], int]:
    """Strides by which the last axes are the outermost, and how many elements there are with what is added."""
    shape = [int(n) for n in buffer.shape]
    strides, pitch = [0] * len(shape), 1
    for axis in reversed(range(len(shape) - folded)):
        strides[axis], pitch = pitch, pitch * shape[axis]
    pitch = ceil_to(pitch, chip.block_bytes // itemsize(buffer.dtype))
    for axis in reversed(range(len(shape) - folded, len(shape))):
        strides[axis], pitch = pitch, pitch * shape[axis]
    return strides, pitch


def _bytes(buffer: Any) -> int:
    return prod(int(n) for n in buffer.shape) * itemsize(buffer.dtype)
