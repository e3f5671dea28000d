"""Operators of onnxruntime's own domain that its optimiser and converters write: activations, norms and products.

Each is what several of ONNX's operators are one after another, and becomes calls of those.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.operators import refusals
from compiler.operators.broadcast import result_dtype, shape_of
from compiler.operators.cast import as_dtype
from compiler.operators.graph import Graph, Value
from compiler.operators.registry import composition

# What FusedConv and FusedGemm may end with, and what their parameters are called there.
_ACTIVATIONS = {
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
}


@composition("com.microsoft::Gelu")
def gelu(graph: Graph, x: Value) -> Any:
    return graph.call("Gelu", x)


@composition("com.microsoft::BiasGelu")
def bias_gelu(graph: Graph, a: Value, b: Value) -> Any:
    return graph.call("Gelu", graph.call("Add", a, b))


@composition("com.microsoft::FastGelu")
def fast_gelu(graph: Graph, x: Value, bias: Value | None = None) -> Any:
    return graph.call("Gelu", x if bias is None else graph.call("Add", x, bias), approximate="tanh")


@composition("com.microsoft::QuickGelu")
def quick_gelu(graph: Graph, x: Value, *, alpha: float = 1.702) -> Any:
    """``x * sigmoid(alpha * x)``."""
    factor = np.array(alpha, np.float32).astype(result_dtype(x))
    return graph.call("Mul", x, graph.call("Sigmoid", graph.call("Mul", x, factor)))


@composition("SimplifiedLayerNormalization")
def simplified_layer_normalization(
    graph: Graph, x: Value, scale: Value, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    """By the root of the mean square; onnxruntime has it in ONNX's domain, where it is RMSNormalization now."""
    return graph.call("RMSNormalization", x, scale, axis=axis, epsilon=epsilon, stash_type=stash_type)


@composition("com.microsoft::SkipLayerNormalization")
def skip_layer_normalization(
    graph: Graph,
    x: Value,
    skip: Value,
    gamma: Value,
    beta: Value | None = None,
    bias: Value | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Any, Any, Any, Any]:
    """Of the sum of both and a bias, which is the last result."""
    total = _summed(graph, x, skip, bias)
    return (*graph.call("LayerNormalization", total, gamma, beta, epsilon=epsilon), total)


@composition("com.microsoft::SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(
    graph: Graph, x: Value, skip: Value, gamma: Value, bias: Value | None = None, *, epsilon: float = 1e-12
) -> tuple[Any, Any, Any, Any]:
    """Of the sum of both and a bias, which is the last result. The mean that nothing subtracts is zero."""
    total = _summed(graph, x, skip, bias)
    squares = graph.call("ReduceMean", graph.call("Mul", total, total), np.array([-1]))
    spread = graph.call("Sqrt", graph.call("Add", squares, np.array(epsilon, np.float32).astype(result_dtype(squares))))
    inverse, mean = graph.call("Reciprocal", spread), graph.call("Sub", squares, squares)
    return graph.call("RMSNormalization", total, gamma, epsilon=epsilon), mean, inverse, total


def _summed(graph: Graph, x: Value, skip: Value, bias: Value | None) -> Any:
    total = graph.call("Add", x, skip)
    return total if bias is None else graph.call("Add", total, bias)


@composition("com.microsoft::GroupNorm")
def group_norm(
    graph: Graph,
    x: Value,
    gamma: Value,
    beta: Value,
    *,
    groups: int,
    activation: int,
    epsilon: float = 1e-5,
    channels_last: bool = True,
) -> Any:
    """And SiLU behind it where ``activation`` is 1, as in diffusion models."""
    if activation not in (0, 1):
        raise refusals.wrong_value("must be 0 (none) or 1 (SiLU)", "activation", activation)
    scale, bias = (as_dtype(graph, each, result_dtype(x)) for each in (gamma, beta))
    rank = len(shape_of(x))
    first = graph.call("Transpose", x, perm=(0, rank - 1, *range(1, rank - 1))) if channels_last else x
    result = graph.call("GroupNormalization", first, scale, bias, num_groups=groups, epsilon=epsilon)
    if activation:
        result = graph.call("Mul", result, graph.call("Sigmoid", result))
    return graph.call("Transpose", result, perm=(0, *range(2, rank), 1)) if channels_last else result


@composition("com.microsoft::EmbedLayerNormalization")
def embed_layer_normalization(
    graph: Graph,
    input_ids: Value,
    segment_ids: Value | None,
    words: Value,
    positions: Value,
    segments: Value | None,
    gamma: Value,
    beta: Value,
    mask: Value | None = None,
    position_ids: Value | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> tuple[Any, Any, Any]:
    """The sum of what words, positions and segments are, normalised; how many ones the mask has; and the sum.

    onnxruntime counts whatever ``mask_index_type`` says.
    """
    batch, length = shape_of(input_ids)
    if position_ids is None:
        position_ids = graph.constant(np.arange(length)[None, :])
    total = graph.call("Add", graph.call("Gather", words, input_ids), graph.call("Gather", positions, position_ids))
    if segment_ids is not None and segments is not None:
        total = graph.call("Add", total, graph.call("Gather", segments, segment_ids))
    result, _, _ = graph.call("LayerNormalization", total, gamma, beta, epsilon=epsilon)
    counted: Value = graph.constant(np.zeros(batch, np.int32))
    if mask is not None:
        ones = graph.call("Cast", graph.call("Equal", mask, np.array(1, np.int32)), to=6)
        counted = graph.call("ReduceSum", ones, np.array([1]), keepdims=False)
    return result, counted, total


# ---- products ----------------------------------------------------------------------------------------------------


@composition("com.microsoft::FusedMatMul", "com.microsoft::TransposeMatMul")
def fused_matmul(
    graph: Graph,
    a: Value,
    b: Value,
    *,
    alpha: float = 1.0,
    transA: bool = False,
    transB: bool = False,
    transBatchA: bool = False,
    transBatchB: bool = False,
) -> Any:
    """``alpha`` times a product of matrices that may be turned."""
    if transBatchA or transBatchB:
        raise refusals.unsupported("transBatchA and transBatchB, which move the first axis to the end")
    product = graph.call("MatMul", _turned(graph, a) if transA else a, _turned(graph, b) if transB else b)
    return product if alpha == 1 else graph.call("Mul", product, np.array(alpha, np.float32).astype(result_dtype(a)))


def _turned(graph: Graph, x: Value) -> Value:
    rank = len(shape_of(x))
    result: Value = x if rank < 2 else graph.call("Transpose", x, perm=(*range(rank - 2), rank - 1, rank - 2))
    return result


@composition("com.microsoft::FusedGemm")
def fused_gemm(
    graph: Graph,
    a: Value,
    b: Value,
    c: Value | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: bool = False,
    transB: bool = False,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
) -> Any:
    result = graph.call("Gemm", a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    return _activated(
        graph, result, activation, [each for each in (activation_alpha, activation_beta) if each is not None]
    )


@composition("com.microsoft::FusedConv")
def fused_conv(
    graph: Graph,
    x: Value,
    w: Value,
    b: Value | None = None,
    z: Value | None = None,
    *,
    activation: str = "",
    activation_params: tuple[float, ...] = (),
    kernel_shape: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    dilations: tuple[int, ...] | None = None,
    auto_pad: str = "NOTSET",
    group: int = 1,
) -> Any:
    """A convolution, to which ``z`` is added, and what follows."""
    given = {
        "kernel_shape": kernel_shape, "strides": strides, "pads": pads, "dilations": dilations,
        "auto_pad": auto_pad, "group": group,
    }  # fmt: skip
    result = graph.call("Conv", x, w, b, **{name: value for name, value in given.items() if value is not None})
    return _activated(graph, result if z is None else graph.call("Add", result, z), activation, activation_params)


def _activated(graph: Graph, x: Value, activation: str, parameters: Any) -> Any:
    if not activation:
        return x
    if activation == "Clip":
        limits = [np.array(each, np.float32).astype(result_dtype(x)) for each in parameters]
        return graph.call("Clip", x, *limits)
    if activation not in _ACTIVATIONS:
        raise refusals.wrong_value(f"must be one of Clip, {', '.join(_ACTIVATIONS)}", "activation", activation)
    return graph.call(activation, x, **dict(zip(_ACTIVATIONS[activation], map(float, parameters), strict=False)))
