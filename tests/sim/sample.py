"""A program that uses every queue of both cores of `tiny`: tiles through UB, two at a time, then one product."""

from __future__ import annotations

import numpy as np

from compiler.isa.assembler import assemble
from compiler.isa.program import Program
from compiler.sim.simulator import Run, simulate
from compiler.target import Chip, load_chip

SOURCE = """\
.program "scale \\u{22}\\u{3c}&"
.chip tiny
.cores 2
.equ TILE 256
.equ TILES 4
.input a ddr fp32 [2, TILES, TILE]
.output c ddr fp32 [2, TILES, TILE]
.input m ddr fp16 [16, 16]
.output p ddr fp32 [2, 16, 16]
    getsr.core x1
    smul x2, x1, TILES * TILE * 4
    set_flag.v.mte2 0
    set_flag.v.mte2 1
    set_flag.mte3.v 0
    set_flag.mte3.v 1
    loop x3, TILES / 2, done
.rept 2, i
    wait_flag.v.mte2 \\i
    ld.ddr.ub.fp32.1d [\\i * 1024; 1], [x2 + a + \\i * 1024; 1], <TILE>
    set_flag.mte2.v \\i
    wait_flag.mte2.v \\i
    wait_flag.mte3.v \\i
    vmuls.fp32.1d [2048 + \\i * 1024; 1], [\\i * 1024; 1], 2.0, <TILE>
    set_flag.v.mte2 \\i
    set_flag.v.mte3 \\i
    wait_flag.v.mte3 \\i
    st.ddr.fp32.1d [x2 + c + \\i * 1024; 1], [2048 + \\i * 1024; 1], <TILE>
    set_flag.mte3.v \\i
.endr
    sadd x2, x2, 2048
done:
    wait_flag.v.mte2 0
    wait_flag.v.mte2 1
    wait_flag.mte3.v 0
    wait_flag.mte3.v 1
    ldnz.ddr.fp16 [0], [m], <16, 16>, 16, 16
    set_flag.mte2.mte1 0
    wait_flag.mte2.mte1 0
    ldl0a.fp16 [0], [0], <16, 16>, 16
    ldl0b.fp16 [0], [0], <16, 16>, 16
    set_flag.mte1.m 0
    wait_flag.mte1.m 0
    mad.fp16 [0], [0], [0], <16, 16, 16>
    set_flag.m.fix 0
    wait_flag.m.fix 0
    smul x4, x1, 1024
    fix.ddr.nd.fp32.fp32.none [x4 + p], [0], <16, 16>, 16, 16
    halt
"""


def chip() -> Chip:
    return load_chip("tiny")


def program() -> Program:
    return assemble(SOURCE, file="scale.twasm", chip=chip())


def inputs() -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    return {
        "a": random.standard_normal((2, 4, 256), np.float32),
        "m": random.standard_normal((16, 16)).astype(np.float16),
    }


def run(source: str = SOURCE) -> Run:
    return simulate(assemble(source, file="sample.twasm", chip=chip()), chip())
