"""WorkInPlace: what came out of the matrix unit is written over by the last that reads it."""

from __future__ import annotations

from typing import Any

import tvm
from tvm.script import tirx as T

from compiler.target import load_chip
from passes.tir.work_in_place import WorkInPlace

TW2 = load_chip("tw2")
FIX = "tw.fix.ub.nd.fp16.fp32.none"
EXP, ADD, STORE = "tw.vexpsub.fp16.2d", "tw.vadd.fp16.1d", "tw.st.ddr.fp16.1d"


def keeps(kernel: Any) -> None:
    assert WorkInPlace().run(kernel, TW2).same_as(kernel)


def test_exponentials_take_the_place_of_what_they_are_of() -> None:
    @T.prim_func(s_tir=True, private=True)
    def before(m: T.Buffer((16,), "float16"), o: T.Buffer((4, 16, 16), "float16")) -> None:
        for i in range(4):
            c = T.alloc_buffer((16, 16), scope="local.l0c")
            s = T.alloc_buffer((16, 16), "float16", scope="local.ub")
            p = T.alloc_buffer((16, 16), "float16", scope="local.ub")
            u = T.alloc_buffer((16,), "float16", scope="local.ub")
            for k in range(2):
                T.call_extern("void", FIX, T.address_of(s[k * 8, 0]), T.address_of(c[k * 8, 0]), 8, 16, 16, 16)
            T.call_extern("void", "tw.vrmax.fp16.2d", T.address_of(u[0]), 1, T.address_of(s[0, 0]), 16, 1, 16, 16)
            if i < 3:
                T.call_extern(
                    "void", EXP, T.address_of(p[0, 0]), 16, 1, T.address_of(s[0, 0]), 16, 1, T.address_of(u[0]), 1, 0,
                    16, 16,
                )  # fmt: skip
            T.call_extern("void", STORE, T.address_of(o[i, 0, 0]), 1, T.address_of(p[0, 0]), 1, 256)

    @T.prim_func(s_tir=True, private=True)
    def after(m: T.Buffer((16,), "float16"), o: T.Buffer((4, 16, 16), "float16")) -> None:
        for i in range(4):
            c = T.alloc_buffer((16, 16), scope="local.l0c")
            s = T.alloc_buffer((16, 16), "float16", scope="local.ub")
            u = T.alloc_buffer((16,), "float16", scope="local.ub")
            for k in range(2):
                T.call_extern("void", FIX, T.address_of(s[k * 8, 0]), T.address_of(c[k * 8, 0]), 8, 16, 16, 16)
            T.call_extern("void", "tw.vrmax.fp16.2d", T.address_of(u[0]), 1, T.address_of(s[0, 0]), 16, 1, 16, 16)
            if i < 3:
                T.call_extern(
                    "void", EXP, T.address_of(s[0, 0]), 16, 1, T.address_of(s[0, 0]), 16, 1, T.address_of(u[0]), 1, 0,
                    16, 16,
                )  # fmt: skip
            T.call_extern("void", STORE, T.address_of(o[i, 0, 0]), 1, T.address_of(s[0, 0]), 1, 256)

    tvm.ir.assert_structural_equal(WorkInPlace().run(before, TW2), after)


def test_what_is_read_again_stays() -> None:
    @T.prim_func(s_tir=True, private=True)
    def kernel(o: T.Buffer((2, 64), "float16")) -> None:
        c = T.alloc_buffer((4, 16), scope="local.l0c")
        s = T.alloc_buffer((4, 16), "float16", scope="local.ub")
        p = T.alloc_buffer((4, 16), "float16", scope="local.ub")
        T.call_extern("void", FIX, T.address_of(s[0, 0]), T.address_of(c[0, 0]), 4, 16, 16, 16)
        T.call_extern("void", ADD, T.address_of(p[0, 0]), 1, T.address_of(s[0, 0]), 1, T.address_of(s[0, 0]), 1, 64)
        T.call_extern("void", STORE, T.address_of(o[0, 0]), 1, T.address_of(p[0, 0]), 1, 64)
        T.call_extern("void", STORE, T.address_of(o[1, 0]), 1, T.address_of(s[0, 0]), 1, 64)

    keeps(kernel)


def test_elements_that_do_not_lie_where_they_are_read_stay() -> None:
    @T.prim_func(s_tir=True, private=True)
    def kernel(o: T.Buffer((64,), "float16")) -> None:
        c = T.alloc_buffer((4, 16), scope="local.l0c")
        s = T.alloc_buffer((4, 16), "float16", scope="local.ub")
        p = T.alloc_buffer((4, 16), "float16", scope="local.ub")
        T.call_extern("void", FIX, T.address_of(s[0, 0]), T.address_of(c[0, 0]), 4, 16, 16, 16)
        T.call_extern("void", ADD, T.address_of(p[0, 0]), 1, T.address_of(s[0, 0]), 1, T.address_of(s[2, 0]), 1, 32)
        T.call_extern("void", STORE, T.address_of(o[0]), 1, T.address_of(p[0, 0]), 1, 32)

    keeps(kernel)


def test_what_is_loaded_or_made_piece_by_piece_stays() -> None:
    """A load of the next turn would have to wait for the result; pieces might read what another has written."""

    @T.prim_func(s_tir=True, private=True)
    def kernel(x: T.Buffer((4, 64), "float16"), o: T.Buffer((4, 64), "float16")) -> None:
        for i in range(4):
            a = T.alloc_buffer((64,), "float16", scope="local.ub")
            b = T.alloc_buffer((64,), "float16", scope="local.ub")
            T.call_extern("void", "tw.ld.ddr.ub.fp16.1d", T.address_of(a[0]), 1, T.address_of(x[i, 0]), 1, 64)
            T.call_extern("void", ADD, T.address_of(b[0]), 1, T.address_of(a[0]), 1, T.address_of(a[0]), 1, 64)
            T.call_extern("void", STORE, T.address_of(o[i, 0]), 1, T.address_of(b[0]), 1, 64)
        c = T.alloc_buffer((4, 16), scope="local.l0c")
        s = T.alloc_buffer((64,), "float16", scope="local.ub")
        p = T.alloc_buffer((64,), "float16", scope="local.ub")
        T.call_extern("void", FIX, T.address_of(s[0]), T.address_of(c[0, 0]), 4, 16, 16, 16)
        for k in range(2):
            T.call_extern(
                "void", ADD, T.address_of(p[k * 32]), 1, T.address_of(s[k * 32]), 1, T.address_of(s[k * 32]), 1, 32
            )
        T.call_extern("void", STORE, T.address_of(o[0, 0]), 1, T.address_of(p[0]), 1, 64)

    keeps(kernel)


def test_what_decides_an_address_later_stays() -> None:
    @T.prim_func(s_tir=True, private=True)
    def kernel(x: T.Buffer((8, 64), "float32"), o: T.Buffer((16,), "int32"), y: T.Buffer((64,), "float32")) -> None:
        c = T.alloc_buffer((16,), "int32", scope="local.l0c")
        s = T.alloc_buffer((16,), "int32", scope="local.ub")
        p = T.alloc_buffer((16,), "int32", scope="local.ub")
        a = T.alloc_buffer((64,), scope="local.ub")
        T.call_extern("void", "tw.fix.ub.nd.int32.int32.none", T.address_of(s[0]), T.address_of(c[0]), 1, 16, 16, 16)
        T.call_extern("void", "tw.vaddi.int32.1d", T.address_of(p[0]), 1, T.address_of(s[0]), 1, 1000, 16)
        T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(a[0]), 1, T.address_of(x[s[0], 0]), 1, 64)
        T.call_extern("void", "tw.st.ddr.int32.1d", T.address_of(o[0]), 1, T.address_of(p[0]), 1, 16)
        T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(y[0]), 1, T.address_of(a[0]), 1, 64)

    assert WorkInPlace().run(kernel, TW2).same_as(kernel)
