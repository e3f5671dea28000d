"""Move ifs out of the loops that do not decide them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import tirx
from tvm_ffi import structural_equal

from compiler.target import Chip
from compiler.tir.choices import chosen, first_choice, writes_what_is_there
from compiler.tir.conditions import conditional, conjuncts, constant, negated, unhinted
from compiler.tir.nests import NOT_OF_A_NEST
from compiler.tir.rewriter import (
    Rewriter,
    contains,
    fresh,
    loads,
    loop_with,
    sequence,
    simplified_indices,
    statements,
    uses,
)
from passes.base import Pass


@dataclass(frozen=True)
class IfPromotion(Pass):
    """Hoist ifs out of loops and sequences, split their conditions, and turn choices of values into ifs.

    for i: for j: if p(i) and q(j): A(i, j)
    -> for i: if p(i): for j: if q(j): A(i, j)

    x[i] = if_then_else(p(i), y[i - 1], 0)
    -> if p(i): x[i] = y[i - 1] else: x[i] = 0

    if p: A; if p: B  ->  if p: {A; B}

    1. Only conditions that read no data move: nothing in between can change them, and asking early does no harm.
    2. What a condition guards stays under it: no load is done that would not have been.
    3. A statement may have to stand in two branches. It may be copied if it allocates nothing, ``copies`` times for
       each if or store; past that the condition stays as it is.
    4. An if under a condition that its loops' ranges settle is no if; a store of what its place holds is nothing.
    """

    copies: int = 256

    name: ClassVar[str] = "if-promotion"
    requires: ClassVar[frozenset[str]] = frozenset({"loops"})

    def run(self, subject: Any, chip: Chip) -> Any:
        return _Promoter(self.copies).function(subject)


class _Promoter(Rewriter):
    def __init__(self, copies: int) -> None:
        super().__init__()
        self.copies = copies
        self.left = copies
        self.nest_variables: list[Any] = []

    # ---- choices of values ----------------------------------------------------------------------------------

    def store(self, store: tirx.BufferStore) -> Any | None:
        self.left = self.copies
        return self._decided(store)

    def _decided(self, store: Any) -> Any | None:
        condition = first_choice(store, self.nest_variables)
        if condition is None:
            return None if writes_what_is_there(store) else store  # (4)
        known = constant(self.analyzer.simplify(condition))
        if known is not None:
            return self._decided(chosen(store, condition, bool(known)))
        if not self.left:  # (3)
            return store
        self.left -= 1
        then, otherwise = (
            self._decided(simplified_indices(chosen(store, condition, truth), self.analyzer)) for truth in (True, False)
        )
        return self._split(condition, then, otherwise)

    # ---- conditions -----------------------------------------------------------------------------------------

    def branch(self, branch: tirx.IfThenElse) -> Any | None:
        then, otherwise = self.statement(branch.then_case), self.statement(branch.else_case)
        self.left = self.copies
        split = self._split(branch.condition, then, otherwise)
        return branch if split is not None and structural_equal(split, branch) else split

    def _split(self, condition: Any, then: Any | None, otherwise: Any | None) -> Any | None:
        """Ifs over single comparisons that together do what one if over ``condition`` does."""
        if then is None and otherwise is None:
            return None
        condition = unhinted(condition)
        if loads(condition):  # (1)
            return conditional(condition, then, otherwise)
        known = constant(self.analyzer.simplify(condition))
        if known is not None:  # (4)
            return then if known else otherwise
        if isinstance(condition, tirx.Not):
            return self._split(condition.a, otherwise, then)
        if isinstance(condition, tirx.Or):
            return self._split(negated(condition), otherwise, then)
        parts = conjuncts(condition, self.analyzer)
        if len(parts) == 1:
            return conditional(parts[0], then, otherwise)
        if otherwise is not None and not self._may_copy(otherwise):
            return conditional(condition, then, otherwise)
        rest = parts[1]
        for part in parts[2:]:
            rest = tirx.And(rest, part)
        inner = self._split(rest, then, otherwise)
        return self._split(parts[0], inner, None if otherwise is None else fresh(otherwise))

    def _may_copy(self, stmt: Any) -> bool:
        if not self.left or contains(stmt, NOT_OF_A_NEST):  # (3)
            return False
        self.left -= 1
        return True

    # ---- out of loops and sequences -------------------------------------------------------------------------

    def loop(self, loop: tirx.For) -> Any | None:
        if contains(loop, NOT_OF_A_NEST):
            promoted = super().loop(loop)
        else:
            self.nest_variables.append(loop.loop_var)
            promoted = super().loop(loop)
            self.nest_variables.pop()
        self.left = self.copies
        return None if promoted is None else self._hoisted(promoted)

    def _hoisted(self, loop: tirx.For) -> Any | None:
        condition = _invariant(loop.body, loop.loop_var)
        if condition is None:
            return loop
        branches = [_assumed(loop.body, condition, truth) for truth in (True, False)]
        if None not in branches and not _is_root(loop.body, condition) and not self._may_copy(loop.body):
            return loop
        loops = [None if body is None else self._hoisted(loop_with(loop, body)) for body in branches]
        if loops[0] is not None and loops[1] is not None:
            loops[1] = fresh(loops[1])
        return conditional(condition, *loops)

    def sequence(self, seq: tirx.SeqStmt) -> Any | None:
        promoted = super().sequence(seq)
        if not isinstance(promoted, tirx.SeqStmt):
            return promoted
        merged: list[Any] = []
        for part in statements(promoted):
            if merged and _same_plain_condition(merged[-1], part):
                first = merged.pop()
                merged.append(
                    tirx.IfThenElse(
                        part.condition,
                        sequence((first.then_case, part.then_case)),
                        sequence((first.else_case, part.else_case)),
                    )
                )
            else:
                merged.append(part)
        return promoted if len(merged) == len(promoted.seq) else sequence(merged)


def _same_plain_condition(first: Any, second: Any) -> bool:
    """Whether both are ifs over the same condition, which reads no data."""
    return (
        isinstance(first, tirx.IfThenElse)
        and isinstance(second, tirx.IfThenElse)
        and structural_equal(first.condition, second.condition)
        and not loads(first.condition)
    )


def _invariant(tree: Any, var: Any) -> Any | None:
    """The condition of an if directly in the ifs at the root that can be asked outside the loop over ``var``."""
    if not isinstance(tree, tirx.IfThenElse):
        return None
    if not loads(tree.condition) and not uses(tree.condition, (var,)):  # (1)
        return tree.condition
    inner = _invariant(tree.then_case, var)
    return inner if inner is not None or tree.else_case is None else _invariant(tree.else_case, var)


def _is_root(tree: Any, condition: Any) -> bool:
    return isinstance(tree, tirx.IfThenElse) and bool(structural_equal(tree.condition, condition))


def _assumed(tree: Any | None, condition: Any, truth: bool) -> Any | None:
    """The ifs at the root where ``condition`` is known."""
    if not isinstance(tree, tirx.IfThenElse):
        return tree
    if structural_equal(tree.condition, condition):
        return _assumed(tree.then_case if truth else tree.else_case, condition, truth)
    then, otherwise = (_assumed(case, condition, truth) for case in (tree.then_case, tree.else_case))
    return conditional(tree.condition, then, otherwise)
