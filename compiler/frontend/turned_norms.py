"""Layer norms between two transpositions that move an axis to the end and back: over that axis as it lies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from compiler.frontend.graph import Call, GraphBuilder, Value
from compiler.frontend.orders_of_axes import MOVE, inverse_of, order_of
from compiler.operators import find_called
from compiler.operators.axes import stay_apart

_NORM, _OVER_AXIS = "LayerNormalization", "tilewright::AxisNormalization"


def leave_axes(graph: GraphBuilder, outputs: Iterable[Value]) -> list[Call]:
    """``transpose(layer_norm(transpose(x)))`` -> a norm of x, in the place of the last of these calls

    1. The norm is over the last axis, and the second transposition undoes the first one.
    2. Nothing else reads what is computed on the way.
    3. Rows along the axis are best left as they lie: they are rows already, or short.
    """
    given, readers = list(graph.calls), Counter(outputs)
    readers += Counter(value for call in given for value in dict.fromkeys(call.operands))
    maker = {result: call for call in given for result in call.results}
    calls: list[Call] = []
    gone = set[int]()
    for call in given:
        norm = _only(call, MOVE, maker, readers)
        first = norm and _only(norm, _NORM, maker, readers)
        if not (norm and first) or first.operator != MOVE or not _is_over_last(norm):
            calls.append(call)
            continue
        x, order = first.operands[0], order_of(first)
        axis, is_last = order[-1], order[-1] == len(order) - 1
        if order_of(call) != inverse_of(order) or not (is_last or stay_apart(x.shape, axis, x.dtype)):
            calls.append(call)
            continue
        gone |= {id(norm), id(first)}
        before, nodes = len(graph.calls), [node for each in (first, norm, call) for node in each.nodes]
        attributes = {"axis": axis, "epsilon": norm.attributes.get("epsilon", 1e-5)}
        with graph.inside("/".join(nodes[:1])):
            graph.apply(find_called(_NORM if is_last else _OVER_AXIS), (x, *norm.operands[1:]), attributes, outputs=1)
        calls += graph.taken(before, call.results[0], nodes)
    return [call for call in calls if id(call) not in gone]


def _only(call: Call, operator: str, maker: dict[Value, Call], readers: Counter[Value]) -> Call | None:
    """What makes the first operand of a call of that operator alone, and is read by nothing else."""
    if call.operator != operator or readers[call.operands[0]] != 1:
        return None
    made = maker.get(call.operands[0])
    return made if made is not None and len(made.results) == 1 else None


def _is_over_last(norm: Call) -> bool:
    x, *terms = norm.operands
    return norm.attributes.get("axis", -1) in (-1, len(x.shape) - 1) and all(
        term.shape == x.shape[-1:] for term in terms
    )
