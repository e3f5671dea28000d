"""StartSums: the first product writes its sum."""

from __future__ import annotations

import re
from typing import Any

from tvm.script import tirx as T

from passes.tir.start_sums import StartSums
from tests.passes.tir.rewriting import keeps, rewrites


def test_the_first_iteration_of_all_loops() -> None:
    @T.prim_func(private=True)
    def before(x: T.Buffer((8,), "float16")) -> None:
        c = T.alloc_buffer((32, 32), scope="local.l0c")
        a = T.alloc_buffer((32, 16), "float16", scope="local.l0a")
        b = T.alloc_buffer((16, 32), "float16", scope="local.l0b")
        T.call_extern("void", "tw.mfill.fp32", T.address_of(c[0, 0]), 32, 32, T.float32(0))
        for i in range(4):
            for j in range(3):
                T.call_extern("void", "tw.ldl0a.fp16", T.address_of(a[0, 0]), T.address_of(x[0]), 32, 16, 32)
                if T.min(16, 180 - i * 48 - j * 16) > 0:
                    T.call_extern(
                        "void",
                        "tw.madacc.fp16",
                        T.address_of(c[0, 0]),
                        T.address_of(a[0, 0]),
                        T.address_of(b[0, 0]),
                        32,
                        32,
                        T.min(16, 180 - i * 48 - j * 16),
                    )

    @T.prim_func(private=True)
    def after(x: T.Buffer((8,), "float16")) -> None:
        c = T.alloc_buffer((32, 32), scope="local.l0c")
        a = T.alloc_buffer((32, 16), "float16", scope="local.l0a")
        b = T.alloc_buffer((16, 32), "float16", scope="local.l0b")
        for i in range(4):
            for j in range(3):
                T.call_extern("void", "tw.ldl0a.fp16", T.address_of(a[0, 0]), T.address_of(x[0]), 32, 16, 32)
                if T.min(16, 180 - i * 48 - j * 16) > 0:
                    if i + j == 0:
                        T.call_extern(
                            "void",
                            "tw.mad.fp16",
                            T.address_of(c[0, 0]),
                            T.address_of(a[0, 0]),
                            T.address_of(b[0, 0]),
                            32,
                            32,
                            T.min(16, 180 - i * 48 - j * 16),
                        )
                    else:
                        T.call_extern(
                            "void",
                            "tw.madacc.fp16",
                            T.address_of(c[0, 0]),
                            T.address_of(a[0, 0]),
                            T.address_of(b[0, 0]),
                            32,
                            32,
                            T.min(16, 180 - i * 48 - j * 16),
                        )

    rewrites(StartSums(), before, after)


def products(rows: int, n: Any, guarded_fill: bool) -> Any:
    """One product of as many rows, under a guard on ``n``."""

    @T.prim_func(private=True)
    def kernel() -> None:
        core = T.launch_thread("blockIdx.x", 4)
        c = T.alloc_buffer((32, 32), scope="local.l0c")
        a = T.alloc_buffer((32, 16), "float16", scope="local.l0a")
        b = T.alloc_buffer((16, 32), "float16", scope="local.l0b")
        if core < (n if guarded_fill else 4):
            T.call_extern("void", "tw.mfill.fp32", T.address_of(c[0, 0]), 32, 32, T.float32(0))
        if core < n:
            T.call_extern(
                "void",
                "tw.madacc.fp16",
                T.address_of(c[0, 0]),
                T.address_of(a[0, 0]),
                T.address_of(b[0, 0]),
                rows,
                32,
                16,
            )

    return kernel


def test_a_guard_that_the_fill_has_too() -> None:
    text = StartSums().run(products(32, 3, guarded_fill=True), None).script()
    assert "tw.mad.fp16" in text
    assert "mfill" not in text
    assert "madacc" not in text


def test_a_guard_that_the_fill_has_not() -> None:
    keeps(StartSums(), products(32, 3, guarded_fill=False))


def test_a_product_that_is_smaller_than_its_sum() -> None:
    keeps(StartSums(), products(16, 3, guarded_fill=True))


def biased(between: str) -> Any:
    """A sum that begins with a bias; ``between`` is what comes to BT in front of its products."""

    @T.prim_func(private=True)
    def kernel(x: T.Buffer((8,), "float32")) -> None:
        c = T.alloc_buffer((32, 32), scope="local.l0c")
        a = T.alloc_buffer((32, 16), "float16", scope="local.l0a")
        b = T.alloc_buffer((16, 32), "float16", scope="local.l0b")
        bias = T.alloc_buffer((32,), scope="local.bt")
        other = T.alloc_buffer((32,), scope="local.bt")
        T.call_extern("void", "tw.mbias.fp32", T.address_of(c[0, 0]), T.address_of(bias[0]), 32, 32)
        for _ in range(4):
            T.call_extern("void", "tw.ldbt.fp32", T.address_of((bias if between == "bias" else other)[0]), x.data, 32)
            T.call_extern(
                "void",
                "tw.madacc.fp16",
                T.address_of(c[0, 0]),
                T.address_of(a[0, 0]),
                T.address_of(b[0, 0]),
                32,
                32,
                16,
            )

    return kernel


def test_the_first_product_takes_the_bias_along() -> None:
    text = " ".join(StartSums().run(biased("other"), None).script().split())
    assert re.search(r'"tw.madbias.fp16", T.address_of\(c.*a\[.*b\[.*, T.address_of\(bt?.*, 32, 32, 16', text)
    assert "mbias" not in text
    assert "== 0:" in text


def test_a_bias_that_something_touches_before_the_product() -> None:
    keeps(StartSums(), biased("bias"))
