"""Normalisation by statistics known from training: a factor and a shift for each channel."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te

from compiler.operators import refusals
from compiler.operators.broadcast import result_dtype, shape_of
from compiler.operators.cast import as_dtype
from compiler.operators.graph import Graph, Value
from compiler.operators.normalization import require_per_channel
from compiler.operators.registry import composition, operator


@composition("BatchNormalization")
def batch_normalization(
    graph: Graph,
    x: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    variance: Value,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: bool = True,
    training_mode: bool = False,
) -> Any:
    """``x * scale' + bias'`` with terms of each channel alone, which fold away where the statistics are constants."""
    if training_mode or not spatial:
        raise refusals.unsupported("normalisation by the batch's own statistics (training_mode=1), or per place")
    require_per_channel(x, scale=scale, bias=bias, mean=mean, variance=variance)
    known = variance.constant
    least = np.array([epsilon], np.float32 if known is None else known.dtype)
    factor = graph.call("Div", scale, graph.call("Sqrt", graph.call("Add", variance, least)))
    shift = graph.call("Sub", bias, graph.call("Mul", mean, factor))
    dtype = result_dtype(x)
    return graph.call("tilewright::ChannelAffine", x, as_dtype(graph, factor, dtype), as_dtype(graph, shift, dtype))


@operator("tilewright::ChannelAffine", schedule="elementwise")
def channel_affine(x: te.Tensor, factor: te.Tensor, shift: te.Tensor) -> te.Tensor:
    """``x * factor[channel] + shift[channel]``."""
    channel = 1 if len(shape_of(x)) > 1 else 0
    return te.compute(shape_of(x), lambda *i: x[i] * factor[i[channel]] + shift[i[channel]], "channel_affine")
