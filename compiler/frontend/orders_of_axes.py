"""Elementwise work between transpositions that undo each other, in the order that the axes have around these.

    x' = transpose(x, p); y = relu(x' * s); z = transpose(y, inverse(p))   ->   z = relu(x * transpose(s, inverse(p)))

Networks with channels last are exported so, each convolution between two transpositions. Others do that for what they
write along the last axis, layer norms and products by a matrix: both are as good along the channels of a map.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from compiler.frontend.channel_work import NORM, along_channels, is_along_last, is_to_channels
from compiler.frontend.graph import Call, GraphBuilder, Value
from compiler.operators import find_called

MOVE = "Transpose"
JOIN = "Concat"
REDUCTIONS = frozenset({"ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare"})
# Those of which an element of the result is made of what is at the same place of all operands, with broadcasting.
ELEMENTWISE = frozenset(
    "Abs Add Cast Ceil Clip Div Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log Max Min Mish Mul Neg PRelu "
    "Pow Reciprocal Relu Round Selu Sigmoid Sign Softplus Softsign Sqrt Sub Tanh ThresholdedRelu Where".split()
)
_LEAST_RANK = 3
Order = tuple[int, ...]


def keep_orders(graph: GraphBuilder, outputs: Iterable[Value]) -> list[Call]:
    """The calls of a graph, with parts of it in another order of their axes where less is moved then.

    A part is what hangs together of elementwise calls, of joins, of reductions that keep their axes, and around a layer
    norm of what works along the last one.

    1. All it reads has as many axes as what it makes, or is known, or is a single number.
    2. Transpositions that only it reads, and those of its results that end up as the part is, are left out. What else
       it reads, and what else reads it, needs one: these move fewer elements, and are no more.
    3. What works along the last axis does so along channels then, and nothing has to be moved for it.
    """
    calls, given = list(graph.calls), list(outputs)
    while changes := _changes(graph, calls, given):
        calls = _changed(graph, calls, changes)
    return calls


def _changes(graph: GraphBuilder, calls: Sequence[Call], outputs: Iterable[Value]) -> list[_Change]:
    """What pays, of parts between which no transposition stands: each pays beside the others."""
    if all(call.operator != MOVE for call in calls):
        return []
    links = _Links.of(calls, outputs)
    found: list[_Change] = []
    taken = set[int]()
    for along_last in (True, False):
        for part in _parts(graph, calls, links, along_last=along_last):
            if along_last and all(call.operator != NORM for call in part):
                continue
            for order in dict.fromkeys(_orders(part, links)):
                change = _Change.of(part, order, links)
                fits = not along_last or (is_to_channels(order) and not change.more)  # (3)
                if fits and change.pays and taken.isdisjoint(change.moves):
                    found.append(change)
                    taken |= change.moves
                    break
    return found


def _changed(graph: GraphBuilder, calls: Iterable[Call], changes: Iterable[_Change]) -> list[Call]:
    change_of = {id(call): change for change in changes for call in change.part}
    dropped = {id(call) for change in changes for call in change.dropped}
    same: dict[Value, Value] = {}
    changed: list[Call] = []
    for call in calls:
        change = change_of.get(id(call))
        if change is not None:
            changed += change.made(graph, call, same, dropped)
        elif id(call) not in dropped:
            operands = tuple(same.get(value, value) for value in call.operands)
            changed.append(call if operands == call.operands else replace(call, operands=operands))
    return changed


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


def _parts(graph: GraphBuilder, calls: Iterable[Call], links: _Links, *, along_last: bool) -> Iterator[list[Call]]:
    """What hangs together, each in order; also of what works along the last axis, if that is wanted."""
    part_of: dict[Call, Call] = {}  # towards the call that stands for its part

    def whole(call: Call) -> Call:
        while (further := part_of[call]) is not call:
            part_of[call] = call = part_of[further]
        return call

    for call in calls:
        if _is_of_places(graph, call) or (along_last and is_along_last(graph, call)):
            part_of[call] = call
            for value in call.operands:
                maker = links.maker.get(value)
                if maker in part_of and _rank(maker) == _rank(call):
                    part_of[whole(maker)] = call
    parts: dict[int, list[Call]] = {}
    for call in part_of:
        parts.setdefault(id(whole(call)), []).append(call)
    yield from parts.values()


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
                yield order_of(before)
        for after in links.readers.get(call.results[0], ()):
            if after is not None and after.operator == MOVE:
                yield inverse_of(order_of(after))


def order_of(transposition: Call) -> Order:
    rank = len(transposition.results[0].shape)
    return tuple(transposition.attributes.get("perm") or reversed(range(rank)))


def inverse_of(order: Order) -> Order:
    return tuple(int(at) for at in np.argsort(order))


@dataclass
class _Change:
    part: list[Call]
    order: Order
    before: dict[Value, Call] = field(default_factory=dict)  # what it reads that is turned already
    turned: set[Value] = field(default_factory=set)  # what it reads that is to be
    after: dict[Value, list[Call]] = field(default_factory=dict)  # transpositions back of what it makes
    kept: set[Value] = field(default_factory=set)  # what it makes that somebody reads in the old order
    dropped: list[Call] = field(default_factory=list)
    _now: dict[Value, Value] = field(default_factory=dict)  # what is read or made of the part, in the other order

    @staticmethod
    def of(part: list[Call], order: Order, links: _Links) -> _Change:
        change, inside = _Change(part, order), {id(call) for call in part}
        made = {call.results[0] for call in part}
        back = inverse_of(order)
        for value in dict.fromkeys(value for call in part for value in call.operands):
            if value in made or value.constant is not None or len(value.shape) != len(order) or prod(value.shape) == 1:
                continue
            move = links.turned(value)
            if move is None or order_of(move) != order or move.operands[0] in made:
                change.turned.add(value)
                continue
            change.before[value] = move
            change._now[value] = move.operands[0]
            if all(user is not None and id(user) in inside for user in links.readers[value]):
                change.dropped.append(move)
        for value in made:
            users = [user for user in links.readers.get(value, ()) if user is None or id(user) not in inside]
            moves = [user for user in users if user is not None and user.operator == MOVE and order_of(user) == back]
            # Of several results of a model that are the same, each is one.
            moves = [
                move for at, move in enumerate(moves) if at == 0 or None not in links.readers.get(move.results[0], ())
            ]
            if len(users) > len(moves):
                change.kept.add(value)
            if moves:
                change.after[value] = moves
            change.dropped += moves
        return change

    @property
    def moves(self) -> set[int]:
        """The transpositions next to the part, by their identity."""
        after = (move for moves in self.after.values() for move in moves)
        return {id(move) for move in (*self.before.values(), *after)}

    @property
    def pays(self) -> bool:
        """Whether transpositions are fewer, and move less (2)."""
        fewer = [prod(call.results[0].shape) for call in self.dropped]
        more = [prod(value.shape) for value in self.more]
        return len(fewer) >= len(more) and sum(fewer) > sum(more)

    @property
    def more(self) -> list[Value]:
        """What has to be transposed."""
        return [*self.turned, *self.kept]

    def made(self, graph: GraphBuilder, call: Call, same: dict[Value, Value], dropped: Container[int]) -> list[Call]:
        """A call of the part in the other order, with the transpositions that it needs. What is the ``same`` as another
        value is noted.
        """
        made: list[Call] = []
        for value in call.operands:
            if value in self.turned and value not in self._now:
                moved = [same.get(value, value)]
                self._now[value] = _made(graph, made, call.nodes, MOVE, moved, perm=inverse_of(self.order))
        result = call.results[0]
        moves = self.after.get(result, [])
        # The nodes of what is left out are those of who does without.
        out = [move for value in call.operands if (move := self.before.get(value)) and id(move) in dropped]
        nodes = [*(node for move in out for node in move.nodes), *call.nodes, *(n for m in moves for n in m.nodes)]
        for remade in self._remade(graph, call, nodes):
            made.append(replace(remade, operands=tuple(same.get(value, value) for value in remade.operands)))
        if moves:
            made[-1] = replace(made[-1], results=moves[0].results)
            same.update((move.results[0], moves[0].results[0]) for move in moves[1:])
        self._now[result] = made[-1].results[0]
        if result in self.kept:
            _made(graph, made, call.nodes, MOVE, [self._now[result]], perm=self.order)
            made[-1] = replace(made[-1], results=(result,))
        return made

    def _in_order(self, value: Value) -> Value:
        if value in self._now or value.constant is None or prod(value.shape) == 1:
            return self._now.get(value, value)
        own = np.asarray(value.constant).reshape((1,) * (len(self.order) - len(value.shape)) + value.shape)
        array = np.ascontiguousarray(own.transpose(inverse_of(self.order)))
        return Value(value.name, array.shape, value.dtype, value.element_type, array)

    def _remade(self, graph: GraphBuilder, call: Call, nodes: Sequence[str]) -> list[Call]:
        """The calls that make in the other order what a call makes."""
        before, (old,) = len(graph.calls), call.results
        if is_along_last(graph, call):
            along_channels(graph, call, self._in_order(call.operands[0]))
        else:
            self._make_again(graph, call, [self._in_order(value) for value in call.operands])
        made = graph.calls[-1].results[0]
        renamed = Value(f"{old.name}_moved", made.shape, old.dtype, old.element_type)
        return graph.taken(before, renamed, nodes)

    def _make_again(self, graph: GraphBuilder, call: Call, operands: list[Value]) -> None:
        """Make the same of operands in the other order."""
        recipe, inputs = graph.recipes[call.function], graph.inputs_of(call, operands)
        attributes, rank = dict(recipe.attributes), len(self.order)
        if call.operator == JOIN:
            attributes["axis"] = self.order[int(attributes.get("axis", 1)) % rank]
        elif call.operator in REDUCTIONS and attributes.get("axes") is not None:
            attributes["axes"] = tuple(self.order[int(axis) % rank] for axis in attributes["axes"])
        elif call.operator in REDUCTIONS and len(inputs) > 1 and isinstance(axes := inputs[1], Value):
            places = np.asarray(axes.constant).reshape(-1)
            inputs[1] = np.array([self.order[int(axis) % rank] for axis in places], np.int64)
        graph.apply(recipe.declared, inputs, attributes, opset=recipe.opset, outputs=recipe.outputs)


def _made(
    graph: GraphBuilder, calls: list[Call], nodes: tuple[str, ...], name: str, operands: list[Value], **attributes: Any
) -> Value:
    """Put a call behind others, and answer its result."""
    before = len(graph.calls)
    (result,) = graph.apply(find_called(name), operands, attributes, outputs=1)
    calls += graph.taken(before, result, nodes)
    return result
