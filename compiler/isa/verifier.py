"""What can be known about a program before it runs. All problems are found at once, each with its source line.

A register's value is unknown here: a rule that asks for one is left to the run, which checks every instruction
again with the values it has by then.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple, NoReturn

from compiler.errors import CapacityError, Diagnostics, InvalidError, Place, Problem, TilewrightError, UnsupportedError
from compiler.isa.disassembler import instruction_text
from compiler.isa.dtypes import DTYPES, MEMORIES, SHARED_MEMORIES
from compiler.isa.encoding import instr_faults
from compiler.isa.model import Args, Instr, Int, Reg, View, alignment_bytes, bind
from compiler.isa.program import MAX_INSTRUCTIONS, ROLES, Buffer, Program
from compiler.isa.table.control import LOOP_DEPTH
from compiler.isa.table.copy_rules import fill_path_exists, path_exists
from compiler.isa.table.rules import sources_overlap_wholly_or_not
from compiler.target import Chip

MAX_PROBLEMS = 300
# Overlap is decided byte by byte. Beyond this many elements, of one instruction or of all, that is left to the run.
_MAX_OVERLAP_ELEMENTS, _MAX_OVERLAP_ELEMENTS_IN_ALL = 1 << 18, 1 << 26
# Where these are found, what follows from targets and entries cannot be checked.
_UNSOUND = ("TW1250", "TW1251", "TW1272")
_UNSUPPORTED_RULES = (path_exists, fill_path_exists)


def verify(program: Program, chip: Chip) -> None:
    """Raises with everything that is wrong; the kind is that of the gravest problem."""
    found = _Findings()
    _check_frame(program, chip, found)
    _check_buffers(program, chip, found)
    _check_instructions(program, chip, found)
    if not any(problem.code in _UNSOUND for _, problem in found.problems):
        _check_loops(program, found)
        _check_flow(program, found)
    _check_flags(program, found)
    found.raise_if_any()


class _Findings:
    """Problems by kind of error."""

    def __init__(self) -> None:
        self.problems: list[tuple[type[TilewrightError], Problem]] = []

    @property
    def full(self) -> bool:
        return len(self.problems) >= MAX_PROBLEMS

    def add(
        self, code: str, message: str, where: Place, hint: str = "", kind: type[TilewrightError] = InvalidError
    ) -> None:
        self.problems.append((kind, Problem(code, message, where, hint)))

    def raise_if_any(self) -> None:
        kinds = {kind for kind, _ in self.problems}
        gravest = next((k for k in (InvalidError, UnsupportedError, CapacityError) if k in kinds), InvalidError)
        Diagnostics([problem for _, problem in self.problems]).raise_if_any(gravest)


def _whole(program: Program) -> Place:
    return Place(program.source or "<program>")


def _at(program: Program, index: int) -> Place:
    """An instruction's line, and the instruction as it was assembled: all names replaced by their values."""
    where, text = program.place(index), instruction_text(program.instrs[index])
    return replace(where, source=text, width=len(text))


# ---- the program as a whole ---------------------------------------------------------------------------------


def _check_frame(program: Program, chip: Chip, found: _Findings) -> None:
    where = _whole(program)
    if program.chip is not None and program.chip != chip.name:
        found.add("TW1270", f"the program is for chip `{program.chip}`, not `{chip.name}`", where)
    if program.cores is not None and not 1 <= program.cores <= chip.cores:
        message = f"the program is for {program.cores} cores; chip {chip.name} has {chip.cores}"
        found.add("TW1271", message, where, kind=CapacityError if program.cores > 0 else InvalidError)
    count = len(program.instrs)
    if count > MAX_INSTRUCTIONS:
        found.add("TW1250", f"the program has {count} instructions; allowed: {MAX_INSTRUCTIONS}", where)
    if program.entries and len(program.entries) != program.cores:
        found.add(
            "TW1272", f"{len(program.entries)} entries for {program.cores or 'an unknown number of'} cores", where
        )
    for core, entry in enumerate(program.entries):
        if not 0 <= entry < count:
            found.add("TW1272", f"core {core} starts at instruction {entry}; allowed: 0 to {count - 1}", where)


def _check_buffers(program: Program, chip: Chip, found: _Findings) -> None:
    where = _whole(program)
    names = [buffer.name for buffer in program.buffers] + [word.name for word in program.tiling]
    for name, count in Counter(names).items():
        if count > 1:
            found.add("TW1273", f"{count} buffers or tiling words are called `{name}`", where)
    for buffer in program.buffers:
        if fault := _buffer_fault(buffer):
            found.add("TW1273", f"buffer `{buffer.name}`: {fault}", where)
        elif buffer.end > (size := chip.memory_bytes(buffer.memory)):
            message = f"buffer `{buffer.name}` ends at byte {buffer.end} of {buffer.memory}, which has {size} bytes"
            found.add("TW1274", message, where, kind=CapacityError)


def _buffer_fault(buffer: Buffer) -> str | None:
    for value, what, known in (
        (buffer.memory, "memory", MEMORIES),
        (buffer.dtype, "element type", DTYPES),
        (buffer.role, "role", ROLES),
    ):
        if value not in known:
            return f"{what} is {value}; allowed: {', '.join(known)}"
    if buffer.offset < 0:
        return f"offset is {buffer.offset}; allowed: 0 or more"
    least = prod(buffer.shape) * DTYPES[buffer.dtype].itemsize
    if least < 1 or min(buffer.shape, default=1) < 1:
        return f"shape is {buffer.shape}; allowed: extents of 1 or more"
    return f"{buffer.size_bytes} bytes; its shape needs {least}" if buffer.size_bytes < least else None


# ---- instructions -------------------------------------------------------------------------------------------


class _Fault(NamedTuple):
    code: str
    message: str
    kind: type[TilewrightError] = InvalidError


def _check_instructions(program: Program, chip: Chip, found: _Findings) -> None:
    checker = _InstructionChecker(program, chip)
    count = len(program.instrs)
    known: dict[Instr, tuple[_Fault, ...]] = {}
    for index, instr in enumerate(program.instrs):
        if found.full:
            return
        encodable = [_Fault("TW1251", text) for text in instr_faults(instr, index, count)]
        faults = encodable or known.get(instr)
        if faults is None:
            faults = known[instr] = tuple(checker.faults(instr))
        for fault in faults:
            found.add(fault.code, f"{instr.row.mnemonic}: {fault.message}", _at(program, index), kind=fault.kind)


class _NeedsValue(Exception):
    """A rule asked for a register's value."""


class _Unknown:
    """A register's value: arithmetic keeps it unknown, and whoever decides by it leaves the check to the run."""

    def _same(self, *others: object) -> _Unknown:
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = __abs__ = _same
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __and__ = __rand__ = __lshift__ = __rshift__ = _same
    __lt__ = __le__ = __gt__ = __ge__ = _same

    def _ask(self, *others: object) -> NoReturn:
        raise _NeedsValue

    __bool__ = __int__ = __index__ = __float__ = __eq__ = __ne__ = __hash__ = _ask


_UNKNOWN: Any = _Unknown()


class _InstructionChecker:
    """What is wrong with one instruction on one chip, wherever in the program it stands."""

    def __init__(self, program: Program, chip: Chip) -> None:
        self.chip = chip
        self.tiling_words = len(program.tiling)
        self.clusters = -(-(program.cores or chip.cores) // chip.cores_per_cluster)
        self.overlap_elements = _MAX_OVERLAP_ELEMENTS_IN_ALL
        self.spans = {memory: _spans(program, memory) for memory in SHARED_MEMORIES}

    def faults(self, instr: Instr) -> Iterator[_Fault]:
        if instr.row.kind in ("ldt", "ldtc"):
            yield from self._tiling(instr)
        slots = instr.row.slots(instr.mods)
        unknown: Any = [
            (0 if slot.kind == "float" else _UNKNOWN) if isinstance(value, Reg) else value
            for slot, value in zip(slots, instr.values, strict=True)
        ]
        try:
            args = bind(instr, unknown, self.chip)
        except _NeedsValue:
            return
        found = [*self._addresses(args), *self._paths(args)]
        yield from found or self._rules(args)

    def _tiling(self, instr: Instr) -> Iterator[_Fault]:
        index = instr.values[1]
        if isinstance(index, Reg):
            return
        index += self.clusters - 1 if instr.row.kind == "ldtc" else 0
        if index >= self.tiling_words:
            yield _Fault("TW1275", f"index is {index}; the program has {self.tiling_words} tiling words")

    def _paths(self, args: Args) -> Iterator[_Fault]:
        for rule in args.row.rules:
            if rule in _UNSUPPORTED_RULES and not rule(args):
                memories = " and ".join(view.memory for view in args.views)
                message = f"{rule.__doc__}: chip {self.chip.name} lacks it ({memories})"
                yield _Fault("TW1276", message, UnsupportedError)

    def _addresses(self, args: Args) -> Iterator[_Fault]:
        for tensor, view in zip(args.row.tensors, args.views, strict=True):
            address, multiple = getattr(args, tensor.name), alignment_bytes(tensor, args)
            if address is _UNKNOWN:
                continue
            if address % multiple:
                what = f"{tensor.name} is at {view.memory} address {address}"
                yield _Fault("TW1277", f"{what}; allowed: multiples of {multiple}")
            try:
                low, high = int(view.address), int(view.address + view.extent_bytes)
            except _NeedsValue:
                continue
            yield from self._bounds(tensor.name, view, low, high)

    def _bounds(self, name: str, view: View, low: int, high: int) -> Iterator[_Fault]:
        size = self.chip.memory_bytes(view.memory)
        touches = f"{name} touches {view.memory} bytes {low} to {high - 1}"
        if low < 0 or high > size:
            yield _Fault("TW1278", f"{touches}; {view.memory} has {size} bytes", CapacityError)
        elif view.memory in SHARED_MEMORIES:
            starts, ends = self.spans[view.memory]
            before = bisect_right(starts, low)
            if not before or ends[before - 1] < high:
                yield _Fault("TW1278", f"{touches}; they must lie inside one declared {view.memory} buffer")

    def _rules(self, args: Args) -> Iterator[_Fault]:
        """The first rule that is broken: later ones may rely on it."""
        for rule in args.row.rules:
            try:
                if rule is sources_overlap_wholly_or_not and self._too_many_elements(args):
                    continue
                if not rule(args):
                    yield _Fault("TW1279", " ".join(str(rule.__doc__).split()))
                    return
            except _NeedsValue:
                continue

    def _too_many_elements(self, args: Args) -> bool:
        count = int(sum(view.size for view in args.views))
        if count > min(_MAX_OVERLAP_ELEMENTS, self.overlap_elements):
            return True
        self.overlap_elements -= count
        return False


def _spans(program: Program, memory: str) -> tuple[list[int], list[int]]:
    """Starts of a memory's buffers in order, and for each the furthest end of those that start no later."""
    buffers = sorted((b.offset, b.end) for b in program.buffers if b.memory == memory)
    ends: list[int] = []
    for _, end in buffers:
        ends.append(max(end, ends[-1] if ends else end))
    return [start for start, _ in buffers], ends


# ---- loops and flow -----------------------------------------------------------------------------------------


def _target(instr: Instr, index: int) -> int | None:
    """Where a branch or loop leads, as the index of an instruction."""
    for slot, value in zip(instr.row.slots(instr.mods), instr.values, strict=True):
        if slot.kind == "target" and not isinstance(value, Reg):
            return index + value
    return None


def _check_loops(program: Program, found: _Findings) -> None:
    open_loops: list[tuple[int, int]] = []  # (loop, end), outermost first
    for index, instr in enumerate(program.instrs):
        while open_loops and open_loops[-1][1] <= index:
            open_loops.pop()
        if instr.row.kind != "loop" or found.full:
            continue
        end = _target(instr, index) or 0
        if end < index + 2:
            message = f"the loop's body ends at instruction {end}, before it begins; allowed: {index + 2} or later"
            found.add("TW1280", message, _at(program, index), "a body has at least one instruction")
            continue
        if open_loops and end > open_loops[-1][1]:
            outer = program.place(open_loops[-1][0]).line or open_loops[-1][0]
            found.add("TW1280", f"the loop's body ends after that of the loop around it, on line {outer}",
                      _at(program, index))  # fmt: skip
            continue
        open_loops.append((index, end))
        if len(open_loops) > LOOP_DEPTH:
            message = f"loops are nested {len(open_loops)} deep; allowed: {LOOP_DEPTH}"
            found.add("TW1281", message, _at(program, index))


def _successors(instr: Instr, index: int) -> tuple[int, ...]:
    kind = instr.row.kind
    if kind in ("halt", "trap"):
        return ()
    target = _target(instr, index)
    if target is None:
        return (index + 1,)
    always = kind == "branch" and not any(isinstance(operand, Int) for operand in instr.row.operands)
    return (target,) if always else (index + 1, target)


def _check_flow(program: Program, found: _Findings) -> None:
    """Every core's program must end in `halt`: it may not run past the last instruction, nor only in circles."""
    instrs = program.instrs
    if not instrs:
        found.add("TW1282", "the program has no instructions; at least `halt` is needed", _whole(program))
        return
    successors = [_successors(instr, index) for index, instr in enumerate(instrs)]
    predecessors: list[list[int]] = [[] for _ in range(len(instrs) + 1)]
    for index, after in enumerate(successors):
        for target in after:
            predecessors[target].append(index)
    starts = sorted(set(program.entries) or {0})
    reached = _closure(starts, [*successors, ()])
    if len(instrs) in reached:
        last = max(index for index in predecessors[len(instrs)] if index in reached)
        found.add("TW1282", "the program runs past its last instruction", _at(program, last), "end it with `halt`")
    halts = [index for index, instr in enumerate(instrs) if instr.row.kind in ("halt", "trap")]
    ending = _closure([*halts, len(instrs)], predecessors)
    for start in starts:
        if start not in ending:
            message = f"no `halt` can be reached from instruction {start}, where a core starts"
            found.add("TW1282", message, _at(program, start))


def _closure(starts: list[int], edges: list[Any]) -> set[int]:
    reached, pending = set(starts), list(starts)
    while pending:
        for following in edges[pending.pop()]:
            if following not in reached:
                reached.add(following)
                pending.append(following)
    return reached


# ---- flags --------------------------------------------------------------------------------------------------


def _check_flags(program: Program, found: _Findings) -> None:
    """A flag that is set and never waited for, or waited for and never set."""
    first: dict[str, dict[tuple[tuple[str, ...], int | None], int]] = {"set_flag": {}, "wait_flag": {}}
    for index, instr in enumerate(program.instrs):
        if instr.row.kind in first and len(instr.values) == 1:
            value = instr.values[0]
            flag = (instr.mods, None if isinstance(value, Reg) else value)
            first[instr.row.kind].setdefault(flag, index)
    for kind, other, text in (
        ("set_flag", "wait_flag", "is set and never waited for"),
        ("wait_flag", "set_flag", "is waited for and never set"),
    ):
        for (queues, event), index in first[kind].items():
            known = first[other]
            # An id in a register may be any.
            met = (queues, event) in known or (queues, None) in known
            if event is None:
                met = any(pair == queues for pair, _ in known)
            if not met and not found.full:
                name = f"flag {event if event is not None else 'in a register'} of {' to '.join(queues)}"
                found.add("TW1283", f"{name} {text}", _at(program, index))
