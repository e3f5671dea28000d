"""What calls are thought to ask of the chip."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from compiler import graph
from compiler.frontend import import_model
from compiler.operators import TensorType, find
from compiler.schedule.work import read_shares, work_of
from compiler.target import load_chip
from tests.test_driver import model, node

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


@pytest.mark.parametrize("steps", [1, 5])
def test_what_is_written_out_as_loops_is_counted(steps: int) -> None:
    """A recurrence: per step and element at least its sums, functions and products; products of matrices are not."""
    batch, hidden = 3, 8
    shapes = [(steps, batch, 4), (1, 4 * hidden, 4), (1, 4 * hidden, hidden)]
    source = model([node("LSTM", "x w r", "y", hidden_size=hidden)], {"x": shapes[0]}, ["y"], **dict(
        zip("wr", (np.zeros(shape, np.float32) for shape in shapes[1:]), strict=True)
    ))  # fmt: skip
    module = import_model(source).module
    found = [work_of(module, call.callee, load_chip("tw1")) for call in graph.read(module["main"]).calls]
    elements = max(work.vector_bytes for work in found) // 4
    assert steps * batch * hidden * 20 < elements < steps * batch * hidden * 200
