"""What kernels read from DDR that could be in LLB before they begin: which of it, and which kernels bring it there.

A kernel that reads what the model is given, or weights of its own, may wait for DDR, and the matrix unit with it, while
kernels before it need little of what DDR could bring. So these bring it piece by piece beside their own work
(`compiler.codegen.fetches`): the last ones before the reader that have DDR to spare, so that it takes LLB for as short
as can be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from compiler.codegen.fetches import Fetch
from compiler.codegen.kernel import KernelCode
from compiler.codegen.residence import PlacedKernel, llb_pays
from compiler.cost import Unpredictable, predict
from compiler.target import Chip

FETCHES = "fetches"  # what ablations call it that kernels bring nothing for others
PATH = "ddr_llb"
# What the paths of all cores together bring of what DDR does, at least: where they are hardly faster, what is brought
# for others takes time that cores need for their own loads.
FAST_PATHS = 3
LEAST_BYTES = 32768  # what is less is soon loaded
BOUND_SHARE = 0.5  # of a reader's cycles for which DDR is busy, at least
BUSY_SHARE = 0.4  # of the cycles of a kernel that brings something, at most
SPARE_SHARE = 0.4  # of what DDR could bring while a kernel runs and does not: more would delay its own loads


@dataclass(frozen=True)
class Wanted:
    """A buffer in DDR, and the first kernel that reads it, by its place among the kernels."""

    source: str
    size_bytes: int
    reader: int
    clusters: int = 1  # that DDR sends it to at once


class Brought(NamedTuple):
    """Bytes of a buffer in DDR, and the kernel that brings them to LLB, by its place among the kernels."""

    source: str
    host: int
    low: int
    high: int


@dataclass
class Traffic:
    """What DDR does while kernels run alone, by the cycle model."""

    chip: Chip
    _known: dict[int, tuple[KernelCode, float, float]] = field(default_factory=dict)

    def spare_bytes(self, code: KernelCode) -> int:
        """What a kernel can bring for others."""
        cycles_bytes, moved = self._of(code)
        if moved > cycles_bytes * BUSY_SHARE or not code.sites.places:
            return 0
        return int((cycles_bytes - moved) * SPARE_SHARE)

    def is_bound(self, code: KernelCode) -> bool:
        """Whether a kernel waits for DDR for much of its time."""
        cycles_bytes, moved = self._of(code)
        return moved > cycles_bytes * BOUND_SHARE

    def _of(self, code: KernelCode) -> tuple[float, float]:
        """The bytes that DDR could move in a kernel's cycles, and those that it does; none where data decides."""
        if id(code) not in self._known:
            could = moved = 0.0
            try:
                found = predict(code, self.chip)
                could = found.cycles * self.chip.bandwidth.ddr_bytes_per_kilocycle / 1000
                moved = float(found.ddr_bytes)
            except Unpredictable:
                pass
            self._known[id(code)] = code, could, moved  # with the code, so that no other one takes its number
        return self._known[id(code)][1:]


def wanted(
    kernels: Sequence[PlacedKernel],
    sizes: Mapping[str, int],
    is_given: Callable[[str], bool],
    common: Container[str],
    traffic: Traffic,
    *,
    shared: bool,
) -> list[str]:
    """What one kernel alone reads of what no kernel writes, waiting for DDR, and others before it can bring.

    ``common``: what DDR sends to all clusters at once. ``shared``: also what the cores of a reader bring to LLB
    together, which would be another kernel.
    """
    chip, found = traffic.chip, list[Wanted]()
    if not llb_pays(chip) or PATH not in chip.path:
        return []
    together = chip.path[PATH].bytes_per_cycle * chip.cores
    if together * 1000 < FAST_PATHS * chip.bandwidth.ddr_bytes_per_kilocycle:
        return []
    times = Counter(name for kernel in kernels for name in set(kernel.arguments))
    for at, kernel in enumerate(kernels):
        for index, (name, parameter) in enumerate(zip(kernel.bindings(), kernel.code.parameters, strict=True)):
            if parameter.scratch or times[name] > 1 or not is_given(name) or sizes[name] < LEAST_BYTES:
                continue
            if at and (shared or index in kernel.code.touched.movable) and traffic.is_bound(kernel.code):
                found.append(Wanted(name, sizes[name], at, chip.alike if name in common else 1))
    hosts = _hosts([kernel.code for kernel in kernels], found, traffic)
    return [one.source for one in found if hosts[one.source]]


def brought(
    kernels: Sequence[PlacedKernel],
    copies: Mapping[str, str],
    sizes: Mapping[str, int],
    common: Container[str],
    traffic: Traffic,
) -> tuple[Brought, ...]:
    """Which kernels bring what is copied to LLB: ``copies`` by what they are copies of."""
    readers = _readers(kernels)
    asked = [
        Wanted(source, sizes[source], readers[copy], traffic.chip.alike if source in common else 1)
        for source, copy in copies.items()
        if readers.get(copy, 0)
    ]
    hosts = _hosts([kernel.code for kernel in kernels], asked, traffic)
    return tuple(
        Brought(one.source, host, low, high)
        for one in asked
        # What nobody has the time for comes right before it is needed.
        for host, low, high in hosts[one.source] or [(one.reader - 1, 0, one.size_bytes)]
    )


def is_whole(
    parts: Sequence[Brought], kernels: Sequence[PlacedKernel], copies: Mapping[str, str], sizes: Mapping[str, int]
) -> bool:
    """Whether all of everything that is copied is brought, and before it is read."""
    readers = _readers(kernels)
    for source, copy in copies.items():
        own = sorted((part.low, part.high, part.host) for part in parts if part.source == source)
        reader = readers.get(copy, 0)
        if not reader:
            return False
        ends = [0, *(high for _, high, _ in own)]
        if [low for low, _, _ in own] != ends[:-1] or ends[-1] != sizes[source]:
            return False
        if any(not 0 <= host < reader or low >= high for low, high, host in own):
            return False
    return all(part.source in copies for part in parts)


def with_fetches(
    kernels: Sequence[PlacedKernel], copies: Mapping[str, str], parts: Sequence[Brought], common: Container[str]
) -> list[PlacedKernel]:
    """The kernels, of which some bring these parts of what is copied to LLB."""
    found = list(kernels)
    for source, host, low, high in parts:
        fetch = Fetch(source, copies[source], low, high, source in common)
        found[host] = replace(found[host], fetches=(*found[host].fetches, fetch))
    return found


def _readers(kernels: Sequence[PlacedKernel]) -> dict[str, int]:
    """The first kernel that is called with a buffer."""
    found = dict[str, int]()
    for at, kernel in enumerate(kernels):
        for name in kernel.arguments:
            found.setdefault(name, at)
    return found


def _hosts(
    codes: Sequence[KernelCode], asked: Iterable[Wanted], traffic: Traffic
) -> dict[str, list[tuple[int, int, int]]]:
    """By what is asked for: the kernels that bring it, and which bytes; none where they have not the time.

    The last kernel before the reader brings the last bytes. A kernel brings one thing only.
    """
    found, taken, line = dict[str, list[tuple[int, int, int]]](), set[int](), traffic.chip.transfer.ddr_line_bytes
    for one in sorted(asked, key=lambda each: each.reader):
        left, own = one.size_bytes, list[tuple[int, int, int]]()
        for host in reversed(range(one.reader)):
            spare = 0 if host in taken else traffic.spare_bytes(codes[host]) * one.clusters
            low = max(0, -(-(left - spare) // line) * line)
            if low < left:
                own.append((host, low, left))
                left = low
            if not left:
                break
        found[one.source] = [] if left else own
        taken.update(host for host, _, _ in found[one.source])
    return found
