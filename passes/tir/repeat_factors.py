"""Lay the numbers that rows of UB share out once for each repeat of a row, where no group of banks holds both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from tvm import ir, tirx

from compiler.codegen.instruction_form import BYTES
from compiler.codegen.memory import free_bytes
from compiler.isa.timing import ceil_div
from compiler.target import Chip
from compiler.tir.conditions import constant, linear_in
from compiler.tir.nests import leaf_nest, pitches
from compiler.tir.rewriter import Rewriter, loads, loop_with, simplified_indices, substitute, uses
from compiler.tir.scopes import itemsize
from compiler.tir.structure import structural_map, structural_walk
from passes.base import Pass

SCOPE = "local.ub"
SLOTS = 2  # of what crosses queues, in a loop
CYCLES = 2  # of a repeat that writes factors, at most: it converts them


@dataclass(frozen=True)
class RepeatFactors(Pass):
    """Give every repeat of a row a copy of the row's factor, as far from the one before as the repeats are.

    for r in 16: f[r] = rsqrt(v[r])
    for r in 16, c in 1024: y[r, c] = x[r, c] * f[r]
    -> for k in 8, r in 16: f[k, r] = rsqrt(v[r])
       for r in 16, k in 8, l in 128: y[r, 128*k + l] = x[r, 128*k + l] * f[k, r]

    A repeat reads neighbouring groups of banks, and the next one those behind them. A factor lies in one group, which
    some of the repeats would read twice. Copies go along with the repeats: once they are out of the way of the first,
    they are out of the way of all. The copies of several buffers lie side by side within the bytes of a repeat.

    1. A nest of two loops stores rows element by element, and all that it reads in rows is in UB, of the type of the
       factors, and as far apart from row to row as the groups take to begin anew. Columns are whole repeats.
    2. The factors of a buffer go into the bytes of one repeat, without a gap.
    3. Only stores of leaf nests make factors, of what is in UB, one for each turn of all their loops; nothing under an
       opaque mark touches the buffer, and no index is data.
    4. The conflicts cost more than the copies, and there is room for these.
    """

    name: ClassVar[str] = "repeat-factors"
    requires: ClassVar[frozenset[str]] = frozenset({"nest-form"})

    def run(self, subject: Any, chip: Chip) -> Any:
        found = _Uses(chip)
        found.function(subject)
        room = free_bytes("ub", chip) - sum(found.allocated.values()) - sum(found.crossing.values())
        copies: dict[Any, _Copies] = {}
        for together in found.together:
            paying = [b for b in together if b not in found.fixed and b in found.uses and found.uses[b].pays(chip)]
            for dtype in dict.fromkeys(str(buffer.dtype) for buffer in paying):
                for each in _side_by_side([b for b in paying if str(b.dtype) == dtype], found.uses, chip):
                    more = next(iter(each.values())).repeats * chip.vector.bytes_per_cycle
                    if more <= room:  # (4)
                        room -= more
                        copies.update(each)
        return _Repeater(found, copies).function(subject) if copies else subject


@dataclass(eq=False)
class _Use:
    """What nests do with a buffer of factors."""

    repeats: int = 0  # of a row
    read_repeats: int = 0  # of all rows
    writers: int = 0

    def pays(self, chip: Chip) -> bool:  # (4)
        banks = chip.vector.banks
        share = chip.vector.bytes_per_cycle / (banks.groups << banks.group_shift)  # of the repeats that read it twice
        lost = self.read_repeats * share * banks.same_group_read_millicycles / 1000
        return lost > CYCLES * self.writers * self.repeats


@dataclass(frozen=True, eq=False)
class _Copies:
    """Where the factors of a buffer go: into each row of another one, from a lane on."""

    buffer: Any
    first: int
    allocates: bool  # whether it is allocated where the buffer of the factors was

    @property
    def repeats(self) -> int:
        return int(self.buffer.shape[0])

    @property
    def lanes(self) -> int:
        return int(self.buffer.shape[1])


def _side_by_side(factors: Sequence[Any], of: Mapping[Any, _Use], chip: Chip) -> Iterator[dict[Any, _Copies]]:
    """The copies of factors of one type, as many side by side as go into the bytes of a repeat."""
    left = list(factors)
    while left:
        each = itemsize(left[0].dtype)
        lanes, block = chip.vector.bytes_per_cycle // each, chip.block_bytes // each
        firsts, end = dict[Any, int](), 0
        for buffer in left:
            needed = ceil_div(_elements(buffer), block) * block
            if end + needed <= lanes:
                firsts[buffer], end = end, end + needed
        repeats = max(of[buffer].repeats for buffer in firsts)
        name = left[0].name if len(firsts) == 1 else "factors"
        shared = tirx.decl_buffer((repeats, lanes), left[0].dtype, name, scope=SCOPE, layout=None)
        yield {b: _Copies(shared, first, allocates=number == 0) for number, (b, first) in enumerate(firsts.items())}
        left = [buffer for buffer in left if buffer not in firsts]


class _Uses(Rewriter):
    """Buffers of factors: where they are made, and which nests read them for whole rows."""

    def __init__(self, chip: Chip) -> None:
        super().__init__()
        self.repeat_bytes = chip.vector.bytes_per_cycle
        self.period_bytes = chip.vector.banks.groups << chip.vector.banks.group_shift
        self.allocated: dict[Any, int] = {}
        self.together: list[list[Any]] = [[]]  # what is allocated in one sequence
        self.crossing: dict[Any, int] = {}  # what other queues fill or empty in a loop
        self.fixed: set[Any] = set()
        self.uses: dict[Any, _Use] = {}
        self.read_in: dict[Any, list[Any]] = {}  # by the outermost loop of a nest, the factors that it reads for rows
        self._around: list[Any] = []
        self._sequence = self.together[0]

    def sequence(self, seq: tirx.SeqStmt) -> Any:
        outer, self._sequence = self._sequence, []
        self.together.append(self._sequence)
        super().sequence(seq)
        self._sequence = outer
        return seq

    def loop(self, loop: tirx.For) -> Any:
        nest = leaf_nest(loop)
        if nest is None:
            self._around.append(loop.loop_var)
            super().loop(loop)
            self._around.pop()
            return loop
        loops, store = nest
        for each in loops:
            self.bind(each.loop_var, each.min, each.extent)
        self._written(loops, store)
        self._read(loops, store)
        return loop

    def store(self, store: tirx.BufferStore) -> Any:
        self._written([], store)
        return store

    def other(self, stmt: Any) -> Any:
        if not isinstance(stmt, tirx.AllocBuffer):
            self.fixed.update(buffer for buffer, _ in _accesses(stmt))  # (3)
        elif stmt.buffer.scope() == SCOPE:
            buffer = stmt.buffer
            self.allocated[buffer] = _elements(buffer) * itemsize(buffer.dtype)
            self._sequence.append(buffer)
            if buffer.strides or BYTES in stmt.annotations or self.allocated[buffer] > self.repeat_bytes:  # (2)
                self.fixed.add(buffer)
        return stmt

    def _written(self, loops: list[Any], store: Any) -> None:  # (3)
        accesses = list(_accesses(store))
        self.fixed.update(buffer for buffer, indices in accesses if any(loads(index) for index in indices))
        steps = self._steps(store.buffer, store.indices, loops)
        if steps is None or any(step == 0 for step in steps) or any(b.scope() != SCOPE for b, _ in accesses):
            self.fixed.add(store.buffer)
        self.uses.setdefault(store.buffer, _Use()).writers += 1
        if uses(store, self._around) and any(buffer.scope() != SCOPE for buffer, _ in accesses):
            self.crossing |= {buffer: (SLOTS - 1) * self.allocated.get(buffer, 0) for buffer, _ in accesses}

    def _read(self, loops: list[Any], store: Any) -> None:  # (1)
        size, columns = itemsize(store.buffer.dtype), constant(loops[-1].extent)
        if len(loops) != 2 or columns is None or columns * size % self.repeat_bytes:
            return
        rows: set[Any] = set()
        others: dict[Any, None] = {}
        for buffer, indices in _accesses(store):
            steps = self._steps(buffer, indices, loops)
            if steps is None or buffer.scope() != SCOPE or steps[1] not in (0, 1):
                return
            if steps[1] and (itemsize(buffer.dtype) != size or steps[0] * size % self.period_bytes):
                return
            if steps[1]:
                rows.add(buffer)
            elif steps[0] and itemsize(buffer.dtype) == size:
                others.setdefault(buffer)
        if store.buffer not in rows:
            return
        repeats = columns * size // self.repeat_bytes
        turns = int(self.analyzer.const_int_bound(loops[0].extent).max_value)
        for buffer in others:
            use = self.uses.setdefault(buffer, _Use())
            use.repeats = max(use.repeats, repeats)
            use.read_repeats += turns * repeats
        self.read_in[loops[0]] = list(others)

    def _steps(self, buffer: Any, indices: Any, loops: list[Any]) -> tuple[int, ...] | None:
        """Elements that an access moves with each loop; None where that is no number."""
        linear = linear_in(self.analyzer.simplify(_flat(buffer, indices)), tuple(each.loop_var for each in loops))
        return None if linear is None else linear[0]


class _Repeater(Rewriter):
    def __init__(self, found: _Uses, copies: Mapping[Any, _Copies]) -> None:
        super().__init__()
        self.found = found
        self.copies = copies

    def loop(self, loop: tirx.For) -> Any:
        nest = leaf_nest(loop)
        if nest is None:
            return super().loop(loop)
        loops, store = nest
        if store.buffer in self.copies:
            return self._for_each_repeat(self.copies[store.buffer], loop)
        factors = [self.copies[buffer] for buffer in self.found.read_in.get(loop, []) if buffer in self.copies]
        return self._in_repeats(factors[0].lanes, loops, store) if factors else self._of_repeat(loop)

    def store(self, store: tirx.BufferStore) -> Any:
        copies = self.copies.get(store.buffer)
        return self._of_repeat(store) if copies is None else self._for_each_repeat(copies, store)

    def other(self, stmt: Any) -> Any:
        copies = self.copies.get(stmt.buffer) if isinstance(stmt, tirx.AllocBuffer) else None
        if copies is None:
            return stmt
        return tirx.AllocBuffer(copies.buffer, stmt.annotations, stmt.span) if copies.allocates else None

    def _for_each_repeat(self, copies: _Copies, nest: Any) -> Any:
        repeat = tirx.Var("repeat", "int32")
        body = self._of_repeat(nest, repeat, copies.repeats)
        return tirx.For(repeat, 0, copies.repeats, tirx.ForKind.SERIAL, body)

    def _in_repeats(self, lanes: int, loops: list[Any], store: Any) -> Any:
        rows, columns = loops
        repeat, lane = tirx.Var("repeat", "int32"), tirx.Var("lane", "int32")
        repeats = int(columns.extent) // lanes
        self.bind(repeat, 0, repeats)
        self.bind(lane, 0, lanes)
        body = substitute(self._of_repeat(store, repeat, repeats), {columns.loop_var: repeat * lanes + lane})
        inner = loop_with(columns, simplified_indices(body, self.analyzer), loop_var=lane, extent=lanes)
        return loop_with(rows, tirx.For(repeat, 0, repeats, tirx.ForKind.SERIAL, inner))

    def _of_repeat(self, node: Any, repeat: Any = 0, repeats: int = 1) -> Any:
        """The node with copies of factors: those of ``repeat`` where there are as many, else those of the first."""

        def place(buffer: Any, indices: Any) -> tuple[Any, list[Any]] | None:
            copies = self.copies.get(buffer)
            if copies is None:
                return None
            row = repeat if copies.repeats >= repeats else 0
            return copies.buffer, [row, _flat(buffer, indices) + copies.first]

        def load(access: Any) -> Any:
            found = place(access.source, access.indices)
            return access if found is None else tirx.BufferLoad(*found)

        def store(access: Any) -> Any:
            found = place(access.buffer, access.indices)
            return access if found is None else tirx.BufferStore(found[0], access.value, found[1])

        return structural_map(node, [(ir.TensorLoad, load), (tirx.BufferStore, store)])


def _elements(buffer: Any) -> int:
    return prod(int(extent) for extent in buffer.shape)


def _flat(buffer: Any, indices: Any) -> Any:
    """Elements from a buffer's start to an access."""
    elements: Any = 0
    for index, pitch in zip(indices, pitches(buffer), strict=True):
        elements = elements + index * pitch
    return elements


def _accesses(node: Any) -> list[tuple[Any, tuple[Any, ...]]]:
    found: list[tuple[Any, tuple[Any, ...]]] = []
    structural_walk(
        node,
        [
            (ir.TensorLoad, lambda load: found.append((load.source, tuple(load.indices)))),
            (tirx.BufferStore, lambda store: found.append((store.buffer, tuple(store.indices)))),
        ],
    )
    return found
