"""What lies in memory while a graph runs: its tensors, and how long each of them lives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

from compiler import graph
from compiler.schedule.work import size_bytes
from compiler.tiling.fusion import replaced_by


@dataclass(frozen=True)
class Operator:
    """One call of the graph; its tensors by their number."""

    name: str
    callee: str
    arguments: tuple[int, ...]
    makes: tuple[int, ...]
    is_view: bool = False  # which is no work
    replaces: int | None = None  # the tensor in whose bytes it makes its result

    @property
    def reads(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(self.arguments))


@dataclass
class Tensor:
    """Bytes that one call makes and others read, under whatever shapes. What the model is given is made by none."""

    size_bytes: int
    made: int  # by which call; -1 for inputs and constants
    last: int  # call that reads it
    is_result: bool = False  # of the model
    is_input: bool = False  # of the model: not a constant

    @property
    def is_between(self) -> bool:
        return self.made >= 0 and not self.is_result


@dataclass
class Storage:
    """The calls of a graph in their order, and their tensors."""

    operators: tuple[Operator, ...]
    tensors: tuple[Tensor, ...]
    number: Mapping[Any, int] = field(repr=False)  # of a variable of the graph: its tensor

    @cached_property
    def live_bytes(self) -> list[int]:
        """By call: of what lies between calls while it runs."""
        changes = [0] * (len(self.operators) + 1)
        for tensor in self.tensors:
            if tensor.is_between:
                changes[tensor.made] += tensor.size_bytes
                changes[tensor.last + 1] -= tensor.size_bytes
        live = list(accumulate(changes))[:-1]
        return [size - less for size, less in zip(live, self.replaced_bytes, strict=True)]

    @cached_property
    def replaced_bytes(self) -> list[int]:
        """By call: of a tensor in whose bytes it makes another."""
        return [0 if each.replaces is None else self.tensors[each.replaces].size_bytes for each in self.operators]

    @cached_property
    def crossing_bytes(self) -> list[int]:
        """By call: of what was made before it, and is read by it or later."""
        changes = [0] * (len(self.operators) + 2)
        for tensor in self.tensors:
            if tensor.is_between and tensor.last > tensor.made:
                changes[tensor.made + 1] += tensor.size_bytes
                changes[tensor.last + 1] -= tensor.size_bytes
        return list(accumulate(changes))[: len(self.operators)]


def storage_of(module: Any, body: graph.Body) -> Storage:
    tensors, number = list[Tensor](), dict[Any, int]()
    operators = list[Operator]()

    def add(value: Any, kind: Any, made: int) -> int:
        number[value] = len(tensors)
        tensors.append(Tensor(size_bytes(kind), made, made))
        return number[value]

    inputs = int(graph.attribute(module["main"], "num_input", len(body.params)))
    for index, param in enumerate(body.params):
        tensors[add(param, param.ty, -1)].is_input = index < inputs
    for at, call in enumerate(body.calls):
        arguments = tuple(number[argument] for argument in call.arguments)
        for read in arguments:
            tensors[read].last = at
        if graph.attribute(module[call.callee], "tw.schedule") == "view":
            number[call.var] = arguments[0]
            operators.append(Operator(call.name, call.callee, arguments, (), is_view=True))
            continue
        makes = tuple(add(value, kind, at) for value, kind in results_of(body, call))
        operators.append(Operator(call.name, call.callee, arguments, makes))
    for result in body.results:
        tensors[number[result]].is_result = True
        tensors[number[result]].last = len(operators) - 1
    found = zip(body.calls, operators, strict=True)
    placed = [
        replace(each, replaces=_replaced(module, call, at, each, tensors, number))
        for at, (call, each) in enumerate(found)
    ]
    return Storage(tuple(placed), tuple(tensors), number)


def _replaced(
    module: Any, call: graph.Call, at: int, operator: Operator, tensors: Sequence[Tensor], number: Mapping[Any, int]
) -> int | None:
    """The tensor that a call is the last to read, and over which it may write its result."""
    if operator.is_view or len(operator.makes) != 1 or not tensors[operator.makes[0]].is_between:
        return None
    arguments = [number[argument] for argument in call.arguments]
    own = tensors[operator.makes[0]].size_bytes
    able = [n for n in arguments if tensors[n].is_between and tensors[n].last == at and tensors[n].size_bytes == own]
    able = [n for n in able if arguments.count(n) == 1]
    inputs = [source for _, source in replaced_by(module, call.callee)] if able else []
    return next((arguments[source] for source in inputs if arguments[source] in able), None)


def results_of(body: graph.Body, call: graph.Call) -> list[tuple[Any, Any]]:
    """The variables of a call's results, and their types."""
    if len(call.types) == 1:
        return [(call.var, call.types[0])]
    fields = {index: var for var, (source, index) in body.fields.items() if source.same_as(call.var)}
    return [(fields.get(index, (call.var, index)), kind) for index, kind in enumerate(call.types)]
