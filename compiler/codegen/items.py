"""What a block of a kernel is made of, between TIR and registers: instructions, loops, branches and scalar loads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from compiler.codegen.values import Block, Node, Operand
from compiler.isa.model import Row


@dataclass(eq=False)
class Step:
    """One instruction; ``result`` is the node that it makes (a scalar load's)."""

    row: Row
    mods: tuple[str, ...]
    operands: tuple[Operand, ...]
    result: Node | None = None
    text: int = -1  # index of the statement it belongs to


@dataclass(eq=False)
class GuardedLoad:
    """A scalar load that happens only where ``guard`` is not zero; else the result is zero."""

    row: Row
    mods: tuple[str, ...]
    guard: Operand
    address: Operand
    result: Node
    text: int = -1


@dataclass(eq=False)
class Loop:
    """``body`` runs ``count`` times; ``counter`` counts from zero."""

    counter: Node
    count: Operand
    body: Block
    text: int = -1


@dataclass(frozen=True)
class Test:
    """A branch instruction's condition."""

    mnemonic: str
    a: Operand
    b: Operand


@dataclass(eq=False)
class Branch:
    """``otherwise`` where any of ``tests`` holds, else ``then``."""

    tests: tuple[Test, ...]
    then: Block
    otherwise: Block
    text: int = -1


@dataclass(eq=False)
class SkippedFirst:
    """A load that may have run before the kernel: skipped then where all ``counters`` are zero."""

    load: Step
    counters: tuple[Node, ...]
    text: int = -1


@dataclass(eq=False)
class Gate:
    """Here a core waits for what other cores made; what the kernel does before needs nothing of it."""

    text: int = -1


Item = Step | GuardedLoad | Loop | Branch | SkippedFirst | Gate


def operands_of(item: Item) -> Iterator[Operand]:
    """What an item reads before anything inside of it runs."""
    match item:
        case Step():
            yield from item.operands
        case SkippedFirst():
            yield from item.load.operands
            yield from map(Operand, item.counters)
        case GuardedLoad():
            yield item.guard
            yield item.address
        case Loop():
            yield item.count
        case Branch():
            for test in item.tests:
                yield test.a
                yield test.b


def blocks_of(item: Item) -> tuple[Block, ...]:
    match item:
        case Loop():
            return (item.body,)
        case Branch():
            return (item.then, item.otherwise)
    return ()
