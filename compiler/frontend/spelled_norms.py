"""Layer norms that a model spells out, as the operator that they are: one kernel instead of four."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from compiler.frontend.graph import Call, GraphBuilder, Value
from compiler.operators import find_called

_NORM = "LayerNormalization"
_FLOATS = ("float16", "bfloat16", "float32")


def fuse_norms(graph: GraphBuilder, outputs: Iterable[Value]) -> list[Call]:
    """``c = x - mean(x); c / sqrt(mean(c * c) + epsilon) * scale + bias`` -> ``LayerNormalization(x, scale, bias)``

    The calls of a graph, with that one in the place of the last of those that it is for.

    1. Both means are over the same axes, the last ones, which they keep; scale and bias go along these.
    2. Nothing else reads what is computed on the way.
    """
    found = _Calls(graph.calls, Counter(outputs))
    instead: dict[int, Call | None] = {}
    for call in graph.calls:
        norm = found.norm(call)
        if norm is None:
            continue
        graph.apply(find_called(_NORM), norm.operands, {"axis": norm.axis, "epsilon": norm.epsilon}, outputs=1)
        made = graph.calls.pop()
        nodes = tuple(dict.fromkeys(node for each in norm.calls for node in each.nodes))
        instead |= {id(each): None for each in norm.calls}
        instead[id(norm.calls[-1])] = Call(made.function, made.operands, norm.calls[-1].results, nodes)
    left = (instead.get(id(call), call) for call in graph.calls)
    return [call for call in left if call is not None]


@dataclass(frozen=True)
class _Norm:
    calls: tuple[Call, ...]  # in order
    operands: tuple[Value | None, ...]
    axis: int
    epsilon: float


@dataclass
class _Calls:
    """The calls of a graph, by what they make and by what they read."""

    calls: list[Call]
    readers: Counter[Value]
    maker: dict[Value, Call] = field(default_factory=dict)
    users: dict[Value, list[Call]] = field(default_factory=dict)
    position: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for at, call in enumerate(self.calls):
            self.position[id(call)] = at
            self.maker.update((result, call) for result in call.results)
            for value in dict.fromkeys(call.operands):
                self.readers[value] += 1
                self.users.setdefault(value, []).append(call)

    def norm(self, division: Call) -> _Norm | None:
        """The norm in whose middle a call divides."""
        if division.operator != "Div" or len(division.operands) != 2 or division.results[0].dtype not in _FLOATS:
            return None
        centred, root = (self.maker.get(operand) for operand in division.operands)
        total = root and self._made_by(root, "Sqrt", "Add")
        epsilon = None if total is None else _number(total)
        variance = total and self._made_by(total, "Add", "ReduceMean")
        square = variance and self.maker.get(variance.operands[0])
        if not (centred and root and total and variance and square) or epsilon is None:
            return None
        mean = self.maker.get(centred.operands[-1]) if centred.operator == "Sub" else None
        if mean is None or mean.operator != "ReduceMean" or centred.operands != (mean.operands[0], mean.results[0]):
            return None
        if not _squares(square, centred.results[0]):
            return None
        x = mean.operands[0]
        axis = _first_axis(mean, x)
        if axis is None or axis != _first_axis(variance, x):
            return None
        inner = [mean, centred, square, variance, total, root, division]
        scaling, scale = self._next(division, "Mul", x, axis)
        if scaling is None:
            return None
        shifting, bias = self._next(scaling, "Add", x, axis)
        calls = [*inner, scaling, *([shifting] if shifting else [])]
        return self._whole(calls, (x, scale, bias), axis, epsilon)

    def _whole(self, calls: list[Call], operands: tuple[Value | None, ...], axis: int, epsilon: float) -> _Norm | None:
        """Condition 2."""
        reads = Counter(value for call in calls for value in dict.fromkeys(call.operands))
        made = [call.results[0] for call in calls[:-1]]
        if len(set(map(id, calls))) != len(calls) or any(self.readers[value] != reads[value] for value in made):
            return None
        order = sorted(calls, key=lambda call: self.position[id(call)])
        return _Norm(tuple(order), operands, axis, epsilon) if order[-1] is calls[-1] else None

    def _made_by(self, call: Call, operator: str, maker: str) -> Call | None:
        """What makes the one operand of a call, where both are what is expected."""
        made = self.maker.get(call.operands[0]) if call.operator == operator and len(call.operands) == 1 else None
        return made if made is not None and made.operator == maker else None

    def _next(self, call: Call, operator: str, x: Value, axis: int) -> tuple[Call | None, Value | None]:
        """The only reader of a call's result, and what that combines it with: along the axes of the norm."""
        result = call.results[0]
        users = self.users.get(result, [])
        if self.readers[result] != 1 or not users or users[0].operator != operator:
            return None, None
        others = [operand for operand in users[0].operands if operand is not result]
        if len(others) != 1 or not _goes_along(others[0].shape, x.shape, axis) or others[0].dtype != x.dtype:
            return None, None
        return users[0], others[0]


def _number(call: Call) -> float | None:
    """The known one of the two operands of a call, as the model has it: its call's type may be too narrow for it."""
    only = [value.constant for value in call.known if value.constant is not None and value.constant.size == 1]
    return float(only[0].item()) if len(only) == 1 else None


def _squares(call: Call, value: Value) -> bool:
    if call.operator == "Mul":
        return call.operands == (value, value)
    return call.operator == "Pow" and call.operands == (value,) and _number(call) == 2.0


def _first_axis(mean: Call, x: Value) -> int | None:
    """The first of the axes of a mean that keeps them, where they are the last ones."""
    attributes, rank = mean.attributes, len(x.shape)
    axes = attributes.get("axes")
    if not attributes.get("keepdims", True) or axes is None or len(mean.operands) != 1:
        return None
    axes = sorted(axis % rank for axis in axes)
    return axes[0] if axes and axes == list(range(axes[0], rank)) else None


def _goes_along(shape: tuple[int, ...], whole: tuple[int, ...], axis: int) -> bool:
    """Whether something has no more axes than those of the norm, and is broadcast along these only."""
    last = whole[axis:]
    return len(shape) <= len(last) and all(n in (1, m) for n, m in zip(reversed(shape), reversed(last), strict=False))
