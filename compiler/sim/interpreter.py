"""The reference interpreter: one instruction after the other, in program order. Slow, simple, the oracle.

Cores take turns: each runs until it halts or must wait for another core. Flags between the queues of one core have
nothing to do here, since program order already satisfies them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from compiler.errors import CapacityError, HazardError, InvalidError, LimitError, Problem
from compiler.isa.dtypes import SHARED_MEMORIES
from compiler.isa.execute import array_at, execute, reproducible
from compiler.isa.model import REGISTERS, Args, Instr, Reg, Value
from compiler.isa.program import Program
from compiler.isa.table.control import LOOP_DEPTH, SYSTEM_REGISTERS
from compiler.isa.table.sync import IN_CLUSTER
from compiler.sim.classes import checked
from compiler.sim.memory import Memories
from compiler.target import Chip

MAX_STEPS = 20_000_000


def interpret(
    program: Program, chip: Chip, inputs: Mapping[str, np.ndarray] | None = None, *, max_steps: int = MAX_STEPS
) -> Interpreter:
    """Run a program to its end; the result holds the memories and what the scalar loads read."""
    interpreter = Interpreter(program, chip, inputs, max_steps)
    with reproducible():
        interpreter.run()
    return interpreter


class Interpreter:
    def __init__(self, program: Program, chip: Chip, inputs: Mapping[str, np.ndarray] | None, max_steps: int) -> None:
        self.program, self.chip = program, chip
        self.cores = [_Core(self, number) for number in range(program.cores or chip.cores)]
        self.memories = Memories(program, chip, len(self.cores), inputs)
        self.cross: Counter[tuple[int, int, int]] = Counter()  # (source, destination, id) -> pending sets
        self.steps_left = max_steps

    @property
    def outputs(self) -> dict[str, np.ndarray]:
        return self.memories.outputs()

    @property
    def loaded(self) -> list[list[int]]:
        """The values that each core's scalar loads read, in order."""
        return [core.loaded for core in self.cores]

    def run(self) -> None:
        while any(not core.halted for core in self.cores):
            moved = [core.run() for core in self.cores if not core.halted]
            if not any(moved) and not self._release_barriers():
                self._raise_trap()
                stuck = [c for c in self.cores if not c.halted]
                problems = [
                    Problem(
                        "TW1401",
                        f"deadlock: core {c.number} waits in {c.current.row.mnemonic}",
                        self.program.place(c.pc),
                    )
                    for c in stuck
                ]
                raise HazardError(problems)
        self._raise_trap()

    def _raise_trap(self) -> None:
        """Of several cores that trapped, whoever was first, the one with the lowest number is told of."""
        for core in self.cores:
            if core.trap is not None:
                raise InvalidError(core.trap)

    def _release_barriers(self) -> bool:
        """Let a group of cores go on once all of them wait at its barrier."""
        groups = [("core_barrier", self.cores)]
        per_cluster = self.chip.cores_per_cluster
        for first in range(0, len(self.cores), per_cluster):
            groups.append(("cluster_barrier", self.cores[first : first + per_cluster]))
        for mnemonic, group in groups:
            if all(not core.halted and core.current.row.mnemonic == mnemonic for core in group):
                for core in group:
                    core.pc += 1
                return True
        return False


class _Core:
    """One core's registers, loops and program counter."""

    def __init__(self, machine: Interpreter, number: int) -> None:
        self.machine, self.number = machine, number
        entries = machine.program.entries
        self.pc = entries[number] if entries else 0
        self.regs = [0] * REGISTERS
        self.loops: list[tuple[int, int, int, int, int]] = []  # start, end, trips, done, register
        self.halted = False
        self.trap: Problem | None = None  # what it halted for
        self.loaded: list[int] = []

    @property
    def current(self) -> Instr:
        return self.machine.program.instrs[self.pc]

    def run(self) -> bool:
        """Go on until the core halts or must wait; whether it moved at all."""
        moved = False
        while not self.halted and self._step():
            moved = True
        return moved or self.halted

    def _step(self) -> bool:
        machine = self.machine
        while self.loops and self.pc == self.loops[-1][1]:
            start, end, trips, done, register = self.loops.pop()
            if done + 1 < trips:
                self.loops.append((start, end, trips, done + 1, register))
                self._write(register, done + 1)
                self.pc = start
        if not 0 <= self.pc < len(machine.program.instrs):
            raise InvalidError(Problem("TW1302", f"core {self.number} ran past the program's end"))
        machine.steps_left -= 1
        if machine.steps_left < 0:
            raise LimitError(Problem("TW1301", "the interpreter's instruction budget is used up", self._place))
        instr = self.current
        handler = getattr(self, f"_{instr.row.kind}", None)
        if handler is not None:
            return bool(handler(instr))
        if instr.row.semantics is not None:
            execute(self._checked(instr), machine.memories.of(self.number))
        self.pc += 1
        return True

    # ---- one method per kind of row; true where the core may go on

    def _alu(self, instr: Instr) -> bool:
        a, b, c = self._sources(instr)
        return self._result(instr, int(instr.row.function(a, b, c)))

    def _falu(self, instr: Instr) -> bool:
        return self._result(instr, _bits(self._float_function(instr)))

    def _fcmp(self, instr: Instr) -> bool:
        return self._result(instr, int(self._float_function(instr)))

    def _itof(self, instr: Instr) -> bool:
        a, b, c = self._sources(instr)
        return self._result(instr, _bits(instr.row.function(a, b, c)))

    def _branch(self, instr: Instr) -> bool:
        a, b, _ = self._sources(instr)
        if instr.row.function(a, b):
            self.pc += self._value(instr.values[-1])
            while self.loops and not self.loops[-1][0] <= self.pc <= self.loops[-1][1]:
                self.loops.pop()
        else:
            self.pc += 1
        return True

    def _loop(self, instr: Instr) -> bool:
        register, trips, end = (
            self._value(instr.values[0]),
            self._value(instr.values[1]),
            self.pc + self._value(instr.values[2]),
        )
        if trips <= 0 or end <= self.pc + 1:
            if trips > 0:
                self._write(register, trips - 1)
            self.pc = end
            return True
        if len(self.loops) >= LOOP_DEPTH:
            text = f"core {self.number} nests hardware loops more than {LOOP_DEPTH} deep"
            raise InvalidError(Problem("TW1302", text, self._place))
        self.loops.append((self.pc + 1, end, trips, 0, register))
        self._write(register, 0)
        self.pc += 1
        return True

    def _ldt(self, instr: Instr) -> bool:
        return self._tiling_word(instr, self._value(instr.values[1]))

    def _ldtc(self, instr: Instr) -> bool:
        index = self._value(instr.values[1])
        return self._tiling_word(instr, index + self.number // self.machine.chip.cores_per_cluster * (index >= 0))

    def _tiling_word(self, instr: Instr, index: int) -> bool:
        words = self.machine.program.tiling
        if not 0 <= index < len(words):
            text = f"core {self.number} reads tiling word {index}; the program has {len(words)}"
            raise InvalidError(Problem("TW1302", text, self._place))
        return self._result(instr, words[index].value)

    def _getsr(self, instr: Instr) -> bool:
        chip, per_cluster = self.machine.chip, self.machine.chip.cores_per_cluster
        values = {
            "core": self.number,
            "cores": len(self.machine.cores),
            "cluster": self.number // per_cluster,
            "clusters": chip.clusters,
            "core_in_cluster": self.number % per_cluster,
            "cores_per_cluster": per_cluster,
        }
        if set(values) != set(SYSTEM_REGISTERS):
            raise KeyError(f"system registers {set(SYSTEM_REGISTERS) ^ set(values)}")
        return self._result(instr, values[instr.mods[0]])

    def _nop(self, instr: Instr) -> bool:
        self.pc += 1
        return True

    def _halt(self, instr: Instr) -> bool:
        self.halted = True
        return True

    def _trap(self, instr: Instr) -> bool:
        text = f"core {self.number} trapped with code {self._value(instr.values[0])}"
        self.trap, self.halted = Problem("TW1302", text, self._place), True
        return True

    def _sld(self, instr: Instr) -> bool:
        args = self._checked(instr)
        value = args.row.function(
            args, array_at(self.machine.memories.of(self.number)[args.views[0].memory], args.views[0])
        )
        self.loaded.append(int(value))
        return self._result(instr, int(value))

    def _cross_set(self, instr: Instr) -> bool:
        args = self._checked(instr)
        self.machine.cross[self.number, self._other(args), args.id] += 1
        self.pc += 1
        return True

    def _cross_wait(self, instr: Instr) -> bool:
        args = self._checked(instr)
        flag = (self._other(args), self.number, args.id)
        if self.machine.cross[flag] == 0:
            return False
        self.machine.cross[flag] -= 1
        self.pc += 1
        return True

    def _other(self, args: Args) -> int:
        """The core that a flag comes from or goes to."""
        first = self.number - self.number % self.machine.chip.cores_per_cluster
        return int(args.core) + (first if args.row.mnemonic in IN_CLUSTER else 0)

    def _core_barrier(self, instr: Instr) -> bool:
        return False

    def _cluster_barrier(self, instr: Instr) -> bool:
        return False

    # ---- values

    def _value(self, value: Value) -> int:
        return _wrap(self.regs[value.index] + value.offset) if isinstance(value, Reg) else value

    def _sources(self, instr: Instr) -> tuple[int, int, int]:
        slots = instr.row.slots(instr.mods)
        values = [self._value(v) for s, v in zip(slots, instr.values, strict=True) if s.kind in ("int", "float")]
        a, b, c = (*values, 0, 0, 0)[:3]
        return a, b, c

    def _float_function(self, instr: Instr) -> Any:
        a, b, c = (np.uint32(v & 0xFFFFFFFF).view(np.float32) for v in self._sources(instr))
        with np.errstate(all="ignore"):
            return instr.row.function(a, b, c)

    def _result(self, instr: Instr, value: int) -> bool:
        self._write(self._value(instr.values[0]), value)
        self.pc += 1
        return True

    def _write(self, register: int, value: int) -> None:
        if register:
            self.regs[register] = _wrap(value)

    def _checked(self, instr: Instr) -> Args:
        """Bind to the present registers, refusing what the table or the memories do not allow."""
        machine = self.machine
        values = [self._value(value) for value in instr.values]
        args, problems = checked(instr, values, machine.chip, len(machine.cores))
        outside = self._outside(args) if args is not None else []
        if args is None or outside:
            kind = CapacityError if outside else InvalidError
            raise kind([Problem("TW1310", f"{instr.row.mnemonic}: {text}", self._place) for text in problems + outside])
        return args

    def _outside(self, args: Args) -> list[str]:
        found = []
        for view in args.views:
            low, high = view.address, view.address + view.extent_bytes
            spans = [(0, self.machine.chip.memory_bytes(view.memory))]
            if view.memory in SHARED_MEMORIES:
                spans = [(b.offset, b.end) for b in self.machine.program.buffers if b.memory == view.memory]
            if not any(first <= low and high <= last for first, last in spans):
                found.append(f"touches {view.memory} bytes {low} to {high - 1}, outside of it or of its buffers")
        return found

    @property
    def _place(self) -> Any:
        return self.machine.program.place(self.pc)


def _wrap(value: int) -> int:
    return (int(value) + 2**63) % 2**64 - 2**63


def _bits(value: Any) -> int:
    return int(np.float32(value).view(np.uint32))
