"""What statements read and write, and whether two of them may meet in different iterations of a loop.

Distinct buffers never overlap. Indices are compared dimension by dimension; what is not affine may meet anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tvm import ir, sym, tirx

from compiler.tir.choices import update_of
from compiler.tir.conditions import Cut, conjuncts, cut_of, negated
from compiler.tir.rewriter import substitute
from compiler.tir.structure import structural_walk


@dataclass(frozen=True, eq=False)
class Access:
    """One place a statement touches, and the conditions under which it does.

    ``reduces`` is the operation if the statement combines the place with something: two accesses that reduce with
    the same operation may change places.
    """

    indices: tuple[Any, ...]
    writes: bool
    guards: tuple[Any, ...]
    reduces: type | None = None

    def conflicts(self, other: Access) -> bool:
        """Whether the order of the two matters where they touch the same element."""
        return (self.writes or other.writes) and (self.reduces is None or self.reduces is not other.reduces)


@dataclass
class Accesses:
    """Everything a statement touches, by buffer."""

    of_buffer: dict[Any, list[Access]] = field(default_factory=dict)

    @staticmethod
    def of(stmt: Any, analyzer: sym.Analyzer) -> Accesses | None:
        """None if the statement holds more than loops, ifs and stores."""
        accesses = Accesses()
        return accesses if accesses._collect(stmt, (), analyzer) else None

    def _collect(self, stmt: Any, guards: tuple[Any, ...], analyzer: sym.Analyzer) -> bool:
        if isinstance(stmt, tirx.For):
            self._read((stmt.min, stmt.extent), guards)
            return self._collect(stmt.body, guards, analyzer)
        if isinstance(stmt, tirx.SeqStmt):
            return all(self._collect(part, guards, analyzer) for part in stmt.seq)
        if isinstance(stmt, tirx.IfThenElse):
            self._read((stmt.condition,), guards)
            then = (*guards, *conjuncts(stmt.condition, analyzer))
            otherwise = (*guards, negated(stmt.condition))
            return self._collect(stmt.then_case, then, analyzer) and (
                stmt.else_case is None or self._collect(stmt.else_case, otherwise, analyzer)
            )
        if isinstance(stmt, tirx.BufferStore):
            self._store(stmt, guards)
            return True
        return False

    def _store(self, store: tirx.BufferStore, guards: tuple[Any, ...]) -> None:
        update = update_of(store)
        reduces = None if update is None else update.operation
        self._read((store.value if update is None else update.operand, *store.indices), guards)
        self.of_buffer.setdefault(store.buffer, []).append(Access(tuple(store.indices), True, guards, reduces))

    def _read(self, nodes: tuple[Any, ...], guards: tuple[Any, ...]) -> None:
        def visit(load: Any) -> None:
            self.of_buffer.setdefault(load.source, []).append(Access(tuple(load.indices), False, guards))

        for node in nodes:
            structural_walk(node, (ir.TensorLoad, visit))

    def conflicts(self, other: Accesses) -> Iterator[tuple[Access, Access]]:
        """Pairs of accesses to the same buffer whose order matters where they meet."""
        for buffer, mine in self.of_buffer.items():
            for theirs in other.of_buffer.get(buffer, ()):
                yield from ((access, theirs) for access in mine if access.conflicts(theirs))


def may_meet_backwards(earlier: Accesses, later: Accesses, loop: tirx.For, analyzer: sym.Analyzer) -> bool:
    """Whether an iteration of ``later`` may touch what a following iteration of ``earlier`` touches.

    Both stand in ``loop`` in this order; the analyzer knows the ranges of all loop variables in and around it.
    """
    distance = _distance(loop, analyzer)
    if distance is None:
        return False
    ahead = {loop.loop_var: loop.loop_var + distance}
    return any(
        _iterations_in_order(first, second, loop, analyzer) and _may_be_equal(first, second, ahead, analyzer)
        for first, second in earlier.conflicts(later)
    )


def _distance(loop: tirx.For, analyzer: sym.Analyzer) -> Any | None:
    """A variable for how far two iterations of the loop are apart, or None if there are no two."""
    most = analyzer.const_int_bound(loop.extent).max_value - 1
    if most < 1:
        return None
    distance = tirx.Var("distance", str(loop.loop_var.ty))
    analyzer.bind(distance, ir.Range(1, 1 + min(most, 2**30)))
    return distance


def _may_be_equal(first: Access, second: Access, ahead: dict[Any, Any], analyzer: sym.Analyzer) -> bool:
    """Whether ``first`` some iterations ahead may be at the place of ``second``."""
    for left, right in zip(first.indices, second.indices, strict=True):
        bound = analyzer.const_int_bound(analyzer.simplify(substitute(left, ahead) - right))
        if bound.min_value > 0 or bound.max_value < 0:
            return False
    return True


def _iterations_in_order(first: Access, second: Access, loop: tirx.For, analyzer: sym.Analyzer) -> bool:
    """Whether ``second`` may happen in an iteration before one in which ``first`` happens."""
    ends = [end for _, end in _ranges(first, loop, analyzer)]
    starts = [start for start, _ in _ranges(second, loop, analyzer)]
    return not any(
        analyzer.const_int_bound(analyzer.simplify(end - 1 - start)).max_value <= 0
        for end in ends
        if end is not None
        for start in starts
        if start is not None
    )


def _ranges(access: Access, loop: tirx.For, analyzer: sym.Analyzer) -> Iterator[tuple[Any | None, Any | None]]:
    """Ranges (first iteration, one past the last), all of which hold for the access; None is unbounded."""
    yield loop.min, loop.min + loop.extent
    for guard in access.guards:
        cut = cut_of(guard, loop.loop_var, (), analyzer)
        if cut is not None:
            yield _start(cut), _end(cut)


def _start(cut: Cut) -> Any | None:
    if cut.below:
        return None
    return cut.second if cut.between is False else cut.first


def _end(cut: Cut) -> Any | None:
    if cut.above:
        return None
    return cut.first if cut.between is False else cut.second
