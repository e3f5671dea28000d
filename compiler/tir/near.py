"""What a kernel is told of where its parameters will lie: those in LLB, and how much of it is left for the kernel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from compiler.target import Chip

NEAR = "near"  # attribute of a PrimFunc: the indices of parameters that are meant to lie in LLB
ROOM = "llb_room"  # attribute of a PrimFunc: the bytes of LLB that the kernel may take for itself


def placed_near(func: Any, indices: Iterable[int], room_bytes: int) -> Any:
    return func.with_attrs({NEAR: sorted(indices), ROOM: room_bytes})


def placement(func: Any) -> str:
    """What a kernel is told, as text; empty where it is told nothing."""
    if func.attrs is None or ROOM not in func.attrs:
        return ""
    return f" near {[int(index) for index in _attribute(func, NEAR, ())]} room {int(func.attrs[ROOM])}"


def near_parameters(func: Any) -> frozenset[Any]:
    """The parameters that are meant to lie in LLB."""
    return frozenset(func.params[int(index)] for index in _attribute(func, NEAR, ()))


def memory_of_parameter(func: Any, buffer: Any) -> str:
    """Where a tensor from afar lies."""
    return "llb" if buffer in near_parameters(func) else "ddr"


def room_bytes(func: Any, chip: Chip) -> int:
    return int(_attribute(func, ROOM, chip.memory_bytes("llb")))


def _attribute(func: Any, name: str, default: Any) -> Any:
    return func.attrs[name] if func.attrs is not None and name in func.attrs else default
