"""The scalar functions of the instruction table, compiled into one dispatcher per kind of row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compiler.isa import table
from compiler.isa.jit import inlined


def _dispatcher(kind: str) -> Callable[..., Any]:
    """``f(opcode, a, b, c)`` over all rows of a kind: the table's own functions behind a chain of comparisons."""
    rest: Callable[..., Any] | None = None
    for row in table.rows():
        if row.kind == kind:
            rest = _link(row.opcode, inlined(row.function), rest)
    if rest is None:
        raise ValueError(f"no rows of kind {kind}")
    return rest


def _link(code: int, function: Callable[..., Any], rest: Callable[..., Any] | None) -> Callable[..., Any]:
    if rest is None:
        return inlined(lambda opcode, a, b, c: function(a, b, c))

    def dispatch(opcode, a, b, c):  # type: ignore[no-untyped-def]
        if opcode == code:
            return function(a, b, c)
        return rest(opcode, a, b, c)

    return inlined(dispatch)


def _branch_dispatcher() -> Callable[..., Any]:
    rest: Callable[..., Any] = inlined(lambda opcode, a, b: True)
    for row in table.rows():
        if row.kind == "branch" and row.mnemonic != "jmp":
            rest = _branch_link(row.opcode, inlined(row.function), rest)
    return rest


def _branch_link(code: int, function: Callable[..., Any], rest: Callable[..., Any]) -> Callable[..., Any]:
    def dispatch(opcode, a, b):  # type: ignore[no-untyped-def]
        if opcode == code:
            return function(a, b)
        return rest(opcode, a, b)

    return inlined(dispatch)


alu = _dispatcher("alu")
falu = _dispatcher("falu")
fcmp = _dispatcher("fcmp")
itof = _dispatcher("itof")
branch = _branch_dispatcher()
