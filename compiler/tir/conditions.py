"""Conditions over index arithmetic: their opposites, and where on a loop they change.

A *plain* condition compares integers and reads no data. Only plain conditions are moved, split or decided.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tvm import ir, sym, tirx

from compiler.tir.structure import structural_walk


def constant(expr: Any) -> int | None:
    return int(expr.value) if isinstance(expr, tirx.IntImm) else None


def conditional(condition: Any, then: Any | None, otherwise: Any | None) -> Any | None:
    """An if whose branches may do nothing and whose condition may be known."""
    known = constant(condition)
    if known is not None:
        return then if known else otherwise
    if then is None:
        return None if otherwise is None else tirx.IfThenElse(negated(condition), otherwise, None)
    return tirx.IfThenElse(condition, then, otherwise)


_OPPOSITES: dict[type, type] = {
    tirx.LT: tirx.GE,
    tirx.GE: tirx.LT,
    tirx.GT: tirx.LE,
    tirx.LE: tirx.GT,
    tirx.EQ: tirx.NE,
    tirx.NE: tirx.EQ,
}


def is_comparison(condition: Any) -> bool:
    """Whether it compares integers; a NaN has no opposite order."""
    return type(condition) in _OPPOSITES and str(condition.a.ty).startswith(("int", "uint"))


def negated(condition: Any) -> Any:
    """The opposite of a condition, with no ``not`` around what has an opposite of its own."""
    if is_comparison(condition):
        return _OPPOSITES[type(condition)](condition.a, condition.b)
    if isinstance(condition, tirx.Not):
        return condition.a
    if isinstance(condition, tirx.And):
        return tirx.Or(negated(condition.a), negated(condition.b))
    if isinstance(condition, tirx.Or):
        return tirx.And(negated(condition.a), negated(condition.b))
    return tirx.Not(condition)


def unhinted(condition: Any) -> Any:
    """The condition without ``likely`` around it."""
    while isinstance(condition, ir.Call) and condition.op.name == "prim.likely":
        condition = condition.args[0]
    return condition


@dataclass(frozen=True)
class Cut:
    """Where on a loop a comparison changes: ``below`` before ``first``, ``above`` from ``second`` on.

    From ``first`` to ``second`` it is ``between``; ``None`` says that inner loops decide there.
    """

    first: Any
    second: Any
    below: bool
    between: bool | None
    above: bool

    def opposite(self) -> Cut:
        between = None if self.between is None else not self.between
        return replace(self, below=not self.below, between=between, above=not self.above)


def cut_of(comparison: Any, var: Any, inner: tuple[Any, ...], analyzer: sym.Analyzer) -> Cut | None:
    """Where ``comparison`` changes along ``var`` whatever the ``inner`` variables are, or None if it is not affine."""
    kind = type(comparison)
    if not is_comparison(comparison):
        return None
    if kind in (tirx.NE, tirx.GE, tirx.LE):
        # a <= b is not b < a, a >= b is not a < b
        opposite: Any
        if kind is tirx.NE:
            opposite = tirx.EQ(comparison.a, comparison.b)
        elif kind is tirx.GE:
            opposite = tirx.LT(comparison.a, comparison.b)
        else:
            opposite = tirx.LT(comparison.b, comparison.a)
        cut = cut_of(opposite, var, inner, analyzer)
        return None if cut is None else cut.opposite()
    if kind is tirx.GT:
        return cut_of(tirx.LT(comparison.b, comparison.a), var, inner, analyzer)
    if kind is tirx.EQ:
        return _equality_cut(comparison.a - comparison.b, var, inner, analyzer)
    return _order_cut(comparison.a, comparison.b, var, inner, analyzer)


def _order_cut(left: Any, right: Any, var: Any, inner: tuple[Any, ...], analyzer: sym.Analyzer) -> Cut | None:
    """The cut of ``left < right``."""
    divisor = _divisor(left)
    if divisor:  # x // c < r is x < c*r
        return _order_cut(left.a, right * divisor, var, inner, analyzer)
    divisor = _divisor(right)
    if divisor:  # l < x // c is not x < c*(l + 1)
        cut = _order_cut(right.a, (left + 1) * divisor, var, inner, analyzer)
        return None if cut is None else cut.opposite()
    return _sign_cut(left - right, var, inner, analyzer)


def _divisor(expr: Any) -> int:
    divisor = constant(expr.b) if isinstance(expr, tirx.FloorDiv) else None
    return divisor if divisor is not None and divisor > 0 else 0


def _sign_cut(difference: Any, var: Any, inner: tuple[Any, ...], analyzer: sym.Analyzer) -> Cut | None:
    """The cut of ``difference < 0``."""
    spread = _spread(difference, var, inner, analyzer)
    if spread is None:
        return None
    slope, low, high = spread
    if slope > 0:  # slope*var + rest < 0 is var < ceil(-rest / slope)
        first = analyzer.simplify(tirx.floordiv(slope - 1 - high, slope))
        second = first if low is high else analyzer.simplify(tirx.floordiv(slope - 1 - low, slope))
        return Cut(first, second, True, None, False)
    # |slope|*var > rest is var >= floor(rest / |slope|) + 1
    first = analyzer.simplify(tirx.floordiv(low, -slope) + 1)
    second = first if low is high else analyzer.simplify(tirx.floordiv(high, -slope) + 1)
    return Cut(first, second, False, None, True)


def _equality_cut(difference: Any, var: Any, inner: tuple[Any, ...], analyzer: sym.Analyzer) -> Cut | None:
    """The cut of ``difference == 0``: possible from ceil(-high / slope) to floor(-low / slope)."""
    spread = _spread(difference, var, inner, analyzer)
    if spread is None:
        return None
    slope, low, high = spread
    if slope < 0:
        slope, low, high = -slope, -high, -low
    first = analyzer.simplify(tirx.floordiv(slope - 1 - high, slope))
    second = analyzer.simplify(tirx.floordiv(0 - low, slope) + 1)
    if inner:
        return Cut(first, second, False, None, False)
    offset = constant(analyzer.simplify(low))
    if slope > 1 and offset is None:
        return None
    hits = slope == 1 or (offset is not None and offset % slope == 0)
    return Cut(first, analyzer.simplify(first + 1), False, hits, False)


def _spread(difference: Any, var: Any, inner: tuple[Any, ...], analyzer: sym.Analyzer) -> tuple[int, Any, Any] | None:
    """(slope in ``var``, least and greatest rest whatever ``inner`` is); one object for both if that is nothing."""
    linear = linear_in(difference, (var, *inner))
    if linear is None or linear[0][0] == 0:
        return None
    (slope, *slopes), rest = linear
    low = high = rest
    for other, factor in zip(inner, slopes, strict=True):
        bound = analyzer.const_int_bound(other)
        if bound.min_value == bound.NEG_INF or bound.max_value == bound.POS_INF:
            return None
        ends = sorted((factor * bound.min_value, factor * bound.max_value))
        low, high = low + ends[0], high + ends[1]
    return slope, low, high


def linear_in(expr: Any, variables: tuple[Any, ...]) -> tuple[tuple[int, ...], Any] | None:
    """``expr`` as (constant factor of each variable, the rest), or None if it is not that."""
    found = sym.detect_linear_equation(expr, list(variables))
    if len(found) != len(variables) + 1:
        return None
    factors = tuple(constant(factor) for factor in found[:-1])
    return None if None in factors else (factors, found[-1])  # type: ignore[return-value]


def conjuncts(condition: Any, analyzer: sym.Analyzer) -> list[Any]:
    """Conditions that all hold exactly if this one holds, each about as few variables as can be.

    ``8*k + j == 0`` for k and j from zero up is ``k == 0`` and ``j == 0``.
    """
    condition = unhinted(condition)
    if isinstance(condition, tirx.And):
        return conjuncts(condition.a, analyzer) + conjuncts(condition.b, analyzer)
    if isinstance(condition, tirx.EQ) and is_comparison(condition):
        return _equality_conjuncts(condition, analyzer)
    return [condition]


def _equality_conjuncts(equality: Any, analyzer: sym.Analyzer) -> list[Any]:
    difference = analyzer.simplify(equality.a - equality.b)
    variables = variables_of(difference)
    linear = linear_in(difference, variables)
    rest = None if linear is None else constant(linear[1])
    if len(variables) < 2 or linear is None or rest is None:
        return [equality]
    bounds = [analyzer.const_int_bound(var) for var in variables]
    if any(b.min_value == b.NEG_INF or b.max_value == b.POS_INF for b in bounds):
        return [equality]
    for sign in (1, -1):
        places = [b.min_value if sign * f > 0 else b.max_value for f, b in zip(linear[0], bounds, strict=True)]
        least = rest + sum(f * place for f, place in zip(linear[0], places, strict=True))
        if least == 0:
            return [tirx.EQ(var, place) for var, place in zip(variables, places, strict=True)]
    return [equality]


def variables_of(expr: Any) -> tuple[Any, ...]:
    """The variables of index arithmetic, each once, in the order they appear."""
    found: dict[Any, None] = {}

    def visit(var: Any) -> None:
        found[var] = None

    structural_walk(expr, (ir.Var, visit))
    return tuple(found)
