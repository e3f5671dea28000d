"""Convolutions of single elements beside a transposition of channels, as the products of matrices that they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from compiler.frontend.affine_folding import CONVOLUTION
from compiler.frontend.graph import Array, Call, GraphBuilder, Value
from compiler.operators import find_called

MOVE = "Transpose"
BLOCK = 16  # channels: rows of fewer, or of a part of so many, take the longer to load


def as_products(graph: GraphBuilder, outputs: Iterable[Value]) -> list[Call]:
    """The calls of a graph, with products in the place of some convolutions and of a transposition beside each.

        convolution(transpose(x), w, b)   -> transpose(x @ w + b)        # channels were last
        transpose(convolution(x, w, b))   -> transpose(x) @ w + b        # channels become last

    A product takes a transposition of an operand or of its result along, a convolution does not. And what follows a
    product with channels last, such as a residual, may follow it in one kernel.

    1. Windows are single elements, side by side, of one group; weights and bias are known, channels whole blocks.
    2. Nothing else reads what is between the two calls. A transposition between two convolutions is taken along by one.
    """
    found = _Calls.of(graph.calls, outputs)
    instead: dict[int, list[Call]] = {}
    for call in graph.calls:
        convolution = _Pointwise.of(call)
        if convolution is None:
            continue
        before, after = found.maker.get(call.operands[0]), found.only_reader(call.results[0])
        last = before is not None and id(before) not in instead and _is_to(before, 1)
        last = last and found.only_reader(call.operands[0]) is call
        becomes = after is not None and _is_to(after, -1)
        if not (last or becomes):
            continue
        x = before.operands[0] if last and before is not None else call.operands[0]
        result = after.results[0] if becomes and after is not None else call.results[0]
        calls = [*([before] if last else []), call, *([after] if becomes else [])]
        instead |= {id(each): [] for each in calls if each is not None}
        instead[id(call)] = _product(graph, convolution, x, result, last, becomes, [c for c in calls if c is not None])
    return [new for call in graph.calls for new in instead.get(id(call), [call])]


@dataclass(frozen=True)
class _Calls:
    maker: dict[Value, Call]
    readers: dict[Value, list[Call | None]]  # None is the caller

    @staticmethod
    def of(calls: Iterable[Call], outputs: Iterable[Value]) -> _Calls:
        maker, readers = dict[Value, Call](), dict[Value, list[Call | None]]()
        for call in calls:
            maker.update(dict.fromkeys(call.results, call))
            for value in dict.fromkeys(call.operands):
                readers.setdefault(value, []).append(call)
        for value in outputs:
            readers.setdefault(value, []).append(None)
        return _Calls(maker, readers)

    def only_reader(self, value: Value) -> Call | None:
        readers = self.readers.get(value, [])
        return readers[0] if len(readers) == 1 else None


def _is_to(call: Call, place: int) -> bool:
    """Whether a call moves the channels of a map to another place, from last to 1 or from 1 to last, and no more."""
    rank = len(call.results[0].shape)
    if call.operator != MOVE or rank < 3:
        return False
    order = [0, rank - 1, *range(1, rank - 1)] if place == 1 else [0, *range(2, rank), 1]
    return list(call.attributes.get("perm") or reversed(range(rank))) == order


@dataclass(frozen=True)
class _Pointwise:
    weights: Array  # [channels, outputs]
    bias: Array | None

    @staticmethod
    def of(call: Call) -> _Pointwise | None:
        """By the weights as the cube wants them: [1, 1, c1, 1, 1, outputs, c0] for windows of single elements."""
        if call.operator != CONVOLUTION or len(call.operands) not in (2, 3):
            return None
        _, packed, *bias = call.operands
        attributes = call.attributes
        if packed.constant is None or any(value.constant is None for value in bias):
            return None
        if not np.issubdtype(packed.constant.dtype, np.floating) or packed.constant.shape[:1] != (1,):
            return None
        plain = set(attributes["kernel"]) == set(attributes["strides"]) == {1} and not any(attributes["pads"])
        channels, outputs = call.operands[0].shape[1], call.results[0].shape[1]
        if not plain or channels % BLOCK or outputs % BLOCK:
            return None
        weights = packed.constant[0, 0, :, 0, 0].transpose(0, 2, 1).reshape(-1, outputs)[:channels]
        added = None if not bias else np.asarray(bias[0].constant)[:outputs].astype(weights.dtype)
        return _Pointwise(np.ascontiguousarray(weights), added)


def _in_one(batch: int, places: int, channels: int, last: bool) -> list[int]:
    """The shape of a map with all places on one axis."""
    return [batch, places, channels] if last else [batch, channels, places]


def _product(
    graph: GraphBuilder, of: _Pointwise, x: Value, result: Value, last: bool, becomes: bool, instead: list[Call]
) -> list[Call]:
    before = len(graph.calls)

    def apply(name: str, *operands: Value | Array, **attributes: Any) -> Value:
        return graph.apply(find_called(name), operands, attributes, outputs=1)[0]

    nodes = tuple(dict.fromkeys(node for call in instead for node in call.nodes))
    with graph.inside(nodes[0] if nodes else "pointwise"):
        batch, channels = x.shape[0], of.weights.shape[0]
        places = prod(x.shape) // (batch * channels)
        rows = x if len(x.shape) == 3 else apply("Reshape", x, np.array(_in_one(batch, places, channels, last)))
        if not last:
            rows = apply(MOVE, rows, perm=(0, 2, 1))
        made = apply("MatMul", rows, of.weights)
        if of.bias is not None:
            made = apply("Add", made, of.bias)
        if not becomes:
            made = apply(MOVE, made, perm=(0, 2, 1))
        if made.shape != result.shape:
            apply("Reshape", made, np.array(result.shape))
    return graph.taken(before, result, nodes)
