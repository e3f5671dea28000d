"""What lies in memory while a graph runs: its tensors, and how long each of them lives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

from compiler import clusters, graph
from compiler.parts import band_of, cut_offset
from compiler.schedule.work import functions_of, size_bytes
from compiler.tiling.fusion import replaced_by


@dataclass(frozen=True)
class Operator:
    """One call of the graph; its tensors by their number."""

    name: str
    callee: str
    arguments: tuple[int, ...]
    makes: tuple[int, ...]
    is_view: bool = False  # which is no work: of all of a tensor, or of a part of it that is read where it is
    needs: tuple[int, ...] = ()  # calls whose results it is given, views among them
    portions: tuple[float, ...] = ()  # what its arguments are of the tensors in which they lie; all, if nothing is said
    replaceable: tuple[int, ...] = ()  # tensors in whose bytes it can make its result, once nobody else reads them

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
    is_common: bool = False  # of what clusters read, each for its part of the batch: the same for all
    is_far: bool = False  # whether it is to lie in DDR

    @property
    def is_same_for_all_pieces(self) -> bool:
        return self.made < 0 and (self.is_common or not self.is_input)

    @property
    def is_between(self) -> bool:
        """Whether it takes room on the chip, or could."""
        return self.made >= 0 and not self.is_result and not self.is_far


@dataclass
class Storage:
    """The calls of a graph in their order, and their tensors."""

    operators: tuple[Operator, ...]
    tensors: tuple[Tensor, ...]
    number: Mapping[Any, int] = field(repr=False)  # of a variable of the graph: its tensor

    def with_far(self, number: int) -> Storage:
        """The same with one more tensor in DDR."""
        tensors = [replace(each, is_far=each.is_far or at == number) for at, each in enumerate(self.tensors)]
        return replace(self, tensors=tuple(tensors))

    @cached_property
    def live_bytes(self) -> list[int]:
        """By call: of what lies between calls while it runs."""
        changes = [0] * (len(self.operators) + 1)
        for tensor in self.tensors:
            if tensor.is_between:
                changes[tensor.made] += tensor.size_bytes
                changes[tensor.last + 1] -= tensor.size_bytes
        live = list(accumulate(changes))[:-1]
        return [size - self._replaced_bytes(at) for at, size in enumerate(live)]

    def _replaced_bytes(self, at: int) -> int:
        """Of a tensor in whose bytes a call makes another."""
        able = (self.tensors[number] for number in self.operators[at].replaceable)
        return next((tensor.size_bytes for tensor in able if tensor.last == at and tensor.is_between), 0)


def storage_of(module: Any, body: graph.Body) -> Storage:
    tensors, number = list[Tensor](), dict[Any, int]()
    operators, made = list[Operator](), dict[Any, int]()  # by what call a variable is made

    def add(value: Any, kind: Any, made: int) -> int:
        number[value] = len(tensors)
        tensors.append(Tensor(size_bytes(kind), made, made))
        return number[value]

    results, common = set(body.results), clusters.common_parameters(module)
    inputs = int(graph.attribute(module["main"], "num_input", len(body.params)))
    for index, param in enumerate(body.params):
        tensors[add(param, param.ty, -1)].is_input = index < inputs
        tensors[number[param]].is_common = param in common
    for at, call in enumerate(body.calls):
        arguments = tuple(number[argument] for argument in call.arguments)
        portions = tuple(
            min(1.0, size_bytes(argument.ty) / max(1, tensors[number[argument]].size_bytes))
            for argument in call.arguments
        )
        needs = tuple(dict.fromkeys(made[argument] for argument in call.arguments if argument in made))
        made.update((value, at) for value, _ in results_of(body, call))
        for read in arguments:
            tensors[read].last = at
        if _is_seen(module, call, is_result=call.var in results):
            number[call.var] = arguments[0]
            operators.append(Operator(call.name, call.callee, arguments, (), is_view=True, needs=needs))
            continue
        makes = tuple(add(value, kind, at) for value, kind in results_of(body, call))
        operators.append(Operator(call.name, call.callee, arguments, makes, needs=needs, portions=portions))
    for result in body.results:
        tensors[number[result]].is_result = True
        tensors[number[result]].last = len(operators) - 1
    placed = [
        replace(each, replaceable=_replaceable(module, call, each, tensors, number))
        for call, each in zip(body.calls, operators, strict=True)
    ]
    return Storage(tuple(placed), tuple(tensors), number)


def _is_seen(module: Any, call: graph.Call, *, is_result: bool) -> bool:
    """Whether what a call makes is its argument, or a part that lies there; results have places of their own."""
    if graph.attribute(module[call.callee], "tw.schedule") == "view":
        return True
    functions = functions_of(module, call.callee)
    if is_result or len(functions) > 1:
        return False
    return cut_offset(functions[0], call.arguments) is not None or band_of(functions[0]) is not None


def _replaceable(
    module: Any, call: graph.Call, operator: Operator, tensors: Sequence[Tensor], number: Mapping[Any, int]
) -> tuple[int, ...]:
    """The tensors over which a call may write its result if nobody reads them after it: the first one that it is."""
    if operator.is_view or len(operator.makes) != 1 or not tensors[operator.makes[0]].is_between:
        return ()
    arguments = [number[argument] for argument in call.arguments]
    own = tensors[operator.makes[0]].size_bytes
    able = [n for n in arguments if tensors[n].is_between and tensors[n].size_bytes == own and arguments.count(n) == 1]
    inputs = [source for _, source in replaced_by(module, call.callee)] if able else []
    return tuple(arguments[source] for source in inputs if arguments[source] in able)


def results_of(body: graph.Body, call: graph.Call) -> list[tuple[Any, Any]]:
    """The variables of a call's results, and their types."""
    if len(call.types) == 1:
        return [(call.var, call.types[0])]
    fields = {index: var for var, (source, index) in body.fields.items() if source.same_as(call.var)}
    return [(fields.get(index, (call.var, index)), kind) for index, kind in enumerate(call.types)]
