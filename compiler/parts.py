"""Tensors that are parts of others: written where they end up, read where they are, and never copied.

    c = concat(a, b)    ->    a and b are made in the bytes of c
    s = x[2:4]          ->    who reads s reads these bytes of x

1. A part lies in one piece in the whole: it is cut along the first axis that has more than one element. Or it is a
   *band*: what the whole has along another axis from one place to another, its rows as far from each other as those of
   the whole. What lies in a band is a band along the same axis; where bands of a whole overlap, they hold the same.
2. What moves lives between kernels. What the caller or the model holds has a place of its own: what is cut from it
   lies there, and what is joined to a result of the model is made there.
3. What several parts of a whole lie in moves into it altogether, or stays: a tensor is in one place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import accumulate
from math import prod
from typing import Any

from tvm import ir, tirx

from compiler import graph
from compiler.isa.model import dense_strides
from compiler.tir.displacement import displacement, terms
from compiler.tir.structure import structural_walk

MOVES = ("movement", "gather")  # classes of operators that may only say where something lies
JOIN_BANDS = "JoinBands"  # the operator that makes a whole of bands
BANDS = "tw.bands"  # attribute of functions that make a whole of bands: the axis, and where each begins


@dataclass
class Parts:
    """By buffer: the one that it lies in, and at which of its bytes.

    ``sizes`` are those of what may be a part; ``apart`` has a place of its own, and ``results`` of these are written.
    """

    sizes: Mapping[str, int]
    apart: Set[str] = frozenset()
    results: Set[str] = frozenset()
    seen: Set[str] = frozenset()  # under several shapes: these are no bands
    within: dict[str, tuple[str, int]] = field(default_factory=dict)
    bands: dict[str, tuple[int, tuple[int, ...]]] = field(default_factory=dict)  # along which axis, and all strides
    _held: dict[str, list[str]] = field(default_factory=dict)  # what lies in a buffer

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
        if whole in self.bands:
            return False
        self._lie_within(part, whole, offset_bytes)
        return True

    def join(self, whole: str, parts: Sequence[str]) -> bool:
        """Let all parts lie one after another in the whole, if they may."""
        moves, held, start = dict[str, int](), dict[str, list[tuple[int, int]]](), 0
        if any(part in self.bands for part in parts):
            return False
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
        for outer, offset in moves.items():
            self._lie_within(outer, whole, offset)
        return True

    def cut_band(self, part: str, whole: str, offset_bytes: int, strides: Sequence[int], axis: int) -> bool:
        """Let a band of a whole lie in it, if it may."""
        if not self._may_be_band(part, axis) or self.place(whole)[0] not in (self.sizes.keys() | self.apart):
            return False
        if self.bands.get(whole, (axis,))[0] != axis:
            return False
        self._put(part, whole, offset_bytes, self.bands.get(whole, (axis, tuple(strides))))
        return True

    def join_bands(
        self, whole: str, parts: Sequence[str], offsets: Sequence[int], strides: Sequence[int], axis: int, times: int
    ) -> bool:
        """Let all bands lie in the whole, if they may, which has so many ``times`` the rows of each.

        What lies in another band already takes that with it.
        """
        if whole not in (self.sizes.keys() | self.results) or whole in self.within:
            return False
        if len(set(parts)) != len(parts) or not self.sizes.keys() >= set(parts):
            return False
        moves, held = dict[str, int](), dict[str, list[tuple[int, int]]]()
        for part, start in zip(parts, offsets, strict=True):
            outer, offset = self.place(part)
            if moves.setdefault(outer, start - offset) != start - offset:
                return False
            held.setdefault(outer, []).append((offset, offset + self.sizes[part] // times))
        if whole in moves or not all(self._may_be_band(outer, axis) for outer in moves):
            return False
        if not all(_covers(spans, self.sizes[outer] // times) for outer, spans in held.items()):
            return False
        for outer, offset in moves.items():
            self._put(outer, whole, offset, (axis, tuple(strides)))
        return True

    def _may_be_band(self, part: str, axis: int) -> bool:
        """Bands may lie in it already, of the same axis."""
        if part not in self.sizes or part in self.within or part in self.seen:
            return False
        return all(name in self.bands and self.bands[name][0] == axis for name in self._held.get(part, ()))

    def _put(self, part: str, whole: str, offset_bytes: int, band: tuple[int, tuple[int, ...]]) -> None:
        self._lie_within(part, whole, offset_bytes)
        waiting = [part]
        while waiting:  # what lies in it has rows as far from each other, and begins at the same one
            self.bands[(name := waiting.pop())] = band
            waiting += self._held.get(name, ())

    def _lie_within(self, part: str, whole: str, offset_bytes: int) -> None:
        self.within[part] = whole, offset_bytes
        self._held.setdefault(whole, []).append(part)


def _covers(spans: Sequence[tuple[int, int]], size: int) -> bool:
    """Condition 3: each byte once."""
    ends = [0, *(high for _, high in sorted(spans))]
    return ends[-1] == size and [low for low, _ in sorted(spans)] == ends[:-1]


def cut_offset(func: Any, arguments: Sequence[Any]) -> int | None:
    """The first element of its first argument that a call's result consists of; None where that is no part (1)."""
    return displacement(func) if graph.attribute(func, "tw.schedule") in MOVES and len(arguments) == 1 else None


def is_join(func: Any) -> bool:
    """Whether a call's result is its arguments, one after another (1)."""
    if graph.attribute(func, "tw.operator") != "Concat" or len(func.params) < 3:
        return False
    return prod(int(n) for n in func.params[-1].shape[: _joined_axis(func)]) == 1


def _joined_axis(func: Any) -> int:
    """Along which the arguments of a function lie one after another in its result."""
    first, whole = func.params[0].shape, func.params[-1].shape
    return next((axis for axis, pair in enumerate(zip(first, whole, strict=True)) if int(pair[0]) != int(pair[1])), 0)


@dataclass(frozen=True)
class BandsOf:
    """In which elements of a tensor some bands of it begin, its strides, and the axis along which they are cut."""

    first: tuple[int, ...]
    strides: tuple[int, ...]
    axis: int


def band_of(func: Any) -> BandsOf | None:
    """Of a function that cuts a band of its argument: all of it but along one axis."""
    if graph.attribute(func, "tw.schedule") not in MOVES or len(func.params) != 2:
        return None
    source, result = ([int(n) for n in param.shape] for param in func.params)
    narrower = [axis for axis, pair in enumerate(zip(source, result, strict=False)) if pair[0] != pair[1]]
    stores: list[Any] = []
    structural_walk(func.body, (tirx.BufferStore, stores.append))
    if len(source) != len(result) or len(narrower) != 1 or len(stores) != 1:
        return None
    if not isinstance(stores[0].value, ir.TensorLoad):
        return None
    strides, first = dense_strides(tuple(source)), 0
    for read, written, extent, stride in zip(stores[0].value.indices, stores[0].indices, result, strides, strict=True):
        still = [written] if extent == 1 else []
        there, here = terms([read], [1], still), terms([written], [1], still)
        if there is None or here is None or there[0] != here[0] or here[1]:
            return None
        first += there[1] * stride
    return BandsOf((first,), strides, narrower[0])


def joined_bands(func: Any) -> BandsOf | None:
    """Of a function whose result is bands."""
    kind = graph.attribute(func, "tw.operator")
    if kind == JOIN_BANDS:
        axis, *rows = (int(each) for each in func.attrs[BANDS])
    elif kind == "Concat" and len(func.params) > 2:
        axis = _joined_axis(func)
        rows = [0, *accumulate(int(param.shape[axis]) for param in func.params[:-2])]
    else:
        return None
    strides = dense_strides(tuple(int(n) for n in func.params[-1].shape))
    return BandsOf(tuple(row * strides[axis] for row in rows), strides, axis)
