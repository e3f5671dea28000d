"""What the buffers around the cube take: fractal layouts round rows and columns up."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from tvm import ir, tirx

from compiler.emission.cube.feature_maps import map_axes, map_bytes
from compiler.emission.cube.halves import DTYPE, HALVES, PARTS, halves_bytes
from compiler.emission.cube.places import MARK, l0_bytes, l1_matrix_bytes
from compiler.isa.timing import ceil_div
from compiler.tir.scopes import ISA_DTYPE
from compiler.tir.structure import structural_walk

PRODUCT = "product"


def physical_sizes(body: Any) -> dict[Any, int]:
    """Bytes of every buffer that a marked nest fills, by buffer; the largest where several nests do."""
    sizes: dict[Any, int] = {}
    for mark, store, loops in _marked(body):
        for buffer, size in _sizes(mark, store, loops):
            sizes[buffer] = max(size, sizes.get(buffer, 0))
    return sizes


def rows_of_one(body: Any) -> dict[Any, int]:
    """Of every buffer in L0C that holds several products: the rows of each but the last."""
    found: dict[Any, int] = {}
    for mark, store, loops in _marked(body):
        if _is_product(mark, store):
            rows, of_all = _rows(store, loops)
            if of_all > rows:
                found[store.buffer] = max(rows, found.get(store.buffer, 0))
    return found


def _marked(body: Any) -> list[tuple[str, Any, dict[Any, Any]]]:
    """What a template says of each nest that it marks, the nest's store, and its loops' extents by variable."""
    found: list[tuple[str, Any, dict[Any, Any]]] = []

    def visit(mark: Any) -> None:
        loops = dict[Any, Any]()
        store = _store_in(mark.body, loops) if str(mark.attr_key) == MARK else None
        if store is not None:
            found.append((str(mark.value.value), store, loops))

    structural_walk(body, (tirx.AttrStmt, visit))
    return found


def _store_in(stmt: Any, loops: dict[Any, Any]) -> Any | None:
    """The store of a nest, or None where simplification left nothing of it. Notes the nest's loops."""
    while isinstance(stmt, tirx.For | tirx.IfThenElse):
        if isinstance(stmt, tirx.For):
            loops[stmt.loop_var] = stmt.extent
        stmt = stmt.then_case if isinstance(stmt, tirx.IfThenElse) else stmt.body
    return stmt if isinstance(stmt, tirx.BufferStore) else None


def _is_product(mark: str, store: Any) -> bool:
    return mark == PRODUCT and isinstance(store.value, tirx.Add)


def _sizes(mark: str, store: Any, loops: dict[Any, Any]) -> Iterator[tuple[Any, int]]:
    buffer = store.buffer
    dtype = ISA_DTYPE[str(buffer.dtype)]
    axes = map_axes(mark)
    if _is_product(mark, store):
        yield from _product_sizes(store, loops)
    elif buffer.scope() == "shared.l1" and axes is not None:
        yield buffer, map_bytes(tuple(int(n) for n in buffer.shape), axes, dtype)
    elif buffer.scope() == "shared.l1" and mark == "operand":
        matrices = prod(int(n) for n in buffer.shape[:-2])
        yield buffer, matrices * l1_matrix_bytes(buffer, dtype)
    elif mark == HALVES and buffer.scope() == "shared.l1":
        yield buffer, halves_bytes(int(buffer.shape[0]))
    elif mark == HALVES:
        yield buffer, l0_bytes(buffer.scope(), PARTS, int(buffer.shape[0]), DTYPE)


def _product_sizes(store: Any, loops: dict[Any, Any]) -> Iterator[tuple[Any, int]]:
    a, b = _factors(store)
    for load, along in ((a, _variables(b.indices)), (b, _variables(store.indices))):
        read = [(n, index) for n, index in zip(load.source.shape, load.indices, strict=True) if _variables([index])]
        first, second = _split([n for n, _ in read], [index for _, index in read], along)
        yield load.source, l0_bytes(load.source.scope(), first, second, ISA_DTYPE[str(load.source.dtype)])
    rows, of_all = _rows(store, loops)
    columns = prod(int(n) for n in store.buffer.shape) // of_all
    one = l0_bytes(store.buffer.scope(), rows, columns, ISA_DTYPE[str(store.buffer.dtype)])
    yield store.buffer, ceil_div(of_all, rows) * one


def _factors(store: Any) -> tuple[Any, Any]:
    loads: list[Any] = []
    structural_walk(store.value, (ir.TensorLoad, loads.append))
    a, b = (next(load for load in loads if load.source.scope() == scope) for scope in ("local.l0a", "local.l0b"))
    return a, b


def _rows(store: Any, loops: dict[Any, Any]) -> tuple[int, int]:
    """Of one product, as many as there are of its operand, and of all that lie in its buffer.

    Of overlaid windows each product has a part of its operand's rows: those of its loops, which have fewer iterations
    at an edge only where it is the only one.
    """
    a, b = _factors(store)
    in_b = _variables(b.indices)
    of_all, _ = _split(store.buffer.shape, store.indices, in_b)
    own, around = {*loops}, in_b - {*loops}
    if any(_variables([index]) & own and _variables([index]) & around for index in a.indices):
        extents = [loops[var] for var in (_variables(a.indices) - in_b) & own]
        known = all(isinstance(extent, tirx.IntImm) for extent in extents)
        return prod(map(int, extents)) if known else of_all, of_all
    rows, _ = _split(a.source.shape, a.indices, in_b)
    return min(rows, of_all), of_all


def _split(shape: Any, indices: Any, along: set[Any]) -> tuple[int, int]:
    """Elements of the dimensions whose indices do not move along these variables, and of those that do.

    A dimension that an index of the product moves along belongs to what the index counts: rows, columns or k.
    """
    second = prod(int(n) for n, index in zip(shape, indices, strict=True) if _variables([index]) & along)
    return prod(int(n) for n in shape) // second, second


def _variables(indices: Any) -> set[Any]:
    found: set[Any] = set()
    for index in indices:
        structural_walk(index, (ir.Var, found.add))
    return found
