"""How matrices lie in the memories around the cube, and the way from each layout to the next.

A *fractal row* is 32 bytes: k0 elements (8 of fp32, 16 of fp16 and bf16, 32 of int8). A matrix is R rows of C columns.

===========  ==============================================  ====================================================
name         indices, outermost first                        notes
===========  ==============================================  ====================================================
ND           [r][c]                                          rows a *row stride* apart
NZ           [c // k0][r][c % k0]                            L1 and UB; column blocks a *pitch* of rows apart
L0A          [m // 16][k // k0][m % 16][k % k0]              A (m x k): dense, zeros up to whole fractals
L0B          [k // k0][n // 16][n % 16][k % k0]              B (k x n): dense, zeros up to whole fractals
L0C          [n // 16][m][n % 16]                            fp32 or int32; pitch a multiple of 16
feature map  [c // k0][h][w][c % k0]                         L1; channel blocks a *c1 stride* of elements apart
===========  ==============================================  ====================================================

Everything here is a pure function on numpy arrays. A ``blocks`` array has one axis per index above.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from compiler.isa.convert import to_fp32
from compiler.isa.timing import ceil_div

FRACTAL = 16  # rows of a fractal, and columns of an L0C block
_FRACTAL_ROW = np.dtype("V32")


def ceil_to(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def padded(array: np.ndarray, *shape: int) -> np.ndarray:
    """The array with zeros behind it in every dimension that ``shape`` makes longer."""
    if array.shape == shape:
        return array
    out = np.zeros(shape, array.dtype)
    out[tuple(slice(n) for n in array.shape)] = array
    return out


def fractal_rows(blocks: np.ndarray) -> np.ndarray:
    """One opaque 32-byte element for each fractal row, as a view: copies of rows are several times faster so."""
    return blocks.view(_FRACTAL_ROW)[..., 0]


def elements(rows: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The inverse of :func:`fractal_rows`."""
    return np.ascontiguousarray(rows)[..., None].view(dtype)


def _moved(blocks: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """``blocks.transpose(*axes, last)``, copied."""
    if blocks.strides[-1] != blocks.itemsize:
        return np.ascontiguousarray(blocks.transpose(*axes, blocks.ndim - 1))
    return elements(fractal_rows(blocks).transpose(axes), blocks.dtype)


class Laid:
    """A matrix in the layout of some memory, whose blocks are made only if somebody looks at them.

    The functions below take one wherever they take blocks, and then give back the matrix itself, so an engine that
    keeps what it was handed saves every change of layout between DDR and the cube.
    """

    __slots__ = ("_form", "k0", "matrix")

    def __init__(self, matrix: np.ndarray, form: Callable[[np.ndarray, int], np.ndarray], k0: int) -> None:
        self.matrix, self._form, self.k0 = matrix, form, k0

    @property
    def rows(self) -> int:
        return int(self.matrix.shape[0])

    def blocks(self) -> np.ndarray:
        return self._form(self.matrix, self.k0)

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.blocks(), dtype)

    def part(self, row: int, rows: int, column: int, columns: int) -> Laid:
        """These rows and columns, in the same layout; shares the matrix."""
        return Laid(self.matrix[row : row + rows, column : column + columns], self._form, self.k0)


Blocks = np.ndarray | Laid


def _resized(matrix: np.ndarray, rows: int, cols: int) -> np.ndarray:
    """A matrix as an instruction with other extents finds it in the same blocks: cut, or with zeros behind it."""
    if matrix.shape == (rows, cols):
        return matrix
    return padded(matrix[:rows, :cols], rows, cols)


# ---- ND and NZ ------------------------------------------------------------------------------------------------


def nd_to_nz(matrix: np.ndarray, k0: int) -> Laid:
    """R x C -> [ceil(C / k0)][R][k0], zeros behind the last column."""
    return Laid(matrix, _nz_blocks, k0)


def _nz_blocks(matrix: np.ndarray, k0: int) -> np.ndarray:
    rows, cols = matrix.shape
    blocks = ceil_div(cols, k0)
    return padded(matrix, rows, blocks * k0).reshape(rows, blocks, k0).transpose(1, 0, 2)


def nz_to_nd(blocks: Blocks, cols: int) -> np.ndarray:
    """[ceil(C / k0)][R][k0] -> R x C."""
    if isinstance(blocks, Laid):
        return _resized(blocks.matrix, blocks.rows, cols)
    count, rows, k0 = blocks.shape
    matrix = blocks[0] if count == 1 else _moved(blocks, (1, 0)).reshape(rows, count * k0)
    return matrix[:, :cols]


def _k0(blocks: Blocks) -> int:
    return blocks.k0 if isinstance(blocks, Laid) else int(blocks.shape[-1])


def chw_to_feature_map(image: np.ndarray, c0: int) -> np.ndarray:
    """[C][H][W] -> [ceil(C / c0)][H][W][c0], zeros behind the last channel."""
    c, h, w = image.shape
    c1 = ceil_div(c, c0)
    return padded(image, c1 * c0, h, w).reshape(c1, c0, h, w).transpose(0, 2, 3, 1)


# ---- the cube's operands ------------------------------------------------------------------------------------------


def matrix_to_l0a(matrix: np.ndarray, k0: int) -> Laid:
    return Laid(matrix, _l0a_blocks, k0)


def _l0a_blocks(matrix: np.ndarray, k0: int) -> np.ndarray:
    m, k = matrix.shape
    m1, k1 = ceil_div(m, FRACTAL), ceil_div(k, k0)
    return padded(matrix, m1 * FRACTAL, k1 * k0).reshape(m1, FRACTAL, k1, k0).transpose(0, 2, 1, 3)


def nz_to_l0a(blocks: Blocks, k: int) -> Laid:
    """NZ of A (m x k) -> L0A."""
    return matrix_to_l0a(nz_to_nd(blocks, k), _k0(blocks))


def transposed_nz_to_l0a(blocks: Blocks, m: int) -> Laid:
    """NZ of the transpose of A (k x m) -> L0A."""
    return matrix_to_l0a(nz_to_nd(blocks, m).T, _k0(blocks))


def l0a_to_matrix(blocks: Blocks, m: int, k: int) -> np.ndarray:
    if isinstance(blocks, Laid):
        return _resized(blocks.matrix, m, k)
    m1, k1, _, k0 = blocks.shape
    return _moved(blocks, (0, 2, 1)).reshape(m1 * FRACTAL, k1 * k0)[:m, :k]


def matrix_to_l0b(matrix: np.ndarray, k0: int) -> Laid:
    return Laid(matrix, _l0b_blocks, k0)


def _l0b_blocks(matrix: np.ndarray, k0: int) -> np.ndarray:
    k, n = matrix.shape
    k1, n1 = ceil_div(k, k0), ceil_div(n, FRACTAL)
    return padded(matrix, k1 * k0, n1 * FRACTAL).reshape(k1, k0, n1, FRACTAL).transpose(0, 2, 3, 1)


def nz_to_l0b(blocks: Blocks, n: int) -> Laid:
    """NZ of B (k x n) -> L0B."""
    return matrix_to_l0b(nz_to_nd(blocks, n), _k0(blocks))


def transposed_nz_to_l0b(blocks: Blocks, k: int) -> Laid:
    """NZ of the transpose of B (n x k) -> L0B."""
    return matrix_to_l0b(nz_to_nd(blocks, k).T, _k0(blocks))


def l0b_to_matrix(blocks: Blocks, k: int, n: int) -> np.ndarray:
    if isinstance(blocks, Laid):
        return _resized(blocks.matrix, k, n)
    k1, n1, _, k0 = blocks.shape
    return _moved(blocks, (1, 2, 0)).reshape(n1 * FRACTAL, k1 * k0)[:n, :k].T


def matrix_to_l0c(matrix: np.ndarray) -> Laid:
    """m x n -> [ceil(n / 16)][m rounded up to 16][16], zeros around the matrix."""
    return Laid(matrix, _l0c_blocks, FRACTAL)


def _l0c_blocks(matrix: np.ndarray, width: int) -> np.ndarray:
    m, n = matrix.shape
    m16, n1 = ceil_to(m, FRACTAL), ceil_div(n, width)
    return padded(matrix, m16, n1 * width).reshape(m16, n1, width).transpose(1, 0, 2)


class Sum(Laid):
    """A result in L0C: matrix products that are formed, one after the other, when the result is first looked at.

    Until then an engine may gather the sums of several cores, which have nothing to do with each other.
    """

    __slots__ = ("_before", "_product", "_value", "continued", "shape", "when_wanted")

    def __init__(self, product: Product, before: Sum | np.ndarray | None) -> None:
        self._form, self.k0 = _l0c_blocks, FRACTAL
        self.shape = (product.m, product.n)
        self._product: Product | None = product
        self._before = before
        self._value: np.ndarray | None = None
        self.continued = False
        if isinstance(before, Sum):
            before.continued = True
        self.when_wanted: Callable[[Sum], None] | None = None

    @property
    def rows(self) -> int:
        return int(self.shape[0])

    @property
    def formed(self) -> bool:
        return self._value is not None

    @property
    def matrix(self) -> np.ndarray:  # type: ignore[override]
        if self._value is None and self.when_wanted is not None:
            self.when_wanted(self)
        return self.form()

    def form(self) -> np.ndarray:
        """Add the products up, in program order."""
        if self._value is None:
            self._value = self.recipe().form()
            self._before = self._product = None
        return self._value

    def recipe(self) -> Recipe:
        """What is to be added up."""
        products: list[Product] = []
        link: Sum | np.ndarray | None = self
        while isinstance(link, Sum) and link._product is not None:
            products.append(link._product)
            link = link._before
        return Recipe(link._value if isinstance(link, Sum) else link, products[::-1])


class Product(NamedTuple):
    """A (m x k) B (k x n), both as they lie in L0."""

    a: Blocks
    b: Blocks
    m: int
    n: int
    k: int

    def form(self) -> np.ndarray:
        return cube_product(l0a_to_matrix(self.a, self.m, self.k), l0b_to_matrix(self.b, self.k, self.n))


class Recipe(NamedTuple):
    """Where a sum starts, if not from nothing, and the products that follow."""

    start: np.ndarray | None
    products: list[Product]

    def form(self) -> np.ndarray:
        total = self.start
        for each in self.products:
            product = each.form()
            total = product if total is None else np.add(total, product, out=product)
        if total is None:
            raise TypeError("a sum has at least one product")
        return total


def product_in_l0c(c: Blocks | None, a: Blocks, b: Blocks, m: int, n: int, k: int) -> Sum:
    """C + A B, or A B where there is no C. Formed at once unless all operands are matrices that somebody keeps: those
    must not change before."""
    before: Sum | np.ndarray | None = None
    if c is not None:
        before = c if isinstance(c, Sum) and c.shape == (m, n) else l0c_to_matrix(c, m, n)
    total = Sum(Product(a, b, m, n, k), before)
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) or isinstance(c, np.ndarray):
        total.form()
    return total


def l0c_to_matrix(blocks: Blocks, m: int, n: int) -> np.ndarray:
    if isinstance(blocks, Laid):
        return _resized(blocks.matrix, m, n)
    n1, rows, _ = blocks.shape
    return blocks.transpose(1, 0, 2).reshape(rows, n1 * FRACTAL)[:m, :n]


# ---- arithmetic ---------------------------------------------------------------------------------------------------


def constant(value: float, dtype: np.dtype) -> np.ndarray:
    """A scalar operand as one element: floats are rounded; integers are cut and saturated, NaN is their zero."""
    if dtype.kind not in "iu":
        return np.asarray(np.float32(value)).astype(dtype)
    limits = np.iinfo(dtype)
    return np.array(0 if math.isnan(value) else int(min(max(value, float(limits.min)), float(limits.max))), dtype)


def cube_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A (m x k) times B (k x n): floats in fp32, int8 exactly into int32. The one product of both engines.

    The bits of a BLAS product depend on how its factors lie in memory: small ones go to routines of their own for each
    layout. They always go there densely, row by row.
    Each integer sum is exact in the float type it is formed in: every product is at most 2**14, so fp32 holds
    k < 2**10 of them and fp64 any k the cube takes.
    """
    if a.dtype == np.int8:
        exact = np.float32 if a.shape[-1] < 1 << 10 else np.float64
        sums: np.ndarray = np.matmul(a.astype(exact), b.astype(exact))
        return sums.astype(np.int32)
    product: np.ndarray = np.matmul(np.ascontiguousarray(to_fp32(a)), np.ascontiguousarray(to_fp32(b)))
    return product
