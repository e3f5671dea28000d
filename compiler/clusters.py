"""A model whose batch the clusters of a chip divide among them: each runs all of it on its own part.

The pass that divides a model says so in an attribute of `main`, whose shapes are then those of one cluster's part. The
model's inputs and outputs are what they were. Kernels are compiled for one cluster, and linked for all of them
(:mod:`compiler.codegen.clusters`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from compiler import graph
from compiler.codegen.residence import GraphBuffer
from compiler.frontend import Imported
from compiler.target import Chip

CLUSTERS = "tw.clusters"  # attribute of main: how many clusters divide it; one that has it is left as it is


def clusters_of(module: Any) -> int:
    return int(graph.attribute(module["main"], CLUSTERS, 1))


def chip_of(module: Any, chip: Chip) -> Chip:
    """What main's kernels are compiled for: the chip, or one of its clusters."""
    return chip if clusters_of(module) == 1 else chip.one_cluster()


def undivided(imported: Imported) -> Imported:
    """A model that is to stay in one piece."""
    module = imported.module.clone()
    module["main"] = module["main"].with_attr(CLUSTERS, 1)
    return replace(imported, module=module)


def of_all(buffer: GraphBuffer, shapes: Mapping[str, Sequence[int]], clusters: int) -> GraphBuffer:
    """An input, output or constant of one cluster's kernels as the caller has it, where ``shapes`` has its shape there.

    What is read and no larger there has no parts, so that clusters share it: it is then a constant, and no other is.
    """
    if buffer.name not in shapes or buffer.role not in ("input", "output", "constant"):
        return buffer
    shape = tuple(shapes[buffer.name])
    if buffer.role != "output" and prod(shape) == prod(buffer.shape):
        return replace(buffer, role="constant")
    if prod(shape) != clusters * prod(buffer.shape):
        raise ValueError(f"{buffer.name} is {list(shape)}, but {list(buffer.shape)} on each of {clusters} clusters")
    role = "output" if buffer.role == "output" else "input"
    return replace(buffer, shape=shape, size_bytes=buffer.size_bytes * clusters, role=role)
