"""Loads that can run before their kernel: under the tail of the kernel before, and while other cores are awaited.

    for c in ...:  ld(l1[slot(c)], w[c])        ->    prologue:  ld(l1[slot(0)], w[0])
                                                      for c in ...:  ld(l1[slot(c)], w[c]) unless c == 0

1. The load brings a constant, which no kernel writes, into L1.
2. It surely runs, and the addresses of its first turn follow from the core's number alone.
3. Nothing that the kernel does before it touches the bytes of L1 that it writes.
4. What waits for it waits for all that its queue did before a point behind it, and so for what ran before the kernel.

Whether the memory is free while the kernel before still runs is the linker's to see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from compiler.codegen.gate import keeping_out, keeps_cores_out
from compiler.codegen.items import Branch, Item, Loop, SkippedFirst, Step, blocks_of
from compiler.codegen.reach import Reach, Reaches
from compiler.codegen.registers import allocate
from compiler.codegen.touches import Span, spans
from compiler.codegen.values import ZERO, Block, Node, Operand, Values
from compiler.isa.dtypes import Queue
from compiler.isa.model import Instr
from compiler.target import Chip

MEMORY = "l1"
MOST = 4  # loads of a kernel: more of them do not start sooner


@dataclass(frozen=True)
class Ahead:
    """A load as code of its own; in the kernel it is instruction ``place``, or what that instruction jumps to.

    Once it has run before the kernel, the kernel may go there only where the register ``turn`` is not zero; never,
    where ``turn`` is none (0). Loads in several loops look at more than one register, from ``place`` on.
    """

    instrs: tuple[Instr, ...]
    relocations: tuple[tuple[int, int], ...]
    parameter: int
    low: int  # the bytes of L1 that it writes
    high: int
    place: int = -1
    turn: int = 0


@dataclass
class Prologue:
    """Finds the loads of a kernel that can run before it, and puts items in their place that may skip them."""

    chip: Chip
    reaches: Reaches
    constants: frozenset[int]
    surely_runs: Callable[[Loop], bool]
    found: list[tuple[SkippedFirst, Ahead]] = field(default_factory=list)
    _passed: list[Item] = field(default_factory=list)  # whose spans nobody has asked for yet
    _touched: list[Span] = field(default_factory=list)

    def take(self, root: Block) -> None:
        self._block(root, ())

    def _block(self, block: Block, counters: tuple[Node, ...]) -> None:
        for index, item in enumerate(block.items):
            if isinstance(item, Step):
                ahead = self._ahead(item, counters)
                if ahead is not None:
                    block.items[index] = skipped = SkippedFirst(item, counters, item.text)
                    self.found.append((skipped, ahead))
            elif isinstance(item, Loop) and self.surely_runs(item):
                self._block(item.body, (*counters, item.counter))
            elif isinstance(item, Branch) and keeps_cores_out(item, self.reaches.cores):
                self._block(item.then, counters)
            self._passed.append(item)

    def _meets(self, written: Span) -> bool:
        """Whether an item before touches the same bytes."""
        for item in self._passed:
            self._touched += self._spans(item)
        self._passed = []
        return any(span.meets(written) for span in self._touched)

    def _spans(self, item: Item) -> Iterator[Span]:
        load = item.load if isinstance(item, SkippedFirst) else item
        if isinstance(load, Step) and load.row.tensors:
            reached = [self.reaches.of(operand) for operand in load.operands]
            yield from (span for span in spans(load.row, load.mods, reached, self.chip) if span.memory == MEMORY)
        for block in blocks_of(item):
            for inner in block.items:
                yield from self._spans(inner)

    def _ahead(self, load: Step, counters: tuple[Node, ...]) -> Ahead | None:
        if load.row.queue_of(load.mods) != Queue.MTE2 or len(load.row.tensors) != 2 or len(self.found) == MOST:
            return None
        reached = [self.reaches.of(operand) for operand in load.operands]
        parameters = [reach.parameter for reach in reached if reach.parameter is not None]
        if len(parameters) != 1 or parameters[0] not in self.constants:  # condition 1
            return None
        root = Block()
        values = Values(root)
        first = _FirstTurn(values, frozenset(counters))
        operands = [first.of(operand) for operand in load.operands]
        if any(operand is None for operand in operands):  # condition 2
            return None
        known = tuple(operand for operand in operands if operand is not None)
        written = self._written(load, [self.reaches.of(operand) for operand in known])
        if written is None or self._meets(written):  # condition 3
            return None
        block = root
        if self.reaches.cores < self.chip.cores:
            core = values.operation("getsr.core")
            test = keeping_out(core, self.reaches.cores)
            block = root.inner(is_loop_body=False)
            root.items.append(Branch((test,), block, root.inner(is_loop_body=False)))
        block.items.append(Step(load.row, load.mods, values.all_in_range(known)))
        code = allocate(root, 0)
        if code.spilled_bytes:
            return None
        return Ahead(code.instrs, code.relocations, parameters[0], written.low, written.high)

    def _written(self, load: Step, reached: list[Reach]) -> Span | None:
        """The bytes of L1 that a load writes, where it writes there and they are known."""
        found = [span for span in spans(load.row, load.mods, reached, self.chip) if span.memory == MEMORY]
        return found[0] if len(found) == 1 and found[0].is_known else None


class _FirstTurn:
    """Values as they are where all of some loops' counters are zero, made anew."""

    def __init__(self, values: Values, counters: frozenset[Node]) -> None:
        self.values, self.counters = values, counters
        self._made: dict[Node, Operand | None] = {}

    def of(self, operand: Operand) -> Operand | None:
        """None where a value does not follow from the core's number."""
        if operand.node is None:
            return operand
        if operand.node not in self._made:
            self._made[operand.node] = self._node(operand.node)
        made = self._made[operand.node]
        return None if made is None else Operand(made.node, made.offset + operand.offset)

    def _node(self, node: Node) -> Operand | None:
        if node in self.counters:
            return ZERO
        if node.pinned:
            return None
        found = [self.of(operand) for operand in node.operands]
        operands = [operand for operand in found if operand is not None]
        if len(operands) < len(found):
            return None
        if node.operation == "smadd" and operands[0].is_constant and operands[1].is_constant:
            total = operands[2]
            return Operand(total.node, total.offset + operands[0].offset * operands[1].offset)
        return self.values.operation(node.operation, *operands)
