"""Kernels in loop form as schedule templates make them: tiled over cores, staged through on-chip buffers, ragged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import ir, s_tir, te, tirx, topi

from compiler.tiling.footprint import lower_blocks


def tiled(*tensors: te.Tensor, tile: list[int], reads: tuple[tuple[str, int], ...] = (), inlined: bool = False) -> Any:
    """The last tensor in tiles spread over four cores, what it needs computed beside each tile, all through UB."""
    schedule = s_tir.Schedule(te.create_prim_func(list(tensors)), error_render_level="none")
    root = schedule.get_sblock("root")
    out = schedule.get_output_blocks(root)[0]
    others = [b for b in schedule.get_child_blocks(root) if not schedule.get(b).same_as(schedule.get(out))]
    pairs = [schedule.split(loop, [None, n]) for loop, n in zip(schedule.get_loops(out), tile, strict=False)]
    outer = [pair[0] for pair in pairs]
    schedule.reorder(*outer, *(pair[1] for pair in pairs))
    core, rest = schedule.split(outer[0], [4, None])
    schedule.bind(core, "blockIdx.x")
    at = [rest, *outer[1:]][-1]
    for block in reversed(others):
        if inlined:
            schedule.compute_inline(block)
        else:
            schedule.compute_at(block, at, preserve_unit_loops=True)
            schedule.set_scope(block, 0, "local.ub")
    written = schedule.cache_write(out, 0, "local.ub")
    schedule.reverse_compute_at(written, at, preserve_unit_loops=True)
    for name, operand in reads:
        read = schedule.cache_read(schedule.get_sblock(name), operand, "local.ub")
        schedule.compute_at(read, at, preserve_unit_loops=True)
    lowered = lower_blocks(schedule.mod["main"])
    return tirx.transform.StmtSimplify()(ir.IRModule({"main": lowered}))["main"]


def staged_matmul(m: int, n: int, k: int, tile: tuple[int, int, int], dtype: str = "float16") -> Any:
    """A product through L1, L0 and L0C, its reduction in tiles."""
    a, b = te.placeholder((m, k), dtype, "a"), te.placeholder((k, n), dtype, "b")
    axis = te.reduce_axis((0, k), "k")
    product = te.compute(
        (m, n),
        lambda i, j: te.sum(a[i, axis].astype("float32") * b[axis, j].astype("float32"), axis),
        "product",
    )
    schedule = s_tir.Schedule(te.create_prim_func([a, b, product]), error_render_level="none")
    block = schedule.get_sblock("product")
    i, j, r = schedule.get_loops(block)
    (io, ii), (jo, ji), (ro, ri) = (schedule.split(v, [None, t]) for v, t in zip((i, j, r), tile, strict=True))
    schedule.reorder(io, jo, ro, ii, ji, ri)
    schedule.bind(io, "blockIdx.x")
    written = schedule.cache_write(block, 0, "local.l0c")
    schedule.reverse_compute_at(written, jo, preserve_unit_loops=True)
    for operand, scope in ((0, "local.l0a"), (1, "local.l0b")):
        near = schedule.cache_read(block, operand, scope)
        far = schedule.cache_read(near, 0, "shared.l1")
        schedule.compute_at(near, ro, preserve_unit_loops=True)
        schedule.compute_at(far, ro, preserve_unit_loops=True)
    lowered = lower_blocks(schedule.mod["main"])
    return tirx.transform.StmtSimplify()(ir.IRModule({"main": lowered}))["main"]


def _x(*shape: int, dtype: str = "float32") -> te.Tensor:
    return te.placeholder(shape, dtype, "x")


def _elementwise(dtype: str) -> Any:
    x = _x(37, 53, dtype=dtype)
    return tiled(x, te.compute(x.shape, lambda i, j: x[i, j] * x[i, j], "y"), tile=[5, 16], reads=(("y", 0),))


def _layer_norm() -> Any:
    x, scale, bias = _x(37, 53), te.placeholder((53,), "float32", "g"), te.placeholder((53,), "float32", "b")
    return tiled(x, scale, bias, topi.nn.layer_norm(x, scale, bias, [1]), tile=[5])


def _softmax() -> Any:
    x = _x(3, 7, 13, dtype="float16")
    return tiled(x, topi.nn.softmax(x, axis=2), tile=[1, 3])


def _pad() -> Any:
    x = _x(1, 5, 13, 11)
    return tiled(x, topi.nn.pad(x, [0, 0, 1, 1], [0, 0, 1, 2], 0.0), tile=[1, 2, 4])


def _pool(kind: str, inlined: bool) -> Any:
    x = _x(1, 5, 14, 14)
    pooled = topi.nn.pool2d(x, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), kind, count_include_pad=False)
    return tiled(x, pooled, tile=[1, 2, 4], inlined=inlined)


def _convolution(inlined: bool) -> Any:
    x, w = _x(1, 6, 9, 9), te.placeholder((4, 6, 3, 3), "float32", "w")
    return tiled(x, w, topi.nn.conv2d(x, w, 2, 1, 1), tile=[1, 4, 3], inlined=inlined)


def _im2col() -> Any:
    x = _x(2, 9, 9)
    padded = topi.nn.pad(x, [0, 1, 1], [0, 1, 1], 0.0)
    columns = te.compute((2, 3, 3, 9, 9), lambda c, kh, kw, h, w: padded[c, h + kh, w + kw], "columns")
    return tiled(x, columns, tile=[1, 2, 2], inlined=True)


def _concatenation() -> Any:
    parts = [te.placeholder((5, n), "float32", f"x{n}") for n in (3, 7, 2)]
    return tiled(*parts, topi.concatenate(parts, 1), tile=[2, 5])


def _reflection() -> Any:
    x = _x(3, 13)
    return tiled(x, topi.nn.mirror_pad(x, [0, 2], [0, 2], "REFLECT"), tile=[2])


def _edge() -> Any:
    x = _x(3, 13)
    return tiled(x, te.compute((3, 17), lambda i, j: x[i, te.max(te.min(j - 2, 12), 0)], "y"), tile=[2, 5])


def _gather() -> Any:
    x, rows = _x(9, 13), te.placeholder((7,), "int32", "rows")
    return tiled(x, rows, te.compute((7, 13), lambda i, j: x[rows[i], j], "y"), tile=[3])


def _nearest_resize() -> Any:
    x = _x(1, 3, 5, 5)
    return tiled(x, te.compute((1, 3, 10, 10), lambda n, c, h, w: x[n, c, h // 2, w // 2], "y"), tile=[1, 2, 4])


def _depth_to_space() -> Any:
    x = _x(1, 12, 3, 5)
    shuffled = te.compute((1, 3, 6, 10), lambda n, c, h, w: x[n, (h % 2 * 2 + w % 2) * 3 + c, h // 2, w // 2], "y")
    return tiled(x, shuffled, tile=[1, 1, 4])


def _reshape_and_transpose() -> Any:
    x = _x(6, 35)
    return tiled(x, topi.transpose(topi.reshape(x, (14, 15)), (1, 0)), tile=[4], inlined=True)


def _tile() -> Any:
    x = _x(3, 5)
    return tiled(x, topi.tile(x, (2, 3)), tile=[2])


def _two_reduced_axes() -> Any:
    x = _x(3, 11, 13)
    r, s = te.reduce_axis((0, 11), "r"), te.reduce_axis((0, 13), "s")
    total = te.compute((3,), lambda i: te.sum(x[i, r, s], [r, s]), "total")
    schedule = s_tir.Schedule(te.create_prim_func([x, total]), error_render_level="none")
    block = schedule.get_sblock("total")
    i, r0, s0 = schedule.get_loops(block)
    (ro, ri), (so, si) = schedule.split(r0, [None, 4]), schedule.split(s0, [None, 5])
    schedule.reorder(i, ro, so, ri, si)
    lowered = lower_blocks(schedule.mod["main"])
    return tirx.transform.StmtSimplify()(ir.IRModule({"main": lowered}))["main"]


SCHEDULES: dict[str, Callable[[], Any]] = {
    "elementwise": lambda: _elementwise("float32"),
    "elementwise-bf16": lambda: _elementwise("bfloat16"),
    "elementwise-int8": lambda: _elementwise("int8"),
    "layer-norm": _layer_norm,
    "softmax-fp16": _softmax,
    "pad": _pad,
    "max-pool": lambda: _pool("max", False),
    "max-pool-inlined": lambda: _pool("max", True),
    "average-pool": lambda: _pool("avg", False),
    "convolution": lambda: _convolution(False),
    "convolution-inlined": lambda: _convolution(True),
    "im2col": _im2col,
    "concatenation": _concatenation,
    "reflection": _reflection,
    "edge": _edge,
    "gather": _gather,
    "nearest-resize": _nearest_resize,
    "depth-to-space": _depth_to_space,
    "reshape-and-transpose": _reshape_and_transpose,
    "tile": _tile,
    "two-reduced-axes": _two_reduced_axes,
    "matmul": lambda: staged_matmul(50, 37, 41, (16, 16, 16)),
    "matmul-one-row": lambda: staged_matmul(1, 37, 64, (16, 16, 16)),
}
