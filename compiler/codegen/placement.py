"""Where each value is worked out: before its first use, and outside of every loop on which it does not depend.

Nothing a value is made of can fail, so one that is used under a condition within a loop may leave both. A value out of
loops costs a register all the way; those that :mod:`compiler.codegen.registers` gives up are worked out at their uses.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from heapq import heappop, heappush

from compiler.codegen.items import Item, blocks_of, operands_of
from compiler.codegen.values import Block, Node

Position = tuple[Block, int]  # before this item of this block


@dataclass
class Placement:
    """The nodes to work out before an item, in order."""

    before: dict[tuple[int, int], list[Node]] = field(default_factory=dict)

    def at(self, block: Block, index: int) -> list[Node]:
        return self.before.get((id(block), index), [])


def items_with_positions(block: Block) -> Iterator[tuple[Item, Position]]:
    """All items of a block and of those inside of it."""
    for index, item in enumerate(block.items):
        yield item, (block, index)
        for inner in blocks_of(item):
            yield from items_with_positions(inner)


def place(root: Block, local: Set[Node]) -> Placement:
    """A position for every node that is used; several for those of ``local``: one before each item that uses it."""
    uses: dict[Node, list[Position]] = {}
    pending: list[tuple[int, Node]] = []

    def use(node: Node | None, position: Position) -> None:
        if node is None or node.pinned:
            return
        if node not in uses:
            uses[node] = []
            heappush(pending, (-node.number, node))
        uses[node].append(position)

    for item, position in items_with_positions(root):
        for operand in operands_of(item):
            use(operand.node, position)
    placement = Placement()
    while pending:  # what uses a node has a higher number than the node
        _, node = heappop(pending)
        positions = dict.fromkeys(uses[node]) if node in local else [_position(node, uses[node])]
        for position in positions:
            placement.before.setdefault((id(position[0]), position[1]), []).append(node)
            for operand in node.operands:
                use(operand.node, position)
    for nodes in placement.before.values():
        nodes.reverse()
    return placement


def _position(node: Node, uses: list[Position]) -> Position:
    """Before the first use, where that is on all ways to the others, then out of the loops that do not concern it."""
    block, index = uses[0]
    for other in uses[1:]:
        block, index = _common(block, index, *other)
    best, outside = (block, index), block
    while outside is not node.block and outside.parent is not None:
        parent, at = outside.parent, outside.place
        if outside.is_loop_body:
            best = (parent, at)
        outside = parent
    return best


def _common(block: Block, index: int, other: Block, other_index: int) -> Position:
    """The innermost block around two positions, and the earlier of the two in it."""
    while block is not other:
        if block.depth >= other.depth:
            assert block.parent is not None  # noqa: S101  the outermost block is around both
            block, index = block.parent, block.place
        else:
            assert other.parent is not None  # noqa: S101
            other, other_index = other.parent, other.place
    return block, min(index, other_index)
