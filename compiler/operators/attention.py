"""ONNX's Attention, as products and a softmax; grouped queries share a head of keys by broadcasting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.operators import refusals
from compiler.operators.broadcast import FLOATS, literal, require_dtype, result_dtype, shape_of
from compiler.operators.cast import as_dtype, onnx_dtype
from compiler.operators.graph import Graph, Value
from compiler.operators.reduction import MAX, SUM, Rows
from compiler.operators.registry import composition, operator

_CAPPED, _BIASED, _PROBABILITIES = 1, 2, 3  # qk_matmul_output_mode; 0 is the bare product


@composition("Attention")
def attention(
    graph: Graph,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    valid_keys: Value | None = None,
    *,
    is_causal: bool = False,
    kv_num_heads: int | None = None,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    left_window_size: int = -1,
    right_window_size: int = -1,
) -> tuple[Any, Any, Any, Any]:
    """Also the keys and values with the past before them, and the stage of the scores that is asked for."""
    _check_ranks(q, k, v, past_key, past_value)
    is_flat = len(shape_of(q)) == 3
    if is_flat:
        q, k, v = (_by_head(graph, x, n) for x, n in ((q, q_num_heads), (k, kv_num_heads), (v, kv_num_heads)))
    offset = 0 if past_key is None else shape_of(past_key)[2]
    if past_key is not None:
        k = graph.call("Concat", past_key, k, axis=2)
    if past_value is not None:
        v = graph.call("Concat", past_value, v, axis=2)
    batch, heads, queries, width = shape_of(q)
    groups, keys = shape_of(k)[1:3]
    if heads % groups or shape_of(v)[1:3] != (groups, keys) or shape_of(k)[3] != width:
        raise refusals.wrong_shape(
            "q, k and v must agree in width, and the heads of q be a multiple of k's", q=q, k=k, v=v
        )
    repeats = heads // groups
    dtype = result_dtype(q)
    factor = np.array(math.sqrt(scale if scale is not None else 1 / math.sqrt(width)), np.float32).astype(dtype)
    scaled_q, scaled_k = (x if factor == 1 else graph.call("Mul", x, factor) for x in (q, k))
    # Heads that share keys are rows of one product where each has one query, else an axis along which keys repeat.
    is_one_product = repeats == 1 or queries == 1
    own = (batch, groups, repeats * queries) if is_one_product else (batch, groups, repeats, queries)
    shared = (batch, groups) if is_one_product else (batch, groups, 1)
    rank = len(own) + 1
    columns = _seen_as(graph, scaled_k, (*shared, keys, width))
    columns = graph.call("Transpose", columns, perm=(*range(rank - 2), rank - 1, rank - 2))
    scores = graph.call("MatMul", _seen_as(graph, scaled_q, (*own, width)), columns)
    stages = {0: scores}
    if softcap:
        scores = graph.call("tilewright::SoftCap", scores, cap=softcap)
    stages[_CAPPED] = scores
    bias = _bias(graph, mask, valid_keys, is_causal, left_window_size, right_window_size, offset, queries, keys, dtype)
    bias = None if bias is None else _of_groups(graph, bias, groups, repeats, is_one_product)
    biased = scores if bias is None else graph.call("Add", scores, bias)
    stages[_BIASED] = biased
    exact = biased if softmax_precision is None else as_dtype(graph, biased, onnx_dtype(softmax_precision))
    share = graph.call("tilewright::MaskedSoftmax" if _may_mask_rows(bias) else "Softmax", exact)
    share = as_dtype(graph, share, dtype)
    stages[_PROBABILITIES] = share
    values = _seen_as(graph, v, (*shared, keys, shape_of(v)[3]))
    result = _seen_as(graph, graph.call("MatMul", share, values), (batch, heads, queries, shape_of(v)[3]))
    if is_flat:
        result = graph.call("Transpose", result, perm=(0, 2, 1, 3))
        result = graph.call("Reshape", result, np.array([batch, queries, heads * shape_of(v)[3]]))
    if qk_matmul_output_mode not in stages:
        raise refusals.wrong_value("must be 0, 1, 2 or 3", "qk_matmul_output_mode", qk_matmul_output_mode)
    return result, k, v, _seen_as(graph, stages[qk_matmul_output_mode], (batch, heads, queries, keys))


def _check_ranks(q: Value, k: Value, v: Value, past_key: Value | None, past_value: Value | None) -> None:
    require_dtype(FLOATS, q=q, k=k, v=v)
    ranks = {len(shape_of(tensor)) for tensor in (q, k, v)}
    if ranks not in ({3}, {4}):
        raise refusals.wrong_shape("q, k and v must all have three axes, or all four", q=q, k=k, v=v)
    past = [tensor for tensor in (past_key, past_value) if tensor is not None]
    if len(past) == 1 or any(len(shape_of(tensor)) != 4 for tensor in past):
        given = {"past_" + str(n): tensor for n, tensor in enumerate(past)}
        raise refusals.wrong_shape("past keys and values come together, with four axes each", **given)


def _seen_as(graph: Graph, x: Value, shape: tuple[int, ...]) -> Any:
    """A view, which kernels end at: none where there is nothing to see in another shape."""
    return x if shape_of(x) == shape else graph.call("Reshape", x, np.array(shape))


def _of_groups(graph: Graph, bias: Value, groups: int, repeats: int, is_one_product: bool) -> Any:
    """A bias in the shape of the scores: to see those in another one would end their kernel."""
    batch, heads, queries, keys = (1,) * (4 - len(shape_of(bias))) + shape_of(bias)
    if repeats == 1 or (is_one_product and heads == 1):
        return bias
    by_head = (1, 1) if heads == 1 else (groups, repeats)
    return _seen_as(graph, bias, (batch, *by_head, *(() if is_one_product else (queries,)), keys))


def _may_mask_rows(bias: Value | None) -> bool:
    """Whether a query may see no key at all."""
    if bias is None:
        return False
    return bias.constant is None or bool(np.isneginf(bias.constant.max(axis=-1)).any())


def _by_head(graph: Graph, x: Value, heads: int | None) -> Value:
    """[batch, sequence, heads * width] -> [batch, head, sequence, width]."""
    if heads is None:
        raise refusals.missing_attribute("q_num_heads and kv_num_heads")
    batch, length, hidden = shape_of(x)
    if heads < 1 or hidden % heads:
        raise refusals.wrong_shape(f"the last axis must be a multiple of {heads} heads", x=x)
    split = graph.call("Reshape", x, np.array([batch, length, heads, hidden // heads]))
    result: Value = graph.call("Transpose", split, perm=(0, 2, 1, 3))
    return result


def _bias(
    graph: Graph,
    mask: Value | None,
    valid_keys: Value | None,
    is_causal: bool,
    left: int,
    right: int,
    offset: int,
    queries: int,
    keys: int,
    dtype: str,
) -> Value | None:
    """What is added to the scores: the mask, and minus infinity where a query may not see a key."""
    right = min(right, 0) if right >= 0 and is_causal else 0 if is_causal else right
    bias: Value | None = None
    if mask is not None and mask.constant is not None and shape_of(mask)[-1] == keys:
        table = mask.constant if mask.dtype != "bool" else np.where(mask.constant, 0, -np.inf)
        bias = graph.constant(table.astype(dtype))
    elif mask is not None:
        bias = graph.call("tilewright::AttentionMask", mask, keys=keys, dtype=dtype)
    if valid_keys is not None:
        lengths = graph.call("Reshape", as_dtype(graph, valid_keys, "int32"), np.array([-1, 1, 1, 1]))
        limits = graph.call(
            "tilewright::KeyLimits", lengths, queries=queries, keys=keys, left=left, right=right, dtype=dtype
        )
        return limits if bias is None else graph.call("Add", bias, limits)
    if left >= 0 or right >= 0:
        distance = np.arange(keys)[None, :] - (np.arange(queries)[:, None] + offset)
        sees = (distance >= (-left if left >= 0 else -keys - queries - offset)) & (
            distance <= (right if right >= 0 else keys)
        )
        table = np.where(sees, 0, -np.inf)
        window = graph.constant(table.astype(dtype))
        bias = window if bias is None else graph.call("Add", bias, window)
    return bias


@operator("tilewright::SoftCap", schedule="elementwise")
def soft_cap(x: te.Tensor, *, cap: float) -> te.Tensor:
    """``cap * tanh(x / cap)``."""
    dtype = result_dtype(x)
    limit, inverse = tirx.const(cap, dtype), tirx.const(1 / cap, dtype)
    return te.compute(shape_of(x), lambda *i: tirx.tanh(x[i] * inverse) * limit, "softcap")


@operator("tilewright::AttentionMask", schedule="elementwise")
def attention_mask(mask: te.Tensor, *, keys: int, dtype: str) -> te.Tensor:
    """A mask as a bias: minus infinity where it is false, and for the keys behind its end."""
    shape = shape_of(mask)
    never = tirx.const(float("-inf"), dtype)

    def bias(*i: Any) -> Any:
        value = mask[i]
        if result_dtype(mask) == "bool":
            value = tirx.Select(value, tirx.const(0, dtype), never)
        else:
            value = value.astype(dtype)
        return value if shape[-1] >= keys else tirx.if_then_else(i[-1] < shape[-1], value, never)

    if shape[-1] > keys:
        raise refusals.wrong_shape(f"the mask must be of at most {keys} keys", mask=mask)
    return te.compute((*shape[:-1], keys), bias, "attention_mask")


@operator("tilewright::KeyLimits", schedule="elementwise")
def key_limits(lengths: te.Tensor, *, queries: int, keys: int, left: int, right: int, dtype: str) -> te.Tensor:
    """Minus infinity for keys behind their batch's length, and outside of a window around each query's own place.

    The queries are the last of the valid keys. A window of -1 is not limited on that side.
    """
    batch = shape_of(lengths)[0]

    def limit(b: Any, _: Any, q: Any, key: Any) -> Any:
        length = lengths[b, 0, 0, 0]
        distance = tirx.Cast("int32", key - q) - (length - queries)
        sees = [tirx.Cast("int32", key) < length]
        if left >= 0:
            sees.append(distance >= -left)
        if right >= 0:
            sees.append(distance <= right)
        return tirx.Select(tirx.all(*sees), tirx.const(0, dtype), tirx.const(float("-inf"), dtype))

    return te.compute((batch, 1, queries, keys), limit, "key_limits")


@operator("tilewright::MaskedSoftmax", schedule="softmax")
def masked_softmax(x: te.Tensor) -> te.Tensor:
    """Softmax of the last axis; a row of nothing but minus infinity gives zeros."""
    rows = Rows.of(x, [-1])
    dtype = result_dtype(x)
    zero, one = tirx.const(0, "float32"), tirx.const(1, "float32")
    largest = rows.reduce("row_max", MAX, dtype, lambda i: x[i])

    def shift(*i: Any) -> Any:
        value = largest[i].astype("float32")
        return tirx.Select(value > literal(-math.inf, "float32"), value, zero)

    shifts = te.compute(rows.kept, shift, "row_shift")
    powers = te.compute(rows.shape, lambda *i: tirx.exp(x[i].astype("float32") - shifts[rows.row(i)]), "powers")
    total = rows.reduce("row_sum", SUM, "float32", lambda i: powers[i])
    divisor = te.compute(rows.kept, lambda *i: tirx.Select(total[i] > zero, total[i], one), "divisor")
    return te.compute(rows.shape, lambda *i: (powers[i] / divisor[rows.row(i)]).astype(dtype), "softmax")
