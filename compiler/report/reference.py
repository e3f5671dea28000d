"""The reference of `verify`: onnxruntime, which computes the model as its graph is written.

What it does not know, operators of one's own, is in :mod:`compiler.report.declared_reference`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from compiler.errors import Problem, UnsupportedError

_SUMS_OF_BYTES = frozenset({"ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul"})
_LEAST_ACCURACY = "accuracy_level"  # of com.microsoft::MatMulNBits
# Optimisations that round what the graph does not: weights of floats between quantised tensors, and such tensors again.
_OTHER_ROUNDINGS = ["QDQPropagationTransformer", "WeightBiasQuantization"]


def exact_session(model: Any) -> Any:
    """A session of onnxruntime that computes a model as its graph says; `model` is an onnx.ModelProto.

    Where products are of unsigned by signed bytes, processors with AVX2 and no VNNI add up in 16 bits, which saturates.
    An optimisation, with an option of its own, makes the constants among the signed ones unsigned: then sums are exact.
    """
    import onnxruntime

    options: Any = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    sums = any(node.op_type in _SUMS_OF_BYTES for node in model.graph.node)
    options.graph_optimization_level = levels.ORT_ENABLE_EXTENDED if sums else levels.ORT_DISABLE_ALL
    if sums:
        options.add_session_config_entry("session.x64quantprecision", "1")
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        _at_full_accuracy(model).SerializeToString(),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=_OTHER_ROUNDINGS,
    )


def _at_full_accuracy(model: Any) -> Any:
    """A node may say how inaccurate a sum may be at most, and onnxruntime then rounds operands to bytes."""
    import onnx

    if not any(attribute.name == _LEAST_ACCURACY for node in model.graph.node for attribute in node.attribute):
        return model
    exact = onnx.ModelProto()
    exact.CopyFrom(model)
    for node in exact.graph.node:
        kept = [attribute for attribute in node.attribute if attribute.name != _LEAST_ACCURACY]
        del node.attribute[:]
        node.attribute.extend(kept)
    return exact


def has_halves(model: Any) -> bool:
    """Whether a model has floats of 16 bits of its own: each step may then round in another way than its reference."""
    from onnx import TensorProto

    graph, halves = model.graph, (TensorProto.FLOAT16, TensorProto.BFLOAT16)
    values = [value.type.tensor_type.elem_type for value in (*graph.input, *graph.output, *graph.value_info)]
    known = [tensor.data_type for tensor in graph.initializer]
    casts = [a.i for node in graph.node if node.op_type == "Cast" for a in node.attribute if a.name == "to"]
    return any(dtype in halves for dtype in (*values, *known, *casts))


def quantises(model: Any) -> bool:
    """Whether nodes of a model round floats to integers: what lies beside the middle of two may become either."""
    return any("Quantize" in node.op_type or node.op_type.startswith("QLinear") for node in model.graph.node)


def counts_steps(dtype: np.dtype[Any], node: Any) -> bool:
    """Whether integers of a model that rounds are what was rounded, or are summed up from that; indices are not."""
    is_sum = node is not None and node.op_type in ("ConvInteger", "MatMulInteger")
    return dtype.kind in "iu" and (is_sum or dtype.itemsize <= 2)


def reference_of(model: Any) -> tuple[str, Any]:
    """What computes a model for comparison, and what that is called; `model` is an onnx.ModelProto."""
    from compiler.report.declared_types import declared_nodes

    if not declared_nodes(model):
        return "onnxruntime's", Reference(model)
    from compiler.report.declared_reference import DeclaredReference

    return "onnx.reference's, operators of --ops to their own TE on the CPU,", DeclaredReference(model)


class Reference:
    """A model in onnxruntime, on one thread; `model` is an onnx.ModelProto."""

    def __init__(self, model: Any) -> None:
        try:
            self._session: Any = exact_session(model)
        except ImportError as error:
            hint = "pip install onnxruntime"
            raise UnsupportedError(
                Problem("TW2701", "onnxruntime, the reference, is not installed", hint=hint)
            ) from error
        except Exception as error:  # onnxruntime's own share no other base
            raise _refused(error) from error

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        names = [output.name for output in self._session.get_outputs()]
        try:
            return dict(zip(names, self._session.run(names, dict(inputs)), strict=True))
        except Exception as error:
            raise _refused(error) from error


def _refused(error: Exception) -> UnsupportedError:
    reason = str(error).strip().partition("\n")[0][:300]
    return UnsupportedError(Problem("TW2702", f"onnxruntime does not run the model: {reason}"))


def with_every_output(
    model: Any, shapes: Mapping[str, Sequence[int]] | None = None, dims: Mapping[str, int] | None = None
) -> Any:
    """The model with the outputs of all its nodes as outputs, in the order in which they are computed.

    Sub-graphs stay as they are: what is inside belongs to the node that holds them. Values that depend on no input
    are left out: they are folded, and not computed.
    """
    import onnx

    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    there = {output.name for output in whole.graph.output}
    typed = _typed(whole, shapes or {}, dims or {})
    for name in _computed(whole.graph):
        if name not in there and name in typed:
            whole.graph.output.append(typed[name])
    return whole


def _computed(graph: Any) -> list[str]:
    """What nodes make of the inputs, in their order."""
    stored = {each.name for each in graph.initializer}
    varying = {each.name for each in graph.input} - stored
    found = []
    for node in graph.node:
        holds_graphs = any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute)
        if holds_graphs or varying.intersection(node.input):
            varying.update(node.output)
            found += [name for name in node.output if name]
    return found


def _typed(model: Any, shapes: Mapping[str, Sequence[int]], dims: Mapping[str, int]) -> dict[str, Any]:
    """Every value that is a tensor. Of those that ONNX does not know the types of, the reference says them."""
    import onnx

    from compiler.report import onnx_facts
    from compiler.report.declared_types import untyped_nodes

    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph.value_info
    others = onnx_facts.kinds(model, shapes, dims) if untyped_nodes(model) else {}
    found = {name: onnx.ValueInfoProto(name=name) for name in others}
    return found | {info.name: info for info in inferred if info.type.tensor_type.elem_type}
