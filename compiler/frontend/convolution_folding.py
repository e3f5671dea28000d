"""What is done to the results of convolutions with known weights, done to the weights instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from compiler.frontend.affine_folding import AFFINE, Affine, chained, is_known, scaled
from compiler.frontend.graph import Call, GraphBuilder, Value
from compiler.frontend.summed_convolutions import summed


def fold_convolutions(graph: GraphBuilder, calls: Sequence[Call], outputs: Iterable[Value]) -> list[Call]:
    """Convolutions whose channels are scaled and shifted, or which are added to others of the same map, as single ones.

    What scales and shifts twice does so once: depthwise kernels of one element do no more.

    1. Nothing else reads what a convolution makes: it would have to be computed twice.
    2. Weights, bias, factor and shift are known, and are floats. They are rounded once, behind what is done to them.
    """
    readers = Counter(value for call in calls for value in dict.fromkeys(call.operands)) + Counter(outputs)
    return _Folding(graph, readers).of(calls)


class _Folding:
    def __init__(self, graph: GraphBuilder, readers: Counter[Value]) -> None:
        self.graph, self.readers = graph, readers
        self.made: dict[Value, Call] = {}

    def of(self, calls: Sequence[Call]) -> list[Call]:
        for call in calls:
            call = self._after_one(call) or self._sum(call) or call
            self.made.update(dict.fromkeys(call.results, call))
        return list(dict.fromkeys(self.made.values()))

    def _after_one(self, call: Call) -> Call | None:
        affine = Affine.of(call)
        maker = None if affine is None else self._only_for_it(affine.x)
        if affine is None or maker is None:
            return None
        found = None
        if is_known(maker):
            found = scaled(self.graph, maker, affine)
        elif call.operator == maker.operator == AFFINE and (before := Affine.of(maker)) is not None:
            found = chained(self.graph, before, affine)
        if found is not None:
            del self.made[affine.x]
        return found

    def _sum(self, call: Call) -> Call | None:
        if call.operator != "Add" or len(set(call.operands)) != 2:
            return None
        first, second = (self._only_for_it(value) for value in call.operands)
        found = first and second and summed(self.graph, first, second, call)
        if not found:
            return None
        for value in call.operands:
            del self.made[value]
        return found

    def _only_for_it(self, value: Value) -> Call | None:
        """What makes a value, if that has one reader."""
        return self.made.get(value) if self.readers[value] == 1 else None
