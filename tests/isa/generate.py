"""Random instructions and programs over the whole table: valid encodings, not meaningful programs."""

from random import Random

from compiler.isa.encoding import allowed
from compiler.isa.model import OFFSET_MAX, OFFSET_MIN, REGISTERS, Instr, Reg, Row, Slot, Value
from compiler.isa.program import ROLES, Buffer, Program, TilingWord
from compiler.isa.table import rows


def random_instr(rng: Random, row: Row, index: int, count: int) -> Instr:
    mods = tuple(rng.choice(modifier.choices) for modifier in row.modifiers)
    return Instr(row, mods, tuple(random_value(rng, slot, index, count) for slot in row.slots(mods)))


def random_value(rng: Random, slot: Slot, index: int, count: int) -> Value:
    if slot.kind == "target":
        return rng.randint(-index, count - index)
    if slot.kind != "dest" and rng.random() < 0.4:
        offsets = (0, 0, 1, OFFSET_MIN, OFFSET_MAX, rng.randint(OFFSET_MIN, OFFSET_MAX))
        return Reg(rng.randrange(REGISTERS), 0 if slot.kind == "float" else rng.choice(offsets))
    low, high = allowed(slot)
    value = rng.choice((low, high, rng.randint(low, high), min(high, low + rng.randrange(100))))
    return value - value % slot.multiple


def random_instrs(rng: Random, count: int) -> tuple[Instr, ...]:
    table = rows()
    return tuple(random_instr(rng, rng.choice(table), index, count) for index in range(count))


def every_row(rng: Random) -> tuple[Instr, ...]:
    table = rows()
    return tuple(random_instr(rng, row, index, len(table)) for index, row in enumerate(table))


def random_program(rng: Random, instrs: tuple[Instr, ...]) -> Program:
    cores = rng.choice((None, 1, 3))
    names = ["a", "L1", "x3", "sizeof", "input.1", 'quo"te\\', "tab\t", "ünïcode", "fp16", "at"]
    rng.shuffle(names)
    buffers, end = [], 0
    for name in names[:5]:
        shape = rng.choice(((), (7,), (3, 5), (1,) * 9))
        size = 4 * (1 if not shape else 7 if len(shape) == 1 else 15 if len(shape) == 2 else 1)
        offset = rng.choice((end, end + 13, max(0, end - 4), 0))
        buffers.append(
            Buffer(name, rng.choice(("ub", "ddr")), offset, size + rng.choice((0, 9)), "fp32", shape, rng.choice(ROLES))
        )
        end = max(end, buffers[-1].end)
    return Program(
        rng.choice(("demo", "a b", "", "x1")),
        rng.choice((None, "tiny")),
        cores,
        instrs,
        tuple(buffers),
        tuple(TilingWord(name, rng.choice((0, 7, -(2**63), 2**63 - 1))) for name in names[5:8]),
        tuple(rng.randrange(len(instrs)) for _ in range(cores or 0)) if rng.random() < 0.7 else (),
    )
