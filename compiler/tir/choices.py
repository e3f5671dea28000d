"""Choices of values that loop variables decide: in what a store writes, and in the places it touches.

A choice is an ``if_then_else`` or ``Select``; in index arithmetic also a ``min`` or ``max``, as in clamped windows.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from compiler.tir.rewriter import loads, uses


def _condition(node: Any) -> Any | None:
    """What decides a choice among values, or None if the node is none."""
    if isinstance(node, ir.Call):
        return node.args[0] if node.op.name == "prim.if_then_else" else None
    return node.condition if isinstance(node, tirx.Select) else None


def _order(node: Any) -> Any:
    """The condition under which a min or max of indices is its first operand."""
    return node.a <= node.b if isinstance(node, tirx.Min) else node.a >= node.b


def first_choice(store: tirx.BufferStore, nest_variables: Collection[Any]) -> Any | None:
    """The condition of the outermost choice in a store that reads no data, or None.

    A min or max counts if it has a variable of the leaf nest in it: over others it is a number to the nest.
    """

    def visit_choice(node: Any) -> Any:
        condition = _condition(node)
        return None if condition is None or loads(condition) else tvm_ffi.VisitInterrupt(condition)

    def visit_order(node: Any) -> Any:
        plain = str(node.ty).startswith("int") and not loads(node) and uses(node, nest_variables)
        return tvm_ffi.VisitInterrupt(_order(node)) if plain else None

    for order, kinds, visit in (
        ("pre", (ir.Call, tirx.Select), visit_choice),
        ("post", (tirx.Min, tirx.Max), visit_order),
    ):
        for node in (store.value, *store.indices):
            found = tvm_ffi.structural_walk(node, (kinds, visit), order=order)
            if found is not None:
                return found.value
    return None


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

    callbacks = [((ir.Call, tirx.Select), choice), ((tirx.Min, tirx.Max), order)]
    return tvm_ffi.structural_map(store, callbacks)


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
