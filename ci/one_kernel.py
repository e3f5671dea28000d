"""How long a kernel takes alone."""

from __future__ import annotations

from compiler.codegen.alone import alone
from compiler.codegen.kernel import KernelCode
from compiler.sim.simulator import simulate
from compiler.target import Chip


def simulated_cycles(code: KernelCode, chip: Chip) -> int:
    return simulate(alone(code, chip), chip).cycles
