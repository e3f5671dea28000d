"""Programs and chips that the artifact tests store."""

from __future__ import annotations

from compiler.isa.assembler import assemble
from compiler.isa.program import Program
from compiler.target import Chip, load_chip

SOURCE = """\
.program "add one"
.chip tiny
.cores 2
.equ COUNT 256
.input a ddr fp32 [COUNT]
.inout b ddr fp32 [2, COUNT / 2]
.output c ddr fp32 [COUNT]
.buffer t ub 2048
.tiling trips = 2

start:
    ldt x1, trips
    loop x2, x1, done
    set_flag.s.v 0
    wait_flag.s.v 0
done:
    halt
other:
    nop
    halt
.entry 0, start
.entry 1, other
"""


def chip() -> Chip:
    return load_chip("tiny")


def program(file: str = "kernels/add.twasm") -> Program:
    return assemble(SOURCE, file=file, chip=chip())
