"""Loads of the scalar unit: each element once a statement, and none whose condition does not hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from compiler.codegen.instruction_form import scalar_type
from compiler.codegen.items import GuardedLoad, Step
from compiler.codegen.values import ONE, Block, Operand, Values
from compiler.isa.table import by_mnemonic

Result = TypeVar("Result")


class ScalarLoads:
    """Puts loads into the block of the current statement."""

    def __init__(self, values: Values, block: Block) -> None:
        self.values, self.block = values, block
        self.text = -1
        self._guards: list[Operand] = []
        self._loaded: dict[tuple[object, ...], Operand] = {}

    def statement(self, block: Block, text: int) -> None:
        """Another statement begins: what was loaded before may have changed since."""
        self.block, self.text = block, text
        self._loaded.clear()

    def guarded(self, guard: Operand, lower: Callable[[], Result]) -> Result:
        """Lower something whose loads only happen where the guard is not zero."""
        if guard.is_constant and guard.offset:
            return lower()
        self._guards.append(guard)
        try:
            return lower()
        finally:
            self._guards.pop()

    def load(self, memory: str, name: str, address: Operand) -> Operand:
        """An element of type ``name``; zero where a guard does not hold."""
        guard = ONE
        for condition in self._guards:
            guard = condition if guard == ONE else self.values.operation("sand", guard, condition)
        key = (memory, name, address, guard)
        if key not in self._loaded:
            self._loaded[key] = self._new(memory, name, address, guard)
        return self._loaded[key]

    def _new(self, memory: str, name: str, address: Operand, guard: Operand) -> Operand:
        row, mods = by_mnemonic()["sld"], (memory, scalar_type(name))
        node = self.values.pinned(self.block)
        guard, address = self.values.all_in_range((guard, address))
        if guard == ONE:
            self.block.items.append(Step(row, mods, (address,), node, self.text))
        else:
            self.block.items.append(GuardedLoad(row, mods, guard, address, node, self.text))
        return Operand(node)
