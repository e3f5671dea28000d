"""The way of a kernel in tests: allocate, synchronise, generate, link, then simulate with the hazard checker on."""

from __future__ import annotations

from collections.abc import Mapping
from operator import is_not
from typing import Any

import numpy as np

from compiler.codegen import GraphBuffer, Linked, PlacedKernel, generate, link
from compiler.isa.program import Program
from compiler.isa.verifier import verify
from compiler.sim.interpreter import interpret
from compiler.sim.simulator import Run, simulate
from compiler.target import Chip
from passes.tir.allocate_memory import AllocateMemory
from passes.tir.insert_sync import InsertSync

Use = tuple[Any, tuple[str, ...]]  # a kernel in instruction form and the buffers it is used on


def place(uses: list[Use], chip: Chip, roles: Mapping[str, str]) -> tuple[list[PlacedKernel], list[GraphBuffer]]:
    """Kernels with code and the buffers they are used on; those without a role are intermediates."""
    placed: list[PlacedKernel] = []
    buffers: dict[str, GraphBuffer] = {}
    for number, (func, arguments) in enumerate(uses):
        code = generate(InsertSync().run(AllocateMemory().run(func, chip), chip), chip, f"kernel{number}")
        placed.append(PlacedKernel(f"kernel{number}", code, arguments))
        for parameter, name in zip([p for p in code.parameters if not p.scratch], arguments, strict=True):
            role = roles.get(name, "intermediate")
            buffers[name] = GraphBuffer(name, parameter.dtype, parameter.shape, parameter.size_bytes, role)
    return placed, list(buffers.values())


def linked(uses: list[Use], chip: Chip, roles: Mapping[str, str]) -> Linked:
    placed, buffers = place(uses, chip, roles)
    result = link(placed, chip, buffers)
    verify(result.program, chip)
    return result


_interpreted: tuple[Any, list[np.ndarray], dict[str, np.ndarray]] | None = None  # most are run several times in a row


def _in_program_order(program: Program, chip: Chip, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    global _interpreted
    given = list(inputs.values())
    if _interpreted is None or _interpreted[0] is not program or any(map(is_not, _interpreted[1], given)):
        _interpreted = program, given, interpret(program, chip, inputs).outputs
    return _interpreted[2]


def run(program: Linked, chip: Chip, inputs: Mapping[str, np.ndarray], seed: int = 0) -> Run:
    """Free of hazards, and the same as in program order."""
    result = simulate(program.program, chip, inputs, hazards=True, seed=seed)
    assert not result.hazards, "\n".join(problem.render() for problem in result.hazards)
    for name, expected in _in_program_order(program.program, chip, inputs).items():
        np.testing.assert_array_equal(result.outputs[name], expected)
    return result
