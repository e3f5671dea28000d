"""Operators of onnxruntime's own domain that hand a state on from step to step, as linear attention and Mamba do.

ONNX has taken them over: of linear attention, what it defines it by would be twice as many calls.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from compiler.operators import refusals
from compiler.operators.broadcast import result_dtype, shape_of
from compiler.operators.cast import as_dtype
from compiler.operators.graph import Graph, Value
from compiler.operators.registry import composition

_RULES = ("linear", "gated", "delta", "gated_delta")


@composition("com.microsoft::LinearAttention", "LinearAttention")
def linear_attention(
    graph: Graph,
    query: Value,
    key: Value,
    value: Value,
    past_state: Value | None = None,
    decay: Value | None = None,
    beta: Value | None = None,
    *,
    q_num_heads: int,
    kv_num_heads: int,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
    chunk_size: int = 64,
    state_window: int = 0,
) -> tuple[Any, Any]:
    """Step by step: the state forgets, takes in a key and its value, and answers the query; all of it in fp32."""
    if update_rule not in _RULES:
        raise refusals.wrong_value(f"must be one of {', '.join(_RULES)}", "update_rule", update_rule)
    if state_window:
        raise refusals.unsupported("a window of states")
    batch, length, _ = shape_of(query)
    heads, own = kv_num_heads, result_dtype(query)
    kept_dtype = own if past_state is None else result_dtype(past_state)
    query, key, value = (as_dtype(graph, each, "float32") for each in (query, key, value))
    past_state, decay, beta = (
        None if each is None else as_dtype(graph, each, "float32") for each in (past_state, decay, beta)
    )
    width, depth = shape_of(key)[2] // heads, shape_of(value)[2] // heads
    factor = graph.wide(graph.constant(np.array(scale or 1 / math.sqrt(width), np.float32)))
    q = _steps(graph, query, (batch, length, heads, q_num_heads // heads, width))
    k = _steps(graph, key, (batch, length, heads, width, 1))
    v = _steps(graph, value, (batch, length, heads, 1, depth))
    kept = given = None
    if update_rule.startswith("gated"):
        if decay is None:
            raise refusals.missing_input("decay", 4)
        rows = shape_of(decay)[2] // heads
        kept = _steps(graph, graph.call("Exp", decay), (batch, length, heads, rows, 1))
    if update_rule.endswith("delta"):
        if beta is None:
            raise refusals.missing_input("beta", 5)
        given = _steps(graph, beta, (batch, length, shape_of(beta)[2], 1, 1))
    state: Any = past_state
    if state is None:
        state = graph.wide(graph.constant(np.zeros((batch, heads, width, depth), np.float32)))
    answers = []
    for step in range(length):
        state = state if kept is None else graph.call("Mul", state, kept[step])
        new = v[step]
        if given is not None:
            known = graph.call("MatMul", graph.call("Transpose", k[step], perm=(0, 1, 3, 2)), state)
            new = graph.call("Mul", given[step], graph.call("Sub", new, known))
        state = graph.call("Add", state, graph.call("Mul", k[step], new))
        answers.append(graph.call("Unsqueeze", graph.call("MatMul", q[step], state), np.array([1])))
    joined = answers[0] if length == 1 else graph.call("Concat", *answers, axis=1)
    scaled = graph.call("Mul", joined, factor)
    result = graph.call("Reshape", scaled, np.array([batch, length, q_num_heads * depth]))
    return as_dtype(graph, result, own), as_dtype(graph, state, kept_dtype)


def _steps(graph: Graph, x: Value, shape: tuple[int, ...]) -> list[Any]:
    """Of [batch, length, ...] each step, in this shape without the length."""
    split = graph.call("Reshape", x, np.array(shape))
    parts = [split] if shape[1] == 1 else graph.call("Split", split, np.ones(shape[1], np.int64), axis=1)
    return [graph.call("Squeeze", part, np.array([1])) for part in parts]


@composition("com.microsoft::CausalConvWithState")
def causal_convolution_with_state(
    graph: Graph,
    x: Value,
    weights: Value,
    bias: Value | None = None,
    past_state: Value | None = None,
    *,
    activation: str = "none",
    dilation: int = 1,
    ndim: int = 1,
    channels_last: bool = False,
    state_window: int = 0,
) -> tuple[Any, Any]:
    """Of each channel by itself, over the elements before; also the last of these, for the next call."""
    if ndim != 1 or state_window or len(shape_of(x)) != 3:
        raise refusals.unsupported("more than one spatial axis, and a window of states")
    if activation not in ("none", "silu", "swish"):
        raise refusals.wrong_value("must be none, silu or swish", "activation", activation)
    if channels_last:
        x = graph.call("Transpose", x, perm=(0, 2, 1))
        past_state = None if past_state is None else graph.call("Transpose", past_state, perm=(0, 2, 1))
    batch, channels, length = shape_of(x)
    before = (shape_of(weights)[2] - 1) * dilation
    past: Any = past_state
    if past is None:
        past = graph.constant(np.zeros((batch, channels, before), np.float32).astype(result_dtype(x)))
    whole = graph.call("Concat", past, x, axis=2) if before else x
    result = graph.call("Conv", whole, weights, bias, group=channels, dilations=(dilation,))
    if activation != "none":
        result = graph.call("Mul", result, graph.call("Sigmoid", result))
    state = graph.call("Slice", whole, np.array([length]), np.array([length + before]), np.array([2]))
    if channels_last:
        return graph.call("Transpose", result, perm=(0, 2, 1)), graph.call("Transpose", state, perm=(0, 2, 1))
    return result, state
