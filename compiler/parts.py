"""Tensors that are parts of others: written where they end up, read where they are, and never copied.

    c = concat(a, b)    ->    a and b are made in the bytes of c
    s = x[2:4]          ->    who reads s reads these bytes of x

1. A part lies in one piece in the whole: it is cut along the first axis that has more than one element. Or it is a
   *band*: what the whole has along another axis from one place to another, its rows as far from each other as those of
   the whole. What lies in a band is a band along the same axis; where bands of a whole overlap, they hold the same.
2. What moves lives between kernels. What the caller or the model holds has a place of its own: what is cut from it
   lies there, and what is joined to a result of the model is made there.
3. Each cluster may have a band of its own of a tensor, of one that they share, or each of the one that it has.
4. What several parts of a whole lie in moves into it altogether, or stays: a tensor is in one place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
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
# Attribute of functions that cut a band, or make a whole of one: how many elements further that of each cluster lies.
OF_CLUSTERS = "tw.of_clusters"


@dataclass(frozen=True)
class Band:
    """A part of a tensor along one of its axes, with the shapes of both and the distances of the tensor's elements."""

    axis: int
    strides: tuple[int, ...]
    shape: tuple[int, ...]
    of: tuple[int, ...]

    @property
    def times(self) -> int:
        """How often there are rows of it, with other rows of the tensor between."""
        return prod(self.shape[: self.axis])

    @property
    def run(self) -> int:
        """The elements that lie in one piece."""
        return self.shape[self.axis] * self.strides[self.axis]

    @property
    def period(self) -> int:
        """From one piece to the next, as far as one axis of the tensor goes; 0 where there is one piece only."""
        return self.strides[self.axis - 1] if self.axis else 0

    @property
    def reach(self) -> int:
        """From the first element to behind the last one."""
        return 1 + sum((extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True))

    def strides_as(self, shape: Sequence[int]) -> tuple[int, ...] | None:
        """The strides of a view of it; None where its elements are not evenly apart along the axes of that."""
        if tuple(shape) == self.shape:
            return self.strides
        return strides_of_view(self.shape, self.strides, shape)


def strides_of_view(shape: Sequence[int], strides: Sequence[int], view: Sequence[int]) -> tuple[int, ...] | None:
    """Of a tensor that is seen under another shape, whose axes cut or merge those that lie one after another."""
    left = [(extent, stride) for extent, stride in zip(shape, strides, strict=True) if extent != 1]
    found, stride = list[int](), 1
    for extent in reversed(view):
        if extent == 1:
            found.append(stride)
            continue
        if not left:
            return None
        inner, stride = left.pop()
        while inner % extent and left and left[-1][1] == stride * inner:
            inner *= left.pop()[0]
        if inner % extent:
            return None
        found.append(stride)
        if inner > extent:
            left.append((inner // extent, stride * extent))
        stride *= extent
    return None if left else tuple(reversed(found))


@dataclass
class Parts:
    """By buffer: the one that it lies in, and at which of its bytes.

    ``sizes`` are those of what may be a part; ``apart`` has a place of its own, and ``results`` of these are written.
    """

    sizes: Mapping[str, int]
    apart: Set[str] = frozenset()
    results: Set[str] = frozenset()
    seen: Mapping[str, Set[tuple[int, ...]]] = field(default_factory=dict)  # the shapes, of what has several
    within: dict[str, tuple[str, int]] = field(default_factory=dict)
    # How many bytes further a part lies on each cluster, where that is not for all the same.
    of_clusters: dict[str, tuple[int, ...]] = field(default_factory=dict)
    bands: dict[str, Band] = field(default_factory=dict)
    _held: dict[str, list[str]] = field(default_factory=dict)  # what lies in a buffer

    def place(self, name: str) -> tuple[str, int]:
        """The outermost buffer that a buffer lies in, which may be itself, and where."""
        offset = 0
        while name in self.within:
            name, inner = self.within[name]
            offset += inner
        return name, offset

    def moves(self, name: str) -> tuple[int, ...]:
        """How many bytes further a buffer lies on each cluster in the outermost one; none where on all as far."""
        found: tuple[int, ...] = ()
        while name in self.within:
            own = self.of_clusters.get(name, ())
            found = tuple(map(sum, zip(found, own, strict=True))) if found and own else found or own
            name = self.within[name][0]
        return found

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

    def cut_band(self, part: str, whole: str, offset_bytes: int, band: Band) -> bool:
        """Let a band of a whole lie in it, if it may."""
        if not self._may_be(part, band) or self.place(whole)[0] not in (self.sizes.keys() | self.apart):
            return False
        around = self.bands.get(whole)
        if around is not None and (around.axis, around.shape) != (band.axis, band.of):
            return False
        self._put(part, whole, offset_bytes, band if around is None else replace(band, strides=around.strides))
        return True

    def join_bands(self, whole: str, parts: Sequence[str], offsets: Sequence[int], bands: Sequence[Band]) -> bool:
        """Let all bands lie in the whole, if they may. What lies in another band already takes that with it."""
        if whole not in (self.sizes.keys() | self.results) or whole in self.within:
            return False
        if len(set(parts)) != len(parts) or not all(self.sizes.get(part) for part in parts):
            return False
        moves, held = dict[str, tuple[int, Band]](), dict[str, list[tuple[int, int]]]()
        for part, start, band in zip(parts, offsets, bands, strict=True):
            outer, offset = self.place(part)
            if outer != part:
                inner, around = self.bands.get(part), self._shape_of_whole(outer)
                if inner is None or inner.shape != band.shape or around is None:
                    return False
                band = replace(band, shape=around)
            if moves.setdefault(outer, (start - offset, band)) != (start - offset, band):
                return False
            held.setdefault(outer, []).append((offset, offset + self.sizes[part] // band.times))
        if whole in moves or not all(self._may_be(outer, band) for outer, (_, band) in moves.items()):
            return False
        if not all(_covers(spans, self.sizes[outer] // moves[outer][1].times) for outer, spans in held.items()):
            return False
        for outer, (offset, band) in moves.items():
            self._put(outer, whole, offset, band)
        return True

    def strides_of(self, name: str, shape: Sequence[int]) -> tuple[int, ...] | None:
        """Of a band, under one of the shapes that it is seen under; None of what is none."""
        band = self.bands.get(name)
        found = None if band is None else band.strides_as(shape)
        if band is not None and found is None:
            raise ValueError(f"{name} is a band of {band.shape} elements, which cannot be seen as {tuple(shape)}")
        return found

    def _shape_of_whole(self, whole: str) -> tuple[int, ...] | None:
        """By which it has bands, if it has any."""
        return next((self.bands[name].of for name in self._held[whole] if name in self.bands), None)

    def _may_be(self, part: str, band: Band) -> bool:
        """Bands may lie in it already, of the same axis."""
        if not self.sizes.get(part) or part in self.within:
            return False
        if any(band.strides_as(shape) is None for shape in self.seen.get(part, ())):
            return False
        held = [self.bands.get(name) for name in self._held.get(part, ())]
        return all(one is not None and (one.axis, one.of) == (band.axis, band.shape) for one in held)

    def _put(self, part: str, whole: str, offset_bytes: int, band: Band) -> None:
        self._lie_within(part, whole, offset_bytes)
        self.bands[part] = band
        waiting = [*self._held.get(part, ())]
        while waiting:  # what lies in it has rows as far from each other, and begins at the same one
            name = waiting.pop()
            self.bands[name] = replace(self.bands[name], strides=band.strides)
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
    """In which elements of a tensor some bands of it begin, and these."""

    first: tuple[int, ...]
    bands: tuple[Band, ...]


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
    return BandsOf((first,), (Band(narrower[0], strides, tuple(result), tuple(source)),))


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
    *shapes, of = (tuple(int(n) for n in param.shape) for param in func.params)
    strides = dense_strides(of)
    return BandsOf(tuple(row * strides[axis] for row in rows), tuple(Band(axis, strides, each, of) for each in shapes))
