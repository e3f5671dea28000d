"""Elementwise work between transpositions that undo each other, in the order that the axes have around these.

    x' = transpose(x, p); y = relu(x' * s); z = transpose(y, inverse(p))   ->   z = relu(x * transpose(s, inverse(p)))

Networks with channels last are exported so, each convolution between two transpositions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from compiler.frontend.graph import Array, Call, GraphBuilder, Value
from compiler.operators import TensorType, find_called

MOVE = "Transpose"
JOIN = "Concat"
REDUCTIONS = frozenset({"ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum"})
# Those of which an element of the result is made of what is at the same place of all operands, with broadcasting.
ELEMENTWISE = frozenset(
    "Abs Add Cast Ceil Clip Div Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log Max Min Mish Mul Neg PRelu "
    "Pow Reciprocal Relu Round Selu Sigmoid Sign Softplus Softsign Sqrt Sub Tanh ThresholdedRelu Where".split()
)
_LEAST_RANK = 3
Order = tuple[int, ...]


def keep_orders(graph: GraphBuilder, outputs: Iterable[Value]) -> list[Call]:
    """The calls of a graph, with parts of it in another order of their axes where less is moved then.

    A part is what hangs together of elementwise calls, of joins, and of reductions that keep their axes.

    1. All it reads has as many axes as what it makes, or is known, or is a single number.
    2. Transpositions that only it reads, and those of its results that end up as the part is, are left out. What else
       it reads, and what else reads it, needs one: these move fewer elements, and are no more.
    """
    calls, given = list(graph.calls), list(outputs)
    while (changed := _changed(graph, calls, given)) is not None:
        calls = changed
    return calls


def _changed(graph: GraphBuilder, calls: list[Call], outputs: list[Value]) -> list[Call] | None:
    links = _Links.of(calls, outputs)
    for part in _parts(graph, calls, links):
        for order in dict.fromkeys(_orders(part, links)):
            change = _Change.of(part, order, links)
            if change.pays:
                return change.apply(graph, calls)
    return None


@dataclass
class _Links:
    maker: dict[Value, Call] = field(default_factory=dict)
    readers: dict[Value, list[Call | None]] = field(default_factory=dict)  # None is the caller

    @staticmethod
    def of(calls: Iterable[Call], outputs: Iterable[Value]) -> _Links:
        links = _Links()
        for call in calls:
            links.maker.update(dict.fromkeys(call.results, call))
            for value in dict.fromkeys(call.operands):
                links.readers.setdefault(value, []).append(call)
        for value in outputs:
            links.readers.setdefault(value, []).append(None)
        return links

    def turned(self, value: Value) -> Call | None:
        """The transposition that makes a value."""
        maker = self.maker.get(value)
        return maker if maker is not None and maker.operator == MOVE else None


def _parts(graph: GraphBuilder, calls: Iterable[Call], links: _Links) -> Iterator[list[Call]]:
    """What hangs together, each in order."""
    part_of: dict[int, list[Call]] = {}
    for call in calls:
        if not _is_of_places(graph, call):
            continue
        part = [call]
        for value in call.operands:
            maker = links.maker.get(value)
            before = None if maker is None else part_of.get(id(maker))
            if before is not None and before is not part and _rank(before[0]) == _rank(call):
                part = before + part
        part_of.update((id(each), part) for each in part)
    seen = {id(part): part for part in part_of.values()}
    position = {id(call): at for at, call in enumerate(calls)}
    for part in seen.values():
        yield sorted(part, key=lambda call: position[id(call)])


def _rank(call: Call) -> int:
    return len(call.results[0].shape)


def _is_of_places(graph: GraphBuilder, call: Call) -> bool:
    """Whether a call may be made in any order of its axes (1)."""
    recipe = graph.recipes.get(call.function)
    if recipe is None or len(call.results) != 1 or _rank(call) < _LEAST_RANK:
        return False
    rank = _rank(call)
    read = [value for value in call.operands if value.constant is None]
    if any(len(value.shape) != rank and prod(value.shape) != 1 for value in read):
        return False
    if call.operator in ELEMENTWISE:
        fits = all(len(value.shape) <= rank for value in call.operands)
        return fits and all(prod(value.shape) == 1 for value in call.known)
    if call.operator == JOIN:
        return all(len(value.shape) == rank for value in call.operands)
    return call.operator in REDUCTIONS and bool(recipe.attributes.get("keepdims", 1)) and len(read) == 1


def _orders(part: Iterable[Call], links: _Links) -> Iterator[Order]:
    """In which order axes of the part may be: p, where what is now ``transpose(x, p)`` would be x."""
    for call in part:
        for value in call.operands:
            if (before := links.turned(value)) is not None:
                yield _order(before)
        for after in links.readers.get(call.results[0], ()):
            if after is not None and after.operator == MOVE:
                yield _inverse(_order(after))


def _order(transposition: Call) -> Order:
    rank = len(transposition.results[0].shape)
    return tuple(transposition.attributes.get("perm") or reversed(range(rank)))


def _inverse(order: Order) -> Order:
    return tuple(int(at) for at in np.argsort(order))


@dataclass
class _Change:
    part: list[Call]
    order: Order
    before: dict[Value, Call] = field(default_factory=dict)  # what it reads that is turned already
    turned: list[Value] = field(default_factory=list)  # what it reads that is to be
    after: dict[Value, list[Call]] = field(default_factory=dict)  # transpositions back of what it makes
    kept: list[Value] = field(default_factory=list)  # what it makes that somebody reads in the old order
    dropped: list[Call] = field(default_factory=list)

    @staticmethod
    def of(part: list[Call], order: Order, links: _Links) -> _Change:
        change, inside = _Change(part, order), {id(call) for call in part}
        made = {call.results[0] for call in part}
        back = _inverse(order)
        for value in dict.fromkeys(value for call in part for value in call.operands):
            if value in made or value.constant is not None or len(value.shape) != len(order) or prod(value.shape) == 1:
                continue
            move = links.turned(value)
            if move is None or _order(move) != order or move.operands[0] in made:
                change.turned.append(value)
                continue
            change.before[value] = move
            if all(user is not None and id(user) in inside for user in links.readers[value]):
                change.dropped.append(move)
        for value in made:
            users = [user for user in links.readers.get(value, ()) if user is None or id(user) not in inside]
            moves = [user for user in users if user is not None and user.operator == MOVE and _order(user) == back]
            # Of several results of a model that are the same, each is one.
            moves = [
                move for at, move in enumerate(moves) if at == 0 or None not in links.readers.get(move.results[0], ())
            ]
            if len(users) > len(moves):
                change.kept.append(value)
            if moves:
                change.after[value] = moves
            change.dropped += moves
        return change

    @property
    def pays(self) -> bool:
        """Whether transpositions are fewer, and move less (2)."""
        fewer = [prod(call.results[0].shape) for call in self.dropped]
        more = [prod(value.shape) for value in (*self.turned, *self.kept)]
        return len(fewer) >= len(more) and sum(fewer) > sum(more)

    def apply(self, graph: GraphBuilder, calls: list[Call]) -> list[Call]:
        inside, dropped = {id(call) for call in self.part}, {id(call) for call in self.dropped}
        now: dict[Value, Value] = {value: move.operands[0] for value, move in self.before.items()}
        same: dict[Value, Value] = {}
        waiting, changed = set(self.turned), list[Call]()

        for call in calls:
            if id(call) in dropped:
                continue
            if id(call) not in inside:
                operands = tuple(same.get(value, value) for value in call.operands)
                changed.append(call if operands == call.operands else replace(call, operands=operands))
                continue
            for value in call.operands:
                if value in waiting:
                    waiting.discard(value)
                    moved = [same.get(value, value)]
                    now[value] = _made(graph, changed, call.nodes, MOVE, moved, perm=_inverse(self.order))
            result = call.results[0]
            moves = self.after.get(result, [])
            remade = self._remade(graph, call, [self._in_order(value, now) for value in call.operands])
            remade = replace(remade, operands=tuple(same.get(value, value) for value in remade.operands))
            if moves:
                remade = replace(remade, results=moves[0].results)
                same.update((move.results[0], moves[0].results[0]) for move in moves[1:])
            # The nodes of what is left out are those of who does without.
            out = [move for value in call.operands if (move := self.before.get(value)) and id(move) in dropped]
            nodes = [*(node for move in out for node in move.nodes), *call.nodes, *(n for m in moves for n in m.nodes)]
            changed.append(replace(remade, nodes=tuple(dict.fromkeys(nodes))))
            now[result] = remade.results[0]
            if result in self.kept:
                _made(graph, changed, call.nodes, MOVE, [now[result]], perm=self.order)
                changed[-1] = replace(changed[-1], results=(result,))
        return changed

    def _in_order(self, value: Value, now: dict[Value, Value]) -> Value:
        if value in now or value.constant is None or prod(value.shape) == 1:
            return now.get(value, value)
        own = np.asarray(value.constant).reshape((1,) * (len(self.order) - len(value.shape)) + value.shape)
        array = np.ascontiguousarray(own.transpose(_inverse(self.order)))
        return Value(value.name, array.shape, value.dtype, value.element_type, array)

    def _remade(self, graph: GraphBuilder, call: Call, operands: list[Value]) -> Call:
        recipe = graph.recipes[call.function]
        given, known = iter(operands), iter(call.known)
        inputs: list[Value | Array | None] = []
        for argument in recipe.arguments:
            if argument is None:
                inputs.append(None)
            else:
                inputs.append(next(given) if isinstance(argument, TensorType) else next(known))
        attributes, rank = dict(recipe.attributes), len(self.order)
        if call.operator == JOIN:
            attributes["axis"] = self.order[int(attributes.get("axis", 1)) % rank]
        elif call.operator in REDUCTIONS and attributes.get("axes") is not None:
            attributes["axes"] = tuple(self.order[int(axis) % rank] for axis in attributes["axes"])
        elif call.operator in REDUCTIONS and len(inputs) > 1 and isinstance(axes := inputs[1], Value):
            places = np.asarray(axes.constant).reshape(-1)
            inputs[1] = np.array([self.order[int(axis) % rank] for axis in places], np.int64)
        graph.apply(recipe.declared, inputs, attributes, opset=recipe.opset, outputs=recipe.outputs)
        made = graph.calls.pop()
        (result,), (old,) = made.results, call.results
        renamed = Value(f"{old.name}_moved", result.shape, old.dtype, old.element_type)
        return replace(made, results=(renamed,))


def _made(
    graph: GraphBuilder, calls: list[Call], nodes: tuple[str, ...], name: str, operands: list[Value], **attributes: Any
) -> Value:
    """Put a call behind others, and answer its result."""
    graph.apply(find_called(name), operands, attributes, outputs=1)
    made = graph.calls.pop()
    calls.append(replace(made, nodes=nodes))
    return made.results[0]
