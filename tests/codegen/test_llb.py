"""Buffers in LLB: one for all cores of a cluster, ordered by flags between the cores and placed by the linker."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm.script import tirx as T

from compiler.codegen.residence import RESTS
from compiler.target import load_chip
from tests.codegen.kernels import linked, run

TINY = load_chip("tiny")


@T.prim_func(s_tir=True, private=True)
def gathered(a: T.Buffer((128,), "float32"), o: T.Buffer((2, 128), "float32")) -> None:
    """Each core brings one half; both get the whole."""
    bx = T.launch_thread("blockIdx.x", 2)
    all_of_a = T.alloc_buffer((128,), scope="shared.llb")
    x = T.alloc_buffer((128,), scope="local.ub")
    half = T.meta_var(bx * 64)
    T.evaluate(
        T.call_extern("void", "tw.ld.ddr.llb.fp32.1d", T.address_of(all_of_a[half]), 1, T.address_of(a[half]), 1, 64)
    )
    for other in range(2):
        T.evaluate(T.call_extern("void", "tw.cross_set.mte2", other, 0))
    for other in range(2):
        T.evaluate(T.call_extern("void", "tw.cross_wait.mte2", other, 0))
    T.evaluate(T.call_extern("void", "tw.ld.llb.ub.fp32.1d", T.address_of(x[0]), 1, T.address_of(all_of_a[0]), 1, 128))
    T.evaluate(T.call_extern("void", "tw.st.ddr.fp32.1d", T.address_of(o[bx, 0]), 1, T.address_of(x[0]), 1, 128))


X = np.random.default_rng(1).random(128, np.float32)


def _outputs(count: int) -> Any:
    program = linked(
        [(gathered, ("x", f"o{n}")) for n in range(count)],
        TINY,
        {"x": "input"} | {f"o{n}": "output" for n in range(count)},
    )
    for seed in range(4):
        for output in run(program, TINY, {"x": X}, seed).outputs.values():
            np.testing.assert_array_equal(output, np.stack([X, X]))
    return program.program


def test_what_one_core_brings_another_reads() -> None:
    program = _outputs(1)
    (shared,) = [buffer for buffer in program.buffers if buffer.memory == "llb"]
    assert (shared.role, shared.size_bytes) == ("scratch", 512)


def test_kernels_that_follow_each_other_lie_apart() -> None:
    """So that few have to wait until the other core is done with bytes of LLB."""
    program = _outputs(RESTS[0] + 2)
    ends = [index for index, instr in enumerate(program.instrs) if instr.row.mnemonic == "barrier_all"]
    borders = [
        [instr.row.mnemonic for instr in program.instrs[end:start]]
        for end, (_, start) in zip(ends, program.labels[1:], strict=True)
    ]
    assert borders == [["barrier_all"]] * RESTS[0] + [["barrier_all", "loop", "cross_set", "loop", "cross_wait"]]
    offsets = [buffer.offset for buffer in program.buffers if buffer.memory == "llb"]
    assert sorted(offsets) == [512 * n for n in range(RESTS[0] + 1)]


@T.prim_func(s_tir=True, private=True)
def brought_twice(a: T.Buffer((64,), "float32"), b: T.Buffer((64,), "float32")) -> None:
    bx = T.launch_thread("blockIdx.x", 2)
    if bx == 0:
        llb = T.alloc_buffer((64,), scope="shared.llb")
        T.evaluate(T.call_extern("void", "tw.ld.ddr.llb.fp32.1d", T.address_of(llb[0]), 1, T.address_of(a[0]), 1, 64))
    else:
        llb = T.alloc_buffer((64,), scope="shared.llb")
        T.evaluate(T.call_extern("void", "tw.ld.ddr.llb.fp32.1d", T.address_of(llb[0]), 1, T.address_of(b[0]), 1, 64))


def test_what_has_one_name_lies_apart() -> None:
    program = linked([(brought_twice, ("x", "y"))], TINY, {"x": "input", "y": "input"})
    assert sorted(b.offset for b in program.program.buffers if b.memory == "llb") == [0, 256]
