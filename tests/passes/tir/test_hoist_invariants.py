"""HoistInvariants: what does the same in every turn of a loop runs once before it."""

from __future__ import annotations

from typing import Any

import tvm
from tvm.script import tirx as T

from compiler.target import load_chip
from passes.tir.hoist_invariants import HoistInvariants

TW2 = load_chip("tw2")
TINY = load_chip("tiny")


def rewrites(before: Any, after: Any) -> None:
    result = HoistInvariants().run(before, TW2)
    tvm.ir.assert_structural_equal(result, after)


def keeps(kernel: Any, chip: Any = TW2) -> None:
    assert HoistInvariants().run(kernel, chip).same_as(kernel)


def test_a_vector_and_what_is_made_of_it_are_loaded_once() -> None:
    @T.prim_func(s_tir=True, private=True)
    def before(
        x: T.Buffer((8, 64), "float32"), gamma: T.Buffer((64,), "float16"), y: T.Buffer((8, 64), "float32")
    ) -> None:
        for i in range(8):
            a = T.alloc_buffer((64,), scope="local.ub")
            g = T.alloc_buffer((64,), "float16", scope="local.ub")
            w = T.alloc_buffer((64,), scope="local.ub")
            if i < 7:
                T.call_extern("void", "tw.ld.ddr.ub.fp16.1d", T.address_of(g[0]), 1, T.address_of(gamma[0]), 1, 64)
                T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(a[0]), 1, T.address_of(x[i, 0]), 1, 64)
                T.call_extern("void", "tw.vconv.fp16.fp32.rne.1d", T.address_of(w[0]), 1, T.address_of(g[0]), 1, 64)
                T.call_extern("void", "tw.vmul.fp32.1d", *(T.address_of(a[0]), 1) * 2, T.address_of(w[0]), 1, 64)
                T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(y[i, 0]), 1, T.address_of(a[0]), 1, 64)

    @T.prim_func(s_tir=True, private=True)
    def after(
        x: T.Buffer((8, 64), "float32"), gamma: T.Buffer((64,), "float16"), y: T.Buffer((8, 64), "float32")
    ) -> None:
        g = T.alloc_buffer((64,), "float16", scope="local.ub")
        w = T.alloc_buffer((64,), scope="local.ub")
        T.call_extern("void", "tw.ld.ddr.ub.fp16.1d", T.address_of(g[0]), 1, T.address_of(gamma[0]), 1, 64)
        T.call_extern("void", "tw.vconv.fp16.fp32.rne.1d", T.address_of(w[0]), 1, T.address_of(g[0]), 1, 64)
        for i in range(8):
            a = T.alloc_buffer((64,), scope="local.ub")
            if i < 7:
                T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(a[0]), 1, T.address_of(x[i, 0]), 1, 64)
                T.call_extern("void", "tw.vmul.fp32.1d", *(T.address_of(a[0]), 1) * 2, T.address_of(w[0]), 1, 64)
                T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(y[i, 0]), 1, T.address_of(a[0]), 1, 64)

    rewrites(before, after)


def test_it_leaves_as_many_loops_as_do_not_change_it() -> None:
    @T.prim_func(s_tir=True, private=True)
    def before(gamma: T.Buffer((8, 64), "float32"), y: T.Buffer((8, 4, 64), "float32")) -> None:
        for i in range(8):
            for j in range(4):
                g = T.alloc_buffer((64,), scope="local.ub")
                T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(g[0]), 1, T.address_of(gamma[i, 0]), 1, 64)
                T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(y[i, j, 0]), 1, T.address_of(g[0]), 1, 64)

    @T.prim_func(s_tir=True, private=True)
    def after(gamma: T.Buffer((8, 64), "float32"), y: T.Buffer((8, 4, 64), "float32")) -> None:
        for i in range(8):
            g = T.alloc_buffer((64,), scope="local.ub")
            T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(g[0]), 1, T.address_of(gamma[i, 0]), 1, 64)
            for j in range(4):
                T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(y[i, j, 0]), 1, T.address_of(g[0]), 1, 64)

    rewrites(before, after)


def test_what_is_written_again_stays() -> None:
    @T.prim_func(s_tir=True, private=True)
    def kernel(gamma: T.Buffer((64,), "float32"), y: T.Buffer((8, 64), "float32")) -> None:
        for i in range(8):
            g = T.alloc_buffer((64,), scope="local.ub")
            T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(g[0]), 1, T.address_of(gamma[0]), 1, 64)
            T.call_extern("void", "tw.vadds.fp32.1d", *(T.address_of(g[0]), 1) * 2, T.float32(1), 64)
            T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(y[i, 0]), 1, T.address_of(g[0]), 1, 64)

    keeps(kernel)


def test_what_the_loop_writes_is_not_read_before_it() -> None:
    @T.prim_func(s_tir=True, private=True)
    def kernel(y: T.Buffer((8, 64), "float32")) -> None:
        for i in range(8):
            g = T.alloc_buffer((64,), scope="local.ub")
            a = T.alloc_buffer((64,), scope="local.ub")
            T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(g[0]), 1, T.address_of(y[0, 0]), 1, 64)
            T.call_extern(
                "void", "tw.vadds.fp32.1d", T.address_of(a[0]), 1, T.address_of(g[0]), 1, T.Cast("float32", i), 64
            )
            T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(y[i, 0]), 1, T.address_of(a[0]), 1, 64)

    keeps(kernel)


def test_under_a_changing_condition_only_what_may_always_run_leaves() -> None:
    @T.prim_func(s_tir=True, private=True)
    def kernel(gamma: T.Buffer((512,), "float32"), y: T.Buffer((64, 64), "float32")) -> None:
        core = T.launch_thread("blockIdx.x", 20)
        for i in range(4):
            g = T.alloc_buffer((64,), scope="local.ub")
            if core * 4 + i < 32:
                T.call_extern(
                    "void", "tw.ld.ddr.ub.fp32.1d", T.address_of(g[0]), 1, T.address_of(gamma[core * 64]), 1, 64
                )
                T.call_extern(
                    "void", "tw.st.ddr.fp32.1d", T.address_of(y[core * 4 + i, 0]), 1, T.address_of(g[0]), 1, 64
                )

    keeps(kernel)


def test_little_of_ub_is_kept_through_loops() -> None:
    @T.prim_func(s_tir=True, private=True)
    def kernel(gamma: T.Buffer((512,), "float32"), y: T.Buffer((8, 512), "float32")) -> None:
        for i in range(8):
            g = T.alloc_buffer((512,), scope="local.ub")
            T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(g[0]), 1, T.address_of(gamma[0]), 1, 512)
            T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(y[i, 0]), 1, T.address_of(g[0]), 1, 512)

    keeps(kernel, TINY)
    assert not HoistInvariants().run(kernel, TW2).same_as(kernel)


def test_what_data_decides_stays_with_the_data() -> None:
    """A row that an index of the turn picks; the index is allocated in the loop, or outside and only written there."""

    @T.prim_func(s_tir=True, private=True)
    def inside(
        x: T.Buffer((8, 64), "float32"), which: T.Buffer((8,), "int32"), y: T.Buffer((8, 64), "float32")
    ) -> None:
        for i in range(8):
            index = T.alloc_buffer((1,), "int32", scope="local.ub")
            a = T.alloc_buffer((64,), scope="local.ub")
            T.call_extern("void", "tw.ld.ddr.ub.int32.1d", T.address_of(index[0]), 1, T.address_of(which[i]), 1, 1)
            T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(a[0]), 1, T.address_of(x[index[0], 0]), 1, 64)
            T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(y[i, 0]), 1, T.address_of(a[0]), 1, 64)

    @T.prim_func(s_tir=True, private=True)
    def outside(
        x: T.Buffer((8, 64), "float32"), which: T.Buffer((8,), "int32"), y: T.Buffer((8, 64), "float32")
    ) -> None:
        index = T.alloc_buffer((1,), "int32", scope="local.ub")
        for i in range(8):
            a = T.alloc_buffer((64,), scope="local.ub")
            T.call_extern("void", "tw.ld.ddr.ub.int32.1d", T.address_of(index[0]), 1, T.address_of(which[i]), 1, 1)
            T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(a[0]), 1, T.address_of(x[0, 0]), 1, index[0])
            T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(y[i, 0]), 1, T.address_of(a[0]), 1, 64)

    keeps(inside)
    keeps(outside)


def test_a_constant_beside_the_cube_is_filled_once() -> None:
    @T.prim_func(s_tir=True, private=True)
    def before() -> None:
        b = T.alloc_buffer((256,), "float16", scope="local.l0b")
        for _ in range(8):
            a = T.alloc_buffer((256,), "float16", scope="local.l0a")
            c = T.alloc_buffer((256,), scope="local.l0c")
            T.call_extern("void", "tw.filll0a.fp16", T.address_of(a[0]), 256, T.float32(1))
            T.call_extern("void", "tw.mad.fp16", T.address_of(c[0]), T.address_of(a[0]), T.address_of(b[0]), 16, 16, 2)

    @T.prim_func(s_tir=True, private=True)
    def after() -> None:
        b = T.alloc_buffer((256,), "float16", scope="local.l0b")
        a = T.alloc_buffer((256,), "float16", scope="local.l0a")
        T.call_extern("void", "tw.filll0a.fp16", T.address_of(a[0]), 256, T.float32(1))
        for _ in range(8):
            c = T.alloc_buffer((256,), scope="local.l0c")
            T.call_extern("void", "tw.mad.fp16", T.address_of(c[0]), T.address_of(a[0]), T.address_of(b[0]), 16, 16, 2)

    rewrites(before, after)


def test_what_is_loaded_beside_the_cube_stays_in_its_loop() -> None:
    @T.prim_func(s_tir=True, private=True)
    def kernel() -> None:
        w = T.alloc_buffer((16, 16), "float16", scope="shared.l1")
        for _ in range(8):
            a = T.alloc_buffer((256,), "float16", scope="local.l0a")
            T.call_extern("void", "tw.ldl0a.fp16", T.address_of(a[0]), T.address_of(w[0, 0]), 16, 16, 16)

    keeps(kernel)


def test_what_reads_what_was_written_under_a_condition_keeps_its_own() -> None:
    """On the core that loads nothing, nothing is converted either."""

    @T.prim_func(s_tir=True, private=True)
    def before(x: T.Buffer((3, 64), "float16"), y: T.Buffer((4, 8, 64), "float32")) -> None:
        core = T.launch_thread("blockIdx.x", 4)
        for i in range(8):
            a = T.alloc_buffer((64,), "float16", scope="local.ub")
            w = T.alloc_buffer((64,), scope="local.ub")
            if core < 3:
                T.call_extern("void", "tw.ld.ddr.ub.fp16.1d", T.address_of(a[0]), 1, T.address_of(x[core, 0]), 1, 64)
                T.call_extern("void", "tw.vconv.fp16.fp32.rne.1d", T.address_of(w[0]), 1, T.address_of(a[0]), 1, 64)
                T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(y[core, i, 0]), 1, T.address_of(w[0]), 1, 64)

    @T.prim_func(s_tir=True, private=True)
    def after(x: T.Buffer((3, 64), "float16"), y: T.Buffer((4, 8, 64), "float32")) -> None:
        core = T.launch_thread("blockIdx.x", 4)
        a = T.alloc_buffer((64,), "float16", scope="local.ub")
        w = T.alloc_buffer((64,), scope="local.ub")
        if core < 3:
            T.call_extern("void", "tw.ld.ddr.ub.fp16.1d", T.address_of(a[0]), 1, T.address_of(x[core, 0]), 1, 64)
        if core < 3:
            T.call_extern("void", "tw.vconv.fp16.fp32.rne.1d", T.address_of(w[0]), 1, T.address_of(a[0]), 1, 64)
        for i in range(8):
            if core < 3:
                T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(y[core, i, 0]), 1, T.address_of(w[0]), 1, 64)

    rewrites(before, after)


def padded(copied: Any) -> Any:
    """Rows with a frame of zeros around them; ``copied`` is what brings row ``i`` into it."""

    @T.prim_func(s_tir=True, private=True)
    def kernel(x: T.Buffer((8, 64), "float32"), y: T.Buffer((8, 96), "float32")) -> None:
        for i in range(8):
            a = T.alloc_buffer((64,), scope="local.ub")
            p = T.alloc_buffer((96,), scope="local.ub")
            T.call_extern("void", "tw.vdup.fp32.1d", T.address_of(p[0]), 1, T.float32(0), 96)
            T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(a[0]), 1, T.address_of(x[i, 0]), 1, 64)
            copied(i, p, a, x)
            r = T.alloc_buffer((96,), scope="local.ub")
            T.call_extern("void", "tw.vrelu.fp32.1d", T.address_of(r[0]), 1, T.address_of(p[0]), 1, 96)
            T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(y[i, 0]), 1, T.address_of(r[0]), 1, 96)

    return kernel


def test_a_frame_is_written_once_where_every_turn_writes_the_same_places_in_it() -> None:
    def copied(i: Any, p: Any, a: Any, x: Any) -> None:
        T.evaluate(T.call_extern("void", "tw.vcopy.fp32.1d", T.address_of(p[16]), 1, T.address_of(a[0]), 1, 64))

    @T.prim_func(s_tir=True, private=True)
    def after(x: T.Buffer((8, 64), "float32"), y: T.Buffer((8, 96), "float32")) -> None:
        p = T.alloc_buffer((96,), scope="local.ub")
        T.call_extern("void", "tw.vdup.fp32.1d", T.address_of(p[0]), 1, T.float32(0), 96)
        for i in range(8):
            a = T.alloc_buffer((64,), scope="local.ub")
            T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(a[0]), 1, T.address_of(x[i, 0]), 1, 64)
            T.call_extern("void", "tw.vcopy.fp32.1d", T.address_of(p[16]), 1, T.address_of(a[0]), 1, 64)
            r = T.alloc_buffer((96,), scope="local.ub")
            T.call_extern("void", "tw.vrelu.fp32.1d", T.address_of(r[0]), 1, T.address_of(p[0]), 1, 96)
            T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(y[i, 0]), 1, T.address_of(r[0]), 1, 96)

    rewrites(padded(copied), after)


def test_a_frame_stays_where_turns_write_different_places_or_other_queues_do() -> None:
    def elsewhere(i: Any, p: Any, a: Any, x: Any) -> None:
        T.evaluate(T.call_extern("void", "tw.vcopy.fp32.1d", T.address_of(p[i]), 1, T.address_of(a[0]), 1, 64))

    def fewer(i: Any, p: Any, a: Any, x: Any) -> None:
        T.evaluate(T.call_extern("void", "tw.vcopy.fp32.1d", T.address_of(p[16]), 1, T.address_of(a[0]), 1, 64 - i))

    def loaded(i: Any, p: Any, a: Any, x: Any) -> None:
        T.evaluate(T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(p[16]), 1, T.address_of(x[i, 0]), 1, 64))

    def summed(i: Any, p: Any, a: Any, x: Any) -> None:
        T.evaluate(
            T.call_extern(
                "void", "tw.vadd.fp32.1d", T.address_of(p[16]), 1, T.address_of(a[0]), 1, T.address_of(p[16]), 1, 64
            )
        )

    def now_and_then(i: Any, p: Any, a: Any, x: Any) -> None:
        with T.If(i < 3), T.Then():
            T.evaluate(T.call_extern("void", "tw.vcopy.fp32.1d", T.address_of(p[16]), 1, T.address_of(a[0]), 1, 64))

    def stored(i: Any, p: Any, a: Any, x: Any) -> None:
        T.evaluate(T.call_extern("void", "tw.vcopy.fp32.1d", T.address_of(p[16]), 1, T.address_of(a[0]), 1, 64))
        T.evaluate(T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(x[i, 0]), 1, T.address_of(p[16]), 1, 64))

    def read_before(i: Any, p: Any, a: Any, x: Any) -> None:
        T.evaluate(T.call_extern("void", "tw.vrelu.fp32.1d", T.address_of(a[0]), 1, T.address_of(p[0]), 1, 64))
        T.evaluate(T.call_extern("void", "tw.vcopy.fp32.1d", T.address_of(p[16]), 1, T.address_of(a[0]), 1, 64))

    for copied in (elsewhere, fewer, loaded, summed, now_and_then, stored, read_before):
        keeps(padded(copied))
