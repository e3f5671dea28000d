"""``And`` and ``Or`` of which a known operand decides: the result is known, or is the other operand.

What a loop goes on for is such a thing, once it has made all trips that it may: ``And(only a run knows, trip < 20)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from compiler.frontend.graph import GraphBuilder, Value
from compiler.frontend.inner_axes import Rewrite, Values
from compiler.operators.broadcast import broadcast_shape


def _logic(decides: bool) -> Rewrite:
    """``decides`` is the operand that makes the result what it is itself."""

    def rewrite(graph: GraphBuilder, values: Values, attributes: Mapping[str, Any]) -> Value | None:
        for known, other in (values, values[::-1]):
            if known is None or other is None or known.constant is None:
                continue
            shape = broadcast_shape(x=known, y=other)
            if (known.constant == decides).all():
                return graph.constant(np.broadcast_to(decides, shape))
            if (known.constant != decides).all() and shape == other.shape:
                return other
        return None

    return rewrite


DECIDED: Mapping[str, Rewrite] = {"And": _logic(decides=False), "Or": _logic(decides=True)}
