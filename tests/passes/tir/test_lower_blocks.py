"""LowerBlocks: from a schedule to loops over buffers with scopes."""

from __future__ import annotations

from tvm import s_tir, te, tirx
from tvm_ffi import structural_walk

from compiler.target import load_chip
from compiler.tiling import vector
from passes.tir.lower_blocks import LowerBlocks


def test_a_ragged_tile_becomes_loops_with_guards() -> None:
    x = te.placeholder((1000, 77), "float32", "x")
    y = te.compute((1000, 77), lambda i, j: x[i, j] + tirx.const(1, "float32"), "y")
    chip = load_chip("tw1")
    tiled = vector.schedule(te.create_prim_func([x, y]), chip, 0).func
    lowered = LowerBlocks().run(tiled, chip)
    blocks: list[object] = []
    scopes: list[str] = []
    structural_walk(lowered, (s_tir.SBlock, blocks.append))
    structural_walk(lowered, (tirx.AllocBuffer, lambda node: scopes.append(node.buffer.scope())))
    assert not blocks
    assert scopes == ["local.ub", "local.ub"]
    assert "if " in lowered.script()
