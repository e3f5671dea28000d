"""What the disassembler prints assembles to the same code, bit for bit."""

from random import Random

import pytest

from compiler.isa.assembler import assemble
from compiler.isa.disassembler import disassemble, instruction_text
from compiler.isa.encoding import encode
from compiler.isa.model import Instr
from compiler.isa.program import Program
from compiler.isa.table import by_mnemonic
from compiler.target import load_chip
from tests.isa.generate import every_row, random_instrs, random_program

PROGRAM = """\
.program demo
.chip tiny
.cores 2
.input a ddr fp32 256 at 0
.output "c.1" ddr fp32 16x16 at 1024
.buffer tmp ub uint8 64 at 96
.buffer all ub fp32 16x2 at 64 alias
.tiling trips = 5

    ldt x6, 0
L1:
    loop x5, x6, L4
    vadd.fp32.2d [2048; 16, 1], [0; 16, 1], [x5 - 1020; 16, 1], <16, 16>
    fmov x3, -0.0015
L4:
    fmov x3, 0fffc00000
    set_flag.v.mte3 0
    bge x5, -4, L1
    halt
.entry 0, L4
.entry 1, L1
"""


def test_a_program_as_text() -> None:
    assert disassemble(assemble(PROGRAM)) == PROGRAM


def test_an_empty_program() -> None:
    program = Program("nothing")
    assert disassemble(program) == ".program nothing\n\n"
    assert assemble(disassemble(program)).same_code(program)


@pytest.mark.parametrize("seed", range(12))
def test_every_row_assembles_to_the_same_code(seed: int) -> None:
    rng = Random(seed)
    program = random_program(rng, every_row(rng) if seed < 4 else random_instrs(rng, 50))
    again = assemble(disassemble(program), chip=load_chip("tiny"))
    assert again.same_code(program)
    assert encode(again.instrs) == encode(program.instrs)


@pytest.mark.parametrize("seed", range(3))
def test_every_float_keeps_its_bits(seed: int) -> None:
    rng = Random(seed)
    move = by_mnemonic()["fmov"]
    special = [0, 1, 1 << 31, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0x7F800001, 0x00800000]
    bits = [*special, *(rng.getrandbits(32) for _ in range(2000)), *(rng.getrandbits(23) for _ in range(200))]
    program = Program("floats", instrs=tuple(Instr(move, (), (1, value)) for value in bits))
    assert assemble(disassemble(program)).instrs == program.instrs


def test_one_instruction_alone_shows_distances() -> None:
    assert instruction_text(Instr(by_mnemonic()["jmp"], (), (-3,))) == "jmp -3"
