"""Convolution windows on their way to L0A: a feature map comes to L1 by ``ldc1``, its windows to L0A by ``img2col``.

L1 holds ``[c1][h][w][c0]``, once for each image that a buffer has room for. The nest of the windows is
``l0a[.., ho, wo, kd, c1, kh, kw, c0] = if_then_else(inside, l1[.., c, row, column], 0)`` where

    row = ho * stride + kh * dilation + e      inside where  low <= ho * stride + kh * dilation < high

and the same for columns. Rows from ``low`` up to ``high`` are the image; what is above and below is the padding that
the instruction is told of. A nest may hold a part of the kernel: a part of its rows is a smaller kernel, a part of its
columns is a range of the instruction's k.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

from tvm import tirx
from tvm.sym import detect_linear_equation

from compiler.emission.calls import address, address_at, around, guarded, instruction, number
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
from compiler.isa.layout import FRACTAL, ceil_to
from compiler.target import Chip

# Axes of the windows' matrix, from the end.
HO, WO, C1, KH, KW, C0 = -7, -6, -4, -3, -2, -1


@dataclass(frozen=True)
class Axes:
    """Which axes of a feature map are channels, rows and columns; ``row`` is None where a map has one row.

    ``width`` is the number of columns of whole rows, which are loaded as they are, those that no window touches too:
    rows that lie one after another in DDR do so in L1, and all of them are one run. It is 0 where parts of rows are
    loaded, one by one: these lie as far apart in L1 as the buffer is wide.
    """

    channel: int
    row: int | None
    column: int
    width: int = 0

    def numbers(self) -> tuple[int, ...]:
        return self.channel, -1 if self.row is None else self.row, self.column, self.width

    @staticmethod
    def of(channel: int, row: int, column: int, width: int) -> Axes:
        return Axes(channel, None if row < 0 else row, column, width)

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
        return (ceil_to(columns, k0) + k0 if self.width % k0 else columns) * k0


@dataclass(frozen=True)
class Windows:
    """What a template says of the windows: axes of the map, and the kernel in rows and columns.

    ``pad_left`` counts from the first column that lies in L1: a negative padding leaves columns in DDR.
    ``whole_rows`` says that all output columns stand in one tile; else a tile is a part of one row, and of the kernel's
    rows it sees one at a time.
    """

    axes: Axes
    kernel_columns: int
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pad_left: int
    whole_rows: bool

    def __str__(self) -> str:
        numbers = (*self.axes.numbers(), self.kernel_columns, *self.strides, *self.dilations)
        return "windows " + " ".join(str(int(n)) for n in (*numbers, self.pad_left, self.whole_rows))

    @staticmethod
    def of(mark: str) -> Windows | None:
        name, *numbers = mark.split()
        if name != "windows":
            return None
        *axes, kernel, stride_h, stride_w, dilation_h, dilation_w, pad, whole = map(int, numbers)
        return Windows(Axes.of(*axes), kernel, (stride_h, stride_w), (dilation_h, dilation_w), pad, bool(whole))


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
    images = 1 if axes.image is None else shape[axes.image]
    return images * image_bytes(shape, axes, dtype)


def image_bytes(shape: Sequence[int], axes: Axes, dtype: str) -> int:
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
    loops = [single_loop(index) for index in indices]
    if {loop for loop in loops if loop} != set(nest.loops) or not source.is_affine:
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
    which = _image_offset(target, axes)
    if which is None:
        yield Rejection("ldc1", "a loop moves along images")
        return
    rows = loops[1]
    one_by_one = None if axes.width else rows

    def build(strides: list[Any], sizes: list[Any]) -> Any:
        first_row = bases[1] if one_by_one is None else bases[1] + one_by_one.var
        offset = (first_row * axes.pitch(target.shape) + bases[2]) * FRACTAL_ROW_BYTES
        offset = _simple(nest, offset + _block_offset(target, axes, bases[0]) + which)
        zeros = {loop.var: tirx.IntImm("int32", 0) for loop in nest.loops if loop is not one_by_one}
        slots = [address_at(target.buffer, offset), address(source.buffer, source.at(zeros)), *strides]
        load = instruction("ldc1", mods, [*slots, *(_simple(nest, number(size)) for size in sizes), stride])
        kept = [loop for loop in nest.loops if loop is not one_by_one]
        return guarded(kept, load if one_by_one is None else around([one_by_one], load))

    shapes: list[tuple[list[Any], list[Any], list[int]]] = []  # strides, sizes, and their bounds
    if axes.width and (rows is None or strides[1] == axes.width):
        for size, most in _runs(source, loops[0], rows, axes.width):
            shapes.append(([strides[0], 0, 1], [extent(loops[0]), 1, size], [bound(loops[0]), 1, most]))
    else:
        sizes = [1 if loop is one_by_one else extent(loop) for loop in loops]
        most_of_all = [bound(loop) for loop in loops]
        if axes.width:
            strides[2], sizes[2], most_of_all[2] = 1, axes.width, axes.width
        shapes.append((strides, sizes, most_of_all))
    for apart, sizes, most_of_all in shapes:
        price = instruction_cycles("ldc1", mods, (0, 0, *apart, *most_of_all, stride), chip)
        if isinstance(price, str):
            yield Rejection("ldc1", price)
        else:
            name = "ldc1." + ".".join(mods)
            yield Candidate(name, price, 1, partial(build, apart, sizes), kind="copy")


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
    which = _image_offset(target, axes)
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
        offset = _simple(nest, _block_offset(target, axes, channel.base) + which + first_row)
        slots = [address_at(target.buffer, offset), address(source.buffer, start_of(source))]
        slots += [product_of([extent(loop) for loop in places]), extent(channels), stride, blocks]
        return guarded(nest.loops, instruction("stnz", mods, slots))

    yield Candidate(f"stnz.{target.dtype}", price, 1, build, kind="copy")


def _runs(source: Access, channels: Loop | None, rows: Loop | None, width: int) -> Iterator[tuple[Any, int]]:
    """Elements of whole rows, and at most how many: with those behind that fill a block of 32 bytes, or alone.

    A run of whole blocks is loaded at twice the rate, and what lies behind rows in DDR is the map's as well. But runs
    that are longer than they lie apart move lines of DDR twice, and cores do not share them.
    """
    wanted, k0 = product_of([extent(rows), width]), DTYPES[source.dtype].fractal_k
    apart = 0 if channels is None else source.coefficient(channels) or 0
    most = bound(rows) * width
    if width % k0 and (not apart or ceil_to(most, k0) <= apart):
        first = source.surroundings.simplify(number(source.base))
        left = prod(source.shape) - first - (extent(channels) - 1) * apart
        yield tirx.min(number(rounded_up(wanted, k0)), left), ceil_to(most, k0)
    yield wanted, most


def _block_offset(access: Access, axes: Axes, channel: Any) -> Any:
    dtype = DTYPES[access.dtype]
    block = channel // dtype.fractal_k if isinstance(channel, int) else tirx.floordiv(channel, dtype.fractal_k)
    return block * (axes.c1_stride(access.shape, access.dtype) * dtype.itemsize)


def _image_offset(access: Access, axes: Axes) -> Any | None:
    """The byte at which the image of an access begins; None where it is not one image."""
    if axes.image is None:
        return 0
    image = index_of(access, axes.image)
    if image is None or image.terms:
        return None
    return image.base * image_bytes(access.shape, axes, access.dtype)


def _simple(nest: Nest, expr: Any) -> Any:
    simple = nest.surroundings.simplify(expr)
    known = constant(simple)
    return simple if known is None else known


# ---- windows -----------------------------------------------------------------------------------------------------


@dataclass
class Band:
    """Along rows or columns: how output positions and kernel elements count through the map, and where the image is."""

    output: Loop | None
    kernel: Loop | None
    stride: int
    dilation: int
    first: Any  # index in L1 of the first window's first element
    lows: list[Any] = field(default_factory=list)
    highs: list[Any] = field(default_factory=list)

    @property
    def span(self) -> Any:
        """Elements from the first window's first to the last window's last."""
        return (extent(self.output) - 1) * self.stride + (extent(self.kernel) - 1) * self.dilation + 1

    def take(self, loops: tuple[Loop, ...], factors: tuple[int, ...], rest: Any) -> bool:
        """Note the condition ``sum of factor * loop + rest >= 0`` if it is one of this band."""
        scales = set()
        for loop, factor in zip(loops, factors, strict=True):
            step = self.stride if loop is self.output else self.dilation if loop is self.kernel else 0
            if step == 0 or step % factor:
                return False
            scales.add(step // factor)
        if len(scales) != 1:
            return False
        scale = scales.pop()
        if scale > 0:
            self.lows.append(rest * -scale)
        else:
            # A loop that the condition does not need changes nothing: its last iteration is inside, too.
            others = [(self.output, self.stride), (self.kernel, self.dilation)]
            further: Any = 0
            for other, step in others:
                if other is not None and other not in loops:
                    further = further + (other.extent - 1) * step
            self.highs.append(rest * -scale + 1 + further)
        return True

    def before(self) -> Any:
        """Elements of padding before the image."""
        least: Any = 0
        for low in self.lows:
            least = tirx.max(number(least), low)
        return least

    def inside(self) -> Any:
        """Elements of the image that the windows touch."""
        end = self.span
        for high in self.highs:
            end = tirx.min(number(end), high)
        return end - self.before()


@recogniser
def windows_to_l0a(nest: Nest, chip: Chip) -> Iterator[Found]:
    """The windows of a tile, zeros where they stand over the edge."""
    said = Windows.of(mark_of(nest)) if nest.target.memory == "l0a" and mark_of(nest) else None
    if said is None:
        return
    if nest.value.op == "const":
        yield from _padding_alone(nest, chip)
        return
    found = _Read.of(nest, said)
    if isinstance(found, str):
        yield Rejection("img2col", found)
        return
    price = instruction_cycles("img2col", (nest.target.dtype,), found.at_most(), chip)
    if isinstance(price, str):
        yield Rejection("img2col", price)
        return
    yield Candidate(f"img2col.{nest.target.dtype}", price, 1, found.build, kind="copy")


def _padding_alone(nest: Nest, chip: Chip) -> Iterator[Found]:
    """Windows that never touch the image."""
    target = nest.target
    kernel = {index_of(target, axis) for axis in (C1, KH, KW, C0)}
    along_k = {loop for index in kernel if index is not None for loop in index.loops}
    m = product_of([loop.extent for loop in nest.loops if loop not in along_k])
    k = product_of([loop.extent for loop in along_k])
    most = product_of([loop.bound for loop in nest.loops]) * FRACTAL
    price = instruction_cycles("filll0a", (target.dtype,), (0, most, 0), chip)

    def build() -> Any:
        count = product_of([rounded_up(m, FRACTAL), rounded_up(k, DTYPES[target.dtype].fractal_k)])
        slots = [address_at(target.buffer, 0), count, float(nest.value.value)]
        return guarded(nest.loops, instruction("filll0a", (target.dtype,), slots))

    if isinstance(price, str):
        yield Rejection("filll0a", price)
    else:
        yield Candidate(f"filll0a.{target.dtype}", price, 1, build, kind="copy")


@dataclass
class _Read:
    """The nest of the windows, understood."""

    nest: Nest
    said: Windows
    source: Access
    rows: Band
    columns: Band
    c1: Loop | None
    c0: Loop | None
    channel: Any
    image: Any  # the byte at which it begins
    outside: list[Any]  # conditions that no loop decides

    @staticmethod
    def of(nest: Nest, said: Windows) -> _Read | str:
        target = nest.target
        loops = {}
        for name, axis in (("ho", HO), ("wo", WO), ("c1", C1), ("kh", KH), ("kw", KW), ("c0", C0)):
            index = index_of(target, axis)
            if index is None or len(index.terms) > 1:
                return "the windows' matrix is not written element by element"
            loops[name] = single_loop(index)
        if {loop for loop in loops.values() if loop} != set(nest.loops) or not is_zero(target.base):
            return "a loop moves along no axis of the windows' matrix"
        if len(nest.sources) != 1 or nest.sources[0].memory != "l1":
            return "windows come from L1"
        source, axes = nest.sources[0], said.axes
        read = [index_of(source, axis) if axis is not None else None for axis in (axes.channel, axes.row, axes.column)]
        if read[0] is None or read[2] is None or (axes.row is not None and read[1] is None):
            return "rows and columns of the map do not move evenly with the windows"
        rows = Band(loops["ho"], loops["kh"], said.strides[0], said.dilations[0], read[1].base if read[1] else 0)
        columns = Band(loops["wo"], loops["kw"], said.strides[1], said.dilations[1], read[2].base)
        image = _image_offset(source, axes)
        if image is None:
            return "windows of several images"
        self = _Read(nest, said, source, rows, columns, loops["c1"], loops["c0"], read[0].base, image, [])
        problem = self._conditions()
        return problem or self

    def _conditions(self) -> str:
        value = self.nest.store.value
        if type(value).__name__ != "Call":
            return ""
        variables = [loop.var for loop in self.nest.loops]
        for part in _conjuncts(value.args[0]):
            distances = _distances(part)
            if not distances:
                return f"{part} is no bound"
            for distance in distances:
                problem = self._bound(part, distance, variables)
                if problem:
                    return problem
        return ""

    def _bound(self, part: Any, distance: Any, variables: list[Any]) -> str:
        """Note that ``distance`` is not negative inside."""
        linear = detect_linear_equation(self.nest.surroundings.simplify(distance), variables)
        if len(linear) != len(variables) + 1:
            return f"{part} is not affine"
        pairs = zip(self.nest.loops, linear[:-1], strict=True)
        moving = [(loop, constant(factor) or 0) for loop, factor in pairs if not is_zero(factor)]
        loops, factors = tuple(loop for loop, _ in moving), tuple(factor for _, factor in moving)
        if not moving:
            if not any(part.same_as(other) for other in self.outside):
                self.outside.append(part)
        elif set(loops) <= {self.c1, self.c0}:
            pass  # ldc1 left zeros behind the last channel
        elif not any(band.take(loops, factors, linear[-1]) for band in (self.rows, self.columns)):
            return f"{part} bounds neither rows nor columns"
        return ""

    def at_most(self) -> tuple[int, ...]:
        """Operands for the cost: the greatest tile, inside the image."""
        said, k0 = self.said, DTYPES[self.nest.target.dtype].fractal_k
        m = bound(self.rows.output) * bound(self.columns.output)
        kernel = (bound(self.rows.kernel), bound(self.columns.kernel))
        k = bound(self.c1) * kernel[0] * kernel[1] * k0
        height = (bound(self.rows.output) - 1) * said.strides[0] + (kernel[0] - 1) * said.dilations[0] + 1
        width = (bound(self.columns.output) - 1) * said.strides[1] + (kernel[1] - 1) * said.dilations[1] + 1
        stride = said.axes.c1_stride(self.source.shape, self.source.dtype)
        return (0, 0, m, k, 0, 0, height, width, stride, *kernel, *said.strides, *said.dilations, 0, 0, 0, 0)

    def build(self) -> Any:
        nest, said, rows, columns = self.nest, self.said, self.rows, self.columns
        dtype = DTYPES[nest.target.dtype]
        m = product_of([extent(rows.output), extent(columns.output)])
        kernel_rows, kernel_columns = extent(rows.kernel), extent(columns.kernel)
        k = product_of([extent(self.c1), kernel_rows, kernel_columns, dtype.fractal_k])
        top, height = rows.before(), rows.inside()
        bottom = rows.span - top - height
        first_row = rows.first + top
        pitch = said.axes.pitch(self.source.shape)
        if said.whole_rows:
            width = pitch
            left, first_column = said.pad_left, 0
            span = (extent(columns.output) - 1) * said.strides[1] + (said.kernel_columns - 1) * said.dilations[1] + 1
            right = max(span - width - left, 0)
            k_start = tirx.floordiv(columns.first + left, said.dilations[1]) * dtype.fractal_k
            kernel_columns = said.kernel_columns
        else:
            left, width = columns.before(), columns.inside()
            right = columns.span - left - width
            first_column, k_start = columns.first + left, 0
        offset = (first_row * pitch + first_column) * FRACTAL_ROW_BYTES
        offset = offset + _block_offset(self.source, said.axes, self.channel) + self.image
        slots = [address_at(nest.target.buffer, 0), address_at(self.source.buffer, _simple(nest, number(offset)))]
        block_stride = said.axes.c1_stride(self.source.shape, self.source.dtype)
        numbers = [m, k, 0, k_start, height, width, block_stride, kernel_rows, kernel_columns]
        numbers += [*said.strides, *said.dilations, top, left, bottom, right]
        load = instruction("img2col", (dtype.name,), [*slots, *(_simple(nest, number(value)) for value in numbers)])
        return guarded(nest.loops, self._or_zeros(load, m, k, height, width))

    def _or_zeros(self, load: Any, m: Any, k: Any, height: Any, width: Any) -> Any:
        """Zeros where no element of any window lies in the image."""
        conditions = list(self.outside)
        for size in (height, width):
            simple = self.nest.surroundings.simplify(number(size))
            if self.nest.surroundings.bounds(simple)[0] < 1:
                conditions.append(simple > 0)
        if not conditions:
            return load
        together = conditions[0]
        for condition in conditions[1:]:
            together = tirx.And(together, condition)
        target = self.nest.target
        count = product_of([rounded_up(m, FRACTAL), k])
        zeros = instruction("filll0a", (target.dtype,), [address_at(target.buffer, 0), count, 0.0])
        return tirx.IfThenElse(together, load, zeros)


def _conjuncts(condition: Any) -> list[Any]:
    if isinstance(condition, tirx.And):
        return [*_conjuncts(condition.a), *_conjuncts(condition.b)]
    return [condition]


def _distances(condition: Any) -> list[Any]:
    """Expressions that are not negative where the condition holds; none where it is of another kind."""
    if isinstance(condition, tirx.LT):
        return [condition.b - condition.a - 1]
    if isinstance(condition, tirx.LE):
        return [condition.b - condition.a]
    if isinstance(condition, tirx.GT):
        return [condition.a - condition.b - 1]
    if isinstance(condition, tirx.GE):
        return [condition.a - condition.b]
    if isinstance(condition, tirx.EQ):
        return [condition.a - condition.b, condition.b - condition.a]
    return []
