"""Buffers that never live at once share bytes; those that do never overlap; what does not fit says what is largest."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import tvm
import tvm_ffi
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import tirx
from tvm.script import tirx as T

from compiler.codegen import MemoryOverflow
from compiler.codegen.lifetimes import live_bytes
from compiler.codegen.packing import Lifetime, live_peak, pack
from compiler.target import load_chip
from passes.tir.allocate_memory import AllocateMemory

TINY = load_chip("tiny")


def _addresses(func: Any) -> dict[str, int]:
    found: dict[str, int] = {}

    def note(statement: Any) -> None:
        found[str(statement.buffer.name)] = int(statement.annotations["tw.address"])

    tvm_ffi.structural_walk(AllocateMemory().run(func, TINY).body, (tirx.AllocBuffer, note))
    return found


def test_addresses_are_annotations() -> None:
    @T.prim_func(s_tir=True, private=True)
    def before(a: T.Buffer((8,), "float32")) -> None:
        x = T.alloc_buffer((9,), scope="local.ub")
        y = T.alloc_buffer((8,), scope="local.ub", annotations={"tw.bytes": 100})
        x[0] = a[0]
        y[0] = x[0]

    @T.prim_func(s_tir=True, private=True)
    def after(a: T.Buffer((8,), "float32")) -> None:
        x = T.alloc_buffer((9,), scope="local.ub", annotations={"tw.address": 128})
        y = T.alloc_buffer((8,), scope="local.ub", annotations={"tw.address": 0, "tw.bytes": 100})
        x[0] = a[0]
        y[0] = x[0]

    tvm.ir.assert_structural_equal(AllocateMemory().run(before, TINY), after)
    assert live_bytes(before, TINY) == {"ub": 128 + 64}


def test_what_follows_takes_the_place_of_what_is_over() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func(a: T.Buffer((8,), "float32")) -> None:
        x = T.alloc_buffer((64,), scope="local.ub")
        y = T.alloc_buffer((64,), scope="local.ub")
        z = T.alloc_buffer((64,), scope="local.ub")
        x[0] = a[0]
        y[0] = x[0]
        z[0] = y[0]

    found = _addresses(func)
    assert found["x"] == found["z"] != found["y"]


def test_a_buffer_from_outside_lives_through_the_loop() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func(a: T.Buffer((8,), "float32")) -> None:
        outer = T.alloc_buffer((64,), scope="local.ub")
        outer[0] = a[0]
        for i in range(4):
            first = T.alloc_buffer((64,), scope="local.ub")
            second = T.alloc_buffer((64,), scope="local.ub")
            first[0] = outer[0]
            a[0] = first[0]
            second[0] = a[i]
            a[1] = second[0]

    found = _addresses(func)
    assert found["first"] == found["second"] != found["outer"]


def test_what_other_queues_work_on_takes_bytes_of_its_own_while_there_is_room() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func(a: T.Buffer((2048,), "float32"), o: T.Buffer((2048,), "float32")) -> None:
        first = T.alloc_buffer((600,), scope="local.ub")
        T.evaluate(T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(first[0]), 1, T.address_of(a[0]), 1, 600))
        T.evaluate(T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[0]), 1, T.address_of(first[0]), 1, 600))
        second = T.alloc_buffer((600,), scope="local.ub")
        T.evaluate(
            T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(second[0]), 1, T.address_of(a[600]), 1, 600)
        )
        T.evaluate(T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[600]), 1, T.address_of(second[0]), 1, 600))
        third = T.alloc_buffer((848,), scope="local.ub")
        T.evaluate(
            T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(third[0]), 1, T.address_of(a[1200]), 1, 848)
        )
        T.evaluate(T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[1200]), 1, T.address_of(third[0]), 1, 848))

    found = _addresses(func)
    assert found["third"] == 0
    assert {found["first"], found["second"]} == {3392, 0}


def test_memories_are_apart_and_aligned() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func(a: T.Buffer((8,), "float32")) -> None:
        for _i in range(2):
            p = T.alloc_buffer((3,), scope="local.l0c")
            q = T.alloc_buffer((3,), scope="local.l0c")
            r = T.alloc_buffer((3,), "float16", scope="local.l0a")
            s = T.alloc_buffer((3,), "float16", scope="local.l0a")
            T.evaluate(T.call_extern("void", "tw.mfill.fp32", T.address_of(p[0]), 1, 3, T.float32(0)))
            T.evaluate(T.call_extern("void", "tw.filll0a.fp16", T.address_of(r[0]), 3, T.float32(0)))
            T.evaluate(T.call_extern("void", "tw.filll0a.fp16", T.address_of(s[0]), 3, T.float32(0)))
            T.evaluate(T.call_extern("void", "tw.mfill.fp32", T.address_of(q[0]), 1, 3, T.float32(0)))
            T.evaluate(T.call_extern("void", "tw.mfill.fp32", T.address_of(p[0]), 1, 3, T.float32(0)))

    found = _addresses(func)
    assert {found["p"], found["q"]} == {0, 1024} and {found["r"], found["s"]} == {0, 512}


def test_too_much_says_what_is_largest() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func(a: T.Buffer((8,), "float32")) -> None:
        small = T.alloc_buffer((16,), scope="local.ub")
        large = T.alloc_buffer((2048,), scope="local.ub")
        unrelated = T.alloc_buffer((2000,), scope="local.ub")
        unrelated[0] = a[0]
        small[0] = a[0]
        large[0] = small[0]

    with pytest.raises(MemoryOverflow, match=r"TW2610.*8256 bytes of ub.*8192.*large \(8192 bytes\), small") as found:
        AllocateMemory().run(func, TINY)
    error = pickle.loads(pickle.dumps(found.value))  # noqa: S301  our own bytes
    assert (error.memory, error.needed_bytes, error.limit_bytes) == ("ub", 8256, 8192)
    assert error.largest == (("large", 8192), ("small", 64))
    assert live_bytes(func, TINY) == {"ub": 8256}


def test_a_kernel_without_buffers_stays_as_it_is() -> None:
    @T.prim_func(s_tir=True, private=True)
    def func(a: T.Buffer((8,), "float32")) -> None:
        a[0] = a[1]

    assert AllocateMemory().run(func, TINY) is func


lives = st.lists(
    st.builds(
        lambda size, first, length: Lifetime(size, first, first + length),
        st.integers(0, 300),
        st.integers(0, 20),
        st.integers(0, 10),
    ),
    max_size=20,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # other work on the machine is no failure
@given(lives, st.sampled_from([1, 32, 512]))
def test_packing_never_overlaps_and_wastes_little(buffers: list[Lifetime], alignment: int) -> None:
    addresses, total = pack(buffers, alignment)
    for n, (address, life) in enumerate(zip(addresses, buffers, strict=True)):
        assert address % alignment == 0 and address + life.size_bytes <= total
        for other_address, other in zip(addresses[:n], buffers, strict=False):
            apart = address + life.size_bytes <= other_address or other_address + other.size_bytes <= address
            assert apart or not life.meets(other) or not life.size_bytes or not other.size_bytes
    assert live_peak(buffers, alignment) <= total <= max(2 * live_peak(buffers, alignment), 1)
