"""Known integers beyond 32 bits of which the last 32 bits count, as those that hashes multiply by do.

x * 2654435761   ->   x * -1640531535, the same modulo 2 ** 32

The chip's integers have 32 bits, and its sums and products wrap around: a mask and the remainder by a power of two take
the right bits of such a result. The nearest number of 32 bits, which others become, would be any other number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from compiler.frontend.graph import GraphBuilder, Value
from compiler.frontend.inner_axes import Rewrite, Values

_NARROW = np.iinfo(np.int32)


def _wrapped(operator: str, *, bitwise: bool) -> Rewrite:
    """Of sums and products the limits of 64 bits are left alone, which stand for more than there is."""

    def rewrite(graph: GraphBuilder, values: Values, attributes: Mapping[str, Any]) -> Value | None:
        found = [_of_32_bits(graph, value, bitwise=bitwise) for value in values]
        if all(one is other for one, other in zip(found, values, strict=True)):
            return None
        result: Value = graph.call(operator, *found)
        return result

    return rewrite


def _of_32_bits(graph: GraphBuilder, value: Value | None, *, bitwise: bool) -> Value | None:
    known = None if value is None else value.constant
    if value is None or known is None or known.dtype.kind not in "iu" or known.dtype.itemsize < _NARROW.dtype.itemsize:
        return value
    limits = np.iinfo(known.dtype)
    is_beyond = (known < _NARROW.min) | (known > _NARROW.max)
    is_limit = (known == limits.max) | ((known == limits.min) & (limits.min < 0))
    if not is_beyond.any() or (not bitwise and limits.bits > _NARROW.bits and is_limit.any()):
        return value
    graph.types.wrapped.append(value.name)
    return graph.constant(known.astype(np.int32), value.name, value.element_type)


WRAPPED: Mapping[str, Rewrite] = {
    **{operator: _wrapped(operator, bitwise=False) for operator in ("Add", "Sub", "Mul")},
    **{operator: _wrapped(operator, bitwise=True) for operator in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
}
