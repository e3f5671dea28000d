"""What the buffers around the cube take: fractal layouts round rows and columns up."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from tvm import ir, tirx
from tvm_ffi import structural_walk

from compiler.emission.cube.places import MARK, l0_bytes, l1_matrix_bytes
from compiler.emission.cube.windows import map_axes, map_bytes
from compiler.tir.scopes import ISA_DTYPE

PRODUCT = "product"


def physical_sizes(body: Any) -> dict[Any, int]:
    """Bytes of every buffer that a marked nest fills, by buffer; the largest where several nests do."""
    sizes: dict[Any, int] = {}

    def visit(mark: Any) -> None:
        store = _store_in(mark.body) if str(mark.attr_key) == MARK else None
        if store is not None:
            for buffer, size in _sizes(str(mark.value.value), store):
                sizes[buffer] = max(size, sizes.get(buffer, 0))

    structural_walk(body, (tirx.AttrStmt, visit))
    return sizes


def _store_in(stmt: Any) -> Any | None:
    """The store of a nest, or None where simplification left nothing of it."""
    while isinstance(stmt, tirx.For | tirx.IfThenElse):
        stmt = stmt.then_case if isinstance(stmt, tirx.IfThenElse) else stmt.body
    return stmt if isinstance(stmt, tirx.BufferStore) else None


def _sizes(mark: str, store: Any) -> Iterator[tuple[Any, int]]:
    buffer = store.buffer
    dtype = ISA_DTYPE[str(buffer.dtype)]
    axes = map_axes(mark)
    if mark == PRODUCT and isinstance(store.value, tirx.Add):
        yield from _product_sizes(store)
    elif buffer.scope() == "shared.l1" and axes is not None:
        yield buffer, map_bytes(tuple(int(n) for n in buffer.shape), axes, dtype)
    elif buffer.scope() == "shared.l1" and mark == "operand":
        matrices = prod(int(n) for n in buffer.shape[:-2])
        yield buffer, matrices * l1_matrix_bytes(buffer, dtype)


def _product_sizes(store: Any) -> Iterator[tuple[Any, int]]:
    """A dimension that an index of the product moves along belongs to what the index counts: rows, columns or k."""
    loads: list[Any] = []
    structural_walk(store.value, (ir.TensorLoad, loads.append))
    a, b = (next(load for load in loads if load.source.scope() == scope) for scope in ("local.l0a", "local.l0b"))
    in_b, in_c = _variables(b.indices), _variables(store.indices)
    rows_of_one = 0
    for buffer, indices, along in (
        (a.source, a.indices, in_b),
        (b.source, b.indices, in_c),
        (store.buffer, store.indices, in_b),
    ):
        second = prod(int(n) for n, index in zip(buffer.shape, indices, strict=True) if _variables([index]) & along)
        first = prod(int(n) for n in buffer.shape) // second
        rows_of_one = rows_of_one or first
        # L0C holds products of as many rows one after another.
        several = buffer.scope() == "local.l0c" and first % rows_of_one == 0
        count = first // rows_of_one if several else 1
        yield buffer, count * l0_bytes(buffer.scope(), first // count, second, ISA_DTYPE[str(buffer.dtype)])


def _variables(indices: Any) -> set[Any]:
    found: set[Any] = set()
    for index in indices:
        structural_walk(index, (ir.Var, found.add))
    return found
