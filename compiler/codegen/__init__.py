"""From kernels in instruction form to instructions of the chip, and from kernels to one program."""

from compiler.codegen.kernel import KernelCode, generate
from compiler.codegen.link import GraphBuffer, Linked, PlacedKernel, link, plan_ddr
from compiler.codegen.lowering import Parameter
from compiler.codegen.memory import MemoryOverflow

__all__ = [
    "GraphBuffer",
    "KernelCode",
    "Linked",
    "MemoryOverflow",
    "Parameter",
    "PlacedKernel",
    "generate",
    "link",
    "plan_ddr",
]
