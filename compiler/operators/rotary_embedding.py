"""RotaryEmbedding: pairs of features turned by an angle that grows with the position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler.operators import refusals
from compiler.operators.broadcast import result_dtype, shape_of
from compiler.operators.graph import Graph, Value
from compiler.operators.registry import composition, operator


@composition("RotaryEmbedding")
def rotary_embedding(
    graph: Graph,
    x: Value,
    cos_cache: Value,
    sin_cache: Value,
    position_ids: Value | None = None,
    *,
    interleaved: bool = False,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Value:
    """x is [batch, heads, sequence, width], or [batch, sequence, heads * width]."""
    given = shape_of(x)
    if len(given) not in (3, 4):
        raise refusals.wrong_shape("x must have three or four axes", x=x)
    sequence_axis = 2
    if len(given) == 3:
        if num_heads < 1 or given[2] % num_heads:
            raise refusals.wrong_value(f"must divide the {given[2]} features", "num_heads", num_heads)
        x = graph.call("Reshape", x, np.array([*given[:2], num_heads, given[2] // num_heads]))
        sequence_axis = 1
    if position_ids is not None:
        cos_cache, sin_cache = (graph.call("Gather", cache, position_ids, axis=0) for cache in (cos_cache, sin_cache))
    width = shape_of(x)[3]
    turned = rotary_embedding_dim or width
    expected = (given[0], shape_of(x)[sequence_axis], turned // 2)
    if turned > width or turned % 2 or not shape_of(cos_cache) == shape_of(sin_cache) == expected:
        raise refusals.wrong_shape(f"the tables must be {list(expected)}", x=x, cos=cos_cache, sin=sin_cache)
    rest = None
    if turned < width:
        x, rest = graph.call("Split", x, np.array([turned, width - turned]), axis=3)
    pairs = [turned // 2, 2] if interleaved else [2, turned // 2]
    x = graph.call("Reshape", x, np.array([*shape_of(x)[:3], *pairs]))
    x = graph.call(
        "tilewright::Rotate", x, cos_cache, sin_cache, sequence_axis=sequence_axis, pair_axis=4 if interleaved else 3
    )
    x = graph.call("Reshape", x, np.array([*shape_of(x)[:3], turned]))
    if rest is not None:
        x = graph.call("Concat", x, rest, axis=3)
    result: Value = graph.call("Reshape", x, np.array(given)) if len(given) == 3 else x
    return result


@operator("tilewright::Rotate", schedule="elementwise")
def rotate(x: te.Tensor, cos: te.Tensor, sin: te.Tensor, *, sequence_axis: int, pair_axis: int) -> te.Tensor:
    """The two elements on ``pair_axis`` (3 or 4) turned by the angle of their place in the sequence, in float32."""
    feature_axis = 7 - pair_axis
    dtype = result_dtype(x)

    def element(indices: Sequence[Any], member: int) -> Any:
        own = tuple(member if axis == pair_axis else index for axis, index in enumerate(indices))
        return x[own].astype("float32")

    def turned(*i: Any) -> Any:
        place = (i[0], i[sequence_axis], i[feature_axis])
        c, s = cos[place].astype("float32"), sin[place].astype("float32")
        real = element(i, 0) * c - element(i, 1) * s
        imaginary = element(i, 0) * s + element(i, 1) * c
        return tirx.if_then_else(i[pair_axis] == 0, real, imaginary).astype(dtype)

    return te.compute(shape_of(x), turned, "rotate")
