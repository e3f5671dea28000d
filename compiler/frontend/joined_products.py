"""Products of one matrix with several known ones, as one: queries, keys and values of an attention in one kernel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from compiler.frontend.graph import Array, Call, GraphBuilder, Value
from compiler.operators import find_called

# What only says where elements are: whoever reads such a result reads a part of the whole as well.
_MOVES = frozenset({"Reshape", "Transpose"})


def join_products(graph: GraphBuilder, outputs: Iterable[Value]) -> list[Call]:
    """``x @ a + p, x @ b + q`` -> ``both = x @ [a b] + [p q]; both[..., :n], both[..., n:]``

    The calls of a graph, with that in the place of the first of the products.

    1. The matrices are known, and either all products have a known bias for each column, or none has.
    2. Nothing else reads what is computed on the way, and all that reads the results are moves: what is computed with a
       product goes into its kernel, and a part is read where it is.
    """
    users = _users(graph.calls)
    read = set(outputs)
    found: dict[tuple[Value, Any, bool], list[_Product]] = {}
    for call in graph.calls:
        product = _product(call, users, read)
        if product is not None:
            key = product.x, product.weights.dtype, product.bias is None
            found.setdefault(key, []).append(product)
    instead: dict[int, list[Call]] = {}
    for products in found.values():
        if len(products) > 1:
            instead |= {id(call): [] for product in products for call in product.calls}
            instead[id(products[0].calls[0])] = _joined(graph, products)
    return [new for call in graph.calls for new in instead.get(id(call), [call])]


@dataclass(frozen=True)
class _Product:
    calls: tuple[Call, ...]
    x: Value
    weights: Array
    bias: Array | None

    @property
    def result(self) -> Value:
        return self.calls[-1].results[0]


def _users(calls: Sequence[Call]) -> dict[Value, list[Call]]:
    users: dict[Value, list[Call]] = {}
    for call in calls:
        for value in dict.fromkeys(call.operands):
            users.setdefault(value, []).append(call)
    return users


def _product(call: Call, users: dict[Value, list[Call]], read: set[Value]) -> _Product | None:
    if call.operator != "MatMul" or len(call.operands) != 2:
        return None
    x, right = call.operands
    if x.constant is not None or right.constant is None or len(right.shape) != 2 or len(x.shape) < 2:
        return None
    made = call.results[0]
    after = users.get(made, [])
    if made not in read and len(after) == 1 and after[0].operator == "Add":
        bias = _bias(after[0], made)
        if bias is None:
            return None
        found = _Product((call, after[0]), x, right.constant, bias)
    else:
        found = _Product((call,), x, right.constant, None)
    readers = users.get(found.result, [])
    moved = found.result not in read and readers and all(reader.operator in _MOVES for reader in readers)
    return found if moved else None


def _bias(call: Call, made: Value) -> Array | None:
    """What is known for each column of a product, and the same for all rows."""
    others = [value for value in call.operands if value is not made]
    constant = others[0].constant if len(others) == 1 and call.results[0].dtype == made.dtype else None
    width = made.shape[-1]
    return (
        constant.reshape(width)
        if constant is not None and constant.shape[-1:] == (constant.size,) == (width,)
        else None
    )


def _joined(graph: GraphBuilder, products: Sequence[_Product]) -> list[Call]:
    calls: list[Call] = []

    def apply(name: str, *operands: Value | Array) -> Call:
        graph.apply(find_called(name), operands, {}, outputs=1)
        calls.append(graph.calls.pop())
        return calls[-1]

    with graph.inside(nodes[0] if (nodes := products[0].calls[0].nodes) else "joined"):
        whole = apply("MatMul", products[0].x, _beside([product.weights for product in products]))
        biases = [product.bias for product in products if product.bias is not None]
        if biases:
            whole = apply("Add", whole.results[0], _beside(biases))
        result = whole.results[0]
        ends = list(accumulate(product.weights.shape[1] for product in products))
        for product, end in zip(products, ends, strict=True):
            bounds = (np.array([value]) for value in (end - product.weights.shape[1], end, len(result.shape) - 1))
            apply("Slice", result, *bounds)
    nodes = tuple(dict.fromkeys(node for product in products for call in product.calls for node in call.nodes))
    parts = len(products)
    products_made = [Call(call.function, call.operands, call.results, nodes) for call in calls[:-parts]]
    cuts = [
        Call(call.function, call.operands, (product.result,), product.calls[-1].nodes)
        for call, product in zip(calls[-parts:], products, strict=True)
    ]
    return [*products_made, *cuts]


def _beside(arrays: Sequence[Array]) -> Array:
    return np.concatenate(arrays, axis=-1)
