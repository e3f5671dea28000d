"""Kernels that run side by side on each core, with nothing between them that waits.

Between kernels a core waits for itself, since the next one uses its memories and flags anew. Kernels that share UB and
flags, as lookups in tables do, have places and ids of their own instead, where nothing that one of them reads in DDR or
LLB another one writes; of all other memories, and of flags between cores, one kernel has all. Those without loops and
branches, but for the one by which some cores skip a kernel, take turns wherever they wait: the first loads of all are
under way before the first one is awaited.

    ld a; v(a); st a | ld b; v(b); st b     ->     ld a; ld b; v(a); v(b); st a; st b
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from compiler.codegen.kernel import KernelCode
from compiler.codegen.touches import FLAGS
from compiler.isa.encoding import form
from compiler.isa.model import REGISTERS, Instr, Reg, Row, Value
from compiler.target import Chip

SHARED = "ub"  # the memory of a core of which each kernel has a part
_STEP_BYTES = 1024  # what a part starts at a multiple of: banks repeat themselves by less
_RESERVED = 4  # registers that are no kernel's: the one that is zero, and the linker's
_JUMPS = frozenset({"branch", "loop"})
_TELLING = frozenset({"cross_set", "cross_wait"})  # other cores, by flags that count from zero
_BARRIERS = frozenset({"core_barrier", "cluster_barrier", "barrier_all"})

Pair = tuple[str, ...]  # of queues, that a flag joins
Lines = list[tuple[Instr, int]]  # instructions, and the lines of the listing that they are of
Parts = list[tuple[str, Lines]]  # of kernels of these names


@dataclass(frozen=True)
class Needs:
    """What a kernel needs for itself on a core."""

    shared_bytes: int
    alone: frozenset[str]  # memories, and "cores" where it tells other cores something
    flags: Mapping[Pair, int]  # by how many ids
    registers: int
    is_straight: bool
    is_guarded: bool  # some cores skip it


@dataclass
class Company:
    """The kernels since a core last waited for itself."""

    chip: Chip
    _members: list[tuple[str, Lines, Needs | None]] = field(default_factory=list)
    _end: int = 0  # of what is taken of UB
    _flags: dict[Pair, int] = field(default_factory=dict)

    def admits(self, own: Needs | None) -> bool:
        """Whether there is room beside the others for a kernel that needs this; for one of None there is not."""
        others = [needs for *_, needs in self._members]
        if own is None or not others or any(needs is None or needs.alone & own.alone for needs in others):
            return False
        flags = (self._flags.get(pair, 0) + count for pair, count in own.flags.items())
        fits = self._end + own.shared_bytes <= self.chip.memory_bytes(SHARED)
        return fits and all(count <= self.chip.event_ids for count in flags)

    def join(self, name: str, needs: Needs | None, lines: Lines) -> None:
        """With places and flags behind those of the others. One of whose needs nothing is known lets nobody join it."""
        if needs is not None:
            if self._end or self._flags:
                lines = [(_moved(instr, self._end, self._flags), line) for instr, line in lines]
            self._end = -(-(self._end + needs.shared_bytes) // _STEP_BYTES) * _STEP_BYTES
            for pair, count in needs.flags.items():
                self._flags[pair] = self._flags.get(pair, 0) + count
        self._members.append((name, lines, needs))

    def parts(self) -> Iterator[tuple[str, Lines]]:
        """What runs one after another, with the names of the kernels: several parts may be of one."""
        turns, before, behind, first = list[tuple[str, list[Lines]]](), Parts(), Parts(), 0
        several = sum(needs is not None and needs.is_straight for *_, needs in self._members) > 1
        for name, lines, needs in self._members:
            fits = needs is not None and first + needs.registers + _RESERVED <= REGISTERS
            if needs is not None and several and needs.is_straight and fits:
                own = [(_with_registers(instr, first), line) for instr, line in lines]
                first += needs.registers
                turns.append((name, _guarded(own, first) if needs.is_guarded else [*_between_waits(own)]))
            else:
                (behind if turns else before).append((name, lines))
        yield from before
        for turn in range(max((len(parts) for _, parts in turns), default=0)):
            yield from ((name, parts[turn]) for name, parts in turns if turn < len(parts))
        yield from behind


def needs_of(code: KernelCode) -> Needs | None:
    """None of a kernel that shares a core with no other one."""
    kinds = {instr.row.kind for instr in code.instrs}
    if kinds & _BARRIERS or any(use.memory == SHARED and use.queue == "s" for use in code.touched.uses):
        return None
    alone = {use.memory for use in code.touched.uses} - {SHARED} | ({"cores"} if kinds & _TELLING else set())
    flags = {each.queues: each.ids for each in code.touched.flags}
    guarded = _is_guarded(code.instrs)
    registers = max((max(_registers(instr), default=0) for instr in code.instrs), default=0) + guarded
    straight = not any(instr.row.kind in _JUMPS for instr in code.instrs[2 if guarded else 0 :])
    return Needs(code.memory.get(SHARED, 0), frozenset(alone), flags, registers, straight, guarded)


def _is_guarded(instrs: Sequence[Instr]) -> bool:
    """Whether a kernel begins with a branch to its end, by the number of the core."""
    if len(instrs) < 2 or instrs[0].row.kind != "getsr" or instrs[1].row.kind != "branch" or not instrs[1].values[1:]:
        return False
    number, *_, distance = instrs[1].values
    return isinstance(number, Reg) and number.index == instrs[0].values[0] and distance == len(instrs) - 1


def _guarded(lines: Lines, register: int) -> list[Lines]:
    """The parts of a kernel that some cores skip: they skip each of them. The core's number stays in a register."""
    (number, line), (guard, _), *rest = lines
    parts = [*_between_waits(rest)]
    for at, part in enumerate(parts):
        skip = Instr(guard.row, guard.mods, (Reg(register), *guard.values[1:-1], len(part) + 1))
        parts[at] = [(skip, part[0][1]), *part]
    kept = Instr(number.row, number.mods, (register,))
    return [[(number, line), (kept, line), *parts[0]], *parts[1:]] if parts else [lines]


def _registers(instr: Instr) -> Iterator[int]:
    for slot, value in zip(form(instr.row, instr.mods).slots, instr.values, strict=True):
        if isinstance(value, Reg):
            yield value.index
        elif slot.kind == "dest":
            yield int(value)


def _with_registers(instr: Instr, first: int) -> Instr:
    """An instruction with registers so much further on; the one that is zero stays."""
    values = list(instr.values)
    for at, slot in enumerate(form(instr.row, instr.mods).slots):
        value = values[at]
        if isinstance(value, Reg) and value.index:
            values[at] = Reg(value.index + first, value.offset)
        elif slot.kind == "dest" and not isinstance(value, Reg) and value:
            values[at] = value + first
    return Instr(instr.row, instr.mods, tuple(values))


def _moved(instr: Instr, base: int, flags: Mapping[Pair, int]) -> Instr:
    """An instruction whose bytes of UB lie ``base`` further on, and whose flags are behind others."""
    if instr.row.kind not in FLAGS:
        return moved(instr, SHARED, base)
    (number,), further = instr.values, flags.get(instr.mods, 0)
    return Instr(instr.row, instr.mods, (_further(number, further),)) if further else instr


def moved(instr: Instr, memory: str, base: int) -> Instr:
    """An instruction whose bytes of a memory lie ``base`` further on."""
    near = _near(instr.row, instr.mods, memory) if base else ()
    if not near:
        return instr
    values = list(instr.values)
    for slot in near:
        values[slot] = _further(values[slot], base)
    return Instr(instr.row, instr.mods, tuple(values))


def _further(value: Value, by: int) -> Value:
    return Reg(value.index, value.offset + by) if isinstance(value, Reg) else value + by


@cache
def _near(row: Row, mods: tuple[str, ...], memory: str) -> tuple[int, ...]:
    """The slots that are addresses in a memory of the core."""
    slots = [index for index, slot in enumerate(form(row, mods).slots) if slot.kind == "addr"]
    return tuple(slot for slot, one in zip(slots, row.memories(mods), strict=True) if one == memory)


def _between_waits(lines: Sequence[tuple[Instr, int]]) -> Iterator[Lines]:
    """The instructions in parts, of which each but the first begins with a wait."""
    part = Lines()
    for instr, line in lines:
        if instr.row.kind == "wait_flag" and part:
            yield part
            part = Lines()
        part.append((instr, line))
    if part:
        yield part
