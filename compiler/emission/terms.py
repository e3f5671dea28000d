"""What a store computes, as a small tree that patterns can be matched against without crossing into C++ again.

A :class:`Term` is an operation on terms, or one of the leaves: a data access, a constant, a number that is the same
in every iteration (``scalar``), or one that depends on the loops but on no data (``index``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm_ffi

from compiler.isa.dtypes import DTYPES, INTS
from compiler.tir.scopes import ISA_DTYPE

LEAVES = frozenset({"load", "const", "scalar", "index"})
COMMUTATIVE = frozenset({"add", "mul", "max", "min", "and", "or", "xor", "eq", "ne"})


@dataclass(frozen=True, slots=True)
class Term:
    """``op`` applied to ``args``; a leaf carries its ``value``: an access, a number, or a structural key of TIR."""

    op: str
    dtype: str
    args: tuple[Term, ...] = ()
    value: Any = None

    def __str__(self) -> str:
        if self.op == "const":
            return str(self.value)
        if self.op == "load":
            return str(self.value)
        if self.op in LEAVES:
            return str(self.value.key)
        name = f"cast.{self.dtype}" if self.op == "cast" else self.op
        return f"{name}({', '.join(map(str, self.args))})"


def saturated(term: Term) -> Term | None:
    """x of ``cast(min(max(x, low), high))``, where low and high are the limits of the type that is cast to."""
    if term.op != "cast" or term.dtype not in INTS:
        return None
    limits = np.iinfo(DTYPES[term.dtype].numpy)
    inner, wanted = term.args[0], {"min": limits.max, "max": limits.min}
    for _ in range(2):
        limit = wanted.pop(inner.op, None)
        rest = [arg for arg in inner.args if not (arg.op == "const" and arg.value == limit)]
        if limit is None or len(rest) != 1:
            return None
        inner = rest[0]
    return inner


_BINARY = {
    "Add": "add",
    "Sub": "sub",
    "Mul": "mul",
    "Div": "div",
    "Mod": "fmod",
    "FloorDiv": "floordiv",
    "FloorMod": "mod",
    "Min": "min",
    "Max": "max",
    "EQ": "eq",
    "NE": "ne",
    "LT": "lt",
    "LE": "le",
    "And": "and",
    "Or": "or",
    "BitwiseAnd": "and",
    "BitwiseOr": "or",
    "BitwiseXor": "xor",
    "LShift": "shl",
    "RShift": "shr",
}
_FLIPPED = {"GT": "lt", "GE": "le"}
_INTRINSICS = {
    "fabs": "abs",
    "pow": "pow",
    "nearbyint": "round",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
    "bitwise_not": "not",
    "shift_left": "shl",
    "shift_right": "shr",
}


def term_of(expr: Any, loop_vars: frozenset[Any], access_of: Callable[[Any], Any], whole: bool = True) -> Term:
    """The term of a TIR expression.

    ``access_of`` gives the one object that stands for a buffer load; ``loop_vars`` are the loops whose variables
    make a number an ``index``. Without ``whole`` the root stays an operation even if it is index arithmetic.
    """
    kind = type(expr).__name__
    dtype = ISA_DTYPE.get(str(expr.ty), str(expr.ty))
    if kind == "TensorLoad":
        return Term("load", dtype, value=access_of(expr))
    if kind == "IntImm":
        return Term("const", dtype, value=int(expr.value))
    if kind == "FloatImm":
        return Term("const", dtype, value=float(expr.value))
    if kind == "Var":
        leaf = "index" if expr in loop_vars else "scalar"
        return Term(leaf, dtype, value=tvm_ffi.StructuralKey(expr))
    op, operands = _operation(kind, expr)
    args = tuple(term_of(operand, loop_vars, access_of) for operand in operands)
    if whole and dtype not in ("fp32", "fp16", "bf16") and all(arg.op in LEAVES and arg.op != "load" for arg in args):
        # Arithmetic on indices alone is an index: the scalar unit or an index pattern makes it.
        leaf = "index" if any(arg.op == "index" for arg in args) else "scalar"
        if op != "cast" or args[0].dtype not in ("fp32", "fp16", "bf16"):
            return Term(leaf, dtype, value=tvm_ffi.StructuralKey(expr))
    return _canonical(op, dtype, args)


def _operation(kind: str, expr: Any) -> tuple[str, tuple[Any, ...]]:
    if kind in _BINARY:
        return _BINARY[kind], (expr.a, expr.b)
    if kind in _FLIPPED:
        return _FLIPPED[kind], (expr.b, expr.a)
    if kind in ("Not", "BitwiseNot"):
        return "not", (expr.a,)
    if kind == "Cast":
        return "cast", (expr.value,)
    if kind == "Select":
        return "where", (expr.condition, expr.true_value, expr.false_value)
    if kind == "Call":
        name = getattr(expr.op, "name", str(expr.op)).rpartition(".")[2]
        if name == "if_then_else":
            return "where", tuple(expr.args)
        if name == "likely":
            return "likely", tuple(expr.args)
        return _INTRINSICS.get(name, name), tuple(expr.args)
    return kind, ()


def _canonical(op: str, dtype: str, args: tuple[Term, ...]) -> Term:
    """One spelling for what TIR spells in several ways: negation, casts to the same type."""
    if op == "sub" and args[0].op == "const" and args[0].value == 0:
        return Term("neg", dtype, args[1:])
    if op == "mul":
        for this, other in (args, args[::-1]):
            if this.op == "const" and this.value == -1:
                return Term("neg", dtype, (other,))
    if op == "likely" or (op == "cast" and args[0].dtype == dtype):
        return args[0]
    return Term(op, dtype, args)


def loads_of(term: Term) -> list[Any]:
    """The accesses of all loads, each once, in the order in which they are written."""
    found: dict[int, Any] = {}
    stack = [term]
    while stack:
        here = stack.pop()
        if here.op == "load":
            found.setdefault(id(here.value), here.value)
        stack.extend(reversed(here.args))
    return list(found.values())


def numbered(term: Term) -> tuple[Term, list[Any]]:
    """The term with its accesses replaced by numbers, and the accesses: equal terms of different nests are equal."""
    accesses = loads_of(term)
    numbers = {id(access): number for number, access in enumerate(accesses)}

    def renamed(here: Term) -> Term:
        if here.op == "load":
            return Term("load", here.dtype, value=numbers[id(here.value)])
        if not here.args:
            return here
        return Term(here.op, here.dtype, tuple(renamed(arg) for arg in here.args), here.value)

    return renamed(term), accesses


def renumbered(term: Term, accesses: list[Any]) -> Term:
    """A term with its accesses replaced by their numbers in a list that has them."""
    if term.op == "load":
        return Term("load", term.dtype, value=next(n for n, a in enumerate(accesses) if a is term.value))
    if not term.args:
        return term
    return Term(term.op, term.dtype, tuple(renumbered(arg, accesses) for arg in term.args), term.value)
