"""A kernel as a program of its own, so that it can be timed alone."""

from __future__ import annotations

from compiler.codegen.kernel import KernelCode
from compiler.codegen.link import link
from compiler.codegen.residence import GraphBuffer, Place, PlacedKernel, plan, scratch
from compiler.isa.program import Program
from compiler.sim.simulator import simulate
from compiler.target import Chip


def alone(code: KernelCode, chip: Chip) -> Program:
    """Its parameters where it was compiled for, as far as LLB holds them beside its scratch."""
    parameters = [p for p in code.parameters if not p.scratch]
    buffers = [
        GraphBuffer(f"p{index}", p.dtype, p.shape, p.size_bytes, "output" if p.written else "input")
        for index, p in enumerate(parameters)
    ]
    kernels = [PlacedKernel("kernel", code, tuple(b.name for b in buffers))]
    places = plan(kernels, buffers, chip)
    end = max((places[b.name].offset + b.size_bytes for b in scratch(kernels, "llb")), default=0)
    for buffer, parameter in zip(buffers, parameters, strict=True):
        start = -(-end // chip.transfer.ddr_line_bytes) * chip.transfer.ddr_line_bytes
        if parameter.memory == "llb" and start + buffer.size_bytes <= chip.memory_bytes("llb"):
            places[buffer.name], end = Place("llb", start), start + buffer.size_bytes
    return link(kernels, chip, buffers, places=places).program


def simulated_cycles(code: KernelCode, chip: Chip) -> int:
    return simulate(alone(code, chip), chip).cycles
