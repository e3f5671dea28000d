"""One kernel's code: instructions with relative targets, and what a linker has to know to place them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from compiler.codegen.lowering import Lowering, Parameter
from compiler.codegen.memory import check_capacity
from compiler.codegen.registers import allocate
from compiler.isa.encoding import decode, encode
from compiler.isa.model import Instr
from compiler.target import Chip

_BLOCK = 32


@dataclass(frozen=True)
class KernelCode:
    """A kernel that ends by running past its last instruction, with no flag set and no register that matters.

    ``relocations`` are the ``ldt`` instructions that load a parameter's DDR address: (instruction, parameter).
    """

    name: str
    instrs: tuple[Instr, ...]
    relocations: tuple[tuple[int, int], ...]
    parameters: tuple[Parameter, ...]
    texts: tuple[str, ...]  # the statements of the kernel
    statements: tuple[int, ...]  # per instruction, the statement it belongs to; -1 for none
    memory: dict[str, int]  # bytes used of each on-chip memory
    cores: int  # how many run it; the others skip it

    def __getstate__(self) -> dict[str, Any]:
        """Rows hold functions, which no other process can be sent: instructions cross as their encoding."""
        return {**self.__dict__, "instrs": encode(self.instrs)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, instrs=decode(state["instrs"]))


def generate(func: Any, chip: Chip, name: str = "kernel") -> KernelCode:
    """The code of a kernel in instruction form, allocated and synchronised."""
    lowering = Lowering(func, chip)
    used = dict(lowering.memory)
    spill_address = -(-used.get("ub", 0) // _BLOCK) * _BLOCK
    allocated = allocate(lowering.root, spill_address)
    if allocated.spilled_bytes:
        used["ub"] = spill_address + allocated.spilled_bytes
        check_capacity(used, chip)
    return KernelCode(
        name,
        allocated.instrs,
        allocated.relocations,
        lowering.parameters,
        tuple(lowering.texts),
        allocated.texts,
        used,
        lowering.cores,
    )
