"""The values of an integer expression for many values of its variables at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
from tvm import ir, tirx

Values = np.ndarray[Any, Any]


class DependsOnData(Exception):
    """The expression reads memory, or a variable of which nothing is known."""


_BINARY: dict[type, Callable[[Values, Values], Values]] = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.FloorDiv: np.floor_divide,
    tirx.FloorMod: np.mod,
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
    tirx.EQ: np.equal,
    tirx.NE: np.not_equal,
    tirx.LT: np.less,
    tirx.LE: np.less_equal,
    tirx.GT: np.greater,
    tirx.GE: np.greater_equal,
    tirx.And: np.logical_and,
    tirx.Or: np.logical_or,
}
_CONDITIONALS = ("prim.if_then_else", "tirx.if_then_else")
_LIKELY = ("prim.likely", "tirx.likely")


def evaluate(expression: Any, variables: Mapping[Any, Values]) -> Values:
    """An array that broadcasts against those of the variables; truth values are booleans."""
    kind = type(expression)
    if kind is int or kind is tirx.IntImm:
        return np.asarray(int(expression))
    if kind in _BINARY:
        return _BINARY[kind](evaluate(expression.a, variables), evaluate(expression.b, variables))
    if kind is tirx.Var and expression in variables:
        return variables[expression]
    if kind is tirx.Not:
        return np.logical_not(evaluate(expression.a, variables))
    if kind is tirx.Cast and "int" in str(expression.ty.dtype):
        return evaluate(expression.value, variables)
    if kind is tirx.Select:
        return _either(expression.condition, expression.true_value, expression.false_value, variables)
    if isinstance(expression, ir.Call) and isinstance(expression.op, ir.Op):
        if expression.op.name in _CONDITIONALS:
            return _either(expression.args[0], expression.args[1], expression.args[2], variables)
        if expression.op.name in _LIKELY:
            return evaluate(expression.args[0], variables)
    raise DependsOnData(str(expression))


def _either(condition: Any, then: Any, otherwise: Any, variables: Mapping[Any, Values]) -> Values:
    sides = (evaluate(then, variables), evaluate(otherwise, variables))
    return np.where(evaluate(condition, variables), *sides)


def expression_of(values: list[int], variable: Any) -> Any:
    """An expression of a variable from zero on that has these values, one after the other.

    A sum over the variable and its quotients by two numbers where there is one; else the values that differ are told
    apart one by one.
    """
    found = _factors_of(tuple(values))
    if found is not None:
        return _sum(*found, variable)
    result = tirx.IntImm("int32", values[-1])
    for place in reversed(range(len(values) - 1)):
        if values[place] != values[place + 1]:
            result = tirx.Select(variable <= place, tirx.IntImm("int32", values[place]), result)
    return result


@lru_cache(maxsize=1 << 12)  # kernels ask for the same few again and again
def _factors_of(values: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, int]] | None:
    """Of one, places and their quotients by two numbers: how often each is in the values, and the numbers."""
    wanted, places = np.array(values), np.arange(len(values))
    for divisors in combinations(range(2, len(values) + 2), 2):
        basis = np.stack([np.ones_like(places), places, *(places // divisor for divisor in divisors)], axis=1)
        found = np.rint(np.linalg.lstsq(basis.astype(float), wanted.astype(float), rcond=None)[0]).astype(int)
        if (basis @ found == wanted).all():
            return tuple(found.tolist()), divisors
    return None


def _sum(factors: tuple[int, ...], divisors: tuple[int, int], variable: Any) -> Any:
    constant, *times = factors
    total = tirx.IntImm("int32", constant)
    for factor, term in zip(times, (variable, *(variable // divisor for divisor in divisors)), strict=True):
        if factor:
            total = total + term * factor
    return total
