"""A model that clusters of a chip run by themselves: one alone, or several that divide its batch, or its images.

The pass that decides it says so in an attribute of `main`, whose shapes are then those of one cluster's part. The
model's inputs and outputs are what they were. Kernels are compiled for one cluster, and linked for those that run
(:mod:`compiler.codegen.clusters`); the others do nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf, isinf, prod
from typing import Any

from compiler import graph
from compiler.codegen.residence import GraphBuffer
from compiler.frontend import Imported
from compiler.target import Chip

COMMON = "tw.common"  # attribute of main: the numbers of its parameters of which each cluster reads all
CLUSTERS = "tw.clusters"  # attribute of main: how many clusters run it, each its part; one that has it is left as it is
RIVALS = "tw.rivals"  # attribute of main: other numbers of clusters that may be faster; where that is worth finding out
THOUGHT = "tw.thought"  # attribute of main: the cycles that it is thought to take, where that was worked out
ROWS = "tw.rows"  # attribute of main: whether each of the clusters that run it works on some rows of its images
TOGETHER = 0  # clusters: all work together on every kernel


def clusters_of(module: Any) -> int:
    return int(graph.attribute(module["main"], CLUSTERS, TOGETHER))


def by_rows(module: Any) -> bool:
    """Whether clusters run it each on some rows of images, not on a part of the batch."""
    return bool(graph.attribute(module["main"], ROWS, False))


def chip_of(module: Any, chip: Chip) -> Chip:
    """What main's kernels are compiled for: the chip, or one of its clusters."""
    clusters = clusters_of(module)
    return chip if clusters == TOGETHER else chip.one_cluster(clusters)


def with_rivals(module: Any, clusters: Sequence[int]) -> Any:
    """The module, which other numbers of clusters may run faster."""
    return _with_attribute(module, RIVALS, list(clusters))


def rivals_of(module: Any) -> list[int]:
    return [int(clusters) for clusters in graph.attribute(module["main"], RIVALS, ())]


def with_thought(module: Any, cycles: float) -> Any:
    """The module, which is thought to take so many cycles."""
    return module if isinf(cycles) else _with_attribute(module, THOUGHT, int(cycles))


def without_thought(module: Any) -> Any:
    """The module as it is run, whatever it is thought to take."""
    if graph.attribute(module["main"], THOUGHT) is None:
        return module
    module = module.clone()
    module["main"] = module["main"].without_attr(THOUGHT)
    return module


def thought_of(module: Any) -> float:
    """The cycles that main is thought to take; infinite where nobody worked that out."""
    return float(graph.attribute(module["main"], THOUGHT, inf))


def common_parameters(module: Any) -> list[Any]:
    """The parameters of main that clusters have in common where each has its part of the batch."""
    common = graph.attribute(module["main"], COMMON, ())
    return [module["main"].params[int(number)] for number in common]


def run_by(module: Any, clusters: int) -> Any:
    """The module, whose main is already what so many clusters run."""
    return _with_attribute(module, CLUSTERS, clusters)


def _with_attribute(module: Any, name: str, value: Any) -> Any:
    module = module.clone()
    module["main"] = module["main"].with_attr(name, value)
    return module


def together(imported: Imported) -> Imported:
    """A model that is to stay in one piece, for all clusters together."""
    return replace(imported, module=run_by(imported.module, TOGETHER))


def of_all(
    buffer: GraphBuffer, shapes: Mapping[str, Sequence[int]], clusters: int, *, rows: bool = False
) -> GraphBuffer:
    """An input, output or constant of one cluster's kernels as the caller has it, where ``shapes`` has its shape there.

    What is read and no larger there has no parts, so that clusters share it: it is then a constant, and no other is.
    Where each has some ``rows``, they share results, too.
    """
    if buffer.name not in shapes or buffer.role not in ("input", "output", "constant"):
        return buffer
    shape = tuple(shapes[buffer.name])
    if prod(shape) == prod(buffer.shape) and (rows or buffer.role != "output"):
        return replace(buffer, is_common=True) if buffer.role == "output" else replace(buffer, role="constant")
    if prod(shape) != clusters * prod(buffer.shape):
        raise ValueError(f"{buffer.name} is {list(shape)}, but {list(buffer.shape)} on each of {clusters} clusters")
    role = "output" if buffer.role == "output" else "input"
    return replace(buffer, shape=shape, size_bytes=buffer.size_bytes * clusters, role=role)
