"""Reads of neighbours, as stencils have them, from a stage that has a border around what is read.

    y[i] = (x[i - 1] if i >= 1 else 0) + (x[i + 1] if i < 63 else 0)       of 64
    ->  x_bordered[i] = x[i - 1] if 1 <= i < 65 else 0                     of 66
        y[i] = x_bordered[i] + x_bordered[i + 2]

Each read by itself may be anywhere, so a tile would need all of the buffer; of a stage with a border, some rows.

1. Every index is an axis of the stage plus a constant, each its own, or a constant.
2. What is beyond the buffer is one constant, by a condition that holds just where all indices are in it; or the element
   at the edge, by minima and maxima; or the one at the other end, by a remainder; or anything, where nobody asks. Of
   all such reads of a buffer it is the same.
3. There are several, of different places, and one may be beyond the buffer.
4. The stage with the border has few more elements than are read, and its own result has no sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import ir, tirx
from tvm.sym import detect_linear_equation
from tvm_ffi import structural_equal

from compiler.tir.conditions import constant, negated
from compiler.tir.made_stages import Names, is_plain, made_stage, reading, stages_of, with_stages
from compiler.tir.sblocks import innermost
from compiler.tir.structure import structural_walk

CONDITIONALS = ("prim.if_then_else", "tirx.if_then_else")
EDGE, AROUND = "edge", "around"
MOST = 4  # elements of the stage with the border, per element that is made of it

Box = dict[Any, tuple[int, int]]  # where an axis begins and ends


@dataclass(frozen=True)
class _Place:
    """One index of a read: an axis and what is added to it, and what is read beyond the buffer."""

    axis: Any | None
    offset: int
    beyond: str


@dataclass(frozen=True)
class _Read:
    """A load, or the choice between one and a constant."""

    node: Any
    load: Any
    places: tuple[_Place, ...]
    outside: Any | None
    has_border: bool


def bordered_reads(func: Any) -> Any:
    """The function of TE with such reads of each stage from a stage before it."""
    names, nests, made = Names(func), list[Any](), list[Any]()
    for nest in stages_of(func):
        blocks = [realize.block for realize in innermost(nest)]
        if len(blocks) != 1 or not is_plain(blocks[0]):
            nests.append(nest)
            continue
        (block,) = blocks
        with_border = dict[Any, Any]()
        for reads in _bordered(block):
            border = _Border(reads, {axis.var: int(axis.dom.extent) for axis in block.iter_vars})
            buffer = border.buffer(names)
            made.append(buffer)
            nests.append(made_stage(buffer, border.element))
            with_border |= {read.node: tirx.BufferLoad(buffer, border.place(read)) for read in reads}
        nests.append(reading(block, with_border) if with_border else nest)
    return with_stages(func, nests, made)


def _bordered(block: Any) -> Iterator[list[_Read]]:
    """Reads that share a border, group by group (2, 3, 4)."""
    extents = {axis.var: int(axis.dom.extent) for axis in block.iter_vars}
    groups = list[list[_Read]]()
    for read in _reads(block.body.value, extents):
        group = next((one for one in groups if all(_agree(read, other) for other in one)), None)
        if group is None:
            groups.append([read])
        else:
            group.append(read)
    for group in groups:
        different = {tuple(place.offset for place in read.places) for read in group}
        is_read_around = len(different) > 1 and any(read.has_border for read in group)
        if is_read_around and _Border(group, extents).elements <= MOST * prod(extents.values()):
            yield group


def _agree(one: _Read, other: _Read) -> bool:
    """Whether one stage serves both: they walk the same buffer alike, and what is beyond it is the same."""
    if not one.load.source.same_as(other.load.source) or len(one.places) != len(other.places):
        return False
    pairs = list(zip(one.places, other.places, strict=True))
    if not all(_is_same(a.axis, b.axis) and (a.beyond == b.beyond or not (a.beyond and b.beyond)) for a, b in pairs):
        return False
    if one.outside is None or other.outside is None:
        return one.outside is other.outside or not any(place.beyond for pair in pairs for place in pair)
    return bool(structural_equal(one.outside, other.outside))


def _is_same(one: Any | None, other: Any | None) -> bool:
    return one is other is None or (one is not None and other is not None and bool(one.same_as(other)))


class _Border:
    """The stage that some reads are from."""

    def __init__(self, reads: Sequence[_Read], extents: Mapping[Any, int]) -> None:
        constants = (read.outside for read in reads if read.outside is not None)
        self._source, self._outside = reads[0].load.source, next(constants, None)
        axes = list(zip(*(read.places for read in reads), strict=True))
        self._first = [min(place.offset for place in axis) for axis in axes]
        self._beyond = [next((place.beyond for place in axis if place.beyond), "") for axis in axes]
        lengths = [1 if axis[0].axis is None else extents[axis[0].axis] for axis in axes]
        ends = [max(place.offset for place in axis) for axis in axes]
        self._shape = [n + end - first for n, end, first in zip(lengths, ends, self._first, strict=True)]

    @property
    def elements(self) -> int:
        return prod(self._shape)

    def buffer(self, names: Names) -> Any:
        name = names.free(f"{self._source.name}_bordered")
        return tirx.decl_buffer(self._shape, str(self._source.dtype), name, layout=None)

    def place(self, read: _Read) -> list[Any]:
        """Where an element of it is that a read wants."""
        found = []
        for place, first in zip(read.places, self._first, strict=True):
            found.append(_plus(0 if place.axis is None else place.axis, place.offset - first))
        return found

    def element(self, *index: Any) -> Any:
        places, inside = list[Any](), list[Any]()
        sizes = [int(size) for size in self._source.shape]
        for at, first, length, size, beyond in zip(index, self._first, self._shape, sizes, self._beyond, strict=True):
            place = _plus(at, first)
            if beyond == EDGE:
                place = tirx.max(tirx.min(place, size - 1), 0)
            elif beyond == AROUND:
                place = tirx.floormod(_plus(at, first % size), size)
            else:
                inside += [place >= 0] if first < 0 else []
                inside += [place < size] if first + length > size else []
            places.append(place)
        load = tirx.BufferLoad(self._source, places)
        outside = tirx.const(0, str(self._source.dtype)) if self._outside is None else self._outside
        return tirx.if_then_else(tirx.all(*inside), load, outside) if inside else load


def _plus(value: Any, number: int) -> Any:
    return value + number if number else value


# ---- reading them ------------------------------------------------------------------------------------------------


def _reads(value: Any, extents: Mapping[Any, int]) -> Iterator[_Read]:
    """The reads of a value that are as the first two conditions say."""
    choices, loads, guarded = list[Any](), list[Any](), set[Any]()
    structural_walk(value, [(ir.Call, choices.append), (tirx.Select, choices.append), (ir.TensorLoad, loads.append)])
    for choice in choices:
        found = _choice(choice, extents)
        if found is not None:
            guarded.add(found.load)
            yield found
    for load in loads:
        places = _places(load, extents) if load not in guarded else None
        if places is not None:
            inside = all(_within(place, int(n), extents) for place, n in zip(places, load.source.shape, strict=True))
            yield _Read(load, load, places, None, not inside or any(place.beyond for place in places))


def _choice(node: Any, extents: Mapping[Any, int]) -> _Read | None:
    """A load where it is in the buffer, else a constant (2)."""
    if isinstance(node, tirx.Select):
        condition, then, otherwise = node.condition, node.true_value, node.false_value
    elif str(getattr(node.op, "name", "")) in CONDITIONALS:
        condition, then, otherwise = node.args
    else:
        return None
    if isinstance(otherwise, ir.TensorLoad):
        condition, then, otherwise = negated(condition), otherwise, then
    if not isinstance(then, ir.TensorLoad) or not isinstance(otherwise, tirx.FloatImm | tirx.IntImm):
        return None
    places = _places(then, extents)
    box: Box = {axis: (0, extent) for axis, extent in extents.items()}
    if places is None or not _narrow(box, condition):
        return None
    wanted = {axis: (0, extent) for axis, extent in extents.items()}
    for place, size in zip(places, then.source.shape, strict=True):
        if place.beyond == AROUND or (place.axis is None and not 0 <= place.offset < int(size)):
            return None
        if place.axis is not None:
            first, end = wanted[place.axis]
            wanted[place.axis] = (max(first, -place.offset), min(end, int(size) - place.offset))
    if box != wanted:
        return None
    return _Read(node, then, tuple(_Place(place.axis, place.offset, "") for place in places), otherwise, True)


def _narrow(box: Box, condition: Any) -> bool:
    """Make a box what a condition leaves of it, if each comparison of it is of one axis with a number."""
    if isinstance(condition, tirx.And):
        return _narrow(box, condition.a) and _narrow(box, condition.b)
    if isinstance(condition, tirx.LE | tirx.GE):  # a <= b: a < b + 1
        low, high = (condition.a, condition.b) if isinstance(condition, tirx.LE) else (condition.b, condition.a)
        return _cut(box, high - low + 1)
    if isinstance(condition, tirx.LT | tirx.GT):
        low, high = (condition.a, condition.b) if isinstance(condition, tirx.LT) else (condition.b, condition.a)
        return _cut(box, high - low)
    return constant(condition) == 1


def _cut(box: Box, positive: Any) -> bool:
    """Leave of a box where a value is greater than zero."""
    if str(positive.ty).startswith("float"):
        return False
    found = _linear(positive, list(box))
    if found is None or found[0] is None or abs(found[1]) != 1:
        return False
    axis, factor, number = found
    first, end = box[axis]
    box[axis] = (max(first, 1 - number), end) if factor == 1 else (first, min(end, number))
    return True


def _linear(value: Any, axes: Sequence[Any]) -> tuple[Any | None, int, int] | None:
    """The one axis that a value follows, its factor, and the number added to it."""
    found = detect_linear_equation(value, axes)
    if len(found) != len(axes) + 1 or not all(isinstance(one, tirx.IntImm) for one in found):
        return None
    moving = [(axis, int(one)) for axis, one in zip(axes, found, strict=False) if int(one)]
    if len(moving) > 1:
        return None
    axis, factor = moving[0] if moving else (None, 0)
    return axis, factor, int(found[-1])


def _places(load: Any, extents: Mapping[Any, int]) -> tuple[_Place, ...] | None:
    """What the indices of a load are (1); those that are cut off must say so on each side that they may leave."""
    found = list[_Place]()
    for index, size in zip(load.indices, load.source.shape, strict=True):
        place = _place(index, int(size), extents)
        if place is None or (place.axis is not None and any(_is_same(place.axis, one.axis) for one in found)):
            return None
        found.append(place)
    return tuple(found)


def _place(index: Any, size: int, extents: Mapping[Any, int]) -> _Place | None:
    inner, beyond, low, high = index, "", False, False
    if isinstance(index, tirx.FloorMod) and constant(index.b) == size:
        inner, beyond = index.a, AROUND
    while isinstance(inner, tirx.Max | tirx.Min) and beyond != AROUND:
        limit = 0 if isinstance(inner, tirx.Max) else size - 1
        sides = [side for side in (inner.a, inner.b) if constant(side) != limit]
        if len(sides) != 1:
            return None
        low, high = low or isinstance(inner, tirx.Max), high or isinstance(inner, tirx.Min)
        inner, beyond = sides[0], EDGE
    linear = _linear(inner, list(extents))
    if linear is None or linear[1] not in (0, 1):
        return None
    axis, _, offset = linear
    if beyond == AROUND:
        offset = (offset + size // 2) % size - size // 2
    last = offset + (extents[axis] if axis is not None else 1) - 1
    if beyond == EDGE and ((offset < 0 and not low) or (last >= size and not high)):
        return None
    return _Place(axis, offset, beyond)


def _within(place: _Place, size: int, extents: Mapping[Any, int]) -> bool:
    """Whether an index is in the buffer, wherever its axis is."""
    last = place.offset + (extents[place.axis] if place.axis is not None else 1) - 1
    return bool(place.beyond) or (place.offset >= 0 and last < size)
