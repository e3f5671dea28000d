"""Terms back as TIR, and the operations that no row has, spelled with operations that rows have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tvm import tirx

from compiler.emission.terms import LEAVES, Term
from compiler.isa.dtypes import FLOATS, INTS
from compiler.tir.scopes import TIR_DTYPE

_INFIX: dict[str, Any] = {
    "add": tirx.Add,
    "sub": tirx.Sub,
    "mul": tirx.Mul,
    "div": tirx.Div,
    "mod": tirx.FloorMod,
    "floordiv": tirx.FloorDiv,
    "min": tirx.Min,
    "max": tirx.Max,
    "eq": tirx.EQ,
    "ne": tirx.NE,
    "lt": tirx.LT,
    "le": tirx.LE,
    "shl": tirx.LShift,
    "shr": tirx.RShift,
}
_LOGIC: dict[str, Any] = {"and": tirx.And, "or": tirx.Or, "xor": tirx.NE}
_BITS: dict[str, Any] = {"and": tirx.BitwiseAnd, "or": tirx.BitwiseOr, "xor": tirx.BitwiseXor}
_SIGN_BIT = {"int8": 7, "int16": 15, "int32": 31}
_CALLS = {"round": "nearbyint", "abs": "abs"}


def expression(term: Term, leaf: Callable[[Term], Any]) -> Any:
    """The TIR expression of a term; ``leaf`` gives those of loads, and of whole terms that are in memory already."""
    known = leaf(term)
    if known is not None:
        return known
    if term.op == "const":
        return constant(term)
    if term.op in LEAVES:
        return term.value.key
    args = [expression(arg, leaf) for arg in term.args]
    return operation(term, args)


def constant(term: Term) -> Any:
    dtype = TIR_DTYPE[term.dtype]
    if term.dtype in FLOATS:
        return tirx.FloatImm(dtype, float(term.value))
    return tirx.IntImm(dtype, int(term.value))


def operation(term: Term, args: list[Any]) -> Any:
    """One operation on TIR expressions."""
    op = term.op
    if op == "fill":
        return args[0]
    if op == "cast":
        return tirx.Cast(TIR_DTYPE[term.dtype], args[0])
    if op == "reinterpret":
        return tirx.reinterpret(TIR_DTYPE[term.dtype], args[0])
    if op == "where":
        return tirx.Select(*args)
    if op == "neg":
        return args[0] * tirx.const(-1, TIR_DTYPE[term.dtype])
    if op == "not":
        return tirx.Not(*args) if term.dtype == "bool" else tirx.BitwiseNot(*args)
    if op in _LOGIC:
        return (_LOGIC if term.dtype == "bool" else _BITS)[op](*args)
    if op == "fmod" and term.dtype in INTS:
        return tirx.Mod(*args)
    if op in _INFIX:
        return _INFIX[op](*args)
    if op == "pow":  # `tirx.pow` refuses bfloat16
        return tirx.call_intrin(TIR_DTYPE[term.dtype], "tirx.pow", *args)
    return getattr(tirx, _CALLS.get(op, op))(*args)


# ---- operations that no row has ---------------------------------------------------------------------------------


def equivalents(term: Term) -> Iterator[Term]:
    """Terms of the same value, for an operation that no row matches as it stands."""
    op, args = term.op, term.args
    if op == "floordiv" and term.dtype in INTS:
        yield _floored_quotient(term)
    elif op == "exp10":
        yield Term("pow", term.dtype, (Term("const", term.dtype, value=10.0), args[0]))
    elif op == "cast":
        yield from _by_way_of(term)
    elif op in ("eq", "max", "min", "lt", "le") and args[0].dtype == "bool":
        yield from _of_truths(term)
    elif op == "not" and term.dtype == "bool" and args[0].op in ("lt", "le") and args[0].args[0].dtype in INTS:
        inner = args[0]
        yield Term("le" if inner.op == "lt" else "lt", "bool", inner.args[::-1])
    yield from _filled(term)


def in_type(term: Term, dtype: str, given: set[Term]) -> Term | None:
    """A term of fp32 as one of a narrower type, of which all that it is made of is converted; None if it is not.

    What is compared stays true or false. What was converted goes into ``given``.
    """
    if term.op == "cast" and term.args[0].dtype == dtype:
        given.add(term.args[0])
        return term.args[0]
    if term.dtype not in ("fp32", "bool"):
        return None
    if term.op == "const" and term.dtype == "fp32":
        return replace(term, dtype=dtype)
    if term.op in LEAVES or not term.args:
        return None
    args = [in_type(arg, dtype, given) for arg in term.args]
    known = [arg for arg in args if arg is not None]
    if len(known) < len(args):
        return None
    return replace(term, dtype="bool" if term.dtype == "bool" else dtype, args=tuple(known))


def by_reciprocal(term: Term) -> Term:
    """A quotient as a product, which takes a quarter of its cycles; it is rounded twice."""
    a, b = term.args
    one = Term("const", term.dtype, value=1.0)
    return replace(term, op="mul", args=(a, Term("div", term.dtype, (one, b))))


def _floored_quotient(term: Term) -> Term:
    """The quotient towards zero, and one less where the remainder has not the sign of the divisor.

    No step of it leaves the type, and a divisor of zero gives zero.
    """
    a, b = term.args
    quotient = replace(term, op="div")
    if term.dtype not in _SIGN_BIT:
        return quotient

    def of(op: str, *args: Term) -> Term:
        return Term(op, term.dtype, args)

    def number(value: int) -> Term:
        return Term("const", term.dtype, value=value)

    rest = of("sub", a, of("mul", quotient, b))
    if b.op != "const":
        rest = of("mul", rest, of("min", of("max", b, number(-1)), number(1)))
    elif b.value < 0:
        rest = of("neg", rest)
    return of("add", quotient, of("shr", rest, number(_SIGN_BIT[term.dtype])))


def _by_way_of(term: Term) -> Iterator[Term]:
    """A conversion in two steps: between 8-bit integers, and to a truth value of a type that has none."""
    source = term.args[0]
    if source.dtype in INTS and term.dtype in INTS and source.dtype != "int32" and term.dtype != "int32":
        yield replace(term, args=(Term("cast", "int32", (source,)),))


def _of_truths(term: Term) -> Iterator[Term]:
    a, b = term.args
    if term.op in ("max", "min"):
        yield Term("or" if term.op == "max" else "and", "bool", term.args)
    elif term.op == "eq":
        yield Term("not", "bool", (Term("xor", "bool", (a, b)),))
    else:
        first = Term("not", "bool", (a,))
        yield Term("and" if term.op == "lt" else "or", "bool", (first, b))


def _filled(term: Term) -> Iterator[Term]:
    """The same with one operand that is the same everywhere written to memory first."""
    for position, arg in enumerate(term.args):
        if arg.op in ("const", "scalar"):
            fill = Term("fill", arg.dtype, (arg,))
            yield replace(term, args=(*term.args[:position], fill, *term.args[position + 1 :]))
