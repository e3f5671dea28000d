"""Operators of onnxruntime's own domain with weights of few bits, against onnxruntime."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler.errors import TilewrightError
from compiler.frontend import import_model
from tests.operators.test_contributed import RNG, check, floats, model


@pytest.mark.parametrize("quant_type", [0, 1])
@pytest.mark.parametrize(("k", "n", "block"), [(64, 24, 32), (33, 7, 16)])
def test_weights_of_a_table_of_sixteen(quant_type: int, k: int, n: int, block: int) -> None:
    b = ("b", RNG.integers(0, 256, -(-n * k // 2)).astype(np.uint8))
    given = [("a", floats(3, k)), b, ("absmax", np.abs(floats(-(-n * k // block))))]
    check("MatMulBnb4", given, constants=["b", "absmax"], K=k, N=n, block_size=block, quant_type=quant_type, off=1e-3)


INDICES = ("indices", np.array([[2, 0, 5], [5, -1, 1]]))


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zero_points", [True, False])
@pytest.mark.parametrize("columns", [64, 80])
def test_rows_of_a_table_of_bytes(bits: int, zero_points: bool, columns: int) -> None:
    each, blocks = 8 // bits, -(-columns // 32)
    table = RNG.integers(0, 256, (6, columns // each)).astype(np.uint8)
    given: list[tuple[str, Any]] = [("data", table), INDICES, ("scales", np.abs(floats(6, blocks)))]
    if zero_points:
        given.append(("zero", RNG.integers(0, 256, (6, -(-blocks // each))).astype(np.uint8)))
    constants = [name for name, _ in given if name != "indices"]
    check("GatherBlockQuantized", given, constants=constants, bits=bits, block_size=32, quantize_axis=1)


@pytest.mark.parametrize("kind", [ml_dtypes.int4, ml_dtypes.uint4])
@pytest.mark.parametrize(("gather_axis", "quantize_axis"), [(0, 1), (1, 0)])
def test_rows_of_a_table_of_four_bits(kind: Any, gather_axis: int, quantize_axis: int) -> None:
    shape = (6, 32) if quantize_axis else (32, 6)
    table = RNG.integers(-8 if kind is ml_dtypes.int4 else 0, 8, shape).astype(kind)
    scales = np.abs(floats(*(2 if at == quantize_axis else n for at, n in enumerate(shape))))
    given = [("data", table), INDICES, ("scales", scales)]
    axes = {"gather_axis": gather_axis, "quantize_axis": quantize_axis}
    check("GatherBlockQuantized", given, constants=["data", "scales"], block_size=16, **axes)


def test_a_table_that_the_model_is_given_is_refused() -> None:
    table = RNG.integers(0, 256, (6, 32)).astype(np.uint8)
    given = [("data", table), INDICES, ("scales", np.abs(floats(6, 2)))]
    with pytest.raises(TilewrightError, match="not known when the model is compiled"):
        import_model(model("GatherBlockQuantized", given, block_size=32)[0].SerializeToString())
