"""Einsum against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.errors import InvalidError
from compiler.operators.einsum import parse
from tests.operators.evaluate import evaluate
from tests.operators.oracle import floats

EQUATIONS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(3, 5), (5, 2)]),
    ("ij,kj", [(3, 5), (2, 5)]),
    ("bij,bjk->bik", [(2, 3, 5), (2, 5, 4)]),
    ("bhqd,bkhd->bhqk", [(2, 3, 4, 5), (2, 6, 3, 5)]),
    ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
    ("i,j->ij", [(3,), (4,)]),
    ("ij->ji", [(3, 4)]),
    ("ijk->j", [(2, 3, 4)]),
    ("ii->i", [(4, 4)]),
    ("bii", [(2, 3, 3)]),
    ("ij,ij->", [(3, 4), (3, 4)]),
    ("ab,bc,cd->ad", [(2, 3), (3, 4), (4, 5)]),
    ("ij,jk->k", [(3, 5), (5, 2)]),
    ("bi,bij,bj->b", [(2, 3), (2, 3, 4), (2, 4)]),
    ("i j , j k -> i k", [(3, 5), (5, 2)]),
]


@pytest.mark.parametrize("equation, shapes", EQUATIONS)
def test_einsum(equation: str, shapes: list[tuple[int, ...]]) -> None:
    inputs = [floats(seed, *shape) for seed, shape in enumerate(shapes)]
    expected = np.einsum(equation, *inputs)
    result = evaluate("Einsum", *inputs, equation=equation)
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_an_ellipsis_stands_for_numbered_labels() -> None:
    assert parse("...a,b...->...", [3, 2]) == ([["1", "0", "a"], ["b", "0"]], ["1", "0"])


@pytest.mark.parametrize(
    "equation, shapes",
    [
        ("ij,jk->ik", [(3, 5)]),
        ("ijk->i", [(3, 5)]),
        ("ij->k", [(3, 5)]),
        ("i1->i", [(3, 5)]),
        ("ij,jk->ik", [(3, 5), (4, 2)]),
    ],
)
def test_equations_that_do_not_fit_are_refused(equation: str, shapes: list[tuple[int, ...]]) -> None:
    with pytest.raises(InvalidError, match="TW21"):
        evaluate("Einsum", *(floats(0, *shape) for shape in shapes), equation=equation)
