"""Nests with their loops cut anew, so that more of them can become dimensions of an instruction."""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from compiler.emission.dims import EXTENT_LIMIT
from compiler.emission.nest import Nest, make_nest, tirx_substitute
from compiler.tir.structure import structural_map

# A loop too long for a dimension is cut into pieces of this many iterations: whole blocks of every type.
_PIECE = 32768


def split_long_loops(nest: Nest) -> Nest:
    """The nest with every loop that is longer than a dimension may be in two: pieces, and what is in a piece."""
    long = [loop for loop in nest.loops if loop.bound > EXTENT_LIMIT]
    for loop in long:
        piece = _piece(loop.extent)
        nest = split(nest, loop.var, piece)
    return nest


def _piece(extent: Any) -> int:
    """Iterations of a piece: a divisor of the extent if a large one exists, so that no piece is shorter."""
    if isinstance(extent, int):
        for count in range(-(-extent // EXTENT_LIMIT), 64):
            if extent % count == 0:
                return extent // count
    return _PIECE


def _is_whole(nest: Nest, extent: Any, factor: int) -> bool:
    if isinstance(extent, int):
        return extent % factor == 0
    return bool(nest.surroundings.analyzer.can_prove_equal(tirx.floormod(extent, factor), 0))


def split(nest: Nest, var: Any, factor: int) -> Nest:
    """The nest with a loop in two: the inner one of at most ``factor`` iterations."""
    loops: list[tuple[Any, Any]] = []
    store = nest.store
    for loop in nest.loops:
        if not loop.var.same_as(var):
            loops.append((loop.var, loop.extent))
            continue
        outer, inner = ir.Var(f"{var.name}_o", var.ty), ir.Var(f"{var.name}_i", var.ty)
        extent = tirx.IntImm("int32", loop.extent) if isinstance(loop.extent, int) else loop.extent
        whole = _is_whole(nest, loop.extent, factor)
        pieces = tirx.floordiv(extent + (factor - 1), tirx.IntImm("int32", factor))
        left = tirx.IntImm("int32", factor) if whole else tirx.min(factor, extent - outer * factor)
        loops += [(outer, pieces), (inner, left)]
        store = tirx_substitute(store, {var: outer * factor + inner})
    made = make_nest(loops, store, nest.surroundings, nest.pragmas)
    return Nest(made.loops, _simplified(made.store, nest), nest.surroundings, nest.pragmas)


def _simplified(store: Any, nest: Nest) -> Any:
    simplify = nest.surroundings.simplify

    def load(access: Any) -> Any:
        return tirx.BufferLoad(access.source, [simplify(index) for index in access.indices])

    value = structural_map(store.value, (ir.TensorLoad, load))
    return tirx.BufferStore(store.buffer, value, [simplify(index) for index in store.indices])
