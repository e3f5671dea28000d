"""From kernels to one program: where buffers lie in DDR and LLB, and the kernels one after another on all cores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from compiler.codegen.kernel import KernelCode
from compiler.codegen.memory import MemoryOverflow
from compiler.codegen.packing import Lifetime, pack
from compiler.errors import InvalidError, Problem
from compiler.isa.model import IMMEDIATE_MAX, Instr
from compiler.isa.program import Buffer, Program, TilingWord
from compiler.isa.table import by_mnemonic
from compiler.target import Chip

ROLES = ("input", "output", "inout", "constant", "intermediate")
_LEAST_ALIGNMENT = 64


@dataclass(frozen=True)
class GraphBuffer:
    """A tensor of the graph in DDR. A constant is an input that the artifact has the contents of."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    role: str  # one of ROLES


@dataclass(frozen=True)
class PlacedKernel:
    """A use of a kernel: the graph's buffer for each of its parameters that is not scratch."""

    name: str
    code: KernelCode
    arguments: tuple[str, ...]

    def bindings(self) -> tuple[str, ...]:
        """The buffer of every parameter; scratch has a name of its own."""
        arguments = iter(self.arguments)
        return tuple(f"{self.name}.{p.name}" if p.scratch else next(arguments) for p in self.code.parameters)


@dataclass(frozen=True)
class Linked:
    """The program, and what its lines are: line ``n`` (from one) of the listing is a kernel's statement."""

    program: Program
    listing: tuple[str, ...]


# ---- DDR --------------------------------------------------------------------------------------------------------


def plan_ddr(kernels: Sequence[PlacedKernel], buffers: Sequence[GraphBuffer], chip: Chip) -> dict[str, int]:
    """An offset for every buffer; intermediates and scratch that never live at once share bytes."""
    alignment = max(_LEAST_ALIGNMENT, chip.transfer.ddr_line_bytes)
    offsets: dict[str, int] = {}
    end = 0
    for buffer in buffers:
        if buffer.role != "intermediate":
            offsets[buffer.name] = end
            end += -(-buffer.size_bytes // alignment) * alignment
    shared = [buffer for buffer in [*buffers, *_scratch(kernels, "ddr")] if buffer.role == "intermediate"]
    lives = _lifetimes(kernels, shared)
    addresses, size = pack(lives, alignment)
    for buffer, address in zip(shared, addresses, strict=True):
        offsets[buffer.name] = end + address
    if end + size > chip.memory_bytes("ddr"):
        largest = sorted(((b.name, b.size_bytes) for b in [*buffers, *shared]), key=lambda entry: -entry[1])
        raise MemoryOverflow("ddr", end + size, chip.memory_bytes("ddr"), tuple(largest[:5]))
    return offsets


def plan_llb(kernels: Sequence[PlacedKernel], chip: Chip) -> dict[str, int]:
    """An offset for all scratch in LLB; beside that of the kernel before it, where both fit: no core waits then."""
    scratch = _scratch(kernels, "llb")
    alignment = chip.transfer.ddr_line_bytes
    lives = _lifetimes(kernels, scratch)
    apart = [replace(life, last=life.last + 1) for life in lives]
    addresses, size = pack(apart, alignment)
    if size > chip.memory_bytes("llb"):
        addresses, size = pack(lives, alignment)
    if size > chip.memory_bytes("llb"):
        largest = sorted(((b.name, b.size_bytes) for b in scratch), key=lambda entry: -entry[1])
        raise MemoryOverflow("llb", size, chip.memory_bytes("llb"), tuple(largest[:5]))
    return {buffer.name: address for buffer, address in zip(scratch, addresses, strict=True)}


def _scratch(kernels: Sequence[PlacedKernel], memory: str) -> list[GraphBuffer]:
    found = []
    for kernel in kernels:
        for name, parameter in zip(kernel.bindings(), kernel.code.parameters, strict=True):
            if parameter.scratch and parameter.memory == memory:
                found.append(GraphBuffer(name, "uint8", (parameter.size_bytes,), parameter.size_bytes, "intermediate"))
    return found


def _lifetimes(kernels: Sequence[PlacedKernel], buffers: Sequence[GraphBuffer]) -> list[Lifetime]:
    """From the first kernel that uses a buffer to the last one."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for step, kernel in enumerate(kernels):
        for name in kernel.bindings():
            first.setdefault(name, step)
            last[name] = step
    return [Lifetime(b.size_bytes, first.get(b.name, 0), last.get(b.name, 0)) for b in buffers]


def _declared(buffers: Sequence[GraphBuffer], offsets: Mapping[str, int], memory: str) -> tuple[Buffer, ...]:
    """The program's buffers; intermediates that share bytes are declared as the one piece that they lie in."""
    declared = [
        Buffer(b.name, memory, offsets[b.name], b.size_bytes, b.dtype, b.shape, _PROGRAM_ROLES[b.role])
        for b in sorted(buffers, key=lambda b: (offsets[b.name], -b.size_bytes))
        if b.size_bytes
    ]
    merged: list[Buffer] = []
    for buffer in declared:
        if merged and merged[-1].role == buffer.role == "scratch" and buffer.offset < merged[-1].end:
            before = merged[-1]
            size = max(before.end, buffer.end) - before.offset
            merged[-1] = replace(before, size_bytes=size, dtype="uint8", shape=(size,))
        else:
            merged.append(buffer)
    return tuple(merged)


_PROGRAM_ROLES = {
    "input": "input",
    "output": "output",
    "inout": "inout",
    "constant": "input",
    "intermediate": "scratch",
}

# ---- code -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Use:
    """Bytes of DDR or LLB that a kernel uses; ``alone`` where only core 0 runs it."""

    memory: str
    low: int
    high: int
    written: bool
    alone: bool

    def disturbs(self, other: _Use) -> bool:
        overlap = self.memory == other.memory and self.low < other.high and other.low < self.high
        return overlap and (self.written or other.written) and not (self.alone and other.alone)


def link(
    kernels: Sequence[PlacedKernel],
    chip: Chip,
    buffers: Sequence[GraphBuffer],
    *,
    name: str = "program",
    offsets: Mapping[str, int] | None = None,
) -> Linked:
    """One program that runs the kernels in order on all cores of the chip."""
    _check(kernels, buffers)
    planned = dict(plan_ddr(kernels, buffers, chip) if offsets is None else offsets) | plan_llb(kernels, chip)
    linker = _Linker(planned)
    for kernel in kernels:
        linker.add(kernel)
    linker.emit("halt")
    program = Program(
        name,
        chip.name,
        chip.cores,
        tuple(linker.instrs),
        (
            *_declared([*buffers, *_scratch(kernels, "ddr")], planned, "ddr"),
            *_declared(_scratch(kernels, "llb"), planned, "llb"),
        ),
        tuple(TilingWord(f"address.{address}", address) for address in linker.words),
        lines=tuple(linker.lines),
        source=f"{name}.tir",
        labels=tuple(linker.labels),
    )
    return Linked(program, tuple(linker.listing))


class _Linker:
    """Appends kernels, with a barrier in front of each that may meet what runs before it."""

    def __init__(self, offsets: Mapping[str, int]) -> None:
        self.offsets = offsets
        self.instrs: list[Instr] = []
        self.lines: list[int] = []
        self.listing: list[str] = []
        self.labels: list[tuple[str, int]] = []
        self.words: dict[int, int] = {}
        self._since_barrier: list[_Use] = []

    def emit(self, mnemonic: str) -> None:
        self.instrs.append(Instr(by_mnemonic()[mnemonic], (), ()))
        self.lines.append(max(1, len(self.listing)))

    def add(self, kernel: PlacedKernel) -> None:
        uses = self._uses(kernel)
        if any(use.disturbs(other) for use in uses for other in self._since_barrier):
            self.emit("core_barrier")
            self._since_barrier = []
        elif self.instrs:
            self.emit("barrier_all")  # the core's own memories are used anew
        self._since_barrier += uses
        self.labels.append((kernel.name, len(self.instrs)))
        first = len(self.listing)
        self.listing += [f"{kernel.name}: {text}" for text in kernel.code.texts] or [f"{kernel.name}:"]
        self.lines += [first + 1 + max(0, statement) for statement in kernel.code.statements]
        self.instrs += self._patched(kernel)

    def _uses(self, kernel: PlacedKernel) -> list[_Use]:
        uses = []
        for name, parameter in zip(kernel.bindings(), kernel.code.parameters, strict=True):
            low = self.offsets[name]
            if parameter.read or parameter.written:
                high, alone = low + parameter.size_bytes, kernel.code.cores == 1
                uses.append(_Use(parameter.memory, low, high, parameter.written, alone))
        return uses

    def _patched(self, kernel: PlacedKernel) -> list[Instr]:
        """The kernel's instructions with the addresses of its buffers."""
        instrs, bindings = list(kernel.code.instrs), kernel.bindings()
        for index, parameter in kernel.code.relocations:
            address, target = self.offsets[bindings[parameter]], instrs[index].values[0]
            if address <= IMMEDIATE_MAX:
                instrs[index] = Instr(by_mnemonic()["smov"], (), (target, address))
            else:
                word = self.words.setdefault(address, len(self.words))
                instrs[index] = Instr(by_mnemonic()["ldt"], (), (target, word))
        return instrs


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
