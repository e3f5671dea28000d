"""Normalisation of each channel by statistics of the data, known from training: a factor and a shift."""

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
    """``x * scale' + bias'`` with terms of each channel alone, which fold away where the statistics are constants.

    In training mode the statistics are the batch's own, and the running ones come out beside the result.
    """
    if not spatial:
        raise refusals.unsupported("statistics of each place (spatial=0), which ONNX dropped in opset 9")
    require_per_channel(x, scale=scale, bias=bias, mean=mean, variance=variance)
    if not training_mode:
        return _affine(graph, x, scale, bias, mean, variance, epsilon)
    own_mean, own_variance = _batch_statistics(graph, x)
    y = _affine(graph, x, scale, bias, own_mean, own_variance, epsilon)
    pairs = ((mean, own_mean), (variance, own_variance))
    return y, *(_running(graph, before, now, momentum) for before, now in pairs)


def _affine(graph: Graph, x: Value, scale: Value, bias: Value, mean: Value, variance: Value, epsilon: float) -> Value:
    """ONNX's own operators compute the terms: the importer folds those."""
    spread = _in_float32(graph, "Add", variance, graph.constant(np.array([epsilon], np.float32)))
    factor = _in_float32(graph, "Div", scale, _in_float32(graph, "Sqrt", spread))
    shift = _in_float32(graph, "Sub", bias, _in_float32(graph, "Mul", mean, factor))
    terms = (as_dtype(graph, term, result_dtype(x)) for term in (factor, shift))
    result: Value = graph.call("tilewright::ChannelAffine", x, *terms)
    return result


def _batch_statistics(graph: Graph, x: Value) -> tuple[Value, Value]:
    """The mean and variance of each channel of the batch itself."""
    axes = np.array([axis for axis in range(len(shape_of(x))) if axis != 1])
    mean = graph.call("ReduceMean", x, axes, keepdims=True)
    rest = graph.call("Sub", x, mean)
    variance = graph.call("ReduceMean", graph.call("Mul", rest, rest), axes, keepdims=False)
    return graph.call("Reshape", mean, np.array([shape_of(x)[1]])), variance


def _running(graph: Graph, before: Value, now: Value, momentum: float) -> Value:
    shares = [graph.constant(np.array([share], np.float32)) for share in (momentum, 1 - momentum)]
    old, new = (_in_float32(graph, "Mul", *pair) for pair in zip((before, now), shares, strict=True))
    return as_dtype(graph, _in_float32(graph, "Add", old, new), result_dtype(before))


def _in_float32(graph: Graph, operator: str, *values: Value) -> Value:
    """A call on ``values`` in float32, whatever the model is compiled to; what is known stays so, and is folded."""
    wide = (value if value.constant is None else graph.wide(value) for value in values)
    result: Value = graph.call(operator, *(as_dtype(graph, value, "float32") for value in wide))
    return result


@operator("tilewright::ChannelAffine", schedule="elementwise")
def channel_affine(x: te.Tensor, factor: te.Tensor, shift: te.Tensor) -> te.Tensor:
    """``x * factor[channel] + shift[channel]``."""
    return te.compute(shape_of(x), lambda *i: x[i] * factor[i[1]] + shift[i[1]], "channel_affine")
