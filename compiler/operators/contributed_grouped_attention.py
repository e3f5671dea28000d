"""GroupQueryAttention of onnxruntime's own domain: ONNX's Attention over a cache that onnxruntime-genai's models keep.

New keys go where each sequence of the batch ends, which may be known when the model runs only, as may its length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.operators import refusals
from compiler.operators.broadcast import result_dtype, shape_of
from compiler.operators.cast import as_dtype
from compiler.operators.contributed_attention import by_heads
from compiler.operators.graph import Graph, Value
from compiler.operators.registry import composition, operator


@composition("com.microsoft::GroupQueryAttention")
def group_query_attention(
    graph: Graph,
    q: Value,
    k: Value | None,
    v: Value | None,
    past_key: Value | None,
    past_value: Value | None,
    last_keys: Value,
    total_length: Value,
    cos_cache: Value | None = None,
    sin_cache: Value | None = None,
    position_ids: Value | None = None,
    attention_bias: Value | None = None,
    head_sink: Value | None = None,
    k_scale: Value | None = None,
    v_scale: Value | None = None,
    q_norm_weight: Value | None = None,
    k_norm_weight: Value | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    scale: float = 0.0,
    softcap: float = 0.0,
    local_window_size: int = -1,
    causal: bool = True,
    do_rotary: bool = False,
    rotary_interleaved: bool = False,
    smooth_softmax: bool = False,
    qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0,
    k_quant_type: str = "NONE",
    v_quant_type: str = "NONE",
    kv_cache_bit_width: int = 0,
    sliding_window_cache: bool = False,
) -> tuple[Any, Any, Any]:
    """q, k and v are [batch, sequence, width], or all in q. Also keys and values with the past before them.

    Those are as long as the past or, if that is known and more, as ``total_length``. One that is not known before the
    model runs must not be more than the past is long: that is a buffer for all there may be.
    """
    if {k_quant_type, v_quant_type} != {"NONE"} or any(x is not None for x in (k_scale, v_scale)) or kv_cache_bit_width:
        raise refusals.unsupported("a cache of quantised keys and values", "export the model with a cache of floats")
    if sliding_window_cache or qk_output:
        raise refusals.unsupported("sliding_window_cache and qk_output")
    if (k is None) != (v is None) or (past_key is None) != (past_value is None):
        raise refusals.unsupported("keys without values, or values without keys")
    if k is None or v is None:
        q, k, v = _unpacked(graph, q, num_heads, kv_num_heads)
    if q_norm_weight is not None and k_norm_weight is not None:
        q = _normalised(graph, q, num_heads, q_norm_weight, qk_norm_epsilon)
        k = _normalised(graph, k, kv_num_heads, k_norm_weight, qk_norm_epsilon)
    queries = shape_of(q)[1]
    places = _Places.of(graph, queries, last_keys, total_length, 0 if past_key is None else shape_of(past_key)[2])
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise refusals.unsupported("do_rotary without cos_cache and sin_cache")
        at = places.positions(graph, position_ids)
        q, k = (
            _turned(graph, x, heads, cos_cache, sin_cache, at, rotary_interleaved)
            for x, heads in ((q, num_heads), (k, kv_num_heads))
        )
    q, k, v = by_heads(graph, q, num_heads), by_heads(graph, k, kv_num_heads), by_heads(graph, v, kv_num_heads)
    all_keys, all_values = (_behind(graph, new, past, places) for new, past in ((k, past_key), (v, past_value)))
    keys, dtype = shape_of(all_keys)[2], result_dtype(q)
    window = local_window_size if local_window_size > 0 else None
    bias = _with_bias(graph, places.unseen(graph, keys, window, causal, dtype), attention_bias, keys)
    seen_keys, seen_values = all_keys, all_values
    if head_sink is not None or smooth_softmax:
        # One more key, of zeros: its score is what is added to it, and its value nothing.
        seen_keys, seen_values = (_padded(graph, x, keys + 1) for x in (all_keys, all_values))
        bias = _with_sink(graph, bias, head_sink, queries, keys, dtype)
    factor = np.array(scale or 1 / math.sqrt(shape_of(q)[3]), np.float32).astype(dtype)
    scaled = graph.call("Mul", q, factor)  # and not keys, which are more
    result = graph.call("Attention", scaled, seen_keys, seen_values, bias, scale=1.0, softcap=softcap)[0]
    whole = graph.call("Reshape", graph.call("Transpose", result, perm=(0, 2, 1, 3)), np.array([0, 0, -1]))
    return whole, *(_padded(graph, x, places.room) for x in (all_keys, all_values))


def _unpacked(graph: Graph, packed: Value, heads: int, groups: int) -> Any:
    width = shape_of(packed)[2] // (heads + 2 * groups)
    return graph.call("Split", packed, width * np.array([heads, groups, groups]), axis=2)


def _normalised(graph: Graph, x: Value, heads: int, weight: Value, epsilon: float) -> Any:
    """Each head by the root of its mean square."""
    shape = shape_of(x)
    each = graph.call("Reshape", x, np.array([*shape[:2], heads, shape[2] // heads]))
    return graph.call("Reshape", graph.call("RMSNormalization", each, weight, epsilon=epsilon), np.array(shape))


def _turned(graph: Graph, x: Value, heads: int, cos: Value, sin: Value, at: Value, interleaved: bool) -> Any:
    return graph.call(
        "RotaryEmbedding", x, cos, sin, at,
        interleaved=interleaved, num_heads=heads, rotary_embedding_dim=2 * shape_of(cos)[1],
    )  # fmt: skip


@dataclass(frozen=True)
class _Places:
    """Where the new keys of each sequence of the batch begin in a cache with room for some, and where it ends.

    It may end before the new keys do where there is no past: what is behind is padding.
    """

    queries: int
    room: int
    starts: Value  # [batch]; of int32, as the others
    ends: Value  # [batch]
    is_first: Value  # of one element: whether there is no past

    @classmethod
    def of(cls, graph: Graph, queries: int, last_keys: Value, total: Value, past: int) -> _Places:
        last_keys = as_dtype(graph, graph.call("Reshape", last_keys, np.array([-1])), "int32")
        ends = graph.call("Add", last_keys, np.array([1], np.int32))
        begins = last_keys if queries == 1 else graph.call("Sub", ends, np.array([queries], np.int32))
        nowhere = graph.constant(np.zeros(shape_of(ends), np.int32))
        if total.constant is None and past:
            total = as_dtype(graph, graph.call("Reshape", total, np.array([1])), "int32")
            is_first = graph.call("Equal", total, np.array([queries], np.int32))
            return cls(queries, past, graph.call("Where", is_first, nowhere, begins), ends, is_first)
        known = queries if total.constant is None else int(total.constant.reshape(-1)[0])
        is_first = graph.constant(np.array([known == queries]))
        return cls(queries, max(past, known), nowhere if known == queries else begins, ends, is_first)

    @property
    def start(self) -> int | None:
        """That of all sequences, where it is known."""
        known = self.starts.constant
        return int(known[0]) if known is not None and bool((known == known[0]).all()) else None

    def positions(self, graph: Graph, given: Value | None) -> Any:
        """[batch, queries]. Where there is no past, given ones count on from the first of the first sequence."""
        after = np.tile(np.arange(self.queries, dtype=np.int32), (shape_of(self.starts)[0], 1))
        if given is None:
            starts = _of_batch(graph, self.starts, 2)
            return starts if self.queries == 1 else graph.call("Add", starts, after)
        given = as_dtype(graph, given, "int32")
        flat = graph.call("Reshape", given, np.array([-1]))
        counted = graph.call("Add", graph.call("Slice", flat, np.array([0]), np.array([1])), after)
        if self.is_first.constant is None:
            return graph.call("Where", self.is_first, counted, given)
        return counted if self.is_first.constant[0] else given

    def unseen(self, graph: Graph, keys: int, window: int | None, causal: bool, dtype: str) -> Value | None:
        """What hides the keys that a query does not see; None where it sees all."""
        starts, ends = self.starts.constant, self.ends.constant
        hidden: Value | None
        if starts is None:
            limits = graph.call("Add", _of_batch(graph, self.starts, 4), np.array([self.queries], np.int32))
            hidden = graph.call(
                "tilewright::KeyLimits", limits, queries=self.queries, keys=keys,
                left=-1 if window is None else window - 1, right=0 if causal else -1, dtype=dtype,
            )  # fmt: skip
        else:
            start = starts.reshape(-1, 1, 1, 1)
            key, place = np.arange(keys), start + np.arange(self.queries)[:, None]
            sees = (key < start + self.queries) & ((key <= place) | (not causal))
            sees &= key < (keys if ends is None else ends.reshape(-1, 1, 1, 1))
            sees &= window is None or key > place - (window or 0)
            sees = sees[:1] if (sees == sees[:1]).all() else sees
            hidden = None if sees.all() else graph.constant(np.where(sees, 0, -np.inf).astype(dtype))
        if ends is not None or (self.is_first.constant is not None and not self.is_first.constant[0]):
            return hidden
        there = graph.call("Less", np.arange(keys, dtype=np.int32), _of_batch(graph, self.ends, 4))
        padding = graph.call("tilewright::AttentionMask", there, keys=keys, dtype=dtype)
        return padding if hidden is None else graph.call("Add", hidden, padding)


def _of_batch(graph: Graph, x: Value, rank: int) -> Any:
    return graph.call("Reshape", x, np.array([-1] + [1] * (rank - 1)))


def _behind(graph: Graph, new: Value, past: Value | None, places: _Places) -> Any:
    """New keys or values, by heads, in their places: behind the past, or among a whole cache. Elsewhere are zeros."""
    start = places.start
    if past is None or start == 0:
        return new
    if start is not None:
        before = graph.call("Slice", past, np.array([0]), np.array([start]), np.array([2]))
        return graph.call("Concat", before, new, axis=2)
    batch, heads, count, width = shape_of(new)
    starts = _of_batch(graph, places.starts, 4)
    if count > 1:
        # Each place of the cache takes a row of all new ones, its own if there is one.
        key = np.arange(places.room, dtype=np.int32).reshape(1, 1, -1, 1)
        own = graph.call("Clip", graph.call("Sub", key, starts), np.array(0, np.int32), np.array(count - 1, np.int32))
        own = graph.call("Reshape", own, np.array([batch, 1, places.room]))
        first = np.arange(batch * heads, dtype=np.int32).reshape(batch, heads, 1) * count
        rows = graph.call("Reshape", new, np.array([batch * heads * count, width]))
        new = graph.call("Gather", rows, graph.call("Add", own, first), axis=0)
    return graph.call("tilewright::Cache", past, new, starts, room=places.room, count=count)


@operator("tilewright::Cache", schedule="elementwise")
def cache(past: te.Tensor, new: te.Tensor, starts: te.Tensor, *, room: int, count: int) -> te.Tensor:
    """The past up to where new ones start, so many new ones, each in its place or one for all, and zeros."""
    batch, heads, held, width = shape_of(past)
    zero = tirx.const(0, result_dtype(past))

    def element(*i: Any) -> Any:
        b, h, key, w = i
        start = starts[b, 0, 0, 0]
        before = past[i] if held >= room else tirx.if_then_else(key < held, past[i], zero)
        own = new[b, h, 0 if count == 1 else key, w]
        place = tirx.Cast("int32", key)
        return tirx.Select(place < start, before, tirx.Select(place < start + count, own, zero))

    return te.compute((batch, heads, room, width), element, "cache")


def _padded(graph: Graph, x: Value, keys: int) -> Any:
    """With zeros behind, up to so many keys."""
    missing = keys - shape_of(x)[2]
    return x if missing <= 0 else graph.call("Pad", x, np.array([0, 0, 0, 0, 0, 0, missing, 0]))


def _with_bias(graph: Graph, hidden: Value | None, bias: Value | None, keys: int) -> Value | None:
    """And what is added to scores, as far as it goes."""
    if bias is None:
        return hidden
    if shape_of(bias)[3] > keys:
        bias = graph.call("Slice", bias, np.array([0]), np.array([keys]), np.array([3]))
    elif shape_of(bias)[3] < keys:
        bias = graph.call("Pad", bias, np.array([0] * 7 + [keys - shape_of(bias)[3]]))
    return bias if hidden is None else graph.call("Add", bias, hidden)


def _with_sink(graph: Graph, bias: Value | None, sink: Value | None, queries: int, keys: int, dtype: str) -> Any:
    """And a last key, which each query sees."""
    if bias is None:
        bias = graph.constant(np.zeros((1, 1, queries, keys), np.float32).astype(dtype))
    if sink is None:
        return graph.call("Pad", bias, np.array([0] * 7 + [1]))
    batch = shape_of(bias)[0]
    heads = shape_of(sink)[0]
    column = graph.call("Reshape", sink, np.array([1, heads, 1, 1]))
    whole = graph.call("Expand", bias, np.array([batch, heads, queries, keys]))
    return graph.call("Concat", whole, graph.call("Expand", column, np.array([batch, heads, queries, 1])), axis=3)
