"""Factors of 1 + tanh and 1 + erf as quotients by 1 + exp: the forms, and how near they come."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

from compiler.emission.cover import Cover
from compiler.emission.logistic import CUBIC, LINEAR, in_logistic_form
from compiler.emission.terms import Term
from compiler.target import load_chip
from compiler.tiling import vector
from tests.tiling.kernels import run

X, Y = (Term("load", "fp16", value=n) for n in range(2))
ERF = np.vectorize(math.erf)


def number(value: float, dtype: str = "fp16") -> Term:
    return Term("const", dtype, value=value)


def of(op: str, *args: Term) -> Term:
    return Term(op, args[0].dtype, args)


def plus_one(term: Term) -> Term:
    return of("add", term, number(1.0, term.dtype))


def halves(x: Term) -> list[Term]:
    """x (1 + erf(x / sqrt 2)) / 2, as exporters and people write it."""
    root = number(math.sqrt(2))
    one = of("mul", of("mul", x, plus_one(of("erf", of("div", x, root)))), number(0.5))
    other = of("mul", of("mul", x, number(0.5)), plus_one(of("erf", of("mul", x, number(math.sqrt(0.5))))))
    return [one, other, of("div", of("mul", plus_one(of("erf", of("div", x, root))), x), number(2.0))]


@pytest.mark.parametrize("which", range(3))
def test_a_gelu_is_a_quotient_by_an_exponential_of_a_cubic(which: int) -> None:
    found = in_logistic_form(halves(X)[which])
    assert found.op == "div" and found.args[0] == X
    exponent = found.args[1].args[0].args[0]
    linear, cubic = exponent.args[1].args[1].value, exponent.args[1].args[0].args[1].value
    assert (linear, cubic) == pytest.approx((-LINEAR, -CUBIC)) and exponent.args[0] == X


def test_a_quotient_may_be_a_product_with_a_reciprocal() -> None:
    quotient = in_logistic_form(halves(X)[0])
    product = in_logistic_form(halves(X)[0], by_reciprocals=True)
    assert product == of("mul", X, of("div", number(1.0), quotient.args[1]))
    assert in_logistic_form(plus_one(of("tanh", X)), by_reciprocals=True).op == "div"  # of a number
    wide = replace(halves(X)[0], dtype="bf16")
    assert in_logistic_form(wide, by_reciprocals=True) == in_logistic_form(wide)


@pytest.mark.parametrize("chip", ["tw1", "tw2"])
def test_long_rows_are_multiplied(chip: str) -> None:
    cover = Cover(load_chip(chip), lambda term: term.op == "load", lambda term: 1 << 16)
    for term in halves(X):
        assert cover.cycles(in_logistic_form(term, by_reciprocals=True)) < cover.cycles(in_logistic_form(term))


def test_a_hyperbolic_tangent_of_a_cubic() -> None:
    cubic = of("add", X, of("mul", of("pow", X, number(3.0)), number(0.044715)))
    term = of("mul", of("mul", X, number(0.5)), plus_one(of("tanh", of("mul", cubic, number(0.8)))))
    exponent = of("mul", X, of("add", of("mul", of("mul", X, X), number(-0.071544)), number(-1.6)))
    found = in_logistic_form(term)
    assert found.args[0] == X and str(found.args[1]) == str(plus_one(of("exp", exponent)))


def test_what_is_no_cubic_is_scaled_as_a_whole() -> None:
    term = of("mul", Y, plus_one(of("tanh", of("add", X, Y))))
    whole = of("mul", of("add", X, Y), number(-2.0))
    assert in_logistic_form(term) == of("div", of("mul", Y, number(2.0)), plus_one(of("exp", whole)))


def test_wide_numbers_and_other_sums_stay_as_they_are() -> None:
    wide = Term("load", "fp32", value=0)
    for term in (
        of("mul", wide, of("add", of("erf", wide), number(1.0, "fp32"))),
        of("mul", X, of("add", of("tanh", X), number(2.0))),
        of("mul", X, of("tanh", X)),
        plus_one(X),
    ):
        assert in_logistic_form(term) is term


@pytest.mark.parametrize("chip", ["tw1", "tw2"])
def test_long_rows_are_cheaper_in_this_form(chip: str) -> None:
    cover = Cover(load_chip(chip), lambda term: term.op == "load", lambda term: 1 << 16)
    for term in halves(X):
        assert cover.cycles(in_logistic_form(term)) < 0.9 * cover.cycles(term)


def _erf_form(x: Any) -> Any:
    return x * (tirx.erf(x / tirx.const(2**0.5, "float16")) + tirx.const(1, "float16")) * tirx.const(0.5, "float16")


def _tanh_form(x: Any) -> Any:
    c = [tirx.const(value, "float16") for value in (0.5, 1.0, 3.0, 0.044715, math.sqrt(2 / math.pi))]
    return x * c[0] * (tirx.tanh((x + tirx.pow(x, c[2]) * c[3]) * c[4]) + c[1])


def _gate(x: Any) -> Any:
    return tirx.tanh(x) + tirx.const(1, "float16")


EXACT: dict[Callable[[Any], Any], Callable[[Any], Any]] = {
    _erf_form: lambda x: x * (1 + ERF(x / math.sqrt(2))) / 2,
    _tanh_form: lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    _gate: lambda x: np.tanh(x) + 1,
}


# Of fp16, the error function in a sum with one is rounded by 2.4e-4; the fit adds 1.4e-4 of the result's x.
@pytest.mark.parametrize("chip", ["tw1", "tw2"])
@pytest.mark.parametrize("form", EXACT, ids=["erf", "tanh", "gate"])
def test_results_in_float16(form: Callable[[Any], Any], chip: str) -> None:
    dense = np.linspace(-8, 8, 4001)
    far = np.array([-6e4, -300, -41, -12, 0, 1e-4, 12, 41, 300, 6e4])
    x = np.tile(np.concatenate([dense, far]).astype(np.float16), (64, 1))
    made = run(vector.schedule, chip, {"x": x}, lambda given: te.compute(x.shape, lambda *i: form(given[i]), "y"))
    np.testing.assert_allclose(made.output.astype(np.float64), EXACT[form](x.astype(np.float64)), rtol=2e-3, atol=5e-4)
