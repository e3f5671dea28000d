"""Products of matrices against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.errors import InvalidError, UnsupportedError
from tests.operators.evaluate import evaluate
from tests.operators.oracle import floats, integers, onnxruntime_node

SHAPES = [
    ((3, 5), (5, 7)),
    ((2, 1, 3, 5), (4, 5, 1)),
    ((5,), (5,)),
    ((5,), (2, 5, 3)),
    ((2, 3, 5), (5,)),
    ((1, 1), (1, 1)),
    ((7, 3, 5), (1, 5, 2)),
]


@pytest.mark.parametrize("shapes", SHAPES)
def test_shapes_follow_numpy(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = (floats(seed, *shape) for seed, shape in enumerate(shapes))
    np.testing.assert_allclose(evaluate("MatMul", a, b), a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bits_are_summed_in_float32(dtype: str) -> None:
    a, b = floats(0, 2, 3000, dtype=dtype), floats(1, 3000, 3, dtype=dtype)
    expected = (a.astype("float64") @ b.astype("float64")).astype(dtype)
    result = evaluate("MatMul", a, b)
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(result.astype("float64"), expected.astype("float64"), rtol=1e-2)


def test_integers_are_exact() -> None:
    a, b = integers(0, 3, 9), integers(1, 9, 4)
    np.testing.assert_array_equal(evaluate("MatMul", a, b), a @ b)


@pytest.mark.parametrize("transpose_a", [0, 1])
@pytest.mark.parametrize("transpose_b", [0, 1])
@pytest.mark.parametrize("c_shape", [None, (), (7,), (3, 1), (3, 7)])
def test_gemm(transpose_a: int, transpose_b: int, c_shape: tuple[int, ...] | None) -> None:
    a, b = floats(0, *((5, 3) if transpose_a else (3, 5))), floats(1, *((7, 5) if transpose_b else (5, 7)))
    c = None if c_shape is None else floats(2, *c_shape)
    attributes = {"transA": transpose_a, "transB": transpose_b, "alpha": 0.5, "beta": 2.0}
    expected = onnxruntime_node("Gemm", [a, b, c], **attributes)[0]
    np.testing.assert_allclose(evaluate("Gemm", a, b, c, **attributes), expected, rtol=1e-5, atol=1e-5)


def test_matrices_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidError, match=r"TW2108.*a \[2, 3\], b \[4, 5\]"):
        evaluate("MatMul", floats(0, 2, 3), floats(0, 4, 5))
    with pytest.raises(InvalidError, match="TW2108"):
        evaluate("MatMul", floats(0, 3, 2, 3), floats(0, 2, 3, 5))
    with pytest.raises(InvalidError, match="TW2108"):
        evaluate("Gemm", floats(0, 2, 3), floats(0, 3, 4), floats(0, 2, 2, 4))
    with pytest.raises(UnsupportedError, match="TW2109"):
        evaluate("MatMul", floats(0, 2, 3), floats(0, 3, 4, dtype="float16"))
