"""Broadcasting as models of ONNX's first years ask for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from compiler.errors import InvalidError
from compiler.frontend import import_model
from tests.frontend.cpu import run
from tests.frontend.models import model, node


def old(operator: str, shapes: dict[str, list[int]], **attributes: Any) -> bytes:
    built: onnx.ModelProto = model([node(operator, " ".join(shapes), "y", **attributes)], shapes, ["y"], opset=6)
    return built.SerializeToString()


def arrays(shapes: dict[str, list[int]]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize(
    ("axis", "second", "seen_as"),
    [(1, [3], (3, 1)), (0, [2, 3], (2, 3, 1)), (-1, [4], (4,)), (None, [3, 4], (3, 4)), (1, [], ())],
)
def test_axis_says_where_the_second_input_begins(axis: int | None, second: list[int], seen_as: tuple[int, ...]) -> None:
    shapes = {"x": [2, 3, 4], "b": second}
    attributes = {"broadcast": 1} if axis is None else {"broadcast": 1, "axis": axis}
    given = arrays(shapes)
    (result,) = run(import_model(old("Mul", shapes, **attributes)), given)
    np.testing.assert_allclose(result, given["x"] * given["b"].reshape(seen_as), rtol=1e-6)


def test_slopes_belong_to_channels() -> None:
    shapes = {"x": [2, 3, 4], "b": [3]}
    given = arrays(shapes)
    (result,) = run(import_model(old("PRelu", shapes)), given)
    x = given["x"]
    np.testing.assert_allclose(result, np.where(x < 0, x * given["b"][:, None], x), rtol=1e-6)


def test_the_sum_of_a_product_is_broadcast() -> None:
    shapes = {"x": [2, 3], "w": [3, 4], "b": [4]}
    given = arrays(shapes)
    (result,) = run(import_model(old("Gemm", shapes, broadcast=1)), given)
    np.testing.assert_allclose(result, given["x"] @ given["w"] + given["b"], rtol=1e-5)


@pytest.mark.parametrize(
    ("second", "attributes"), [([3], {}), ([3], {"broadcast": 1, "axis": 2}), ([3], {"broadcast": 1, "axis": -7})]
)
def test_shapes_that_do_not_fit_are_refused(second: list[int], attributes: dict[str, int]) -> None:
    with pytest.raises(InvalidError, match=r"TW2032|TW2108"):
        import_model(old("Add", {"x": [2, 3, 4], "b": second}, **attributes))
