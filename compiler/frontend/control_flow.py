"""Branches and loops, which the chip's programs do not have: followed at import where it is known where they lead.

A condition known at import picks its branch; one that is not has both computed and one selected, element by element.
What the other one would pick by indices is the first element then, since its own may be nowhere.
A loop whose number of trips is known is unrolled, within the limits. One that data may end before has all trips
computed, and what it had when it ended selected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper

from compiler.errors import InvalidError, LimitError, Problem, UnsupportedError
from compiler.frontend.graph import Value
from compiler.frontend.scope import Item, Site, Unknown

if TYPE_CHECKING:
    from compiler.frontend.importer import Importer

ControlFlow = Callable[["Importer", Site], Sequence[Item]]
# Trip counts of loops that end by their condition, as exporters write them for `while`: the largest int64, or int32.
_UNBOUNDED = (1 << 31) - 1


def _if(importer: Importer, site: Site) -> Sequence[Item]:
    condition = _tensor(site.inputs[0], "the condition")
    known = _truth(condition)
    if known is not None:
        part = "then_branch" if known else "else_branch"
        return importer.evaluate_subgraph(site, site.attributes[part], (), part)
    condition = _scalar(importer, condition)
    branches = []
    for part, when in (("then_branch", True), ("else_branch", False)):
        with importer.only_if(condition, when):
            branches.append(importer.evaluate_subgraph(site, site.attributes[part], (), part))
    return [_selected(importer, condition, *pair) for pair in zip(*branches, strict=False)]


def _scalar(importer: Importer, condition: Value) -> Value:
    """Without axes, which others would get."""
    if prod(condition.shape) != 1:
        raise InvalidError(Problem("TW2036", f"the condition must be one value, not {prod(condition.shape)}"))
    if not condition.shape:
        return condition
    result: Value = importer.graph.call("Reshape", condition, np.zeros(0, np.int64))
    return result


def _selected(importer: Importer, condition: Value, taken: Item, other: Item) -> Item:
    if isinstance(taken, Unknown) or isinstance(other, Unknown):
        return Unknown()
    if not isinstance(taken, Value) or not isinstance(other, Value):
        importer.graph.known(condition, "the condition, since its branches do not give tensors,")
        return Unknown()
    if taken is other:
        return taken
    if taken.shape != other.shape or taken.dtype != other.dtype:
        differ = f"the condition, since its branches give different types ({_type(taken)} and {_type(other)}),"
        importer.graph.known(condition, differ)
    if taken.constant is not None and other.constant is not None and np.array_equal(taken.constant, other.constant):
        return taken
    result: Item = importer.graph.call("Where", condition, taken, other)
    return result


def _loop(importer: Importer, site: Site) -> Sequence[Item]:
    trips, condition = site.inputs[0], site.inputs[1]
    body = site.attributes["body"]
    most = _trip_count(importer, trips)
    going = None if condition is None else _tensor(condition, "the condition")
    state: list[Item] = [item for item in site.inputs[2:] if item is not None]
    inside = state  # as the body has it: what it would be if the loop went on
    collected: list[list[Value]] = [[] for _ in range(len(body.output) - 1 - len(state))]
    taken: Value | None = None  # whether this trip is, where only a run knows
    trip = 0
    while (most is None or trip < most) and (going is None or _truth(going) is not False):
        _check_trips(importer, trip)
        if most is not None and trip == 0:
            _check_trips(importer, most - 1)
        if going is not None and going.constant is None:
            if collected or (most is None and trip >= importer.limits.open_trips):
                importer.graph.known(going, "the loop's condition")
            still_going = _scalar(importer, going)
            taken = still_going if taken is None else importer.graph.call("And", taken, still_going)
        counter = importer.graph.constant(np.asarray(trip, np.int64))
        still = importer.graph.constant(np.asarray(True))
        with nullcontext() if taken is None else importer.only_if(taken, True):
            results = importer.evaluate_subgraph(site, body, [counter, still, *inside], "body")
        if any(isinstance(item, Unknown) for item in results):
            return [Unknown()] * len(site.node.output)
        going = _tensor(results[0], "the condition")
        inside = results[1 : 1 + len(state)]
        if taken is None:
            state = list(inside)
        else:
            state = [_selected(importer, taken, *pair) for pair in zip(inside, state, strict=True)]
        for column, item in zip(collected, results[1 + len(state) :], strict=True):
            column.append(_tensor(item, "a scan output"))
        trip += 1
    infos = body.output[1 + len(state) :]
    return [*state, *(_stacked(importer, *each, 0) for each in zip(collected, infos, strict=True))]


def _scan(importer: Importer, site: Site) -> Sequence[Item]:
    if site.scope.opsets.get("", 0) < 9:
        raise UnsupportedError(Problem("TW2035", "Scan of operator set 8 is not supported", hint="export for 9"))
    body, count = site.attributes["body"], site.attributes["num_scan_inputs"]
    if not 1 <= count <= len(site.inputs):
        raise InvalidError(Problem("TW2036", f"num_scan_inputs={count} with {len(site.inputs)} inputs"))
    state: list[Item] = [item for item in site.inputs[: len(site.inputs) - count] if item is not None]
    outputs = len(body.output) - len(state)
    scanned = [_tensor(item, "a scan input") for item in site.inputs[len(site.inputs) - count :]]
    axes = [_axis(value, axis) for value, axis in zip(scanned, _each(site, "scan_input_axes", count), strict=True)]
    backwards = _each(site, "scan_input_directions", count)
    trips = {value.shape[axis] for value, axis in zip(scanned, axes, strict=True)}
    if len(trips) > 1:
        raise InvalidError(Problem("TW2036", f"the scan inputs have different lengths: {sorted(trips)}"))
    length = trips.pop()
    _check_trips(importer, length - 1)
    collected: list[list[Value]] = [[] for _ in range(outputs)]
    for trip in range(length):
        parts = [
            _part(importer, value, axis, length - 1 - trip if back else trip)
            for value, axis, back in zip(scanned, axes, backwards, strict=True)
        ]
        results = importer.evaluate_subgraph(site, body, [*state, *parts], "body")
        if any(isinstance(item, Unknown) for item in results):
            return [Unknown()] * len(site.node.output)
        state = results[: len(state)]
        for column, item in zip(collected, results[len(state) :], strict=True):
            column.append(_tensor(item, "a scan output"))
    directions, output_axes = _each(site, "scan_output_directions", outputs), _each(site, "scan_output_axes", outputs)
    ordered = [column[::-1] if back else column for column, back in zip(collected, directions, strict=True)]
    infos = body.output[len(state) :]
    return [*state, *(_stacked(importer, *each) for each in zip(ordered, infos, output_axes, strict=True))]


CONTROL_FLOW: dict[str, ControlFlow] = {"If": _if, "Loop": _loop, "Scan": _scan}


def _trip_count(importer: Importer, item: Item) -> int | None:
    if item is None:
        return None
    constant = importer.graph.known(_tensor(item, "the trip count"), "the trip count")
    if constant.size != 1:
        raise InvalidError(Problem("TW2036", f"the trip count must be one number, not {constant.size}"))
    count = int(constant.reshape(-1)[0])
    return None if count >= _UNBOUNDED else count


def _check_trips(importer: Importer, trip: int) -> None:
    if trip >= importer.limits.trip_count:
        text = f"the loop would be unrolled more than {importer.limits.trip_count} times"
        raise LimitError(Problem("TW2033", text, hint="raise Limits.trip_count for a model you trust"))


def _truth(value: Value) -> bool | None:
    if value.constant is None:
        return None
    if value.constant.size != 1:
        raise InvalidError(Problem("TW2036", f"the condition must be one value, not {value.constant.size}"))
    return bool(value.constant.reshape(-1)[0])


def _tensor(item: Item, what: str) -> Value:
    if not isinstance(item, Value):
        raise InvalidError(Problem("TW2036", f"{what} must be a tensor"))
    return item


def _type(value: Value) -> str:
    return f"{value.dtype}{list(value.shape)}"


def _each(site: Site, name: str, count: int) -> tuple[int, ...]:
    values = site.attributes.get(name, (0,) * count)
    if len(values) != count:
        raise InvalidError(Problem("TW2036", f"{name} has {len(values)} entries, not {count}"))
    return tuple(values)


def _axis(value: Value, axis: int) -> int:
    rank = len(value.shape)
    if not -rank <= axis < rank:
        raise InvalidError(Problem("TW2036", f"axis {axis} does not exist in a tensor of rank {rank}"))
    return axis % rank


def _part(importer: Importer, value: Value, axis: int, at: int) -> Value:
    def vector(number: int) -> np.ndarray[Any, Any]:
        return np.asarray([number], np.int64)

    piece = importer.graph.call("Slice", value, vector(at), vector(at + 1), vector(axis))
    result: Value = importer.graph.call("Squeeze", piece, vector(axis))
    return result


def _stacked(importer: Importer, column: list[Value], info: onnx.ValueInfoProto, axis: int) -> Value:
    """What the trips made, one behind another; of none, what ``info`` declares of one says the shape."""
    shape = column[0].shape if column else _declared_shape(info)
    rank = len(shape) + 1
    if not -rank <= axis < rank:
        raise InvalidError(Problem("TW2036", f"axis {axis} does not exist in a tensor of rank {rank}"))
    if not column:
        none = np.insert(np.array(shape, np.int64), axis % rank, 0)
        return importer.graph.constant(np.empty(none, helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)))
    pieces = [importer.graph.call("Unsqueeze", value, np.asarray([axis], np.int64)) for value in column]
    result: Value = importer.graph.call("Concat", *pieces, axis=axis)
    return result


def _declared_shape(info: onnx.ValueInfoProto) -> tuple[int, ...]:
    tensor = info.type.tensor_type
    if (
        not tensor.elem_type
        or not tensor.HasField("shape")
        or not all(d.HasField("dim_value") for d in tensor.shape.dim)
    ):
        hint = "declare the type and the shape of the scan outputs in the loop's body"
        raise UnsupportedError(
            Problem("TW2035", "a loop that runs no trip has scan outputs without a shape", hint=hint)
        )
    return tuple(dim.dim_value for dim in tensor.shape.dim)
