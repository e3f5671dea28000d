"""Lets the matrix unit sum rows of UB, and their squares, while the vector unit does what only that can."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Any, ClassVar

from tvm import ir, sym, tirx

from compiler.graph import attribute
from compiler.isa.layout import FRACTAL, ceil_to
from compiler.target import Chip
from compiler.tiling.cube import CUBE, L0A, L0B, L0C, L1, UB
from compiler.tir.rewriter import Rewriter, contains, sequence, statements, substitute, uses
from compiler.tir.row_sums import NARROW, ON_CUBE, WIDE, plain, squared, summed
from compiler.tir.structure import structural_walk
from passes.base import Pass

BYTES = 2  # of an element
SLOTS = 2  # beside the cube
ONES_SHARE = 8  # ones take no more of L0B than one part in so many


@dataclass(frozen=True)
class SumRowsOnCube(Pass):
    """In a function that asks for it, sums of rows become products, and sums of squares the diagonal of others.

    for r, k: s[r] += fp32(x[r, k])         ->   l1 = x;  for r, j, k: c[r, j] += l1[r, k] * ones[k, j];  s[r] = c[r, 0]
    for r, k: q[r] += fp32(x[r, k]) ** 2    ->   l1 = x;  for r, j, k: c[r, j] += l1[r, k] * l1[j, k];    q[r] = c[r, r]

    The vector unit converts what it sums, and each of its sums is another way through all elements. The matrix unit
    sums products of fp16 in fp32, and has nothing else to do.

    1. The rows lie in UB, each with all of its elements, in fp16 and of whole fractals; of one axis at most there are
       several. Their sums are in fp32, in UB, too.
    2. Squares may be summed by the places of a block first, in any type, if only the sums of those read these.
    """

    name: ClassVar[str] = "sum-rows-on-cube"
    requires: ClassVar[frozenset[str]] = frozenset({"loops"})

    def run(self, subject: Any, chip: Chip) -> Any:
        steps = attribute(subject, ON_CUBE)
        return _Summer(chip, int(steps)).function(subject) if steps else subject


# ---- what is replaced --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sum:
    """A nest that starts and adds up a sum for each of its rows."""

    loops: tuple[Any, ...]
    conditions: tuple[Any, ...]  # of the rows
    store: Any
    term: Any

    @staticmethod
    def of(statement: Any) -> _Sum | None:
        loops, conditions = list[Any](), list[Any]()
        while isinstance(statement, tirx.For | tirx.IfThenElse):
            if isinstance(statement, tirx.For):
                loops.append(statement)
                statement = statement.body
            elif statement.else_case is None:
                conditions.append(statement.condition)
                statement = statement.then_case
            else:
                return None
        if not isinstance(statement, tirx.SeqStmt) or len(statement.seq) != 2:
            return None
        start, store = statement.seq
        term = summed(store)
        if not isinstance(start, tirx.IfThenElse) or term is None or not _are_numbers(loops):
            return None
        return _Sum(tuple(loops), tuple(conditions), store, term)

    def row_of(self, indices: Sequence[Any]) -> Any:
        """The loop that moves some indices; None where several do."""
        moving = [loop for loop in self.loops if uses(list(indices), [loop.loop_var])]
        long = [loop for loop in moving if int(loop.extent) > 1]
        return (long or moving or [None])[0] if len(long) <= 1 else None

    def first(self, row: Any) -> dict[Any, Any]:
        """The variables of all loops but that over rows, in their first turns."""
        return {loop.loop_var: tirx.IntImm("int32", 0) for loop in self.loops if loop is not row}

    def turns(self, row: Any) -> int:
        """Of all loops but that over rows."""
        return prod(int(loop.extent) for loop in self.loops if loop is not row)

    def places(self, row: Any) -> int:
        """How many sums it has for a row."""
        kept = [loop for loop in self.loops if uses(list(self.store.indices), [loop.loop_var])]
        return prod(int(loop.extent) for loop in kept if loop is not row)

    def sums_rows_of(self, load: Any) -> bool:
        """Whether it walks all elements of each row of what is loaded (1)."""
        *rest, last = load.indices
        columns, row = int(load.source.shape[-1]), self.row_of(rest)
        if load.source.scope() != UB or str(load.source.dtype) != NARROW or columns % FRACTAL or row is None:
            return False
        walked = [loop for loop in self.loops if loop is not row and int(loop.extent) > 1]
        variables = [loop.loop_var for loop in walked]
        if uses([*rest, *self.conditions], variables) or uses(last, [row.loop_var]):
            return False
        linear = sym.detect_linear_equation(last, variables)
        steps = sorted((int(f), int(loop.extent)) for f, loop in zip(linear, walked, strict=False))
        reached = 1
        for step, extent in steps:
            if step != reached:
                return False
            reached *= extent
        return bool(linear) and reached == columns and _is_zero(linear[-1])


def _are_numbers(loops: Sequence[Any]) -> bool:
    return all(isinstance(loop.extent, tirx.IntImm) and isinstance(loop.min, tirx.IntImm) for loop in loops)


def _is_zero(value: Any) -> bool:
    return isinstance(value, tirx.IntImm) and int(value) == 0


class _Summer(Rewriter):
    def __init__(self, chip: Chip, steps: int) -> None:
        super().__init__()
        self.chip, self.steps = chip, steps
        self._ones: Any | None = None
        self._has_ones = False  # whether there is something that fills it
        self._found = 0
        self._loads: dict[Any, int] = {}  # of each buffer

    def function(self, func: Any) -> Any:
        structural_walk(func.body, (ir.TensorLoad, self._count))
        found = super().function(func)
        if self._ones is None or self._has_ones:
            return found
        return found.with_body(sequence([*_filled(self._ones), found.body]))

    def _count(self, load: Any) -> None:
        self._loads[load.source] = self._loads.get(load.source, 0) + 1

    def attribute(self, attribute: Any) -> Any:
        found = super().attribute(attribute)
        if found is None or self._ones is None or self._has_ones or attribute.attr_key != "thread_extent":
            return found
        self._has_ones = True
        body = sequence([*_filled(self._ones), found.body])
        return tirx.AttrStmt(found.node, found.attr_key, found.value, body, found.span)

    def sequence(self, seq: tirx.SeqStmt) -> Any:
        block = super().sequence(seq)
        parts, made = statements(block), list[Any]()
        before = self._found
        while parts:
            new, used = self._summed(parts)
            if new is None:
                made.append(parts[0])
            else:
                # Right behind what fills the rows: the vector unit has other things to do with these meanwhile.
                at = max((at + 1 for at, part in enumerate(made) if _stores_to(part, new.source)), default=len(made))
                made[at:at] = new.products
                made.append(new.picked)
                self._found += 1
            parts = parts[used:]
        return sequence(made) if self._found > before else block

    def _summed(self, parts: Sequence[Any]) -> tuple[_Products | None, int]:
        """What stands in the place of the first of some statements, if anything else does, and of how many."""
        found = _Sum.of(parts[0])
        if found is None or found.store.buffer.scope() != UB:
            return None, 1
        wide, load = str(found.store.buffer.dtype) == WIDE, plain(found.term)
        if load is not None and wide and found.sums_rows_of(load):
            own = found.row_of(found.store.indices) is found.row_of(load.indices[:-1])  # not in parts of rows
            return (self._plain(found, load) if own else None), 1
        load = squared(found.term)
        if load is None or not found.sums_rows_of(load):
            return None, 1
        row = found.row_of(load.indices[:-1])
        if wide and row is found.row_of(found.store.indices):
            return self._squares(found, load, found), 1
        again = _Sum.of(parts[1]) if len(parts) > 1 else None
        if again is None or str(again.store.buffer.dtype) != WIDE or again.store.buffer.scope() != UB:
            return None, 1
        other = again.row_of(again.store.indices)
        if other is None or int(other.extent) != int(row.extent) or again.turns(other) != found.places(row):
            return None, 1
        places, alone = plain(again.term), self._loads.get(found.store.buffer, 0) == 2  # (2)
        if places is None or not places.source.same_as(found.store.buffer) or not alone:
            return None, 1
        return self._squares(found, load, again), 2

    def _plain(self, found: _Sum, load: Any) -> _Products:
        rows = _Rows.of(found, load, self.chip)
        if self._ones is None:
            room = self.chip.memory.l0b_bytes // ONES_SHARE // (FRACTAL * BYTES)
            self._ones = _buffer((_divisor(rows.columns, room), FRACTAL), NARROW, L0B, "ones")
        step = _divisor(gcd(int(self._ones.shape[0]), rows.columns), rows.most_of_step // 2)
        return rows.summed("sums", FRACTAL, step, self._ones, found, lambda row: tirx.IntImm("int32", 0))

    def _squares(self, found: _Sum, load: Any, target: _Sum) -> _Products:
        rows = _Rows.of(found, load, self.chip)
        room = rows.most_of_step - (0 if self._ones is None else int(self._ones.shape[0]))
        step = _divisor(rows.columns, min(room, rows.columns // self.steps))
        return rows.summed("squares", None, step, None, target, lambda row: row)


def _divisor(extent: int, most: int) -> int:
    """The longest even part of whole fractals that is no longer than some length, or the shortest."""
    parts = [step for step in range(FRACTAL, extent + 1, FRACTAL) if extent % step == 0]
    return max((step for step in parts if step <= most), default=parts[0])


# ---- what stands in its place ------------------------------------------------------------------------------------


def _buffer(shape: Sequence[int], dtype: str, scope: str, name: str) -> Any:
    return tirx.decl_buffer(list(shape), dtype, name, scope=scope, layout=None)


def _filled(ones: Any) -> list[Any]:
    """Ones beside the cube, by way of UB and L1."""
    shape = [int(extent) for extent in ones.shape]
    near, far = _buffer(shape, NARROW, UB, "ones"), _buffer(shape, NARROW, L1, "ones")
    fill = _nest(shape, lambda k, j: tirx.BufferStore(near, tirx.FloatImm(NARROW, 1.0), [k, j]))
    copies = [
        _marked("operand", shape, lambda k, j, of=pair: tirx.BufferStore(of[0], tirx.BufferLoad(of[1], [k, j]), [k, j]))
        for pair in ((far, near), (ones, far))
    ]
    return [*map(tirx.AllocBuffer, (near, far, ones)), fill, *copies]


def _stores_to(statement: Any, buffer: Any) -> bool:
    return contains(statement, tirx.BufferStore, lambda store: store.buffer.same_as(buffer))


def _nest(extents: Sequence[int], store: Callable[..., Any], guards: Callable[..., list[Any]] | None = None) -> Any:
    variables = [tirx.Var(f"i{axis}", "int32") for axis in range(len(extents))]
    body = store(*variables)
    for condition in guards(*variables) if guards else ():
        body = tirx.IfThenElse(condition, body, None)
    for var, extent in reversed(list(zip(variables, extents, strict=True))):
        zero, count = (tirx.IntImm("int32", number) for number in (0, extent))
        body = tirx.For(var, zero, count, tirx.ForKind.SERIAL, body)
    return body


def _marked(
    what: str, extents: Sequence[int], store: Callable[..., Any], guards: Callable[..., list[Any]] | None = None
) -> Any:
    nest = _nest(extents, store, guards)
    return tirx.AttrStmt(nest.loop_var, CUBE, ir.StringImm(what), nest)


@dataclass(frozen=True)
class _Products:
    """What sums rows of UB: products of all of them, and the nest that picks each one's sum out of these."""

    source: Any
    products: Sequence[Any]
    picked: Any


@dataclass(frozen=True)
class _Rows:
    """Rows of UB that are brought to L1, and multiplied there."""

    count: int
    columns: int
    source: Any
    most_of_step: int
    place: Callable[[Any], list[Any]]  # the indices of a row, without that of its elements
    guards: Callable[[Any], list[Any]]  # what holds for a row that there is
    l1: Any

    @staticmethod
    def of(found: _Sum, load: Any, chip: Chip) -> _Rows:
        row = found.row_of(load.indices[:-1])
        count = int(row.extent)
        near = min(chip.memory.l0a_bytes, chip.memory.l0b_bytes)

        def at(values: Any, var: Any) -> list[Any]:
            return [substitute(value, found.first(row) | {row.loop_var: var}) for value in values]

        columns = int(load.source.shape[-1])
        return _Rows(
            count,
            columns,
            load.source,
            near // (SLOTS * ceil_to(count, FRACTAL) * BYTES),
            lambda var: at(list(load.indices)[:-1], var),
            lambda var: at(found.conditions, var),
            _buffer((count, columns), NARROW, L1, "rows"),
        )

    def summed(
        self,
        name: str,
        width: int | None,
        step: int,
        ones: Any | None,
        target: _Sum,
        column: Callable[[Any], Any],
    ) -> _Products:
        """Products of the rows with ``width`` columns of ones, or with themselves, and of each row the one that
        ``column`` says as its sum.
        """
        size = self.count, width or self.count
        sums, taken = _buffer(size, WIDE, L0C, name), _buffer(size, WIDE, UB, name)

        def both(row: Any, other: Any, *_: Any) -> list[Any]:
            return [*self.guards(row), *(self.guards(other) if width is None else ())]

        bring = _marked(
            "operand",
            (self.count, self.columns),
            lambda r, k: tirx.BufferStore(self.l1, tirx.BufferLoad(self.source, [*self.place(r), k]), [r, k]),
            lambda r, k: self.guards(r),
        )
        start = _marked("product", size, lambda r, j: tirx.BufferStore(sums, tirx.FloatImm(WIDE, 0.0), [r, j]), both)
        chunk = tirx.Var("chunk", "int32")
        products = self._products(sums, size, step, ones, chunk, both)
        zero, count = (tirx.IntImm("int32", number) for number in (0, self.columns // step))
        out = _marked("result", size, lambda r, j: tirx.BufferStore(taken, tirx.BufferLoad(sums, [r, j]), [r, j]), both)
        own, moving = target.store, target.row_of(target.store.indices)

        def place(row: Any) -> list[Any]:
            return [substitute(index, target.first(moving) | {moving.loop_var: row}) for index in own.indices]

        pick = _nest(
            (self.count,),
            lambda r: tirx.BufferStore(own.buffer, tirx.BufferLoad(taken, [r, column(r)]), place(r)),
            self.guards,
        )
        loop = tirx.For(chunk, zero, count, tirx.ForKind.SERIAL, products)
        allocated = map(tirx.AllocBuffer, (self.l1, sums, taken))
        return _Products(self.source, [*allocated, bring, start, loop, out], pick)

    def _products(
        self, sums: Any, size: tuple[int, int], step: int, ones: Any | None, chunk: Any, both: Callable[..., list[Any]]
    ) -> Any:
        def near(scope: str, what: str) -> tuple[Any, Any]:
            buffer = _buffer((self.count, step), NARROW, scope, "rows")
            nest = _marked(
                what,
                (self.count, step),
                lambda r, k: tirx.BufferStore(buffer, tirx.BufferLoad(self.l1, [r, chunk * step + k]), [r, k]),
                lambda r, k: self.guards(r),
            )
            return buffer, nest

        a, bring_a = near(L0A, "operand")
        b, bring_b = (ones, None) if ones is not None else near(L0B, "operand transposed")

        def product(r: Any, j: Any, k: Any) -> Any:
            other = [k, j] if ones is not None else [j, k]
            one, two = (tirx.Cast(WIDE, tirx.BufferLoad(*of)) for of in ((a, [r, k]), (b, other)))
            return tirx.BufferStore(sums, tirx.Add(tirx.BufferLoad(sums, [r, j]), tirx.Mul(one, two)), [r, j])

        allocated = [tirx.AllocBuffer(a)] if ones is not None else [tirx.AllocBuffer(a), tirx.AllocBuffer(b)]
        return sequence([*allocated, bring_b, bring_a, _marked("product", (*size, step), product, both)])
