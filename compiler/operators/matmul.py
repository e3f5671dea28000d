"""Products of matrices. Floating-point products are summed in float32, integer ones in int32."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from compiler.operators import refusals
from compiler.operators.broadcast import FLOATS, broadcast_index, broadcast_shape, dtype_of, read, shape_of
from compiler.operators.registry import operator

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32")


def product_dtype(**tensors: Any) -> str:
    """The type in which products of these tensors are summed; they must be of one kind."""
    dtypes = {dtype_of(tensor) for tensor in tensors.values()}
    if len(dtypes) == 1 and dtypes <= set(FLOATS):
        return "float32"
    if dtypes <= set(INTEGERS):
        return "int32"
    raise refusals.wrong_dtype("the factors must be of one floating-point type, or integers", **tensors)


def product(a: te.Tensor, b: te.Tensor, transpose_a: bool = False, transpose_b: bool = False) -> te.Tensor:
    """The stage "matmul" by numpy's rules (batches broadcast, 1-D operands lose their axis), not yet cast back."""
    dtype = product_dtype(a=a, b=b)
    a_shape, b_shape = shape_of(a), shape_of(b)
    if not a_shape or not b_shape:
        raise refusals.wrong_shape("a factor needs at least one axis", a=a, b=b)
    rows = a_shape[-1 if transpose_a else -2 :][:1] if len(a_shape) > 1 else ()
    columns = b_shape[-2 if transpose_b else -1 :][:1] if len(b_shape) > 1 else ()
    depth = a_shape[-2] if transpose_a and rows else a_shape[-1]
    if depth != (b_shape[-1] if transpose_b or not columns else b_shape[-2]):
        raise refusals.wrong_shape("the columns of a must be as many as the rows of b", a=a, b=b)
    batch = broadcast_shape(a=te.placeholder(a_shape[:-2]), b=te.placeholder(b_shape[:-2]))
    if depth == 0:
        return te.compute((*batch, *rows, *columns), lambda *_: tirx.const(0, dtype), "matmul")
    k = te.reduce_axis((0, depth), "k")

    def sum_of_products(*indices: Any) -> Any:
        outer = indices[: len(batch)]
        row = indices[len(batch) : len(batch) + len(rows)]
        column = indices[len(indices) - len(columns) :] if columns else ()
        a_index = (k, *row) if transpose_a else (*row, k)
        b_index = (*column, k) if transpose_b else (k, *column)
        left = a[(*broadcast_index(a_shape[:-2], outer), *a_index)]
        right = b[(*broadcast_index(b_shape[:-2], outer), *b_index)]
        return te.sum(left.astype(dtype) * right.astype(dtype), axis=k)

    return te.compute((*batch, *rows, *columns), sum_of_products, "matmul", attrs={"tw.role": "matmul"})


def cast_stage(tensor: te.Tensor, dtype: str) -> te.Tensor:
    """``tensor`` itself when it is of the type already."""
    if dtype_of(tensor) == dtype:
        return tensor
    return te.compute(shape_of(tensor), lambda *i: tensor[i].astype(dtype), "cast")


@operator("MatMul", schedule="matmul")
def matmul(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    return cast_stage(product(a, b), dtype_of(a))


@operator("tilewright::Product", schedule="matmul")
def uncast_product(a: te.Tensor, b: te.Tensor, *, transpose_a: bool = False, transpose_b: bool = False) -> te.Tensor:
    """The product in the type in which it is summed: float32 or int32."""
    return product(a, b, transpose_a, transpose_b)


@operator("Gemm", schedule="matmul")
def gemm(
    a: te.Tensor,
    b: te.Tensor,
    c: te.Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: bool = False,
    transB: bool = False,
) -> te.Tensor:
    """``alpha * a @ b + beta * c``; the sum and its factors are in the type of the product's sums."""
    if len(shape_of(a)) != 2 or len(shape_of(b)) != 2:
        raise refusals.wrong_shape("the factors must be matrices", a=a, b=b)
    dtype = dtype_of(a)
    products = product(a, b, transA, transB)
    sums = dtype_of(products)
    if sums == "int32" and not (alpha.is_integer() and beta.is_integer()):
        raise refusals.wrong_value("must be integers for integer matrices", "alpha, beta", (alpha, beta))
    if c is not None and broadcast_shape(c=c, product=products) != shape_of(products):
        raise refusals.wrong_shape("c must broadcast to the product", c=c, product=products)
    if c is None and alpha == 1:
        return cast_stage(products, dtype)

    def epilogue(*i: Any) -> Any:
        value = products[i] if alpha == 1 else products[i] * tirx.const(alpha, sums)
        if c is not None and beta != 0:
            term = read(c, i).astype(sums)
            value = value + (term if beta == 1 else term * tirx.const(beta, sums))
        return value.astype(dtype)

    return te.compute(shape_of(products), epilogue, "gemm")
