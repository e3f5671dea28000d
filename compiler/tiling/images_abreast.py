"""Images abreast: one product has the places of several, and no plane is filled up to whole fractals by itself.

    windows[n, g, 0, ho, wo, ..] = map[n, c, ho, ..]     # a product for each image, with as many rows as places
 -> windows[0, g, n, ho, wo, ..] = map[n, c, ho, ..]     # images where depth was counted

Tensors that only the kernel sees, in the product's order of axes, count images where they counted the depth, of which
there is none; parameters stay as they are. A tile takes as many images as it likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir, s_tir, tirx
from tvm.sym import detect_linear_equation

from compiler.emission.cube.windows import end_with_rows
from compiler.isa.layout import FRACTAL
from compiler.tiling.convolution_tiles import DO, HO, KD, KH, KW, WO, N
from compiler.tiling.places import WINDOWS
from compiler.tir.rewriter import loop_with, uses
from compiler.tir.sblocks import block_with
from compiler.tir.structure import structural_map, structural_walk

MOST_PLACES = 8 * FRACTAL  # of an image: to larger ones it adds little to be filled up
KERNEL = (KD - 1, KH - 1)  # axes of the windows' matrix, which has no output channels


def images_abreast(func: Any) -> Any:
    """A convolution whose products may be of several images; the same where that gains nothing or cannot be.

    It can where each row of windows sees one row of the map, and the next one the next: none of another image. Rows are
    whole ones: what is left out of them lies in L1 all the same.
    """
    windows = next((_block(nest) for nest in _nests(func) if _block(nest).name_hint == WINDOWS), None)
    if windows is None:
        return func
    extents = [int(axis.dom.extent) for axis in windows.iter_vars]
    places = extents[HO] * extents[WO]
    if extents[N] == 1 or extents[DO] > 1 or places % FRACTAL == 0 or places > MOST_PLACES:
        return func
    of_one_row = all(extents[axis] == 1 for axis in KERNEL)
    return _swapped(func, extents) if of_one_row and _sees_rows_in_order(windows, extents) else func


def _sees_rows_in_order(windows: Any, extents: Sequence[int]) -> bool:
    """Whether row by row the map is seen, all columns of it, and nothing that is no row of it."""
    conditions, loads = list[Any](), list[Any]()
    structural_walk(windows.body.value, (ir.Call, lambda call: conditions.extend(call.args[:1])))
    structural_walk(windows.body.value, (ir.TensorLoad, loads.append))
    row, column, element = (windows.iter_vars[axis].var for axis in (HO, WO, KW - 1))
    if not loads or any(uses(condition, [row]) for condition in conditions):
        return False
    for axis, index in enumerate(loads[0].indices):
        if uses(index, [row]) and int(detect_linear_equation(index, [row])[0]) != 1:
            return False
        if uses(index, [column, element]):
            stride, dilation, first = (int(each) for each in detect_linear_equation(index, [column, element]))
            width = int(loads[0].source.shape[axis])
            if not end_with_rows(first, extents[WO], stride or 1, extents[KW - 1] - 1, dilation, width):
                return False
    return True


def _nests(func: Any) -> list[Any]:
    body = func.body.block.body
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]


def _block(nest: Any) -> Any:
    while isinstance(nest, tirx.For):
        nest = nest.body
    return nest.block


def _swapped(func: Any, extents: Sequence[int]) -> Any:
    """The function whose blocks count images by the axis of depth, and the other way round."""
    root, places = func.body.block, list(extents[: WO + 1])
    tensors = {
        tensor: tirx.decl_buffer(_swap(tensor.shape), tensor.dtype, tensor.name, scope=tensor.scope(), layout=None)
        for tensor in root.alloc_buffers
        if [int(extent) for extent in tensor.shape[: WO + 1]] == places
    }

    def load(node: Any) -> Any:
        return tirx.BufferLoad(tensors[node.source], _swap(node.indices)) if node.source in tensors else node

    def store(node: Any) -> Any:
        there = tensors.get(node.buffer)
        return node if there is None else tirx.BufferStore(there, node.value, _swap(node.indices))

    def region(node: Any) -> Any:
        return tirx.BufferRegion(tensors[node.source], _swap(node.region)) if node.source in tensors else node

    def rewritten(nest: Any) -> Any:
        mapped = structural_map(nest, [(ir.TensorLoad, load), (tirx.BufferStore, store), (ir.TensorRegion, region)])
        return _with_loops_swapped(mapped) if _block(nest).writes[0].source in tensors else mapped

    made = block_with(
        root,
        body=tirx.SeqStmt([rewritten(nest) for nest in _nests(func)]),
        alloc_buffers=[tensors.get(tensor, tensor) for tensor in root.alloc_buffers],
    )
    return func.with_body(s_tir.SBlockRealize([], True, made))


def _with_loops_swapped(nest: Any) -> Any:
    loops = []
    while isinstance(nest, tirx.For):
        loops.append(nest)
        nest = nest.body
    block = block_with(nest.block, iter_vars=_swap(nest.block.iter_vars))
    body = s_tir.SBlockRealize(_swap(nest.iter_values), nest.predicate, block)
    for loop in reversed(_swap(loops)):
        body = loop_with(loop, body)
    return body


def _swap(axes: Sequence[Any]) -> list[Any]:
    found = list(axes)
    found[N], found[DO] = found[DO], found[N]
    return found
