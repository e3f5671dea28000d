"""From one group of operators to the code of one kernel, with every road tried before giving up.

A step that cannot do what it was asked raises a typed error; the step before it tries again with less: a smaller tile,
then a simpler schedule, and where none of them fits the group is taken apart (the driver does that).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from tvm.s_tir import ScheduleError

from compiler import pipeline
from compiler.codegen.kernel import KernelCode, generate
from compiler.codegen.memory import MemoryOverflow
from compiler.emission.errors import NotEmittable
from compiler.errors import CapacityError, Problem
from compiler.graph import attribute
from compiler.target import Chip
from compiler.tiling.template import NoFeasibleTile, Template

# The modules of `compiler.tiling` that cut the kernels of a class, the best first.
TEMPLATES: dict[str, tuple[str, ...]] = {
    "matmul": ("matmul", "vector", "plain"),  # integers that the cube does not multiply
    "convolution": ("convolution",),
    "attention": ("attention",),
    "library": ("plain",),
    "scatter": ("plain",),  # where data decides what is written, tiles would not know their part
}
VECTOR_TEMPLATES = ("vector", "plain")
ATTEMPTS = 16


@dataclass(frozen=True)
class Road:
    """A way that was tried, and why it ended."""

    what: str
    why: str


class NoRoadLeft(CapacityError):
    """Everything was tried for this kernel; carries the roads."""

    def __init__(self, name: str, roads: list[Road]) -> None:
        self.name, self.roads = name, tuple(roads)
        listed = "; ".join(f"{road.what}: {road.why}" for road in roads[-6:])
        super().__init__(Problem("TW2402", f"{name} cannot be made to fit the chip", hint=f"tried {listed}"))


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel and how it came to be."""

    name: str
    code: KernelCode
    tile: str
    roads: tuple[Road, ...] = ()
    statistics: dict[str, int] = field(default_factory=dict)


def compile_kernel(func: Any, schedule: str, chip: Chip, observer: pipeline.Observer, name: str = "kernel") -> Kernel:
    """The code of a PrimFunc whose master operator is of class ``schedule``."""
    roads: list[Road] = []
    for module in VECTOR_TEMPLATES if _reads_nothing(func) else TEMPLATES.get(schedule, VECTOR_TEMPLATES):
        template: Template = import_module(f"compiler.tiling.{module}").schedule
        found = _by_template(func, template, chip, observer, name, roads)
        if found is not None:
            return found
    raise NoRoadLeft(name, roads)


def _reads_nothing(func: Any) -> bool:
    """Is an input without elements? Sums over it are empty, and there are no tiles for the cube."""
    return any(int(extent) == 0 for param in func.params for extent in param.shape)


def _by_template(
    func: Any, template: Template, chip: Chip, observer: pipeline.Observer, name: str, roads: list[Road]
) -> Kernel | None:
    where = template.__module__.rpartition(".")[2]
    for attempt in range(ATTEMPTS):
        try:
            tiled = template(func, chip, attempt)
        except NoFeasibleTile as error:
            roads.append(Road(f"{where}, attempt {attempt + 1}", error.problems[0].message))
            return None
        except ScheduleError as error:
            roads.append(Road(where, f"TVM cannot schedule it: {str(error).strip().splitlines()[-1]}"))
            return None
        try:
            observer.kernel = name if attempt == 0 else f"{name}.attempt{attempt + 1}"
            lowered = pipeline.run(pipeline.kernel_passes(), tiled.func, chip, observer)
            statistics = {str(k): int(n) for k, n in attribute(lowered, "tw.emission", {}).items()}
            return Kernel(name, generate(lowered, chip, name), tiled.description, tuple(roads), statistics)
        except MemoryOverflow as error:
            roads.append(Road(tiled.description, error.problems[0].message))
        except NotEmittable as error:
            roads.append(Road(tiled.description, error.problems[0].message))
            return None
    return None
