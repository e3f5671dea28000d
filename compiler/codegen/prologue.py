"""Loads that can run before their kernel: under the tail of the kernel before, and while other cores are awaited.

    for c in ...:  ld(l1[slot(c)], w[c])        ->    prologue:  ld(l1[slot(0)], w[0])
                                                                 ld(l1[slot(1)], w[1])
                                                      for c in ...:  ld(l1[slot(c)], w[c]) unless c < 2

1. The load brings a constant, which no kernel writes, into L1, or into scratch of the kernel's in LLB.
2. Whether it runs, and the addresses of its turn, follow from the core's number alone.
3. Nothing that the core does before it in the kernel, turns before included, touches the bytes that it writes; in LLB,
   where other cores might, the core has not waited for any of them: what they do to these bytes then comes after it.
4. What waits for it waits for all that its queue did before a point behind it, and so for what ran before the kernel.

Whether the memory is free while the kernel before still runs is the linker's to see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from compiler.codegen.gate import holds_in
from compiler.codegen.items import Branch, Item, Loop, SkippedFirst, Step, Test, blocks_of
from compiler.codegen.reach import Reach, Reaches
from compiler.codegen.registers import Allocated, allocate
from compiler.codegen.touches import Span, spans
from compiler.codegen.values import Block, Node, Operand, Values
from compiler.isa.dtypes import Queue
from compiler.isa.model import Instr
from compiler.isa.table import by_mnemonic
from compiler.target import Chip

MEMORY = "l1"
SHARED = "llb"
MOST = 4  # loads of a kernel into each memory: more of them do not start sooner
TURNS = 3  # of a loop


@dataclass(frozen=True)
class Ahead:
    """A load as code of its own; in the kernel it is instruction ``place``, or what that instruction jumps to.

    Once it has run before the kernel, the kernel may go there only where the register ``turn`` is not zero; never,
    where ``turn`` is none (0). Loads in several loops look at one register for each of ``loops``, from ``place`` on.
    ``number`` is the turn of the innermost loop that it is of.
    """

    instrs: tuple[Instr, ...]
    relocations: tuple[tuple[int, int], ...]
    parameter: int
    low: int  # the bytes that it writes of L1, or of ``scratch``, a parameter in LLB
    high: int
    scratch: int = -1
    number: int = 0
    loops: int = 0
    place: int = -1
    turn: int = 0


@dataclass
class Prologue:
    """Finds the loads of a kernel that can run before it, and puts items in their place that may skip them."""

    chip: Chip
    reaches: Reaches
    constants: frozenset[int]
    scratch: frozenset[int]  # the kernel's own parameters in LLB
    surely_runs: Callable[[Loop], bool]
    found: list[tuple[SkippedFirst, Ahead]] = field(default_factory=list)
    _passed: list[Item] = field(default_factory=list)  # whose spans nobody has asked for yet
    _touched: list[Span] = field(default_factory=list)
    _has_waited: bool = False  # for another core

    def take(self, root: Block) -> None:
        self._block(root, (), ())

    def _block(self, block: Block, loops: tuple[Loop, ...], branches: tuple[Branch, ...]) -> None:
        for index, item in enumerate(block.items):
            if isinstance(item, Step):
                found = list(self._ahead(item, loops, branches))
                if found:
                    counters = tuple(loop.counter for loop in loops)
                    block.items[index] = skipped = SkippedFirst(item, counters, item.text)
                    self.found += [(skipped, ahead) for ahead in found]
            elif isinstance(item, Loop) and self.surely_runs(item):
                self._block(item.body, (*loops, item), branches)
            elif isinstance(item, Branch):
                self._block(item.then, loops, (*branches, item))
            self._has_waited = self._has_waited or holds_in(item, _waits_for_cores)
            self._passed.append(item)

    def _meets(self, written: Span) -> bool:
        """Whether an item before touches the same bytes."""
        for item in self._passed:
            self._touched += self._spans(item, self.reaches)
        self._passed = []
        return any(span.meets(written) for span in self._touched)

    def _spans(self, item: Item, reaches: Reaches) -> Iterator[Span]:
        load = item.load if isinstance(item, SkippedFirst) else item
        if isinstance(load, Step) and load.row.tensors:
            reached = [reaches.of(operand) for operand in load.operands]
            yield from spans(load.row, load.mods, reached, self.chip, (MEMORY, SHARED))
        for block in blocks_of(item):
            for inner in block.items:
                yield from self._spans(inner, reaches)

    def _ahead(self, load: Step, loops: tuple[Loop, ...], branches: tuple[Branch, ...]) -> Iterator[Ahead]:
        """The load in the first turns of the innermost loop around it, as many as can run before the kernel."""
        if load.row.queue_of(load.mods) != Queue.MTE2 or len(load.row.tensors) != 2:
            return
        reached = (self.reaches.of(operand).parameter for operand in load.operands)
        parameters = {parameter for parameter in reached if parameter is not None}
        sources, scratch = parameters & self.constants, parameters & self.scratch
        if len(sources) != 1 or len(parameters) != 1 + len(scratch):  # condition 1
            return
        if len({skipped for skipped, ahead in self.found if (ahead.scratch >= 0) == bool(scratch)}) == MOST:
            return
        before = list[Span]()  # what the turns before touch
        for number in range(TURNS if loops else 1):
            if loops and not (self.reaches.of(loops[-1].count).low > number).all():
                return
            if scratch and (self._has_waited or (number and _waits_in(loops[-1]))):  # condition 3
                return
            turn = {loop.counter: 0 for loop in loops[:-1]} | {loop.counter: number for loop in loops[-1:]}
            made = self._made(load, turn, branches)
            if made is None:
                return
            code, written = made
            if written.parameter not in (None, *scratch) or self._meets(written):  # condition 3
                return
            if any(span.meets(written) for span in before):
                return
            low, high = int(written.low.min()), int(written.high.max())
            target = -1 if written.parameter is None else written.parameter
            source = min(sources)
            yield Ahead(code.instrs, code.relocations, source, low, high, target, number, len(loops))
            if loops and number + 1 < TURNS:
                there = self.reaches.where(turn)
                before += [span for item in loops[-1].body.items for span in self._spans(item, there)]

    def _made(
        self, load: Step, turn: Mapping[Node, int], branches: tuple[Branch, ...]
    ) -> tuple[Allocated, Span] | None:
        """The load in a turn as code of its own, and the bytes that it writes; None unless these are known."""
        root = Block()
        values = Values(root)
        known = _InTurn(values, turn)
        operands = known.all_of(load.operands)
        conditions = [known.tests_of(branch) for branch in branches]
        if operands is None or None in conditions:  # condition 2
            return None
        written = self._written(load, [self.reaches.of(operand) for operand in operands])
        if written is None:
            return None
        block = root
        for tests in filter(None, conditions):
            then, otherwise = (block.inner(is_loop_body=False) for _ in range(2))
            block.items.append(Branch(tests, then, otherwise))
            block = then
        block.items.append(Step(load.row, load.mods, values.all_in_range(operands)))
        code = allocate(root, 0)
        return None if code.spilled_bytes else (code, written)

    def _written(self, load: Step, reached: list[Reach]) -> Span | None:
        """The bytes of L1 or of LLB that a load writes, where it writes there and they are known."""
        found = spans(load.row, load.mods, reached, self.chip, (MEMORY, SHARED))
        return found[0] if len(found) == 1 and found[0].is_known else None


def _waits_in(loop: Loop) -> bool:
    return any(holds_in(item, _waits_for_cores) for item in loop.body.items)


def _waits_for_cores(item: Item) -> bool:
    return isinstance(item, Step) and item.row.kind in ("cross_wait", "core_barrier", "cluster_barrier")


class _InTurn:
    """Values as they are in a turn of some loops, made anew; None where one does not follow from the core's number."""

    def __init__(self, values: Values, turn: Mapping[Node, int]) -> None:
        self.values, self.turn = values, turn
        self._made: dict[Node, Operand | None] = {}

    def all_of(self, operands: Sequence[Operand]) -> tuple[Operand, ...] | None:
        found = [self.of(operand) for operand in operands]
        known = tuple(operand for operand in found if operand is not None)
        return known if len(known) == len(found) else None

    def tests_of(self, branch: Branch) -> tuple[Test, ...] | None:
        """What keeps out of a branch; also None where that is known to hold."""
        found = []
        for test in branch.tests:
            operands = self.all_of((test.a, test.b))
            if operands is None:
                return None
            if not all(operand.is_constant for operand in operands):
                found.append(Test(test.mnemonic, *self.values.all_in_range(operands)))
            elif by_mnemonic()[test.mnemonic].function(*(operand.offset for operand in operands)):
                return None
        return tuple(found)

    def of(self, operand: Operand) -> Operand | None:
        if operand.node is None:
            return operand
        if operand.node not in self._made:
            self._made[operand.node] = self._node(operand.node)
        made = self._made[operand.node]
        return None if made is None else Operand(made.node, made.offset + operand.offset)

    def _node(self, node: Node) -> Operand | None:
        if node in self.turn:
            return Operand(None, self.turn[node])
        if node.pinned:
            return None
        operands = self.all_of(node.operands)
        if operands is None:
            return None
        if node.operation == "smadd" and operands[0].is_constant and operands[1].is_constant:
            total = operands[2]
            return Operand(total.node, total.offset + operands[0].offset * operands[1].offset)
        return self.values.operation(node.operation, *operands)
