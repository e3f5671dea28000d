"""Where the elements of a matrix lie in the memories around the cube, given its logical indices.

The last two axes of a buffer of L1 are the rows and columns of matrices in nz layout whose pitch is the buffer's number
of rows; the axes before them count matrices. A buffer with one axis is a single row. L0A, L0B and L0C hold one operand
or result each, dense from its start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import tirx
from tvm.sym import detect_linear_equation

from compiler.emission.nest import Access, Loop, Nest
from compiler.isa.dtypes import DTYPES
from compiler.isa.layout import FRACTAL, ceil_to
from compiler.isa.timing import ceil_div

FRACTAL_ROW_BYTES = 32
MARK = "pragma_tw_cube"
ROWS = "tw.rows_of_one"  # of several products in L0C, the rows of each but the last


@dataclass(frozen=True)
class Index:
    """One index of an access: ``base`` plus coefficient times variable of each loop that moves it."""

    base: Any
    terms: tuple[tuple[Loop, int], ...]

    @property
    def loops(self) -> tuple[Loop, ...]:
        return tuple(loop for loop, _ in self.terms)


def index_of(access: Access, axis: int) -> Index | None:
    """The index of an axis, or None where it is not affine in the loops."""
    index = access.indices[axis]
    index = tirx.IntImm("int32", index) if isinstance(index, int) else index
    variables = [loop.var for loop in access.loops]
    found = detect_linear_equation(access.surroundings.simplify(index), variables)
    if len(found) != len(variables) + 1:
        return None
    terms = []
    for loop, coefficient in zip(access.loops, found[:-1], strict=True):
        if not isinstance(coefficient, tirx.IntImm):
            return None
        if int(coefficient.value):
            terms.append((loop, int(coefficient.value)))
    return Index(access.surroundings.simplify(found[-1]), tuple(terms))


UNIT = Index(tirx.IntImm("int32", 0), ())


def single_loop(index: Index | None) -> Loop | None:
    """The one loop that moves an index step by step; None where none does or it is of another form."""
    if index is None or len(index.terms) != 1 or index.terms[0][1] != 1:
        return None
    return index.terms[0][0]


def is_simple(index: Index | None) -> bool:
    """Whether an index stands still or moves with one loop, step by step."""
    return index is not None and (not index.terms or single_loop(index) is not None)


def is_gapless(index: Index | None) -> bool:
    """Whether an index stands still, or goes on step by step through all loops that move it."""
    if index is None:
        return False
    step = 1
    for loop, coefficient in reversed(index.terms):
        if coefficient != step:
            return False
        if loop is not index.terms[0][0]:
            if loop.is_dynamic:
                return False
            step *= loop.bound
    return True


def matrix_indices(access: Access) -> tuple[Index | None, Index | None, int]:
    """Row and column index, and the axes before them; a buffer with one axis is a row."""
    axes = len(access.indices)
    column = index_of(access, axes - 1)
    return (index_of(access, axes - 2) if axes > 1 else UNIT), column, max(axes - 2, 0)


def constant(expr: Any) -> int | None:
    if isinstance(expr, int):
        return expr
    return int(expr.value) if isinstance(expr, tirx.IntImm) else None


def is_zero(expr: Any) -> bool:
    return constant(expr) == 0


def extent(loop: Loop | None) -> Any:
    return 1 if loop is None else loop.extent


def bound(loop: Loop | None) -> int:
    return 1 if loop is None else loop.bound


def product_of(extents: Sequence[Any]) -> Any:
    """Of integers and expressions; integers stay Python's."""
    constants = prod(e for e in extents if isinstance(e, int))
    total: Any = None
    for e in extents:
        if not isinstance(e, int):
            total = e if total is None else total * e
    return constants if total is None else total if constants == 1 else total * constants


def rounded_up(value: Any, multiple: int) -> Any:
    if isinstance(value, int):
        return ceil_to(value, multiple)
    return tirx.floordiv(value + (multiple - 1), multiple) * multiple


def l1_pitch(buffer: Any) -> int:
    return int(buffer.shape[-2]) if len(buffer.shape) > 1 else 1


def l1_matrix_bytes(buffer: Any, dtype: str) -> int:
    return ceil_div(int(buffer.shape[-1]), DTYPES[dtype].fractal_k) * l1_pitch(buffer) * FRACTAL_ROW_BYTES


def l1_offset(access: Access) -> Any | None:
    """The byte at which the block of an access begins in L1, or None where that is not the start of fractal rows."""
    row, column, leading = matrix_indices(access)
    if row is None or column is None:
        return None
    k0 = DTYPES[access.dtype].fractal_k
    analyzer = access.surroundings.analyzer
    if not analyzer.can_prove(tirx.floormod(column.base, k0) == 0):
        return None
    which: Any = 0
    for axis in range(leading):
        place = index_of(access, axis)
        if place is None or place.terms:
            return None
        which = which * access.shape[axis] + place.base
    offset = tirx.floordiv(column.base, k0) * (l1_pitch(access.buffer) * FRACTAL_ROW_BYTES)
    offset = offset + row.base * FRACTAL_ROW_BYTES + which * l1_matrix_bytes(access.buffer, access.dtype)
    simple = access.surroundings.simplify(offset)
    return constant(simple) if constant(simple) is not None else simple


def l0_bytes(scope: str, rows: int, columns: int, dtype: str) -> int:
    """What an operand or result takes beside the cube: whole fractals."""
    size = DTYPES[dtype].itemsize
    if scope == "local.l0c":
        return ceil_to(rows, FRACTAL) * ceil_to(columns, FRACTAL) * size
    k0 = DTYPES[dtype].fractal_k
    if scope == "local.l0a":
        return ceil_to(rows, FRACTAL) * ceil_to(columns, k0) * size
    return ceil_to(rows, k0) * ceil_to(columns, FRACTAL) * size


def place_in_l0c(nest: Nest, result: Access) -> tuple[Any, Any] | None:
    """The byte at which the product begins that a nest makes or takes out, and the first column; None for other places.

    L0C holds several products one after another, each in the place of as many rows as the first has.
    """
    if is_zero(result.base):
        return 0, 0
    first: Any = tirx.IntImm("int32", 0)
    along_rows: list[Loop] = []
    for axis, extent_of_axis in enumerate(result.shape[:-1]):
        index = index_of(result, axis)
        if index is None:
            return None
        first = first * extent_of_axis + index.base
        along_rows += index.loops
    column = index_of(result, len(result.shape) - 1)
    if column is None or mark_of(nest).endswith("rows"):
        return None
    analyzer = result.surroundings.analyzer
    known = nest.pragmas.get(ROWS)
    rows = product_of([loop.bound for loop in along_rows]) if known is None else int(known)
    if not analyzer.can_prove(tirx.floormod(first, rows) == 0):
        return None
    if not analyzer.can_prove(tirx.floormod(column.base, FRACTAL) == 0):
        return None
    size = l0_bytes("local.l0c", rows, result.shape[-1], result.dtype)
    return analyzer.simplify(tirx.floordiv(first, rows) * size), analyzer.simplify(column.base)


def even_step(access: Access, loops: Sequence[Loop]) -> int | None:
    """Elements between consecutive iterations of all loops, counted through as one; zero for none, None if uneven."""
    step, span = 0, None
    for loop in reversed(loops):
        own = access.coefficient(loop)
        if own is None or (span is not None and own != span):
            return None
        step = step or own
        if loop is not loops[0]:
            if loop.is_dynamic:
                return None
            span = own * loop.bound
    return step


def start_of(access: Access) -> tuple[Any, ...]:
    """The indices of the first iteration."""
    zero = tirx.IntImm("int32", 0)
    return access.at({loop.var: zero for loop in access.loops}) if access.loops else access.indices


def mark_of(nest: Nest) -> str:
    """What a template says a nest is."""
    mark = nest.pragmas.get(MARK, "")
    return str(getattr(mark, "value", mark))


def rows_and_columns(nest: Nest, result: Access) -> tuple[list[Loop], list[Loop]]:
    """The loops along a result's rows and columns: its last axis is its columns, unless the mark says it has none."""
    last = index_of(result, len(result.indices) - 1) if result.indices else None
    columns = [] if last is None or mark_of(nest).endswith("rows") else list(last.loops)
    return [loop for loop in nest.loops if loop not in columns], columns
