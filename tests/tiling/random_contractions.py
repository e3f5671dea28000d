"""Random sums of products over axes in any order, compiled as kernels of class matmul, against numpy's einsum.

Axes of a batch, of rows, of columns and of sums; what is read lies with strides, behind something or backwards. Some of
it is for the matrix unit, the rest for the vector unit: which, the compiler has to find out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from random import Random
from typing import Any

import numpy as np
from tvm import te, tirx

from ci.random_cases import Outcome
from compiler.codegen import GraphBuffer, PlacedKernel, link
from compiler.codegen.memory import MemoryOverflow
from compiler.errors import TilewrightError
from compiler.isa.dtypes import Queue
from compiler.kernels import NoRoadLeft, compile_kernel
from compiler.pipeline import Observer
from compiler.sim.simulator import simulate
from compiler.target import load_chip
from compiler.tir.products import columns_second
from tests.tiling.kernels import exact, random

SUMS = {"float16": "float32", "float32": "float32", "int8": "int32"}
TOLERANCE = 2e-3
LONG, SHORT = (1, 4, 7, 16, 17, 33, 40, 64), (1, 2, 3, 5)
MOST_PRODUCTS = 1_000_000
ROLES = {"batch": "bc", "m": "ij", "n": "xy", "k": "kl"}
COUNTS = {"batch": (0, 0, 1, 2), "m": (0, 1, 1, 2), "n": (0, 1, 1, 2), "k": (1, 1, 1, 2)}


@dataclass(frozen=True)
class Place:
    """Of an operand's axis: element ``first + step * index``, where the axis holds ``extent`` elements."""

    axis: str
    extent: int
    first: int
    step: int


@dataclass(frozen=True)
class Contraction:
    dtype: str
    extents: dict[str, int]
    a: tuple[Place, ...]
    b: tuple[Place, ...]
    result: str
    relu: bool

    def __str__(self) -> str:
        left, right = ("".join(place.axis for place in side) for side in (self.a, self.b))
        moved = [place for place in (*self.a, *self.b) if (place.first, place.step) != (0, 1)]
        return f"{self.dtype} {left},{right}->{self.result} {self.extents}, relu {self.relu}, {moved}"


def check(seed: int, chip: str) -> Outcome:
    contraction = _draw(Random(seed))
    try:
        error, unit = one_kernel(chip, contraction, np.random.default_rng(seed))
    except (NoRoadLeft, MemoryOverflow):  # a kernel, or all that it reads
        return Outcome(seed, chip, "", Counter({"too large": 1}))
    except (AssertionError, TilewrightError) as problem:
        return Outcome(seed, chip, f"{contraction}: {str(problem)[:300]}")
    text = f"{contraction}: off by {error:.2g} of the largest" if error > TOLERANCE else ""
    return Outcome(seed, chip, text, Counter({f"contractions on the {unit} unit": 1}))


def one_kernel(chip_name: str, contraction: Contraction, rng: np.random.Generator) -> tuple[float, str]:
    """How far off the kernel's result is, by the largest element, and the unit that multiplies."""
    chip = load_chip(chip_name)
    shapes = [tuple(place.extent for place in side) for side in (contraction.a, contraction.b)]
    shape = tuple(contraction.extents[axis] for axis in contraction.result)
    arrays = [random(rng, contraction.dtype, *each) for each in shapes]
    kernel = compile_kernel(_defined(contraction, shapes, shape), "matmul", chip, Observer())
    parameters = [parameter for parameter in kernel.code.parameters if not parameter.scratch]
    buffers = [
        GraphBuffer(parameter.name, parameter.dtype, each, parameter.size_bytes, role)
        for parameter, each, role in zip(parameters, [*shapes, shape], ("input", "input", "output"), strict=True)
    ]
    names = [parameter.name for parameter in parameters]
    program = link([PlacedKernel("kernel", kernel.code, tuple(names))], chip, buffers).program
    found = simulate(program, chip, dict(zip(names, arrays, strict=False)), hazards=True)
    assert not found.hazards, found.hazards[0].render()
    expected = _expected(contraction, arrays)
    off = np.abs(found.outputs[names[-1]].reshape(shape) - expected).max() / max(np.abs(expected).max(), 1e-3)
    return float(off), "matrix" if any(one.row.queue is Queue.M for one in program.instrs) else "vector"


def _defined(contraction: Contraction, shapes: Sequence[tuple[int, ...]], shape: tuple[int, ...]) -> Any:
    a, b = (te.placeholder(each, contraction.dtype, name) for each, name in zip(shapes, "ab", strict=True))
    kept, wide = set(contraction.result), SUMS[contraction.dtype]
    summed = {axis: te.reduce_axis((0, n), axis) for axis, n in contraction.extents.items() if axis not in kept}

    def value(*index: Any) -> Any:
        at = dict(zip(contraction.result, index, strict=True)) | summed
        sides = zip((a, b), (contraction.a, contraction.b), strict=True)
        loads = [side(*(at[place.axis] * place.step + place.first for place in places)) for side, places in sides]
        return te.sum(loads[0].astype(wide) * loads[1].astype(wide), axis=[*summed.values()])

    result = te.compute(shape, value, "sums")
    if contraction.relu:
        result = te.compute(shape, lambda *index: tirx.max(result(*index), tirx.const(0, wide)), "relu")
    return columns_second(te.create_prim_func([a, b, result]))


def _expected(contraction: Contraction, arrays: Sequence[np.ndarray]) -> np.ndarray:
    sides = []
    for array, places in zip(exact(arrays), (contraction.a, contraction.b), strict=True):
        indices = [np.arange(contraction.extents[place.axis]) * place.step + place.first for place in places]
        sides.append(array[np.ix_(*indices)])
    left, right = ("".join(place.axis for place in places) for places in (contraction.a, contraction.b))
    found: np.ndarray = np.einsum(f"{left},{right}->{contraction.result}", *sides)
    return np.maximum(found, 0) if contraction.relu else found


def _draw(source: Random) -> Contraction:
    while True:
        extents = dict[str, int]()
        for role, names in ROLES.items():
            for at, axis in enumerate(names[: source.choice(COUNTS[role])]):
                extents[axis] = source.choice(SHORT if role == "batch" or at else LONG)
        result = [axis for axis in extents if axis not in ROLES["k"]]
        if result and prod(extents.values()) <= MOST_PRODUCTS:
            break
    moved = source.random() < 0.4
    sides = []
    for other in ("n", "m"):
        axes = [axis for axis in extents if axis not in ROLES[other]]
        if source.random() < 0.5:
            source.shuffle(axes)
        sides.append(tuple(_place(source, axis, extents[axis], moved=moved) for axis in axes))
    if source.random() < 0.4:
        source.shuffle(result)
    dtype = source.choice(tuple(SUMS))
    return Contraction(dtype, extents, sides[0], sides[1], "".join(result), source.random() < 0.3)


def _place(source: Random, axis: str, extent: int, *, moved: bool) -> Place:
    step = source.choice((1, 1, 1, 2, 3, -1)) if moved else 1
    before, behind = (source.choice((0, 0, 5, 16)) if moved else 0 for _ in range(2))
    reach = (extent - 1) * abs(step) + 1
    return Place(axis, before + reach + behind, before + (reach - 1 if step < 0 else 0), step)
