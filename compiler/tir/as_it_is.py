"""Operations on floats as they are written: TVM simplifies some as if there were no NaN and no infinity.

x - x is then zero, x == x is true, and x < y the opposite of y <= x. Where TVM simplifies values, calls of functions
that it does not know stand for such operations.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from compiler.tir.structure import structural_map

_KINDS = (tirx.Sub, tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)
_OF_CALL = {f"tw.as_it_is.{kind.__name__}": kind for kind in _KINDS}


def hidden(func: Any) -> Any:
    """The function with calls in the place of operations that TVM may take for something else."""

    def call(node: Any) -> Any:
        if not str(node.a.ty).startswith(("float", "bfloat")):
            return node
        return tirx.call_pure_extern(str(node.ty), f"tw.as_it_is.{type(node).__name__}", node.a, node.b)

    return func.with_body(structural_map(func.body, (_KINDS, call)))


def shown(func: Any) -> Any:
    """The function with the operations again."""

    def operation(call: Any) -> Any:
        if call.op.name != "tirx.call_pure_extern":
            return call
        kind = _OF_CALL.get(str(call.args[0].value))
        return call if kind is None else kind(*call.args[1:])

    return func.with_body(structural_map(func.body, (ir.Call, operation)))
