"""The buffers that a program declares, from those of the graph and their places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from compiler.codegen.residence import GraphBuffer, Place
from compiler.isa.program import Buffer

_PROGRAM_ROLES = {
    "input": "input",
    "output": "output",
    "inout": "inout",
    "constant": "input",
    "intermediate": "scratch",
}


def declared(buffers: Sequence[GraphBuffer], places: Mapping[str, Place], clusters: int = 1) -> tuple[Buffer, ...]:
    """The program's buffers; those that share bytes are declared as the one piece that they lie in.

    Copies that other clusters have in DDR are buffers of their own.
    """
    found = []
    for b in sorted(buffers, key=lambda b: (places[b.name], -b.size_bytes)):
        if b.size_bytes and not b.whole:
            memory, offset, *_ = places[b.name]
            found.append(Buffer(b.name, memory, offset, b.size_bytes, b.dtype, b.shape, _PROGRAM_ROLES[b.role]))
    merged = _merged(found)
    steps = {name: place.step for name, place in places.items()}
    copies = [
        replace(b, name=f"{b.name}.cluster{cluster}", offset=b.offset + cluster * steps[b.name])
        for cluster in range(1, clusters)
        for b in merged
        if b.role == "scratch" and steps[b.name]
    ]
    return (*merged, *copies)


def _merged(found: Sequence[Buffer]) -> list[Buffer]:
    merged: list[Buffer] = []
    for buffer in found:
        before = merged[-1] if merged else None
        if before is not None and _share(before, buffer):
            size = max(before.end, buffer.end) - before.offset
            merged[-1] = replace(before, size_bytes=size, dtype="uint8", shape=(size,))
        else:
            merged.append(buffer)
    return merged


def _share(before: Buffer, buffer: Buffer) -> bool:
    scratch_both = before.role == buffer.role == "scratch"
    return scratch_both and before.memory == buffer.memory and buffer.offset < before.end
