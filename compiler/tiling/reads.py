"""What the stages of a kernel read: buffers, and how far indices into them reach, as functions that need no TVM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import ir, tirx

from compiler.isa.timing import ceil_div
from compiler.tir.scopes import itemsize

Box = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Buffer:
    """A buffer as stages see it: one object for all of them."""

    name: str
    shape: tuple[int, ...]
    itemsize: int
    node: Any


class Known:
    """One object for each variable and buffer of a kernel: tables of them are looked up without asking TVM."""

    def __init__(self) -> None:
        self._variables: dict[int, Any] = {}
        self._buffers: dict[int, Buffer] = {}

    def variable(self, node: Any) -> Any:
        return self._variables.setdefault(hash(node), node)

    def buffer(self, node: Any) -> Buffer:
        if hash(node) not in self._buffers:
            shape = tuple(size_of(extent) for extent in node.shape)
            self._buffers[hash(node)] = Buffer(str(node.name), shape, itemsize(node.dtype), node)
        return self._buffers[hash(node)]


# Positions from the first to the last of an index, for so many of each axis; zero where that is not known.
Measure = Callable[[Mapping[Any, int]], int]


@dataclass(frozen=True, eq=False)
class Place:
    """What a stage reads: a buffer, how far each of its indices reaches, and which of them data decides."""

    source: Buffer
    measures: tuple[Measure, ...]
    chosen: tuple[bool, ...]

    def box(self, lengths: Mapping[Any, int]) -> Box:
        """How many positions of each dimension of what it loads are between the first and the last."""
        sides = zip(self.measures, self.source.shape, strict=True)
        return tuple([min(size, measure(lengths) or size) for measure, size in sides])

    def whole_box(self, lengths: Mapping[Any, int]) -> Box:
        """As :meth:`box`, of what is made before it is known where data will have it read."""
        sides = zip(self.box(lengths), self.chosen, self.source.shape, strict=True)
        return tuple([size if chosen else length for length, chosen, size in sides])


def size_of(extent: Any) -> int:
    """An extent that is known, else one."""
    return int(extent) if isinstance(extent, tirx.IntImm) else 1


def measure_of(index: Any, known: Known) -> Measure:
    """How many positions an index takes from the first to the last."""
    match index:
        case tirx.IntImm():
            return lambda _: 1
        case tirx.Add() | tirx.Sub():
            return _sum(measure_of(index.a, known), measure_of(index.b, known))
        case tirx.Mul() if isinstance(index.b, tirx.IntImm):
            return _scaled(measure_of(index.a, known), abs(int(index.b)))
        case tirx.FloorDiv() if isinstance(index.b, tirx.IntImm):
            return _divided(measure_of(index.a, known), int(index.b))
        case tirx.FloorMod() if isinstance(index.b, tirx.IntImm):
            return _bounded(measure_of(index.a, known), int(index.b))
        case tirx.Cast():
            return measure_of(index.value, known)
        case ir.Var():
            axis = known.variable(index)
            return lambda lengths: lengths.get(axis, 1)
        case ir.TensorLoad():  # data decides: one place for each that it is read from
            inner = [measure_of(each, known) for each in index.indices]
            return lambda lengths: prod(measure(lengths) for measure in inner)
    return lambda _: 0


def _sum(a: Measure, b: Measure) -> Measure:
    def measure(lengths: Mapping[Any, int]) -> int:
        one, other = a(lengths), b(lengths)
        return one + other - 1 if one and other else 0

    return measure


def _scaled(a: Measure, factor: int) -> Measure:
    def measure(lengths: Mapping[Any, int]) -> int:
        one = a(lengths)
        return (one - 1) * factor + 1 if one else 0

    return measure


def _divided(a: Measure, divisor: int) -> Measure:
    def measure(lengths: Mapping[Any, int]) -> int:
        one = a(lengths)
        return ceil_div(one - 1, divisor) + 1 if one else 0

    return measure


def _bounded(a: Measure, most: int) -> Measure:
    return lambda lengths: min(a(lengths), most)
