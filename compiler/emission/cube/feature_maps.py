"""Feature maps on their way to L1: from DDR by ``ldc1``, from UB, where a kernel makes them, by ``stnz``.

L1 holds ``[c1][h][w][c0]``, once for each image that a buffer has room for, or ``[c1][image][h][w][c0]`` of images that
are abreast: their places are rows of one product.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

from tvm import tirx

from compiler.emission.calls import address, address_at, around, guarded, instruction, number, sequence
from compiler.emission.candidates import Candidate, Found, Rejection, recogniser
from compiler.emission.costs import instruction_cycles
from compiler.emission.cube.places import (
    FRACTAL_ROW_BYTES,
    bound,
    constant,
    even_step,
    extent,
    index_of,
    is_zero,
    mark_of,
    product_of,
    rounded_up,
    single_loop,
    start_of,
)
from compiler.emission.nest import Access, Loop, Nest
from compiler.isa.dtypes import CUBE_TYPES, DTYPES
from compiler.isa.layout import ceil_to
from compiler.isa.model import dense_strides
from compiler.target import Chip


@dataclass(frozen=True)
class Axes:
    """Which axes of a feature map are channels, rows and columns; ``row`` is None where a map has one row.

    ``width`` is the number of columns of whole rows, which are loaded as they are, those that no window touches too:
    rows that lie one after another in DDR do so in L1, and all of them are one run. It is 0 where parts of rows are
    loaded, one by one: these lie as far apart in L1 as the buffer is wide.

    ``image_rows``: of the next image, abreast of one, so many rows further begin; 0 where each has blocks of its own.
    """

    channel: int
    row: int | None
    column: int
    width: int = 0
    image_rows: int = 0

    def numbers(self) -> tuple[int, ...]:
        return self.channel, -1 if self.row is None else self.row, self.column, self.width, self.image_rows

    @staticmethod
    def of(channel: int, row: int, column: int, width: int, image_rows: int) -> Axes:
        return Axes(channel, None if row < 0 else row, column, width, image_rows)

    @property
    def image(self) -> int | None:
        """The first axis counts images, if it is none of the others."""
        return None if 0 in (self.channel, self.row, self.column) else 0

    def pitch(self, shape: Sequence[int]) -> int:
        """Columns from one row to the next in a buffer of L1."""
        return self.width or shape[self.column]

    def c1_stride(self, shape: Sequence[int], dtype: str) -> int:
        """Elements between channel blocks in L1: as many as a block takes at most, wherever its run begins and ends."""
        k0 = DTYPES[dtype].fractal_k
        rows = 1 if self.row is None else shape[self.row]
        columns = rows * self.pitch(shape)
        if self.image_rows and self.image is not None:
            return shape[self.image] * self.image_rows * self.pitch(shape) * k0
        return (ceil_to(columns, k0) + k0 if self.width % k0 else columns) * k0


def map_mark(axes: Axes) -> str:
    return "map " + " ".join(map(str, axes.numbers()))


def made_mark(axes: Axes) -> str:
    """Of a feature map that a kernel makes, piece by piece."""
    return "made " + " ".join(map(str, axes.numbers()))


def map_axes(mark: str, names: Sequence[str] = ("map", "made")) -> Axes | None:
    name, _, numbers = mark.partition(" ")
    if name not in names:
        return None
    return Axes.of(*map(int, numbers.split()))


def map_bytes(shape: tuple[int, ...], axes: Axes, dtype: str) -> int:
    """What a feature map takes in L1, with all of its images."""
    images = 1 if axes.image is None or axes.image_rows else shape[axes.image]
    return images * image_bytes(shape, axes, dtype)


def image_bytes(shape: Sequence[int], axes: Axes, dtype: str) -> int:
    """Of one image, or of all that are abreast."""
    blocks = -(-shape[axes.channel] // DTYPES[dtype].fractal_k)
    return blocks * axes.c1_stride(shape, dtype) * DTYPES[dtype].itemsize


@recogniser
def map_to_l1(nest: Nest, chip: Chip) -> Iterator[Found]:
    """``l1[c, h, w] = far[...]``."""
    axes = map_axes(mark_of(nest), ("map",)) if nest.target.memory == "l1" and nest.value.op == "load" else None
    if axes is None:
        return
    target, source = nest.target, nest.value.value
    if target.dtype != source.dtype or target.dtype not in CUBE_TYPES or source.memory != "ddr":
        yield Rejection("ldc1", f"{source.dtype} in {source.memory} and {target.dtype} in L1")
        return
    indices = [None if axis is None else index_of(target, axis) for axis in (axes.channel, axes.row, axes.column)]
    loops, images = [single_loop(index) for index in indices], image_loop(target, axes)
    if {loop for loop in (images, *loops) if loop} != set(nest.loops) or not source.is_affine:
        yield Rejection("ldc1", "a loop moves along neither channels, rows nor columns")
        return
    strides = [0 if loop is None else source.coefficient(loop) or 0 for loop in loops]
    stride = axes.c1_stride(target.shape, target.dtype)
    mods = ("ddr", target.dtype)
    bases = [0 if index is None else index.base for index in indices]
    first_column = index_of(source, axes.column)
    if axes.width and not (is_zero(bases[2]) and first_column is not None and is_zero(first_column.base)):
        yield Rejection("ldc1", "rows do not begin with the map's first column")
        return
    which = image_offset(target, axes)
    if which is None:
        yield Rejection("ldc1", "a loop moves along images")
        return
    rows = loops[1]
    one_by_one = None if axes.width else rows

    def load(part: _Part) -> Any:
        first_row = bases[1] if one_by_one is None else bases[1] + one_by_one.var
        offset = (first_row * axes.pitch(target.shape) + bases[2]) * FRACTAL_ROW_BYTES
        offset = simple(nest, offset + block_offset(target, axes, bases[0] + part.channel) + which)
        at = {loop.var: tirx.IntImm("int32", 0) for loop in nest.loops if loop is not one_by_one}
        if part.channel and loops[0] is not None:
            at[loops[0].var] = tirx.IntImm("int32", part.channel)
        slots = [address_at(target.buffer, offset), address(source.buffer, source.at(at)), *part.strides]
        return instruction("ldc1", mods, [*slots, *(simple(nest, number(size)) for size in part.sizes), stride])

    def build(parts: list[_Part]) -> Any:
        kept = [loop for loop in nest.loops if loop is not one_by_one]
        loads = sequence([load(part) for part in parts])
        return guarded(kept, loads if one_by_one is None else around([one_by_one], loads))

    # Where the first row is not always the same, it would not be seen that two loads write beside each other.
    is_fixed = all(constant(simple(nest, number(base))) is not None for base in bases[:2])
    ways = _ways(source, loops, strides, axes, one_by_one, is_fixed)
    for parts in _of_images(source, loops, images, axes) if axes.image_rows else ways:
        prices = [instruction_cycles("ldc1", mods, (0, 0, *p.strides, *p.most, stride), chip) for p in parts]
        wrong = next((price for price in prices if isinstance(price, str)), None)
        if wrong is not None:
            yield Rejection("ldc1", wrong)
        else:
            price = sum(price for price in prices if not isinstance(price, str))
            yield Candidate("ldc1." + ".".join(mods), price, 1, partial(build, parts), kind="copy")


@dataclass(frozen=True)
class _Part:
    """What one instruction loads: some of the channels, of rows or of runs."""

    strides: list[int]
    sizes: list[Any]
    most: list[int]  # the bounds of sizes
    channel: int = 0  # the first one, counted from the first that is loaded: that of a block


@recogniser
def made_to_l1(nest: Nest, chip: Chip) -> Iterator[Found]:
    """``l1[c, h, w] = ub[h, w, c]``: rows of channels into nz layout, which a feature map has."""
    axes = map_axes(mark_of(nest), ("made",)) if nest.target.memory == "l1" and nest.value.op == "load" else None
    if axes is None:
        return
    target, source = nest.target, nest.value.value
    if target.dtype != source.dtype or target.dtype not in CUBE_TYPES or source.memory != "ub":
        yield Rejection("stnz", f"{source.dtype} in {source.memory} and {target.dtype} in L1")
        return
    channel, row, column = (
        None if axis is None else index_of(target, axis) for axis in (axes.channel, axes.row, axes.column)
    )
    channels, rows, columns = (single_loop(index) for index in (channel, row, column))
    places = [loop for loop in (rows, columns) if loop is not None]
    which = image_offset(target, axes)
    if {loop for loop in (channels, *places) if loop} != set(nest.loops) or channel is None or which is None:
        yield Rejection("stnz", "a loop moves along neither channels, rows nor columns")
        return
    stride, pitch = even_step(source, places), axes.pitch(target.shape)
    side_by_side = channels is None or source.coefficient(channels) == 1
    if stride is None or not side_by_side or (len(places) > 1 and places[1].bound != pitch):
        yield Rejection("stnz", "positions do not lie one after another")
        return
    if column is None or not is_zero(column.base):
        yield Rejection("stnz", "rows do not begin with the map's first column")
        return
    k0 = DTYPES[target.dtype].fractal_k
    if not target.surroundings.analyzer.can_prove(tirx.floormod(channel.base, k0) == 0):
        yield Rejection("stnz", "the first channel is not that of a block")
        return
    blocks = axes.c1_stride(target.shape, target.dtype) // k0
    mods, most = (target.dtype,), prod(loop.bound for loop in places)
    price = instruction_cycles("stnz", mods, (0, 0, most, bound(channels), stride, blocks), chip)
    if isinstance(price, str):
        yield Rejection("stnz", price)
        return

    def build() -> Any:
        first_row = 0 if row is None else row.base * (axes.pitch(target.shape) * FRACTAL_ROW_BYTES)
        offset = simple(nest, block_offset(target, axes, channel.base) + which + first_row)
        slots = [address_at(target.buffer, offset), address(source.buffer, start_of(source))]
        slots += [product_of([extent(loop) for loop in places]), extent(channels), stride, blocks]
        return guarded(nest.loops, instruction("stnz", mods, slots))

    yield Candidate(f"stnz.{target.dtype}", price, 1, build, kind="copy")


def _ways(
    source: Access,
    loops: Sequence[Loop | None],
    strides: list[int],
    axes: Axes,
    one_by_one: Loop | None,
    is_fixed: bool,
) -> Iterator[list[_Part]]:
    """As runs where whole rows lie one after another, otherwise row by row, or rows with what lies between them."""
    channels, rows, _ = loops
    if axes.width and (rows is None or strides[1] == axes.width):
        yield from _runs(source, channels, rows, axes.width, is_fixed)
        return
    sizes = [1 if loop is one_by_one else extent(loop) for loop in loops]
    most = [bound(loop) for loop in loops]
    if axes.width:
        strides, sizes, most = (
            [*each[:2], last] for each, last in ((strides, 1), (sizes, axes.width), (most, axes.width))
        )
    yield [_Part(strides, sizes, most)]


def _runs(
    source: Access, channels: Loop | None, rows: Loop | None, width: int, is_fixed: bool
) -> Iterator[list[_Part]]:
    """Whole rows as runs, with those behind that fill a block of 32 bytes, or alone.

    A run of whole blocks is loaded at twice the rate, and what lies behind rows in DDR is the map's as well. But where
    the map ends, there is no more of it: in LLB the last channels come by themselves, so that the others need not be
    cut short, if their place ``is_fixed``. There runs may be longer than they lie apart, too; in DDR these would move
    lines twice, and cores would not share them. Of a map that is a part of a tensor, others may not have made yet what
    lies behind its rows.
    """
    wanted, k0 = product_of([extent(rows), width]), DTYPES[source.dtype].fractal_k
    apart = 0 if channels is None else source.coefficient(channels) or 0
    most, count, most_channels = bound(rows) * width, extent(channels), bound(channels)
    most_filled, is_near = ceil_to(most, k0), source.buffer in source.surroundings.near
    is_whole = source.pitches == dense_strides(source.shape)
    if width % k0 and is_whole and (not apart or apart >= (k0 if is_near else most_filled)):
        filled = number(rounded_up(wanted, k0))
        first = source.surroundings.simplify(number(source.base))
        left = prod(source.shape) - first - (count - 1) * apart
        before = (count - 1) // k0 * k0 if is_near and is_fixed and apart and isinstance(count, int) else 0
        if before and not source.surroundings.analyzer.can_prove(filled <= left):
            yield [
                _Part([apart, 0, 1], [before, 1, filled], [before, 1, most_filled]),
                _Part([apart, 0, 1], [count - before, 1, tirx.min(filled, left)], [k0, 1, most_filled], before),
            ]
        else:
            yield [_Part([apart, 0, 1], [count, 1, tirx.min(filled, left)], [most_channels, 1, most_filled])]
    yield [_Part([apart, 0, 1], [count, 1, wanted], [most_channels, 1, most])]


def _of_images(source: Access, loops: Sequence[Loop | None], images: Loop | None, axes: Axes) -> Iterator[list[_Part]]:
    """All rows of each image as one run: images are rows of the run's length."""
    channels, rows, _ = loops
    if extent(rows) == axes.image_rows and axes.width and (rows is None or source.coefficient(rows) == axes.width):
        apart = [0 if loop is None else source.coefficient(loop) or 0 for loop in (channels, images)]
        run = axes.image_rows * axes.width
        yield [_Part([*apart, 1], [extent(channels), extent(images), run], [bound(channels), bound(images), run])]


def block_offset(access: Access, axes: Axes, channel: Any) -> Any:
    """The byte of an image in L1 at which the block of a channel begins."""
    dtype = DTYPES[access.dtype]
    block = channel // dtype.fractal_k if isinstance(channel, int) else tirx.floordiv(channel, dtype.fractal_k)
    return block * (axes.c1_stride(access.shape, access.dtype) * dtype.itemsize)


def image_loop(access: Access, axes: Axes) -> Loop | None:
    """The loop along images that are abreast, if an access has more than one."""
    return single_loop(index_of(access, axes.image)) if axes.image_rows and axes.image is not None else None


def image_offset(access: Access, axes: Axes) -> Any | None:
    """The byte at which the first image of an access begins; None where there are several that are not abreast."""
    if axes.image is None:
        return 0
    image = index_of(access, axes.image)
    if image is None or image.loops != tuple(loop for loop in [image_loop(access, axes)] if loop):
        return None
    return image.base * _image_step(access, axes)


def _image_step(access: Access, axes: Axes) -> int:
    """Bytes from one image to the next."""
    if axes.image_rows:
        return axes.image_rows * axes.pitch(access.shape) * FRACTAL_ROW_BYTES
    return image_bytes(access.shape, axes, access.dtype)


def simple(nest: Nest, expr: Any) -> Any:
    """As a number where it is one."""
    shorter = nest.surroundings.simplify(expr)
    known = constant(shorter)
    return shorter if known is None else known
