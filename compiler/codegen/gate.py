"""Where in a kernel other cores' results are first needed: what stands before it may run while they are awaited."""

from __future__ import annotations

from collections.abc import Callable

from compiler.codegen.items import Branch, Gate, Item, Loop, SkippedFirst, Step, Test, blocks_of
from compiler.codegen.values import ZERO, Block, Node, Operand
from compiler.isa.dtypes import Queue


def put_gate(root: Block, needs: Callable[[Item], bool], surely_runs: Callable[[Loop], bool], cores: int) -> None:
    """A gate in front of the first item that needs one, in program order; none where no item does.

    1. It runs exactly once on each core that takes part: in the first turn of loops that surely have one, never under
       a condition but the one that keeps other cores out.
    2. All that it is in front of comes after it on every way.
    3. It stands within a loop only where the loop has something to do before it.
    """
    block, counters = root, list[Node]()
    best: tuple[Block, int, list[Node]] | None = None
    while (found := next((at for at, item in enumerate(block.items) if holds_in(item, needs)), None)) is not None:
        if best is None or any(holds_in(item, _works) for item in block.items[:found]):  # condition 3
            best = block, found, [*counters]
        item = block.items[found]
        if isinstance(item, Loop) and surely_runs(item):
            counters.append(item.counter)
            block = item.body
        elif isinstance(item, Branch) and keeps_cores_out(item, cores) and not item.otherwise.items:
            block, best = item.then, None
        else:
            break
    if best is not None:
        _insert(*best)


def holds_in(item: Item, holds: Callable[[Item], bool]) -> bool:
    """Whether something holds for an item or one inside of it."""
    return holds(item) or any(holds_in(inner, holds) for block in blocks_of(item) for inner in block.items)


def _works(item: Item) -> bool:
    return isinstance(item, SkippedFirst) or (isinstance(item, Step) and item.row.queue_of(item.mods) != Queue.S)


def keeps_cores_out(branch: Branch, cores: int) -> bool:
    """Whether a branch is the one that all but the first cores skip."""
    if len(branch.tests) != 1:
        return False
    test = branch.tests[0]
    is_core = test.a.node is not None and test.a.node.operation == "getsr.core" and not test.a.offset
    return is_core and test == keeping_out(test.a, cores)


def keeping_out(core: Operand, cores: int) -> Test:
    """What holds for all but the first cores."""
    return Test("bne", core, ZERO) if cores == 1 else Test("bge", core, Operand(None, cores))


def _insert(block: Block, index: int, counters: list[Node]) -> None:
    item: Item = Gate()
    if counters:
        then = Block(block, False, [item], index, block.depth + 1, block.loops)
        otherwise = Block(block, False, [], index, block.depth + 1, block.loops)
        item = Branch(tuple(Test("bne", Operand(counter), ZERO) for counter in counters), then, otherwise)
    block.items.insert(index, item)
    for place, later in enumerate(block.items):
        for inner in blocks_of(later):
            inner.place = place
