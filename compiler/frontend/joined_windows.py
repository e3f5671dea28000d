"""Windows that are cut out one by one and joined, as torch's older exporter writes ``x.unfold``, as one pick.

concat([unsqueeze(transpose(x[.., start + i * step : .. + length, ..])) for i])   ->   transpose(gather(x, windows))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.frontend.graph import GraphBuilder, Value
from compiler.frontend.inner_axes import Rewrite, Values

_LEAST = 8  # windows: fewer are joined by one kernel that is soon made


def windows(graph: GraphBuilder, values: Values, attributes: Mapping[str, Any]) -> Value | None:
    """`Concat` of many parts of one tensor, all as long, one as far behind the other, along an axis of their own."""
    first = values[0] if values else None
    if len(values) < _LEAST or first is None or not first.shape:
        return None
    rank, axis = len(first.shape), int(attributes.get("axis", 1))  # what it was until opset 3 where none is given
    if not -rank <= axis < rank:
        return None
    axis %= rank
    parts: list[_Part] = []
    for value in values:
        part = None if value is None else _Part.of(graph, value, axis)
        if part is None or not part.is_like(parts[0] if parts else part):
            return None
        parts.append(part)
    starts = np.array([part.start for part in parts])
    if np.ptp(np.diff(starts)):
        return None
    one = parts[0]
    picked: Value = graph.call("Gather", one.x, starts[:, np.newaxis] + np.arange(one.length), axis=one.axis)
    # The windows are counted along the axis before the one of their elements.
    own = [at + (at >= one.axis) for at in one.perm]
    turn = (*own[:axis], one.axis, *own[axis:])
    result: Value = picked if turn == tuple(range(len(turn))) else graph.call("Transpose", picked, perm=turn)
    return result


@dataclass(frozen=True)
class _Part:
    """Of ``length`` from ``start`` on along an axis of x, with its axes in another order."""

    x: Value
    axis: int
    start: int
    length: int
    perm: tuple[int, ...]

    @staticmethod
    def of(graph: GraphBuilder, value: Value, axis: int) -> _Part | None:
        apart = graph.maker(value)
        if apart is None or apart.operator != "Unsqueeze" or len(value.shape) != len(apart.operands[0].shape) + 1:
            return None
        if [axis] != [at % len(value.shape) for at in apart.attributes["axes"]]:
            return None
        cut = graph.maker(apart.operands[0])
        perm = tuple(range(len(value.shape) - 1))
        if cut is not None and cut.operator == "Transpose":
            perm = tuple(cut.attributes.get("perm") or reversed(perm))
            cut = graph.maker(cut.operands[0])
        if cut is None or cut.operator != "Slice" or len(cut.operands) != 1:
            return None
        (x,), attributes = cut.operands, cut.attributes
        if len(attributes["starts"]) != 1 or set(attributes.get("steps") or (1,)) != {1}:
            return None
        along = (attributes.get("axes") or [0])[0] % len(x.shape)
        extent, start = x.shape[along], attributes["starts"][0]
        start = min(max(start + extent if start < 0 else start, 0), extent)
        return _Part(x, along, start, cut.results[0].shape[along], perm)

    def is_like(self, other: _Part) -> bool:
        ours, theirs = ((one.axis, one.length, one.perm) for one in (self, other))
        return self.x is other.x and ours == theirs


WINDOWS: Mapping[str, Rewrite] = {"Concat": windows}
