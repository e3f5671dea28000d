"""What is known to be wrong before a program runs, all of it at once, and what is left to the run."""

import time
from dataclasses import replace
from random import Random

import pytest

from compiler.errors import CapacityError, InvalidError, TilewrightError, UnsupportedError
from compiler.isa.assembler import assemble
from compiler.isa.program import Buffer, Program, TilingWord
from compiler.isa.table import by_mnemonic
from compiler.isa.verifier import verify
from compiler.target import Chip, load_chip
from tests.isa.generate import every_row, random_program

TINY = load_chip("tiny")
TW1 = load_chip("tw1")
GOOD = """\
.chip tiny
.cores 2
.input a ddr fp32 256
.output c ddr fp32 256
.buffer tile ub fp32 64
.tiling trips = 4
start:
    ldt x1, trips
    smov x2, a
    loop x3, x1, done
    ld.ddr.ub.fp32.1d [tile], [x2], <64>
    set_flag.mte2.v 0
    wait_flag.mte2.v 0
    vadd.fp32.1d [tile], [tile], [tile], <64>
    set_flag.v.mte3 x3
    wait_flag.v.mte3 1
    st.ddr.fp32.1d [x2 + c - a], [tile], <64>
    sadd x2, x2, 256
    loop x4, 2, inner
    nop
inner:
done:
    beq x1, 0, start
    halt
"""


def found(program: Program | str, chip: Chip = TINY, kind: type[TilewrightError] = InvalidError) -> list[str]:
    """``line code message`` of every problem."""
    with pytest.raises(kind) as caught:
        verify(assemble(program) if isinstance(program, str) else program, chip)
    assert type(caught.value) is kind
    return [f"{p.place.line} {p.code} {p.message}" for p in caught.value.problems if p.place]


def in_program(line: str) -> str:
    """A program that is right but for this line, which is its line 4."""
    return f".input a ddr fp32 64\n.buffer u ub 1024\n.tiling t = 1\n{line}\nhalt"


def test_a_good_program() -> None:
    verify(assemble(GOOD), TINY)


INSTRUCTIONS = [
    # slots and alignment
    ("vabs.fp32.1d [2], [64], <4>", "TW1277 vabs: dst is at ub address 2; allowed: multiples of 4"),
    ("vabs.fp32.1d [x1], [2], <x2>", "TW1277 vabs: a is at ub address 2; allowed: multiples of 4"),
    ("ldl0a.fp16 [256], [0], <16, 16>, 16", "TW1277 ldl0a: dst is at l0a address 256; allowed: multiples of 512"),
    # bounds of shared memories; those of the core are capacity
    ("ld.ddr.ub.fp32.1d [u], [a + 4], <64>",
     "TW1278 ld: src touches ddr bytes 4 to 259; they must lie inside one declared ddr buffer"),
    ("ld.llb.ub.fp32.1d [u], [0], <64>",
     "TW1278 ld: src touches llb bytes 0 to 255; they must lie inside one declared llb buffer"),
    # the rows' own rules, also where only some values are known
    ("vabs.fp32.2d [0; 0, 1], [512; 4], <2, 4>",
     "TW1279 vabs: no two elements of a destination may share an address: a stride of zero is legal for sources only"),
    ("vabs.fp32.2d [x1; 0, 1], [x2; 4], <2, 4>",
     "TW1279 vabs: no two elements of a destination may share an address: a stride of zero is legal for sources only"),
    ("vabs.fp32.1d [0], [4], <8>",
     "TW1279 vabs: a source that overlaps the destination must be the destination itself: same address, shape and"
     " strides"),
    ("set_flag.v.v 0", "TW1279 set_flag: a flag joins two different queues; inside one queue use pipe_barrier"),
    ("cross_set.v 2, 0", "TW1279 cross_set: the core must be one of the chip's"),
    ("cluster_wait.v 2, 0", "TW1279 cluster_wait: the core must be one of the cluster's"),
    ("fix.ddr.nz.fp16.fp32.none [x1], [0], <16, 16>, 16, 16",
     "TW1279 fix: nz layout is for l1 and ub; ddr and llb take nd"),
    # tiling data
    ("ldt x1, 1", "TW1275 ldt: index is 1; the program has 1 tiling words"),
    ("ldtc x1, 1", "TW1275 ldtc: index is 1; the program has 1 tiling words"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "said"), INSTRUCTIONS, ids=[line for line, _ in INSTRUCTIONS])
def test_an_instruction_that_breaks_a_rule(line: str, said: str) -> None:
    assert found(in_program(line))[0] == f"4 {said}"


@pytest.mark.parametrize(
    "line",
    [
        "vabs.fp32.1d [x1], [x2], <x3>",
        "vabs.fp32.1d [0], [x1 + 4], <8>",
        "vabs.fp32.2d [0; x1, 1], [512; 4], <2, 4>",
        "vabs.fp32.2d [0; 0, 1], [512; 4], <x1, 4>",
        "img2col.fp16 [0], [0], <x1, 16>, 0, 0, <4, x2>, 64, <3, x3>, <1, 1>, <1, 1>, 0, 0, 0, 0, 0",
        "ldl0a.fp16 [x1], [x2], <x3, x4>, x5",
        "ldt x1, x2",
        "cross_set.v x1, x2",
        "cluster_set.v x1, x2",
        "ld.ddr.ub.fp32.1d [u], [x1], <64>",
    ],
)
def test_what_a_register_decides_is_left_to_the_run(line: str) -> None:
    verify(assemble(in_program(line)), TINY)


def test_every_row_with_registers_only_passes_or_is_refused_properly() -> None:
    for seed in range(20):
        program = random_program(Random(seed), every_row(Random(seed)))
        with pytest.raises(TilewrightError):
            verify(program, TINY)


def test_what_does_not_fit_the_chip() -> None:
    assert found(in_program("vabs.fp32.1d [8000], [0], <64>"), kind=CapacityError) == [
        "4 TW1278 vabs: dst touches ub bytes 8000 to 8255; ub has 8192 bytes"
    ]
    assert found(".buffer big ub 8193\nhalt", kind=CapacityError) == [
        "0 TW1274 buffer `big` ends at byte 8193 of ub, which has 8192 bytes"
    ]
    assert found(".cores 3\nhalt", kind=CapacityError) == ["0 TW1271 the program is for 3 cores; chip tiny has 2"]


def test_a_path_that_the_chip_lacks() -> None:
    paths = {name: path for name, path in TINY.path.items() if name != "ddr_ub"}
    chip = replace(TINY, path=paths)
    for line in ("ld.ddr.ub.fp32.1d [u], [a], <64>", "ld.ddr.ub.fp32.1d [x1], [x2], <x3>"):
        (said,) = found(in_program(line), chip, UnsupportedError)
        assert said.startswith("4 TW1276 ld: the chip must have a path between these two memories")


def test_the_gravest_kind_of_problem_decides() -> None:
    source = in_program("vabs.fp32.1d [8000], [0], <64>\nset_flag.v.v 0\n")
    assert len(found(source, kind=InvalidError)) == 3


FLOW = [
    ("nop", ["1 TW1282 the program runs past its last instruction"]),
    ("a: jmp a\nhalt", ["1 TW1282 no `halt` can be reached from instruction 0, where a core starts"]),
    (".cores 2\n.entry 1, b\nhalt\nb: nop\njmp b",
     ["4 TW1282 no `halt` can be reached from instruction 1, where a core starts"]),
    ("beq x1, 0, e\nhalt\ne:", ["1 TW1282 the program runs past its last instruction"]),
    ("jmp b\na: jmp a\nb: halt", []),
    ("trap 1", []),
    ("loop x1, 2, e\ne: halt",
     ["1 TW1280 the loop's body ends at instruction 1, before it begins; allowed: 2 or later"]),
    ("e: nop\nloop x1, 2, e\nhalt",
     ["2 TW1280 the loop's body ends at instruction 0, before it begins; allowed: 3 or later"]),
    ("loop x1, 2, a\nloop x2, 2, b\nnop\na: nop\nb: halt",
     ["2 TW1280 the loop's body ends after that of the loop around it, on line 1"]),
    (".rept 9, i\nloop x\\i, 2, e\n.endr\nnop\ne: halt", ["2 TW1281 loops are nested 9 deep; allowed: 8"]),
    ("set_flag.v.m 0\nhalt", ["1 TW1283 flag 0 of v to m is set and never waited for"]),
    ("wait_flag.v.m 0\nset_flag.v.m 1\nhalt",
     ["1 TW1283 flag 0 of v to m is waited for and never set",
      "2 TW1283 flag 1 of v to m is set and never waited for"]),
    ("wait_flag.v.m x1\nset_flag.m.v x1\nhalt",
     ["1 TW1283 flag in a register of v to m is waited for and never set",
      "2 TW1283 flag in a register of m to v is set and never waited for"]),
    ("wait_flag.v.m 0\nset_flag.v.m x1\nhalt", []),
]  # fmt: skip


@pytest.mark.parametrize(("source", "said"), FLOW, ids=[source for source, _ in FLOW])
def test_loops_flow_and_flags(source: str, said: list[str]) -> None:
    if said:
        assert found(source) == said
    else:
        verify(assemble(source), TINY)


def test_programs_that_no_text_describes() -> None:
    halt = assemble("halt").instrs
    good = Program("p", None, 2, halt, (), (), (0, 0))
    buffer = Buffer("b", "ub", 0, 16, "fp32", (4,), "scratch")
    for program, said in (
        (replace(good, chip="tw2"), "TW1270 the program is for chip `tw2`, not `tiny`"),
        (replace(good, entries=(0, 1)), "TW1272 core 1 starts at instruction 1; allowed: 0 to 0"),
        (replace(good, entries=(0,)), "TW1272 1 entries for 2 cores"),
        (replace(good, instrs=(), entries=()), "TW1282 the program has no instructions; at least `halt` is needed"),
        (replace(good, buffers=(buffer, buffer)), "TW1273 2 buffers or tiling words are called `b`"),
        (replace(good, buffers=(replace(buffer, memory="l3"),)),
         "TW1273 buffer `b`: memory is l3; allowed: ddr, llb, l1, l0a, l0b, l0c, ub, bt, fb"),
        (replace(good, buffers=(replace(buffer, size_bytes=15),)), "TW1273 buffer `b`: 15 bytes; its shape needs 16"),
        (replace(good, buffers=(replace(buffer, offset=-1),)), "TW1273 buffer `b`: offset is -1; allowed: 0 or more"),
        (replace(good, buffers=(replace(buffer, shape=(0,)),)),
         "TW1273 buffer `b`: shape is (0,); allowed: extents of 1 or more"),
        (replace(good, buffers=(buffer,), tiling=(TilingWord("b", 1),)),
         "TW1273 2 buffers or tiling words are called `b`"),
        (replace(good, instrs=(replace(halt[0], values=(1,)),)), "TW1251 halt: has 1 slots; allowed: 0"),
        (replace(good, instrs=(replace(halt[0], row=by_mnemonic()["jmp"], values=(2,)),)),
         "TW1251 jmp: target is 2, which leads to instruction 2; allowed: 0 to 1"),
    ):  # fmt: skip
        assert found(program) == [f"0 {said}"]


def test_a_problem_shows_the_instruction_with_its_values() -> None:
    with pytest.raises(InvalidError) as caught:
        verify(assemble(".equ N 7\nset_flag.v.m N\nset_flag.v.m 0\nwait_flag.v.m 0\nhalt", file="a.twasm"), TINY)
    assert str(caught.value).splitlines()[:3] == [
        "a.twasm:2: error[TW1279]: set_flag: the event id must be below the chip's event_ids",
        "    set_flag.v.m 7",
        "    ^^^^^^^^^^^^^^",
    ]


def test_time_is_bounded() -> None:
    lines = [f"vabs.fp32.3d [{4 * i}; 1, 1, 1], [4; 0, 0, 0], <65535, 65535, 65535>" for i in range(1000)]
    lines += [f"vrsum.fp32.3d [{4 * i}; 1, 1], [0; 0, 0, 0], <2, 2, 65535>" for i in range(1000)]
    lines += [f"vabs.fp16.1d [{2 * i}], [{2 * i + 2}], <4000>" for i in range(40)]
    began = time.process_time()
    with pytest.raises(TilewrightError):
        verify(assemble("\n".join([*lines, "halt"])), TINY)
    assert time.process_time() - began < 20


def test_a_word_for_each_cluster_that_the_program_runs_on() -> None:
    source = ".cores {}\n.tiling a = 1\n.tiling b = 2\nldtc x1, a\nhalt"
    for cores in (1, 8, 9, 16):
        verify(assemble(source.format(cores), chip=TW1), TW1)
    with pytest.raises(InvalidError, match="ldtc: index is 2; the program has 2 tiling words"):
        verify(assemble(source.format(17), chip=TW1), TW1)
