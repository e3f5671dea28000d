"""What a kernel says of the bytes that it touches holds for what it does."""

from __future__ import annotations

from tvm.script import tirx as T

from compiler.codegen import generate
from compiler.codegen.touches import Touch, Use
from compiler.target import load_chip

TINY = load_chip("tiny")


@T.prim_func(s_tir=True, private=True)
def rows(x: T.Buffer((8, 64), "float32"), y: T.Buffer((8, 64), "float32"), z: T.Buffer((8, 64), "float32")) -> None:
    bx = T.launch_thread("blockIdx.x", 2)
    ub = T.alloc_buffer((64,), scope="local.ub", annotations={"tw.address": 0})
    for i in range(4):
        T.evaluate(
            T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(ub[0]), 1, T.address_of(x[bx * 4 + i, 0]), 1, 64)
        )
        T.evaluate(
            T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(y[i * 2 + bx, 0]), 1, T.address_of(ub[0]), 1, 64)
        )
        T.evaluate(
            T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(z[(bx + 1) % 2, i]), 1, T.address_of(ub[0]), 1, 32)
        )


def test_bytes_of_each_core() -> None:
    touches = {touch.parameter: touch for touch in generate(rows, TINY).touched.touches}
    assert touches[0] == Touch(0, "mte2", reads=True, writes=False, low=(0, 1024), high=(1024, 2048))
    assert touches[1] == Touch(1, "mte3", reads=False, writes=True, low=(0, 256), high=(1792, 2048))
    assert touches[2] == Touch(2, "mte3", reads=False, writes=True, low=(256, 0), high=(396, 140))


def test_memories_of_the_core() -> None:
    assert set(generate(rows, TINY).touched.uses) == {Use("ub", "mte2", True), Use("ub", "mte3", False)}


def test_what_copies_reach_can_be_moved_to_llb() -> None:
    """From any address on: `z` is written at multiples of four bytes."""
    assert generate(rows, TINY).touched.movable == (0, 1, 2)


def test_where_data_decides_all_of_it_may_be_touched() -> None:
    @T.prim_func(s_tir=True, private=True)
    def picked(index: T.Buffer((1,), "int32"), x: T.Buffer((8, 64), "float32")) -> None:
        bx = T.launch_thread("blockIdx.x", 2)
        ub = T.alloc_buffer((64,), scope="local.ub", annotations={"tw.address": 0})
        T.evaluate(
            T.call_extern(
                "void", "tw.ld.ddr.ub.fp32.1d", T.address_of(ub[0]), 1, T.address_of(x[index[0] + bx, 0]), 1, 64
            )
        )

    touches = {touch.parameter: touch for touch in generate(picked, TINY).touched.touches}
    assert (touches[1].low, touches[1].high) == ((0, 0), (2048, 2048))
    assert touches[0].queue == "s"
