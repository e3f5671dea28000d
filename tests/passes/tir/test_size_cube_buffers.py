"""SizeCubeBuffers: fractal buffers say how many bytes they take."""

from __future__ import annotations

from tvm import tirx
from tvm.script import tirx as T
from tvm_ffi import structural_walk

from compiler.target import load_chip
from passes.tir.size_cube_buffers import BYTES, SizeCubeBuffers


def test_a_matrix_in_l1_is_rounded_up_to_fractal_rows() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((100, 77), "float16")):
        near = T.alloc_buffer((100, 77), "float16", scope="shared.l1")
        with T.attr(0, "pragma_tw_cube", "operand"):
            for i in range(100):
                for j in range(77):
                    near[i, j] = a[i, j]

    after = SizeCubeBuffers().run(before, load_chip("tiny"))
    sizes: list[int] = []
    structural_walk(after.body, (tirx.AllocBuffer, lambda node: sizes.append(int(node.annotations[BYTES]))))
    assert sizes == [100 * 80 * 2]
    assert SizeCubeBuffers().run(after, load_chip("tiny")).same_as(after)


def test_a_kernel_without_the_cube_stays_the_same() -> None:
    @T.prim_func(private=True)
    def before(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
        for i in range(16):
            b[i] = a[i]

    assert SizeCubeBuffers().run(before, load_chip("tiny")) is before
