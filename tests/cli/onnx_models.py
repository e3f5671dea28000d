"""Small ONNX models for the verbs that compile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def perceptron(*, batch: int | str = 3) -> onnx.ModelProto:
    """relu(x @ w + b) * 2: named nodes and a nameless one."""
    generator = np.random.default_rng(5)
    weights = {
        "w": generator.standard_normal((8, 5), np.float32),
        "b": generator.standard_normal((5,), np.float32),
        "two": np.array(2, np.float32),
    }
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["product"], "product_node"),
            helper.make_node("Add", ["product", "b"], ["sum"], "sum_node"),
            helper.make_node("Relu", ["sum"], ["positive"]),
            helper.make_node("Mul", ["positive", "two"], ["y"], "double_node"),
        ],
        "perceptron",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (batch, 8))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (batch, 5))],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def saved(folder: Path, *, batch: int | str = 3) -> Path:
    path = folder / "perceptron.onnx"
    path.write_bytes(perceptron(batch=batch).SerializeToString(deterministic=True))
    return path
