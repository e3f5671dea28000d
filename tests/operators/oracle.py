"""Single nodes run by onnxruntime: the independent oracle of the operators' numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import helper

from models.checks import run

Array = np.ndarray[Any, Any]


def onnxruntime_node(
    op_type: str, inputs: Sequence[Array | None], outputs: int = 1, opset: int = 21, **attributes: Any
) -> list[Array]:
    """The outputs of one node; an input that is None is left out."""
    names = ["" if array is None else f"x{position}" for position, array in enumerate(inputs)]
    while names[-1] == "":  # onnxruntime crashes on some
        names.pop()
    given = {name: np.asarray(array) for name, array in zip(names, inputs, strict=False) if array is not None}
    node = helper.make_node(op_type, names, [f"y{n}" for n in range(outputs)], **attributes)
    graph = helper.make_graph(
        [node],
        "node",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in given.items()
        ],
        [helper.make_empty_tensor_value_info(f"y{n}") for n in range(outputs)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return list(run(model, given).values())


def floats(seed: int, *shape: int, dtype: str = "float32", low: float = -2.0, high: float = 2.0) -> Array:
    return np.random.default_rng(seed).uniform(low, high, shape).astype(dtype)


def integers(seed: int, *shape: int, dtype: str = "int32", low: int = -50, high: int = 50) -> Array:
    limits = np.iinfo(dtype)
    bounds = max(low, int(limits.min)), min(high, int(limits.max))
    return np.random.default_rng(seed).integers(*bounds, shape, endpoint=True).astype(dtype)
