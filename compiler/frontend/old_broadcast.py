"""Broadcasting before ONNX's operator set 7: only where an attribute says so, and from the axis that another names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from compiler.errors import InvalidError, Problem
from compiler.frontend.graph import GraphBuilder
from compiler.frontend.scope import Site

LAST_OPSET = 6
_BINARY = frozenset(("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor"))


def broadcast_as_now(graph: GraphBuilder, site: Site) -> Site:
    """The node without the attributes ``broadcast`` and ``axis``, its second input in a shape that numpy broadcasts.

    a[2, 3, 4] + b[3], broadcast=1, axis=1   ->   a + reshape(b, [3, 1])

    The slope of PRelu belongs to axis 1 in any case.
    """
    attributes = {name: value for name, value in site.attributes.items() if name not in ("broadcast", "axis")}
    kind, values = site.node.op_type, site.values
    if kind == "Gemm":  # its third input is broadcast as numpy does it
        return replace(site, attributes={n: v for n, v in site.attributes.items() if n != "broadcast"})
    if kind not in _BINARY and kind != "PRelu":
        return site
    first, second = values[:2]
    if first is None or second is None:
        return site
    axis = 1 if kind == "PRelu" else site.attributes.get("axis")
    rank, own = len(first.shape), len(second.shape)
    if kind in _BINARY and not site.attributes.get("broadcast", 0):
        if first.shape != second.shape:
            text = f"shapes {list(first.shape)} and {list(second.shape)} differ, and broadcast is not 1"
            raise InvalidError(Problem("TW2032", text))
        return replace(site, attributes=attributes)
    if axis is None or (kind == "PRelu" and int(np.prod(second.shape)) == 1):
        return replace(site, attributes=attributes)
    start = axis + rank if axis < 0 else axis
    if not 0 <= start <= rank - own:
        text = f"an input of shape {list(second.shape)} does not fit shape {list(first.shape)} from axis {axis} on"
        raise InvalidError(Problem("TW2032", text))
    behind = rank - own - start
    if behind:
        second = graph.call("Reshape", second, np.asarray((*second.shape, *([1] * behind)), np.int64))
    return replace(site, inputs=(site.inputs[0], second, *site.inputs[2:]), attributes=attributes)
