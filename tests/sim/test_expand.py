"""The scalar unit: the compiled kernel computes what the interpreter and plain arithmetic give, edges included."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from compiler.errors import InvalidError, LimitError
from compiler.isa.assembler import assemble
from compiler.isa.model import Float, Instr, Int, Reg, Row
from compiler.isa.program import Buffer, Program, TilingWord
from compiler.isa.table import by_mnemonic, rows
from compiler.sim.expand import expand
from compiler.sim.interpreter import interpret
from compiler.sim.simulator import simulate
from compiler.target import load_chip

TINY = load_chip("tiny")
TW1 = load_chip("tw1")
LOWEST, HIGHEST = -(2**63), 2**63 - 1
INTEGERS = (
    0, 1, -1, 2, -2, 3, 7, -7, 62, 63, 64, 65, -64, 2**31 - 1, -(2**31), 2**32, 2**53 + 1, 2**60 + 2**36 + 1,
    -(2**60) - 2**36 - 1, 2**62, -(2**62), HIGHEST, LOWEST + 1, LOWEST,
)  # fmt: skip
FEWER = (0, 1, -1, 3, -7, 64, 2**32, 2**62, HIGHEST, LOWEST)
FLOATS = (
    0x00000000, 0x80000000, 0x3F800000, 0xBF800000, 0x40490FDB, 0x3FBFFFFF, 0x4B000001, 0x7F7FFFFF, 0x00000001,
    0x80000001, 0x007FFFFF, 0x5EFFFFFF, 0x5F000000, 0xDEFFFFFF, 0xDF000000, 0x5F000001, 0x7F800000, 0xFF800000,
    0x7FC00000, 0xFFC00000, 0x7FA00000, 0xFFA12345,
)  # fmt: skip


def wrapped(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def both_engines(row: Row, sources: Sequence[tuple[int, ...]]) -> tuple[list[int], list[int]]:
    """The results of a row for each tuple of sources: from the simulator and from the interpreter."""
    table, instrs, words = by_mnemonic(), [], []
    for number, values in enumerate(sources):
        for register, value in enumerate(values, start=8):
            instrs.append(Instr(table["ldt"], (), (register, len(words))))
            words.append(TilingWord(f"w{len(words)}", wrapped(value)))
        instrs.append(Instr(row, (), (20, *(Reg(8 + k) for k in range(len(values))))))
        instrs.append(Instr(table["sst"], ("ddr", "int64"), (8 * number, Reg(20))))
    instrs.append(Instr(table["halt"], (), ()))
    out = Buffer("out", "ddr", 0, 8 * len(sources), "int64", (len(sources),), "output")
    program = Program("scalars", None, 1, tuple(instrs), (out,), tuple(words))
    return tuple(engine(program, TINY, {}).outputs["out"].tolist() for engine in (simulate, interpret))  # type: ignore[return-value]


def sources_of(row: Row) -> list[tuple[int, ...]]:
    count = sum(isinstance(operand, Int | Float) for operand in row.operands)
    if row.kind in ("falu", "fcmp"):
        return list(product(FLOATS, repeat=count))
    return list(product(INTEGERS if count < 3 else FEWER, repeat=count))


def by_zero(function: Callable[[int, int], int], otherwise: int = 0) -> Callable[..., int]:
    return lambda a, b: otherwise if b == 0 else function(a, b)


EXACT: dict[str, Callable[..., int]] = {
    "smov": lambda a: a,
    "sadd": lambda a, b: a + b,
    "ssub": lambda a, b: a - b,
    "smul": lambda a, b: a * b,
    "smadd": lambda a, b, c: a * b + c,
    "smsub": lambda a, b, c: c - a * b,
    "sdiv": by_zero(lambda a, b: math.floor(Fraction(a, b))),
    "srem": by_zero(lambda a, b: a - math.floor(Fraction(a, b)) * b),
    "sceil": by_zero(lambda a, b: math.ceil(Fraction(a, b))),
    "salign": lambda a, b: a if b == 0 else math.ceil(Fraction(a, b)) * b,
    "smin": min,
    "smax": max,
    "sneg": lambda a: -a,
    "sabs": abs,
    "sand": lambda a, b: a & b,
    "sor": lambda a, b: a | b,
    "sxor": lambda a, b: a ^ b,
    "snot": lambda a: -a - 1,
    "sshl": lambda a, b: a * 2 ** (b % 64),
    "sshr": lambda a, b: a % 2**64 // 2 ** (b % 64),
    "ssar": lambda a, b: math.floor(Fraction(a, 2 ** (b % 64))),
    "seq": lambda a, b: int(a == b),
    "sne": lambda a, b: int(a != b),
    "slt": lambda a, b: int(a < b),
    "sle": lambda a, b: int(a <= b),
    "ssel": lambda a, b, c: b if a else c,
    "sclamp": lambda a, b, c: b if a < b else c if a > c else a,
}
IN_FP32: dict[str, Callable[..., Any]] = {
    "fmov": lambda a: a,
    "fadd": np.add,
    "fsub": np.subtract,
    "fmul": np.multiply,
    "fdiv": np.divide,
    "fmin": lambda a, b: a if a < b else b,
    "fmax": lambda a, b: a if a > b else b,
    "fneg": np.negative,
    "fabs": np.abs,
    "fsqrt": np.sqrt,
}
TO_INTEGER: dict[str, Callable[..., int]] = {
    "feq": lambda a, b: int(a == b),
    "flt": lambda a, b: int(a < b),
    "fle": lambda a, b: int(a <= b),
    "ftoi": lambda a: 0 if a != a else max(LOWEST, min(HIGHEST, math.trunc(max(min(float(a), 1e19), -1e19)))),
}
SCALAR_ROWS = [row for row in rows() if row.kind in ("alu", "falu", "fcmp", "itof")]


@pytest.mark.parametrize("row", SCALAR_ROWS, ids=lambda row: row.mnemonic)
def test_both_engines_agree_on_edge_values(row: Row) -> None:
    sources = sources_of(row)
    simulated, interpreted = both_engines(row, sources)
    differing = [(s, a, b) for s, a, b in zip(sources, simulated, interpreted, strict=True) if a != b]
    assert not differing, differing[:5]


@pytest.mark.parametrize("row", [row for row in SCALAR_ROWS if row.kind == "alu"], ids=lambda row: row.mnemonic)
def test_integers_are_exact_and_wrap(row: Row) -> None:
    sources = sources_of(row)
    expected = [wrapped(EXACT[row.mnemonic](*values)) for values in sources]
    assert both_engines(row, sources)[0] == expected


@pytest.mark.parametrize("row", [row for row in SCALAR_ROWS if row.kind == "falu"], ids=lambda row: row.mnemonic)
def test_floats_are_fp32(row: Row) -> None:
    sources = sources_of(row)
    with np.errstate(all="ignore"):
        expected = [IN_FP32[row.mnemonic](*(np.uint32(v).view(np.float32) for v in values)) for values in sources]
    got = np.array(both_engines(row, sources)[0], np.int64)
    assert got.min() >= 0  # bits fill the low half of a register
    np.testing.assert_array_equal(got.astype(np.uint32).view(np.float32), np.array(expected, np.float32))


@pytest.mark.parametrize("row", [row for row in SCALAR_ROWS if row.kind == "fcmp"], ids=lambda row: row.mnemonic)
def test_comparisons_and_cuts_of_floats(row: Row) -> None:
    sources = sources_of(row)
    expected = [TO_INTEGER[row.mnemonic](*(np.uint32(v).view(np.float32) for v in values)) for values in sources]
    assert both_engines(row, sources)[0] == expected


def test_integers_become_floats_by_one_rounding_to_nearest_even() -> None:
    def nearest(value: int) -> int:
        exponent = max(abs(value).bit_length() - 24, 0)
        return round(Fraction(value, 2**exponent)) * 2**exponent

    sources = sources_of(by_mnemonic()["itof"])
    got = both_engines(by_mnemonic()["itof"], sources)[0]
    assert [int(np.uint32(bits).view(np.float32)) for bits in got] == [nearest(a) for (a,) in sources]


# ---- sources, destinations, control -----------------------------------------------------------------------------


def registers(body: str, chip: Any = TINY, cores: int = 1, **tiling: int) -> list[list[int]]:
    """x8 to x11 of every core at the end of a program; both engines must agree on them."""
    words = "\n".join(f".tiling {name} = {value}" for name, value in tiling.items())
    stores = "\n".join(f"sst.ddr.int64 [x31 + {8 * k}], x{8 + k}" for k in range(4))
    text = f"""
    .cores {cores}
    .output out ddr int64 {cores}x4
    {words}
    {body}
    getsr.core x30
    smadd x31, x30, 32, out
    {stores}
    halt
    """
    program = assemble(text, chip=chip)
    found = simulate(program, chip, {}).outputs["out"]
    np.testing.assert_array_equal(found, interpret(program, chip, {}).outputs["out"])
    return found.tolist()


def test_register_zero_is_zero_whatever_is_written_to_it() -> None:
    assert registers("smov x0, 5\nsadd x8, x0, 3\nloop x0, 3, end\nsadd x9, x9, x0 + 1\nend:") == [[3, 3, 0, 0]]


def test_an_offset_wraps_around() -> None:
    assert registers("ldt x1, big\nsmov x8, x1 + 1\nsadd x9, x1 + 2, x1", big=HIGHEST) == [
        [LOWEST, wrapped(2 * HIGHEST + 2), 0, 0]
    ]


@pytest.mark.parametrize(
    ("name", "taken"),
    [("beq", "=="), ("bne", "!="), ("blt", "<"), ("ble", "<="), ("bgt", ">"), ("bge", ">=")],
)
def test_branches_compare_as_signed_integers(name: str, taken: str) -> None:
    pairs = list(product(FEWER, repeat=2))
    tests = "\n".join(
        f"ldt x1, a{k}\nldt x2, b{k}\nsshl x8, x8, {k % 50 != 0:d}\n{name} x1, x2, yes{k}\njmp no{k}\n"
        f"yes{k}: sadd x9, x9, 1\nsor x8, x8, 1\nno{k}:"
        for k, _ in enumerate(pairs)
    )
    words = {f"a{k}": a for k, (a, _) in enumerate(pairs)} | {f"b{k}": b for k, (_, b) in enumerate(pairs)}
    operations: dict[str, Callable[[int, int], bool]] = {
        "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    }  # fmt: skip
    bits, count = 0, 0
    for k, (a, b) in enumerate(pairs):
        bits = bits << (k % 50 != 0) | operations[taken](a, b)
        count += operations[taken](a, b)
    assert registers(tests, **words)[0][:2] == [wrapped(bits), count]


def test_loops_count_up_nest_and_may_run_not_at_all() -> None:
    body = """
    loop x1, 3, outer
    loop x2, x1, inner
    smadd x8, x8, 10, x2
    inner:
    sadd x9, x9, x1
    outer:
    ldt x3, none
    loop x4, x3, never
    trap 1
    never:
    """
    assert registers(body, none=-5) == [[0 * 100 + 0 * 10 + 1, 3, 0, 0]]


def test_a_branch_to_the_end_of_a_loop_goes_on_and_one_beyond_leaves_it() -> None:
    body = """
    loop x1, 10, end
    beq x1, {at}, {where}
    sadd x8, x8, 1
    end:
    nop
    after:
    """
    assert registers(body.format(at=4, where="end"))[0][0] == 9
    assert registers(body.format(at=4, where="after"))[0][0] == 4


def test_a_branch_leaves_all_the_loops_that_it_jumps_out_of() -> None:
    body = """
    loop x1, 3, outer
    loop x2, 3, inner
    sadd x8, x8, 1
    beq x2, 1, next
    inner:
    sadd x9, x9, 100
    next:
    sadd x9, x9, 1
    outer:
    """
    assert registers(body) == [[6, 3, 0, 0]]


def test_system_registers_tell_where_a_core_is() -> None:
    names = ("core", "cores", "cluster", "clusters", "core_in_cluster", "cores_per_cluster")
    parts = "\n".join(f"getsr.{name} x1\nsmadd x8, x8, 100, x1" for name in names)
    found = [row[0] for row in registers(parts, chip=TW1, cores=10)]
    assert found[0] == 10_00_04_00_08
    assert found[9] == 9_10_01_04_01_08


def test_scalar_stores_and_loads_keep_the_bits_of_their_type() -> None:
    text = """
    .cores 1
    .inout data ddr int64 8
    .tiling wide = 0x123456789ABCDEF
    ldt x1, wide
    sst.ddr.int64 [data], x1
    sst.ddr.int16 [data + 8], x1
    fneg x2, 1.5
    sst.ddr.fp32 [data + 16], x2
    sst.ddr.bf16 [data + 24], x2
    sld.ddr.int64 x3, [data]
    sst.ddr.int64 [data + 32], x3 + 1
    sld.ddr.fp32 x4, [data + 16]
    fadd x5, x4, 1.0
    sst.ddr.fp32 [data + 40], x5
    sld.ddr.int8 x6, [data + 3]
    sst.ddr.int64 [data + 48], x6
    halt
    """
    program = assemble(text, chip=TINY)
    inputs = {"data": np.zeros(8, np.int64)}
    run = simulate(program, TINY, inputs, hazards=True)
    assert not run.hazards
    found = run.outputs["data"]
    np.testing.assert_array_equal(found, interpret(program, TINY, inputs).outputs["data"])
    assert found[[0, 4, 6]].tolist() == [0x123456789ABCDEF, 0x123456789ABCDF0, wrapped(0x89 - 0x100)]
    assert found[1] == 0xCDEF
    assert found.view(np.float32)[[4, 10]].tolist() == [-1.5, -0.5]


def test_cores_that_do_the_same_share_the_classes_of_their_instructions() -> None:
    text = """
    .cores {}
    .output out ddr fp32 640
    getsr.core x1
    vdup.fp32.1d [0; 1], 1.0, <8>
    barrier_all
    loop x2, 10, end
    smadd x3, x2, 64, out
    smadd x3, x1, 640, x3
    st.ddr.fp32.1d [x3; 1], [0; 1], <8>
    end: halt
    """
    one, two = (expand(assemble(text.format(n), chip=TINY), TINY, n) for n in (1, 2))
    assert two.size == 2 * one.size
    assert two.classes == one.classes
    assert two.classes <= 2 + 512 // 64  # a store's cost can depend on where in a line it begins, on nothing above


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("trap 42", "TW1302", "core 0 trapped with code 42"),
        ("ldt x1, x0 + 3", "TW1302", "reads tiling word 3; the program has 0"),
        ("ldtc x1, x0 + 3", "TW1302", "reads tiling word 3; the program has 0"),
        ("ldtc x1, x0 - 3", "TW1302", "reads tiling word -3; the program has 0"),
        ("again: jmp again\nhalt", "TW1301", "core 0 ran"),
        ("sld.ddr.int32 x1, [0]", "TW1303", "a scalar load needs the contents of memory"),
    ],
)
def test_what_stops_a_scalar_unit_is_said(body: str, code: str, message: str) -> None:
    program = assemble(f".cores 1\n.input x ddr int32 4\n{body}\nhalt", chip=TINY)
    with pytest.raises((InvalidError, LimitError)) as error:
        expand(program, TINY, 1, max_steps=1000)
    assert error.value.problems[0].code == code
    assert message in error.value.problems[0].message
