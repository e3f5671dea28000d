"""From blocks of items to instructions: a linear order, and a register for every value while it lives.

A value lives from where it is made to its last use; one that is used in a loop and made outside of it lives through
the loop. Where the registers do not last, values give theirs up, those first that cost least: a value that can be
worked out again is worked out at every use; one that cannot, or for which that did not help, goes to a word of UB and
is read from there before every instruction that uses it. Each round some value goes one step down, and with all of
them at the end an instruction needs no more registers than it has slots: allocation always ends.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field

from compiler.codegen.items import Branch, Gate, GuardedLoad, Loop, SkippedFirst, Step, blocks_of
from compiler.codegen.placement import Placement, place
from compiler.codegen.values import Block, Node, Operand
from compiler.errors import Problem, TilewrightError
from compiler.isa.model import REGISTERS, Instr, Reg, Row, Value
from compiler.isa.table import by_mnemonic
from compiler.isa.table.control import LOOP_DEPTH

WORD_BYTES = 8
LINKERS = (REGISTERS - 1, REGISTERS - 2, REGISTERS - 3)  # for what the linker puts into kernels
_FREE = tuple(register for register in range(1, REGISTERS) if register not in LINKERS)  # x0 is zero
_LOOP_WEIGHT = 8  # how much more an instruction costs for each loop around it


@dataclass(eq=False)
class Life:
    """One stay of a value in a register, from instruction ``start`` to instruction ``end``."""

    node: Node
    start: int
    end: int
    loops: int
    kind: str  # "made" by an item, "worked out", "reloaded" from UB, or a "count" that a loop runs to
    cost: int = 0
    register: int = 0


@dataclass
class Line:
    """An instruction whose registers are still lives."""

    row: Row
    mods: tuple[str, ...]
    operands: tuple[Operand, ...]
    sources: tuple[Life | None, ...]  # per operand
    result: Life | None = None
    target: int = -1  # label
    text: int = -1
    relocated: int = -1  # the parameter whose address it loads


@dataclass
class Code:
    """Instructions in order; ``labels`` are indices into ``lines``."""

    lines: list[Line] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    gate: int = -1
    places: dict[SkippedFirst, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Allocated:
    """What code generation has after this step."""

    instrs: tuple[Instr, ...]
    operands: tuple[tuple[Operand, ...], ...]  # per instruction, what its slots but results and targets came from
    relocations: tuple[tuple[int, int], ...]  # (instruction, parameter)
    texts: tuple[int, ...]  # per instruction
    spilled_bytes: int
    gate: int  # the instruction that holds the gate's place; -1 where there is none
    places: dict[SkippedFirst, int]  # the first instruction of each


def allocate(root: Block, spill_address: int) -> Allocated:
    """Order, place and allocate; values that find no register lie in UB from ``spill_address`` on."""
    local: set[Node] = set()
    slots: dict[Node, int] = {}
    while True:
        writer = _Writer(place(root, local), slots, spill_address)
        writer.block(root)
        victims = _scan(writer.code.lives, local, slots)
        if not victims:
            return _finished(writer.code, len(slots) * WORD_BYTES)
        for node in victims:
            if node.pinned or node in local:
                slots[node] = len(slots) * WORD_BYTES
                local.discard(node)
            else:
                local.add(node)


# ---- the linear order -----------------------------------------------------------------------------------------


class _Writer:
    """Writes blocks down, one instruction after the other, and notes how long each value lives."""

    def __init__(self, placement: Placement, slots: dict[Node, int], spill_address: int) -> None:
        self.placement, self.slots, self.spill_address = placement, slots, spill_address
        self.code = Code()
        self._current: dict[Node, Life] = {}
        self._loops: list[int] = []  # first instruction of each open loop's body
        self._kept: list[list[Life]] = []  # per open loop, lives that its end extends
        self._text = -1

    def block(self, block: Block) -> None:
        for index, item in enumerate(block.items):
            self._text = item.text if item.text >= 0 else self._text
            for node in self.placement.at(block, index):
                self._work_out(node)
            match item:
                case Step():
                    self._step(item)
                case GuardedLoad():
                    self._guarded(item)
                case Loop():
                    self._loop(item)
                case Branch():
                    self._branch(item)
                case SkippedFirst():
                    self._skipped_first(item)
                case Gate():
                    self.code.gate = len(self.code.lines)
                    self._emit("nop", (), ())

    def _work_out(self, node: Node) -> None:
        mnemonic, *mods = node.operation.split(".")
        row = by_mnemonic()[mnemonic]
        line = self._line(row, tuple(mods), node.operands, result=node)
        if mnemonic == "ldt":
            line.relocated = node.operands[0].offset

    def _step(self, item: Step) -> None:
        self._line(item.row, item.mods, item.operands, result=item.result)

    def _skipped_first(self, item: SkippedFirst) -> None:
        """In all turns but the first the load is gone to; in the first one it is jumped over."""
        if not item.counters:
            self.code.places[item] = len(self.code.lines)
            self._step(item.load)
            return
        load, after = self._label(), self._label()
        sources = self._sources(tuple(map(Operand, item.counters)))
        self.code.places[item] = len(self.code.lines)
        for counter, source in zip(item.counters, sources, strict=True):
            self._emit("bne", (Operand(counter), Operand(None)), (source, None), target=load)
        self._emit("jmp", (), (), target=after)
        self._land(load)
        self._step(item.load)
        self._land(after)

    def _guarded(self, item: GuardedLoad) -> None:
        """The result is zero first, and is loaded over where the guard holds."""
        sources = self._sources((item.guard, item.address))
        self._emit("smov", (Operand(None),), (None,))
        made = self.code.lines[-1].result = self._begin(item.result)
        after = self._label()
        self._emit("beq", (item.guard, Operand(None)), (sources[0], None), target=after)
        self.code.lines.append(Line(item.row, item.mods, (item.address,), (sources[1],), made, text=self._text))
        self._used((sources[1],))
        for life in (made, *sources):
            if life is not None:
                life.end = len(self.code.lines)
        self._land(after)
        self._spill(item.result, made)

    def _loop(self, item: Loop) -> None:
        if not _makes_code(item.body):
            return
        if _hardware(item.body):
            (count,) = self._sources((item.count,))
            end = self._label()
            self._emit("loop", (item.count,), (count,), target=end)
            counter = self.code.lines[-1].result = self._begin(item.counter)
            counter.start = counter.end = counter.start + 1  # the hardware writes it anew at the start of every turn
            self._open()
            self._spill(item.counter, counter)
            self.block(item.body)
            self._close()
            self._land(end)
            return
        self._counted(item)

    def _counted(self, item: Loop) -> None:
        """A loop of branches: the counter and the count keep their registers to its end."""
        end, head = self._label(), self._label()
        (count,) = self._sources((item.count,))
        if item.count.node is not None:
            self._emit("ble", (item.count, Operand(None)), (count, None), target=end)
        self._emit("smov", (Operand(None),), (None,))
        counter = self.code.lines[-1].result = self._begin(item.counter)
        self._spill(item.counter, counter)
        self._open()
        self._land(head)
        self.block(item.body)
        if item.counter in self.slots:
            counter = self._reload(item.counter)
        if item.count.node in self.slots:
            (count,) = self._sources((item.count,))
        self._emit("sadd", (Operand(item.counter), Operand(None, 1)), (counter, None)).result = counter
        self._spill(item.counter, counter)
        self._emit("blt", (Operand(item.counter), item.count), (counter, count), target=head)
        self._close()
        self._land(end)

    def _branch(self, item: Branch) -> None:
        if not _makes_code(item.then) and not _makes_code(item.otherwise):
            return
        otherwise, end = self._label(), self._label()
        for test in item.tests:
            sources = self._sources((test.a, test.b))
            self._emit(test.mnemonic, (test.a, test.b), sources, target=otherwise)
        self.block(item.then)
        if _makes_code(item.otherwise):
            self._emit("jmp", (), (), target=end)
        self._land(otherwise)
        self.block(item.otherwise)
        self._land(end)

    # ---- lines, labels and lives

    def _label(self) -> int:
        self.code.labels.append(-1)
        return len(self.code.labels) - 1

    def _land(self, label: int) -> None:
        self.code.labels[label] = len(self.code.lines)

    def _open(self) -> None:
        self._loops.append(len(self.code.lines))
        self._kept.append([])

    def _close(self) -> None:
        """What was made before the loop and used in it lives to its end, and longer than its counter begins to."""
        first = self._loops.pop()
        for life in self._kept.pop():
            life.end = max(life.end, len(self.code.lines) - 1, first + 1)
            if self._loops and life.start < self._loops[-1]:
                self._kept[-1].append(life)

    def _emit(
        self,
        mnemonic: str,
        operands: tuple[Operand, ...],
        sources: tuple[Life | None, ...],
        target: int = -1,
        mods: tuple[str, ...] = (),
    ) -> Line:
        line = Line(by_mnemonic()[mnemonic], mods, operands, sources, target=target, text=self._text)
        self.code.lines.append(line)
        self._used(sources)
        return line

    def _line(self, row: Row, mods: tuple[str, ...], operands: tuple[Operand, ...], result: Node | None) -> Line:
        sources = self._sources(operands)
        line = Line(row, mods, operands, sources, text=self._text)
        self.code.lines.append(line)
        self._used(sources)
        if result is not None:
            line.result = self._begin(result)
            self._spill(result, line.result)
        return line

    def _sources(self, operands: tuple[Operand, ...]) -> tuple[Life | None, ...]:
        """The life of each operand's value at the next instruction; those in UB are read from there."""
        found: dict[Node, Life] = {}
        for operand in operands:
            node = operand.node
            if node is not None and node not in found:
                found[node] = self._reload(node) if node in self.slots else self._current[node]
        return tuple(None if operand.node is None else found[operand.node] for operand in operands)

    def _reload(self, node: Node) -> Life:
        address = Operand(None, self.spill_address + self.slots[node])
        line = self._emit("sld", (address,), (None,), mods=("ub", "int64"))
        line.result = self._begin(node, "reloaded")
        return line.result

    def _spill(self, node: Node, life: Life) -> None:
        if node in self.slots:
            address = Operand(None, self.spill_address + self.slots[node])
            self._emit("sst", (address, Operand(node)), (None, life), mods=("ub", "int64"))

    def _begin(self, node: Node, kind: str = "") -> Life:
        here = len(self.code.lines) - 1
        kind = kind or ("made" if node.pinned else "worked out")
        life = Life(node, here, here, len(self._loops), kind)
        self.code.lives.append(life)
        self._current[node] = life
        return life

    def _used(self, sources: tuple[Life | None, ...]) -> None:
        here = len(self.code.lines) - 1
        for life in sources:
            if life is not None:
                life.end = max(life.end, here)
                life.cost += int(_LOOP_WEIGHT ** len(self._loops))
                if self._loops and life.start < self._loops[-1]:
                    self._kept[-1].append(life)


def _makes_code(block: Block) -> bool:
    return any(not inner or any(map(_makes_code, inner)) for inner in map(blocks_of, block.items))


def _hardware(body: Block) -> bool:
    """Whether a loop is one of the innermost ones, as many as the hardware can nest."""
    return _height(body) < LOOP_DEPTH


def _height(block: Block) -> int:
    """Loops that are nested within a block."""
    highest = 0
    for item in block.items:
        for inner in blocks_of(item):
            highest = max(highest, _height(inner) + isinstance(item, Loop))
    return highest


# ---- registers ------------------------------------------------------------------------------------------------


def _scan(lives: list[Life], local: set[Node], slots: dict[Node, int]) -> list[Node]:
    """Give every life a register; what has to go down a step where there are too few."""
    free = list(_FREE)
    active: list[Life] = []
    victims: dict[Node, None] = {}
    for life in sorted(lives, key=lambda life: life.start):
        for ended in [other for other in active if other.end <= life.start]:
            active.remove(ended)
            if ended.register:
                insort(free, ended.register)
        if life.node in victims:
            continue
        if free:
            life.register = free.pop(0)
            active.append(life)
            continue
        victim = min((*active, life), key=_loss(local, slots))
        if victim.node in slots:
            raise TilewrightError(Problem("TW2604", "an instruction needs more registers than there are"))
        victims[victim.node] = None
        if victim is not life:
            active.remove(victim)
            life.register, victim.register = victim.register, 0
            active.append(life)
    return list(victims)


def _loss(local: set[Node], slots: dict[Node, int]) -> Callable[[Life], tuple[bool, float]]:
    """What is lost per instruction of a register's time that is won, when a value gives its register up."""

    def loss(life: Life) -> tuple[bool, float]:
        step = 1 if not life.node.pinned and life.node not in local else 20
        return life.node in slots, life.cost * step / (life.end - life.start + 1)

    return loss


def _finished(code: Code, spilled_bytes: int) -> Allocated:
    instrs, relocations, texts = [], [], []
    for index, line in enumerate(code.lines):
        instrs.append(Instr(line.row, line.mods, _values(code, line, index)))
        texts.append(line.text)
        if line.relocated >= 0:
            relocations.append((index, line.relocated))
    operands = tuple(line.operands for line in code.lines)
    return Allocated(tuple(instrs), operands, tuple(relocations), tuple(texts), spilled_bytes, code.gate, code.places)


def _values(code: Code, line: Line, index: int) -> tuple[Value, ...]:
    values: list[Value] = []
    operands = iter(zip(line.operands, line.sources, strict=True))
    for slot in line.row.slots(line.mods):
        if slot.kind == "dest":
            values.append(line.result.register if line.result is not None and line.result.cost else 0)
        elif slot.kind == "target":
            values.append(code.labels[line.target] - index)
        else:
            operand, life = next(operands)
            constant = operand.offset & 0xFFFFFFFF if slot.kind == "float" else operand.offset
            values.append(constant if life is None else Reg(life.register, operand.offset))
    return tuple(values)
