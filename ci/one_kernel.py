"""A kernel as a program of its own, so that it can be timed alone."""

from __future__ import annotations

from compiler.codegen.kernel import KernelCode
from compiler.codegen.link import GraphBuffer, PlacedKernel, link
from compiler.isa.program import Program
from compiler.sim.simulator import simulate
from compiler.target import Chip


def alone(code: KernelCode, chip: Chip) -> Program:
    parameters = [p for p in code.parameters if not p.scratch]
    buffers = [
        GraphBuffer(f"p{index}", p.dtype, p.shape, p.size_bytes, "output" if p.written else "input")
        for index, p in enumerate(parameters)
    ]
    return link([PlacedKernel("kernel", code, tuple(b.name for b in buffers))], chip, buffers).program


def simulated_cycles(code: KernelCode, chip: Chip) -> int:
    return simulate(alone(code, chip), chip).cycles
