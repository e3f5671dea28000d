"""KeepNear: what a core alone loads again and again comes from LLB, and no timing can break the order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tvm.script import tirx as T

from compiler.sim.statistics import statistics
from compiler.target import load_chip
from compiler.tir.near import placed_near
from passes.tir.keep_near import KeepNear
from passes.tir.share_loads import ShareLoads
from tests.codegen.kernels import linked, run
from tests.passes.tir.rewriting import keeps

ALWAYS = KeepNear(always=True)


@T.prim_func(s_tir=True, private=True)
def own_rows(a: T.Buffer((2, 4, 1024), "float32"), o: T.Buffer((2, 3, 4, 1024), "float32")) -> None:
    """Each core loads three rows of its own three times, and another one once."""
    bx = T.launch_thread("blockIdx.x", 2)
    for t in range(3):
        for i in range(4):
            x = T.alloc_buffer((1024,), scope="local.ub")
            if i < 3:
                T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[0]), 1, T.address_of(a[bx, i, 0]), 1, 1024)
                T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[bx, t, i, 0]), 1, T.address_of(x[0]), 1, 1024)


@T.prim_func(s_tir=True, private=True)
def rows_in_llb(a: T.Buffer((2, 4, 1024), "float32"), o: T.Buffer((2, 3, 4, 1024), "float32")) -> None:
    bx = T.launch_thread("blockIdx.x", 2)
    a_llb = T.alloc_buffer((6144,), scope="shared.llb")
    for t in range(3):
        for i in range(4):
            x = T.alloc_buffer((1024,), scope="local.ub")
            if i < 3:
                if t == 0:
                    T.call_extern(
                        "void", "tw.ld.ddr.llb.fp32.1d",
                        T.address_of(a_llb[bx * 3072 + i * 1024]), 1, T.address_of(a[bx, i, 0]), 1, 1024,
                    )  # fmt: skip
                    T.call_extern("void", "tw.cross_set.mte2", bx, 0)
                    T.call_extern("void", "tw.cross_wait.mte2", bx, 0)
                T.call_extern(
                    "void", "tw.ld.llb.ub.fp32.1d",
                    T.address_of(x[0]), 1, T.address_of(a_llb[bx * 3072 + i * 1024]), 1, 1024,
                )  # fmt: skip
                T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[bx, t, i, 0]), 1, T.address_of(x[0]), 1, 1024)


def test_what_is_loaded_again_is_brought_once() -> None:
    assert ALWAYS.run(own_rows, load_chip("tiny")).script() == rows_in_llb.script()


@T.prim_func(s_tir=True, private=True)
def rows_of_all(a: T.Buffer((4, 1024), "float32"), o: T.Buffer((2, 3, 4, 1024), "float32")) -> None:
    bx = T.launch_thread("blockIdx.x", 2)
    for t in range(3):
        for i in range(4):
            x = T.alloc_buffer((1024,), scope="local.ub")
            T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[0]), 1, T.address_of(a[i, 0]), 1, 1024)
            T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[bx, t, i, 0]), 1, T.address_of(x[0]), 1, 1024)


@T.prim_func(s_tir=True, private=True)
def rows_loaded_once(a: T.Buffer((2, 4, 1024), "float32"), o: T.Buffer((2, 4, 1024), "float32")) -> None:
    bx = T.launch_thread("blockIdx.x", 2)
    for i in range(4):
        x = T.alloc_buffer((1024,), scope="local.ub")
        T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[0]), 1, T.address_of(a[bx, i, 0]), 1, 1024)
        T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[bx, i, 0]), 1, T.address_of(x[0]), 1, 1024)


@T.prim_func(s_tir=True, private=True)
def rows_of_some(a: T.Buffer((2, 1024), "float32"), o: T.Buffer((4, 3, 1024), "float32")) -> None:
    """Cores 0, 1 and 3 load the same row, core 2 another one."""
    bx = T.launch_thread("blockIdx.x", 4)
    for t in range(3):
        x = T.alloc_buffer((1024,), scope="local.ub")
        T.call_extern(
            "void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[0]), 1, T.address_of(a[bx // 2 * (3 - bx), 0]), 1, 1024
        )
        T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[bx, t, 0]), 1, T.address_of(x[0]), 1, 1024)


def test_what_cores_load_that_are_not_evenly_spaced_stays_in_ddr() -> None:
    assert ALWAYS.run(rows_of_some, load_chip("tw1")).same_as(rows_of_some)


@pytest.mark.parametrize("kernel", [rows_of_all, rows_loaded_once, placed_near(own_rows, [0], 1 << 20)])
def test_what_others_load_or_comes_once_or_lies_there_stays(kernel: Any) -> None:
    keeps(ALWAYS, kernel)


def test_no_more_than_there_is_room_for() -> None:
    keeps(ALWAYS, placed_near(own_rows, [], 6144 * 4 - 1))


def test_where_stores_keep_ddr_busy_nothing_is_gained() -> None:
    """Three loads and three stores of each row: DDR takes longer than any queue, by what is loaded again."""
    chip = load_chip("tiny")
    assert KeepNear().run(own_rows, chip).script() == rows_in_llb.script()
    fast = replace(chip, bandwidth=replace(chip.bandwidth, ddr_bytes_per_kilocycle=1 << 20))
    keeps(KeepNear(), own_rows, fast)


# ---- runs --------------------------------------------------------------------------------------------------------


def in_epochs(cores: int) -> Any:
    """Each core copies rows of its own three times, then other rows: the last ones are shorter."""

    @T.prim_func(s_tir=True, private=True)
    def func(a: T.Buffer((40, 2, 5, 192), "float32"), o: T.Buffer((cores, 2, 3, 5, 192), "float32")) -> None:
        bx = T.launch_thread("blockIdx.x", cores)
        for epoch in range(2):
            for again in range(3):
                for i in range(5):
                    x = T.alloc_buffer((192,), scope="local.ub")
                    T.call_extern(
                        "void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[0]), 1,
                        T.address_of(a[bx, epoch, i, 0]), 1, T.min(192, 500 - i * 100),
                    )  # fmt: skip
                    T.call_extern(
                        "void", "tw.st.ddr.fp32.1d", T.address_of(o[bx, epoch, again, i, 0]), 1,
                        T.address_of(x[0]), 1, T.min(192, 500 - i * 100),
                    )  # fmt: skip

    return func


@pytest.mark.parametrize(("chip_name", "cores"), [("tiny", 2), ("tw2", 19), ("tw1", 32), ("tw1", 13)])
def test_slots_are_used_anew_when_other_bytes_come(chip_name: str, cores: int) -> None:
    chip = load_chip(chip_name)
    after = ALWAYS.run(in_epochs(cores), chip)
    assert "shared.llb" in after.script()
    values = np.random.default_rng(1).random((40, 2, 5, 192), np.float32)
    uses = [(after, ("a", "o0")), (after, ("a", "o1"))]
    program = linked(uses, chip, {"a": "input", "o0": "output", "o1": "output"})
    for seed in range(3):
        result = run(program, chip, {"a": values}, seed)
        for name in ("o0", "o1"):
            for i in range(5):
                count = min(192, 500 - i * 100)
                wanted = np.repeat(values[:cores, :, None, i, :count], 3, axis=2)
                np.testing.assert_array_equal(result.outputs[name][..., i, :count], wanted)
    alone = linked([(in_epochs(cores), ("a", "o"))], chip, {"a": "input", "o": "output"})
    apart = run(alone, chip, {"a": values})
    assert statistics(result).ddr_bytes < 2 * statistics(apart).ddr_bytes


def test_flags_that_are_in_use_are_left_to_others() -> None:
    @T.prim_func(s_tir=True, private=True)
    def both(
        a: T.Buffer((8, 4, 1024), "float32"), b: T.Buffer((4, 1024), "float32"), o: T.Buffer((8, 3, 4, 1024), "float32")
    ) -> None:
        bx = T.launch_thread("blockIdx.x", 8)
        for t in range(3):
            for i in range(4):
                x = T.alloc_buffer((1024,), scope="local.ub")
                T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[0]), 1, T.address_of(a[bx, i, 0]), 1, 1024)
                T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(x[0]), 1, T.address_of(b[i, 0]), 1, 512)
                T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[bx, t, i, 0]), 1, T.address_of(x[0]), 1, 1024)

    chip = load_chip("tw1")
    after = ShareLoads(always=True).run(ALWAYS.run(both, chip), chip)
    text = after.script()
    assert 'tw.cross_set.mte2", bx, 0' in text
    assert 'tw.cross_wait.mte2", i % 2, 1' in text or ", 1)" in text
    values = {"a": np.random.default_rng(1).random((8, 4, 1024), np.float32), "b": np.ones((4, 1024), np.float32)}
    program = linked([(after, ("a", "b", "o"))], chip, {"a": "input", "b": "input", "o": "output"})
    output = run(program, chip, values).outputs["o"]
    np.testing.assert_array_equal(output[:, 1, :, 512:], values["a"][:, :, 512:])
    np.testing.assert_array_equal(output[..., :512], 1)
