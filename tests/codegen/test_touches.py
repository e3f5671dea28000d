"""What a kernel says of the bytes that it touches holds for what it does."""

from __future__ import annotations

import numpy as np
from tvm.script import tirx as T

from compiler.codegen import generate
from compiler.codegen.touches import Touch, Use
from compiler.isa import img2col
from compiler.isa.model import Args
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


def test_what_windows_touch_ends_where_the_greatest_of_them_do() -> None:
    """Windows between two others' extents stay within what is said of these."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        given = {"h": int(rng.integers(3, 9)), "w": int(rng.integers(3, 9)), "c1_stride": 2048, "dilation_h": 1}
        given |= {"kh": int(rng.integers(1, 4)), "kw": int(rng.integers(1, 4)), "stride_h": 1, "stride_w": 1}
        given |= {"dilation_w": 1, "pad_top": 1, "pad_bottom": 1, "pad_left": 1, "pad_right": 1}
        starts = {"m": (1, 32), "k": (16, 160), "m_start": (0, 16), "k_start": (0, 288)}
        drawn = {name: int(rng.integers(low // 16, high // 16 + 1)) * 16 for name, (low, high) in starts.items()}
        least, args, most = (
            Args(dtype="fp16", **given, **values)
            for values in ({n: s[0] for n, s in starts.items()}, drawn | {"m": 1}, {n: s[1] for n, s in starts.items()})
        )
        extents, strides = img2col.source_extents(args), img2col.source_strides(args)
        reached = sum((extent - 1) * stride for extent, stride in zip(extents, strides, strict=True)) + 1
        assert img2col.source_offset(args) + reached <= img2col.source_end(least, most)
