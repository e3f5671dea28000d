"""Buffers of TE, each under a name of its own.

TE tells blocks of one name apart, but not what they make; everybody behind it knows buffers by their names.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from compiler.tir.structure import structural_map


def with_own_names(func: Any) -> Any:
    """The function with other names for buffers that are called as one before them: inputs, results, the rest."""
    taken, renamed = set[str](), dict[Any, Any]()
    for buffer in (*func.params, *func.body.block.alloc_buffers):
        name = _free(buffer.name, taken)
        taken.add(name)
        if name != buffer.name:
            renamed[buffer] = tirx.decl_buffer(list(buffer.shape), str(buffer.dtype), name, layout=None)
    return structural_map(func, (tirx.Var, lambda var: renamed.get(var, var))) if renamed else func


def _free(name: str, taken: set[str]) -> str:
    number, found = 0, name
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    return found
