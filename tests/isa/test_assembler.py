"""Assembly text: what it means, and every mistake with its line, its column and what would have been right."""

import re
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

from compiler.errors import InputError, InvalidError, TilewrightError
from compiler.isa import assembler, expansion
from compiler.isa.assembler import assemble, assemble_file
from compiler.isa.disassembler import instruction_text
from compiler.isa.model import Reg
from compiler.isa.program import Buffer, Program, TilingWord
from compiler.target import load_chip


def texts(source: str, **options: object) -> list[str]:
    """The instructions that a text assembles to, with distances for labels."""
    return [instruction_text(instr) for instr in assemble(source, **options).instrs]  # type: ignore[arg-type]


def moved(expression: str, declarations: str = "") -> int:
    """What an expression is worth."""
    program = assemble(f"{declarations}\nsmov x1, {expression}")
    value = program.instrs[0].values[1]
    assert isinstance(value, int)
    return value


def float_bits(text: str) -> int:
    value = assemble(f"fmov x1, {text}").instrs[0].values[1]
    assert isinstance(value, int)
    return value


# ---- instructions -------------------------------------------------------------------------------------------


def test_a_program() -> None:
    program = assemble(
        """\
; two vectors, added tile by tile
.program add
.chip tiny
.cores 2
.equ TILE 64
.input a ddr fp32 256
.output c ddr fp32 [4, TILE]
.buffer tile ub fp32 TILE
.tiling trips = ceildiv(256, TILE)
.reg i x5
start:
    ldt x1, trips               // the index of the word
    loop i, x1, end
    ld.ddr.ub.fp32.1d [tile], [x2 + a], <TILE>
    vadd.fp32.1d [tile; 1], [tile], [tile], <TILE>
    sadd x2, x2, TILE * 4
end: halt
.entry 1, end
""",
        file="dir/add.twasm",
    )
    assert [instruction_text(instr) for instr in program.instrs] == [
        "ldt x1, 0",
        "loop x5, x1, +4",
        "ld.ddr.ub.fp32.1d [0; 1], [x2; 1], <64>",
        "vadd.fp32.1d [0; 1], [0; 1], [0; 1], <64>",
        "sadd x2, x2, 256",
        "halt",
    ]
    assert (program.name, program.chip, program.cores, program.source) == ("add", "tiny", 2, "dir/add.twasm")
    assert program.lines == (12, 13, 14, 15, 16, 17)
    assert program.labels == (("start", 0), ("end", 5))
    assert program.entries == (0, 5)
    assert program.tiling == (TilingWord("trips", 4),)
    assert program.buffers == (
        Buffer("a", "ddr", 0, 1024, "fp32", (256,), "input"),
        Buffer("c", "ddr", 1024, 1024, "fp32", (4, 64), "output"),
        Buffer("tile", "ub", 0, 256, "fp32", (64,), "scratch"),
    )


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("vabs.fp32.1d [0], [4], <8>", "vabs.fp32.1d [0; 1], [4; 1], <8>"),
        ("vabs.fp32.2d [0; 8], [64; 8], <2, 8>", "vabs.fp32.2d [0; 8, 1], [64; 8, 1], <2, 8>"),
        ("vabs.fp32.3d [0; 8, x1], [64; 0, 1, 2], <x2, 1, x3 + 1>",
         "vabs.fp32.3d [0; 8, x1, 1], [64; 0, 1, 2], <x2, 1, x3 + 1>"),
        ("smov x1, x2 + 3", "smov x1, x2 + 3"),
        ("smov x1, 3 + x2 - 1", "smov x1, x2 + 2"),
        ("smov x1, x2 - 2 * 3", "smov x1, x2 - 6"),
        ("smov x1, x0", "smov x1, x0"),
        ("smov x1, 1 << 4 | 3", "smov x1, 19"),
        ("fmov x1, x2", "fmov x1, x2"),
        ("  jmp here ; there\nhere:", "jmp +1"),
        ("a: b: jmp a", "jmp +0"),
    ],
)  # fmt: skip
def test_operands(written: str, meant: str) -> None:
    assert texts(written) == [meant]


def test_a_comment_does_not_begin_inside_brackets() -> None:
    assert texts("vabs.fp32.1d [0 ; 2], [4;1], <8> ; [ 3") == ["vabs.fp32.1d [0; 2], [4; 1], <8>"]


# ---- expressions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2 + 3 * 4", 14),
        ("(2 + 3) * 4", 20),
        ("7 / 2 - 7 % 2", 2),
        ("-7 / 2", -4),
        ("-7 % 2", 1),
        ("1 << 3 + 1", 16),
        ("6 & 3 | 8", 10),
        ("--5 - -5", 10),
        ("0x_ff + 0b101 + 1_000", 1260),
        ("min(3, 4) + max(3, 4) * 10", 43),
        ("ceildiv(10, 4) + align(10, 4)", 15),
        ("(3 < 4) + (3 == 4) + (3 != 4) + (3 >= 4)", 2),
        ("9223372036854775808 / 9223372036854775807 - 1 << 63 >> 62", 0),
        ("sizeof(b) + b", 640),
        ('"odd name" + t', 1024 + 1),
        ("K * 2", 22),
    ],
)
def test_expressions(expression: str, value: int) -> None:
    declared = (
        """.buffer a ddr 100\n.buffer b ddr 128 \n.buffer "odd name" ddr 1\n.tiling s = 1\n.tiling t = 2\n.equ K 11"""
    )
    assert moved(expression, declared) == value


def test_expressions_agree_with_python() -> None:
    rng = Random(3)
    checked = 0
    while checked < 300:
        parts = [str(rng.randrange(20))]
        for _ in range(rng.randrange(1, 8)):
            parts += [rng.choice(("+", "-", "*", "/", "%", "<<", ">>", "&", "|")), str(rng.randrange(1, 9))]
        if len(parts) > 4 and rng.random() < 0.5:
            parts[0], parts[2] = f"({parts[0]}", f"{parts[2]})"
        text = " ".join(parts)
        # Python binds & and | as the assembler does.
        try:
            expected = eval(text.replace("/", "//"))  # noqa: S307 - digits and operators made above
        except (ValueError, ZeroDivisionError):
            continue
        if abs(expected) < 2**31:
            try:
                assert moved(text) == expected, text
            except InvalidError as error:  # an intermediate value passed 2**63 or a shift count 63
                assert error.problems[0].code == "TW1213"
            checked += 1


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("1.5", 0x3FC00000),
        ("-1.5", 0xBFC00000),
        ("1", 0x3F800000),
        ("1/3", 0x3EAAAAAB),
        ("0.1", 0x3DCCCCCD),
        ("-0.0", 0x80000000),
        ("0", 0),
        ("3.4028235e38", 0x7F7FFFFF),
        ("1e-45", 1),
        ("1e-46", 0),
        ("inf", 0x7F800000),
        ("-inf", 0xFF800000),
        ("nan", 0x7FC00000),
        ("0f7fc00001", 0x7FC00001),
        ("1.00000005960464477539", 0x3F800000),  # 1 + 2**-24 and no more: a tie, to even
        ("1.0000000596046448", 0x3F800001),  # just above the tie: rounding twice would lose it
        ("(1 + 0.5) * 2", 0x40400000),
    ],
)
def test_floats_round_once(text: str, bits: int) -> None:
    assert float_bits(text) == bits


# ---- buffers ------------------------------------------------------------------------------------------------


def test_buffers_lie_one_after_the_other() -> None:
    program = assemble(
        """
        .input a ddr fp16 3x5
        .input b ddr fp32 []
        .inout far ddr int8 1 at 10_000
        .output c ddr bool 7 align 8
        .buffer u ub 5
        .buffer v ub 5
        .buffer w ub 5 align 256 size 100
        .buffer x ub 4 at v + 1 alias
        .buffer y ub 5
        .buffer acc l0c fp32 16x16
        .buffer acc2 l0c 8
        .buffer bias bt 4
        .buffer scale bt 4
        """
    )
    found = {buffer.name: (buffer.offset, buffer.size_bytes) for buffer in program.buffers}
    assert found == {
        "a": (0, 30), "b": (512, 4), "far": (10_000, 1), "c": (10_008, 7),
        "u": (0, 5), "v": (32, 5), "w": (256, 100), "x": (33, 4), "y": (384, 5),
        "acc": (0, 1024), "acc2": (1024, 8), "bias": (0, 4), "scale": (64, 4),
    }  # fmt: skip


# ---- constants, conditions, macros, repetitions ---------------------------------------------------------------


def test_definitions_from_outside_win() -> None:
    source = ".equ N 4\n.equ M N * 2\nsmov x1, M"
    assert texts(source) == ["smov x1, 8"]
    assert texts(source, defines={"N": 5}) == ["smov x1, 10"]
    assert texts("smov x1, N", defines={"N": 5}) == ["smov x1, 5"]


@pytest.mark.parametrize(("value", "taken"), [(1, 10), (2, 20), (3, 30), (4, 40)])
def test_conditions(value: int, taken: int) -> None:
    source = f"""
    .equ N {value}
    .if N == 1
        smov x1, 10
    .elif N == 2
        smov x1, 20
    .elif (N > 2) & (N < 4)
        .if 1
            smov x1, 30
        .else
            this is not read
        .endif
    .else
        smov x1, 40
    .endif
    """
    assert texts(source) == [f"smov x1, {taken}"]


def test_macros_and_repetitions() -> None:
    source = """\
.macro wait from, to, id
    set_flag.\\from.\\to \\id
    wait_flag.\\from.\\to \\id ; \\ends the comment
.endm
.macro spin n, op
again\\@:
    ssub x1, x1, \\n
    bgt x1, \\op, again\\@
.endm
    wait v, mte3, 0
here: spin 1, min(2, 3)
    spin 2, 0
.rept 2, i
    .rept 2, j
    smov x\\i, \\j
    .endr
.endr
"""
    program = assemble(source)
    assert [instruction_text(instr) for instr in program.instrs] == [
        "set_flag.v.mte3 0",
        "wait_flag.v.mte3 0",
        "ssub x1, x1, 1",
        "bgt x1, 2, -1",
        "ssub x1, x1, 2",
        "bgt x1, 0, -1",
        "smov x0, 0",
        "smov x0, 1",
        "smov x1, 0",
        "smov x1, 1",
    ]
    assert program.lines == (2, 3, 7, 8, 7, 8, 15, 15, 15, 15)
    assert dict(program.labels)["here"] == 2


def test_a_macro_may_call_itself() -> None:
    source = ".macro down n\n.if \\n > 0\nsmov x1, \\n\ndown (\\n - 1)\n.endif\n.endm\ndown 3"
    assert texts(source) == ["smov x1, 3", "smov x1, 2", "smov x1, 1"]


# ---- chips --------------------------------------------------------------------------------------------------


def test_chip_facts() -> None:
    tiny = load_chip("tiny")
    wanted = [f"smov x1, {tiny.cores}", f"smov x1, {tiny.memory.ub_bytes}", f"smov x1, {tiny.vector.bytes_per_cycle}"]
    source = "smov x1, chip.cores\nsmov x1, chip.ub_bytes\nsmov x1, chip.vector.bytes_per_cycle"
    assert texts(f".chip tiny\n{source}") == wanted
    assert texts(source, chip=tiny) == wanted
    assert assemble(source, chip=tiny).chip == "tiny"
    assert assemble("halt", chip=tiny).chip is None


# ---- mistakes -----------------------------------------------------------------------------------------------


def problems(source: str, **options: object) -> list[str]:
    with pytest.raises(InvalidError) as caught:
        assemble(source, **options)  # type: ignore[arg-type]
    found = []
    for problem in caught.value.problems:
        assert problem.place
        at = problem.place
        marked = at.source[at.column - 1 :][: at.width]
        hint = f" ({problem.hint})" if problem.hint else ""
        found.append(f"{at.line}:{at.column} {problem.code} [{marked}] {problem.message}{hint}")
    return found


MISTAKES = [
    # the words of a line
    ("smov x1, 5 # five", "1:12 TW1205 [#] the character `#` means nothing here (comments begin with ; or //)"),
    ("smov x1, 12q", "1:10 TW1205 [12q] `12q` is not a number (numbers: 12, 1_000, 0x1f, 0b101, 1.5, 2.5e-3,"
     " 0f3fc00000 (the bits of an fp32); shapes: 16x32)"),
    ("smov x1, 0x_", "1:10 TW1205 [0x_] `0x_` is not a number (numbers: 12, 1_000, 0x1f, 0b101, 1.5, 2.5e-3,"
     " 0f3fc00000 (the bits of an fp32); shapes: 16x32)"),
    ('.program "a', '1:10 TW1205 ["a] a string is not closed'),
    ("smov \\r, 1", "1:6 TW1205 [\\] the character `\\` means nothing here (\\name stands for a parameter, inside a"
     " macro or a repetition only)"),
    ("[1]", "1:1 TW1206 [[] expected a label, a directive or an instruction, found `[`"),
    # mnemonics and modifiers
    ("vad.fp32.1d [0], [0], [0], <1>", "1:1 TW1207 [vad] there is no instruction `vad` (did you mean `vpad`?)"),
    ("vadd.fp32 [0], [0], [0], <1>", "1:1 TW1208 [vadd.fp32] vadd: modifier rank is missing; allowed: 1d, 2d, 3d"
     " (it is written vadd.dtype.rank)"),
    ("vadd.fp23.1d [0], [0], [0], <1>", "1:6 TW1208 [fp23] vadd: dtype is `fp23`; allowed: fp16, bf16, fp32, int8,"
     " uint8, int16, int32 (did you mean `fp32`?)"),
    ("vadd.1d.fp32 [0], [0], [0], <1>", "1:6 TW1208 [1d] vadd: dtype is `1d`; allowed: fp16, bf16, fp32, int8,"
     " uint8, int16, int32 (the order is vadd.dtype.rank)"),
    ("halt.now", "1:6 TW1208 [now] halt has too many modifiers; it has none"),
    # operands
    ("sadd x1, x2", "1:12 TW1209 [] sadd lacks the value `b` (it is written sadd d, a, b)"),
    ("sadd x1, x2, x3, x4", "1:16 TW1209 [,] sadd has too many operands (it is written sadd d, a, b)"),
    ("halt 3", "1:6 TW1206 [3] expected the end of the line, found `3`"),
    ("sadd x1 x2, x3", "1:9 TW1206 [x2] expected `,` before the value `a`, found `x2`"),
    ("smov 5, 1", "1:6 TW1209 [5] d must be a register, x0 to x31; found `5`"),
    ("smov x32, 1", "1:6 TW1209 [x32] d must be a register, x0 to x31; found `x32`"),
    ("smov x1, x2 * 2", "1:13 TW1206 [*] expected the end of the line, found `*`"),
    ("smov x1, 2 * x2", "1:14 TW1221 [x2] register `x2` stands where only a constant may (a register comes first: x1,"
     " x1 + 4, x1 - 4)"),
    ("smov x1, x2 + x3", "1:15 TW1221 [x3] a value holds one register, added once (registers: x1, x1 + 4, x1 - 4)"),
    ("smov x1, 2147483648", "1:10 TW1212 [2147483648] smov: a is 2147483648; allowed: -2147483648 to 2147483647"),
    ("smov x1, x2 + (1 << 26)", "1:10 TW1212 [x2 + (1 << 26)] smov: a is a register with offset 67108864; allowed:"
     " -67108864 to 67108863"),
    ("vabs.fp32.1d 0, [0], <1>", "1:14 TW1209 [0] expected the tensor `dst`, found `0`"),
    ("vabs.fp32.1d [0, [0], <1>", "1:16 TW1206 [,] expected `]` to close `dst`, found `,`"),
    ("vabs.fp32.1d [0; 1, 2], [0], <1>", "1:21 TW1209 [2] `dst` has too many strides; allowed: 1, or 0 with the"
     " innermost being 1 (it is written [dst; s0])"),
    ("vabs.fp32.3d [0; 8], [0; 1, 1], <1, 1, 1>", "1:19 TW1209 []] `dst` has 1 strides; allowed: 3, or 2 with the"
     " innermost being 1 (it is written [dst; s2, s1, s0])"),
    ("vabs.fp32.2d [0; 8], [0; 8], <4>", "1:32 TW1209 [>] the shape has 1 extents; vabs needs <n1, n0>"),
    ("vabs.fp32.1d [0], [0], <4, 4>", "1:26 TW1209 [,] the shape has too many extents; vabs needs <n0>"),
    ("vabs.fp32.1d [0], [0], <4 + 65532>", "1:25 TW1212 [4 + 65532] vabs: n0 is 65536; allowed: 1 to 65535"),
    ("vabs.fp32.1d [0], [-4], <4>", "1:20 TW1212 [-4] vabs: a is -4; allowed: 0 to 2147483647 (a greater one fits a"
     " register)"),
    ("fix.ub.nd.fp16.fp32.none [0], [0], <8, 8>, 17, 8", "1:44 TW1212 [17] fix: src_pitch is 17; allowed: multiples"
     " of 16"),
    ("jmp 5", "1:5 TW1209 [5] target must be a label; found `5`"),
    ("jmp nowher\nnowhere: halt", "1:5 TW1219 [nowher] there is no label `nowher` (did you mean `nowhere`?)"),
    (".equ N 1\njmp N", "2:5 TW1219 [N] `N` is a constant, not a label"),
    ("fmov x1, 1e39", "1:10 TW1212 [1e39] a is beyond the largest fp32, 3.4028235e+38 (write inf)"),
    ("fmov x1, x2 + 1", "1:13 TW1206 [+] expected the end of the line, found `+`"),
    ("smov x1, 1.5", "1:10 TW1212 [1.5] `1.5` is not an integer, which this must be"),
    # names
    ("smov x1, size", "1:10 TW1210 [size] nothing is called `size` here (declare it on an earlier line, or give it with"
     " -D)"),
    (".equ size 1\nsmov x1, sizes", "2:10 TW1210 [sizes] nothing is called `sizes` here (did you mean `size`?)"),
    (".equ a 1\n.buffer a ub 4", "2:9 TW1211 [a] `a` is defined twice; first on line 1"),
    ("a:\na: halt", "2:1 TW1211 [a] `a` is defined twice; first on line 1"),
    (".equ x7 1", "1:6 TW1211 [x7] `x7` has a meaning of its own and cannot be redefined"),
    (".reg i x5\nsmov x1, i * 2", "2:12 TW1206 [*] expected the end of the line, found `*`"),
    ("smov x1, sizeof(a)", "1:17 TW1210 [a] no buffer is called `a`"),
    ("here: smov x1, 1 + here", "1:20 TW1221 [here] `here` is a label; this must be a constant"),
    ("smov x1, chip.cores", "1:10 TW1218 [chip.cores] `chip.cores` needs a chip (name one: `.chip tw2` in the text,"
     " or --chip)"),
    (".chip tiny\nsmov x1, chip.core", "2:10 TW1210 [chip.core] chips have no `chip.core` (did you mean"
     " `chip.cores`?)"),
    # arithmetic
    ("smov x1, 4 / (2 - 2)", "1:12 TW1213 [/] `/` by zero"),
    ("smov x1, 1 << 64", "1:12 TW1213 [<<] a shift count is 64; allowed: 0 to 63"),
    ("smov x1, 1 << 63 << 63", "1:18 TW1213 [<<] a value of 127 bits; allowed: magnitudes up to 2**63"),
    ("smov x1, align(4, 0)", "1:10 TW1213 [align] the second argument of align is 0; allowed: above 0"),
    ("smov x1, min(4)", "1:10 TW1209 [min] min takes 2 arguments, not 1"),
    ("smov x1, (4 + 5", "1:16 TW1206 [] expected `)` to close `(` at column 10, found the end of the line"),
    ("smov x1, 4 == 4", "1:12 TW1206 [==] expected the end of the line, found `==`"),
    ("smov x1, " + "(" * 65, "1:74 TW1216 [(] parentheses are nested more than 64 deep"),
    # directives
    (".inptu a ddr fp32 4", "1:1 TW1214 [.inptu] there is no directive `.inptu` (did you mean `.input`?)"),
    (".input a dram fp32 4", "1:10 TW1206 [dram] expected memory (ddr, llb, l1, l0a, l0b, l0c, ub, bt, fb), found"
     " `dram`"),
    (".input a ddr fp23 4", "1:14 TW1206 [fp23] expected element type (fp16, bf16, fp32, int8, uint8, int16, int32,"
     " bool, int64), found `fp23` (did you mean `fp32`?)"),
    (".input a ddr fp32 4x0", "1:19 TW1212 [4x0] an extent of `a` is 0; allowed: 1 or more"),
    (".input a ddr fp32 4 near 4", "1:21 TW1206 [near] expected `align`, `at`, `size`, `alias` or the end of the"
     " line, found `near`"),
    (".input a ddr fp32 4 align 0", "1:27 TW1212 [0] `align` is 0; allowed: 1 to 70368744177664"),
    (".input a ddr fp32 4 size 8", "1:26 TW1212 [8] `size` is 8; allowed: 16 to 70368744177664"),
    (".buffer a ub 64\n.buffer b ub 4 at 60", "2:9 TW1217 [b] `b` at 60 to 63 of ub overlaps `a` (say `alias` if they"
     " share these bytes on purpose)"),
    (".buffer b ub 4 alias", "1:16 TW1217 [alias] `alias` needs the address that is shared (write `at ADDRESS alias`)"),
    (".cores 0", "1:8 TW1212 [0] the number of cores is 0; allowed: 1 to 1024"),
    (".cores 1\n.cores 1", "2:1 TW1211 [.cores] the number of cores is given twice"),
    (".entry 0, a\na: halt", "1:1 TW1214 [.entry] `.entry` needs the number of cores (write `.cores N` on a line"
     " before it)"),
    (".cores 1\n.entry 1, a\na: halt", "2:8 TW1212 [1] the core is 1; allowed: 0 to 0"),
    (".cores 1\n.entry 0, b\na: halt", "2:11 TW1219 [b] there is no label `b`"),
    (".chip tiy", "1:7 TW1218 [tiy] no chip is called `tiy` (did you mean `tiny`?)"),
    (".tiling t = 1 << 63", "1:13 TW1212 [1] a tiling word is 9223372036854775808; allowed: -9223372036854775808 to"
     " 9223372036854775807"),
    (".reg i 5", "1:8 TW1206 [5] expected a register, x0 to x31, found `5`"),
    # blocks
    (".if 1\nhalt", "1:1 TW1215 [.if] `.if` without `.endif`"),
    ("halt\n.endr", "2:1 TW1215 [.endr] `.endr` without `.rept`"),
    (".if 1\n.endm\n.endif", "2:1 TW1215 [.endm] `.endm` without `.macro` (line 1 opened `.if`)"),
    (".if 0\n.else\n.elif 1\n.endif", "3:1 TW1215 [.elif] `.elif` after `.else`"),
    (".if 1 +\n.endif", "1:8 TW1206 [] expected a number, a name or `(`, found the end of the line"),
    ("a: .if 1\n", "1:4 TW1215 [.if] `.if` must come first on its line"),
    (".rept 0 - 1\n.endr", "1:7 TW1212 [0] a repetition count is -1; allowed: 0 or more"),
    (".macro halt\n.endm", "1:8 TW1211 [halt] `halt` is an instruction and cannot be a macro"),
    (".macro m\n.endm\n.macro m\n.endm", "3:8 TW1211 [m] macro `m` is defined twice; first on line 1"),
    (".macro m a, a\n.endm", "1:13 TW1211 [a] parameter `a` is named twice"),
    (".macro m a, b\n.endm\nm 1", "3:1 TW1209 [m] macro `m` has 1 arguments here; it takes 2 (a, b)"),
    (".macro m a\nsmov x1, \\a\n.endm\nhalt\n  m 1 +", "2:13 TW1206 [] expected a number, a name or `(`, found the end"
     " of the line (in macro `m` called on line 5)"),
    (".macro m\nsmov y, 1\n.endm\n.macro n\nm\n.endm\n.rept 3\nn\n.endr", "2:6 TW1209 [y] d must be a register, x0 to"
     " x31; found `y` (in macro `m` called on line 5, in macro `n` called on line 8, in the repetition of line 7)"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "said"), MISTAKES, ids=[source[:30] for source, _ in MISTAKES])
def test_a_mistake_is_shown_where_it_stands(source: str, said: str) -> None:
    assert problems(source) == [said]


def test_all_mistakes_at_once_in_order() -> None:
    source = "\n".join(source for source, _ in MISTAKES[5:12])
    assert [line.partition(" ")[2] for line in problems(source)] == [
        said.partition(" ")[2] for _, said in MISTAKES[5:12]
    ]


def test_how_a_mistake_is_printed() -> None:
    with pytest.raises(InvalidError) as caught:
        assemble("\tvabs.fp32.1d [0], [4; 1, 1], <8>", file="a.twasm")
    assert str(caught.value) == (
        "a.twasm:1:27: error[TW1209]: `a` has too many strides; allowed: 1, or 0 with the innermost being 1\n"
        "     vabs.fp32.1d [0], [4; 1, 1], <8>\n"
        "                              ^\n"
        "  help: it is written [a; s0]"
    )


@pytest.mark.parametrize(
    ("source", "defines", "said"),
    [
        ("halt", {"N": 1}, "-D N: the program has no constant of this name"),
        (".equ TILES 1", {"TILE": 1}, "-D TILE: the program has no constant of this name"),
        ("halt", {"N": 2**64}, "-D N has 65 bits; allowed: up to 2**63"),
    ],
)
def test_a_definition_that_is_not_used(source: str, defines: Mapping[str, int], said: str) -> None:
    with pytest.raises(InvalidError) as caught:
        assemble(source, defines=defines)
    assert [problem.message for problem in caught.value.problems] == [said]


def test_a_program_for_another_chip() -> None:
    said = "1:7 TW1218 [tw2] the program is for chip `tw2`, and it is assembled for `tiny`"
    assert problems(".chip tw2", chip=load_chip("tiny")) == [said]


# ---- files and limits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"halt\nsmov x1, \xff", "TW1204 the file is not UTF-8: byte 0xff at offset 14 2:10"),
        (b"halt\n a\0b", "TW1204 the text holds a NUL byte 2:3"),
        (b";" * (assembler.MAX_SOURCE_BYTES + 1), "TW1203 assembly text may have at most 8388608 bytes 0:0"),
    ],
    ids=["not UTF-8", "NUL", "too large"],
)
def test_a_file_that_is_not_text(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "a.twasm"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        assemble_file(path)
    (problem,) = caught.value.problems
    assert problem.place
    assert f"{problem.code} {problem.message} {problem.place.line}:{problem.place.column}" == said


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"TW1201.*No such file"):
        assemble_file(tmp_path / "none.twasm")
    with pytest.raises(InputError, match="TW1202"):
        assemble_file(tmp_path)
    with pytest.raises(InputError, match="TW1202"):
        assemble_file("/dev/zero")
    with pytest.raises(InputError, match="TW1201"):
        assemble_file("a\0b")


def test_carriage_returns_and_a_byte_order_mark_are_welcome(tmp_path: Path) -> None:
    path = tmp_path / "windows.twasm"
    path.write_bytes(b"\xef\xbb\xbfsmov x1, 2\r\nhalt\r\n")
    program = assemble_file(path)
    assert (program.name, [instr.values for instr in program.instrs]) == ("windows", [(1, 2), ()])


MOST_LINES, MOST_CHARS = 1 << 12, 1 << 17  # of those below, in place of what takes seconds to reach
BOMBS = {
    "recursion": (".macro m\nm\n.endm\nm", "macros, repetitions and conditions are nested more than 64 deep"),
    "doubling": (".macro m\nm\nm\n.endm\nm", "macros, repetitions and conditions are nested more than 64 deep"),
    "empty repetition": (".rept 1 << 62\n.endr", f"macros and repetitions expand to more than {MOST_LINES} lines"),
    "repetition": (".rept 1 << 62\nnop\n.endr", f"macros and repetitions expand to more than {MOST_LINES} lines"),
    "nested repetition": (
        ".rept 1000\n" * 20 + "nop\n" + ".endr\n" * 20,
        f"macros and repetitions expand to more than {MOST_LINES} lines",
    ),
    "growing argument": (
        ".macro m a\nm \\a\\a\n.endm\nm 1234567890",
        "line 2 expands to 5122 characters; allowed: 4096",
    ),
    "long lines": (
        ".rept 1 << 20, i\n.equ a\\i " + "1 + " * 900 + "1\n.endr",
        f"macros and repetitions expand to more than {MOST_CHARS} characters",
    ),
    "deep conditions": (
        ".if 1\n" * 500 + ".endif\n" * 500,
        "macros, repetitions and conditions are nested more than 64 deep",
    ),
    "open conditions": (".if 1\n" * 20_000, "`.if` without `.endif`"),
    "long line": ("smov x1, " + "1 + " * 2000 + "1", "a line has 8010 characters; allowed: 4096"),
    "signs": ("smov x1, " + "-" * 4000 + "1", ""),
    "digits": ("smov x1, " + "9" * 4000, "a value of 13288 bits; allowed: magnitudes up to 2**63"),
    "fractions": (
        "fmov x1, " + "/".join(["1.00000000001"] * 250),
        "a value needs more than 2048 bits",
    ),
    "exponent": (
        "fmov x1, 1e999999999999999",
        "the exponent of `1e999999999999999` is too large; allowed: -100 to 100",
    ),
    "nonsense": ("no such thing\n" * 100_000, "more than 500 problems: not assembly text?"),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_expansion_is_bounded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion, "MAX_EXPANDED_LINES", MOST_LINES)
    monkeypatch.setattr(expansion, "MAX_EXPANDED_CHARS", MOST_CHARS)
    source, said = BOMBS[name]
    messages = []
    try:
        assemble(source)
    except InvalidError as error:
        messages = [problem.message for problem in error.problems]
    assert any(said in message for message in messages) or not said


def test_a_large_program_is_assembled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembler, "MAX_INSTRUCTIONS", 100)
    assert len(assemble("nop\n" * 100).instrs) == 100
    with pytest.raises(InvalidError, match=r"TW1216.*more than 100 instructions"):
        assemble("nop\n" * 101)


# ---- noise --------------------------------------------------------------------------------------------------

SEED_TEXT = """\
.program demo
.chip tiny
.cores 2
.equ N 16 * (3 + 1)
.input a ddr fp32 4x16
.buffer "odd \\u{41}" ub fp32 [4, N / 4] align 64
.buffer v ub 64 at 0 alias
.tiling trips = N >= 4
.reg i x5
.macro both op, id
    \\op.v.mte3 \\id
l\\@: bgt x1, \\id, l\\@
.endm
start:
    loop i, x1 + 3, end ; comment
    vadd.fp32.2d [v; 16, 1], [i + "odd A" - 4; 16], [0; x3], <2, 16>
    both set_flag, min(1, 2)
    .rept 3, k
    fmov x\\k, -1.5e-3
    .endr
end:
.if chip.cores == 2
    fmov x1, 0f7fc00001
.elif 1
    jmp start
.else
.endif
.entry 1, end
    halt
"""
PIECES = [
    *re.findall(r"\w+|[^\w\s]", SEED_TEXT),
    "\t",
    " ",
    "\n",
    '"',
    "\\",
    "é",
    "\x1b",
    "\U0001f600",
    "0x",
    "1e9",
    "@",
]


def mutated(rng: Random, source: str) -> str:
    lines = source.split("\n")
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(lines))
        line = lines[at]
        cut, end = sorted((rng.randrange(len(line) + 1), rng.randrange(len(line) + 1)))
        match rng.randrange(5):
            case 0:
                lines[at] = line[:cut] + rng.choice(PIECES) + line[cut:]
            case 1:
                lines[at] = line[:cut] + line[min(end, cut + 6) :]
            case 2:
                lines[at] = line[:cut] + rng.choice(PIECES) + line[min(end, cut + 4) :]
            case 3:
                lines[at] = rng.choice(lines)
            case 4:
                lines.insert(at, rng.choice(lines))
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(20))
def test_noise_ends_in_an_error_with_a_place(seed: int) -> None:
    rng = Random(seed)
    for _ in range(200):
        source = mutated(rng, SEED_TEXT)
        try:
            program = assemble(source)
        except TilewrightError as error:
            assert all(problem.place for problem in error.problems), source
            assert all(problem.code.startswith("TW12") for problem in error.problems), source
            str(error)
        else:
            assert isinstance(program, Program)
            assert all(isinstance(value, (int, Reg)) for instr in program.instrs for value in instr.values)
