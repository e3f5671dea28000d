"""Load images into their frames of padding, of which only what is around them is filled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import ir, sym, tirx

from compiler.target import Chip
from compiler.tir.conditions import variables_of
from compiler.tir.nests import leaf_nest
from compiler.tir.rewriter import Rewriter, loads, loop_with, sequence, statements, substitute
from compiler.tir.structure import structural_walk
from passes.base import Pass

SCOPE = "local.ub"


@dataclass(frozen=True)
class FillBorders(Pass):
    """Let a load fill what a copy in UB would, within a buffer that is filled with a number, and fill the rest only.

    for h, w in 8: x[h, w] = image[h, w];   for h, w in 9: f[h, w] = -inf;   for h, w in 8: f[h + 1, w + 1] = x[h, w]
    -> for h, w in 8: f[h + 1, w + 1] = image[h, w];   for w in 9: f[0, w] = -inf;   for h in 8: f[h + 1, 0] = -inf

    The vector unit touches the border instead of all of the frame twice. It does so behind the load, so that the next
    image can be loaded into another frame meanwhile.

    1. The three nests are in one block. Nothing else touches what is loaded, and nothing the frame between its fill and
       the copy. Nothing leaves UB between load and copy: it might go where the image lies.
    2. The fill is of all of the frame, and each axis of the frame is moved by one loop of the copy, from a number on.
    3. Each axis of what is loaded is one loop of the load, or an element.
    """

    name: ClassVar[str] = "fill-borders"
    requires: ClassVar[frozenset[str]] = frozenset({"one-store-per-nest", "zero-based-loops"})

    def run(self, subject: Any, chip: Chip) -> Any:
        del chip
        counts = _Accesses()
        counts.function(subject)
        return _Frames(counts.of_buffer).function(subject)


class _Accesses(Rewriter):
    """How many statements touch each buffer of UB; one under a mark counts for many."""

    def __init__(self) -> None:
        super().__init__()
        self.of_buffer: dict[Any, int] = {}

    def store(self, store: tirx.BufferStore) -> Any:
        self._note(store, 1)
        return store

    def other(self, stmt: Any) -> Any:
        if not isinstance(stmt, tirx.AllocBuffer):
            self._note(stmt, 1 << 16)
        return stmt

    def _note(self, node: Any, count: int) -> None:
        for buffer in _touched(node):
            self.of_buffer[buffer] = self.of_buffer.get(buffer, 0) + count


def _touched(node: Any) -> set[Any]:
    found = set[Any]()
    structural_walk(node, (ir.TensorLoad, lambda load: found.add(load.source)))
    structural_walk(node, (tirx.BufferStore, lambda store: found.add(store.buffer)))
    return found


@dataclass(frozen=True)
class _Nest:
    """Loops that count from zero to numbers, and their store."""

    loops: Sequence[Any]
    store: Any

    @staticmethod
    def of(statement: Any) -> _Nest | None:
        found = leaf_nest(statement)
        if found is None or not all(isinstance(loop.extent, tirx.IntImm) for loop in found[0]):
            return None
        return _Nest(*found) if found[1].buffer.scope() == SCOPE else None

    def places(self, indices: Sequence[Any]) -> list[tuple[Any, int]] | None:
        """Of each index the loop variable, if there is one, and where it begins; None where it is anything else, or a
        loop moves two or none.
        """
        variables, found = [loop.loop_var for loop in self.loops], list[tuple[Any, int]]()
        for index in indices:
            used = [var for var in variables_of(index) if any(var.same_as(own) for own in variables)]
            rest = substitute(index, {var: tirx.IntImm("int32", 0) for var in used}) if used else index
            rest = rest if isinstance(rest, tirx.IntImm) else _simplified(rest)
            if len(used) > 1 or not isinstance(rest, tirx.IntImm) or (used and not _is_moved(index, used[0], rest)):
                return None
            found.append((used[0] if used else None, int(rest)))
        moved = [var for var, _ in found if var is not None]
        return found if len(moved) == len(set(moved)) == len(variables) else None

    def extent(self, var: Any) -> int:
        return 1 if var is None else next(int(loop.extent) for loop in self.loops if loop.loop_var.same_as(var))

    def with_store(self, store: Any) -> Any:
        for loop in reversed(self.loops):
            store = loop_with(loop, store)
        return store


def _simplified(expr: Any) -> Any:
    return sym.Analyzer().simplify(expr)


def _is_moved(index: Any, var: Any, start: Any) -> bool:
    """Whether an index is a variable plus a number."""
    return isinstance(_simplified(index - var - start), tirx.IntImm)


class _Frames(Rewriter):
    def __init__(self, touched: dict[Any, int]) -> None:
        super().__init__()
        self.touched = touched

    def sequence(self, block: Any) -> Any:
        kept = super().sequence(block)
        parts = statements(kept)
        while (framed := self._framed_once(parts)) is not None:
            kept, parts = None, framed
        return sequence(parts) if kept is None else kept

    def _framed_once(self, parts: list[Any]) -> list[Any] | None:
        found = (self._framed(parts, at, _Nest.of(part)) for at, part in enumerate(parts))
        return next((framed for framed in found if framed is not None), None)

    def _framed(self, parts: list[Any], copy: int, nest: _Nest | None) -> list[Any] | None:
        """The statements with the load in the place of the copy, and borders behind it."""
        if nest is None or not isinstance(nest.store.value, ir.TensorLoad):
            return None
        image, frame = nest.store.value.source, nest.store.buffer
        load = next((at for at in range(copy) if _stores_to(parts[at], image)), None)
        fill = next((at for at in reversed(range(copy)) if frame in _touched(parts[at])), None)
        if image.scope() != SCOPE or self.touched.get(image) != 2 or load is None or fill is None:  # (1)
            return None
        loaded, filled = _Nest.of(parts[load]), _Nest.of(parts[fill])
        if loaded is None or filled is None or str(image.dtype) != str(frame.dtype):
            return None
        inside, value = nest.places(nest.store.indices), _value(loaded, nest)
        if inside is None or value is None or not _fills_all(filled):
            return None
        if any(_leaves(part) for part in parts[load:copy]):  # what is loaded may lie where that goes
            return None
        store = tirx.BufferStore(frame, value, list(nest.store.indices))
        borders = _borders(frame, [(start, nest.extent(var)) for var, start in inside], filled.store.value)
        kept = [
            part
            for at, part in enumerate(parts)
            if at not in (load, fill) and not (isinstance(part, tirx.AllocBuffer) and part.buffer.same_as(image))
        ]
        at = next(at for at, part in enumerate(kept) if part.same_as(parts[copy]))
        return [*kept[:at], nest.with_store(store), *borders, *kept[at + 1 :]]


def _stores_to(statement: Any, buffer: Any) -> bool:
    nest = leaf_nest(statement)
    return nest is not None and nest[1].buffer.same_as(buffer)


def _leaves(statement: Any) -> bool:
    """Whether a statement stores to anything but UB."""
    found: list[Any] = []
    structural_walk(statement, (tirx.BufferStore, lambda store: found.append(store.buffer.scope() != SCOPE)))
    return any(found)


def _fills_all(nest: _Nest) -> bool:
    """Whether a nest fills all of a buffer with one number (2)."""
    if not isinstance(nest.store.value, tirx.FloatImm | tirx.IntImm):
        return False
    places = nest.places(nest.store.indices)
    shape = [int(extent) for extent in nest.store.buffer.shape]
    return places is not None and all(
        start == 0 and nest.extent(var) == extent for (var, start), extent in zip(places, shape, strict=True)
    )


def _value(loaded: _Nest, copy: _Nest) -> Any | None:
    """What a copy copies of what a load loads, as the load reads it (3)."""
    value, places = loaded.store.value, loaded.places(loaded.store.indices)
    if not isinstance(value, ir.TensorLoad) or value.source.scope() == SCOPE or any(loads(i) for i in value.indices):
        return None
    read = copy.places(copy.store.value.indices)
    if places is None or read is None or any(start for _, start in places):
        return None
    inside = all(
        start + copy.extent(var) <= loaded.extent(own) for (var, start), (own, _) in zip(read, places, strict=True)
    )
    if not inside:
        return None
    moved = dict(zip((var for var, _ in places), copy.store.value.indices, strict=True))
    moved.pop(None, None)
    return tirx.BufferLoad(value.source, [substitute(index, moved) for index in value.indices])


def _borders(frame: Any, inside: Sequence[tuple[int, int]], value: Any) -> Iterator[Any]:
    """Nests that fill what of a buffer is not inside: on either side of each axis, along those behind it all of it."""
    shape = [int(extent) for extent in frame.shape]
    for axis, (start, extent) in enumerate(inside):
        for low, high in ((0, start), (start + extent, shape[axis])):
            if low < high:
                spans = [*inside[:axis], (low, high - low), *((0, n) for n in shape[axis + 1 :])]
                yield _fill(frame, spans, value)


def _fill(buffer: Any, spans: Sequence[tuple[int, int]], value: Any) -> Any:
    variables = [tirx.Var(f"b{axis}", "int32") if extent > 1 else None for axis, (_, extent) in enumerate(spans)]
    indices = [
        tirx.IntImm("int32", start) if var is None else var + start if start else var
        for var, (start, _) in zip(variables, spans, strict=True)
    ]
    nest = tirx.BufferStore(buffer, value, indices)
    for var, (_, extent) in reversed(list(zip(variables, spans, strict=True))):
        if var is not None:
            zero, count = (tirx.IntImm("int32", number) for number in (0, extent))
            nest = tirx.For(var, zero, count, tirx.ForKind.SERIAL, nest)
    return nest
