"""What a scalar value of a kernel can be on each core: bounds, and the parameter whose address is in it.

Worked out from the operations that make it, all cores at once; loops around a value widen its bounds. Whatever is not
known (data, an operation that says nothing of its result) is anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from compiler.codegen.items import Loop
from compiler.codegen.placement import items_with_positions
from compiler.codegen.values import Block, Node, Operand

FAR = 1 << 60  # further than any address: a bound that is not known


class Reach(NamedTuple):
    """From ``low`` to ``high`` on each core, both included, behind the address of ``parameter``."""

    low: np.ndarray
    high: np.ndarray
    parameter: int | None = None

    @property
    def is_known(self) -> bool:
        return bool((self.low > -FAR).all() and (self.high < FAR).all())

    @property
    def exact(self) -> int | None:
        """The value of a constant."""
        if self.parameter is not None or (self.low != self.high).any() or (self.low != self.low[0]).any():
            return None
        return int(self.low[0])


@dataclass
class Reaches:
    """The reach of every node of a kernel, each worked out once."""

    cores: int

    def __post_init__(self) -> None:
        self._known: dict[Node, Reach] = {}
        self._constants: dict[int, Reach] = {}
        self._data = Reach(self._all(-FAR), self._all(FAR))

    def loops_of(self, root: Block) -> None:
        """Learn how far the loops of a kernel count; outer ones come first."""
        for item, _ in items_with_positions(root):
            if isinstance(item, Loop):
                last = np.maximum(self.of(item.count).high - 1, 0)
                self._known[item.counter] = _bounded(self._all(0), last)

    def where(self, turn: Mapping[Node, int]) -> Reaches:
        """The same where some loops are in one turn."""
        found = Reaches(self.cores)
        found._known = {node: reach for node, reach in self._known.items() if node.pinned}
        found._known |= {node: self._constant(value) for node, value in turn.items()}
        return found

    def of(self, operand: Operand) -> Reach:
        if operand.node is None:
            return self._constant(operand.offset)
        found = self._node(operand.node)
        if not operand.offset:
            return found
        return _bounded(found.low + operand.offset, found.high + operand.offset, found.parameter)

    def _all(self, value: int) -> np.ndarray:
        return np.full(self.cores, value, np.int64)

    def _constant(self, value: int) -> Reach:
        if value not in self._constants:
            every = self._all(value)
            self._constants[value] = Reach(every, every)
        return self._constants[value]

    def _node(self, node: Node) -> Reach:
        if node not in self._known:
            self._known[node] = self._worked_out(node)
        return self._known[node]

    def _worked_out(self, node: Node) -> Reach:
        name = node.operation.partition(".")[0]
        if node.operation == "getsr.core":
            numbers = np.arange(self.cores, dtype=np.int64)
            return Reach(numbers, numbers)
        if name == "ldt":
            return Reach(self._all(0), self._all(0), node.operands[0].offset)
        if name in _TRUTHS:
            return Reach(self._all(0), self._all(1))
        function = _OPERATIONS.get(name)
        if function is None:
            return self._data
        operands = [self.of(operand) for operand in node.operands]
        if name not in _OF_ADDRESSES and any(operand.parameter is not None for operand in operands):
            return self._data
        return function(*operands)


_TRUTHS = frozenset({"seq", "sne", "slt", "sle", "feq", "flt", "fle"})
_OF_ADDRESSES = frozenset({"smov", "sadd", "ssub", "smadd"})


def _bounded(low: np.ndarray, high: np.ndarray, parameter: int | None = None) -> Reach:
    # `np.clip` does the same and takes four times as long for the few numbers that there are.
    return Reach(np.minimum(np.maximum(low, -FAR), FAR), np.minimum(np.maximum(high, -FAR), FAR), parameter)


def _sum(a: Reach, b: Reach) -> Reach:
    parameter = a.parameter if b.parameter is None else b.parameter
    return _bounded(a.low + b.low, a.high + b.high, parameter)


def _difference(a: Reach, b: Reach) -> Reach:
    return _bounded(a.low - b.high, a.high - b.low, a.parameter)


def _product(a: Reach, b: Reach) -> Reach:
    if _magnitude(a) * _magnitude(b) >= FAR:
        return _anything(a)
    corners = np.stack([x * y for x in (a.low, a.high) for y in (b.low, b.high)])
    return Reach(corners.min(axis=0), corners.max(axis=0))


def _anything(like: Reach) -> Reach:
    return Reach(np.full_like(like.low, -FAR), np.full_like(like.low, FAR))


def _magnitude(reach: Reach) -> int:
    return int(max(np.abs(reach.low).max(), np.abs(reach.high).max()))


def _quotient(a: Reach, b: Reach) -> Reach:
    divisor = b.exact
    if divisor is None or divisor <= 0 or not a.is_known:
        return _anything(a)
    return Reach(a.low // divisor, a.high // divisor)


def _ceiling(a: Reach, b: Reach) -> Reach:
    divisor = b.exact
    if divisor is None or divisor <= 0 or not a.is_known:
        return _anything(a)
    return Reach(-(-a.low // divisor), -(-a.high // divisor))


def _remainder(a: Reach, b: Reach) -> Reach:
    divisor = b.exact
    if divisor is None or divisor <= 0:
        return _anything(a)
    within = a.low // divisor == a.high // divisor
    low = np.where(within, a.low % divisor, 0)
    return Reach(low, np.where(within, a.high % divisor, divisor - 1))


def _least(a: Reach, b: Reach) -> Reach:
    return Reach(np.minimum(a.low, b.low), np.minimum(a.high, b.high))


def _most(a: Reach, b: Reach) -> Reach:
    return Reach(np.maximum(a.low, b.low), np.maximum(a.high, b.high))


def _either(_: Reach, a: Reach, b: Reach) -> Reach:
    return Reach(np.minimum(a.low, b.low), np.maximum(a.high, b.high))


def _power(shift: Reach) -> Reach:
    if shift.exact is None or not 0 <= shift.exact < 60:
        return _anything(shift)
    return Reach(1 << shift.low, 1 << shift.high)


_OPERATIONS: dict[str, Callable[..., Reach]] = {
    "smov": lambda a: a,
    "sadd": _sum,
    "ssub": _difference,
    "smul": _product,
    "smadd": lambda a, b, c: _sum(_product(a, b), c),
    "smsub": lambda a, b, c: _difference(c, _product(a, b)),
    "sdiv": _quotient,
    "sceil": _ceiling,
    "srem": _remainder,
    "smin": _least,
    "smax": _most,
    "ssel": _either,
    "sshl": lambda a, b: _product(a, _power(b)),
    "ssar": lambda a, b: _quotient(a, _power(b)),
}
