"""Group norms that a model spells out as the operator that they are, and what follows them in one kernel with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from compiler.frontend.affine_folding import of_channels
from compiler.frontend.graph import Array, Call, GraphBuilder, Value
from compiler.operators import TensorType, find_called

NORM, VIEW = "tilewright::GroupedNormalization", "Reshape"


def fuse_group_norms(graph: GraphBuilder, outputs: Iterable[Value]) -> list[Call]:
    """The calls of a graph, with

        reshape(instance_norm(reshape(x), 1, 0)) * scale + bias   ->  reshape(group_norm(reshape(x), scale, bias))
        f(reshape(group_norm(x)))                                 ->  reshape(f(group_norm(x)))

    1. Scale and bias are known, and of each channel. Nothing else reads what is computed on the way.
    2. f is an operator of ONNX that computes element by element, of such reshaped norms and of known numbers only:
       others may compute by where an element stands.
    """
    return list(_Norms(graph, Counter(outputs)).calls())


class _Norms:
    def __init__(self, graph: GraphBuilder, readers: Counter[Value]) -> None:
        self.graph, self.given = graph, list(graph.calls)
        self.readers = readers + Counter(value for call in self.given for value in dict.fromkeys(call.operands))
        self.maker: dict[Value, Call] = {}
        self.grouped: set[Value] = set()  # norms, and what is computed of them in their shape
        self.of_view: dict[Value, Value] = {}  # such values, by what they are reshaped to

    def calls(self) -> Iterator[Call]:
        for call in self.given:
            for made in self._spelled(call) or self._before_view(call) or [call]:
                self.maker.update(dict.fromkeys(made.results, made))
                if made.operator == NORM:
                    self.grouped.update(made.results)
                elif made.operator == VIEW and made.operands[0] in self.grouped:
                    self.of_view[made.results[0]] = made.operands[0]
                yield made

    def _spelled(self, shift: Call) -> list[Call]:
        scaling = self._only_for(shift, "Add")
        back = scaling and self._only_for(scaling, "Mul")
        norm = back and back.operator == VIEW and self._made_for_one(back.operands[0])
        if not (scaling and back and norm) or norm.operator != "InstanceNormalization":
            return []
        apart = self._made_for_one(norm.operands[0])
        terms = [_term(call, call.results[0].shape) for call in (scaling, shift)]
        if apart is None or apart.operator != VIEW or any(term is None for term in terms) or not _is_plain(norm):
            return []
        (x,), result, grouped = apart.operands, shift.results[0], apart.results[0].shape
        if x.shape != result.shape or grouped[0] != x.shape[0] or len(x.shape) < 3 or x.shape[1] % grouped[1]:
            return []
        channels = [np.broadcast_to(term, x.shape[1:2]) for term in terms if term is not None]
        attributes = {"num_groups": grouped[1], "epsilon": norm.attributes.get("epsilon", 1e-5)}
        nodes = [node for each in (apart, norm, back, scaling, shift) for node in each.nodes]
        return self._applied("GroupNormalization", (x, *channels), attributes, result, nodes)

    def _before_view(self, call: Call) -> list[Call]:
        recipe = self.graph.recipes.get(call.function)
        if recipe is None or recipe.declared.schedule != "elementwise" or "::" in recipe.declared.full_name:
            return []
        shape = call.results[0].shape
        if not call.operands or any(each not in self.of_view or each.shape != shape for each in call.operands):
            return []
        sources = [self.of_view[each] for each in call.operands]
        if len({each.shape for each in sources}) != 1:
            return []
        if any(each is not None and not isinstance(each, TensorType) and each.size > 1 for each in recipe.arguments):
            return []  # (2)
        before = len(self.graph.calls)
        tensors, known = iter(sources), iter(call.known)
        inputs = [
            None if each is None else next(tensors if isinstance(each, TensorType) else known)
            for each in recipe.arguments
        ]
        with self.graph.inside("/".join(call.nodes[:1])):
            (made,) = self.graph.apply(
                recipe.declared, inputs, recipe.attributes, opset=recipe.opset, outputs=recipe.outputs
            )
            self.graph.apply(find_called(VIEW), (made, np.array(shape)), {})
        self.grouped.add(made)
        return self.graph.taken(before, call.results[0], call.nodes)

    def _applied(
        self,
        name: str,
        inputs: tuple[Value | Array, ...],
        attributes: dict[str, object],
        result: Value,
        nodes: Sequence[str],
    ) -> list[Call]:
        before = len(self.graph.calls)
        with self.graph.inside("/".join(nodes[:1])):
            self.graph.apply(find_called(name), inputs, attributes)
        return self.graph.taken(before, result, nodes)

    def _only_for(self, call: Call, operator: str) -> Call | None:
        """What makes the operand of a call of that operator, beside a known one, and is read by nothing else."""
        unknown = [value for value in call.operands if value.constant is None]
        return self._made_for_one(unknown[0]) if call.operator == operator and len(unknown) == 1 else None

    def _made_for_one(self, value: Value) -> Call | None:
        return self.maker.get(value) if self.readers[value] == 1 else None


def _term(call: Call, shape: tuple[int, ...]) -> Array | None:
    known = [value for value in (*call.operands, *call.known) if value.constant is not None]
    return of_channels(known[0], shape) if len(known) == 1 else None


def _is_plain(norm: Call) -> bool:
    """Whether a norm neither scales nor shifts."""
    terms = [value.constant for value in norm.operands[1:]]
    return len(terms) == 2 and all(
        term is not None and bool((term == plain).all()) for term, plain in zip(terms, (1, 0), strict=True)
    )
