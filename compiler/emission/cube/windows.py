"""Convolution windows on their way from a feature map in L1 to L0A, by ``img2col``.

The nest of the windows is ``l0a[.., ho, wo, kd, c1, kh, kw, c0] = if_then_else(inside, l1[.., c, row, column], p)``
where

    row = ho * stride + kh * dilation + e      inside where  low <= ho * stride + kh * dilation < high

and the same for columns. Rows from ``low`` up to ``high`` are the image; what is above and below is the padding that
the instruction is told of, as is ``p``. A nest may hold a part of the kernel: a part of its rows is a smaller kernel, a
part of its columns is a range of the instruction's k.

Of images that are abreast, counted by axis ``do``, rows lie one below the other, so far apart that windows go on from
the last row of one with the first row of the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx
from tvm.sym import detect_linear_equation

from compiler.emission.calls import address_at, guarded, instruction, number
from compiler.emission.candidates import Candidate, Found, Rejection, recogniser
from compiler.emission.costs import instruction_cycles
from compiler.emission.cube.feature_maps import Axes, block_offset, image_loop, image_offset, simple
from compiler.emission.cube.places import (
    FRACTAL_ROW_BYTES,
    bound,
    constant,
    extent,
    index_of,
    is_zero,
    mark_of,
    product_of,
    rounded_up,
    single_loop,
)
from compiler.emission.nest import Access, Loop, Nest
from compiler.isa.dtypes import DTYPES
from compiler.isa.layout import FRACTAL
from compiler.target import Chip

# Axes of the windows' matrix, from the end.
IMAGE, HO, WO, C1, KH, KW, C0 = -8, -7, -6, -4, -3, -2, -1


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


def end_with_rows(first: int, windows: int, stride: int, element: int, dilation: int, width: int) -> bool:
    """Whether windows in rows of a map are all that the rows have: the instruction counts them by the rows' width.

    ``first``: the column of the first window's first element; ``element``: the number of its last one.
    """
    last = first + (windows - 1) * stride + element * dilation
    return first <= 0 and width - 1 - last < stride


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
    """The windows of a tile, and a number where they stand over the edge."""
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
    images: Loop | None  # that are abreast
    c1: Loop | None
    c0: Loop | None
    channel: Any
    image: Any  # the byte at which it begins
    outside: list[Any]  # conditions that no loop decides
    padding: float = 0.0

    @staticmethod
    def of(nest: Nest, said: Windows) -> _Read | str:
        target = nest.target
        loops, named = {}, [("ho", HO), ("wo", WO), ("c1", C1), ("kh", KH), ("kw", KW), ("c0", C0)]
        for name, axis in [("images", IMAGE), *named] if said.axes.image_rows else named:
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
        image, images = image_offset(source, axes), loops.get("images")
        if image is None or images is not image_loop(source, axes):
            return "windows of several images"
        self = _Read(nest, said, source, rows, columns, images, loops["c1"], loops["c0"], read[0].base, image, [])
        problem = self._conditions()
        return problem or self

    def _conditions(self) -> str:
        value = self.nest.store.value
        if type(value).__name__ != "Call":
            return ""
        if not isinstance(value.args[2], tirx.IntImm | tirx.FloatImm):
            return "what is around the map is no number"
        self.padding = float(value.args[2].value)
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
            pass  # ldc1 left zeros behind the last channel, and whatever is there meets weights of zero
        elif not any(band.take(loops, factors, linear[-1]) for band in (self.rows, self.columns)):
            return f"{part} bounds neither rows nor columns"
        return ""

    def at_most(self) -> tuple[int, ...]:
        """Operands for the cost: the greatest tile, inside the image."""
        said, k0 = self.said, DTYPES[self.nest.target.dtype].fractal_k
        rows = bound(self.images) * bound(self.rows.output)
        m = rows * bound(self.columns.output)
        kernel = (bound(self.rows.kernel), bound(self.columns.kernel))
        told = (kernel[0], said.kernel_columns) if said.whole_rows else kernel
        k = bound(self.c1) * kernel[0] * kernel[1] * k0
        height = (rows - 1) * said.strides[0] + (kernel[0] - 1) * said.dilations[0] + 1
        width = (bound(self.columns.output) - 1) * said.strides[1] + (told[1] - 1) * said.dilations[1] + 1
        stride = said.axes.c1_stride(self.source.shape, self.source.dtype)
        return (0, 0, m, k, 0, 0, height, width, stride, *told, *said.strides, *said.dilations, 0, 0, 0, 0, 0)

    def build(self) -> Any:
        nest, said, rows, columns = self.nest, self.said, self.rows, self.columns
        dtype = DTYPES[nest.target.dtype]
        m = product_of([extent(self.images), extent(rows.output), extent(columns.output)])
        kernel_rows, kernel_columns = extent(rows.kernel), extent(columns.kernel)
        k = product_of([extent(self.c1), kernel_rows, kernel_columns, dtype.fractal_k])
        top, height = rows.before(), rows.inside()
        if self.images is not None:  # of those before the last, the next one begins where their windows go on
            height = height + (self.images.extent - 1) * said.axes.image_rows
        bottom = 0 if self.images is not None else rows.span - top - height
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
        offset = offset + block_offset(self.source, said.axes, self.channel) + self.image
        slots = [address_at(nest.target.buffer, 0), address_at(self.source.buffer, simple(nest, number(offset)))]
        block_stride = said.axes.c1_stride(self.source.shape, self.source.dtype)
        numbers = [m, k, 0, k_start, height, width, block_stride, kernel_rows, kernel_columns]
        numbers += [*said.strides, *said.dilations, top, left, bottom, right]
        slots += [simple(nest, number(value)) for value in numbers]
        load = instruction("img2col", (dtype.name,), [*slots, self.padding])
        return guarded(nest.loops, self._or_padding(load, m, k, height, width))

    def _or_padding(self, load: Any, m: Any, k: Any, height: Any, width: Any) -> Any:
        """Padding alone where no element of any window lies in the image."""
        conditions = list(self.outside)
        for size in (height, width):
            shorter = self.nest.surroundings.simplify(number(size))
            if self.nest.surroundings.bounds(shorter)[0] < 1:
                conditions.append(shorter > 0)
        if not conditions:
            return load
        together = conditions[0]
        for condition in conditions[1:]:
            together = tirx.And(together, condition)
        target = self.nest.target
        count = product_of([rounded_up(m, FRACTAL), k])
        filled = instruction("filll0a", (target.dtype,), [address_at(target.buffer, 0), count, self.padding])
        return tirx.IfThenElse(together, load, filled)


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
