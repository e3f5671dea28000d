"""Which of a nest's loops become the dimensions of an instruction, and which stay scalar loops around it.

Up to three loops become n2, n1 and n0; the estimate here ranks the choices, and the row's own timing decides among the
few best. Loops that all operands walk as one are one already (LoopCollapse); where a recogniser looks at some of the
operands only, it merges what those walk as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod
from typing import Any

from tvm import sym, tirx

from compiler.emission.calls import number
from compiler.emission.costs import DISPATCH_CYCLES, LOOP_OVERHEAD_CYCLES
from compiler.emission.nest import Access, Loop, Nest
from compiler.isa.timing import ceil_div
from compiler.target import Chip
from compiler.tir.structure import structural_walk

EXTENT_LIMIT = 65535
TIMED = 3  # choices that are timed exactly


@dataclass(frozen=True, eq=False)
class Dim:
    """One dimension of an instruction: loops walked as one, with every operand's stride in elements."""

    loops: tuple[Loop, ...]
    extent: Any
    bound: int
    strides: tuple[int, ...]

    def in_blocks(self, size: int) -> tuple[Any, int, int] | None:
        """How many blocks of as many steps there are, at most, and how many steps are left; None where that is not
        known.
        """
        if isinstance(self.extent, int):
            blocks, rest = divmod(self.extent, size)
            return blocks, blocks, rest
        analyzer = sym.Analyzer()
        if not analyzer.can_prove_equal(tirx.floormod(self.extent, size), 0):
            return None
        return analyzer.simplify(tirx.floordiv(self.extent, size)), ceil_div(self.bound, size), 0


@dataclass(frozen=True, eq=False)
class Placement:
    """Dimensions outermost first (the last is n0), and the scalar loops around, outermost first."""

    dims: tuple[Dim, ...]
    outer: tuple[Loop, ...]

    @property
    def executions(self) -> int:
        return prod(loop.bound for loop in self.outer)

    @property
    def overhead_cycles(self) -> int:
        return LOOP_OVERHEAD_CYCLES if self.outer else DISPATCH_CYCLES

    @property
    def inner_loops(self) -> list[Loop]:
        return [loop for dim in self.dims for loop in dim.loops]

    def values(self) -> dict[Any, Any]:
        """Every loop of a dimension at its first iteration: where the operands' addresses are."""
        return {loop.var: number(0) for loop in self.inner_loops}


def eligible(nest: Nest, accesses: Sequence[Access], written: int = 0) -> list[Dim]:
    """The loops that can be dimensions: affine without going backwards, and the destination moves in each.

    ``written`` is the number of leading accesses that are destinations. A loop that decides how often another one runs
    stays a scalar loop: an instruction's extents are known before it starts.
    """
    dims = []
    deciding = _variables_of_extents(nest)
    for position, loop in enumerate(nest.loops):
        if loop.var in deciding:
            continue
        strides = tuple(access.coefficients[position] for access in accesses)
        if all(s is not None and s >= 0 for s in strides) and loop.bound <= EXTENT_LIMIT:
            dims.append(Dim((loop,), loop.extent, loop.bound, tuple(int(s or 0) for s in strides)))
    return [dim for dim in dims if all(dim.strides[:written])]


def _variables_of_extents(nest: Nest) -> set[Any]:
    found = set[Any]()
    for loop in nest.loops:
        if not isinstance(loop.extent, int):
            structural_walk(loop.extent, (tirx.Var, found.add))
    return found


def merged(dims: Iterable[Dim], mergeable: Callable[[Dim, Dim], bool] = lambda outer, inner: True) -> list[Dim]:
    """Dims with every pair merged that all operands walk as one."""
    left = list(dims)
    changed = True
    while changed:
        changed = False
        for outer in left:
            inner = next((d for d in left if d is not outer and _continues(outer, d) and mergeable(outer, d)), None)
            if inner is not None:
                joined = Dim(
                    outer.loops + inner.loops, outer.extent * inner.extent, outer.bound * inner.bound, inner.strides
                )
                left = [joined if d is inner else d for d in left if d is not outer]
                changed = True
                break
    return left


def _continues(outer: Dim, inner: Dim) -> bool:
    """Whether the next iteration of ``outer`` starts where ``inner`` ends, for every operand."""
    if not isinstance(inner.extent, int) or outer.bound * inner.bound > EXTENT_LIMIT:
        return False
    return all(o == i * inner.extent for o, i in zip(outer.strides, inner.strides, strict=True))


def placements(
    nest: Nest,
    dims: Sequence[Dim],
    chip: Chip,
    widest: int,
    innermost: Callable[[Dim], bool] = lambda dim: True,
    others: Callable[[Dim], bool] = lambda dim: True,
    rank: int = 3,
) -> list[Placement]:
    """The best choices of dimensions by estimate, best first.

    ``innermost`` says which may be n0, ``others`` which may be the rest; ``widest`` is the bytes of the widest element.
    """
    found: list[tuple[int, int, Placement]] = []
    for inner in (dim for dim in dims if innermost(dim)):
        rest = [dim for dim in dims if dim is not inner and others(dim)]
        largest = sorted(rest, key=lambda dim: -dim.bound)[: rank + 1]
        for chosen in combinations(largest, min(rank - 1, len(largest))):
            picked = (*sorted(chosen, key=rest.index), inner)
            placement = place(nest, picked)
            found.append((_estimate(placement, chip, widest), len(found), placement))
    found.sort(key=lambda one: one[:2])
    return [placement for *_, placement in found[:TIMED]]


def place(nest: Nest, dims: tuple[Dim, ...]) -> Placement:
    used = {id(loop) for dim in dims for loop in dim.loops}
    return Placement(dims, tuple(loop for loop in nest.loops if id(loop) not in used))


def _estimate(placement: Placement, chip: Chip, widest: int) -> int:
    vector = chip.vector
    *rows, columns = [dim.bound for dim in placement.dims]
    blocks = -(-columns * widest // chip.block_bytes)
    # A broken stride costs a block per element, which the bank model sees and this estimate only hints at.
    scattered = sum(stride > 1 for stride in placement.dims[-1].strides)
    repeats = -(-prod(rows) * blocks * chip.block_bytes // vector.bytes_per_cycle) * (1 + scattered)
    once = vector.head_cycles + repeats + vector.tail_cycles + placement.overhead_cycles
    return placement.executions * once
