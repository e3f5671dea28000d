"""What of a stored value is data to compute, and what loop variables decide.

A choice whose condition only looks at loop variables becomes a ``choice`` term: two branches, of which one is
executed, so that what a branch reads need not exist elsewhere. Where the condition ties several of the nest's loops
together (``j <= i``) no loop can be cut at it; if both branches may be evaluated everywhere it is a mask instead.
Numbers from loop variables that no index pattern gives are operations on those that it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.sym import detect_linear_equation

from compiler.emission.nest import Nest
from compiler.emission.terms import LEAVES, Term, loads_of, term_of
from compiler.tir.conditions import variables_of

_CHOICES = ("where",)
_WITHOUT_DATA = ("index", "scalar")


def as_data(nest: Nest, known: Sequence[Any] = ()) -> Term:
    """The value of a nest's store under conditions ``known``, with choices and index arithmetic spelled out."""
    return _Reader(nest, known).read(nest.value)


class _Reader:
    def __init__(self, nest: Nest, known: Sequence[Any]) -> None:
        self.nest = nest
        self.known = known
        self.variables = [loop.var for loop in nest.loops]

    def read(self, term: Term) -> Term:
        if term.op == "index":
            return self._index(term)
        if term.op in LEAVES:
            return term
        if term.op in _CHOICES and term.args[0].op in _WITHOUT_DATA:
            condition, *branches = term.args
            if not is_mask(condition, self.nest) or not all(self._exists(branch) for branch in branches):
                chosen = tuple(self.read(branch) for branch in branches)
                return Term("choice", term.dtype, chosen, condition.value)
        return Term(term.op, term.dtype, tuple(self.read(arg) for arg in term.args), term.value)

    def _index(self, term: Term) -> Term:
        """An index pattern, or operations on index patterns; patterns are int32, other types are converted."""
        expr = term.value.key
        if term.dtype in ("int32", "int16") and self._is_affine(expr):
            return term
        spelled = _spelled(expr, self.nest.loop_vars)
        if spelled is None:
            return term
        return Term(spelled.op, spelled.dtype, tuple(self.read(arg) for arg in spelled.args), spelled.value)

    def _is_affine(self, expr: Any) -> bool:
        return len(detect_linear_equation(expr, self.variables)) == len(self.variables) + 1

    def _exists(self, term: Term) -> bool:
        """Whether everything a term reads is there in every iteration."""
        return all(access.is_there(self.known) for access in loads_of(term))


def is_mask(condition: Term, nest: Nest) -> bool:
    """Whether a comparison ties two or more of the nest's loops together."""
    return any(
        sum(loop.var in set(variables_of(part)) for loop in nest.loops) > 1 for part in _conjuncts(condition.value.key)
    )


def _conjuncts(expr: Any) -> list[Any]:
    if isinstance(expr, tirx.And | tirx.Or):
        return _conjuncts(expr.a) + _conjuncts(expr.b)
    return [expr]


def _spelled(expr: Any, loop_vars: frozenset[Any]) -> Term | None:
    """One operation of index arithmetic as a term on its operands, or None if it is a variable or a call."""
    compared = isinstance(expr, tirx.LT | tirx.LE | tirx.GT | tirx.GE | tirx.EQ | tirx.NE)
    if compared:
        # One pattern compared with zero, in place of two compared with each other.
        return term_of_operation(type(expr)(expr.a - expr.b, tirx.IntImm(str(expr.a.ty), 0)), loop_vars)
    if isinstance(expr, ir.Var):
        return Term("cast", "int32", (Term("index", "int32", value=tvm_ffi.StructuralKey(expr)),))
    return term_of_operation(expr, loop_vars)


def term_of_operation(expr: Any, loop_vars: frozenset[Any]) -> Term | None:
    """The root operation of an expression without data as a term; its operands stay leaves."""
    found = term_of(expr, loop_vars, lambda load: load, whole=False)
    return found if found.op not in LEAVES else None


def leaves(term: Term) -> list[Term]:
    """The leaves of a term; what a choice looks at counts as one, called ``condition``."""
    if term.op == "choice":
        own = [Term("condition", "bool", value=term.value)]
        return own + [leaf for arg in term.args for leaf in leaves(arg)]
    if not term.args:
        return [term]
    return [leaf for arg in term.args for leaf in leaves(arg)]
