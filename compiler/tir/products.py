"""Which blocks are products for the matrix unit, and what their loops are to it.

A product is ``c[..] += cast(a[..]) * cast(b[..])``. Its loops have roles, by where they appear: *m* in c and a, *n* in
c and b, *k* in a and b only, *batch* everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import ir, s_tir, tirx
from tvm.sym import detect_linear_equation

from compiler.tir.sblocks import block_with
from compiler.tir.structure import structural_map, structural_walk

PRODUCTS = ("matmul", "convolution")  # values of "tw.role"
CONVOLUTION_AXES = 11  # of the sums of a convolution: six of its result, and five that are summed over


def is_product(block: Any) -> bool:
    """Whether a block is a sum of products for the cube: it says so, or reads two operands as matrices.

    What is multiplied with itself is read once, as far as a block says: it has no second operand to bring anywhere.
    """
    if not adds_products(block):
        return False
    a, b = operands_of(block)
    if not all(isinstance(side, ir.TensorLoad) for side in (a, b)) or a.source.same_as(b.source):
        return False
    role = block.annotations.get("tw.role")
    if role in PRODUCTS and (role != "convolution" or len(block.iter_vars) == CONVOLUTION_AXES):
        return True
    if not begins_with_zero(block):
        return False
    store = block.body
    if a.source.dtype != b.source.dtype or str(store.buffer.dtype) not in ("float32", "int32"):
        return False
    left, right, kept = (set(variables_in(load.indices)) for load in (a, b, store))
    if not (left & right) - kept or not (left ^ right) & kept:
        return False
    variables, roles = [axis.var for axis in block.iter_vars], roles_of(block)
    inner = {var for var, role in zip(variables, roles, strict=True) if role in "mnk"}
    is_one = roles.count("k") == 1 and all(_is_matrix(load, variables, inner) for load in (a, b))
    return is_one and _ends_with_columns(store, dict(zip(variables, roles, strict=True)))


def adds_products(block: Any) -> bool:
    """Whether what a block sums are products of two factors."""
    store = block.body
    is_sum = block.init is not None and isinstance(store, tirx.BufferStore) and isinstance(store.value, tirx.Add)
    return is_sum and isinstance(store.value.b, tirx.Mul)


def begins_with_zero(block: Any) -> bool:
    """Whether the sum of a block does."""
    start = getattr(block.init, "value", None)
    return isinstance(start, tirx.IntImm | tirx.FloatImm) and start.value == 0


def columns_second(func: Any) -> Any:
    """The function with the factors of a product the other way round where that makes it one for the cube.

    The second one is who says where in a row of the result a sum goes.
    """

    def turned(block: Any) -> Any:
        store, reads = block.body, list(block.reads)
        if block.init is None or len(reads) != 2 or not isinstance(store, tirx.BufferStore) or is_product(block):
            return block
        if not isinstance(store.value, tirx.Add) or not isinstance(store.value.b, tirx.Mul):
            return block
        factors = store.value.b
        total = tirx.Add(store.value.a, tirx.Mul(factors.b, factors.a))
        body = tirx.BufferStore(store.buffer, total, store.indices)
        other = block_with(block, body=body, reads=reads[::-1])
        return other if is_product(other) else block

    return func.with_body(structural_map(func.body, (s_tir.SBlock, turned)))


def _is_matrix(load: Any, variables: Sequence[Any], inner: set[Any]) -> bool:
    """Whether the loops of a tile, which are ``inner``, each move one axis of what is read, alone and step by step, and
    one of them the last axis. Where a tile begins, the other loops may say as they like.
    """
    moved = list[Any]()
    for index in load.indices:
        found = detect_linear_equation(index, variables)
        if len(found) != len(variables) + 1 or not all(isinstance(factor, tirx.IntImm) for factor in found):
            return False
        factors = {var: int(factor) for var, factor in zip(variables, found, strict=False) if var in inner}
        moving = [var for var, factor in factors.items() if factor]
        if len(moving) > 1 or any(factors[var] != 1 for var in moving):
            return False
        moved += moving
    return len(set(moved)) == len(moved) and bool(moving)


def _ends_with_columns(store: Any, roles: Mapping[Any, str]) -> bool:
    """Whether columns of a tile lie side by side in the result; where there are none, and no batch, its rows."""
    last = roles.get(store.indices[-1], "") if store.indices else ""
    if "n" in roles.values():
        return last == "n"
    return last == "m" and not any(role.startswith("batch") for role in roles.values())


def roles_of(block: Any) -> list[str]:
    """Of each axis of a product. Of several loops along rows of a (or columns of b) all but the last have the role
    *batch of a* (or b)."""
    a, b = (set(variables_in(load.indices)) for load in operands_of(block))
    c = set(variables_in(block.body.indices))
    roles: list[str] = []
    for axis in block.iter_vars:
        held = (axis.var in c, axis.var in a, axis.var in b)
        roles.append({(1, 1, 0): "m", (1, 0, 1): "n", (0, 1, 1): "k"}.get(held, "batch"))
    for role, outer in (("m", "batch of a"), ("n", "batch of b")):
        for axis in [i for i, r in enumerate(roles) if r == role][:-1]:
            roles[axis] = outer
    return roles


def operands_of(block: Any) -> tuple[Any, Any]:
    """The loads of a and b in ``c + cast(a) * cast(b)``."""
    product = block.body.value.b
    return tuple(side.value if isinstance(side, tirx.Cast) else side for side in (product.a, product.b))


def variables_in(indices: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for index in indices:
        structural_walk(index, lambda node: found.append(node) if isinstance(node, tirx.Var) else None)
    return found
