"""From the statements of a kernel in instruction form to blocks of items over scalar values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx

from compiler.codegen.gate import keeping_out
from compiler.codegen.instruction_form import (
    ADDRESS,
    CORE_AXIS,
    Address,
    dense_bytes,
    dtype_of,
    float_bits,
    memory_of,
    physical_bytes,
    read_call,
    refuse,
    scalar_type,
    static_shape,
)
from compiler.codegen.items import Branch, Loop, Step, Test
from compiler.codegen.scalars import Scalars, byte_offset
from compiler.codegen.values import ZERO, Block, Linear, Operand, Values
from compiler.errors import CapacityError, Problem
from compiler.isa.table import by_mnemonic
from compiler.target import Chip
from compiler.tir.structure import answered_once

_CALL = 'T.call_extern("void", "'
_LINE = 64  # what a core's share of a scratch buffer is a multiple of


@dataclass(frozen=True)
class Parameter:
    """A buffer of DDR or LLB that a kernel works on; ``scratch`` ones hold nothing before and after it.

    ``memory``: where it lies, if it is scratch, else where it was meant to lie when the kernel was compiled.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    read: bool
    written: bool
    scratch: bool = False
    memory: str = "ddr"


class Lowering:
    """Walks a kernel once; leaves ``root`` and what is known about its buffers."""

    def __init__(self, func: Any, chip: Chip) -> None:
        self.chip = chip
        self.root = Block()
        self.values = Values(self.root)
        self.scalars = Scalars(self.values, self.root)
        self.scalars.address_of = self._address
        self.scalars.memory_of = self._memory
        self.statements: list[Any] = []  # those that become instructions
        self.memory: dict[str, int] = {}
        self.cores = 1
        self._bases: dict[Any, Linear] = {}
        self._memories: dict[Any, str] = {}
        self._globals: list[tuple[Any, int, bool]] = []  # buffer, bytes, whether it is scratch
        self._used: dict[Any, set[str]] = {}
        self._core: Operand | None = None  # where the kernel runs on several cores: which one this is
        for parameter in func.params:
            if not tirx.is_buffer_var(parameter):
                raise refuse(f"parameter `{parameter.name}` is not a buffer")
            self._declare(parameter, dense_bytes(parameter), scratch=False)
        self._kernel(func.body)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        names = [str(buffer.name) for buffer, *_ in self._globals]
        return tuple(
            Parameter(
                # What two loads of one tensor bring to LLB is called alike.
                f"{name}_{names[:index].count(name)}" if scratch and name in names[:index] else name,
                dtype_of(buffer),
                static_shape(buffer),
                size,
                "r" in self._used[buffer],
                "w" in self._used[buffer],
                scratch,
                self._memories[buffer],
            )
            for index, (name, (buffer, size, scratch)) in enumerate(zip(names, self._globals, strict=True))
        )

    # ---- buffers

    def _declare(self, buffer: Any, size: int, *, scratch: bool, memory: str = "ddr") -> Operand:
        base = self.values.operation("ldt", Operand(None, len(self._globals)))
        self._globals.append((buffer, size, scratch))
        self._bases[buffer], self._memories[buffer], self._used[buffer] = Linear.of(base), memory, set()
        return base

    def _allocate(self, statement: Any) -> None:
        buffer, memory, size = statement.buffer, memory_of(statement.buffer), physical_bytes(statement)
        if memory == "ddr":
            shared = -(-size // _LINE) * _LINE
            cores = 1 if self._core is None else self.chip.cores
            base = self._declare(buffer, shared * cores, scratch=True)
            if self._core is not None:
                self._bases[buffer] = Linear.of(base).plus(Linear.of(self._core), shared)
            return
        if memory == "llb":
            self._declare(buffer, size, scratch=True, memory=memory)
            return
        if ADDRESS not in statement.annotations:
            raise refuse(f"buffer `{buffer.name}` in {memory} has no address: allocate memory first")
        address = int(statement.annotations[ADDRESS])
        self.memory[memory] = max(self.memory.get(memory, 0), address + size)
        self._bases[buffer], self._memories[buffer] = Linear({}, address), memory

    def _memory(self, buffer: Any) -> str:
        self._touch(buffer, "r")
        return self._memories[buffer]

    def _touch(self, buffer: Any, role: str) -> None:
        if buffer not in self._bases:
            raise refuse(f"buffer `{buffer.name}` is neither a parameter nor allocated where it is used")
        if buffer in self._used:
            self._used[buffer].update(role)

    def _address(self, address: Address) -> Operand:
        if address.buffer not in self._bases:
            raise refuse(f"buffer `{address.buffer.name}` is neither a parameter nor allocated where it is used")
        return self.values.operand(self._bases[address.buffer].plus(byte_offset(self.scalars, address)))

    # ---- statements

    def _kernel(self, body: Any) -> None:
        """The cores that take part run the body; allocations and bindings may stand around the split."""
        block = self.root
        if not _has_core_axis(body):
            block = self._on_cores(block, 1)
        self._statement(body, block)

    def _on_cores(self, block: Block, extent: int) -> Block:
        """A block that the first ``extent`` cores run."""
        if extent >= self.chip.cores:
            return block
        core = self.values.operation("getsr.core")
        test = keeping_out(core, extent)
        then, otherwise = block.inner(is_loop_body=False), block.inner(is_loop_body=False)
        block.items.append(Branch((test,), then, otherwise))
        return then

    def _text(self, statement: Any) -> int:
        self.statements.append(statement)
        return len(self.statements) - 1

    def _statement(self, statement: Any, block: Block) -> None:
        self.scalars.loads.statement(block, len(self.statements) - 1)
        match statement:
            case tirx.SeqStmt():
                for part in statement.seq:
                    self._statement(part, block)
            case tirx.For():
                self._loop(statement, block)
            case tirx.IfThenElse():
                self._branch(statement, block)
            case tirx.Evaluate():
                self._instruction(statement, block)
            case tirx.BufferStore():
                self._store(statement, block)
            case tirx.AllocBuffer():
                self._allocate(statement)
            case tirx.Bind():
                self.scalars.bind(statement.var, statement.value)
            case tirx.AttrStmt():
                self._attribute(statement, block)
            case _:
                raise refuse(f"a kernel has no {type(statement).__name__}", statement)

    def _attribute(self, statement: Any, block: Block) -> None:
        if statement.attr_key != "thread_extent":
            self._statement(statement.body, block)
            return
        axis, extent = statement.node, statement.value
        if axis.thread_tag != CORE_AXIS or not isinstance(extent, tirx.IntImm):
            raise refuse(f"the only launched axis is {CORE_AXIS}, of a constant extent")
        if block is not self.root:
            raise refuse("the split over cores stands outside of all loops and branches")
        if int(extent) > self.chip.cores:
            text = f"a kernel is split over {int(extent)} cores; chip {self.chip.name} has {self.chip.cores}"
            raise CapacityError(Problem("TW2603", text, hint="split its outermost loop into fewer parts"))
        self.cores = max(self.cores, int(extent))
        core = self.values.operation("getsr.core") if int(extent) > 1 else ZERO
        self._core = core if int(extent) > 1 else None
        self.scalars.variables[axis.var] = Linear.of(core)
        self._statement(statement.body, self._on_cores(block, int(extent)))
        self._core = None

    def _loop(self, statement: Any, block: Block) -> None:
        count = self.scalars.integer(statement.extent)
        step = 1 if statement.step is None else int(statement.step)
        if step != 1:
            rounded = self.values.operation("sceil", self.values.operand(count), Operand(None, step))
            count = Linear.of(rounded)
        first = self.scalars.integer(statement.min)
        if count.is_constant and count.constant <= 1:
            if count.constant == 1:
                self.scalars.variables[statement.loop_var] = first
                self._statement(statement.body, block)
            return
        (operand,) = self.values.all_in_range((self.values.operand(count),))
        body, text = block.inner(is_loop_body=True), len(self.statements)
        counter = self.values.pinned(body)
        self.scalars.variables[statement.loop_var] = first.plus(Linear({counter: 1}), step)
        self._statement(statement.body, body)
        block.items.append(Loop(counter, operand, body, text))

    def _branch(self, statement: Any, block: Block) -> None:
        tests = self.scalars.tests(statement.condition)
        if any(test == Test("beq", ZERO, ZERO) for test in tests):
            if statement.else_case is not None:
                self._statement(statement.else_case, block)
            return
        if not tests:
            self._statement(statement.then_case, block)
            return
        then, otherwise = block.inner(is_loop_body=False), block.inner(is_loop_body=False)
        text = len(self.statements)
        self._statement(statement.then_case, then)
        if statement.else_case is not None:
            self._statement(statement.else_case, otherwise)
        block.items.append(Branch(tuple(tests), then, otherwise, text))

    def _instruction(self, statement: Any, block: Block) -> None:
        call = read_call(statement)
        if call is None:
            return
        text = self._text(statement)
        self.scalars.loads.statement(block, text)
        operands = tuple(self._slot(value) for value in call.operands)
        block.items.append(Step(call.row, call.mods, self.values.all_in_range(operands), text=text))
        addresses = iter(value for value in call.operands if isinstance(value, Address))
        for tensor, address in zip(call.row.tensors, addresses, strict=True):
            self._touch(address.buffer, tensor.role)

    def _slot(self, value: Any) -> Operand:
        if isinstance(value, Address):
            return self._address(value)
        if isinstance(value, tirx.FloatImm):
            return Operand(None, float_bits(float(value.value)))
        return self.scalars.operand(value)

    def _store(self, statement: Any, block: Block) -> None:
        text = self._text(statement)
        self.scalars.loads.statement(block, text)
        buffer, name = statement.buffer, dtype_of(statement.buffer)
        address = self._address(Address(buffer, tuple(statement.indices)))
        value = self.scalars.stored(statement.value)
        operands = self.values.all_in_range((address, value))
        mods = (self._memories[buffer], scalar_type(name))
        block.items.append(Step(by_mnemonic()["sst"], mods, operands, text=text))
        self._touch(buffer, "w")


def _has_core_axis(statement: Any) -> bool:
    """Whether the split over cores stands somewhere outside of all loops and branches."""
    match statement:
        case tirx.SeqStmt():
            return any(_has_core_axis(part) for part in statement.seq)
        case tirx.AttrStmt():
            return statement.attr_key == "thread_extent" or _has_core_axis(statement.body)
    return False


@answered_once
def text_of(statement: Any) -> str:
    """A statement as listings show it."""
    text = str(statement).splitlines()[-1].strip()
    if text.startswith(_CALL):
        name, _, slots = text.removeprefix(_CALL).partition('", ')
        text = f"{name}({slots}"
    return text
