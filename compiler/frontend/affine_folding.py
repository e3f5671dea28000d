"""Scaling and shifting the channels of a convolution by scaling its constant weights and shifting its bias."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from compiler.frontend.graph import Array, Call, GraphBuilder, Value
from compiler.operators import find_called

AFFINE, CONVOLUTION = "tilewright::ChannelAffine", "tilewright::Convolution"


def fold_affine(graph: GraphBuilder, calls: Sequence[Call], outputs: Iterable[Value]) -> list[Call]:
    """``affine(convolution(x, w, b), factor, shift)`` -> ``convolution(x, w * factor, b * factor + shift)``.

    1. Nothing else reads what the convolution makes: it would have to be computed twice.
    2. Weights, bias, factor and shift are known, and are floats. They are rounded once, behind the multiplication.
    """
    readers = Counter(value for call in calls for value in dict.fromkeys(call.operands)) + Counter(outputs)
    made: dict[Value, Call] = {}
    for call in calls:
        maker = made.get(call.operands[0]) if call.operator == AFFINE else None
        if maker is not None and readers[call.operands[0]] == 1 and _is_foldable(maker, call):
            del made[call.operands[0]]
            call = _folded(graph, maker, call)
        made.update(dict.fromkeys(call.results, call))
    return list(dict.fromkeys(made.values()))


def _is_foldable(convolution: Call, affine: Call) -> bool:
    terms = (*convolution.operands[1:], *affine.operands[1:])
    return convolution.operator == CONVOLUTION and all(
        value.constant is not None and np.issubdtype(value.constant.dtype, np.floating) for value in terms
    )


def _folded(graph: GraphBuilder, convolution: Call, affine: Call) -> Call:
    x, packed, *bias = convolution.operands
    factor, shift = (_elements(value) for value in affine.operands[1:])
    weights = _elements(packed)
    groups, per_group = weights.shape[0], weights.shape[-2]
    # Groups that share a block of channels may have columns behind the last output.
    beyond = groups * per_group - factor.size
    factor, shift = np.pad(factor, (0, beyond), constant_values=1), np.pad(shift, (0, beyond))
    scaled = weights * factor.reshape(groups, *(1 for _ in weights.shape[1:-2]), per_group, 1)
    shifted = shift + factor * _elements(bias[0]) if bias else shift
    terms = _constant(graph, scaled, packed), graph.wide(_constant(graph, shifted, packed))
    attributes = {
        name: tuple(value) if isinstance(value, list) else value for name, value in convolution.attributes.items()
    }
    graph.apply(find_called(CONVOLUTION), (x, *terms), attributes)
    made = graph.calls.pop()
    return Call(made.function, made.operands, affine.results, (*convolution.nodes, *affine.nodes))


def _elements(value: Value) -> Array:
    return np.asarray(value.constant, np.float32)


def _constant(graph: GraphBuilder, array: Array, like: Value) -> Value:
    """In the type of another constant, so that it is rounded as that one would have been."""
    return graph.constant(array, f"{like.name}_folded", like.element_type)
