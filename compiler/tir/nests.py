"""Leaf nests, and whether a kernel is in *nest form*: what stands in the way of it, statement by statement."""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from compiler.tir.choices import first_choice
from compiler.tir.conditions import constant
from compiler.tir.rewriter import contains, is_opaque, loads, thread_variable, uses
from compiler.tir.structure import structural_walk

MATRIX_SCOPES = frozenset({"shared.l1", "local.l0a", "local.l0b", "local.l0c"})
"""Scopes whose buffers have a fractal layout: their elements are not where row-major order would put them."""

NOT_OF_A_NEST = (tirx.AllocBuffer, tirx.DeclBuffer, tirx.Bind, tirx.Evaluate, tirx.AttrStmt, tirx.While)


def leaf_nest(stmt: Any) -> tuple[list[tirx.For], tirx.BufferStore] | None:
    """The loops of a perfect nest, outermost first, and its one store; None if ``stmt`` is something else."""
    loops = []
    while isinstance(stmt, tirx.For):
        loops.append(stmt)
        stmt = stmt.body
    return (loops, stmt) if isinstance(stmt, tirx.BufferStore) else None


def pitches(buffer: Any) -> list[Any]:
    """Elements between neighbours along each dimension of a buffer."""
    if buffer.strides:
        return list(buffer.strides)
    dense: list[Any] = [1]
    for extent in reversed(list(buffer.shape)[1:]):
        dense.insert(0, dense[0] * extent)
    return dense if buffer.shape else []


def accessed_buffers(store: tirx.BufferStore) -> list[Any]:
    """The buffers that a store touches, with repeats."""
    buffers = [store.buffer]
    structural_walk(store, (ir.TensorLoad, lambda load: buffers.append(load.source)))
    return buffers


def in_nest_form(func: tirx.PrimFunc) -> list[str]:
    """What keeps the kernel from being in nest form, one line each; empty if it is.

    Nest form: every store is alone in a perfect nest of serial loops that count from zero by one; no if that reads
    no data stands between a store and the loops that decide it; and no store chooses values by loop variables.
    Loops that hold definitions, calls or several nests are tile loops, around which ifs may stand. Statements with
    an opaque mark are not looked at.
    """
    found: list[str] = []
    _check(func.body, (), found)
    return found


def _check(stmt: Any, around: tuple[tirx.For, ...], found: list[str]) -> None:
    if isinstance(stmt, tirx.For):
        _check_loop(stmt, found)
        _check(stmt.body, (*around, stmt), found)
    elif isinstance(stmt, tirx.SeqStmt):
        tiles = contains(stmt, NOT_OF_A_NEST) or any(contains(part, tirx.For) for part in stmt.seq)
        if around and not tiles:
            found.append(f"{len(stmt.seq)} statements share the loop over {around[-1].loop_var.name}")
        for part in stmt.seq:
            _check(part, around if not tiles else (), found)
    elif isinstance(stmt, tirx.IfThenElse):
        _check_branch(stmt, around, found)
        for case in (stmt.then_case, stmt.else_case):
            _check(case, (), found)
    elif isinstance(stmt, tirx.AttrStmt) and not is_opaque(stmt):
        if around and thread_variable(stmt) is not None:
            found.append(f"{stmt.node.var.name} is bound to cores inside the loop over {around[-1].loop_var.name}")
        _check(stmt.body, (), found)
    elif isinstance(stmt, tirx.BufferStore):
        choice = first_choice(stmt, ())
        if choice is not None:
            found.append(f"the store to {stmt.buffer.name} chooses a value by {choice}")


def _check_loop(loop: tirx.For, found: list[str]) -> None:
    name = loop.loop_var.name
    if constant(loop.min) != 0:
        found.append(f"the loop over {name} starts at {loop.min}")
    if loop.step is not None and constant(loop.step) != 1:
        found.append(f"the loop over {name} steps by {loop.step}")
    if loop.kind != tirx.ForKind.SERIAL:
        found.append(f"the loop over {name} is not serial")


def _check_branch(branch: tirx.IfThenElse, around: tuple[tirx.For, ...], found: list[str]) -> None:
    if not around or loads(branch.condition) or contains(branch, (*NOT_OF_A_NEST, tirx.SeqStmt)):
        return
    if uses(branch.condition, [loop.loop_var for loop in around]):
        found.append(f"an if over {branch.condition} stands in the loop over {around[-1].loop_var.name}")
