"""Layer norms that a model spells out, as the operator that they are: one kernel instead of four."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from compiler.frontend.graph import Call, GraphBuilder, Value
from compiler.operators import find_called
from compiler.operators.axes import stay_apart

_NORM, _OVER_AXIS = "LayerNormalization", "tilewright::AxisNormalization"
_FLOATS = ("float16", "bfloat16", "float32")


def fuse_norms(graph: GraphBuilder, outputs: Iterable[Value]) -> list[Call]:
    """``c = x - mean(x); c / sqrt(mean(c * c) + epsilon) * scale + bias`` -> ``LayerNormalization(x, scale, bias)``

    The calls of a graph, with that one in the place of the last of those that it is for.

    1. Both means are over the same axes, which they keep; scale and bias go along these.
    2. They are the last ones, or a single one of which each row is best left as it lies.
    3. Nothing else reads what is computed on the way.
    """
    given = list(graph.calls)
    found = _Calls(given, Counter(outputs))
    instead: dict[int, list[Call]] = {}
    for call in given:
        norm = found.norm(call)
        if norm is not None:
            instead |= {id(each): [] for each in norm.calls}
            instead[id(norm.calls[-1])] = _applied(graph, norm)
    return [each for call in given for each in instead.get(id(call), [call])]


def _applied(graph: GraphBuilder, norm: _Norm) -> list[Call]:
    nodes, before = [node for call in norm.calls for node in call.nodes], len(graph.calls)
    attributes = {"axis": norm.axes[0], "epsilon": norm.epsilon}
    with graph.inside("/".join(nodes[:1])):
        if _are_last(norm.axes, len(norm.operands[0].shape)):
            graph.apply(find_called(_NORM), norm.operands, attributes, outputs=1)
        else:
            graph.apply(find_called(_OVER_AXIS), norm.operands, attributes)
    return graph.taken(before, norm.calls[-1].results[0], nodes)


@dataclass(frozen=True)
class _Norm:
    calls: tuple[Call, ...]  # in order
    operands: tuple[Value, *tuple[Value | None, ...]]
    axes: tuple[int, ...]
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
        axes = _axes(mean, x)
        if not axes or axes != _axes(variance, x):
            return None
        inner = [mean, centred, square, variance, total, root, division]
        scaling, scale = self._next(division, "Mul", x, axes)
        if scaling is None:
            return None
        shifting, bias = self._next(scaling, "Add", x, axes)
        calls = [*inner, scaling, *([shifting] if shifting else [])]
        return self._whole(calls, (x, scale, bias), axes, epsilon)

    def _whole(
        self,
        calls: list[Call],
        operands: tuple[Value, *tuple[Value | None, ...]],
        axes: tuple[int, ...],
        epsilon: float,
    ) -> _Norm | None:
        """Condition 3."""
        reads = Counter(value for call in calls for value in dict.fromkeys(call.operands))
        made = [call.results[0] for call in calls[:-1]]
        if len(set(map(id, calls))) != len(calls) or any(self.readers[value] != reads[value] for value in made):
            return None
        order = sorted(calls, key=lambda call: self.position[id(call)])
        return _Norm(tuple(order), operands, axes, epsilon) if order[-1] is calls[-1] else None

    def _made_by(self, call: Call, operator: str, maker: str) -> Call | None:
        """What makes the one operand of a call, where both are what is expected."""
        made = self.maker.get(call.operands[0]) if call.operator == operator and len(call.operands) == 1 else None
        return made if made is not None and made.operator == maker else None

    def _next(self, call: Call, operator: str, x: Value, axes: tuple[int, ...]) -> tuple[Call | None, Value | None]:
        """The only reader of a call's result, and what that combines it with: along the axes of the norm."""
        result = call.results[0]
        users = self.users.get(result, [])
        if self.readers[result] != 1 or not users or users[0].operator != operator:
            return None, None
        others = [operand for operand in users[0].operands if operand is not result]
        if len(others) != 1 or not _goes_along(others[0].shape, x.shape, axes) or others[0].dtype != x.dtype:
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


def _axes(mean: Call, x: Value) -> tuple[int, ...]:
    """The axes of a mean that keeps them, where it may become one of a norm; else none."""
    attributes, rank = mean.attributes, len(x.shape)
    given = attributes.get("axes")
    if not attributes.get("keepdims", True) or given is None or len(mean.operands) != 1:
        return ()
    axes = tuple(sorted(axis % rank for axis in given))
    if not axes or _are_last(axes, rank):
        return axes
    return axes if len(axes) == 1 and stay_apart(x.shape, axes[0], x.dtype) else ()


def _are_last(axes: tuple[int, ...], rank: int) -> bool:
    return axes == tuple(range(axes[0], rank))


def _goes_along(shape: tuple[int, ...], whole: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Whether something has no more axes than from the first of the norm's on, and is broadcast along those only; along
    a single one in the middle it has all positions.
    """
    last = range(axes[0], len(whole))
    if len(axes) == len(last):
        within = [whole[axis] for axis in last]
        return len(shape) <= len(within) and all(
            n in (1, m) for n, m in zip(reversed(shape), reversed(within), strict=False)
        )
    own = (1,) * (len(whole) - len(shape)) + shape
    return own == tuple(n if axis in axes else 1 for axis, n in enumerate(whole))
