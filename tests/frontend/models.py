"""Small models for tests, spelled briefly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = Sequence[int | str | None]


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Shape | tuple[int, Shape]],
    outputs: Sequence[str],
    constants: Mapping[str, Any] | None = None,
    *,
    opset: int = 18,
    domains: Sequence[str] = (),
    functions: Sequence[onnx.FunctionProto] = (),
    output_type: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    """A model; inputs are float32 unless a pair of element type and shape says otherwise."""
    infos = []
    for name, given in inputs.items():
        kind, shape = (
            given if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], list) else (1, given)
        )
        infos.append(helper.make_tensor_value_info(name, kind, shape))
    graph = helper.make_graph(
        list(nodes),
        "graph",
        infos,
        [helper.make_tensor_value_info(name, output_type, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=10)


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """A node; names are separated by blanks, and ``_`` stands for one that is left out."""
    return helper.make_node(operator, _names(inputs), _names(outputs), **attributes)


def _names(text: str) -> list[str]:
    return ["" if name == "_" else name for name in text.split()]
