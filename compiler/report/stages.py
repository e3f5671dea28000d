"""How the graph ran: consecutive layers that run in as many pieces, and what kernels leave to others in DDR."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from compiler.isa.dtypes import Queue
from compiler.report.layers import Layer
from compiler.report.traffic import Moved

_STORES = (Queue.MTE3.name, Queue.FIX.name)


@dataclass(frozen=True)
class Stage:
    """Layers that come one after the other in the graph, each in ``pieces`` pieces; these run depth first."""

    first: int  # numbers of layers
    last: int
    pieces: int
    cycles: int
    share: float
    busy: Mapping[str, float]  # by queue, of the stage's cycles on all cores
    ddr_bytes: int
    llb_bytes: int

    def title(self, layers: Sequence[Layer]) -> str:
        first, last = layers[self.first].title, layers[self.last].title
        return first if self.first == self.last else f"{first} to {last}"


@dataclass(frozen=True)
class RoundTrip:
    """What a kernel leaves in DDR for others, in whole lines, and why it could not stay on the chip."""

    layer: str
    written: int
    read: int
    reason: str  # empty where only the compiled file is there


def pieces_of(layers: Sequence[Layer], order: Sequence[tuple[int, int]]) -> list[int]:
    """In how many pieces each layer ran."""
    uses = Counter(layer for layer, _ in order)
    return [-(-uses[number] // max(1, len(layer.kernels))) for number, layer in enumerate(layers)]


def stages(layers: Sequence[Layer], order: Sequence[tuple[int, int]], cores: int) -> tuple[Stage, ...]:
    pieces = pieces_of(layers, order)
    total = max(1, sum(layer.cycles for layer in layers))
    found = []
    for count, numbers in groupby(range(len(layers)), key=pieces.__getitem__):
        members = list(numbers)
        mine = [layers[number] for number in members]
        cycles = sum(layer.cycles for layer in mine)
        busy = {q.name: sum(layer.busy.get(q.name, 0) for layer in mine) / max(1, cycles * cores) for q in Queue}
        ddr, llb = sum(layer.ddr_bytes for layer in mine), sum(layer.llb_bytes for layer in mine)
        found.append(Stage(members[0], members[-1], count, cycles, cycles / total, busy, ddr, llb))
    return tuple(found)


def round_trips(traffic: Sequence[Moved], layers: Sequence[Layer], reasons: Mapping[str, str]) -> Iterator[RoundTrip]:
    """In the order of the layers that made them. ``reasons`` go by kernel."""
    written, read = Counter[str](), Counter[str]()
    for each in traffic:
        if each.maker:
            (written if each.queue in _STORES else read)[each.maker] += each.bytes
    for layer in layers:
        of_layer = dict.fromkeys(reasons[kernel] for kernel in layer.kernels if kernel in reasons)
        if written[layer.name] or read[layer.name]:
            yield RoundTrip(layer.name, written[layer.name], read[layer.name], "; ".join(of_layer))
