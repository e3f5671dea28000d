"""Pools whose windows are single elements, which they leave as they are, or whole maps, which are reduced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compiler.frontend.graph import GraphBuilder, Value
from compiler.frontend.inner_axes import Rewrite, Values


def _pool(of_map: str) -> Rewrite:
    def rewrite(graph: GraphBuilder, values: Values, attributes: Mapping[str, Any]) -> Value | None:
        (x,) = values
        if x is None or len(x.shape) < 3 or any(attributes.get("pads") or ()):
            return None
        kernel, extents = tuple(attributes.get("kernel_shape") or ()), x.shape[2:]
        ones = (1,) * len(extents)
        if attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "", "VALID") or len(kernel) != len(extents):
            return None
        if kernel == ones and tuple(attributes.get("strides") or ones) == ones:
            return x
        if kernel != extents or tuple(attributes.get("dilations") or ones) != ones:
            return None
        result: Value = graph.call(of_map, x)
        return result

    return rewrite


PLAIN: Mapping[str, Rewrite] = {"AveragePool": _pool("GlobalAveragePool"), "MaxPool": _pool("GlobalMaxPool")}
