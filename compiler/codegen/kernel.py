"""One kernel's code: instructions with relative targets, and what a linker has to know to place them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from compiler.codegen.fetches import NO_SITES, Sites, sites_of
from compiler.codegen.gate import put_gate
from compiler.codegen.in_place import in_place
from compiler.codegen.items import Item, Loop, Step, operands_of
from compiler.codegen.lowering import Lowering, Parameter, text_of
from compiler.codegen.memory import check_capacity
from compiler.codegen.prologue import Ahead, Prologue
from compiler.codegen.reach import Reaches
from compiler.codegen.registers import Allocated, allocate
from compiler.codegen.touches import Far, Touched, touched
from compiler.codegen.values import Operand
from compiler.isa.dtypes import Queue
from compiler.isa.encoding import decode, encode
from compiler.isa.model import Instr, Reg
from compiler.isa.table import by_mnemonic
from compiler.target import Chip
from compiler.tir.near import constant_numbers, near_parameters

_BLOCK = 32
TURNS = "tw.turns"  # attribute of a PrimFunc: what KernelCode has of that name


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
    touched: Touched
    gate: int  # the instruction in whose place a core waits for others; -1 where it never has to
    gated: tuple[int, ...]  # the parameters that are touched behind the gate only
    prologue: tuple[Ahead, ...]  # loads that can run before it
    turns: float = 1  # how many parts of the cores take turns in reading from DDR, in the mean over what is moved
    in_place: tuple[tuple[int, int], ...] = ()  # parameters: a result, and an input that it may be written over
    sites: Sites = NO_SITES  # where loads for later kernels may stand

    def __getstate__(self) -> dict[str, Any]:
        """Rows hold functions, which no other process can be sent: instructions cross as their encoding."""
        prologue = [{**vars(ahead), "instrs": encode(ahead.instrs)} for ahead in self.prologue]
        return {**self.__dict__, "instrs": encode(self.instrs), "prologue": prologue}

    def __setstate__(self, state: dict[str, Any]) -> None:
        prologue = tuple(Ahead(**{**ahead, "instrs": decode(ahead["instrs"])}) for ahead in state["prologue"])
        self.__dict__.update(state, instrs=decode(state["instrs"]), prologue=prologue)


def generate(func: Any, chip: Chip, name: str = "kernel", *, draft: bool = False) -> KernelCode:
    """The code of a kernel in instruction form, allocated and synchronised.

    Of a ``draft`` nobody asks but how long it takes: it is without its statements and what may be written over.
    """
    lowering = Lowering(func, chip)
    reaches = Reaches(lowering.cores)
    reaches.loops_of(lowering.root)
    gated = _gated(func, lowering.parameters)
    constants, own = _constants(lowering.parameters, gated), _own(lowering.parameters)
    prologue = Prologue(chip, reaches, constants, own, lambda loop: _runs(loop, reaches))
    prologue.take(lowering.root)
    put_gate(
        lowering.root,
        lambda item: _loads(item) and any(_parameter(operand, reaches) in gated for operand in operands_of(item)),
        lambda loop: _runs(loop, reaches),
        lowering.cores,
    )
    used = dict(lowering.memory)
    spill_address = -(-used.get("ub", 0) // _BLOCK) * _BLOCK
    allocated = allocate(lowering.root, spill_address)
    if allocated.spilled_bytes:
        used["ub"] = spill_address + allocated.spilled_bytes
        check_capacity(used, chip)
    code = list(zip(allocated.instrs, allocated.operands, strict=True))
    instrs, ahead = _placed(prologue, allocated)
    reached = touched(code, reaches, [parameter.size_bytes for parameter in lowering.parameters], chip)
    near = near_parameters(func)
    memories = {i: "llb" for i, param in enumerate(func.params) if param in near and i in reached.movable}
    return KernelCode(
        name,
        tuple(moved_to(memories, list(instrs), reached.far)),
        allocated.relocations,
        tuple(replace(each, memory=memories.get(i, each.memory)) for i, each in enumerate(lowering.parameters)),
        () if draft else tuple(map(text_of, lowering.statements)),
        allocated.texts,
        used,
        lowering.cores,
        reached,
        allocated.gate,
        tuple(sorted(gated)),
        ahead,
        float(func.attrs[TURNS]) if func.attrs and TURNS in func.attrs else 1,
        () if draft else in_place(func, chip),
        NO_SITES if draft else sites_of(allocated.instrs, allocated.operands, reaches),
    )


def moved_to(memories: Mapping[int, str], instrs: list[Instr], far: Sequence[Far]) -> list[Instr]:
    """The instructions with those parameters in these memories."""
    for each in far:
        instr = instrs[each.instruction]
        memory = memories.get(each.parameter, instr.mods[each.modifier])
        if instr.mods[each.modifier] != memory:
            mods = (*instr.mods[: each.modifier], memory, *instr.mods[each.modifier + 1 :])
            instrs[each.instruction] = Instr(instr.row, mods, instr.values)
    return instrs


def _placed(prologue: Prologue, allocated: Allocated) -> tuple[tuple[Instr, ...], tuple[Ahead, ...]]:
    """The kernel as it is where no load ran before it, and the loads with their places in it."""
    instrs, turns = list(allocated.instrs), dict[int, int]()
    for item in dict.fromkeys(item for item, _ in prologue.found):
        place = allocated.places[item]
        if item.counters:
            counter, _, distance = instrs[place].values
            turns[place] = counter.index if isinstance(counter, Reg) else 0
            instrs[place] = Instr(by_mnemonic()["jmp"], (), (distance,))
    placed = ((ahead, allocated.places[item]) for item, ahead in prologue.found)
    return tuple(instrs), tuple(replace(ahead, place=place, turn=turns.get(place, 0)) for ahead, place in placed)


def _gated(func: Any, parameters: Sequence[Parameter]) -> frozenset[int]:
    """The parameters that other kernels may write."""
    constant = constant_numbers(func)
    return frozenset(i for i, parameter in enumerate(parameters) if not parameter.scratch and i not in constant)


def _constants(parameters: Sequence[Parameter], gated: frozenset[int]) -> frozenset[int]:
    return frozenset(i for i, parameter in enumerate(parameters) if not parameter.scratch and i not in gated)


def _own(parameters: Sequence[Parameter]) -> frozenset[int]:
    """Scratch in LLB."""
    return frozenset(i for i, parameter in enumerate(parameters) if parameter.scratch and parameter.memory == "llb")


def _runs(loop: Loop, reaches: Reaches) -> bool:
    return bool((reaches.of(loop.count).low > 0).all())


def _loads(item: Item) -> bool:
    return isinstance(item, Step) and item.row.queue_of(item.mods) == Queue.MTE2


def _parameter(operand: Operand, reaches: Reaches) -> int | None:
    return None if operand.node is None else reaches.of(operand).parameter
