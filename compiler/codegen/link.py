"""From kernels to one program: the kernels one after another on all cores, each with the places of its buffers."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from compiler.codegen.beside import Company, Lines, Needs, moved, needs_of
from compiler.codegen.borders import LOADING, Border, Borders, Lane, Order, Reach
from compiler.codegen.clusters import on_every_cluster
from compiler.codegen.declared import declared
from compiler.codegen.fetches import NO_SITES, Bringing, Fetch, Sites
from compiler.codegen.kernel import KernelCode, moved_to
from compiler.codegen.prologue import MEMORY, Ahead
from compiler.codegen.residence import (
    FarResult,
    GraphBuffer,
    Place,
    PlacedKernel,
    far_results,
    plan,
    scratch,
)
from compiler.codegen.touches import Far, naming_modifier
from compiler.errors import InvalidError, Problem
from compiler.isa.encoding import form
from compiler.isa.model import IMMEDIATE_MAX, Instr, Reg, Value
from compiler.isa.program import Program, TilingWord
from compiler.isa.table import by_mnemonic
from compiler.target import Chip

# What can be switched off (`Observer.without`) and changes no kernel's code.
OVERLAP, LLB_PLACEMENT = "overlap", "llb-placement"
_SETTING = "mte3"  # the queue that tells other cores that this one is through with a kernel
_STEP_BYTES = 1024  # what a kernel's part of L1 starts at a multiple of
_NUMBER = 1  # a register: between kernels none matters


@dataclass(frozen=True)
class Linked:
    """The program, and what its lines are: line ``n`` (from one) of the listing is a kernel's statement."""

    program: Program
    listing: tuple[str, ...]
    far_results: tuple[FarResult, ...] = ()
    fetched_bytes: int = 0  # that kernels bring to LLB for others behind them
    unfetched: tuple[str, ...] = ()  # what they would have brought had there been room


def link(
    kernels: Sequence[PlacedKernel],
    chip: Chip,
    buffers: Sequence[GraphBuffer],
    *,
    name: str = "program",
    places: Mapping[str, Place] | None = None,
    overlap: bool = True,
    llb: bool = True,
    clusters: int = 0,
) -> Linked:
    """One program that runs the kernels in order on all cores of the chip.

    With ``clusters`` the chip is one cluster of a larger one, of which so many run the program: each on its part of the
    inputs, to its part of the outputs, and with all that lives between kernels in a copy of its own. Constants they
    share. The buffers of inputs and outputs are then of all of these, one part after the other; all others are of one.

    Without ``overlap`` all cores wait for all others wherever a kernel uses what one before it used. Without ``llb``
    what lives between kernels stays in DDR.
    """
    _check(kernels, buffers)
    running = max(1, clusters)
    planned = plan(kernels, buffers, chip, llb=llb, clusters=running) if places is None else places
    vain = {f.target: f.source for kernel in kernels for f in kernel.fetches if planned[f.target].memory != "llb"}
    kernels, buffers = _without(vain, kernels, buffers)
    apart = {b.name: (b.run_bytes, b.period_bytes) for b in buffers if b.period_bytes}
    wider = {b.name: b.further for b in buffers if b.of_clusters}
    linker = _Linker(planned, chip, overlap, _written(kernels), running, apart, wider)
    for kernel in kernels:
        linker.add(kernel)
    linker.close()
    linker.emit("halt")
    program = Program(
        name,
        chip.name,
        chip.cores * running,
        tuple(on_every_cluster(linker.instrs) if clusters else linker.instrs),
        declared([*buffers, *scratch(kernels, "ddr"), *scratch(kernels, "llb")], planned, running),
        tuple(linker.tiling),
        lines=tuple(linker.lines),
        source=f"{name}.tir",
        labels=tuple(linker.labels),
    )
    fetched_bytes = running * sum(fetch.high - fetch.low for kernel in kernels for fetch in kernel.fetches)
    far = far_results(kernels, buffers, planned, chip)
    return Linked(program, tuple(linker.listing), far, fetched_bytes, tuple(vain.values()))


class _Linker:
    """Appends kernels, with what has to stand in front of each."""

    def __init__(
        self,
        places: Mapping[str, Place],
        chip: Chip,
        overlap: bool,
        written: frozenset[str],
        clusters: int,
        apart: Mapping[str, tuple[int, int]],
        wider: Mapping[str, int],
    ) -> None:
        self.places, self.chip, self.overlap, self.written, self.clusters = places, chip, overlap, written, clusters
        self._apart = apart  # of what does not lie in one piece: the bytes of each, and from one to the next
        self._wider = wider  # of parts that lie elsewhere in each cluster's copy of a buffer: how far apart these are
        self._before: _Before | None = None
        self._company = Company(chip)  # kernels that are not placed yet
        self._touched: list[Reach] = []  # what these do
        self._queues: set[str] = set()  # and which queues they use
        self._known: dict[int, Needs | None] = {}  # by the code of kernels, of which many may be the same
        self.instrs: list[Instr] = []
        self.lines: list[int] = []
        self.listing: list[str] = []
        self.labels: list[tuple[str, int]] = []
        self.tiling: list[TilingWord] = []
        self._words: dict[tuple[int, ...], int] = {}
        self._borders = Borders(chip, gates=overlap)
        self._flag = chip.cross_flag_ids - 1  # kernels that tell other cores something of their own count from zero

    def emit(self, mnemonic: str, mods: tuple[str, ...] = (), values: tuple[Value, ...] = ()) -> None:
        self.instrs.append(Instr(by_mnemonic()[mnemonic], mods, values))
        self.lines.append(max(1, len(self.listing)))

    def close(self) -> None:
        """Place the kernels that run side by side."""
        for name, lines in self._company.parts():
            self.labels.append((name, len(self.instrs)))
            self.instrs += [instr for instr, _ in lines]
            self.lines += [line for _, line in lines]
        self._company, self._touched = Company(self.chip), []

    def add(self, kernel: PlacedKernel) -> None:
        reaches = [*self._reaches(kernel), *map(self._brought, kernel.fetches)]
        if self._is_beside(kernel, reaches):
            self._join(kernel, self._listed(kernel), reaches)
            if used := kernel.code.memory.get(MEMORY, 0):
                self._before = _Before(0, used)
            return
        self.close()
        base, ahead = self._ahead(kernel)
        border = self._borders.next(reaches, gateable=not self._uses_flag(kernel))
        self._end(border, kernel, base, ahead)
        self._tell(border, kernel)
        code = self._listed(kernel)
        code.instrs = [moved(instr, MEMORY, base) for instr in code.instrs] if base else code.instrs
        for load in ahead:
            _skip(code.instrs, load)
        waits = [self._wait(core) for core in range(border.setters)] if border.order is Order.GATE else []
        for number, fetch in enumerate(kernel.fetches):
            self._bring(code, fetch, kernel, NO_SITES if number else kernel.code.sites)
        self._before = _Before(base, base + kernel.code.memory.get(MEMORY, 0))
        self._queues = set()
        self._join(kernel, code, reaches, waits)

    def _is_beside(self, kernel: PlacedKernel, reaches: Sequence[Reach]) -> bool:
        """Whether nothing orders a kernel behind those that came last."""
        if not self._company.admits(self._needs(kernel)):
            return False
        return self._borders.are_beside(reaches, self._touched)

    def _needs(self, kernel: PlacedKernel) -> Needs | None:
        """None of a kernel that nobody may join."""
        if not self.overlap or kernel.fetches:
            return None
        if id(kernel.code) not in self._known:
            self._known[id(kernel.code)] = needs_of(kernel.code)
        return self._known[id(kernel.code)]

    def _listed(self, kernel: PlacedKernel) -> _Code:
        """A kernel's code with the places of its buffers, once its statements are in the listing."""
        first = len(self.listing)
        self.listing += [f"{kernel.name}: {text}" for text in kernel.code.texts] or [f"{kernel.name}:"]
        lines = [first + 1 + max(0, statement) for statement in kernel.code.statements]
        return _Code(self._patched(kernel), lines)

    def _join(self, kernel: PlacedKernel, code: _Code, reaches: Sequence[Reach], waits: Sequence[Instr] = ()) -> None:
        """Let a kernel run beside those that came last, or others beside it; ``waits`` are its gate."""
        if kernel.code.gate >= 0:
            code.replace(kernel.code.gate, waits)
        lines = Lines(zip(*code.assembled(), strict=True))
        self._company.join(kernel.name, self._needs(kernel), lines)
        self._touched += reaches
        self._queues |= _queues(kernel.code)

    # ---- the kernel before

    def _ahead(self, kernel: PlacedKernel) -> tuple[int, list[Ahead]]:
        """Where the kernel's part of L1 starts, and the loads that can run under the kernel before."""
        before, bindings = self._before, kernel.bindings()
        if before is None or not self.overlap:
            return 0, []
        wanted = [load for load in kernel.code.prologue if self._is_there(bindings[load.parameter], kernel, load)]
        shared = [
            load for load in wanted if load.scratch >= 0 and self._is_free(self.places[bindings[load.scratch]], load)
        ]
        loads = [load for load in wanted if load.scratch < 0]
        used, size = kernel.code.memory.get(MEMORY, 0), self.chip.memory_bytes(MEMORY)
        bases = [0, _up(before.high), (size - used) // _STEP_BYTES * _STEP_BYTES]
        free = {
            base: [load for load in loads if base + load.low >= before.high or base + load.high <= before.low]
            for base in bases
            if base >= 0 and base + used <= size
        }
        base, found = max(free.items(), key=lambda entry: len(_in_turn(entry[1])))
        return base, _in_turn([load for load in wanted if load in found or load in shared])

    def _is_there(self, name: str, kernel: PlacedKernel, load: Ahead) -> bool:
        """Whether what a load brings is known to be written, if any kernel writes it."""
        place, size = self.places[name], kernel.code.parameters[load.parameter].size_bytes
        end = place.offset + size + self._wider.get(name, 0)
        return name not in self.written or self._borders.is_written(place.memory, place.offset, end)

    def _is_free(self, place: Place, load: Ahead) -> bool:
        return self._borders.is_free(place.memory, place.offset + load.low, place.offset + load.high)

    def _end(self, border: Border, kernel: PlacedKernel, base: int, ahead: Sequence[Ahead]) -> None:
        """Wait for the kernel before: its memories are used anew, but for what the loads ahead work on."""
        if self._before is None:
            return
        hub = bool(ahead) and border.order is not Order.BARRIER
        if hub and LOADING in self._queues:
            self.emit("set_flag", (LOADING, "s"), (0,))
        for load in ahead:
            instrs = list(load.instrs)
            self._relocate(instrs, load.relocations, kernel)
            memory = self.places[kernel.bindings()[load.parameter]].memory
            instrs = moved_to({load.parameter: memory}, instrs, _read_by(instrs, load.parameter))
            self.instrs += [moved(instr, MEMORY, base) for instr in instrs]
            self.lines += [max(1, len(self.listing))] * len(instrs)
        if not hub:
            self.emit("core_barrier" if border.order is Order.BARRIER else "barrier_all")
            return
        for queue in sorted(self._queues):
            if queue != LOADING:
                self.emit("set_flag", (queue, "s"), (0,))
        for queue in sorted(self._queues):
            self.emit("wait_flag", (queue, "s"), (0,))

    # ---- other cores

    def _tell(self, border: Border, kernel: PlacedKernel) -> None:
        """Set the flags that a gate waits for; those that do not come past the gate wait for them here."""
        if border.order not in (Order.GATE, Order.GATE_AHEAD):
            return
        if border.setters < self.chip.cores:
            self.emit("getsr", ("core",), (_NUMBER,))
            self.emit("bge", (), (Reg(_NUMBER), border.setters, 3))
        self.emit("loop", (), (_NUMBER, self.chip.cores, 2))
        self.emit("cross_set", (_SETTING,), (Reg(_NUMBER), self._flag))
        gated = kernel.code.cores if border.order is Order.GATE else 0
        if gated < self.chip.cores:
            if gated:
                self.emit("getsr", ("core",), (_NUMBER,))
                self.emit("blt", (), (Reg(_NUMBER), gated, 3))
            self.emit("loop", (), (_NUMBER, border.setters, 2))
            self.emit("cross_wait", (LOADING,), (Reg(_NUMBER), self._flag))

    def _wait(self, core: int) -> Instr:
        return Instr(by_mnemonic()["cross_wait"], (LOADING,), (core, self._flag))

    def _uses_flag(self, kernel: PlacedKernel) -> bool:
        """Whether a kernel may use the flag by which the linker orders kernels."""
        return any(
            instr.row.kind in ("cross_set", "cross_wait") and not _is_below(instr.values[1], self._flag)
            for instr in kernel.code.instrs
        )

    def _reaches(self, kernel: PlacedKernel) -> list[Reach]:
        code, bindings, found = kernel.code, kernel.bindings(), []
        for touch in code.touched.touches:
            name = bindings[touch.parameter]
            place = self.places[name]
            low, high = np.array(touch.low, np.int64), np.array(touch.high, np.int64)
            if not self.overlap:
                low[:], high[:] = 0, code.parameters[touch.parameter].size_bytes
            gated, lane = touch.parameter in code.gated, self._lane(name)
            low, high = low + place.offset, high + place.offset + self._wider.get(name, 0)
            found.append(Reach(place.memory, touch.queue, touch.writes, low, high, gated, lane))
        return found

    def _brought(self, fetch: Fetch) -> Reach:
        """What a kernel brings to LLB for others: which core brings what of it is nobody's concern."""
        place, every = self.places[fetch.target], np.ones(self.chip.cores, np.int64)
        low, high = every * (place.offset + fetch.low), every * (place.offset + fetch.high)
        return Reach(place.memory, LOADING, writes=True, low=low, high=high, gated=False)

    def _lane(self, name: str) -> Lane | None:
        run, period = self._apart.get(name, (0, 0)) if self.overlap and name not in self._wider else (0, 0)
        return Lane(self.places[name].offset % period, run, period) if period else None

    def _bring(self, code: _Code, fetch: Fetch, kernel: PlacedKernel, sites: Sites) -> None:
        """Put the code of a fetch into a kernel's, as a line of its own; all of it behind, where it has no sites."""
        source, target, end = self.places[fetch.source], self.places[fetch.target], len(kernel.code.instrs)
        start = source._replace(offset=source.offset + fetch.low)
        self.listing.append(f"{kernel.name}: bytes {fetch.low} to {fetch.high} of {fetch.source} to LLB")
        bringing = Bringing(
            fetch, target.offset + fetch.low, lambda register: self._address(register, start), sites.times, self.chip
        )
        code.put(0 if sites.places else end, bringing.before(), len(self.listing))
        for place in sites.places:
            code.put(place, bringing.at_site(), len(self.listing))
        code.put(end, bringing.behind(), len(self.listing))

    # ---- places

    def _patched(self, kernel: PlacedKernel) -> list[Instr]:
        """The kernel's instructions with the places of its buffers."""
        instrs, bindings = list(kernel.code.instrs), kernel.bindings()
        self._relocate(instrs, kernel.code.relocations, kernel)
        memories = {index: self.places[name].memory for index, name in enumerate(bindings)}
        return moved_to(memories, instrs, kernel.code.touched.far)

    def _relocate(self, instrs: list[Instr], relocations: Sequence[tuple[int, int]], kernel: PlacedKernel) -> None:
        bindings = kernel.bindings()
        for index, parameter in relocations:
            instrs[index] = self._address(instrs[index].values[0], self.places[bindings[parameter]])

    def _address(self, register: Value, place: Place) -> Instr:
        """What loads the address of a place."""
        further = place.of_clusters or (0,) * self.clusters
        own = tuple(place.offset + place.step * number + each for number, each in enumerate(further))
        if len(set(own)) > 1:
            return Instr(by_mnemonic()["ldtc"], (), (register, self._word(own)))
        if own[0] <= IMMEDIATE_MAX:
            return Instr(by_mnemonic()["smov"], (), (register, own[0]))
        return Instr(by_mnemonic()["ldt"], (), (register, self._word(own[:1])))

    def _word(self, addresses: tuple[int, ...]) -> int:
        """The first of the tiling words that hold an address, one for each cluster where these differ."""
        if addresses not in self._words:
            self._words[addresses] = len(self.tiling)
            for each in addresses:
                again = sum(word.value == each for word in self.tiling)
                self.tiling.append(TilingWord(f"address.{each}" + (f".{again}" if again else ""), each))
        return self._words[addresses]


@dataclass(frozen=True)
class _Before:
    """The bytes of L1 of the kernels that were added last."""

    low: int
    high: int


def _queues(code: KernelCode) -> set[str]:
    found = {use.queue for use in code.touched.uses} | {touch.queue for touch in code.touched.touches}
    return found - {"s"}


def _read_by(instrs: Sequence[Instr], parameter: int) -> list[Far]:
    """Where a load says in which memory the parameter lies that it reads; one that reads DDR only does not."""
    return [
        Far(index, modifier, parameter)
        for index, instr in enumerate(instrs)
        for tensor in instr.row.tensors
        if "r" in tensor.role and (modifier := naming_modifier(instr.row, tensor)) >= 0
    ]


def _in_turn(loads: Sequence[Ahead]) -> list[Ahead]:
    """Without those of which a turn before is not among them."""
    known, found = dict[int, int](), list[Ahead]()
    for load in loads:
        if load.number == known.get(load.place, 0):
            known[load.place] = load.number + 1
            found.append(load)
    return found


def _skip(instrs: list[Instr], load: Ahead) -> None:
    """Leave out a load, or the jump to it, in a turn that ran before the kernel, as all turns before it did."""
    if not load.turn:
        instrs[load.place] = Instr(by_mnemonic()["nop"], (), ())
        return
    if not load.number:
        instrs[load.place] = Instr(by_mnemonic()["bne"], (), (Reg(load.turn), 0, *instrs[load.place].values))
        return
    last = load.place + load.loops - 1
    counter, _, distance = instrs[last].values
    instrs[last] = Instr(by_mnemonic()["bge"], (), (counter, load.number + 1, distance))


def _up(address: int) -> int:
    return -(-address // _STEP_BYTES) * _STEP_BYTES


def _is_below(value: Value, limit: int) -> bool:
    return not isinstance(value, Reg) and value < limit


@dataclass
class _Code:
    """A kernel's instructions with their lines, and what is put among them."""

    instrs: list[Instr]
    lines: list[int]
    _put: dict[int, list[tuple[Instr, int]]] = field(default_factory=dict)
    _replaced: set[int] = field(default_factory=set)

    def put(self, place: int, instrs: Sequence[Instr], line: int) -> None:
        """In front of an instruction, however one comes to it; behind all of them where the place is their number."""
        self._put.setdefault(place, []).extend((instr, line) for instr in instrs)

    def replace(self, place: int, instrs: Sequence[Instr]) -> None:
        self.put(place, instrs, self.lines[place])
        self._replaced.add(place)

    def assembled(self) -> tuple[list[Instr], list[int]]:
        """All of them, with branches to where their targets are now."""
        if not self._put:
            return self.instrs, self.lines
        starts = [0]  # where what stands for each instruction begins
        for index in range(len(self.instrs)):
            starts.append(starts[-1] + len(self._put.get(index, ())) + (index not in self._replaced))
        found = list[tuple[Instr, int]]()
        for index, (instr, line) in enumerate(zip(self.instrs, self.lines, strict=True)):
            found += self._put.get(index, ())
            if index not in self._replaced:
                found.append((_retargeted(instr, index, starts, len(found)), line))
        found += self._put.get(len(self.instrs), ())
        return [instr for instr, _ in found], [line for _, line in found]


def _retargeted(instr: Instr, index: int, starts: Sequence[int], now: int) -> Instr:
    """An instruction that was the ``index``-th and is the ``now``-th."""
    if instr.row.kind not in ("branch", "loop"):
        return instr
    values = tuple(
        starts[index + value] - now if slot.kind == "target" and not isinstance(value, Reg) else value
        for slot, value in zip(form(instr.row, instr.mods).slots, instr.values, strict=True)
    )
    return Instr(instr.row, instr.mods, values)


def _without(
    vain: Container[str], kernels: Sequence[PlacedKernel], buffers: Sequence[GraphBuffer]
) -> tuple[list[PlacedKernel], list[GraphBuffer]]:
    """Without fetches that found no room in LLB, and copies that are then none."""
    kept = [replace(kernel, fetches=tuple(f for f in kernel.fetches if f.target not in vain)) for kernel in kernels]
    return kept, [buffer for buffer in buffers if buffer.name not in vain]


def _written(kernels: Sequence[PlacedKernel]) -> frozenset[str]:
    return frozenset(
        name
        for kernel in kernels
        for name, parameter in zip(kernel.bindings(), kernel.code.parameters, strict=True)
        if parameter.written
    )


def _check(kernels: Sequence[PlacedKernel], buffers: Sequence[GraphBuffer]) -> None:
    """Arguments exist and are as large as what they are given for."""
    known = {buffer.name: buffer for buffer in buffers}
    for kernel in kernels:
        wanted = [parameter for parameter in kernel.code.parameters if not parameter.scratch]
        if len(wanted) != len(kernel.arguments):
            text = f"kernel `{kernel.name}` has {len(wanted)} parameters; {len(kernel.arguments)} buffers are given"
            raise InvalidError(Problem("TW2620", text))
        for parameter, name in zip(wanted, kernel.arguments, strict=True):
            if name not in known:
                raise InvalidError(Problem("TW2620", f"kernel `{kernel.name}`: no buffer is called `{name}`"))
            if known[name].size_bytes < parameter.size_bytes:
                text = f"`{name}` has {known[name].size_bytes} bytes; `{parameter.name}` needs {parameter.size_bytes}"
                raise InvalidError(Problem("TW2620", f"kernel `{kernel.name}`: {text}"))
