"""Rewriting a kernel statement by statement, with the range of every loop variable at hand.

``None`` stands for a statement that does nothing. Nodes under which nothing changed stay the same objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import tvm_ffi
from tvm import ir, s_tir, sym, tirx

from compiler.tir.conditions import conditional
from compiler.tir.structure import structural_map, structural_walk

Node = TypeVar("Node")

OPAQUE_PREFIXES = ("tw.", "pragma_tw")


def is_opaque(attribute: tirx.AttrStmt) -> bool:
    """Whether a mark of the frontend or a template asks for its statement as it is."""
    return str(attribute.attr_key).startswith(OPAQUE_PREFIXES)


def thread_variable(attribute: tirx.AttrStmt) -> Any | None:
    """The variable that a ``thread_extent`` attribute binds, if it is one."""
    return attribute.node.var if attribute.attr_key == "thread_extent" else None


def substitute(node: Node, values: dict[Any, Any]) -> Node:
    """The node with variables replaced."""
    mapped: Node = structural_map(node, (ir.Var, lambda var: values.get(var, var)))
    return mapped


def uses(node: Any, variables: Iterable[Any]) -> bool:
    """Whether any of the variables occurs in the node."""
    wanted = set(variables)

    def visit(var: Any) -> Any:
        return tvm_ffi.VisitInterrupt(True) if var in wanted else None

    return bool(wanted) and structural_walk(node, (ir.Var, visit)) is not None


def contains(node: Any, kinds: type | tuple[type, ...], where: Callable[[Any], bool] = lambda _: True) -> bool:
    """Whether a node of one of the kinds occurs in the node."""

    def visit(found: Any) -> Any:
        return tvm_ffi.VisitInterrupt(True) if where(found) else None

    return structural_walk(node, (kinds, visit)) is not None


def loads(node: Any) -> bool:
    """Whether evaluating the node reads data."""
    return contains(node, ir.TensorLoad)


def fresh(stmt: Node) -> Node:
    """A copy that defines variables of its own, so that it may stand beside the original."""
    renamed: dict[Any, Any] = {}

    def define(name: str) -> Callable[[Any], None]:
        def visit(node: Any) -> None:
            var = getattr(node, name)
            renamed[var] = ir.Var(var.name, var.ty)

        return visit

    def visit_block(block: Any) -> None:
        for axis in block.iter_vars:
            renamed[axis.var] = ir.Var(axis.var.name, axis.var.ty)

    structural_walk(
        stmt,
        [
            (s_tir.SBlock, visit_block),
            (tirx.For, define("loop_var")),
            ((tirx.AllocBuffer, tirx.DeclBuffer), define("buffer")),
            (tirx.Bind, define("var")),
        ],
    )
    return substitute(stmt, renamed) if renamed else stmt


def statements(stmt: Any | None) -> list[Any]:
    """What a statement runs in order: the flattened items of a sequence, or itself."""
    if stmt is None:
        return []
    kind = type(stmt)
    if kind is tirx.SeqStmt:
        return [item for part in stmt.seq for item in statements(part)]
    if kind is tirx.Evaluate and isinstance(stmt.value, tirx.IntImm):
        return []
    return [stmt]


def sequence(parts: Iterable[Any | None]) -> Any | None:
    """One statement that runs the parts in order."""
    flat = [item for part in parts for item in statements(part)]
    if len(flat) > 1:
        return tirx.SeqStmt(flat)
    return flat[0] if flat else None


def loop_with(loop: tirx.For, body: Any, **fields: Any) -> tirx.For:
    """The loop with another body, and other fields where they are given."""
    names = ("loop_var", "min", "extent", "kind", "thread_binding", "annotations", "step", "span")
    return tirx.For(**{**{name: getattr(loop, name) for name in names}, **fields}, body=body)


def simplified_indices(node: Node, analyzer: sym.Analyzer) -> Node:
    """The node with its index arithmetic simplified: indices of accesses, and integers that are converted."""

    def cast(conversion: Any) -> Any:
        if not str(conversion.value.ty).startswith("int") or loads(conversion.value):
            return conversion
        return tirx.Cast(conversion.ty, analyzer.simplify(conversion.value))

    def load(access: Any) -> Any:
        return tirx.BufferLoad(access.source, [analyzer.simplify(index) for index in access.indices])

    def store(access: Any) -> Any:
        return tirx.BufferStore(access.buffer, access.value, [analyzer.simplify(index) for index in access.indices])

    callbacks = [(ir.TensorLoad, load), (tirx.BufferStore, store), (tirx.Cast, cast)]
    mapped: Node = structural_map(node, callbacks)
    return mapped


class Rewriter:
    """Default descent; a pass overrides what it changes. Statements marked opaque are not entered."""

    def __init__(self) -> None:
        self.analyzer = sym.Analyzer()

    def function(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        body = self.statement(func.body)
        if body is None:
            body = tirx.Evaluate(tirx.const(0, "int32"))
        return func if body.same_as(func.body) else func.with_body(body, func.span)

    def statement(self, stmt: Any | None) -> Any | None:
        if stmt is None:
            return None
        kind = type(stmt)  # TVM's statements have no kinds below these, and asking a node for its own is fast
        if kind is tirx.For:
            self.bind(stmt.loop_var, stmt.min, stmt.extent)
            return self.loop(stmt)
        if kind is tirx.IfThenElse:
            return self.branch(stmt)
        if kind is tirx.BufferStore:
            return self.store(stmt)
        if kind is tirx.SeqStmt:
            return self.sequence(stmt)
        if kind is tirx.AttrStmt and not is_opaque(stmt):
            return self.attribute(stmt)
        return self.other(stmt)

    def bind(self, var: Any, start: Any, extent: Any) -> None:
        """Note the range of a variable; inside its loop the extent is positive."""
        self.analyzer.bind(var, ir.Range.from_min_extent(start, extent), allow_override=True)

    def loop(self, loop: tirx.For) -> Any | None:
        body = self.statement(loop.body)
        if body is None:
            return None
        return loop if body.same_as(loop.body) else loop_with(loop, body)

    def branch(self, branch: tirx.IfThenElse) -> Any | None:
        then, otherwise = self.statement(branch.then_case), self.statement(branch.else_case)
        if same(then, branch.then_case) and same(otherwise, branch.else_case):
            return branch
        return conditional(branch.condition, then, otherwise)

    def store(self, store: tirx.BufferStore) -> Any | None:
        return store

    def other(self, stmt: Any) -> Any | None:
        """A definition, a call, or an opaque statement."""
        return stmt

    def sequence(self, seq: tirx.SeqStmt) -> Any | None:
        before = list(seq.seq)
        after = [self.statement(part) for part in before]
        if all(same(new, old) for new, old in zip(after, before, strict=True)):
            return seq
        return sequence(after)

    def attribute(self, attribute: tirx.AttrStmt) -> Any | None:
        var = thread_variable(attribute)
        if var is not None:
            self.bind(var, 0, attribute.value)
        body = self.statement(attribute.body)
        if body is None or body.same_as(attribute.body):
            return None if body is None else attribute
        return tirx.AttrStmt(attribute.node, attribute.attr_key, attribute.value, body, attribute.span)


def same(left: Any | None, right: Any | None) -> bool:
    """Whether both are the same object, or both nothing."""
    return left is right or (left is not None and right is not None and left.same_as(right))
