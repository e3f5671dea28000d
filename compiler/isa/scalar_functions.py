"""The scalar functions of the instruction table, compiled into one dispatcher per kind of row.

A dispatcher is a chain of links of several comparisons each: every link takes a tenth of a second to compile.

Kernels are compiled at different times, and what they contain is linked by name: each function here has a name that
says what it does, so that two kernels never take one for another.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from compiler.isa import table
from compiler.isa.jit import inlined
from compiler.isa.model import Row


def _named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The function, compiled, under a name of its own."""
    if not isinstance(function, FunctionType):
        raise TypeError(f"{name} is no plain function")
    copy = FunctionType(function.__code__, function.__globals__, name, function.__defaults__, function.__closure__)
    copy.__qualname__ = name
    return inlined(copy)


def _dispatcher(kind: str) -> Callable[..., Any]:
    """``f(opcode, a, b, c)`` over all rows of a kind: the table's own functions behind a chain of comparisons."""
    last, *others = (row for row in table.rows() if row.kind == kind)
    function = _named(last.function, f"{kind}_{last.mnemonic}")
    rest = _named(lambda opcode, a, b, c: function(a, b, c), f"{kind}_from_{last.mnemonic}")
    for first in range(0, len(others), 4):
        rest = _link(others[first : first + 4], rest)
    return rest


def _link(rows: list[Row], rest: Callable[..., Any]) -> Callable[..., Any]:
    """Of four rows; where there are fewer, the last one stands for those that lack."""
    each = [(row.opcode, _named(row.function, f"{row.kind}_{row.mnemonic}")) for row in rows]
    (code_0, function_0), (code_1, function_1), (code_2, function_2), (code_3, function_3) = (
        each[min(index, len(each) - 1)] for index in range(4)
    )

    def dispatch(opcode, a, b, c):  # type: ignore[no-untyped-def]
        if opcode == code_0:
            return function_0(a, b, c)
        if opcode == code_1:
            return function_1(a, b, c)
        if opcode == code_2:
            return function_2(a, b, c)
        if opcode == code_3:
            return function_3(a, b, c)
        return rest(opcode, a, b, c)

    return _named(dispatch, f"{rows[0].kind}_from_{rows[-1].mnemonic}")


def _branch_dispatcher() -> Callable[..., Any]:
    rest = _named(lambda opcode, a, b: True, "branch_always")
    for row in table.rows():
        if row.kind == "branch" and row.mnemonic != "jmp":
            rest = _branch_link(row, rest)
    return rest


def _branch_link(row: Row, rest: Callable[..., Any]) -> Callable[..., Any]:
    code, function = row.opcode, _named(row.function, f"branch_{row.mnemonic}")

    def dispatch(opcode, a, b):  # type: ignore[no-untyped-def]
        if opcode == code:
            return function(a, b)
        return rest(opcode, a, b)

    return _named(dispatch, f"branch_from_{row.mnemonic}")


alu = _dispatcher("alu")
falu = _dispatcher("falu")
fcmp = _dispatcher("fcmp")
itof = _dispatcher("itof")
branch = _branch_dispatcher()
