"""Zeros that a model puts around a map itself, as exports of Keras do, as the padding of the windows that read it.

conv(pad(x, p), pads=q)                  ->  conv(x, pads=p + q)
max_pool(pad(relu(x), p), pads=q)        ->  max_pool(relu(x), pads=p + q)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compiler.frontend.graph import Call, GraphBuilder, Value
from compiler.frontend.inner_axes import Rewrite, Values

_NO_LESS_THAN_ZERO = ("Relu", "Sigmoid", "HardSigmoid", "Exp", "Softplus", "Softmax")


def of_convolution(graph: GraphBuilder, values: Values, attributes: Mapping[str, Any]) -> Value | None:
    x, *others = values
    found = _unpadded(graph, x, attributes)
    if found is None:
        return None
    x, pads = found
    result: Value = graph.call("Conv", x, *others, **{**attributes, "auto_pad": "NOTSET", "pads": pads})
    return result


def of_maxima(graph: GraphBuilder, values: Values, attributes: Mapping[str, Any]) -> Value | None:
    """Zero is no larger than anything in a window, each of which has something of the map in it."""
    found = _unpadded(graph, values[0], attributes)
    if found is None or attributes.get("ceil_mode") or set(attributes.get("dilations") or (1,)) != {1}:
        return None
    x, pads = found
    maker, kernel = graph.maker(x), attributes["kernel_shape"]
    if maker is None or maker.operator not in _NO_LESS_THAN_ZERO or len(pads) != 2 * len(kernel):
        return None
    if any(pad >= extent for pad, extent in zip(pads, (*kernel, *kernel), strict=True)):
        return None
    result: Value
    result, _ = graph.call("MaxPool", x, **{**attributes, "auto_pad": "NOTSET", "pads": pads})
    return result


def _unpadded(
    graph: GraphBuilder, x: Value | None, attributes: Mapping[str, Any]
) -> tuple[Value, tuple[int, ...]] | None:
    """What zeros were put around, and the padding of windows over it; None where there are none."""
    own, automatic = attributes.get("pads"), attributes.get("auto_pad", "NOTSET")
    if x is None or automatic not in ("NOTSET", "", "VALID"):
        return None
    pads = tuple(own) if own and automatic != "VALID" else (0,) * (2 * (len(x.shape) - 2))
    if len(pads) != 2 * (len(x.shape) - 2) or min(pads, default=0) < 0:
        return None
    around = None
    while (maker := graph.maker(x)) is not None and (zeros := _zeros_around(maker)) is not None:
        x = maker.operands[0]
        pads = tuple(a + b for a, b in zip(pads, zeros, strict=True))
        around = x, pads
    return around


def _zeros_around(call: Call) -> tuple[int, ...] | None:
    """How many rows of zeros a call puts before and behind each spatial axis of a map, if that is what it does."""
    if call.operator != "Pad" or len(call.operands) != 1 or len(call.results[0].shape) < 3:
        return None
    attributes, rank = call.attributes, len(call.results[0].shape)
    value = attributes.get("constant_value") or [attributes.get("value", 0.0)]
    if attributes.get("mode", "constant") != "constant" or any(value):
        return None
    counts, axes = attributes["pads"], attributes.get("axes") or range(rank)
    before, behind = [0] * rank, [0] * rank
    for at, axis in enumerate(axes):
        before[axis], behind[axis] = counts[at], counts[len(counts) // 2 + at]
    is_outside = min(before + behind) >= 0 and not any(before[:2] + behind[:2])
    return (*before[2:], *behind[2:]) if is_outside else None


PADDED: Mapping[str, Rewrite] = {"Conv": of_convolution, "MaxPool": of_maxima}
