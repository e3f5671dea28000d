"""In which memory, and where, each of the graph's buffers lies.

Inputs, outputs and constants have places of their own in DDR. What lives between kernels shares bytes by lifetime: in
LLB where the chip has one for all cores that is faster than DDR, every kernel can reach it there, and it fits; else in
DDR. Constants that several kernels read, or one by indices again and again, are copied to LLB where that leaves room
for them. Where LLB is full, a result may take the bytes of what it is made of (`compiler.codegen.in_place`). A buffer
that is a part of another one lies in that, and takes bytes of it from when it is made. Scratch lies where its kernel
says. Where there is room, a place is given anew some kernels later than it could be: what writes it then need not wait
for cores that may still read it.

Before there are kernels it is foreseen what will lie in LLB, since their tiles depend on it. What is foreseen and does
not come true costs time only: a kernel works on its parameters wherever they lie.

Where several clusters run the program (`compiler.codegen.clusters`), each has a part of every input and output, and of
what lives between kernels a copy: in its LLB, or in a piece of DDR of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

from compiler.codegen.fetches import Fetch
from compiler.codegen.gaps import pack_in_order
from compiler.codegen.kernel import KernelCode
from compiler.codegen.memory import MemoryOverflow
from compiler.codegen.packing import Lifetime, Span, live_by_step, live_peak
from compiler.codegen.shared_room import SharedRoom
from compiler.target import Chip

ROLES = ("input", "output", "inout", "constant", "intermediate")
_LEAST_ALIGNMENT = 64
# Kernels for which a place is left alone: after three, mostly, all cores have waited for each other.
RESTS = (3, 1, 0)
ROOM_SHARE = 3 / 4  # of what is left of LLB at a step, that its kernel may take
KEPT_SHARE = 3 / 4  # of LLB, what lives between kernels may take at most, so that they have room of their own
TIGHT_SHARE = 0.95  # the same where otherwise not all of it would stay
COPIED_SHARE = 1 / 2  # of the rest, that copies of constants may take
# Constants that kernels of so many pieces read, and of so many bytes: below that a copy costs more than it saves.
LEAST_READERS, LEAST_COPIED_BYTES = 3, 16384
LEAST_GATHERED_BYTES = 1 << 20  # or of which so many are read by indices, again and again
MOST_COPIES = 32  # that are tried: each takes the time of planning anew


@dataclass(frozen=True)
class GraphBuffer:
    """A tensor of the graph. A constant is an input that the artifact has the contents of.

    One that is a part lies in ``whole``, a buffer that is none, from byte ``offset`` on: all of it in one piece, or
    ``run_bytes`` of every ``period_bytes``. Each cluster may have a part of its own, which lies
    ``of_clusters`` bytes further, in a whole that all have in common or in its own.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    role: str  # one of ROLES
    whole: str = ""
    offset: int = 0
    run_bytes: int = 0
    period_bytes: int = 0
    copy_of: str = ""  # a constant, for kernels that would read that again and again
    of_clusters: tuple[int, ...] = ()
    is_common: bool = False  # whether clusters have an output in common, in which each makes parts

    @property
    def further(self) -> int:
        """How many bytes further a cluster has it than the one that has it first."""
        return max(self.of_clusters, default=0)


@dataclass(frozen=True)
class PlacedKernel:
    """A use of a kernel: the graph's buffer for each of its parameters that is not scratch."""

    name: str
    code: KernelCode
    arguments: tuple[str, ...]
    fetches: tuple[Fetch, ...] = ()  # what it brings to LLB for kernels behind it

    def bindings(self) -> tuple[str, ...]:
        """The buffer of every parameter; scratch has a name of its own."""
        arguments = iter(self.arguments)
        return tuple(f"{self.name}.{p.name}" if p.scratch else next(arguments) for p in self.code.parameters)


class Place(NamedTuple):
    """Where a buffer lies; that of a cluster lies ``step`` bytes behind that of the cluster before, and ``of_clusters``
    bytes further, where these differ.
    """

    memory: str
    offset: int
    step: int = 0
    of_clusters: tuple[int, ...] = ()


def plan(
    kernels: Sequence[PlacedKernel],
    buffers: Sequence[GraphBuffer],
    chip: Chip,
    *,
    llb: bool = True,
    clusters: int = 1,
) -> dict[str, Place]:
    """A place for every buffer and all scratch, on a chip that is one of so many clusters."""
    alignment = _alignment(chip)
    parts = {buffer.name: buffer for buffer in buffers if buffer.whole}
    places, end = _apart(buffers, alignment, clusters)
    lives = _lives(kernels, buffers)
    fetched = {fetch.target: fetch.source for kernel in kernels for fetch in kernel.fetches}
    between = [buffer for buffer in buffers if buffer.role == "intermediate" and not buffer.whole]
    far, near = scratch(kernels, "ddr"), scratch(kernels, "llb")
    wanted = _movable(kernels, [*between, *far], parts) if llb and llb_pays(chip) else []
    in_place = [kernel.code.in_place for kernel in kernels]
    runs = _runs([kernel.bindings() for kernel in kernels], in_place, wanted, lives, parts)
    places |= {name: Place("llb", offset) for name, offset in _in_llb(near, wanted, lives, runs, chip).items()}
    rest = [buffer for buffer in [*between, *far] if buffer.name not in places and buffer.name not in fetched]
    sized = {
        name: replace(life, size_bytes=_aligned(life.size_bytes, alignment))
        for name, life in _sized(rest, lives).items()
    }
    found, size = pack_in_order(sized, RESTS[0])
    step = size if clusters > 1 else 0
    places |= {name: Place("ddr", end + offset, step) for name, offset in found.items()}
    _check_fits("ddr", end + size * clusters, [*buffers, *far], chip)
    for part in parts.values():
        whole = places[part.whole]
        places[part.name] = whole._replace(offset=whole.offset + part.offset, of_clusters=part.of_clusters)
    # What there is no room for is read where it is.
    return places | {target: places[source] for target, source in fetched.items() if target not in places}


class FarResult(NamedTuple):
    """What a kernel writes for others that had to go to DDR, and why it could not stay on the chip."""

    kernel: str
    buffer: str
    size_bytes: int
    reason: str


def far_results(
    kernels: Sequence[PlacedKernel], buffers: Sequence[GraphBuffer], places: Mapping[str, Place], chip: Chip
) -> tuple[FarResult, ...]:
    """In the order in which they are written; what lies in another buffer is counted there."""
    parts = {buffer.name: buffer for buffer in buffers if buffer.whole}
    between = {b.name: b for b in buffers if b.role == "intermediate" and places[b.name].memory == "ddr"}
    found, stuck = dict[str, str](), dict[str, str]()
    for kernel in kernels:
        for index, (name, parameter) in enumerate(zip(kernel.bindings(), kernel.code.parameters, strict=True)):
            outer = _outer(name, parts)
            if outer in between and parameter.written:
                found.setdefault(outer, kernel.name)
            if index not in kernel.code.touched.movable:
                stuck.setdefault(outer, kernel.name)
    lives = _lives(kernels, buffers)
    inner = [b for b in [*buffers, *scratch(kernels, "llb")] if b.role == "intermediate" and not b.whole]
    live = live_by_step(list(_sized(inner, lives).values()), _alignment(chip))

    def result(name: str) -> FarResult:
        size, life = between[name].size_bytes, _life(between[name], lives)
        most = max(live[life.first : life.last + 1], default=size)
        return FarResult(found[name], name, size, _why_far(size, most, stuck.get(name), chip))

    return tuple(result(name) for name in found)


def _why_far(size: int, most: int, stuck: str | None, chip: Chip) -> str:
    """``most``: the bytes, at one step, that live with it between kernels or are a kernel's own in LLB."""
    capacity = chip.memory_bytes("llb")
    if chip.clusters > 1:
        return f"its {chip.clusters} clusters have no LLB in common"
    if not llb_pays(chip):
        return "LLB is no faster than DDR"
    if stuck is not None:
        return f"{stuck} works on it in DDR only"
    if size > capacity:
        return f"LLB has {capacity} bytes"
    if most > capacity:
        return f"LLB is full while it lives: {most} bytes live at once, it has {capacity}"
    return f"LLB, where at most {most} of {capacity} bytes live with it, has no piece of its size free for so long"


@dataclass(frozen=True)
class Foreseen:
    """The buffers that will lie in LLB, and by step how many bytes of it its kernel may take for itself."""

    near: frozenset[str]
    room_bytes: tuple[int, ...]
    copied: tuple[str, ...] = ()  # constants that are worth a copy in LLB


def foresee(
    steps: Sequence[Sequence[str]],
    buffers: Sequence[GraphBuffer],
    chip: Chip,
    in_place: Sequence[Sequence[tuple[int, int]]] = (),
    *,
    copies: Container[str] = (),
    gathered: Mapping[str, int] = MappingProxyType({}),
) -> Foreseen:
    """What will be when kernels with these arguments run one after another, with ``copies`` of some constants.

    ``in_place``: by step, which arguments may be written over which others. ``gathered``: how many bytes are read of
    tables by indices.
    """
    parts = {buffer.name: buffer for buffer in buffers if buffer.whole}
    lives = _lifetimes(steps, buffers)
    between = [buffer for buffer in buffers if buffer.role == "intermediate" and not buffer.whole]
    runs = _runs(steps, in_place or [()] * len(steps), between, lives, parts)
    rooms = (SharedRoom(int(chip.memory_bytes("llb") * share), _alignment(chip)) for share in (KEPT_SHARE, TIGHT_SHARE))
    usual, tight = (_with_runs(room, between, lives, runs) for room in rooms)
    names = [buffer.name for buffer in between]
    kept = tight if usual.missing(names) and not tight.missing(names) else usual
    beside = chip.memory_bytes("llb") - kept.capacity
    kept.capacity += int(beside * COPIED_SHARE)
    beside = chip.memory_bytes("llb") - kept.capacity
    again = [one for one in _read_again(steps, buffers, lives, gathered)[:MOST_COPIES] if one[0] in copies]
    copied = tuple(name for name, life in again if kept.place(name, life))
    near = kept.offsets.keys() - set(copied)
    near |= {part.name for part in parts.values() if part.whole in kept.offsets}
    # Alone a kernel takes all; else something is left for those beside it.
    share = 1.0 if len(steps) < 2 else ROOM_SHARE
    left = tuple(_rounded(int((kept.free_bytes(at) + beside) * share)) for at in range(len(steps)))
    return Foreseen(frozenset(near), left, copied)


def _read_again(
    steps: Sequence[Sequence[str]],
    buffers: Sequence[GraphBuffer],
    lives: Mapping[str, Lifetime],
    gathered: Mapping[str, int],
) -> list[tuple[str, Lifetime]]:
    """The constants that several kernels read, or one by indices: those first of which the same bytes are read most
    often."""
    times = Counter(name for names in steps for name in set(names))
    constants = [buffer for buffer in buffers if buffer.role == "constant"]
    for buffer in constants:
        if gathered.get(buffer.name, 0) >= LEAST_GATHERED_BYTES:
            times[buffer.name] = max(times[buffer.name], gathered[buffer.name] // buffer.size_bytes)
    large = [b for b in constants if b.size_bytes >= LEAST_COPIED_BYTES or b.name in gathered]
    found = [(name, life) for name, life in _sized(large, lives).items() if times[name] >= LEAST_READERS]
    return sorted(found, key=lambda one: (-times[one[0]], -one[1].size_bytes, one[1].first))


def _rounded(size: int) -> int:
    """Down to two or three times a power of two, so that kernels of different models are alike."""
    unit = max(1, 1 << max(0, size.bit_length() - 2))
    return size // unit * unit


def _alignment(chip: Chip) -> int:
    return max(_LEAST_ALIGNMENT, chip.transfer.ddr_line_bytes)


def _life(buffer: GraphBuffer, lives: Mapping[str, Lifetime]) -> Lifetime:
    """A buffer that no kernel uses lives at the start."""
    return lives.get(buffer.name, Lifetime(0, 0, 0))


def _sized(buffers: Iterable[GraphBuffer], lives: Mapping[str, Lifetime]) -> dict[str, Lifetime]:
    return {b.name: replace(_life(b, lives), size_bytes=b.size_bytes) for b in buffers}


def _apart(buffers: Sequence[GraphBuffer], alignment: int, clusters: int) -> tuple[dict[str, Place], int]:
    """Places of their own, and where they end."""
    places, end = {}, 0
    for buffer in buffers:
        if buffer.role != "intermediate":
            split = clusters > 1 and buffer.role != "constant" and not buffer.is_common
            places[buffer.name] = Place("ddr", end, buffer.size_bytes // clusters if split else 0)
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


def _runs(
    steps: Sequence[Sequence[str]],
    in_place: Sequence[Sequence[tuple[int, int]]],
    buffers: Sequence[GraphBuffer],
    lives: Mapping[str, Lifetime],
    parts: Mapping[str, GraphBuffer],
) -> dict[str, str]:
    """Buffers in whose bytes others are made when nobody needs them any more: by buffer, the first one of its bytes.

    1. The step makes the one and is the last that needs the other, which it is given once, with all its parts.
    2. Neither is a part, and both are as large.
    """
    sizes, first, replaced = {b.name: b.size_bytes for b in buffers}, dict[str, str](), set[str]()
    for step, (names, pairs) in enumerate(zip(steps, in_place, strict=True)):
        outers = [_outer(name, parts) for name in names] if pairs else []
        for result, source in pairs:
            made, below = names[result], names[source]
            if made in first or below in replaced or sizes.get(made, -1) != sizes.get(below, -2):  # (2)
                continue
            once = outers.count(below) == outers.count(made) == 1
            if once and lives[made].first == step == lives[below].last:  # (1)
                first[made] = first.get(below, below)
                replaced.add(below)
    return first


def _with_runs(
    room: SharedRoom, buffers: Sequence[GraphBuffer], lives: Mapping[str, Lifetime], runs: Mapping[str, str]
) -> SharedRoom:
    """The room with as much as there is place for. Only where not all fits apart does a run of buffers take the same
    bytes: what is written over an input waits for all who read that. A run goes as one; where some do not fit, all is
    placed anew without the first of each of them, which lives longest and comes last.
    """
    sized, last = _sized(buffers, lives), dict[str, Lifetime]()
    apart = room.with_all(sized)
    if not runs or not apart.missing(sized):
        return apart
    members: dict[str, list[str]] = {}
    for name in sized:
        members.setdefault(runs.get(name, name), []).append(name)
    whole = [sorted(names, key=lambda name: sized[name].first) for names in members.values()]
    best, most = room, -1
    while True:
        together = {run[0]: sized[run[0]].until(sized[run[-1]].last) for run in whole}
        found = room.with_all(together, {run[0]: len(run) for run in whole})
        missing = [run for run in whole if run[0] not in found.offsets and len(run) > 1]
        found.offsets |= {name: found.offsets[run[0]] for run in whole if run[0] in found.offsets for name in run[1:]}
        found = found.with_all(last) if last else found
        placed = sum(life.size_bytes for name, life in sized.items() if name in found.offsets)
        if placed > most:
            best, most = found, placed
        if not missing:
            return best
        last |= {run[0]: sized[run[0]] for run in missing}
        whole = [run[1:] if run in missing else run for run in whole]


def _with_copies(
    room: SharedRoom,
    buffers: Sequence[GraphBuffer],
    lives: Mapping[str, Lifetime],
    runs: Mapping[str, str],
    copies: Sequence[tuple[str, Lifetime]],
) -> SharedRoom:
    """The room with the copies that leave room for all else that finds any."""
    best = found = _with_runs(room, buffers, lives, runs)
    placed = dict[str, Lifetime]()
    for some in (copies, *([copy] for copy in copies)):  # all of them at once, or one after another
        together = {**placed, **dict(some)}
        if len(together) == len(placed):
            break
        beside = room.with_all(together)
        if beside.missing(together):
            continue
        tried = _with_runs(beside, buffers, lives, runs)
        if not tried.missing([*best.offsets, *together]):
            placed, found = together, tried
    for name, life in copies:
        if name not in found.offsets:
            found.place(name, life)  # between all others, where there is a gap
    return found


def _in_llb(
    scratch: Sequence[GraphBuffer],
    wanted: Sequence[GraphBuffer],
    lives: Mapping[str, Lifetime],
    runs: Mapping[str, str],
    chip: Chip,
) -> dict[str, int]:
    """Offsets of scratch, which has to lie in LLB, and of what is wanted there and fits: places rest as long as that
    keeps nothing out, and where not all can, those of scratch and then of others that find room to.
    """
    capacity, most = chip.memory_bytes("llb"), -1
    best: SharedRoom | None = None
    copied = [buffer for buffer in wanted if buffer.copy_of]
    copies = list(_sized(copied, lives).items())
    wanted = [buffer for buffer in wanted if not buffer.copy_of]
    for later in RESTS:
        room = SharedRoom(capacity, _alignment(chip), later).with_all(_sized(scratch, lives))
        if room.missing(buffer.name for buffer in scratch):
            continue
        found = _with_copies(room, wanted, lives, runs, copies)
        placed = sum(buffer.size_bytes for buffer in [*wanted, *copied] if buffer.name in found.offsets)
        if placed > most:
            best, most = found, placed
        if len(found.offsets) == len(scratch) + len(wanted) + len(copied):
            break
    if best is None:
        largest = sorted(((b.name, b.size_bytes) for b in scratch), key=lambda entry: -entry[1])
        raise MemoryOverflow(
            "llb", live_peak(list(_sized(scratch, lives).values()), _alignment(chip)), capacity, tuple(largest[:5])
        )
    alone = {name: life for name, life in _sized([*scratch, *wanted], lives).items() if name in best.offsets}
    shared = {*runs, *runs.values()}
    for steps in RESTS if best.later < RESTS[0] else ():
        alone = {
            name: life
            for name, life in alone.items()
            if name not in shared and steps > best.later and not best.move_apart(name, life, steps)
        }
    return best.offsets


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


def _lives(kernels: Sequence[PlacedKernel], buffers: Iterable[GraphBuffer]) -> dict[str, Lifetime]:
    return _lifetimes([kernel.bindings() for kernel in kernels], buffers, [kernel.fetches for kernel in kernels])


def _lifetimes(
    steps: Sequence[Sequence[str]], buffers: Iterable[GraphBuffer], brought: Sequence[Sequence[Fetch]] = ()
) -> dict[str, Lifetime]:
    """From the first kernel that uses a buffer, or a part of it, to the last one; by spans, where parts of it are used
    earlier or later than others, or brought by other kernels.
    """
    known = {buffer.name: buffer for buffer in buffers}
    uses = dict[str, dict[tuple[int, int], tuple[int, int]]]()  # by buffer and bytes: first and last
    for step, names in enumerate(steps):
        for name in dict.fromkeys(names):
            buffer = known.get(name)
            outer, low = (buffer.whole or name, buffer.offset) if buffer else (name, 0)
            high = low + buffer.size_bytes + buffer.further if buffer else 0
            ranges = uses.setdefault(outer, {})
            ranges[low, high] = ranges.get((low, high), (step, step))[0], step
    for step, fetches in enumerate(brought):
        for fetch in fetches:
            uses[fetch.target][fetch.low, fetch.high] = step, step
    return {name: _life_of(ranges) for name, ranges in uses.items()}


def _life_of(uses: Mapping[tuple[int, int], tuple[int, int]]) -> Lifetime:
    first, last = min(begin for begin, _ in uses.values()), max(end for _, end in uses.values())
    whole = Lifetime(0, first, last)
    if all(each == (first, last) for each in uses.values()):
        return whole
    edges, spans = sorted({edge for both in uses for edge in both}), list[Span]()
    for low, high in pairwise(edges):
        within = [each for (begin, end), each in uses.items() if begin <= low and high <= end]
        if not within:
            continue
        span = Span(low, high, min(begin for begin, _ in within), max(end for _, end in within))
        if spans and spans[-1].high == low and (spans[-1].first, spans[-1].last) == (span.first, span.last):
            span = replace(spans.pop(), high=high)
        spans.append(span)
    return whole if len(spans) == 1 else replace(whole, spans=tuple(spans))


def _aligned(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
