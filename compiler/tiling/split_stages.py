"""Operators of several stages around a product of matrices, as several kernels: what it reads, itself, and the rest.

    r = f(x);  c = sum(r * b);  m = max(g(c))
    ->  kernel: r = f(x)        kernel: g(c = sum(r * b))        kernel: m = max

A tile of a product has the stages behind it that compute element by element, and no others. An operand that is no
matrix as it lies, as the windows of a convolution that somebody writes out, becomes one by a stage of its own
(`compiler/tiling/made_operands.py`), so that the matrix unit multiplies whatever is a sum of products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tvm import tirx

from compiler.graph import is_one_operator
from compiler.target import Chip
from compiler.tiling.cube import follows
from compiler.tiling.in_parts import InParts, Part, function, mentions, reads, stores
from compiler.tiling.made_operands import with_made_operands
from compiler.tiling.masters import has_master
from compiler.tir.products import is_product
from compiler.tir.sblocks import innermost

SWITCH = "split-stages"  # what ablations call it
# Convolutions in the form of the built-in one make their windows themselves, and groups that are an attention have a
# template that leaves nothing to be gained.
CLASSES = ("matmul", "convolution", "attention")


def split(func: Any, schedule: str, chip: Chip) -> tuple[InParts, ...]:
    """The kernels, where a product is among the stages and cannot have all others on its tiles."""
    if schedule not in CLASSES or (schedule == "convolution" and has_master(func, schedule)):
        return ()
    if schedule == "attention" and not is_one_operator(func):
        return ()
    stages = _Stages.of(with_made_operands(func, chip))
    if stages is None or not any(stage.is_product for stage in stages.all):
        return ()
    found = [stages.in_parts(between)] if (between := stages.borders()) else []
    if schedule == "attention" and (between := stages.made_before()):
        found.insert(0, stages.in_parts(between, schedule))
    return tuple(found)


@dataclass(frozen=True)
class _Stage:
    nest: Any
    block: Any

    @property
    def made(self) -> Any:
        return self.block.writes[0].source

    def reads(self, buffer: Any) -> bool:
        """Whether it does of another stage's."""
        return not buffer.same_as(self.made) and reads(self.nest, buffer)

    @cached_property
    def is_product(self) -> bool:
        return is_product(self.block)


@dataclass(frozen=True)
class _Stages:
    """The stages of a function with one result, each a nest of one block, in program order."""

    func: Any
    all: tuple[_Stage, ...]
    inner: tuple[Any, ...] = field(default=())  # buffers between stages

    @staticmethod
    def of(func: Any) -> _Stages | None:
        root = func.body.block
        nests = list(root.body.seq) if isinstance(root.body, tirx.SeqStmt) else [root.body]
        blocks = [[realize.block for realize in innermost(nest)] for nest in nests]
        if not all(len(found) == 1 and len(found[0].writes) == 1 for found in blocks):
            return None
        stages = tuple(_Stage(nest, found[0]) for nest, found in zip(nests, blocks, strict=True))
        made = {stage.made for stage in stages}
        if len(made) < len(stages) or sum(param in made for param in func.params) != 1:
            return None
        return _Stages(func, stages, tuple(root.alloc_buffers))

    def borders(self) -> list[Any]:
        """The buffers between two kernels, in the order in which they are made.

        1. What a product reads, and what a stage on its tiles reads that is not made there.
        2. What a product and the stages on its tiles make for one that cannot be there, or for another product's.
        3. What would be made twice.
        """
        found, product_of = set[Any](), dict[Any, Any]()
        for stage in self.all:
            read = [buffer for buffer in self.inner if stage.reads(buffer)]
            on_tile = [buffer for buffer in read if buffer in product_of and buffer not in found]
            if stage.is_product:
                found.update(read)  # (1)
                product_of[stage.made] = stage
            elif on_tile and follows(stage.block, [*self.func.params, *(set(self.inner) - set(on_tile))]):
                product = product_of[on_tile[0]]
                found.update(buffer for buffer in read if product_of.get(buffer) is not product)  # (1, 2)
                product_of[stage.made] = product
            else:
                found.update(on_tile)  # (2)
        while twice := self._made_twice(found):  # (3)
            found.add(twice)
        return [stage.made for stage in self.all if stage.made in found]

    def made_before(self) -> list[Any]:
        """The buffers that the first product and all that needs it read, and do not make."""
        found, inside = set[Any](), set[Any]()
        for stage in self.all:
            read = {buffer for buffer in self.inner if stage.reads(buffer)}
            if read & inside or (stage.is_product and not inside):
                found |= read - inside
                inside.add(stage.made)
        return [stage.made for stage in self.all if stage.made in found]

    def _made_twice(self, borders: set[Any]) -> Any | None:
        parts = [self._part(goal, borders) for goal in self._goals(borders)]
        for stage in self.all:
            if stage.block.init is not None and sum(stage in part for part in parts) > 1:
                return stage.made
        return None

    def _goals(self, borders: set[Any]) -> list[_Stage]:
        return [stage for stage in self.all if stage.made in borders or stage.made in set(self.func.params)]

    def _part(self, goal: _Stage, borders: set[Any]) -> list[_Stage]:
        """The stages that a kernel needs to make what the last one of them does."""
        needed = [goal]
        for stage in reversed(self.all):
            inside = stage.made not in borders and stage is not goal
            if inside and any(reader.reads(stage.made) for reader in needed):
                needed.insert(0, stage)
        return needed

    def in_parts(self, between: Sequence[Any], last: str = "") -> InParts:
        """A kernel for each border, and one of class ``last`` for the result: without it, of what is in it."""
        goals = self._goals(set(between))
        parts = [self._kernel(self._part(goal, set(between)), goal, between, last) for goal in goals]
        return InParts(tuple(between), tuple(parts))

    def _kernel(self, stages: Sequence[_Stage], goal: _Stage, between: Sequence[Any], last: str) -> Part:
        nests = [stage.nest for stage in stages]
        params = [*self.func.params, *between]
        given = [at for at, one in enumerate(params) if any(mentions(nest, one) for nest in nests)]
        given.sort(key=lambda at: any(stores(nest, params[at]) for nest in nests))
        inner = [one for one in self.inner if one not in set(between) and any(mentions(nest, one) for nest in nests)]
        func = function(self.func, [params[at] for at in given], nests, inner)
        name = str(goal.block.name_hint) if goal.made in set(between) else ""
        schedule = "matmul" if any(stage.is_product for stage in stages) else "reduction"
        schedule = schedule if name else last or schedule
        return Part(func, schedule, tuple(given), name or "the rest", name)
