"""Buffers that cross queues become rings: free of hazards, and faster, whatever loops and branches are around them."""

from __future__ import annotations

import tvm
from tvm.script import tirx as T

from compiler.target import load_chip
from passes.tir.double_buffer import DoubleBuffer

TINY = load_chip("tiny")


@T.prim_func(s_tir=True, private=True)
def doubled(a: T.Buffer((6, 64), "float32"), o: T.Buffer((6, 64), "float32")) -> None:
    for i, j in T.grid(3, 2):
        x = T.alloc_buffer((64,), scope="local.ub")
        y = T.alloc_buffer((65,), scope="local.ub")
        t = T.alloc_buffer((64,), scope="local.ub")
        T.evaluate(
            T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[0]), 1, T.address_of(a[i * 2 + j, 0]), 1, 64)
        )
        T.evaluate(T.call_extern("void", "tw.vexp.fp32.1d", T.address_of(t[0]), 1, T.address_of(x[0]), 1, 64))
        T.evaluate(T.call_extern("void", "tw.vexp.fp32.1d", T.address_of(y[1]), 1, T.address_of(t[0]), 1, 64))
        T.evaluate(
            T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[i * 2 + j, 0]), 1, T.address_of(y[1]), 1, 64)
        )


def test_what_crosses_queues_has_two_slots() -> None:
    """A slot is whole blocks; what only the vector unit touches stays as it is."""

    @T.prim_func(s_tir=True, private=True)
    def after(a: T.Buffer((6, 64), "float32"), o: T.Buffer((6, 64), "float32")) -> None:
        x = T.alloc_buffer(
            (2, 64), scope="local.ub", strides=(64, 1), layout=None, annotations={"tw.bytes": 512, "tw.slots": 2}
        )
        y = T.alloc_buffer(
            (2, 65), scope="local.ub", strides=(72, 1), layout=None, annotations={"tw.bytes": 576, "tw.slots": 2}
        )
        for i, j in T.grid(3, 2):
            slot: T.let[T.int32] = (i * 2 + j) % 2
            t = T.alloc_buffer((64,), scope="local.ub")
            T.evaluate(
                T.call_extern(
                    "void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[slot, 0]), 1, T.address_of(a[i * 2 + j, 0]), 1, 64
                )
            )
            T.evaluate(T.call_extern("void", "tw.vexp.fp32.1d", T.address_of(t[0]), 1, T.address_of(x[slot, 0]), 1, 64))
            T.evaluate(T.call_extern("void", "tw.vexp.fp32.1d", T.address_of(y[slot, 1]), 1, T.address_of(t[0]), 1, 64))
            T.evaluate(
                T.call_extern(
                    "void", "tw.st.ddr.fp32.1d", T.address_of(o[i * 2 + j, 0]), 1, T.address_of(y[slot, 1]), 1, 64
                )
            )

    result = DoubleBuffer().run(doubled, TINY)
    tvm.ir.assert_structural_equal(result, after)
    assert DoubleBuffer().run(result, TINY).same_as(result)
