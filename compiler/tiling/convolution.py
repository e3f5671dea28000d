"""The schedule template of convolutions: tiles of output rows and channels over the cores, the kernel in steps.

The product's axes are [n, group, do, ho, wo, o | kd, c1, kh, kw, c0].

    for core: for trip: { c = 0
                          for chunk: { l1 = map; w1 = weights                 # or further out, where they stay
                                       for step: { w0 = w1
                                                   for product: { a0 = windows of l1; c[product] += a0 * w0 } } }
                          for product: ub[product] = c[product]
                          slaves }

Consecutive cores are of one cluster, which reads what its cores share once. So cores are counted either with the output
channels last, and a cluster shares its rows of the map, or with the rows last, and it shares its weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tvm import ir
from tvm.sym import detect_linear_equation

from compiler.emission.cube.feature_maps import Axes, map_mark
from compiler.emission.cube.weights import WEIGHTS
from compiler.emission.cube.windows import Windows, end_with_rows
from compiler.isa.dtypes import DTYPES
from compiler.isa.layout import FRACTAL
from compiler.target import Chip
from compiler.tiling import cube
from compiler.tiling.convolution_stages import channels_last, merged
from compiler.tiling.convolution_tiles import (
    C0,
    C1,
    DO,
    GROUP,
    HO,
    KD,
    KH,
    KW,
    OUT,
    WO,
    N,
    Problem,
    Tile,
    output_sizes,
    overlaid_tiles,
    overlaying_pays,
    tiles_of,
)
from compiler.tiling.convolution_work import OUTPUTS_LAST, PLACES_LAST, weights_come_first, work_of, works_of
from compiler.tiling.cube import Placed
from compiler.tiling.epilogue import epilogue_of
from compiler.tiling.images_abreast import images_abreast
from compiler.tiling.masters import Master, masters_of
from compiler.tiling.overlaid import overlaid
from compiler.tiling.places import in_lines
from compiler.tiling.scaled_sums import bring_scales, scale_bytes, scaled_on_the_way
from compiler.tiling.schedule import schedule_of
from compiler.tiling.search import Work, cheapest_first
from compiler.tiling.started_sums import BIAS, begins_with_table, bring_bias, started_with_bias
from compiler.tiling.template import NoFeasibleTile, Tiled, name_of
from compiler.tir.near import awaited_parameters, common_parameters, memory_of_parameter, room_bytes
from compiler.tir.products import operands_of
from compiler.tir.structure import structural_walk

# Makes the windows' matrix beside the cube in one loop, of what comes to L1 in another: the block that brings it there.
Bring = Callable[[Any, Any, Windows, Any, Any], Any]
WINDOW_AXES = (N, GROUP, DO, HO, WO, KD, C1, KH, KW, C0)  # of the windows' matrix
MAP_FIRST, WEIGHTS_FIRST = (GROUP, N, DO, HO, WO, OUT), (GROUP, OUT, N, DO, HO, WO)  # orders of trips


@dataclass(frozen=True)
class ConvolutionSpace:
    """All tiles of a kernel that is led by a convolution."""

    func: Any
    name: str
    problem: Problem
    chip: Chip

    def tiles(self) -> list[Tile]:
        """Where none leaves room for a second buffer of each kind, those that fit as they are."""
        plain = list(tiles_of(self.problem, self.chip, 2)) or list(tiles_of(self.problem, self.chip, 1))
        sizes = [size for size in output_sizes(self.problem) if overlaying_pays(self.problem, size, self.chip)]
        others = list(overlaid_tiles(self.problem, self.chip, sizes))
        return [*plain, *others] if others and self._overlaid is not None else plain

    @cached_property
    def _overlaid(self) -> Any | None:
        return overlaid(self.func, self.problem.windows.dilations[0])

    def work(self, tile: Tile) -> Work:
        return work_of(tile, self.problem, self.chip)

    def work_of_all(self, tiles: Sequence[Tile]) -> Work:
        """Of all of them at once: there may be thousands."""
        return works_of(tiles, self.problem, self.chip)

    def taken(self, tile: Tile) -> dict[str, int]:
        return tile.bytes_of(self.problem)

    def apply(self, tile: Tile) -> Tiled:
        sch = schedule_of(self._overlaid if tile.overlaid else self.func)
        master = masters_of(sch)[0]
        with cube.schedulable(self.name):
            apply(sch, master, sch.get_producers(master.block)[0], self.problem, tile, self.chip)
        return Tiled(sch.mod["main"], describe(self.problem, tile))


def space(func: Any, chip: Chip) -> ConvolutionSpace:
    """The ways to cut the convolution of a kernel into tiles, its slaves following it."""
    func = scaled_on_the_way(started_with_bias(merged(images_abreast(in_lines(func, HO, chip))), chip), chip)
    sch = schedule_of(func)
    master = masters_of(sch)[0]
    problem = problem_of(sch, master, sch.get_producers(master.block)[0], chip)
    return ConvolutionSpace(func, name_of(func, "convolution"), problem, chip)


def schedule(func: Any, chip: Chip, attempt: int) -> Tiled:
    """Cut by the tile that is the cheapest, or the cheapest of those that take less."""
    all_tiles = space(func, chip)
    ranked = cheapest_first(all_tiles, all_tiles.tiles(), chip)
    tile = cube.choose(ranked, all_tiles.problem, attempt)
    if tile is None:
        raise NoFeasibleTile(all_tiles.name, f"{attempt} tiles of a convolution")
    return all_tiles.apply(tile)


# ---- the problem -------------------------------------------------------------------------------------------------


def problem_of(sch: Any, master: Master, matrix: Any, chip: Chip, *, joined: bool = False) -> Problem:
    block = sch.get(matrix)
    loads: list[Any] = []
    structural_walk(block.body.value, (ir.TensorLoad, loads.append))
    if not loads:  # every window lies in the padding
        windows, shape, channels = Windows(Axes(1, None, 2), master.extents[KW], (1, 1), (1, 1), 0, True), (1, 1), 1
    else:
        windows = _windows(block, loads[0], master.extents)
        axes, extents = windows.axes, [int(extent) for extent in loads[0].source.shape]
        shape = (1 if axes.row is None else extents[axes.row], extents[axes.column])
        channels = extents[axes.channel] // master.extents[GROUP]
    behind = cube.followers(sch, master.block)
    last = sch.get(behind[-1] if behind else master.block)
    func = sch.mod["main"]
    places = {"weights": [operands_of(sch.get(master.block))[1].source]}
    places |= {"map": [load.source for load in loads], "result": [last.writes[0].source]}
    with_bias, common = len(sch.get(master.block).reads) > BIAS, common_parameters(func, chip)
    return Problem(
        extents=master.extents,
        windows=windows,
        map_shape=shape,
        channels=channels,
        dtype=cube.isa_dtype(block.body.buffer),
        slave_bytes=cube.slave_bytes(sch, master.block, chip, through_ub=True),
        epilogue=epilogue_of(sch, master, joined=joined),
        result_bytes=DTYPES[cube.isa_dtype(last.writes[0].source)].itemsize,
        bias_bytes=4 if with_bias else 0,
        scale_bytes=scale_bytes(sch, master.block),
        bias_blocks=1 if with_bias and not begins_with_table(chip) else 0,
        llb_bytes=room_bytes(func, chip),
        near=frozenset(
            name
            for name, buffers in places.items()
            if buffers and all(memory_of_parameter(func, buffer) == "llb" for buffer in buffers)
        ),
        common=frozenset(name for name, buffers in places.items() if buffers and common.issuperset(buffers)),
        awaited=bool(loads) and awaited_parameters(func).issuperset(places["map"]),
    )


def _windows(block: Any, load: Any, extents: tuple[int, ...]) -> Windows:
    """Axes, strides, dilations and padding, as the indices of the map show them."""
    variables = [axis.var for axis in block.iter_vars]
    position = {axis: WINDOW_AXES.index(axis) for axis in WINDOW_AXES}
    channel = row = column = None
    strides, dilations, left, image_rows = [1, 1], [1, 1], 0, 0
    for axis, index in enumerate(load.indices):
        linear = list(detect_linear_equation(index, variables)) or [*(0 for _ in variables), index]
        *factors, rest = (int(factor) for factor in linear)
        if factors[position[C0]]:
            channel = axis
        if axis == 0 and factors[position[DO]]:
            image_rows = extents[HO]
        for which, (output, kernel) in enumerate(((HO, KH), (WO, KW))):
            if factors[position[output]] or factors[position[kernel]]:
                row, column = (axis, column) if which == 0 else (row, axis)
                strides[which] = factors[position[output]] or 1
                dilations[which] = factors[position[kernel]] or 1
                left = -rest if which == 1 else left
    if channel is None or column is None:
        raise TypeError("a convolution's map has channels and columns")
    # A negative padding leaves the first columns out, or the last ones: what is loaded are no whole rows.
    width = int(load.source.shape[column])
    width *= end_with_rows(-left, extents[WO], strides[1], extents[KW] - 1, dilations[1], width)
    axes = Axes(channel, row, column, width, image_rows)
    return Windows(axes, extents[KW], (strides[0], strides[1]), (dilations[0], dilations[1]), max(left, 0), True)


def describe(problem: Problem, tile: Tile) -> str:
    extents = problem.extents
    depth = 1 if problem.windows.axes.image_rows else extents[DO]
    image = f"{problem.images}x{extents[GROUP] * extents[OUT]}x{depth}x{extents[HO]}x{extents[WO]}"
    images, several = tile.images * tile.abreast, tile.stacked > 1 or min(tile.images, tile.abreast) > 1
    held = " and ".join(sorted(tile.held - {"rows"}))
    return (
        f"{image} in tiles of "
        + (f"{images} images, " if images > 1 else "")
        + f"{tile.rows * tile.stacked}x{tile.columns} and {tile.outputs} channels, "
        + (f"{tile.products} products each, " if several else "")
        + f"steps of {'x'.join(map(str, tile.step))} of {extents[C1]}x{extents[KH]}x{extents[KW]} blocks"
        + (", rows of the kernel overlaid" if tile.overlaid else "")
        + (f", {held} held in L1" if held else "")
    )


# ---- the schedule ------------------------------------------------------------------------------------------------


def apply(sch: Any, master: Master, matrix: Any, problem: Problem, tile: Tile, chip: Chip) -> Placed:
    result = sch.get(sch.get_output_blocks("root")[0]).writes[0].source
    placed, feature_map, at_map, axes = place(sch, master, matrix, problem, tile, chip, order_of(tile))
    if feature_map is not None:
        apart = tile.images > 1 and tile.abreast == 1
        of_image = cube.loops_below(sch, feature_map, at_map)[0] if apart else at_map
        cube.mark(sch, feature_map, of_image, map_mark(axes))
    channels_last(sch, result, columns=tile.made_columns)
    cube.start_sum(sch, master.block, placed)
    return placed


def order_of(tile: Tile) -> tuple[int, ...]:
    """In which a core's trips go, the outermost first."""
    return WEIGHTS_FIRST if tile.held == {"weights"} else MAP_FIRST


def place(
    sch: Any,
    master: Master,
    matrix: Any,
    problem: Problem,
    tile: Tile,
    chip: Chip,
    order: Sequence[int],
    bring: Bring | None = None,
) -> tuple[Placed, Any | None, Any, Axes]:
    """Cut the product and put its operands and stages at their loops; the loops, the feature map's block in L1, if
    there is one, the loop in which that comes, and its axes. How windows come beside the cube, ``bring`` may say.
    """
    taken, slaves = cube.keep_result(sch, master.block)
    placed, stack = _cut(sch, master, problem, tile, order)
    windows = windows_of(problem, tile)
    once = tile.steps(problem) == 1
    at_map = placed.trips[order.index(DO if "rows" in tile.held else WO)] if "map" in tile.held else placed.chunk
    near_map = placed.trips[order.index(OUT) - 1] if once and "map" in tile.held and tile.products == 1 else stack
    feature_map = (bring or bring_windows)(sch, matrix, windows, near_map, at_map)
    at_weights, near_weights = placed.chunk, placed.step
    if "weights" in tile.held:
        at_weights = placed.core if "map" in tile.held else placed.trips[order.index(OUT)]
    if once and tile.held == {"weights"}:
        near_weights = at_weights
    elif weights_come_first(tile, problem, chip):
        at_weights = near_weights = placed.core
    cube.bring_operand(sch, master.block, 1, cube.L0B, at_weights, near_weights, WEIGHTS)
    cube.place_slaves(sch, taken, slaves, placed, chip, tile.leaving if tile.leaving < tile.outputs else None, True)
    if problem.bias_bytes:
        near = placed.core if tile.bias_stays(problem, chip) else placed.trips[order.index(OUT)]
        # What comes beside the cube begins with a block of L1.
        far = placed.core if problem.extents[GROUP] == 1 or problem.extents[OUT] % FRACTAL == 0 else near
        bring_bias(sch, master.block, far, near, chip)
    if problem.scale_bytes:
        columns = tile.trips[GROUP] * tile.trips[OUT] * tile.outputs
        stays = columns * problem.scale_bytes <= chip.memory.fb_bytes
        bring_scales(sch, taken, placed.core, placed.core if stays else placed.trips[order.index(OUT)])
    return placed, feature_map, at_map, windows.axes


def windows_of(problem: Problem, tile: Tile) -> Windows:
    """How the windows of a tile are told of: in a tile of whole rows, or of parts of one."""
    whole_rows = tile.columns == problem.extents[WO]
    # How wide a part of a row is in L1 differs at the edges; its rows have to lie where they are found all the same.
    axes = problem.windows.axes if whole_rows else replace(problem.windows.axes, width=0)
    axes = axes if tile.abreast > 1 else replace(axes, image_rows=0)
    return replace(problem.windows, axes=axes, whole_rows=whole_rows)


def bring_windows(sch: Any, matrix: Any, windows: Windows, near: Any, far: Any) -> Any | None:
    """Make the windows' matrix beside the cube, of what comes to L1 in the loop ``far``: the block that brings it."""
    sch.set_scope(matrix, 0, cube.L0A)
    sch.compute_at(matrix, near, preserve_unit_loops=True)
    cube.mark(sch, matrix, near, str(windows))
    if not sch.get(matrix).reads:
        return None
    feature_map = sch.cache_read(matrix, 0, cube.L1)
    sch.compute_at(feature_map, far, preserve_unit_loops=True)
    return feature_map


def _cut(sch: Any, master: Master, problem: Problem, tile: Tile, order: Sequence[int]) -> tuple[Placed, Any]:
    """Cores, trips in an order, the products of a tile, chunks, steps, and what one instruction does."""
    loops = sch.get_loops(master.block)
    sizes = {HO: (tile.stacked, tile.rows), WO: (tile.made_columns,), OUT: (tile.outputs,)}
    along, size = HO, tile.rows  # several products are parts of this axis
    if tile.images * tile.abreast > 1:
        along, size = DO if problem.windows.axes.image_rows else N, tile.abreast
        sizes |= {along: (tile.images, tile.abreast), HO: (tile.rows,)}
    kept = [sch.split(loops[axis], [None, tile.trips[axis], *sizes.get(axis, (1,))]) for axis in range(KD)]
    reduced = cut_k(sch, loops[KD:], problem, tile)
    cores = [kept[axis][0] for axis in (PLACES_LAST if tile.places_last else OUTPUTS_LAST)]
    trips = [kept[axis][1] for axis in order]
    inner = [parts[-1] for parts in (*kept, *reduced)]
    apart = [inner.pop(KH)] if tile.overlaid else []  # rows of the kernel are products of their own
    stack = kept[along][2]
    steps = [parts[1] for parts in reduced]
    sch.reorder(*cores, *trips, *(parts[0] for parts in reduced), *steps, stack, *apart, *inner)
    core = sch.fuse(*cores)
    sch.bind(core, "blockIdx.x")
    first, last = reduced[0], reduced[-1]
    placed = Placed(core, trips, first[0], last[0], last[1], inner, rows_of_product=(along, size))
    return placed, stack


def cut_k(sch: Any, loops: Sequence[Any], problem: Problem, tile: Tile) -> list[Any]:
    """Each of the loops over k in chunks, steps, and what one instruction does."""
    steps = {
        C1: (tile.chunk[0], tile.step[0]),
        KH: (tile.chunk[1], tile.step[1]),
        KW: (problem.kernel[1], tile.step[2]),
        C0: (problem.extents[C0],) * 2,
    }
    parts = []
    for axis, loop in zip(range(KD, C0 + 1), loops, strict=True):
        chunk, step = steps.get(axis, (1, 1))
        parts.append(sch.split(loop, [None, chunk // step, step]))
    return parts
