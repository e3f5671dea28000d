"""What the stages of a kernel need of one another for a tile of its result, without scheduling it.

A stage stands for a block: its axes, what it reads and writes. For so many positions of its axes it reads a box of each
buffer, whose sides follow from the indices; the box of what another stage makes says how many positions of that one's
axes are needed, down to the kernel's inputs.

A space asks this of thousands of tiles, so TVM's nodes are read once, and what a tile asks is worked out in numbers and
tables of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

from tvm import ir, tirx

from compiler.tiling.blocks import REDUCTION, BlockFacts, block_facts, depends_on_data
from compiler.tiling.reads import Box, Buffer, Known, Place, measure_of, size_of
from compiler.tiling.values import Value, joined_operands, operands, value_of
from compiler.tir.structure import structural_walk


@dataclass(frozen=True, eq=False)
class Stage:
    """One block of the kernel."""

    block: Any
    facts: BlockFacts
    known: Known

    @cached_property
    def axes(self) -> dict[Any, int]:
        """The extent of every axis, in the order of the block's."""
        return {self.known.variable(axis.var): int(axis.dom.extent) for axis in self.block.iter_vars}

    @cached_property
    def reduced(self) -> frozenset[Any]:
        iterations = self.block.iter_vars
        return frozenset(self.known.variable(axis.var) for axis in iterations if int(axis.iter_type) == REDUCTION)

    @cached_property
    def along_rows(self) -> frozenset[Any]:
        """The reduced axes whose positions lie next to each other in something that is read."""
        last = (load.indices[-1] for load in self.loads if load.indices)
        return self.reduced & {self.known.variable(index) for index in last if isinstance(index, ir.Var)}

    @cached_property
    def kept(self) -> tuple[Any, ...]:
        """The axes of its result, which may be cut."""
        return tuple(axis for axis in self.axes if axis not in self.reduced)

    def made_bytes(self, lengths: Mapping[Any, int]) -> int:
        """Of its result, for so many positions of its axes."""
        kept = (length for axis, length in lengths.items() if axis in self.axes and axis not in self.reduced)
        return prod(kept) * self.made.itemsize

    @cached_property
    def stores(self) -> tuple[Any, ...]:
        found: list[Any] = []
        structural_walk(self.block.body, (tirx.BufferStore, found.append))
        return tuple(found)

    @cached_property
    def target(self) -> Any:
        return self.facts.writes[0]

    @cached_property
    def made(self) -> Buffer:
        """What it writes."""
        return self.known.buffer(self.target)

    @cached_property
    def stored(self) -> tuple[Buffer, tuple[Any, ...]]:
        """The buffer of its first store, and for each index the axis that it is; None where it is no axis alone."""
        store = self.stores[0]
        axes = tuple(self.known.variable(index) if isinstance(index, ir.Var) else None for index in store.indices)
        return self.known.buffer(store.buffer), axes

    @cached_property
    def values(self) -> tuple[Value, ...]:
        """What its stores work out, each operation by an instruction of its own."""
        return tuple(value_of(store.value, self.known, operands) for store in self.stores)

    @cached_property
    def joined_values(self) -> tuple[Value, ...]:
        """The same by the instructions that there are. What is folded is added by one that does nothing else."""
        given = operands if self.reduced else joined_operands
        return tuple(value_of(store.value, self.known, given) for store in self.stores)

    @cached_property
    def loads(self) -> tuple[Any, ...]:
        """Every place that is read, once; what a reduction has so far is not among them."""
        found: list[Any] = []

        def visit(load: Any) -> None:
            if not load.source.same_as(self.target):
                found.append(load)

        structural_walk(self.block.body, (ir.TensorLoad, visit))
        return tuple(found)

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """The same, as buffers and measures."""
        return tuple(
            Place(
                self.known.buffer(load.source),
                tuple(measure_of(index, self.known) for index in load.indices),
                tuple(depends_on_data([index]) for index in load.indices),
            )
            for load in self.loads
        )

    @cached_property
    def inner(self) -> dict[Any, int]:
        """The extents of loops within the block."""
        found: dict[Any, int] = {}

        def note(loop: Any) -> None:
            found.setdefault(self.known.variable(loop.loop_var), size_of(loop.extent))

        structural_walk(self.block.body, (tirx.For, note))
        return found

    @cached_property
    def _patterns(self) -> dict[tuple[Any, Buffer], Any]:
        return {}

    def pattern(self, pattern: Any, buffer: Buffer) -> Any:
        """What a function of the block and a buffer says of them."""
        key = pattern, buffer
        if key not in self._patterns:
            self._patterns[key] = pattern(self.block, buffer.node)
        return self._patterns[key]

    def lengths(self, cut: Mapping[Any, int]) -> dict[Any, int]:
        """Positions of each axis and of loops within, where some axes are cut."""
        return {**self.inner, **self.axes, **cut}

    def gathers(self, buffer: Buffer) -> bool:
        """Whether data decides what is read of a buffer: then it is read where it is."""
        return buffer.name in self.facts.dynamic_reads

    def cut_for(self, box: Box) -> dict[Any, int]:
        """The positions of the axes of its result that a box of it takes."""
        found: dict[Any, int] = {}
        for axis, length in zip(self.stored[1], box, strict=True):
            if axis in self.axes and axis not in self.reduced:
                found[axis] = max(1, min(length, self.axes[axis]))
        return found


def stages_of(sch: Any, blocks: list[Any]) -> list[Stage]:
    known = Known()
    return [Stage(block, block_facts(block), known) for block in map(sch.get, blocks)]


@dataclass
class Needs:
    """What a tile of one result needs: positions of the axes of every stage, boxes of every input."""

    lengths: dict[Stage, dict[Any, int]] = field(default_factory=dict)
    inputs: dict[tuple[Buffer, Any], Box] = field(default_factory=dict)  # by buffer, and what reads the same of it


def needs(stages: list[Stage], out: Stage, tile: Mapping[Any, int], pattern: Any) -> Needs:
    """``pattern(block, buffer)`` is the same for stages that read the same of an input."""
    makers = {stage.made: stage for stage in stages if stage is not out}
    found = Needs({out: out.lengths(tile)})
    cuts: dict[Stage, dict[Any, int]] = {}
    for stage in reversed(stages):
        if stage is not out and stage not in cuts:
            continue
        lengths = found.lengths.setdefault(stage, stage.lengths(cuts.get(stage, {})))
        for place in stage.places:
            box = place.box(lengths)
            maker = makers.get(place.source)
            if maker is None:
                key = (place.source, stage.pattern(pattern, place.source))
                found.inputs[key] = _both(box, found.inputs[key]) if key in found.inputs else box
                continue
            cut = maker.cut_for(place.whole_box(lengths))
            before = cuts.setdefault(maker, {})
            for axis, length in cut.items():
                before[axis] = max(length, before.get(axis, 1))
    return found


class Made(NamedTuple):
    """Bytes of what a stage makes, and of temporaries meanwhile."""

    bytes: int
    temporary_bytes: int


def most_bytes(stages: list[Stage], made: Mapping[Stage, Made]) -> int:
    """Of what is made and of temporaries at one time: a result stays until the last stage that reads it is done."""
    order = [stage for stage in stages if stage in made]
    last = {place.source: at for at, stage in enumerate(order) for place in stage.places}
    ends = [max(at, last.get(stage.made, at)) for at, stage in enumerate(order)]
    most = kept = 0
    for at, stage in enumerate(order):
        kept += made[stage].bytes
        most = max(most, kept + made[stage].temporary_bytes)
        kept -= sum(made[other].bytes for other, end in zip(order, ends, strict=True) if end == at)
    return most


def _both(one: Box, other: Box) -> Box:
    return tuple(max(a, b) for a, b in zip(one, other, strict=True))
