"""Scaling and shifting the channels of a convolution by scaling its known weights and shifting its bias."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from compiler.frontend.graph import Array, Call, GraphBuilder, Value
from compiler.operators import find_called

AFFINE, CONVOLUTION = "tilewright::ChannelAffine", "tilewright::Convolution"
Terms = tuple[Array | float, Array | float]  # factor and shift

# What they do to a first operand beside a known second one, and to a second one behind a known first one.
_ARITHMETIC: Mapping[str, tuple[Callable[[Array], Terms], Callable[[Array], Terms] | None]] = {
    "Add": (lambda c: (1.0, c), lambda c: (1.0, c)),
    "Sub": (lambda c: (1.0, -c), lambda c: (-1.0, c)),
    "Mul": (lambda c: (c, 0.0), lambda c: (c, 0.0)),
    "Div": (lambda c: (1.0 / c, 0.0), None),
}


@dataclass(frozen=True)
class Affine:
    """A call whose result is ``x * factor + shift``, with a known number of each for each channel."""

    call: Call
    x: Value
    factor: Array
    shift: Array

    @staticmethod
    def of(call: Call) -> Affine | None:
        if call.operator == AFFINE:
            x, *known = call.operands
            return Affine(call, x, *map(elements, known)) if _are_known_floats(known) else None
        return Affine._of_arithmetic(call) if call.operator in _ARITHMETIC else None

    @staticmethod
    def _of_arithmetic(call: Call) -> Affine | None:
        known = [value for value in (*call.operands, *call.known) if value.constant is not None]
        others = [value for value in call.operands if value.constant is None]
        if len(known) != 1 or len(others) != 1 or not _are_known_floats(known):
            return None
        (constant,), (x,) = known, others
        # A constant is an operand, or is in the function, which names it beside its other attributes.
        is_second = call.operands[-1] is constant or "y" in call.attributes
        terms_with = _ARITHMETIC[call.operator][0 if is_second else 1]
        own = of_channels(constant, x.shape)
        if terms_with is None or own is None or call.results[0].shape != x.shape:
            return None
        with np.errstate(all="ignore"):
            factor, shift = (np.broadcast_to(term, x.shape[1:2]) for term in terms_with(own))
        # What is not finite meets zeros in weights that it did not meet behind the sum.
        return Affine(call, x, factor, shift) if np.isfinite([factor, shift]).all() else None


def of_channels(constant: Value, shape: tuple[int, ...]) -> Array | None:
    """One element for each channel of a map, or one for all."""
    own = (1,) * (len(shape) - len(constant.shape)) + constant.shape
    if len(own) != len(shape) or len(shape) < 2 or any(extent != 1 for at, extent in enumerate(own) if at != 1):
        return None
    return elements(constant).reshape(-1) if own[1] in (1, shape[1]) else None


def _are_known_floats(values: Iterable[Value]) -> bool:
    return all(value.constant is not None and np.issubdtype(value.constant.dtype, np.floating) for value in values)


def is_known(call: Call) -> bool:
    """Whether a call is a convolution of floats with known weights, and a known bias if it has one."""
    return call.operator == CONVOLUTION and _are_known_floats(call.operands[1:])


def scaled(graph: GraphBuilder, convolution: Call, affine: Affine) -> Call:
    """``affine(convolution(x, w, b), factor, shift)`` -> ``convolution(x, w * factor, b * factor + shift)``."""
    packed, *bias = convolution.operands[1:]
    factor, shift = affine.factor, affine.shift
    weights = elements(packed)
    groups, per_group = weights.shape[0], weights.shape[-2]
    # Groups that share a block of channels may have columns behind the last output.
    beyond = groups * per_group - factor.size
    factor, shift = np.pad(factor, (0, beyond), constant_values=1), np.pad(shift, (0, beyond))
    product = weights * factor.reshape(groups, *(1 for _ in weights.shape[1:-2]), per_group, 1)
    shifted = shift + factor * elements(bias[0]) if bias else shift
    has_bias = bool(bias) or bool(shifted.any())
    return with_terms(graph, convolution, product, shifted if has_bias else None, affine.call)


def chained(graph: GraphBuilder, first: Affine, second: Affine) -> Call:
    """``affine(affine(x, f1, s1), f2, s2)`` -> ``affine(x, f1 * f2, s1 * f2 + s2)``."""
    terms = first.factor * second.factor, first.shift * second.factor + second.shift
    likes = first.call.operands[1:]
    known = [
        graph.constant(term, f"{like.name}_folded", like.element_type) for term, like in zip(terms, likes, strict=True)
    ]
    before = len(graph.calls)
    graph.apply(find_called(AFFINE), (first.x, *known), {})
    (made,) = graph.taken(before, second.call.results[0], (*first.call.nodes, *second.call.nodes))
    return made


def with_terms(graph: GraphBuilder, convolution: Call, weights: Array, bias: Array | None, last: Call) -> Call:
    """The same convolution with other weights and another bias, for what ``last`` makes of it.

    They are in the type of the weights, so that they are rounded as those would have been.
    """
    x, packed, *_ = convolution.operands
    like = (f"{packed.name}_folded", packed.element_type)
    terms = [graph.constant(weights, *like)] + ([] if bias is None else [graph.wide(graph.constant(bias, *like))])
    attributes = {
        name: tuple(value) if isinstance(value, list) else value for name, value in convolution.attributes.items()
    }
    before = len(graph.calls)
    graph.apply(find_called(CONVOLUTION), (x, *terms), attributes)
    (made,) = graph.taken(before, last.results[0], (*convolution.nodes, *last.nodes))
    return made


def elements(value: Value) -> Array:
    return np.asarray(value.constant, np.float32)
