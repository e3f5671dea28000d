"""The masters of a kernel: the blocks that multiply on the cube, and the roles of their loops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from compiler.tiling.schedule import schedule_of
from compiler.tir.products import is_product, operands_of, roles_of, variables_in


@dataclass
class Master:
    """The product of a kernel: its block, and the roles of its loops in the order of the block's axes."""

    block: Any
    roles: tuple[str, ...]
    extents: tuple[int, ...]

    def axes(self, role: str) -> list[int]:
        return [i for i, r in enumerate(self.roles) if r == role]

    def batch_axes(self) -> list[int]:
        return [i for i, r in enumerate(self.roles) if r.startswith("batch")]


def masters_of(sch: Any) -> list[Master]:
    """The products of a kernel, in program order."""
    return [_master(sch, b) for b in sch.get_child_blocks(sch.get_sblock("root")) if is_product(sch.get(b))]


def has_master(func: Any, schedule: str) -> bool:
    """Whether a kernel of class ``schedule`` has what its template starts from; a convolution must be marked as one."""
    sch = schedule_of(func)
    blocks = sch.get_child_blocks(sch.get_sblock("root"))
    if schedule == "convolution":
        return any(_is_convolution(sch, block) for block in blocks)
    return any(is_product(sch.get(block)) for block in blocks)


def _is_convolution(sch: Any, handle: Any) -> bool:
    """Whether a block says that it is a convolution, and multiplies the matrix of windows that a stage makes."""
    block = sch.get(handle)
    if block.annotations.get("tw.role") != "convolution" or not is_product(block):
        return False
    made = operands_of(block)[0].source
    return any(sch.get(maker).writes[0].source.same_as(made) for maker in sch.get_producers(handle))


def _master(sch: Any, handle: Any) -> Master:
    block = sch.get(handle)
    return Master(handle, tuple(roles_of(block)), tuple(int(axis.dom.extent) for axis in block.iter_vars))


def last_variable(load: Any) -> Any:
    """The axis along which a load's buffer is contiguous: that of its last index that has one."""
    found = variables_in(load.indices)
    return found[-1] if found else None
