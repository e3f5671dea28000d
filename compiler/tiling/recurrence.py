"""The schedule of recurrent networks: a core has some rows of the batch, and goes through all steps with them.

    for core: w1 = weights                                    # L1, once
              for step: { h0 = h1; c0 = h0 * w0               # the cube
                          gates = c0 + inputs[step]; h = ...  # UB
                          h1 = h; outputs[step] = h }

No core needs what another one makes, so that none waits within a step. Directions and rows of the batch have cores of
their own; where there are fewer cores than directions, each has them one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, product, repeat
from typing import Any

from compiler.isa.dtypes import DTYPES
from compiler.isa.timing import ceil_div
from compiler.operators.broadcast import shape_of
from compiler.operators.recurrence import Piece, Places, built_again, form_of
from compiler.operators.recurrence_kinds import Form
from compiler.target import Chip
from compiler.tiling.template import NoFeasibleTile, Tiled
from compiler.tir.scopes import ISA_DTYPE

_FRACTAL = 16
_SPARE = 0.9  # of L1: the rest is for what runs ahead of the next kernel


def schedule(func: Any, chip: Chip, attempt: int) -> Tiled:
    """Later attempts have fewer rows at once, and read the weights in every step."""
    found = list(_places(func, chip))
    if attempt >= len(found):
        raise NoFeasibleTile("the network", f"{len(found)} sizes of a block of the batch")
    places = found[attempt]
    again = built_again(func, places).with_attrs(func.attrs)
    batch, directions, hidden = shape_of(func.params[2])
    products = [
        f"product {places.rows}x{piece.columns}x{places.depth} of {batch}x{gates * hidden}x{hidden}"
        for number, gates in enumerate(form_of(func).products)
        for piece in places.pieces
        if (piece.product, piece.first) == (number, 0)
    ]
    cores = directions // places.directions * places.row_cores
    words = f"{places.rows} of {batch} rows on {cores} cores, {', '.join(products)}"
    return Tiled(again, words + (", weights held in L1" if places.held else ""))


def _places(func: Any, chip: Chip) -> Iterator[Places]:
    batch, directions, hidden = shape_of(func.params[2])
    size = DTYPES[ISA_DTYPE[str(func.params[1].dtype)]].itemsize
    of_core = 1 if directions <= chip.cores else directions  # directions
    each = max(1, chip.cores // directions)  # cores of a direction
    divisors = [rows for rows in range(batch, 0, -1) if batch % rows == 0]
    first = min(rows for rows in divisors if batch // rows <= each)
    form = form_of(func)
    matrix = _padded(hidden) * sum(_padded(gates * hidden) for gates in form.products) * size
    for rows in [first, *(rows for rows in divisors if rows < first)]:
        cut = _cut(rows, hidden, form, size, chip)
        if cut is None:
            continue
        cores = max(cores for cores in range(1, each + 1) if (batch // rows) % cores == 0)
        if matrix + _padded(rows) * _padded(hidden) * size <= chip.memory.l1_bytes * _SPARE:
            yield Places(rows, *cut, cores, of_core, held=True, scopes=True)
        yield Places(rows, *cut, cores, of_core, held=False, scopes=True)


def _cut(rows: int, hidden: int, form: Form, size: int, chip: Chip) -> tuple[tuple[Piece, ...], int] | None:
    """The most columns and depth of the products for which there is room beside the cube: whole depth before columns,
    and of several products the first ones before those behind them. Where no blocks of columns divide them, some are
    left over, and where none of depth does, some of that.
    """
    memory, extents = chip.memory, [gates * hidden for gates in form.products]
    for depths, parts in product((_parts, _fractals), repeat=2):
        for depth in depths(hidden):
            for columns in product(*(parts(extent) for extent in extents)):
                pieces = tuple(_pieces(columns, extents))
                right = sum(map(_padded, Places(rows, pieces, depth).widths))
                sums = sum(_padded(piece.columns) for piece in pieces)
                if (
                    _padded(rows) * _padded(depth) * size <= memory.l0a_bytes
                    and _padded(depth) * right * size <= memory.l0b_bytes
                    and _padded(rows) * sums * 4 <= memory.l0c_bytes
                ):
                    return pieces, depth
    return None


def _parts(extent: int) -> list[int]:
    """Whole fractals that divide it, or all of it; the most first."""
    return [part for part in range(extent, 0, -1) if extent % part == 0 and (part == extent or part % _FRACTAL == 0)]


def _fractals(extent: int) -> range:
    """Of fewer columns than that, the most first."""
    return range((extent - 1) // _FRACTAL * _FRACTAL, 0, -_FRACTAL)


def _pieces(columns: Sequence[int], extents: Sequence[int]) -> Iterator[Piece]:
    """Each with a place of its own, or all of them with one: of one column of fractals, fewer lie as all of it does."""
    places = repeat(0) if max(columns) == _FRACTAL else count()
    for number, (width, extent) in enumerate(zip(columns, extents, strict=True)):
        blocks, rest = divmod(extent, width)
        yield Piece(number, 0, width, blocks, next(places))
        if rest:
            yield Piece(number, extent - rest, rest, place=next(places))


def _padded(extent: int) -> int:
    return ceil_div(extent, _FRACTAL) * _FRACTAL
