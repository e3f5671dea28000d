"""What calls are thought to ask of the chip."""

from __future__ import annotations

import pytest
import tvm

from compiler.operators import TensorType, find
from compiler.schedule.work import read_shares

DATA, ROWS, SLOPE = TensorType((64, 8), "float16"), TensorType((4,), "int32"), TensorType((1, 8), "float16")


@pytest.mark.parametrize(
    ("kind", "inputs", "shares"),
    [("Gather", [DATA, ROWS], (4 / 64, 1.0)), ("Relu", [DATA], (1.0,)), ("Add", [DATA, SLOPE], (1.0, 1.0))],
)
def test_what_a_call_reads_of_its_inputs(kind: str, inputs: list[TensorType], shares: tuple[float, ...]) -> None:
    operator = find("", kind)
    assert operator is not None
    (func,) = operator.kernels(inputs, {})
    assert read_shares(tvm.IRModule({"f": func}), "f") == pytest.approx(shares)
