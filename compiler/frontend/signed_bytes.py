"""Bytes that are quantised to unsigned ones and read as signed ones, which is what the cube multiplies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from compiler.frontend.graph import Call, GraphBuilder, Value
from compiler.frontend.types import onnx_type

SIGNED, DEQUANTISE = "tilewright::Signed", "DequantizeLinear"
MAKERS = ("QuantizeLinear", "tilewright::Requantize")
ZERO_POINT = 2  # which input it is, of makers and of what dequantises
OFFSET = 128


def as_signed_bytes(graph: GraphBuilder, outputs: Iterable[Value]) -> list[Call]:
    """The calls of a graph, with signed bytes in the place of unsigned ones.

        q = quantise(x, z);  signed(q);  dequantise(q, z)  ->  q = quantise(x, z - 128);  q;  dequantise(q, z - 128)

    1. Somebody makes them signed, and all others dequantise them.
    2. Zero points are known, and one for all.
    """
    readers: dict[Value, list[Call | None]] = {value: [None] for value in outputs}
    for call in graph.calls:
        for value in dict.fromkeys(call.operands):
            readers.setdefault(value, []).append(call)
    instead, signed = dict[int, list[Call]](), dict[Value, Value]()
    for call in list(graph.calls):
        result = call.results[0]
        if call.operator not in MAKERS or result.dtype != "uint8" or not _knows_one_zero(graph, call):
            continue
        of_bytes = [each for each in readers.get(result, []) if each is not None and _reads(graph, each, result)]
        lowered = [each for each in of_bytes if each.operator == SIGNED]
        if not lowered or len(of_bytes) < len(readers[result]):
            continue
        made = lowered[0].results[0]
        signed |= {each.results[0]: made for each in lowered}
        instead |= {id(each): [] for each in lowered}
        instead[id(call)] = _lowered(graph, call, call.operands[:1], made)
        for each in of_bytes:
            if each.operator == DEQUANTISE:
                instead[id(each)] = _lowered(graph, each, (made,), each.results[0])
    calls = [new for call in graph.calls for new in instead.get(id(call), [call])]
    return [replace(call, operands=tuple(signed.get(each, each) for each in call.operands)) for call in calls]


def _reads(graph: GraphBuilder, call: Call, value: Value) -> bool:
    """Whether a call makes bytes signed, or dequantises them."""
    if call.operands[0] is not value or value in call.operands[1:]:
        return False
    return call.operator == SIGNED or (call.operator == DEQUANTISE and _knows_one_zero(graph, call))


def _knows_one_zero(graph: GraphBuilder, call: Call) -> bool:
    """Whether a call has one zero point for all, which is known."""
    arguments = graph.recipes[call.function].arguments
    zero = arguments[ZERO_POINT] if len(arguments) > ZERO_POINT else None
    return isinstance(zero, np.ndarray) and zero.size == 1


def _lowered(graph: GraphBuilder, call: Call, first: tuple[Value, ...], result: Value) -> list[Call]:
    """A call again with another first operand and the zero point of signed bytes."""
    recipe, before = graph.recipes[call.function], len(graph.calls)
    inputs = graph.inputs_of(call, (*first, *call.operands[1:]))
    zero = np.asarray(recipe.arguments[ZERO_POINT], np.int16)
    inputs[ZERO_POINT] = np.asarray(zero - OFFSET, np.int8)
    to = {"to": onnx_type("int8")} if "to" in recipe.attributes else {}
    graph.apply(recipe.declared, inputs, {**recipe.attributes, **to}, opset=recipe.opset)
    return graph.taken(before, result, call.nodes)
