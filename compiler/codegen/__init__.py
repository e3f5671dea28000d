"""From kernels in instruction form to instructions of the chip, and from kernels to one program."""

from compiler.codegen.kernel import KernelCode, generate
from compiler.codegen.link import Linked, link
from compiler.codegen.lowering import Parameter
from compiler.codegen.memory import MemoryOverflow
from compiler.codegen.residence import GraphBuffer, Place, PlacedKernel, plan

__all__ = [
    "GraphBuffer",
    "KernelCode",
    "Linked",
    "MemoryOverflow",
    "Parameter",
    "Place",
    "PlacedKernel",
    "generate",
    "link",
    "plan",
]
