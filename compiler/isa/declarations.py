"""What an assembly file declares beside instructions: buffers and where they lie, tiling words, constants, names."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

from compiler.errors import TilewrightError
from compiler.isa.dtypes import ALIGNMENT_BYTES, DTYPES, MEMORIES, SHARED_MEMORIES
from compiler.isa.expressions import MAX_MAGNITUDE, Cursor, Expression, Scope, Symbol, did_you_mean
from compiler.isa.lexer import Token, fail, is_name
from compiler.isa.program import Buffer, TilingWord
from compiler.target import chip_names, load_chip
from compiler.target.schema import MAX_CORES

SHARED_ALIGNMENT_BYTES = 512
BLOCK_BYTES = 32
MAX_ADDRESS = 1 << 46
MAX_TILING_WORDS = 1 << 16
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

_BUFFER = "NAME MEMORY TYPE SHAPE ..."
# How each directive is written and what it does: the assembler's messages and docs/isa.md read this table.
DIRECTIVES: dict[str, tuple[str, str]] = {
    ".program": ("NAME", "names the program; without it the file's name does"),
    ".chip": ("NAME", "the only chip that the program is for; `chip.` facts are read from it"),
    ".cores": ("N", "how many cores the program is for"),
    ".input": (_BUFFER, "a buffer that the caller fills"),
    ".output": (_BUFFER, "a buffer that the caller reads"),
    ".inout": (_BUFFER, "a buffer that the caller fills and reads"),
    ".buffer": (_BUFFER, "a buffer of the program's own; a number of bytes may stand for TYPE SHAPE"),
    ".tiling": ("NAME = VALUE", "an int64 that `ldt` loads at run time; the name stands for its index"),
    ".equ": ("NAME VALUE", "a constant; `-D NAME=VALUE` wins over it"),
    ".reg": ("NAME xN", "a name for a register"),
    ".entry": ("CORE, LABEL", "where a core starts; without it at the first instruction"),
    ".macro": (
        "NAME A, B ... .endm",
        "lines to insert wherever NAME is written like an instruction; `\\A` is replaced",
    ),
    ".rept": ("COUNT [, I] ... .endr", "repeats lines; `\\I` is replaced by 0, 1, 2 ..."),
    ".if": ("VALUE ... [.elif VALUE ...] [.else ...] .endif", "assembles the first branch whose value is not zero"),
}
BLOCK_DIRECTIVES = (".macro", ".endm", ".rept", ".endr", ".if", ".elif", ".else", ".endif")

_ROLES = {".input": "input", ".output": "output", ".inout": "inout", ".buffer": "scratch"}


def default_alignment(memory: str) -> int:
    """What a buffer starts at a multiple of, unless its declaration says otherwise."""
    return SHARED_ALIGNMENT_BYTES if memory in SHARED_MEMORIES else max(BLOCK_BYTES, ALIGNMENT_BYTES[memory])


@dataclass
class Regions:
    """The pieces of one memory that belong to one buffer alone, in order."""

    pieces: list[tuple[int, int, str]] = field(default_factory=list)
    free: int = 0  # where the next buffer without an address goes

    def overlapping(self, start: int, end: int) -> str | None:
        """The name of a buffer that has a byte of start..end, if any."""
        at = bisect_left(self.pieces, (start, 0, ""))
        if at and self.pieces[at - 1][1] > start:
            return self.pieces[at - 1][2]
        return self.pieces[at][2] if at < len(self.pieces) and self.pieces[at][0] < end else None

    def add(self, start: int, end: int, name: str) -> None:
        insort(self.pieces, (start, end, name))
        self.free = max(self.free, end)


@dataclass
class Entry:
    """`.entry`: the core, and the label to be resolved once all are known."""

    core: int
    label: Token


@dataclass
class _Attributes:
    """What a buffer's declaration says beyond its shape."""

    alignment: int
    size_bytes: int
    at: int | None = None
    alias: Token | None = None
    aligned: bool = False  # `align` was written


@dataclass
class Declarations:
    """Reads directives and keeps what they declare."""

    scope: Scope
    line: int = 0  # of the statement being read
    name: str | None = None
    chip: str | None = None
    cores: int | None = None
    buffers: list[Buffer] = field(default_factory=list)
    tiling: list[TilingWord] = field(default_factory=list)
    entries: list[tuple[int, Entry]] = field(default_factory=list)
    regions: dict[str, Regions] = field(default_factory=lambda: {memory: Regions() for memory in MEMORIES})

    def read(self, token: Token, cursor: Cursor) -> None:
        """One directive, whose word has been read, up to the end of its line."""
        if token.text in _ROLES:
            self._buffer(_ROLES[token.text], cursor)
        else:
            readers: dict[str, Callable[[Token, Cursor], None]] = {
                ".program": self._program,
                ".chip": self._chip,
                ".cores": self._cores,
                ".tiling": self._tiling,
                ".equ": self._equ,
                ".reg": self._reg,
                ".entry": self._entry,
            }
            if token.text not in readers:
                if token.text in BLOCK_DIRECTIVES:
                    fail("TW1215", f"`{token.text}` must come first on its line", token)
                fail("TW1214", f"there is no directive `{token.text}`", token, did_you_mean(token.text, DIRECTIVES))
            readers[token.text](token, cursor)
        cursor.expect_end()

    def integer(self, cursor: Cursor, comparisons: bool = False) -> int:
        return Expression(cursor, self.scope, comparisons=comparisons).integer()

    def _program(self, directive: Token, cursor: Cursor) -> None:
        token, name = cursor.name("the program's name")
        if self.name is not None:
            fail("TW1211", "the program is named twice", token)
        self.name = name

    def _chip(self, directive: Token, cursor: Cursor) -> None:
        token, name = cursor.name("the name of a chip")
        if self.chip is not None and self.chip != name:
            fail("TW1218", f"the program is for chip `{self.chip}` already", token)
        if self.scope.chip is None:
            if name not in chip_names():
                hint = did_you_mean(name, chip_names(), "give the chip's file with --chip")
                fail("TW1218", f"no chip is called `{name}`", token, hint)
            try:
                self.scope.chip = load_chip(name)
            except TilewrightError as error:
                fail("TW1218", f"chip `{name}` cannot be loaded: {error.problems[0].message}", token)
        elif self.scope.chip.name != name:
            fail("TW1218", f"the program is for chip `{name}`, and it is assembled for `{self.scope.chip.name}`", token)
        self.chip = name

    def _cores(self, directive: Token, cursor: Cursor) -> None:
        start = cursor.token
        count = self.integer(cursor)
        if not 1 <= count <= MAX_CORES:
            fail("TW1212", f"the number of cores is {count}; allowed: 1 to {MAX_CORES}", start)
        if self.cores is not None:
            fail("TW1211", "the number of cores is given twice", directive)
        self.cores = count

    def _tiling(self, directive: Token, cursor: Cursor) -> None:
        token, name = cursor.name("the name of a tiling word")
        cursor.expect("=")
        start = cursor.token
        value = self.integer(cursor, comparisons=True)
        if not INT64_MIN <= value <= INT64_MAX:
            fail("TW1212", f"a tiling word is {value}; allowed: {INT64_MIN} to {INT64_MAX}", start)
        if len(self.tiling) == MAX_TILING_WORDS:
            fail("TW1216", f"more than {MAX_TILING_WORDS} tiling words", directive)
        self.scope.define(token, name, Symbol("tiling", len(self.tiling), self.line))
        self.tiling.append(TilingWord(name, value))

    def _equ(self, directive: Token, cursor: Cursor) -> None:
        token, name = cursor.name("the name of a constant")
        value = self.integer(cursor, comparisons=True)
        if name in self.scope.defines:
            self.scope.used_defines.add(name)
            value = self.scope.defines[name]
        self.scope.define(token, name, Symbol("constant", value, self.line))

    def _reg(self, directive: Token, cursor: Cursor) -> None:
        token, name = cursor.name("a name for a register")
        if not is_name(name):
            fail("TW1206", "a register's name must be a plain name", token)
        register = cursor.next()
        index = self.scope.register(register)
        if index is None:
            fail("TW1206", f"expected a register, x0 to x31, found {register.shown}", register)
        self.scope.define(token, name, Symbol("register", index, self.line))

    def _entry(self, directive: Token, cursor: Cursor) -> None:
        start = cursor.token
        core = self.integer(cursor)
        if self.cores is None:
            fail("TW1214", "`.entry` needs the number of cores", directive, "write `.cores N` on a line before it")
        if not 0 <= core < self.cores:
            fail("TW1212", f"the core is {core}; allowed: 0 to {self.cores - 1}", start)
        if any(entry.core == core for _, entry in self.entries):
            fail("TW1211", f"core {core} has two entries", start)
        cursor.expect(",")
        label = cursor.next()
        if label.kind != "name":
            fail("TW1206", f"expected a label, found {label.shown}", label)
        self.entries.append((self.line, Entry(core, label)))

    # ---- buffers ------------------------------------------------------------------------------------------

    def _buffer(self, role: str, cursor: Cursor) -> None:
        token, name = cursor.name("the name of a buffer")
        memory = self._word(cursor, "memory", MEMORIES)
        size = cursor.token
        if role == "scratch" and not (cursor.token.kind == "name" and cursor.token.text in DTYPES):
            dtype = "uint8"
            shape: tuple[int, ...] = (self.integer(cursor),)
        else:
            dtype = self._word(cursor, "element type", tuple(DTYPES)).text
            size = cursor.token
            shape = self._shape(cursor)
        if min(shape, default=1) < 1:
            fail("TW1212", f"an extent of `{name}` is {min(shape)}; allowed: 1 or more", size)
        least = prod(shape) * DTYPES[dtype].itemsize
        if least > MAX_ADDRESS:
            fail("TW1212", f"`{name}` has {least} bytes; allowed: at most {MAX_ADDRESS}", size)
        attributes = self._attributes(cursor, default_alignment(memory.text), least)
        size_bytes = attributes.size_bytes
        offset = self._place(attributes, token, name, memory.text)
        self.scope.define(token, name, Symbol("buffer", offset, self.line, size_bytes))
        self.buffers.append(Buffer(name, memory.text, offset, size_bytes, dtype, shape, role))

    def _word(self, cursor: Cursor, what: str, choices: tuple[str, ...]) -> Token:
        token = cursor.next()
        if token.kind != "name" or token.text not in choices:
            hint = did_you_mean(token.text, choices)
            fail("TW1206", f"expected {what} ({', '.join(choices)}), found {token.shown}", token, hint)
        return token

    def _shape(self, cursor: Cursor) -> tuple[int, ...]:
        if cursor.token.kind == "shape":
            token = cursor.next()
            dims = tuple(int(part) for part in token.text.split("x"))
            if max(dims) > MAX_MAGNITUDE:
                fail("TW1213", "an extent has too many digits", token)
            return dims
        if not cursor.accept("["):
            return (self.integer(cursor),)
        if cursor.accept("]"):
            return ()
        extents = [self.integer(cursor)]
        while cursor.accept(","):
            extents.append(self.integer(cursor))
        cursor.expect("]")
        return tuple(extents)

    def _attributes(self, cursor: Cursor, alignment: int, least: int) -> _Attributes:
        """What may follow a buffer's shape, in any order."""
        found = _Attributes(alignment, least)
        ranges = {"align": (1, MAX_ADDRESS), "at": (0, MAX_ADDRESS), "size": (least, MAX_ADDRESS)}
        while not cursor.at_end():
            word = cursor.next()
            if word.text == "alias":
                found.alias = word
                continue
            if word.text not in ranges:
                wanted = "`align`, `at`, `size`, `alias` or the end of the line"
                fail("TW1206", f"expected {wanted}, found {word.shown}", word)
            start, (low, high) = cursor.token, ranges[word.text]
            value = self.integer(cursor)
            if not low <= value <= high:
                fail("TW1212", f"`{word.text}` is {value}; allowed: {low} to {high}", start)
            if word.text == "align":
                found.alignment, found.aligned = value, True
            elif word.text == "at":
                found.at = value
            else:
                found.size_bytes = value
        if found.alias and found.at is None:
            fail("TW1217", "`alias` needs the address that is shared", found.alias, "write `at ADDRESS alias`")
        return found

    def _place(self, attributes: _Attributes, token: Token, name: str, memory: str) -> int:
        """The offset of a buffer: as its attributes say, or the next free one."""
        regions, alignment = self.regions[memory], attributes.alignment
        offset = -(-regions.free // alignment) * alignment if attributes.at is None else attributes.at
        if attributes.at is not None and offset % alignment and attributes.aligned:
            fail("TW1217", f"`{name}` at {offset} is not at a multiple of {alignment}", token)
        if not attributes.alias:
            end = offset + attributes.size_bytes
            other = regions.overlapping(offset, end)
            if other is not None:
                message = f"`{name}` at {offset} to {end - 1} of {memory} overlaps `{other}`"
                fail("TW1217", message, token, "say `alias` if they share these bytes on purpose")
            regions.add(offset, end, name)
        return offset
