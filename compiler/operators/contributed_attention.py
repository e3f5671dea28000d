"""Attention of onnxruntime's own domain: ONNX's Attention, with other masks and other ways to give operands."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.operators import refusals
from compiler.operators.broadcast import result_dtype, shape_of
from compiler.operators.cast import as_dtype
from compiler.operators.graph import Graph, Value
from compiler.operators.registry import composition

HIDDEN = -10000.0  # what is added to the score of a key that a mask hides, where nothing else is said


@composition("com.microsoft::Attention")
def attention(
    graph: Graph,
    x: Value,
    weights: Value,
    bias: Value | None = None,
    mask_index: Value | None = None,
    past: Value | None = None,
    attention_bias: Value | None = None,
    *,
    num_heads: int,
    unidirectional: bool = False,
    qkv_hidden_sizes: tuple[int, ...] | None = None,
    scale: float | None = None,
    mask_filter_value: float = HIDDEN,
    do_rotary: bool = False,
    rotary_embedding_dim: int = 0,
    past_present_share_buffer: bool = False,
) -> tuple[Any, ...]:
    """Queries, keys and values are one product of x. Also keys and values with the past before them, if any."""
    if do_rotary or past_present_share_buffer:
        raise refusals.unsupported("do_rotary and past_present_share_buffer")
    product = graph.call("MatMul", x, weights)
    product = product if bias is None else graph.call("Add", product, bias)
    sizes = qkv_hidden_sizes or (shape_of(weights)[1] // 3,) * 3
    if len(sizes) != 3 or sum(sizes) != shape_of(weights)[1]:
        raise refusals.wrong_shape(f"the columns must be those of {list(sizes)}", weights=weights)
    return attention_of_product(
        graph, product, sizes, mask_index, past, attention_bias, num_heads, unidirectional, scale, mask_filter_value
    )


def attention_of_product(
    graph: Graph,
    product: Value,
    sizes: tuple[int, ...],
    mask_index: Value | None,
    past: Value | None,
    attention_bias: Value | None,
    heads: int,
    causal: bool,
    scale: float | None,
    hidden: float,
) -> tuple[Any, ...]:
    """Of queries, keys and values beside each other; also keys and values with the past before them, if any."""
    q, k, v = graph.call("Split", product, np.array(sizes), axis=2)
    earlier = None, None
    if past is not None:
        halves = graph.call("Split", past, np.array([1, 1]), axis=0)
        earlier = tuple(graph.call("Squeeze", each, np.array([0])) for each in halves)
    keys = shape_of(k)[1] + (0 if past is None else shape_of(past)[3])
    mask = _bias(graph, mask_index, attention_bias, keys, hidden, result_dtype(product))
    result, all_keys, all_values, _ = _attended(graph, q, k, v, mask, earlier, heads, causal, scale)
    if past is None:
        return (result,)
    both = [graph.call("Unsqueeze", each, np.array([0])) for each in (all_keys, all_values)]
    return result, graph.call("Concat", *both, axis=0)


@composition("com.microsoft::MultiHeadAttention")
def multi_head_attention(
    graph: Graph,
    q: Value,
    k: Value | None = None,
    v: Value | None = None,
    bias: Value | None = None,
    key_padding_mask: Value | None = None,
    attention_bias: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    *,
    num_heads: int,
    scale: float | None = None,
    unidirectional: bool = False,
    mask_filter_value: float = HIDDEN,
) -> tuple[Any, Any, Any]:
    """q is [batch, sequence, width], or all three in one as [batch, sequence, heads, 3, width of a head]; k and v may
    be by heads already. Also keys and values with the past before them.
    """
    if len(shape_of(q)) == 5:
        batch, length, heads, _, width = shape_of(q)
        parts = graph.call("Split", q, np.array([1, 1, 1]), axis=3)
        q, k, v = (graph.call("Reshape", part, np.array([batch, length, heads * width])) for part in parts)
    if k is None or v is None:
        raise refusals.unsupported("keys and values in one tensor")
    if bias is not None:
        widths = [shape_of(q)[2], *(_hidden(each) for each in (k, v))]
        biases = graph.call("Split", bias, np.array(widths), axis=0)
        q = graph.call("Add", q, biases[0])
        k, v = (_with_bias(graph, each, own) for each, own in zip((k, v), biases[1:], strict=True))
    keys = shape_of(k)[1 if len(shape_of(k)) == 3 else 2] + (0 if past_key is None else shape_of(past_key)[2])
    mask = _bias(graph, key_padding_mask, attention_bias, keys, mask_filter_value, result_dtype(q))
    earlier = past_key, past_value
    result, all_keys, all_values, _ = _attended(graph, q, k, v, mask, earlier, num_heads, unidirectional, scale)
    return result, all_keys, all_values


def _hidden(x: Value) -> int:
    """The width of all heads together."""
    shape = shape_of(x)
    return shape[2] if len(shape) == 3 else shape[1] * shape[3]


def _with_bias(graph: Graph, x: Value, bias: Value) -> Any:
    if len(shape_of(x)) == 4:
        bias = graph.call("Reshape", bias, np.array([shape_of(x)[1], 1, shape_of(x)[3]]))
    return graph.call("Add", x, bias)


def _attended(
    graph: Graph,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None,
    past: tuple[Value | None, Value | None],
    heads: int,
    causal: bool,
    scale: float | None,
) -> Any:
    """ONNX's attention, whose operands are by heads; results go back to [batch, sequence, width]."""
    q, k, v = (by_heads(graph, each, heads) for each in (q, k, v))
    result, *others = graph.call(
        "Attention", q, k, v, mask, *past, is_causal=causal, **({"scale": scale} if scale else {})
    )
    batch, _, length, width = shape_of(result)
    turned = graph.call("Transpose", result, perm=(0, 2, 1, 3))
    return graph.call("Reshape", turned, np.array([batch, length, heads * width])), *others


def by_heads(graph: Graph, x: Value, heads: int) -> Any:
    shape = shape_of(x)
    if len(shape) == 4:
        return x
    if heads < 1 or shape[2] % heads:
        raise refusals.wrong_shape(f"the last axis must be a multiple of {heads} heads", x=x)
    split = graph.call("Reshape", x, np.array([*shape[:2], heads, shape[2] // heads]))
    return graph.call("Transpose", split, perm=(0, 2, 1, 3))


def _bias(graph: Graph, mask: Value | None, bias: Value | None, keys: int, hidden: float, dtype: str) -> Value | None:
    """What is added to the scores: a bias, and ``hidden`` for keys that a mask hides. That is the number of keys of
    each batch, or 1 for each key, of each query maybe, that is not hidden.
    """
    if mask is None:
        return bias
    shape = shape_of(mask)
    if len(shape) == 1:
        places = graph.constant(np.arange(keys, dtype=np.int32).reshape(1, 1, 1, keys))
        seen = graph.call(
            "Less", places, graph.call("Reshape", as_dtype(graph, mask, "int32"), np.array([-1, 1, 1, 1]))
        )
    elif len(shape) in (2, 3) and shape[-1] == keys:
        whole = [shape[0], 1, *((1,) if len(shape) == 2 else ()), *shape[1:]]
        seen = graph.call("Cast", graph.call("Reshape", mask, np.array(whole)), to=9)
    else:
        raise refusals.wrong_shape(f"a mask must be [batch], [batch, {keys}] or [batch, queries, {keys}]", mask=mask)
    none, all_of_it = (np.array(each, np.float32).astype(dtype) for each in (0, hidden))
    added: Value = graph.call("Where", seen, none, all_of_it)
    return added if bias is None else graph.call("Add", added, bias)


@composition("com.microsoft::RotaryEmbedding")
def rotary_embedding(
    graph: Graph,
    x: Value,
    position_ids: Value,
    cos_cache: Value,
    sin_cache: Value,
    *,
    interleaved: bool = False,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
    is_packed_batching: bool = False,
) -> Any:
    """Positions are those of each element, or one, from which on they are counted."""
    if is_packed_batching or scale != 1:
        raise refusals.unsupported("is_packed_batching and a scale")
    shape = shape_of(x)
    if len(shape) == 3 and not num_heads:
        num_heads = shape[2] // (2 * shape_of(cos_cache)[1])
    if len(shape_of(position_ids)) == 1:
        length = shape[1] if len(shape) == 3 else shape[2]
        counted = np.broadcast_to(np.arange(length), (shape[0], length))
        position_ids = graph.call("Add", position_ids, np.ascontiguousarray(counted))
    return graph.call(
        "RotaryEmbedding", x, cos_cache, sin_cache, position_ids, interleaved=interleaved,
        rotary_embedding_dim=rotary_embedding_dim, **({"num_heads": num_heads} if len(shape) == 3 else {}),
    )  # fmt: skip
