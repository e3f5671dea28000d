"""Scalar values of a kernel: what a register may hold, how it is worked out, and where that is possible.

Equal values are one :class:`Node`. A node names the innermost block in which its inputs are known; placing it there or
further in is up to :mod:`compiler.codegen.placement`. Sums of products are kept apart from all else, so that constants
come together and each prefix over outer loops becomes a node of its own, which leaves the inner loops.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from compiler.isa.model import IMMEDIATE_MAX, IMMEDIATE_MIN, OFFSET_MAX, OFFSET_MIN
from compiler.isa.table import by_mnemonic


@dataclass(eq=False)
class Block:
    """A sequence of items that all run, or none; ``loops`` is how many loops are around it."""

    parent: Block | None = None
    is_loop_body: bool = False
    items: list[Any] = field(default_factory=list)
    place: int = -1  # index in the parent of the item that holds this block
    depth: int = 0
    loops: int = 0

    def inner(self, *, is_loop_body: bool) -> Block:
        """A new block within the item that comes next."""
        return Block(self, is_loop_body, [], len(self.items), self.depth + 1, self.loops + is_loop_body)


@dataclass(eq=False)
class Node:
    """A value in a register. ``pinned`` ones are made by an item: a loop's counter, a scalar load."""

    number: int
    operation: str  # "mnemonic.modifiers"; empty where pinned
    operands: tuple[Operand, ...]
    block: Block
    pinned: bool = False


class Operand(NamedTuple):
    """A node plus a constant, or a constant alone. For floats the constant is the bits of an fp32."""

    node: Node | None
    offset: int = 0

    @property
    def is_constant(self) -> bool:
        return self.node is None


ZERO, ONE = Operand(None, 0), Operand(None, 1)


class Linear:
    """A sum of nodes times integers, plus a constant."""

    __slots__ = ("constant", "terms")

    def __init__(self, terms: dict[Node, int] | None = None, constant: int = 0) -> None:
        self.terms = {} if terms is None else terms
        self.constant = constant

    @staticmethod
    def of(operand: Operand) -> Linear:
        return Linear({} if operand.node is None else {operand.node: 1}, operand.offset)

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        terms = dict(self.terms)
        for node, times in other.terms.items():
            total = terms.get(node, 0) + times * factor
            if total:
                terms[node] = total
            else:
                terms.pop(node, None)
        return Linear(terms, self.constant + other.constant * factor)

    def times(self, factor: int) -> Linear:
        return Linear({}, 0).plus(self, factor)

    @property
    def is_constant(self) -> bool:
        return not self.terms

    @property
    def is_plain(self) -> bool:
        """Whether it is one node, or a constant: a value that was worked out as it stands."""
        return not self.terms or (not self.constant and list(self.terms.values()) == [1])


class Values:
    """Makes nodes, each value once."""

    def __init__(self, outermost: Block) -> None:
        self.outermost = outermost
        self._known: dict[tuple[object, ...], Node] = {}
        self._count = 0

    def pinned(self, block: Block) -> Node:
        """A value that an item of ``block`` makes."""
        self._count += 1
        return Node(self._count, "", (), block, pinned=True)

    def operation(self, operation: str, *operands: Operand) -> Operand:
        """``operation`` of the scalar unit, folded where all operands are constants."""
        mnemonic = operation.partition(".")[0]
        row = by_mnemonic()[mnemonic]
        if row.kind == "alu" and all(operand.is_constant for operand in operands):
            sources = [operand.offset for operand in operands] + [0, 0]
            return Operand(None, _wrapped(int(row.function(*sources[:3]))))
        if row.kind == "alu":
            operands = tuple(self._in_range(operand) for operand in operands)
        return self._forced(operation, *operands)

    def operand(self, linear: Linear) -> Operand:
        """A sum as one operand: a chain of multiply-adds from the outermost loop inwards, and a constant."""
        terms = sorted(linear.terms.items(), key=lambda term: (term[0].block.depth, term[1] != 1, term[0].number))
        if not terms:
            return Operand(None, linear.constant)
        inside = OFFSET_MIN <= linear.constant <= OFFSET_MAX
        total = ZERO if inside else self.constant(linear.constant)
        for node, times in terms:
            total = self._step(total, Operand(node), times)
        return Operand(total.node, total.offset + (linear.constant if inside else 0))

    def _step(self, total: Operand, node: Operand, times: int) -> Operand:
        if times == 1:
            return node if total == ZERO else self.operation("sadd", total, node)
        if times == -1:
            return self.operation("ssub", total, node)
        if total == ZERO:
            return self.operation("smul", node, self.constant(times))
        return self.operation("smadd", node, self.constant(times), total)

    def constant(self, value: int) -> Operand:
        """A constant that fits an immediate, or what it is built from."""
        if IMMEDIATE_MIN <= value <= IMMEDIATE_MAX:
            return Operand(None, value)
        high, low = value >> 24, value & 0xFFFFFF
        raised = self._forced("sshl", self.in_register(high), Operand(None, 24))
        return Operand(raised.node, low)

    def in_register(self, value: int) -> Operand:
        """A constant in a register of its own."""
        if IMMEDIATE_MIN <= value <= IMMEDIATE_MAX:
            return self._forced("smov", Operand(None, value))
        return self.constant(value)

    def _forced(self, operation: str, *operands: Operand) -> Operand:
        """An operation that is not folded."""
        key = (operation, *operands)
        node = self._known.get(key)
        if node is None:
            self._count += 1
            block = max((o.node.block for o in operands if o.node), key=lambda b: b.depth, default=self.outermost)
            node = self._known[key] = Node(self._count, operation, operands, block)
        return Operand(node)

    def _in_range(self, operand: Operand) -> Operand:
        if operand.node is None:
            return self.constant(operand.offset)
        if OFFSET_MIN <= operand.offset <= OFFSET_MAX:
            return operand
        return self._forced("sadd", Operand(operand.node), self.constant(operand.offset))

    def all_in_range(self, operands: Iterable[Operand]) -> tuple[Operand, ...]:
        """Operands whose constants fit an instruction's slots."""
        return tuple(self._in_range(operand) for operand in operands)


def _wrapped(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63
