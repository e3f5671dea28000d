"""How long kernels and programs take that are to be compared, to the cycle: the simulator tells, if it soon does.

The static cycle model narrows a search down. What it leaves is as good as it can tell, and often some percent apart.
"""

from __future__ import annotations

from compiler.codegen.kernel import KernelCode
from compiler.codegen.link import link
from compiler.codegen.residence import GraphBuffer, Place, PlacedKernel, plan, scratch
from compiler.errors import LimitError
from compiler.isa.program import Program
from compiler.sim.expand import UnknownLoad
from compiler.sim.simulator import prepare
from compiler.target import Chip

TIMING = "timed-rivals"  # what ablations call it that comparisons are left to the simulator
# Instructions of all cores, scalar ones included: longer programs take the simulator more than half a second.
MOST_STEPS = 8_000_000


def cycles_of(program: Program, chip: Chip, most_steps: int | None = None) -> int | None:
    """None where data decides, or where it takes long to know."""
    try:
        return prepare(program, chip, max_steps=most_steps or MOST_STEPS, cores_alike=True).cycles
    except (UnknownLoad, LimitError):
        return None


def kernel_cycles(code: KernelCode, chip: Chip, most_steps: int | None = None) -> int | None:
    """Of a kernel that runs alone; where the chip is one of several clusters that do alike, on all of them."""
    return cycles_of(alone(code, chip), chip.all_alike(), most_steps)


def alone(code: KernelCode, chip: Chip) -> Program:
    """A kernel as a program. Its parameters are where it was compiled for, as far as LLB holds them beside its
    scratch. Clusters that do alike all work on the same, which takes as long as if each had its part.
    """
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
    return link(kernels, chip, buffers, places=places, clusters=chip.alike if chip.alike > 1 else 0).program
