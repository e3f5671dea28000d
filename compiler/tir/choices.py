"""Choices of values that loop variables decide: in what a store writes, and in the places it touches.

A choice is an ``if_then_else`` or ``Select``; in index arithmetic also a ``min`` or ``max``, as in clamped windows.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from compiler.tir.rewriter import contains, loads, uses
from compiler.tir.structure import structural_map, structural_walk


def _condition(node: Any) -> Any | None:
    """What decides a choice among values, or None if the node is none."""
    if isinstance(node, ir.Call):
        return node.args[0] if node.op.name == "prim.if_then_else" else None
    return node.condition if isinstance(node, tirx.Select) else None


def _order(node: Any) -> Any:
    """The condition under which a min or max of indices is its first operand."""
    return node.a <= node.b if isinstance(node, tirx.Min) else node.a >= node.b


def first_choice(store: tirx.BufferStore, nest_variables: Sequence[Any]) -> Any | None:
    """The condition of the outermost choice in a store that reads no data, or None.

    ``nest_variables`` are those of the leaf nest, outermost first. A min or max counts as a choice among values if
    one of them is in it, and in an index if the innermost that moves the index is: over others it is a number.
    """
    for node in (store.value, *store.indices):
        found = structural_walk(node, ((ir.Call, tirx.Select), _visit_choice), order="pre")
        if found is not None:
            return found.value
    if not nest_variables or not contains(store, (tirx.Min, tirx.Max)):
        return None
    values, places = _values_and_places(store)
    for node in values:
        found = _first_order(node, nest_variables)
        if found is not None:
            return found
    for place in places:
        moving = next((var for var in reversed(nest_variables) if uses(place, (var,))), None)
        found = None if moving is None else _first_order(place, (moving,))
        if found is not None:
            return found
    return None


def _visit_choice(node: Any) -> Any:
    condition = _condition(node)
    return None if condition is None or loads(condition) else tvm_ffi.VisitInterrupt(condition)


def _values_and_places(store: tirx.BufferStore) -> tuple[list[Any], list[Any]]:
    """The outermost mins and maxes of integers among what is computed, and the indices of everything touched."""
    values: list[Any] = []
    places: list[Any] = list(store.indices)

    def visit_order(node: Any) -> Any:
        if str(node.ty).startswith("int") and not loads(node):
            values.append(node)
            return tvm_ffi.WalkResult.SKIP
        return None

    def visit_load(load: Any) -> Any:
        places.extend(load.indices)
        return tvm_ffi.WalkResult.SKIP

    structural_walk(store.value, [((tirx.Min, tirx.Max), visit_order), (ir.TensorLoad, visit_load)], order="pre")
    return values, places


def _first_order(node: Any, variables: Sequence[Any]) -> Any | None:
    """The condition of an innermost min or max that has one of the variables in it."""

    def visit(order: Any) -> Any:
        plain = not loads(order) and uses(order, variables)
        return tvm_ffi.VisitInterrupt(_order(order)) if plain else None

    found = structural_walk(node, ((tirx.Min, tirx.Max), visit))
    return None if found is None else found.value


def chosen(store: Any, condition: Any, truth: bool) -> Any:
    """The store where ``condition`` is known."""

    def choice(node: Any) -> Any:
        decided = _condition(node)
        if decided is None or not tvm_ffi.structural_equal(decided, condition):
            return node
        first, second = node.args[1:] if isinstance(node, ir.Call) else (node.true_value, node.false_value)
        return first if truth else second

    def order(node: Any) -> Any:
        if not tvm_ffi.structural_equal(_order(node), condition):
            return node
        return node.a if truth else node.b

    def fold(node: Any) -> Any:
        known = all(isinstance(operand, tirx.IntImm | tirx.FloatImm) for operand in (node.a, node.b))
        return _FOLDS[type(node)](node.a, node.b) if known else node

    callbacks = [((ir.Call, tirx.Select), choice), ((tirx.Min, tirx.Max), order), (tuple(_FOLDS), fold)]
    return structural_map(store, callbacks)


_FOLDS: dict[type, Callable[[Any, Any], Any]] = {
    tirx.Add: operator.add,
    tirx.Sub: operator.sub,
    tirx.Mul: operator.mul,
    tirx.Div: operator.truediv,
}


@dataclass(frozen=True)
class Update:
    """A store that combines its place with something: ``d[i] = operation(d[i], operand)``."""

    operation: type
    place: Any
    operand: Any


def update_of(store: tirx.BufferStore) -> Update | None:
    """The store as one step of a reduction, or None if it is not one."""
    value = store.value
    if type(value) in _NEUTRAL:
        for place, other in ((value.a, value.b), (value.b, value.a)):
            if isinstance(place, ir.TensorLoad) and place.source.same_as(store.buffer):
                if tvm_ffi.structural_equal(place.indices, store.indices):
                    return Update(type(value), place, other)
    return None


_NEUTRAL: dict[type, tuple[float, ...]] = {
    tirx.Add: (0.0,),
    tirx.Mul: (1.0,),
    tirx.Max: (-math.inf,),
    tirx.Min: (math.inf,),
}


def writes_what_is_there(store: tirx.BufferStore) -> bool:
    """Whether the store combines its place with what changes nothing, as a reduction does with its padding.

    Sums count from zero, where adding a zero of either sign changes nothing; a product with the zero of padding is
    no term of the sum.
    """
    update = update_of(store)
    return update is not None and _is_neutral(update.operation, update.operand)


def _is_neutral(operation: type, operand: Any) -> bool:
    while isinstance(operand, tirx.Cast):
        operand = operand.value
    if operation is tirx.Add and isinstance(operand, tirx.Mul):
        return _is_neutral(operation, operand.a) or _is_neutral(operation, operand.b)
    if not isinstance(operand, tirx.IntImm | tirx.FloatImm):
        return False
    neutral = [*_NEUTRAL[operation]]
    if operation is tirx.Max:
        neutral.append(tirx.min_value(str(operand.ty)).value)
    if operation is tirx.Min:
        neutral.append(tirx.max_value(str(operand.ty)).value)
    return operand.value in neutral
