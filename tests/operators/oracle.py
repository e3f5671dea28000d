"""onnxruntime on one node: what an operator should give."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

Array = np.ndarray[Any, Any]


def onnxruntime_on(
    name: str, *inputs: Array | None, outputs: int = 1, opset: int = 20, **attributes: Any
) -> list[Array]:
    names = [f"i{k}" if x is not None else "" for k, x in enumerate(inputs)]
    given = {n: x for n, x in zip(names, inputs, strict=True) if x is not None}
    results = [f"o{k}" for k in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(name, names, results, **attributes)],
        name,
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in given.items()],
        [onnx.ValueInfoProto(name=result) for result in results],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(result) for result in session.run(None, given)]
