"""Rows that are combined where indices say, against numpy, and what they cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from compiler import api
from compiler.frontend import combined_rows, import_model
from tests.frontend.models import model, node

pytestmark = pytest.mark.usefixtures("as_planned")

INT64 = TensorProto.INT64
COMBINE = {"add": np.add, "max": np.maximum, "min": np.minimum, "mul": np.multiply}


def scattered(rows: int, width: int, count: int, reduction: str, kind: Any = TensorProto.FLOAT) -> Any:
    given = {"x": (kind, [rows, width]), "i": (INT64, [count, 1]), "u": (kind, [count, width])}
    return model([node("ScatterND", "x i u", "y", reduction=reduction)], given, ["y"], output_type=kind)


def drawn(rows: int, width: int, count: int) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    x, u = (rng.standard_normal((n, width)).astype(np.float32) for n in (rows, count))
    return {"x": x, "i": rng.integers(-rows, rows // 2, (count, 1)), "u": u}


def exact(reduction: str, x: Any, i: Any, u: Any) -> Any:
    result = x.astype(np.float64)
    COMBINE[reduction].at(result, i[:, 0], u)
    return result


def is_a_scatter(imported: Any) -> bool:
    functions = [each for each in imported.module.functions.values() if each.attrs and "tw.operator" in each.attrs]
    return any(str(function.attrs["tw.operator"]).startswith("Scatter") for function in functions)


@pytest.fixture(params=["as a product", "one by one"])
def _how_sums_are_made(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combined_rows, "_MOST_ADDED", 0 if request.param == "as a product" else 1 << 30)


@pytest.mark.usefixtures("_how_sums_are_made")
@pytest.mark.parametrize("reduction", ["add", "max", "min"])
@pytest.mark.parametrize("chip", ["tiny", "tw2"])
def test_rows_are_combined(chip: str, reduction: str) -> None:
    given = drawn(12, 5, 40)
    artifact = api.compile(scattered(12, 5, 40, reduction), chip, cache=False)
    result = artifact.run(given, hazards=True)["y"]
    np.testing.assert_allclose(result, exact(reduction, **given), 1e-5, 1e-5)


@pytest.mark.usefixtures("_how_sums_are_made")
@pytest.mark.parametrize("reduction", ["add", "max", "min"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_what_is_infinite_or_no_number_stays_in_its_row(precision: str, reduction: str) -> None:
    given = drawn(12, 5, 40)
    for row, column, value in ((0, 0, np.inf), (1, 0, -np.inf), (2, 1, np.inf), (3, 2, -np.inf), (4, 3, np.nan)):
        given["u"][row, column] = value
    given["i"][:2] = 7  # opposite infinities meet
    result = api.compile(scattered(12, 5, 40, reduction), "tw2", precision=precision, cache=False).run(given)["y"]
    with np.errstate(invalid="ignore"):
        expected = exact(reduction, **given)
    assert np.isnan(expected).any() and np.isinf(expected).any()
    np.testing.assert_allclose(result, expected, 1e-2 if precision == "fp16" else 1e-5, 1e-2)


@pytest.mark.parametrize(("reduction", "most"), [("add", 1_500), ("max", 1_700)])
def test_they_take_no_loop(reduction: str, most: int) -> None:
    artifact = api.compile(scattered(20, 16, 60, reduction), "tw2", precision="fp16", cache=False)
    artifact.run(drawn(20, 16, 60), hazards=True)
    assert 0 < (artifact.report.cycles or 0) < most


def test_many_sums_are_a_product() -> None:
    artifact = api.compile(scattered(200, 64, 100, "add"), "tw2", precision="fp16", cache=False)
    given = drawn(200, 64, 100)
    np.testing.assert_allclose(artifact.run(given)["y"], exact("add", **given), 1e-2, 1e-2)
    assert 0 < (artifact.report.cycles or 0) < 5_000  # 12,100 as a loop


def test_what_is_added_to_nothing() -> None:
    given = {"i": (INT64, [40, 1]), "u": [40, 5]}
    source = model(
        [node("ScatterND", "x i u", "y", reduction="add")], given, ["y"], {"x": np.zeros((12, 5), "float32")}
    )
    feeds = drawn(12, 5, 40)
    feeds["x"][:] = 0
    artifact = api.compile(source, "tiny", cache=False)
    result = artifact.run({name: feeds[name] for name in "iu"}, hazards=True)["y"]
    np.testing.assert_allclose(result, exact("add", **feeds), 1e-5, 1e-5)
    assert len(artifact.report.kernels) == 2


@pytest.mark.parametrize(
    ("rows", "width", "count", "reduction", "kind"),
    [
        (12, 5, 15, "add", TensorProto.FLOAT),
        (12, 5, 40, "mul", TensorProto.FLOAT),
        (12, 5, 40, "add", TensorProto.INT32),
        (1 << 20, 1, 17, "add", TensorProto.FLOAT),
        (1 << 10, 65, 20, "max", TensorProto.FLOAT),
    ],
)
def test_what_is_not_for_it_stays(rows: int, width: int, count: int, reduction: str, kind: int) -> None:
    assert is_a_scatter(import_model(scattered(rows, width, count, reduction, kind).SerializeToString()))


@pytest.mark.parametrize("shape", [(9,), (9, 1), (1, 9, 1)])
def test_single_elements_with_an_index_each_are_rows(shape: tuple[int, ...]) -> None:
    """As the degrees of nodes are counted."""
    axis = shape.index(9)
    places = tuple(30 if at == axis else 1 for at in range(len(shape)))
    given = {"x": list(shape), "i": (INT64, list(places)), "u": list(places)}
    source = model([node("ScatterElements", "x i u", "y", axis=axis, reduction="add")], given, ["y"])
    assert not is_a_scatter(import_model(source.SerializeToString()))
    feeds = drawn(9, 1, 30)
    whole = {"x": feeds["x"].reshape(shape), "i": feeds["i"].reshape(places), "u": feeds["u"].reshape(places)}
    result = api.compile(source, "tiny", cache=False).run(whole, hazards=True)["y"]
    np.testing.assert_allclose(result.reshape(9, 1), exact("add", **feeds), 1e-5, 1e-5)
