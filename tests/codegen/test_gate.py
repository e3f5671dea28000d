"""Where a kernel waits for what other cores made: behind what loads constants only, once, on all that run it."""

from __future__ import annotations

from typing import Any

from tvm.script import tirx as T

from compiler.codegen import generate
from compiler.isa.disassembler import instruction_text
from compiler.target import load_chip
from compiler.tir.near import CONSTANTS

TINY = load_chip("tiny")


def lines(func: Any, *constants: int) -> list[str]:
    code = generate(func.with_attr(CONSTANTS, list(constants)), TINY)
    texts = [instruction_text(instr).split(" ")[0] for instr in code.instrs]
    if code.gate >= 0:
        assert texts[code.gate] == "nop"
    return texts


@T.prim_func(s_tir=True, private=True)
def weighted(w: T.Buffer((8, 64), "float32"), x: T.Buffer((8, 64), "float32")) -> None:
    bx = T.launch_thread("blockIdx.x", 2)
    ub = T.alloc_buffer((128,), scope="local.ub", annotations={"tw.address": 0})
    for i in range(4):
        T.evaluate(T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(ub[0]), 1, T.address_of(w[i, 0]), 1, 64))
        T.evaluate(
            T.call_extern(
                "void", "tw.ld.ddr.ub.fp32.1d", T.address_of(ub[64]), 1, T.address_of(x[bx * 4 + i, 0]), 1, 64
            )
        )


def test_the_gate_is_passed_in_the_first_turn_behind_the_constants() -> None:
    texts = lines(weighted, 0)
    loop, gate = texts.index("loop"), texts.index("nop")
    assert loop < texts.index("ld.ddr.ub.fp32.1d") < gate < len(texts) - 1
    assert texts[gate - 1] == "bne"  # past it in all turns but the first


def test_where_nothing_can_go_ahead_the_gate_is_in_front() -> None:
    assert lines(weighted).index("nop") < lines(weighted).index("loop")
    assert lines(weighted, 1).index("nop") < lines(weighted).index("loop")


def test_a_kernel_of_constants_has_no_gate() -> None:
    assert "nop" not in lines(weighted, 0, 1)


def test_a_gate_is_under_no_condition() -> None:
    @T.prim_func(s_tir=True, private=True)
    def guarded(w: T.Buffer((8, 64), "float32"), x: T.Buffer((8, 64), "float32")) -> None:
        bx = T.launch_thread("blockIdx.x", 2)
        ub = T.alloc_buffer((64,), scope="local.ub", annotations={"tw.address": 0})
        T.evaluate(T.call_extern("void", "tw.ld.ddr.ub.fp32.1d", T.address_of(ub[0]), 1, T.address_of(w[0, 0]), 1, 64))
        for i in range(4):
            if bx * 4 + i < 7:
                T.evaluate(
                    T.call_extern(
                        "void", "tw.ld.ddr.ub.fp32.1d", T.address_of(ub[0]), 1, T.address_of(x[bx * 4 + i, 0]), 1, 64
                    )
                )

    texts = lines(guarded, 0)
    assert texts.index("ld.ddr.ub.fp32.1d") < texts.index("nop") < texts.index("loop")
