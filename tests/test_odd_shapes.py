"""Whole models at the edges of shapes: no elements, no axes, and axes longer than a core's memories."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import compiler
from tests.frontend.models import model, node

pytestmark = pytest.mark.usefixtures("as_planned")

RNG = np.random.default_rng(11)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def check(nodes: list[Any], inputs: dict[str, np.ndarray], expected: np.ndarray, **constants: np.ndarray) -> None:
    """The one output, y, of a model on the smallest chip, of which nothing runs on the host."""
    shapes: Any = {
        name: (helper.np_dtype_to_tensor_dtype(array.dtype), list(array.shape)) for name, array in inputs.items()
    }
    kind = helper.np_dtype_to_tensor_dtype(expected.dtype)
    artifact = compiler.compile(model(nodes, shapes, ["y"], constants, output_type=kind), "tiny", host_kernels=False)
    result = artifact.run(inputs, hazards=True)["y"]
    assert result.shape == expected.shape
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(result.astype(np.float64), expected.astype(np.float64), rtol=1e-4, atol=1e-4)


def test_a_product_over_nothing_is_zero() -> None:
    x, w, b = normal(3, 0), normal(0, 4), normal(4)
    check([node("MatMul", "x w", "y")], {"x": x, "w": w}, np.zeros((3, 4), np.float32))
    check([node("Gemm", "x w b", "y")], {"x": x, "w": w, "b": b}, np.tile(b, (3, 1)))


@pytest.mark.parametrize(
    ("shape", "repeated"),
    [((16, 1, 512), (16, 8, 512)), ((1, 7), (3000, 7)), ((2, 1, 1, 5), (2, 300, 40, 5)), ((3, 9, 1), (3, 9, 4000))],
)
def test_what_is_repeated_may_count_more_than_a_memory_holds(shape: tuple[int, ...], repeated: tuple[int, ...]) -> None:
    """An operand of an instruction may not: a store counts what it repeats as often."""
    x = normal(*shape)
    given = {"shape": np.array(repeated)}
    check([node("Expand", "x shape", "y")], {"x": x}, np.broadcast_to(x, repeated), **given)


def test_a_product_of_vectors_has_no_axes() -> None:
    x, w = normal(70), normal(70)
    check([node("MatMul", "x w", "y")], {"x": x, "w": w}, np.asarray(x @ w))


def test_integers_that_the_cube_does_not_multiply() -> None:
    x, w = (RNG.integers(-9, 9, shape).astype(np.int32) for shape in ((5, 7), (7, 6)))
    check([node("MatMul", "x w", "y")], {"x": x, "w": w}, x @ w)


def test_a_matrix_times_itself() -> None:
    x = normal(17, 17)
    check([node("MatMul", "x x", "y")], {"x": x}, x @ x)
    check([node("Mul", "x x", "y")], {"x": x}, x * x)


def test_a_matrix_times_itself_transposed() -> None:
    x = normal(17, 23)
    check([node("Transpose", "x", "t", perm=[1, 0]), node("MatMul", "x t", "y")], {"x": x}, x @ x.T)


def test_a_transposed_operand_of_odd_products() -> None:
    turned = node("Transpose", "w", "t", perm=[1, 0])
    product = node("MatMul", "x t", "y")
    x, w = normal(70), normal(6, 70)
    check([turned, product], {"x": x, "w": w}, x @ w.T)
    x, w = normal(3, 0), normal(4, 0)
    check([turned, product], {"x": x, "w": w}, np.zeros((3, 4), np.float32))
    a, b = (RNG.integers(-9, 9, shape).astype(np.int32) for shape in ((5, 7), (6, 7)))
    check([turned, product], {"x": a, "w": b}, a @ b.T)


@pytest.mark.parametrize("operator", ["Relu", "Identity"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2)])
def test_no_axes_or_no_elements(operator: str, shape: tuple[int, ...]) -> None:
    x = np.abs(normal(*shape)) if shape else np.asarray(2.5, np.float32)
    check([node(operator, "x", "y")], {"x": x}, x)


def test_a_part_without_elements() -> None:
    x, z = normal(3, 5), normal(0, 5)
    check([node("Concat", "z x", "y", axis=0)], {"x": x, "z": z}, x)
    check([node("ReduceSum", "z", "y", keepdims=0)], {"z": z}, np.asarray(0, np.float32))
    check([node("Pad", "z p", "y")], {"z": z}, np.zeros((2, 5), np.float32), p=np.array([1, 0, 1, 0]))


def test_a_split_with_a_part_without_elements() -> None:
    x = normal(3, 5)
    nodes = [node("Split", "x s", "a b", axis=1), node("Relu", "b", "c"), node("Concat", "c a", "y", axis=1)]
    check(nodes, {"x": x}, x, s=np.array([5, 0]))


@pytest.mark.parametrize("shape", [(2, 9001), (9001, 2)])
def test_axes_longer_than_a_memory(shape: tuple[int, int]) -> None:
    x = normal(*shape)
    check([node("Transpose", "x", "y", perm=[1, 0])], {"x": x}, x.T)
    check([node("ReduceMax", "x", "y", keepdims=0)], {"x": x}, x.max())
    shifted = x.astype(np.float64) - x.max(0)
    check([node("LogSoftmax", "x", "y", axis=0)], {"x": x}, (shifted - np.log(np.exp(shifted).sum(0))).astype("f4"))


def test_clusters_have_no_rows_to_divide_of_a_result_of_nothing() -> None:
    cut = [node("Slice", "x first end", "y")]
    proto = model(cut, {"x": [4, 3]}, ["y"], {"first": np.array([2]), "end": np.array([2])})
    result = compiler.compile(proto, "tw1").run({"x": normal(4, 3)}, hazards=True)["y"]
    assert result.shape == (0, 3)
