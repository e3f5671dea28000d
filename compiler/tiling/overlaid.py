"""Convolutions whose windows lie over each other beside the cube.

Windows of neighbouring rows see the same rows of the map, by different rows of the kernel. Where each row of windows
begins with a whole fractal, the matrix of one row of the kernel is that of another, some fractals further down:

    a[ho, wo | c1, kh, kw, c0] = map[ho + kh, wo + kw]     c[ho, wo] += a[ho, wo | kh] * w[kh]
 -> a[h, wo | c1, kw, c0] = map[h, wo + kw]                c[ho, wo] += a[ho + kh, wo] * w[kh]

So all rows of the kernel cost one of them on the way beside the cube, and the rows below it; and of windows, more are
beside it at once. The cube makes some columns behind the last one, which nobody stores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir, s_tir, tirx

from compiler.isa.layout import FRACTAL, ceil_to
from compiler.tiling import cube
from compiler.tiling.convolution_stages import in_wider_buffer, realizes
from compiler.tiling.convolution_tiles import HO, KH, WO
from compiler.tiling.masters import masters_of
from compiler.tiling.places import with_extent
from compiler.tiling.schedule import schedule_of
from compiler.tir.rewriter import loop_with
from compiler.tir.sblocks import block_with
from compiler.tir.structure import structural_map

KERNEL_ROW = KH - 1  # which axis of the windows' matrix: it has no output channels


def overlaid(func: Any, dilation: int) -> Any | None:
    """The function of a convolution that moves by one row, with such windows; None where what the fixpipe makes of its
    columns has no columns.
    """
    sch = schedule_of(func)
    master = masters_of(sch)[0].block
    product, windows = sch.get(master), sch.get(sch.get_producers(master)[0])
    height, kernel_rows = (int(product.iter_vars[axis].dom.extent) for axis in (HO, KH))
    columns = ceil_to(int(product.iter_vars[WO].dom.extent), FRACTAL)
    of_windows = {HO: height + (kernel_rows - 1) * dilation, WO: columns, KERNEL_ROW: 1}
    extents = {product.name_hint: {WO: columns}, windows.name_hint: of_windows}
    if cube.takes_itself_out(sch, master):
        taken = sch.get(sch.get_consumers(master)[0])
        along = [axis for axis, index in enumerate(taken.body.indices) if index.same_as(taken.iter_vars[WO].var)]
        if len(along) != 1:
            return None
        extents[taken.name_hint] = {WO: columns}
        made = taken.writes[0].source
        func = in_wider_buffer(func, made, _extents(made, {along[0]: columns}))
    matrix, sums = windows.writes[0].source, product.writes[0].source
    wider = {matrix: _extents(matrix, of_windows), sums: _extents(sums, {WO: columns})}
    return _Overlaid(product.name_hint, matrix, dilation, extents).of(func, wider)


@dataclass(frozen=True)
class _Overlaid:
    product: str
    matrix: Any
    dilation: int
    extents: Mapping[str, Mapping[int, int]]  # of blocks' axes

    def of(self, func: Any, wider: Mapping[Any, Sequence[int]]) -> Any:
        axes = dict[Any, int]()  # of blocks and of the loops around them
        for realize in realizes(func.body):
            for axis, extent in self.extents.get(realize.block.name_hint, {}).items():
                axes[realize.block.iter_vars[axis].var] = axes[realize.iter_values[axis]] = extent

        def block(node: Any) -> Any:
            cut = block_with(node, iter_vars=[with_extent(axis, axes.get(axis.var)) for axis in node.iter_vars])
            return self._moved(cut) if node.name_hint == self.product else cut

        def loop(node: Any) -> Any:
            extent = axes.get(node.loop_var)
            return node if extent is None else loop_with(node, node.body, extent=tirx.IntImm("int32", extent))

        found = structural_map(func, [(s_tir.SBlock, block), (tirx.For, loop)])
        shaped = {
            buffer: tirx.decl_buffer(shape, buffer.dtype, buffer.name, scope=buffer.scope(), layout=None)
            for buffer, shape in wider.items()
        }
        return structural_map(found, (tirx.Var, lambda var: shaped.get(var, var)))

    def _moved(self, product: Any) -> Any:
        """The product, by what each row of the kernel finds in the matrix."""

        def load(node: Any) -> Any:
            of_matrix = node.source.same_as(self.matrix)
            return tirx.BufferLoad(node.source, self._place(node.indices)) if of_matrix else node

        def region(read: Any) -> Any:
            if not read.source.same_as(self.matrix):
                return read
            place = self._place([part.min for part in read.region])
            return tirx.BufferRegion(read.source, [ir.Range.from_min_extent(index, 1) for index in place])

        body = structural_map(product.body, (ir.TensorLoad, load))
        return block_with(product, body=body, reads=[region(read) for read in product.reads])

    def _place(self, indices: Sequence[Any]) -> list[Any]:
        found = list(indices)
        found[HO], found[KERNEL_ROW] = found[HO] + found[KERNEL_ROW] * self.dilation, tirx.IntImm("int32", 0)
        return found


def _extents(buffer: Any, extents: Mapping[int, int]) -> list[int]:
    return [extents.get(axis, int(extent)) for axis, extent in enumerate(buffer.shape)]
