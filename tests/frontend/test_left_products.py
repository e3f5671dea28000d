"""A known matrix times many narrow ones, against numpy; and what stays a product."""

from __future__ import annotations

import numpy as np
import pytest

import compiler
from compiler.driver import compile_model
from compiler.frontend import import_model
from compiler.options import Options
from compiler.target import load_chip
from tests.test_driver import model, node

pytestmark = pytest.mark.usefixtures("as_planned")

RNG = np.random.default_rng(11)


def _product(rows: int, shape: tuple[int, ...]) -> tuple[bytes, np.ndarray, np.ndarray]:
    matrix, x = (RNG.standard_normal(size).astype(np.float32) for size in ((rows, shape[-2]), shape))
    return model([node("MatMul", "a x", "y")], {"x": shape}, ["y"], a=matrix), matrix, x


def _operators(source: bytes) -> set[str]:
    attributes = (function.attrs for function in import_model(source).module.functions.values())
    return {str(each["tw.operator"]) for each in attributes if "tw.operator" in each}


@pytest.mark.parametrize(("rows", "shape"), [(14, (64, 7, 7)), (8, (5, 8, 4, 3)), (3, (32, 20, 1)), (40, (33, 5, 15))])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_it_is_the_product(rows: int, shape: tuple[int, ...], precision: str) -> None:
    source, matrix, x = _product(rows, shape)
    assert "tilewright::Convolution" in _operators(source)
    result = compiler.compile(source, chip="tw2", precision=precision).run({"x": x}, hazards=True)["y"]
    tolerance = 1e-4 if precision == "fp32" else 2e-2
    np.testing.assert_allclose(result, matrix @ x, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("shape", [(31, 7, 7), (64, 7, 16), (64, 7)], ids=["few", "wide", "one"])
def test_few_or_wide_matrices_are_multiplied_as_they_are(shape: tuple[int, ...]) -> None:
    functions = import_model(_product(4, shape)[0]).module.functions.values()
    assert {str(function.attrs["tw.operator"]) for function in functions if "tw.operator" in function.attrs} == {
        "MatMul"
    }


def test_many_small_ones_take_fewer_cycles_than_one_by_one() -> None:
    """Of 4 x 4: as wide ones of as many elements would be half as fast."""
    cycles = [
        compile_model(_product(8, shape)[0], load_chip("tw2"), Options("fp16", cache=False)).simulated_cycles
        for shape in ((512, 4, 4), (128, 4, 16))
    ]
    assert cycles[0] is not None
    assert cycles[1] is not None
    assert cycles[0] < cycles[1]
