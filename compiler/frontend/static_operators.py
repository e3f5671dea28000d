"""Operators that are gone after import: what they answer is known there, or is one of their inputs.

Sequences and optionals exist only here: what they hold and how much is known at every node, so they need no run time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto

from compiler.errors import InvalidError, Problem, UnsupportedError
from compiler.frontend.folding import constant_node
from compiler.frontend.graph import GraphBuilder, Value
from compiler.frontend.scope import Absent, Item, Sequence, Site
from compiler.frontend.tensors import sparse_to_array

Static = Callable[[GraphBuilder, Site], list[Item]]


def _constant(graph: GraphBuilder, site: Site) -> list[Item]:
    array = constant_node(site.attributes)
    if (sparse := site.attributes.get("sparse_value")) is not None:
        array = sparse_to_array(sparse, "attribute 'sparse_value'", graph.limits)
    if array is None:
        raise UnsupportedError(Problem("TW2031", f"a constant given as {', '.join(site.attributes)} is not supported"))
    return [graph.constant(array, site.node.output[0])]


def _identity(graph: GraphBuilder, site: Site) -> list[Item]:
    return [_item(site, 0)]


def _shape(graph: GraphBuilder, site: Site) -> list[Item]:
    shape = _tensor(site, 0).shape
    extents = shape[slice(site.attributes.get("start", 0), site.attributes.get("end"))]
    return [graph.constant(np.asarray(extents, np.int64), site.node.output[0])]


def _size(graph: GraphBuilder, site: Site) -> list[Item]:
    size = int(np.prod(_tensor(site, 0).shape, dtype=np.int64))
    return [graph.constant(np.asarray(size, np.int64), site.node.output[0])]


def _sequence_empty(graph: GraphBuilder, site: Site) -> list[Item]:
    return [Sequence((), site.attributes.get("dtype") or TensorProto.FLOAT)]


def _sequence_construct(graph: GraphBuilder, site: Site) -> list[Item]:
    return [Sequence(tuple(_tensor(site, at) for at in range(len(site.inputs))))]


def _sequence_at(graph: GraphBuilder, site: Site) -> list[Item]:
    items = _sequence(site, 0).items
    return [items[_position(graph, site, 1, len(items))]]


def _sequence_insert(graph: GraphBuilder, site: Site) -> list[Item]:
    items = list(_sequence(site, 0).items)
    # The position after the last one is allowed here.
    at = len(items) if len(site.inputs) < 3 or site.inputs[2] is None else _position(graph, site, 2, len(items), 1)
    items.insert(at, _tensor(site, 1))
    return [Sequence(tuple(items))]


def _sequence_erase(graph: GraphBuilder, site: Site) -> list[Item]:
    items = list(_sequence(site, 0).items)
    del items[len(items) - 1 if len(site.inputs) < 2 else _position(graph, site, 1, len(items))]
    return [Sequence(tuple(items))]


def _sequence_length(graph: GraphBuilder, site: Site) -> list[Item]:
    return [graph.constant(np.asarray(len(_sequence(site, 0).items), np.int64), site.node.output[0])]


def _split_to_sequence(graph: GraphBuilder, site: Site) -> list[Item]:
    tensor, axis = _tensor(site, 0), site.attributes.get("axis", 0)
    if not -len(tensor.shape) <= axis < len(tensor.shape):
        raise InvalidError(Problem("TW2036", f"axis {axis} does not exist in a tensor of rank {len(tensor.shape)}"))
    extent = tensor.shape[axis]
    given = _known(graph, site, 1) if len(site.inputs) > 1 else None
    if given is not None and given.ndim:
        sizes = [int(size) for size in given]
    else:
        step = 1 if given is None else int(given)
        if step < 1:
            raise InvalidError(Problem("TW2036", f"parts cannot have {step} elements"))
        sizes = [min(step, extent - start) for start in range(0, extent, step)]
    if sum(sizes) != extent or min(sizes, default=0) < 0:
        raise InvalidError(Problem("TW2036", f"parts of {sizes[:8]} elements do not make up an axis of {extent}"))
    parts = graph.call("Split", tensor, np.asarray(sizes, np.int64), axis=axis) if len(sizes) > 1 else tensor
    items = list(parts) if isinstance(parts, tuple) else [parts]
    if given is None and not site.attributes.get("keepdims", 1):
        items = [graph.call("Squeeze", item, np.asarray([axis], np.int64)) for item in items]
    return [Sequence(tuple(items))]


def _concat_from_sequence(graph: GraphBuilder, site: Site) -> list[Item]:
    items, axis = _sequence(site, 0).items, site.attributes["axis"]
    if not items:
        raise InvalidError(Problem("TW2036", "an empty sequence cannot be concatenated"))
    if site.attributes.get("new_axis", 0):
        items = tuple(graph.call("Unsqueeze", item, np.asarray([axis], np.int64)) for item in items)
    return [graph.call("Concat", *items, axis=axis)]


def _optional(graph: GraphBuilder, site: Site) -> list[Item]:
    return [_item(site, 0) if site.inputs and site.inputs[0] is not None else Absent()]


def _optional_has_element(graph: GraphBuilder, site: Site) -> list[Item]:
    present = bool(site.inputs) and site.inputs[0] is not None and not isinstance(site.inputs[0], Absent)
    return [graph.constant(np.asarray(present), site.node.output[0])]


def _optional_get_element(graph: GraphBuilder, site: Site) -> list[Item]:
    item = _item(site, 0)
    if isinstance(item, Absent):
        raise InvalidError(Problem("TW2036", "the optional holds nothing"))
    return [item]


STATIC_OPERATORS: dict[str, Static] = {
    "ConcatFromSequence": _concat_from_sequence,
    "Constant": _constant,
    "Identity": _identity,
    "Optional": _optional,
    "OptionalGetElement": _optional_get_element,
    "OptionalHasElement": _optional_has_element,
    "SequenceAt": _sequence_at,
    "SequenceConstruct": _sequence_construct,
    "SequenceEmpty": _sequence_empty,
    "SequenceErase": _sequence_erase,
    "SequenceInsert": _sequence_insert,
    "SequenceLength": _sequence_length,
    "Shape": _shape,
    "Size": _size,
    "SplitToSequence": _split_to_sequence,
}


def _item(site: Site, at: int) -> Item:
    item = site.inputs[at] if at < len(site.inputs) else None
    if item is None:
        raise InvalidError(Problem("TW2032", f"input {at} is required"))
    return item


def _tensor(site: Site, at: int) -> Value:
    item = _item(site, at)
    if not isinstance(item, Value):
        raise InvalidError(Problem("TW2032", f"input {at} must be a tensor, not a sequence or an optional"))
    return item


def _sequence(site: Site, at: int) -> Sequence:
    item = _item(site, at)
    if not isinstance(item, Sequence):
        raise InvalidError(Problem("TW2032", f"input {at} must be a sequence"))
    return item


def _known(graph: GraphBuilder, site: Site, at: int) -> np.ndarray | None:
    """Sequences do not exist at run time, so where something is in one cannot depend on it."""
    return None if site.inputs[at] is None else graph.known(_tensor(site, at), f"input {at}")


def _position(graph: GraphBuilder, site: Site, at: int, length: int, past: int = 0) -> int:
    constant = _known(graph, site, at)
    if constant is None or constant.size != 1:
        raise InvalidError(Problem("TW2036", f"input {at} must be one position"))
    position = int(constant.reshape(-1)[0])
    if not -length <= position < length + past:
        raise InvalidError(Problem("TW2036", f"position {position} is not in a sequence of {length}"))
    return position if position >= 0 else position + length
