"""Tensors that are parts of others: written where they end up, read where they are, and never copied.

    c = concat(a, b)    ->    a and b are made in the bytes of c
    s = x[2:4]          ->    who reads s reads these bytes of x

1. A part lies in one piece in the whole: it is cut along the first axis that has more than one element.
2. What moves lives between kernels. What the caller or the model holds has a place of its own: what is cut from it
   lies there, and what is joined to a result of the model is made there.
3. What several parts of a whole lie in moves into it altogether, or stays: a tensor is in one place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import prod
from typing import Any

from tvm import ir, tirx

from compiler import graph
from compiler.tir.structure import structural_walk

MOVES = ("movement", "gather")  # classes of operators that may only say where something lies


@dataclass
class Parts:
    """By buffer: the one that it lies in, and at which of its bytes.

    ``sizes`` are those of what may be a part; ``apart`` has a place of its own, and ``results`` of these are written.
    """

    sizes: Mapping[str, int]
    apart: Set[str] = frozenset()
    results: Set[str] = frozenset()
    within: dict[str, tuple[str, int]] = field(default_factory=dict)

    def place(self, name: str) -> tuple[str, int]:
        """The outermost buffer that a buffer lies in, which may be itself, and where."""
        offset = 0
        while name in self.within:
            name, inner = self.within[name]
            offset += inner
        return name, offset

    def cut(self, part: str, whole: str, offset_bytes: int) -> bool:
        """Let a part lie where it is cut from, if it may."""
        if part not in self.sizes or self.place(whole)[0] not in (self.sizes.keys() | self.apart):
            return False
        self.within[part] = whole, offset_bytes
        return True

    def join(self, whole: str, parts: Sequence[str]) -> bool:
        """Let all parts lie one after another in the whole, if they may."""
        moves, held, start = dict[str, int](), dict[str, list[tuple[int, int]]](), 0
        for part in parts:
            outer, offset = self.place(part)
            if part not in self.sizes or moves.setdefault(outer, start - offset) != start - offset:
                return False
            held.setdefault(outer, []).append((offset, offset + self.sizes[part]))
            start += self.sizes[part]
        if whole not in (self.sizes.keys() | self.results) or whole in self.within or whole in moves:
            return False
        if not all(outer in self.sizes and _covers(spans, self.sizes[outer]) for outer, spans in held.items()):
            return False
        self.within.update((outer, (whole, offset)) for outer, offset in moves.items())
        return True


def _covers(spans: Sequence[tuple[int, int]], size: int) -> bool:
    """Condition 3: each byte once."""
    ends = [0, *(high for _, high in sorted(spans))]
    return ends[-1] == size and [low for low, _ in sorted(spans)] == ends[:-1]


def cut_offset(func: Any, arguments: Sequence[Any]) -> int | None:
    """The first element of its first argument that a call's result consists of; None where that is no part (1)."""
    return _moved(func) if graph.attribute(func, "tw.schedule") in MOVES and len(arguments) == 1 else None


def is_join(func: Any) -> bool:
    """Whether a call's result is its arguments, one after another (1)."""
    if graph.attribute(func, "tw.operator") != "Concat" or len(func.params) < 3:
        return False
    *parts, whole = ([int(n) for n in param.shape] for param in func.params)
    differing = next((axis for axis, extent in enumerate(whole) if extent != parts[0][axis]), 0)
    return prod(whole[:differing]) == 1


def _moved(func: Any) -> int | None:
    """Of a function that reads one element for each of its result: how far behind these they all are."""
    stores: list[Any] = []
    structural_walk(func.body, (tirx.BufferStore, stores.append))
    if len(stores) != 1 or not isinstance(stores[0].value, ir.TensorLoad):
        return None
    source, result, store = func.params[0].shape, func.params[-1].shape, stores[0]
    still = [index for index, extent in zip(store.indices, result, strict=True) if int(extent) == 1]
    read, written = _terms(store.value.indices, source, still), _terms(store.indices, result, still)
    if read is None or written is None or read[0] != written[0]:
        return None
    return read[1] - written[1]


def _terms(indices: Sequence[Any], shape: Sequence[Any], still: Sequence[Any]) -> tuple[dict[Any, int], int] | None:
    """An address in elements: how far each variable moves it, and where it starts; None where it is no sum of these.

    Variables that are ``still`` are zero.
    """
    factors, start, stride = dict[Any, int](), 0, 1
    for index, extent in zip(reversed(list(indices)), reversed(list(shape)), strict=True):
        waiting = [index]
        while waiting:
            term = waiting.pop()
            if isinstance(term, tirx.Add):
                waiting += [term.a, term.b]
            elif isinstance(term, tirx.IntImm):
                start += int(term) * stride
            elif isinstance(term, tirx.Var):
                if not any(term.same_as(other) for other in still):
                    factors[term] = factors.get(term, 0) + stride
            else:
                return None
        stride *= int(extent)
    return factors, start
