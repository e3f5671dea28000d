"""Damage to real files. That to artifacts is covered up by new checksums, but where bits are flipped.

Each function makes bytes by a random generator: the same numbers make the same damage.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from dataclasses import replace
from random import Random
from typing import Any

from ci.fuzz_files import chip_files, some_file
from compiler.artifact import canonical, container, to_bytes
from compiler.errors import TilewrightError
from compiler.isa.encoding import allowed, decode, encode
from compiler.isa.model import Instr, Reg
from compiler.isa.program import Buffer, Program, TilingWord
from compiler.isa.table import rows
from compiler.target import load_chip

EXTREMES = (
    0, 1, -1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, 255, 256, 512, 1023, 1024, 4095, 4096, 65535, 65536, 2**20,
    2**26 - 1, 2**27, 2**31 - 1, 2**31, -(2**31), 2**32 - 1, 2**32, 2**40, 2**46, 2**53, 2**62, 2**63 - 1, -(2**63),
    2**63, 2**64, 10**19, 10**40,
)  # fmt: skip


def flipped(rng: Random, content: bytes) -> bytes:
    """One to eight bits, or a byte, another way round; sometimes a stretch of bytes gone, doubled or overwritten."""
    data = bytearray(content)
    if not data:
        return b"\0"
    match rng.randrange(8):
        case 0:
            at, size = rng.randrange(len(data)), rng.choice((1, 2, 8, 64))
            data[at : at + size] = rng.choice((b"", bytes(size), data[at : at + size] * 2, b"\xff" * size))
        case 1:
            data[rng.randrange(len(data))] = rng.randrange(256)
        case _:
            for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def _sections(artifact: bytes) -> dict[int, bytes]:
    header = container.read_header(artifact[: container.HEADER_BYTES], len(artifact))
    return {kind: bytes(view) for kind, view in container.read_sections(header, artifact).items()}


def code_bits(rng: Random) -> bytes:
    contents = _sections(some_file(rng, "twm"))
    contents[container.PROGRAMS] = flipped(rng, contents[container.PROGRAMS])
    return container.pack(contents)


def code_values(rng: Random) -> bytes:
    """Well-formed instructions that nobody would write: other operands, other modifiers, another order."""
    contents = _sections(some_file(rng, "twm"))
    instrs = list(decode(contents[container.PROGRAMS]))
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(instrs))
        match rng.randrange(6):
            case 0:
                other = rng.randrange(len(instrs))
                instrs[at], instrs[other] = instrs[other], instrs[at]
            case 1:
                instrs[at] = instrs[rng.randrange(len(instrs))]
            case 2:
                instrs[at] = _other_modifier(rng, instrs[at])
            case _:
                instrs[at] = _other_value(rng, instrs[at], at, len(instrs))
    try:
        contents[container.PROGRAMS] = encode(instrs)
    except TilewrightError:  # a jump out of the program: as bits instead
        contents[container.PROGRAMS] = flipped(rng, contents[container.PROGRAMS])
    return container.pack(contents)


def _other_modifier(rng: Random, instr: Instr) -> Instr:
    if not instr.row.modifiers:
        return instr
    mods = list(instr.mods)
    which = rng.randrange(len(mods))
    mods[which] = rng.choice(instr.row.modifiers[which].choices)
    same_slots = len(instr.row.slots(tuple(mods))) == len(instr.values)
    return replace(instr, mods=tuple(mods)) if same_slots else instr


def _other_value(rng: Random, instr: Instr, at: int, count: int) -> Instr:
    if not instr.values:
        return instr
    which = rng.randrange(len(instr.values))
    slot, old = instr.row.slots(instr.mods)[which], instr.values[which]
    low, high = allowed(slot)
    value: Any
    if slot.kind == "target":
        value = rng.randint(-at, count - at)
    elif isinstance(old, Reg) and rng.random() < 0.7:
        value = replace(old, index=rng.randrange(32)) if slot.kind == "float" or rng.random() < 0.5 else replace(
            old, offset=rng.choice((0, 1, 32, 512, 2**26 - 1, -(2**26), old.offset ^ 1 << rng.randrange(20)))
        )  # fmt: skip
    else:
        near = (old if isinstance(old, int) else 0) + rng.choice((-64, -32, -1, 1, 2, 32, 64, 4096))
        value = rng.choice((near, near, low, high, rng.choice(EXTREMES), rng.randint(low, high)))
        value = min(high, max(low, value - value % slot.multiple))
    return replace(instr, values=(*instr.values[:which], value, *instr.values[which + 1 :]))


def manifest(rng: Random) -> bytes:
    return _document(rng, container.MANIFEST)


def debug(rng: Random) -> bytes:
    return _document(rng, container.DEBUG)


def _document(rng: Random, kind: int) -> bytes:
    """A section of JSON with a value changed; or now and then with bits flipped."""
    contents = _sections(some_file(rng, "twm"))
    if rng.random() < 0.1:
        contents[kind] = flipped(rng, contents[kind])
        return container.pack(contents)
    tables = json.loads(contents[kind])
    for _ in range(rng.choice((1, 1, 1, 2))):
        _change(rng, tables)
    if kind == container.MANIFEST and rng.random() < 0.8:
        _rehash_chip(tables)
    try:
        contents[kind] = canonical.dumps(tables)
    except (ValueError, TypeError):
        contents[kind] = repr(tables).encode()
    return container.pack(contents)


def _change(rng: Random, document: Any) -> None:
    """Somewhere in a document: another value, a missing key, one too many."""
    node, steps = document, rng.randrange(1, 5)
    while isinstance(node, dict | list) and node:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = rng.choice(keys)
        steps -= 1
        if steps and isinstance(node[key], dict | list) and node[key]:
            node = node[key]
            continue
        if rng.random() < 0.08:
            del node[key]
        elif rng.random() < 0.08:
            if isinstance(node, dict):
                node[f"{key}2"] = node[key]
            else:
                node.append(node[key])
        else:
            node[key] = _other(rng, node[key])
        return


def _other(rng: Random, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int) or rng.random() < 0.1:
        words = ("", "tiny", "ddr", "fp16", "bool", "int64", "output", "scratch", "x" * 5000, "\x1b[2J", "\ud800")
        return rng.choice((*words, None, True, 1.5, [], {}, 0, [[[[[[[[[[[[[[]]]]]]]]]]]]]], rng.choice(EXTREMES)))
    near = (value + 1, value - 1, value * 2, value // 2, value ^ 1 << rng.randrange(16))
    return rng.choice((rng.choice(EXTREMES), *near))


def _rehash_chip(tables: Any) -> None:
    """Let a changed chip pass for the one that the artifact names, if it can be a chip at all."""
    try:
        content = {key: value for key, value in tables["chip"]["tables"].items() if key != "description"}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        tables["chip"]["content_hash"] = hashlib.sha256(text.encode()).hexdigest()
    except (KeyError, TypeError, AttributeError):
        return


def frame(rng: Random) -> bytes:
    """The header's own fields, under a new checksum of the header."""
    data = bytearray(some_file(rng, "twm"))
    covered = container.HEADER_BYTES - 32
    at = rng.randrange(8, 32 + 56 * 5) if rng.random() < 0.8 else rng.randrange(covered)
    if rng.random() < 0.4:
        at -= at % 8
        struct.pack_into("<Q", data, at, rng.choice(EXTREMES) & 2**64 - 1)
    else:
        data[at] ^= 1 << rng.randrange(8)
    data[covered : container.HEADER_BYTES] = hashlib.sha256(data[:covered]).digest()
    return bytes(data)


_WORD = re.compile(r"-?\d\w*|[A-Za-z_.\\][\w.]*|\S")
_HOSTILE_LINES = (
    "loop x31, 2000000000, {label}", "again_: jmp again_", ".rept 1000000000", ".rept 100000, I", ".endr", ".macro m a",
    ".endm", ".if 1", ".else", ".endif", ".equ E 1 << 62 << 62", ".cores 1024", ".cores 0", ".chip tw1",
    ".buffer huge ddr 1 << 45", ".buffer huge2 ub fp32 [1000000, 1000000]", ".input z ddr fp32 2000000000",
    ".tiling w = 9223372036854775807", "halt", "core_barrier", "cluster_barrier", "trap 1", "nop", "barrier_all",
    "ldt x1, x31", "ldtc x1, 0", "smul x1, x1, x1", "sadd x2, x2, -1", "sld.ddr.int64 x3, [x3 + 8]",
    "sst.ub.fp32 [x4], x5", "cluster_set.v 0, 0", "cluster_wait.v 1, 0",
    "set_flag.v.mte2 0", "wait_flag.mte2.v 1", "cross_set.v 0, 0", "cross_wait.v 1, 1", "pipe_barrier.v",
    "vadd.fp32.1d [0], [0], [0], <x1>", "vmuls.fp16.2d [x1; x2], [x3; x4], nan, <x5, 65535>",
    "ld.ddr.ub.int8.3d [x1; x2, x3], [x4; x5, x6], <x7, x8, 65535>", "mad.int8 [0], [0], [0], <4095, 4095, 4095>",
    "fmov x1, 1e39", "fmov x1, 1/3", "(" * 200 + "1" + ")" * 200, '"', "\\", "x" * 5000, ".equ \"\\u{110000}\" 1",
)  # fmt: skip


def words(rng: Random) -> bytes:
    """A program with words and lines exchanged: what still assembles is another program."""
    lines = some_file(rng, "code").decode().splitlines()
    labels = re.findall(r"^(\w+):", "\n".join(lines), re.MULTILINE)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(lines))
        match rng.randrange(8):
            case 0:
                lines.insert(at, rng.choice(_HOSTILE_LINES).replace("{label}", rng.choice(labels)))
            case 1:
                del lines[at]
                lines = lines or [""]
            case 2:
                lines.insert(rng.randrange(len(lines)), lines[at])
            case 3:
                other = rng.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
            case _:
                lines[at] = _other_word(rng, lines[at], lines[rng.randrange(len(lines))])
    return "\n".join([*lines, ""]).encode("utf-8", "surrogatepass")


def _other_word(rng: Random, line: str, another: str) -> str:
    words = list(_WORD.finditer(line))
    if not words:
        return another
    word = rng.choice(words)
    if word[0].lstrip("-").isdigit():
        value = int(word[0])
        new = str(rng.choice((rng.choice(EXTREMES), value + 1, value - 1, value * 2, -value, value ^ 1)))
    elif word.start() == len(line) - len(line.lstrip()) and rng.random() < 0.5:
        mnemonic = rng.choice(rows()).mnemonic
        new = ".".join([mnemonic, *word[0].split(".")[1:]])
    else:
        others = _WORD.findall(another) or ["0"]
        new = rng.choice((rng.choice(others), rng.choice(others), "x7", "0", str(rng.choice(EXTREMES)), "-", ""))
    return f"{line[: word.start()]}{new}{line[word.end() :]}"


def registers(rng: Random) -> bytes:
    """Instructions of any row whose operands all come from tiling words: nothing is known before the run."""
    words: list[int] = []
    instrs: list[Instr] = []
    table = {row.mnemonic: row for row in rows()}
    picks = [rng.choice(rows()) for _ in range(rng.choice((1, 1, 2, 3)))]
    for row in picks:
        mods = tuple(rng.choice(modifier.choices) for modifier in row.modifiers)
        values: list[Any] = []
        for slot in row.slots(mods):
            if slot.kind == "target":
                values.append(rng.choice((1, 1, 0, 2)))
            elif slot.kind == "dest":
                values.append(rng.randrange(32))
            else:
                register = 1 + len(values)
                instrs.append(Instr(table["ldt"], (), (register, len(words))))
                words.append(_value_for(rng, slot))
                values.append(Reg(register))
        instrs.append(Instr(row, mods, tuple(values)))
    count = len(instrs) + 1
    instrs.append(Instr(table["halt"], (), ()))
    # A target after the last instruction leads to its end, which is where a jump may go.
    instrs = [_inside(instr, at, count) for at, instr in enumerate(instrs)]
    buffers = (
        Buffer("x", "ddr", 0, 65536, "fp16", (32768,), "inout"),
        Buffer("y", "llb", 0, 65536, "fp16", (32768,), "scratch"),
    )
    tiling = tuple(TilingWord(f"w{at}", value) for at, value in enumerate(words))
    program = Program("registers", "tiny", 1, tuple(instrs), buffers, tiling)
    try:
        return to_bytes(program, load_chip("tiny"))
    except TilewrightError:  # refused before the run, by rules on what is fixed: no artifact of this kind
        return registers(rng)


def _value_for(rng: Random, slot: Any) -> int:
    if slot.kind == "float":
        return rng.choice((0, 0x3F800000, 0x7FC00000, 0x7F800000, 0xFF800000, 1, 0x80000000, rng.getrandbits(32)))
    if rng.random() < 0.25:
        return min(2**63 - 1, max(-(2**63), rng.choice(EXTREMES)))
    usual = {"addr": (0, 0, 512, 1024, 2048, 32, 4096), "stride": (0, 1, 8, 16, 32, 64, 1, 1)}
    value = rng.choice(usual.get(slot.kind, (1, 1, 2, 4, 8, 16, 16, 32, rng.randrange(1, 200))))
    return max(slot.lo, min(slot.hi, value)) // slot.multiple * slot.multiple


def _inside(instr: Instr, at: int, count: int) -> Instr:
    slots = instr.row.slots(instr.mods)
    values = tuple(
        min(value, count - 1 - at) if slot.kind == "target" and isinstance(value, int) else value
        for slot, value in zip(slots, instr.values, strict=True)
    )
    return replace(instr, values=values)


_NUMBER = re.compile(rb"(?<![\w.])\d+(?![\w.])")


def chip_values(rng: Random) -> bytes:
    """A chip file with other numbers; most are within the limits of their keys, which the schema knows."""
    text = rng.choice(chip_files())
    for _ in range(rng.choice((1, 1, 2, 4))):
        numbers = list(_NUMBER.finditer(text))
        number = rng.choice(numbers)
        old = int(number[0])
        powers = (old << rng.randrange(1, 12), max(1, old >> rng.randrange(1, 6)))
        new = str(rng.choice((*powers, *powers, old + 1, 1, 0, 1024, 64, 255, -1, rng.choice(EXTREMES)))).encode()
        new = rng.choice((new, new, new, new, new, new, b"true", b'"1"', b"1.0", b"[1]"))
        text = text[: number.start()] + new + text[number.end() :]
    return text


def really_flipped(rng: Random, content: bytes) -> bytes:
    """Damage that changed something: a byte may have been overwritten by itself."""
    damaged = flipped(rng, content)
    return damaged if damaged != content else really_flipped(rng, content)
