"""Lay rows of UB out so that a column of them lies in banks of different groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd, prod
from typing import Any, ClassVar

from tvm import ir, tirx

from compiler.codegen.instruction_form import BYTES
from compiler.codegen.memory import free_bytes
from compiler.isa.timing import ceil_div
from compiler.target import Chip
from compiler.tir.conditions import variables_of
from compiler.tir.nests import leaf_nest, pitches
from compiler.tir.rewriter import Rewriter, loads
from compiler.tir.scopes import itemsize
from compiler.tir.structure import structural_map, structural_walk
from passes.base import Pass

MEMORY, SCOPE = "ub", "local.ub"
SLOTS = 2  # that every buffer may get: rings are made later
LONGER = 1.5  # a row with what is added, at most


@dataclass(frozen=True)
class PadRows(Pass):
    """Give rows of a buffer in UB a pitch of whole blocks whose number has no divisor in common with that of groups.

    for p in 128, c in 16: t[c, p] = max(s[p, c], 0)
    -> the same, but t[1, 0] is 144 elements behind t[0, 0]

    A vector instruction that walks along ``c`` writes a block of each row at once; rows of 256 bytes have these in one
    group of banks, one after another.

    1. Some nest moves along a variable by elements of one operand in UB and by rows of another one, whose elements the
       first one has, too, or is folded from; rows longer than a repeat are folded block by block. No index is data.
    2. Nothing under an opaque mark touches the buffer: what is emitted for it may want its rows without gaps.
    3. All buffers in UB fit twice with what is added, and no row becomes longer by more than half.
    """

    name: ClassVar[str] = "pad-rows"
    requires: ClassVar[frozenset[str]] = frozenset({"one-store-per-nest", "zero-based-loops"})

    def run(self, subject: Any, chip: Chip) -> Any:
        found = _Columns(chip.vector.bytes_per_cycle)
        found.function(subject)
        room = free_bytes(MEMORY, chip) - SLOTS * sum(_bytes(buffer, _dense(buffer)) for buffer in found.allocated)
        padded: dict[Any, Any] = {}
        for buffer in found.allocated:
            axes = found.crossed.get(buffer, set())
            if not axes or buffer in found.fixed:
                continue
            strides = _padded(buffer, axes, chip)
            more = SLOTS * (_bytes(buffer, strides) - _bytes(buffer, _dense(buffer)))
            if 0 < more <= room:  # (3)
                room -= more
                padded[buffer] = tirx.decl_buffer(
                    buffer.shape, buffer.dtype, buffer.name, strides=list(strides), scope=SCOPE, layout=None
                )
        if not padded:
            return subject
        body = structural_map(subject.body, (tirx.Var, lambda var: padded.get(var, var)))
        return subject.with_body(body, subject.span)


class _Columns(Rewriter):
    """Which axes of buffers in UB are walked while another operand is walked by elements."""

    def __init__(self, repeat_bytes: int) -> None:
        super().__init__()
        self.repeat_bytes = repeat_bytes
        self.allocated: list[Any] = []
        self.crossed: dict[Any, set[int]] = {}
        self.fixed: set[Any] = set()

    def loop(self, loop: tirx.For) -> Any:
        nest = leaf_nest(loop)
        if nest is None:
            return super().loop(loop)
        self._note({each.loop_var for each in nest[0]}, nest[1])
        return loop

    def other(self, stmt: Any) -> Any:
        if isinstance(stmt, tirx.AllocBuffer):
            if stmt.buffer.scope() == SCOPE:
                self.allocated.append(stmt.buffer)
                if stmt.buffer.strides or BYTES in stmt.annotations:
                    self.fixed.add(stmt.buffer)
        else:  # (2)
            self.fixed.update(access.buffer for access in _accesses(stmt))
        return stmt

    def _note(self, loops: set[Any], store: Any) -> None:
        accesses = [access for access in _accesses(store) if access.buffer.scope() == SCOPE]
        for one in accesses:
            if any(loads(index) for index in one.indices):  # (1)
                self.fixed.add(one.buffer)
            by_element, moved = one.by_element(loops), loops.intersection(variables_of(list(one.indices)))
            for other in accesses:
                across = other.by_element(loops)
                if across & moved or (one.is_stored and other.row_bytes <= self.repeat_bytes):
                    axes = {axis for variable in by_element - across for axis in other.rows_of(variable)}
                    self.crossed.setdefault(other.buffer, set()).update(axes)


@dataclass(frozen=True)
class _Access:
    buffer: Any
    indices: tuple[Any, ...]
    is_stored: bool

    @property
    def row_bytes(self) -> int:
        return prod(int(n) for n in list(self.buffer.shape)[-1:]) * itemsize(self.buffer.dtype)

    def by_element(self, loops: set[Any]) -> set[Any]:
        """The loop variables that move it within a row."""
        for index, extent in zip(reversed(self.indices), reversed(self.buffer.shape), strict=True):
            used = loops.intersection(variables_of(index))
            if used or int(extent) > 1:
                return used
        return set()

    def rows_of(self, variable: Any) -> Iterator[int]:
        """The axes that a variable moves along, if what lies within one of them is more than an element."""
        for axis, index in enumerate(self.indices):
            if variable in variables_of(index) and prod(int(n) for n in self.buffer.shape[axis + 1 :]) > 1:
                yield axis


def _accesses(node: Any) -> list[_Access]:
    found: list[_Access] = []
    structural_walk(
        node,
        [
            (ir.TensorLoad, lambda load: found.append(_Access(load.source, tuple(load.indices), False))),
            (tirx.BufferStore, lambda store: found.append(_Access(store.buffer, tuple(store.indices), True))),
        ],
    )
    return found


def _dense(buffer: Any) -> tuple[int, ...]:
    return tuple(int(pitch) for pitch in pitches(buffer))


def _bytes(buffer: Any, strides: tuple[int, ...]) -> int:
    last = sum((int(n) - 1) * stride for n, stride in zip(buffer.shape, strides, strict=True))
    return (last + 1) * itemsize(buffer.dtype)


def _padded(buffer: Any, axes: set[int], chip: Chip) -> tuple[int, ...]:
    """The pitch of every axis; those in ``axes`` are of so many blocks that groups take turns."""
    each, block, groups = itemsize(buffer.dtype), chip.block_bytes, chip.vector.banks.groups
    strides: list[int] = []
    pitch = 1
    for axis in reversed(range(len(buffer.shape))):
        if axis in axes:
            blocks = ceil_div(pitch * each, block)
            while gcd(blocks, groups) > 1:
                blocks += 1
            wider = blocks * block // each
            pitch = wider if wider <= pitch * LONGER else pitch  # (3)
        strides.insert(0, pitch)
        pitch *= int(buffer.shape[axis])
    return tuple(strides)
