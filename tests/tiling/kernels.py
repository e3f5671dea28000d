"""One kernel from TE to a simulated run: tiled, lowered by the pipeline, linked alone, run with hazards checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from compiler import pipeline
from compiler.codegen import GraphBuffer, PlacedKernel, generate, link
from compiler.sim.simulator import simulate
from compiler.target import Chip, load_chip
from compiler.tiling.search import cheapest_first

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Result:
    outputs: tuple[Array, ...]
    description: str
    cycles: int
    func: Any  # in instruction form

    @property
    def output(self) -> Array:
        """The last one."""
        return self.outputs[-1]


def made(x: te.Tensor, function: Callable[[Any], Any], name: str) -> te.Tensor:
    """A stage that does the same to every element."""
    return te.compute(x.shape, lambda *i: function(x(*i)), name)


def by_cost(space_of: Callable[[Any, Chip], Any], pick: Callable[[int], int]) -> Callable[[Any, Chip, int], Any]:
    """A template that takes one of the tiles of a space, of which those that cost least come first."""

    def picked(func: Any, chip: Chip, _attempt: int) -> Any:
        space = space_of(func, chip)
        tiles = cheapest_first(space, space.tiles(), chip)
        return space.apply(tiles[pick(len(tiles))])

    return picked


def run(
    template: Callable[..., Any],
    chip_or_name: Chip | str,
    inputs: Mapping[str, Array],
    define: Callable[..., Any],
    attempt: int = 0,
) -> Result:
    """Run ``define(*placeholders)``, a tensor, several, or a PrimFunc, by a template's tile; fails on any hazard."""
    chip = load_chip(chip_or_name) if isinstance(chip_or_name, str) else chip_or_name
    placeholders = [te.placeholder(array.shape, array.dtype.name, name) for name, array in inputs.items()]
    result = define(*placeholders)
    results = list(result) if isinstance(result, list | tuple) else [result]
    func = result if isinstance(result, tirx.PrimFunc) else te.create_prim_func([*placeholders, *results])
    tiled = template(func, chip, attempt)
    lowered = pipeline.run(pipeline.kernel_passes(), tiled.func, chip, pipeline.Observer())
    code = generate(lowered, chip)
    parameters = [p for p in code.parameters if not p.scratch]
    roles = ["input"] * len(inputs) + ["output"] * len(results)
    # The shapes of the function that was given: a template may cut the same elements into other rows.
    shapes = [tuple(int(extent) for extent in parameter.shape) for parameter in func.params]
    buffers = [
        GraphBuffer(p.name, p.dtype, shape, p.size_bytes, role)
        for p, shape, role in zip(parameters, shapes, roles, strict=True)
    ]
    names = tuple(p.name for p in parameters)
    program = link([PlacedKernel("kernel", code, names)], chip, buffers).program
    simulated = simulate(program, chip, dict(zip(names, inputs.values(), strict=False)), hazards=True)
    assert not simulated.hazards, simulated.hazards[0].render()
    outputs = tuple(simulated.outputs[name] for name in names[len(inputs) :])
    return Result(outputs, tiled.description, simulated.cycles, lowered)


def random(rng: np.random.Generator, dtype: Any, *shape: int) -> Array:
    """Numbers around zero; whole int8 range."""
    if np.dtype(dtype).kind == "i":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def exact(arrays: Sequence[Array]) -> list[Array]:
    """In a type that holds every product and sum of them."""
    return [a.astype(np.int64 if a.dtype.kind in "iu" else np.float64) for a in arrays]
