"""The encoding: every row survives the round trip, and every bit that is wrong is named."""

import struct
from itertools import product
from random import Random

import pytest

import compiler.isa.encoding as encoding
from compiler.errors import CorruptError, InvalidError, TilewrightError
from compiler.isa.encoding import HEADER_FIELDS, MAX_SLOTS, decode, encode, form
from compiler.isa.model import Instr, Reg
from compiler.isa.table import by_mnemonic, rows
from tests.isa.generate import every_row, random_instrs

ROWS = by_mnemonic()
JUMP = Instr(ROWS["jmp"], (), (0,))
MOVE = Instr(ROWS["smov"], (), (4, -3))
ADD = Instr(ROWS["vadd"], ("fp32", "1d"), (0, 1, Reg(3, -5), 1, 64, 1, 7))  # seven slots: one word of padding


def words(instr: Instr) -> list[int]:
    data = encode([instr])
    return list(struct.unpack(f"<Q{len(data) // 4 - 2}I", data))


def changed(instr: Instr, word: int, bit: int, value: int = 1) -> bytes:
    """The encoding with ``value`` xor-ed in at a bit of word 0 (the header) or of slot ``word - 1``."""
    content = words(instr)
    content[word] ^= value << bit
    return struct.pack(f"<Q{len(content) - 1}I", *content)


def message(data: bytes, kind: type[TilewrightError] = InvalidError) -> str:
    with pytest.raises(kind) as caught:
        decode(data)
    return "\n".join(problem.message for problem in caught.value.problems)


def test_the_table_fits_the_encoding() -> None:
    assert max(first + bits for _, first, bits in HEADER_FIELDS) == 64
    for row in rows():
        assert row.opcode < 1024
        assert sum(modifier.bits for modifier in row.modifiers) <= 24, row.mnemonic
        for mods in product(*(modifier.choices for modifier in row.modifiers)):
            slots = form(row, mods).slots
            assert len(slots) <= MAX_SLOTS, row.mnemonic
            assert len({slot.name for slot in slots}) == len(slots), row.mnemonic


@pytest.mark.parametrize("seed", range(10))
def test_every_row_survives_the_round_trip(seed: int) -> None:
    instrs = every_row(Random(seed))
    data = encode(instrs)
    assert len(data) % 8 == 0
    assert decode(data) == instrs


def test_an_encoding_bit_by_bit() -> None:
    header, *slots = words(ADD)
    assert header == 448 | 2 << 10 | 0 << 13 | 1 << (34 + 2) | 7 << 58
    assert slots == [0, 1, 3 | (-5 & 0x7FFFFFF) << 5, 1, 64, 1, 7, 0]
    assert words(MOVE) == [2 << 58, 4, 0xFFFFFFFD]


def test_nothing_encodes_to_nothing() -> None:
    assert encode([]) == b""
    assert decode(b"") == ()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((32, 0), "d is 32; allowed: 0 to 31"),
        ((Reg(1), 0), "d has register form; allowed: a register's number in immediate form"),
        ((0, 2**31), "a is 2147483648; allowed: -2147483648 to 2147483647"),
        ((0, Reg(32)), "a is register 32; allowed: 0 to 31"),
        ((0, Reg(1, 2**26)), "a is a register with offset 67108864; allowed: -67108864 to 67108863"),
        ((0,), "has 1 slots; allowed: 2"),
    ],
)
def test_a_value_that_has_no_encoding(values: tuple[int, ...], said: str) -> None:
    with pytest.raises(InvalidError) as caught:
        encode([JUMP, Instr(ROWS["smov"], (), values)])
    assert [p.message for p in caught.value.problems] == [f"instruction 1 (smov): {said}"]


@pytest.mark.parametrize("mods", [("fp32",), ("fp33", "1d"), ("1d", "fp32")])
def test_modifiers_that_the_row_lacks(mods: tuple[str, ...]) -> None:
    with pytest.raises(InvalidError, match="vadd"):
        encode([Instr(ADD.row, mods, ADD.values)])


@pytest.mark.parametrize(
    ("instr", "word", "bit", "value", "said"),
    [
        (MOVE, 0, 0, 127, "word 0: opcode is 127; allowed: the opcodes of the instruction table"),
        (ADD, 0, 10, 2 ^ 7, "word 0: vadd: modifier dtype is 7; allowed: 0 to 6"),
        (ADD, 0, 13, 3, "word 0: vadd: modifier rank is 3; allowed: 0 to 2"),
        (ADD, 0, 15, 1, "word 0: vadd: the unused modifier bits are 0x1; allowed: 0"),
        (ADD, 0, 33, 1, "word 0: vadd: the unused modifier bits are 0x40000; allowed: 0"),
        (MOVE, 0, 36, 1, "word 0: smov: register mask is 0x4; allowed: bits 0 to 1 only"),
        (ADD, 0, 58, 15, "word 0: vadd: slot count is 8; allowed: 7"),
        (ADD, 8, 31, 1, "word 9: vadd: the padding is 0x80000000; allowed: 0"),
        (MOVE, 1, 5, 1, "word 2: smov: d is 36; allowed: 0 to 31"),
        (MOVE, 0, 34, 1, "word 2: smov: d has register form; allowed: a register's number in immediate form"),
        (JUMP, 1, 0, 2, "word 2: jmp: target is 2, which leads to instruction 2; allowed: 0 to 1"),
        (JUMP, 0, 34, 1, "word 2: jmp: target has register form; allowed: a distance in instructions in immediate"
         " form"),
        (ADD, 7, 0, 7, "word 8: vadd: n0 is 0; allowed: 1 to 65535"),
        (ADD, 2, 31, 1, "word 3: vadd: dst.s0 is -2147483647; allowed: 0 to 2147483647"),
    ],
)  # fmt: skip
def test_every_wrong_bit_is_named(instr: Instr, word: int, bit: int, value: int, said: str) -> None:
    assert message(changed(instr, word, bit, value)).replace(" (instruction 0)", "") == said


def test_a_float_register_has_no_offset() -> None:
    move = Instr(ROWS["fmov"], (), (1, Reg(2)))
    assert decode(encode([move])) == (move,)
    said = "word 3 (instruction 0): fmov: a is a register with offset 1; allowed: a float register has offset 0"
    assert message(changed(move, 2, 5)) == said


def test_all_problems_at_once_up_to_a_limit() -> None:
    assert message(changed(MOVE, 1, 5) * 3).count("d is 36") == 3
    assert len(message(changed(MOVE, 1, 5) * 1000).splitlines()) == 50


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\0" * 7, "a program has 7 bytes; allowed: a multiple of 8"),
        (encode([ADD])[:-8], "word 0 (instruction 0): the instruction has 10 words; only 8 are left"),
    ],
)
def test_a_program_that_is_cut_off(data: bytes, said: str) -> None:
    assert message(data, CorruptError) == said


def test_size_is_bounded_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "MAX_PROGRAM_BYTES", 64)
    assert message(b"\0" * 72) == "a program has 72 bytes; allowed: at most 64"
    monkeypatch.setattr(encoding, "MAX_INSTRUCTIONS", 2)
    assert message(encode([MOVE, MOVE]) + encode([MOVE])).endswith("the program goes on; allowed: 2 instructions")
    with pytest.raises(InvalidError, match="3 instructions; allowed: 2"):
        encode([MOVE] * 3)


def test_every_flipped_bit_is_refused_or_means_something_else() -> None:
    instrs = random_instrs(Random(1), 24)
    good = encode(instrs)
    for bit in range(0, len(good) * 8, 5):
        data = bytearray(good)
        data[bit // 8] ^= 1 << bit % 8
        try:
            decoded = decode(bytes(data))
        except (InvalidError, CorruptError):
            continue
        assert decoded != instrs
        assert encode(decoded) == data


@pytest.mark.parametrize("seed", range(40))
def test_noise_is_refused(seed: int) -> None:
    rng = Random(seed)
    data = bytearray(encode(random_instrs(rng, 20)))
    for _ in range(rng.choice((1, 3, 30))):
        at = rng.randrange(len(data))
        data[at : at + rng.randrange(9)] = rng.randbytes(rng.randrange(9))
    try:
        decoded = decode(bytes(data))
    except (InvalidError, CorruptError):
        return
    assert encode(decoded) == data
