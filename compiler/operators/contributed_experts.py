"""Mixtures of experts of onnxruntime's own domain: a few of many feed-forward networks for each token."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.operators import refusals
from compiler.operators.broadcast import result_dtype, shape_of
from compiler.operators.contributed_weights import dequantised_rows
from compiler.operators.graph import Graph, Value
from compiler.operators.registry import composition

_ACTIVATIONS = {"relu": "Relu", "gelu": "Gelu", "silu": "Swish", "identity": "Identity"}


@composition("com.microsoft::MoE")
def mixture_of_experts(
    graph: Graph,
    x: Value,
    router_probs: Value,
    fc1: Value,
    fc1_bias: Value | None,
    fc2: Value,
    fc2_bias: Value | None = None,
    fc3: Value | None = None,
    fc3_bias: Value | None = None,
    router_weights: Value | None = None,
    *,
    k: int = 1,
    activation_type: str = "relu",
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    normalize_routing_weights: bool = False,
    use_sparse_mixer: bool = False,
    swiglu_limit_after_activation: bool = False,
) -> Any:
    """Weights are [experts, outputs, inputs]. Of more choices than there are experts, each computes all tokens."""
    if use_sparse_mixer or fc3 is not None or swiglu_limit_after_activation:
        raise refusals.unsupported("a sparse mixer, a third layer, and limits behind the activation")
    if activation_type == "swiglu" and swiglu_fusion != 1:
        raise refusals.unsupported("gates that are not interleaved with what they are for")
    tokens, experts = shape_of(router_probs)
    rows = graph.call("Reshape", x, np.array([tokens, 1, shape_of(x)[-1]]))
    picked, which = _picked(graph, router_probs, router_weights, k, normalize_routing_weights)

    def ffn(given: Value, choose: Any) -> Any:
        hidden = _layer(graph, given, fc1, fc1_bias, choose)
        if activation_type == "swiglu":
            hidden = _gated(graph, hidden, activation_alpha, activation_beta, swiglu_limit)
        elif activation_type in _ACTIVATIONS:
            hidden = graph.call(_ACTIVATIONS[activation_type], hidden)
        else:
            raise refusals.wrong_value(
                f"must be one of swiglu, {', '.join(_ACTIVATIONS)}", "activation_type", activation_type
            )
        return _layer(graph, hidden, fc2, fc2_bias, choose)

    if tokens * k < experts:
        flat = graph.call("Reshape", which, np.array([tokens * k]))
        given = graph.call("Expand", rows, np.array([tokens, k, 1]))
        given = graph.call("Reshape", given, np.array([tokens * k, 1, -1]))
        made = ffn(given, lambda weights: graph.call("Gather", weights, flat, axis=0))
        made = graph.call("Reshape", made, np.array([tokens, k, -1]))
        factors, axis = graph.call("Unsqueeze", picked, np.array([2])), 1
    else:
        made = ffn(graph.call("Reshape", x, np.array([1, tokens, shape_of(x)[-1]])), lambda weights: weights)
        chosen = graph.call("OneHot", which, np.array(experts), np.array([0, 1], np.float32).astype(result_dtype(x)))
        shares = graph.call("Mul", chosen, graph.call("Unsqueeze", picked, np.array([2])))
        total = graph.call("ReduceSum", shares, np.array([1]), keepdims=False)
        factors, axis = graph.call("Unsqueeze", graph.call("Transpose", total, perm=(1, 0)), np.array([2])), 0
    result = graph.call("ReduceSum", graph.call("Mul", made, factors), np.array([axis]), keepdims=False)
    return graph.call("Reshape", result, np.array(shape_of(x)))


def _picked(graph: Graph, scores: Value, weights: Value | None, k: int, normalised: bool) -> tuple[Any, Any]:
    """How much each of the best experts of a token counts, and which these are."""
    best, which = graph.call("TopK", scores, np.array([k]), axis=-1)
    if weights is not None:
        found = graph.call("GatherElements", weights, which, axis=1)
        if normalised:
            found = graph.call("Div", found, graph.call("ReduceSum", found, np.array([-1]), keepdims=True))
        return found, which
    if normalised:
        return graph.call("Softmax", best, axis=-1), which
    return graph.call("GatherElements", graph.call("Softmax", scores, axis=-1), which, axis=1), which


def _layer(graph: Graph, x: Value, weights: Value, bias: Value | None, choose: Any) -> Any:
    result = graph.call("MatMul", x, graph.call("Transpose", choose(weights), perm=(0, 2, 1)))
    if bias is None:
        return result
    return graph.call("Add", result, graph.call("Unsqueeze", choose(bias), np.array([1])))


def _gated(graph: Graph, x: Value, alpha: float, beta: float, limit: float | None) -> Any:
    """Gates and what they are for in turns: ``gate * sigmoid(alpha * gate) * (linear + beta)``."""
    shape, dtype = shape_of(x), result_dtype(x)
    pairs = graph.call("Reshape", x, np.array([*shape[:-1], shape[-1] // 2, 2]))
    gate, linear = (
        graph.call("Squeeze", part, np.array([-1]))
        for part in graph.call("Split", pairs, np.array([1, 1]), axis=len(shape))
    )
    if limit is not None:
        high, low = (np.array(each, np.float32).astype(dtype) for each in (limit, -limit))
        gate, linear = graph.call("Clip", gate, None, high), graph.call("Clip", linear, low, high)
    steep = graph.call("Mul", gate, np.array(alpha, np.float32).astype(dtype))
    swished = graph.call("Mul", gate, graph.call("Sigmoid", steep))
    return graph.call("Mul", swished, graph.call("Add", linear, np.array(beta, np.float32).astype(dtype)))


@composition("com.microsoft::QMoE")
def quantised_mixture_of_experts(
    graph: Graph,
    x: Value,
    router_probs: Value,
    fc1: Value,
    fc1_scales: Value,
    fc1_bias: Value | None,
    fc2: Value,
    fc2_scales: Value,
    fc2_bias: Value | None = None,
    fc3: Value | None = None,
    fc3_scales: Value | None = None,
    fc3_bias: Value | None = None,
    fc1_zero_points: Value | None = None,
    fc2_zero_points: Value | None = None,
    fc3_zero_points: Value | None = None,
    router_weights: Value | None = None,
    *,
    k: int = 1,
    expert_weight_bits: int = 4,
    block_size: int = 0,
    quant_type: str = "int",
    activation_type: str = "relu",
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    normalize_routing_weights: bool = False,
    use_sparse_mixer: bool = False,
    swiglu_limit_after_activation: bool = False,
    accuracy_level: int = 0,
    weights_prepacked: int = -1,
) -> Any:
    """Of known weights of few bits, [experts, outputs, packed inputs], with a scale for each row or block of one."""
    if quant_type != "int" or expert_weight_bits not in (2, 4, 8) or weights_prepacked == 1:
        raise refusals.unsupported("packed weights, and those that are no integers of 2, 4 or 8 bits")
    if fc3 is not None or fc3_scales is not None or fc3_bias is not None or fc3_zero_points is not None:
        raise refusals.unsupported("a third layer")
    layers = [
        dequantised_rows(graph, *each, expert_weight_bits, block_size, result_dtype(x))
        for each in ((fc1, fc1_scales, fc1_zero_points), (fc2, fc2_scales, fc2_zero_points))
    ]
    given: dict[str, Any] = {} if swiglu_limit is None else {"swiglu_limit": swiglu_limit}
    return graph.call(
        "com.microsoft::MoE", x, router_probs, layers[0], fc1_bias, layers[1], fc2_bias, None, None, router_weights,
        k=k,
        activation_type=activation_type, activation_alpha=activation_alpha, activation_beta=activation_beta,
        swiglu_fusion=swiglu_fusion, normalize_routing_weights=normalize_routing_weights,
        use_sparse_mixer=use_sparse_mixer, swiglu_limit_after_activation=swiglu_limit_after_activation, **given,
    )  # fmt: skip
