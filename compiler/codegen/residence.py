"""In which memory, and where, each of the graph's buffers lies.

Inputs, outputs and constants have places of their own in DDR. What lives between kernels shares bytes by lifetime: in
LLB where the chip has one for all cores that is faster than DDR, every kernel can reach it there, and it fits; else in
DDR. A buffer that is a part of another one lies in that. Scratch lies where its kernel says. A place is given anew some
kernels later than it could be: what writes it then need not wait for cores that may still read it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import NamedTuple

from compiler.codegen.kernel import KernelCode
from compiler.codegen.memory import MemoryOverflow
from compiler.codegen.packing import Lifetime
from compiler.isa.program import Buffer
from compiler.target import Chip

ROLES = ("input", "output", "inout", "constant", "intermediate")
_LEAST_ALIGNMENT = 64
REST = 3  # kernels for which a place is left alone: mostly, all cores have waited for each other by then


@dataclass(frozen=True)
class GraphBuffer:
    """A tensor of the graph. A constant is an input that the artifact has the contents of.

    One that is a part lies in ``whole``, a buffer that is none, from byte ``offset`` on.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    role: str  # one of ROLES
    whole: str = ""
    offset: int = 0


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


class Place(NamedTuple):
    memory: str
    offset: int


def plan(
    kernels: Sequence[PlacedKernel], buffers: Sequence[GraphBuffer], chip: Chip, *, llb: bool = True
) -> dict[str, Place]:
    """A place for every buffer and all scratch."""
    alignment = max(_LEAST_ALIGNMENT, chip.transfer.ddr_line_bytes)
    parts = {buffer.name: buffer for buffer in buffers if buffer.whole}
    places, end = _apart(buffers, alignment)
    lives = _lifetimes(kernels, parts)
    between = [buffer for buffer in buffers if buffer.role == "intermediate" and not buffer.whole]
    far, near = scratch(kernels, "ddr"), scratch(kernels, "llb")
    kept, used = _kept(near, lives, chip.memory_bytes("llb"), alignment)
    places |= {name: Place("llb", offset) for name, offset in kept.items()}
    if llb and llb_pays(chip):
        wanted = _movable(kernels, [*between, *far], parts)
        found, _ = _packed(wanted, lives, alignment, chip.memory_bytes("llb") - used)
        places |= {name: Place("llb", used + offset) for name, offset in found.items()}
    rest = [buffer for buffer in [*between, *far] if buffer.name not in places]
    found, size = _packed(rest, lives, alignment)
    places |= {name: Place("ddr", end + offset) for name, offset in found.items()}
    _check_fits("ddr", end + size, [*buffers, *far], chip)
    for part in parts.values():
        memory, offset = places[part.whole]
        places[part.name] = Place(memory, offset + part.offset)
    return places


def _apart(buffers: Sequence[GraphBuffer], alignment: int) -> tuple[dict[str, Place], int]:
    """Places of their own, and where they end."""
    places, end = {}, 0
    for buffer in buffers:
        if buffer.role != "intermediate":
            places[buffer.name] = Place("ddr", end)
            end += _aligned(buffer.size_bytes, alignment)
    return places, end


def llb_pays(chip: Chip) -> bool:
    """Whether what lives between kernels had better lie in LLB."""
    rates = chip.bandwidth
    return chip.clusters == 1 and rates.llb_bytes_per_kilocycle > rates.ddr_bytes_per_kilocycle


def _movable(
    kernels: Sequence[PlacedKernel], buffers: Sequence[GraphBuffer], parts: Mapping[str, GraphBuffer]
) -> list[GraphBuffer]:
    """Those that all kernels can work on in LLB, with all their parts."""
    fixed = {
        _outer(name, parts)
        for kernel in kernels
        for index, name in enumerate(kernel.bindings())
        if index not in kernel.code.touched.movable
    }
    return [buffer for buffer in buffers if buffer.name not in fixed]


def _kept(
    buffers: Sequence[GraphBuffer], lives: Mapping[str, Lifetime], capacity: int, alignment: int
) -> tuple[dict[str, int], int]:
    """Scratch that has to lie in LLB: apart from that of the kernel before it, where both fit."""
    for later in (REST, 1, 0):
        found, size = _packed(buffers, lives, alignment, later=later)
        if size <= capacity:
            return found, size
    largest = sorted(((b.name, b.size_bytes) for b in buffers), key=lambda entry: -entry[1])
    raise MemoryOverflow("llb", size, capacity, tuple(largest[:5]))


def _check_fits(memory: str, size: int, buffers: Sequence[GraphBuffer], chip: Chip) -> None:
    if size > chip.memory_bytes(memory):
        largest = sorted(((b.name, b.size_bytes) for b in buffers), key=lambda entry: -entry[1])
        raise MemoryOverflow(memory, size, chip.memory_bytes(memory), tuple(largest[:5]))


def scratch(kernels: Sequence[PlacedKernel], memory: str) -> list[GraphBuffer]:
    """What kernels need in a memory for themselves."""
    found = []
    for kernel in kernels:
        for name, parameter in zip(kernel.bindings(), kernel.code.parameters, strict=True):
            if parameter.scratch and parameter.memory == memory:
                found.append(GraphBuffer(name, "uint8", (parameter.size_bytes,), parameter.size_bytes, "intermediate"))
    return found


def _outer(name: str, parts: Mapping[str, GraphBuffer]) -> str:
    return parts[name].whole if name in parts else name


def _lifetimes(kernels: Sequence[PlacedKernel], parts: Mapping[str, GraphBuffer]) -> dict[str, Lifetime]:
    """From the first kernel that uses a buffer, or a part of it, to the last one."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for step, kernel in enumerate(kernels):
        for name in (_outer(name, parts) for name in kernel.bindings()):
            first.setdefault(name, step)
            last[name] = step
    return {name: Lifetime(0, first[name], last[name]) for name in first}


# ---- packing -----------------------------------------------------------------------------------------------------


def _packed(
    buffers: Iterable[GraphBuffer],
    lives: Mapping[str, Lifetime],
    alignment: int,
    capacity: int | None = None,
    later: int = REST,
) -> tuple[dict[str, int], int]:
    """Offsets for the buffers that fit, in the order in which they come to life, and the bytes that all take.

    Each takes the tightest gap; a gap is free again ``later`` steps after the last use.
    """
    gaps, ending, offsets, end = _Gaps(), list[tuple[int, int, int]](), dict[str, int](), 0
    for buffer in sorted(buffers, key=lambda b: _life(b, lives).first):
        life, size = _life(buffer, lives), _aligned(buffer.size_bytes, alignment)
        while ending and ending[0][0] + later < life.first:
            _, low, high = heappop(ending)
            gaps.free(low, high)
        offset = gaps.take(size, end)
        if offset is None:
            offset = gaps.last_start(end)
            if capacity is not None and offset + size > capacity:
                continue
            gaps.cut_last(end)
            end = offset + size
        offsets[buffer.name] = offset
        heappush(ending, (life.last, offset, offset + size))
    return offsets, end


def _life(buffer: GraphBuffer, lives: Mapping[str, Lifetime]) -> Lifetime:
    """A buffer that no kernel uses lives at the start."""
    return lives.get(buffer.name, Lifetime(0, 0, 0))


class _Gaps:
    """Free pieces between what is taken, sorted by address; no two of them touch."""

    def __init__(self) -> None:
        self._gaps: list[tuple[int, int]] = []

    def free(self, low: int, high: int) -> None:
        if low == high:
            return
        at = bisect_left(self._gaps, (low, high))
        if at < len(self._gaps) and self._gaps[at][0] == high:
            high = self._gaps.pop(at)[1]
        if at and self._gaps[at - 1][1] == low:
            low = self._gaps.pop(at - 1)[0]
        insort(self._gaps, (low, high))

    def take(self, size: int, end: int) -> int | None:
        """The start of the tightest gap that is large enough."""
        fitting = [(high - low, low, high) for low, high in self._gaps if high - low >= size]
        if not fitting:
            return None
        _, low, high = min(fitting)
        self._gaps.remove((low, high))
        if low + size < high:
            insort(self._gaps, (low + size, high))
        return low

    def last_start(self, end: int) -> int:
        """Where something larger than all gaps would start: in the gap at the end, if there is one."""
        return self._gaps[-1][0] if self._gaps and self._gaps[-1][1] == end else end

    def cut_last(self, end: int) -> None:
        if self._gaps and self._gaps[-1][1] == end:
            self._gaps.pop()


def _aligned(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


# ---- what the program declares -------------------------------------------------------------------------------------

_PROGRAM_ROLES = {
    "input": "input",
    "output": "output",
    "inout": "inout",
    "constant": "input",
    "intermediate": "scratch",
}


def declared(buffers: Sequence[GraphBuffer], places: Mapping[str, Place]) -> tuple[Buffer, ...]:
    """The program's buffers; those that share bytes are declared as the one piece that they lie in."""
    found = [
        Buffer(b.name, *places[b.name], b.size_bytes, b.dtype, b.shape, _PROGRAM_ROLES[b.role])
        for b in sorted(buffers, key=lambda b: (places[b.name], -b.size_bytes))
        if b.size_bytes and not b.whole
    ]
    merged: list[Buffer] = []
    for buffer in found:
        before = merged[-1] if merged else None
        if before is not None and _share(before, buffer):
            size = max(before.end, buffer.end) - before.offset
            merged[-1] = replace(before, size_bytes=size, dtype="uint8", shape=(size,))
        else:
            merged.append(buffer)
    return tuple(merged)


def _share(before: Buffer, buffer: Buffer) -> bool:
    scratch_both = before.role == buffer.role == "scratch"
    return scratch_both and before.memory == buffer.memory and buffer.offset < before.end
