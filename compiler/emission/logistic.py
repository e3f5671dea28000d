"""``1 + tanh(v)`` and ``1 + erf(u)`` as what they are of an exponential, for numbers of 16 bits.

    y (1 + tanh(v)) / 2  ->  y / (1 + exp(-2 v))
    y (1 + erf(u)) / 2   ->  y / (1 + exp(-u (1.5976 sqrt 2 + 0.0706 sqrt 8 u^2)))

The first is exact. The second is off by 2.8e-4 of ``1 + erf(u)`` at most, about as much as ``erf(u)`` is rounded by in
fp16. A cubic of the argument takes three instructions, whatever it was spelled as; an error function takes sixteen
cycles a repeat, a hyperbolic tangent eight, an exponential two. A quotient takes four; in fp16
``by_reciprocals`` multiplies by the reciprocal, in two. That rounds once more: the error of a GELU grows by a fortieth
on average, and not at its most.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from compiler.emission.expressions import by_reciprocal
from compiler.emission.terms import Term

NARROW = ("fp16", "bf16")
# The normal distribution's Phi(x) is the logistic function of x (LINEAR + CUBIC x^2), but for 1.4e-4: a minimax fit.
LINEAR, CUBIC = 1.59760, 0.0705654


def in_logistic_form(term: Term, *, by_reciprocals: bool = False) -> Term:
    """The term with all such factors of products replaced; the same where there is none."""
    found = _product(term, by_reciprocals) if term.op in ("mul", "div", "add") and term.dtype in NARROW else None
    term = found or term
    args = tuple(in_logistic_form(arg, by_reciprocals=by_reciprocals) for arg in term.args)
    return term if args == term.args else replace(term, args=args)


def _product(term: Term, by_reciprocals: bool) -> Term | None:
    factors = list(_factors(term))
    for at, factor in enumerate(factors):
        exponent = _exponent(factor)
        if exponent is not None:
            rest = factors[:at] + factors[at + 1 :]
            scale = 2 * math.prod(float(each.value) for each in rest if each.op == "const")
            quotient = _quotient([each for each in rest if each.op != "const"], scale, exponent)
            multiplies = by_reciprocals and term.dtype == "fp16" and quotient.args[0].op != "const"
            return by_reciprocal(quotient) if multiplies else quotient
    return None


def _factors(term: Term) -> Iterator[Term]:
    """What is multiplied; a divisor that is a number is a factor, too."""
    if term.op == "mul":
        for arg in term.args:
            yield from _factors(arg)
    elif term.op == "div" and term.args[1].op == "const" and term.args[1].value:
        yield from _factors(term.args[0])
        yield _number(1 / float(term.args[1].value), term)
    else:
        yield term


def _quotient(factors: list[Term], scale: float, exponent: Term) -> Term:
    dividend: Term | None = None
    for factor in factors:
        dividend = factor if dividend is None else replace(factor, op="mul", args=(dividend, factor), value=None)
    number = _number(scale, exponent)
    if dividend is None:
        dividend = number
    elif scale != 1:
        dividend = _of("mul", dividend, number)
    return _of("div", dividend, _of("add", _of("exp", exponent), _number(1.0, exponent)))


def _exponent(factor: Term) -> Term | None:
    """``w`` where a factor is ``2 / (1 + exp(w))``."""
    if factor.op != "add":
        return None
    for one, other in (factor.args, factor.args[::-1]):
        if one.op != "const" or one.value != 1 or other.op not in ("tanh", "erf"):
            continue
        inside = _polynomial(other.args[0])
        if other.op == "tanh":
            inside = inside.scaled(-2.0)
        elif inside.coefficients.keys() == {1}:
            slope = inside.coefficients[1] * math.sqrt(2)
            inside = _Polynomial(inside.base, {1: -LINEAR * slope, 3: -CUBIC * slope**3})
        else:
            inside = _Polynomial(other.args[0], {1: -LINEAR * math.sqrt(2), 3: -CUBIC * math.sqrt(8)})
        return inside.term() or _of("mul", other.args[0], _number(-2.0, other))
    return None


@dataclass(frozen=True)
class _Polynomial:
    """A term as a polynomial of another one: coefficients by degree."""

    base: Term
    coefficients: dict[int, float]

    def scaled(self, by: float) -> _Polynomial:
        return replace(self, coefficients={degree: by * each for degree, each in self.coefficients.items()})

    def term(self) -> Term | None:
        """``base (a + b base^2)``, if it is one."""
        if not self.coefficients.keys() <= {1, 3}:
            return None
        linear, cubic = (self.coefficients.get(degree, 0.0) for degree in (1, 3))
        if not cubic:
            return _of("mul", self.base, _number(linear, self.base))
        square = _of("mul", self.base, self.base)
        line = _of("add", _of("mul", square, _number(cubic, self.base)), _number(linear, self.base))
        return _of("mul", self.base, line)


def _polynomial(term: Term) -> _Polynomial:
    """The term as a polynomial of the smallest term that it is one of; of itself, if of nothing else."""
    found = None
    if term.op == "neg":
        found = _polynomial(term.args[0]).scaled(-1.0)
    elif term.op == "pow":
        found = _power(*term.args)
    elif term.op in ("add", "sub", "mul", "div"):
        one, other = term.args[::-1] if term.op == "mul" and term.args[0].op == "const" else term.args
        found = _scaled(term.op, one, float(other.value)) if other.op == "const" else _joined(term.op, one, other)
    return found or _Polynomial(term, {1: 1.0})


def _power(term: Term, exponent: Term) -> _Polynomial | None:
    inner = _polynomial(term)
    if exponent.op != "const" or exponent.value not in (2, 3) or inner.coefficients.keys() != {1}:
        return None
    power = int(exponent.value)
    return _Polynomial(inner.base, {power: inner.coefficients[1] ** power})


def _scaled(op: str, term: Term, value: float) -> _Polynomial | None:
    if op == "mul" or (op == "div" and value):
        return _polynomial(term).scaled(value if op == "mul" else 1 / value)
    return None


def _joined(op: str, one: Term, other: Term) -> _Polynomial | None:
    first, second = _polynomial(one), _polynomial(other)
    if first.base != second.base or op == "div":
        return None
    if op == "mul":
        found: dict[int, float] = {}
        for (m, a), (n, b) in product(first.coefficients.items(), second.coefficients.items()):
            found[m + n] = found.get(m + n, 0.0) + a * b
        return _Polynomial(first.base, found)
    added = second if op == "add" else second.scaled(-1.0)
    degrees = first.coefficients.keys() | added.coefficients.keys()
    return _Polynomial(
        first.base, {n: first.coefficients.get(n, 0.0) + added.coefficients.get(n, 0.0) for n in sorted(degrees)}
    )


def _of(op: str, *args: Term) -> Term:
    return Term(op, args[0].dtype, args)


def _number(value: float, like: Term) -> Term:
    return Term("const", like.dtype, value=value)
