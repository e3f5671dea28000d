"""Split loops whose indices divide by a constant, so that the indices become affine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from tvm import ir, sym, tirx

from compiler.target import Chip
from compiler.tir.conditions import conditional, constant, linear_in
from compiler.tir.nests import MATRIX_SCOPES, NOT_OF_A_NEST, pitches
from compiler.tir.rewriter import Rewriter, contains, fresh, loop_with, sequence, simplified_indices, substitute, uses
from compiler.tir.structure import structural_walk
from passes.base import Pass

DEEPEST = 4  # splits inside one another: quotients of four different divisors


@dataclass(frozen=True)
class LoopSplit(Pass):
    """Split a loop where a quotient or remainder of its variable in an index or condition starts anew.

    for v in 11: x[v] = y[v // 4]
    -> for vo in 2: for vi in 4: x[4*vo + vi] = y[vo]
       for vi in 3: x[8 + vi] = y[2]

    1. The loop belongs to a leaf nest, is serial, counts from zero by one and has no annotations.
    2. The dividend is affine in the variable with a positive factor that divides the divisor, and the rest of it has
       one remainder, so that quotients change at every ``divisor / factor``-th iteration, after the first ``head``.
    3. An access that is affine in the flat view of its buffer stays: splitting an axis and joining it is no change.
    4. No operand is in a scope with a fractal layout: its recognisers want the loops as the template wrote them.
    """

    name: ClassVar[str] = "loop-split"
    requires: ClassVar[frozenset[str]] = frozenset({"loops"})
    establishes: ClassVar[frozenset[str]] = frozenset({"affine-quotients"})

    def run(self, subject: Any, chip: Chip) -> Any:
        return _Divider().function(subject)


class _Period(NamedTuple):
    """Quotients start anew after ``head`` iterations and then after each ``length``."""

    head: int
    length: int


class _Divider(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self.inside = 0  # split loops around the statement

    def loop(self, loop: tirx.For) -> Any | None:
        plain = loop.kind == tirx.ForKind.SERIAL and loop.step is None and not loop.annotations
        if not plain or constant(loop.min) != 0 or contains(loop, NOT_OF_A_NEST):  # (1)
            return super().loop(loop)
        period = _period(loop, self.analyzer) if self.inside < DEEPEST else None
        if period is None:
            return super().loop(loop)
        self.inside += 1
        pieces = [self.statement(piece) for piece in self._pieces(loop, period)]
        self.inside -= 1
        return sequence(pieces)

    def _pieces(self, loop: tirx.For, period: _Period) -> list[Any]:
        """The iterations before the first whole period, the whole periods, and what is left."""
        var, (head, length) = loop.loop_var, period
        rest = self.analyzer.simplify(tirx.max(loop.extent - head, 0))  # a remainder of less than nothing is not less
        whole = self.analyzer.simplify(tirx.floordiv(rest, length))
        left = self.analyzer.simplify(tirx.floormod(rest, length))
        pieces: list[Any] = []
        if head:
            pieces.append(loop_with(loop, loop.body, extent=self.analyzer.simplify(tirx.min(loop.extent, head))))
        outer, inner, last = (tirx.Var(var.name + suffix, str(var.ty)) for suffix in ("o", "i", "i"))
        body = substitute(loop.body, {var: outer * length + inner + head})
        around = loop_with(loop, loop_with(loop, body, loop_var=inner, extent=length), loop_var=outer, extent=whole)
        pieces.append(fresh(around))
        if constant(left) != 0:
            body = substitute(loop.body, {var: last + whole * length + head})
            pieces.append(fresh(loop_with(loop, body, loop_var=last, extent=left)))
        return pieces

    def branch(self, branch: tirx.IfThenElse) -> Any | None:
        if not self.inside:
            return super().branch(branch)
        then, otherwise = self.statement(branch.then_case), self.statement(branch.else_case)
        return conditional(self.analyzer.simplify(branch.condition), then, otherwise)

    def store(self, store: tirx.BufferStore) -> Any | None:
        return simplified_indices(store, self.analyzer) if self.inside else store


def _period(loop: tirx.For, analyzer: sym.Analyzer) -> _Period | None:
    """How the loop is to be split for a quotient under it, or None if none asks for it."""
    if not contains(loop.body, (tirx.FloorDiv, tirx.FloorMod), lambda node: uses(node, (loop.loop_var,))):
        return None
    found: list[_Period] = []
    fractal: list[Any] = []

    def visit_places(buffer: Any, indices: Any) -> None:
        if buffer.scope() in MATRIX_SCOPES:  # (4)
            fractal.append(buffer)
        if not _is_affine(buffer, indices, loop.loop_var, analyzer):  # (3)
            structural_walk(indices, ((tirx.FloorDiv, tirx.FloorMod), visit_quotient))

    def visit_quotient(quotient: Any) -> None:
        period = _period_of(quotient, loop, analyzer)
        if period is not None:
            found.append(period)

    def visit_branch(branch: Any) -> None:
        structural_walk(branch.condition, ((tirx.FloorDiv, tirx.FloorMod), visit_quotient))

    def bind(inner: Any) -> None:
        analyzer.bind(inner.loop_var, ir.Range.from_min_extent(inner.min, inner.extent), allow_override=True)

    structural_walk(loop.body, (tirx.For, bind))
    structural_walk(
        loop.body,
        [
            (tirx.BufferStore, lambda store: visit_places(store.buffer, store.indices)),
            (ir.TensorLoad, lambda load: visit_places(load.source, load.indices)),
            (tirx.IfThenElse, visit_branch),
        ],
    )
    return found[0] if found and not fractal else None


def _period_of(quotient: Any, loop: tirx.For, analyzer: sym.Analyzer) -> _Period | None:
    divisor = constant(quotient.b)
    linear = linear_in(quotient.a, (loop.loop_var,))
    if divisor is None or divisor < 2 or linear is None:
        return None
    factor = linear[0][0]
    remainder = analyzer.modular_set(linear[1])
    if factor < 1 or divisor % factor or remainder.coeff % divisor:  # (2)
        return None
    head = -remainder.base % divisor
    if head % factor:
        return None
    period = _Period(head // factor, divisor // factor)
    most = analyzer.const_int_bound(loop.extent).max_value
    return period if period.length > 1 and most > (period.head or period.length) else None


def _is_affine(buffer: Any, indices: Any, var: Any, analyzer: sym.Analyzer) -> bool:
    offset: Any = tirx.IntImm("int32", 0)
    for index, pitch in zip(indices, pitches(buffer), strict=True):
        offset = offset + index * pitch
    return linear_in(analyzer.simplify(offset), (var,)) is not None
