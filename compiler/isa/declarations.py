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
                known = [*_ROLES, *readers, ".macro", ".rept", ".if"]
                if token.text in BLOCK_DIRECTIVES:
                    fail("TW1215", f"`{token.text}` must come first on its line", token)
                fail("TW1214", f"there is no directive `{token.text}`", token, did_you_mean(token.text, known))
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
        if min(shape) < 1:
            fail("TW1212", f"an extent of `{name}` is {min(shape)}; allowed: 1 or more", size)
        size_bytes = prod(shape) * DTYPES[dtype].itemsize
        if size_bytes > MAX_ADDRESS:
            fail("TW1212", f"`{name}` has {size_bytes} bytes; allowed: at most {MAX_ADDRESS}", size)
        offset = self._place(cursor, token, name, memory.text, size_bytes)
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
        extents = [self.integer(cursor)]
        while cursor.accept(","):
            extents.append(self.integer(cursor))
        cursor.expect("]")
        return tuple(extents)

    def _place(self, cursor: Cursor, token: Token, name: str, memory: str, size_bytes: int) -> int:
        """The offset of a buffer: as its attributes say, or the next free one."""
        alignment, at, alias = default_alignment(memory), None, None
        while not cursor.at_end():
            word = cursor.next()
            start = cursor.token
            if word.text == "align":
                alignment = self.integer(cursor)
                if not 1 <= alignment <= MAX_ADDRESS:
                    fail("TW1212", f"an alignment is {alignment}; allowed: 1 to {MAX_ADDRESS}", start)
            elif word.text == "at":
                at = self.integer(cursor)
                if not 0 <= at <= MAX_ADDRESS:
                    fail("TW1212", f"an address is {at}; allowed: 0 to {MAX_ADDRESS}", start)
            elif word.text == "alias":
                alias = word
            else:
                fail("TW1206", f"expected `align`, `at`, `alias` or the end of the line, found {word.shown}", word)
        regions = self.regions[memory]
        if alias and at is None:
            fail("TW1217", "`alias` needs the address that is shared", alias, "write `at ADDRESS alias`")
        offset = -(-regions.free // alignment) * alignment if at is None else at
        if not alias:
            other = regions.overlapping(offset, offset + size_bytes)
            if other is not None:
                message = f"`{name}` at {offset} to {offset + size_bytes - 1} of {memory} overlaps `{other}`"
                fail("TW1217", message, token, "say `alias` if they share these bytes on purpose")
            regions.add(offset, offset + size_bytes, name)
        return offset


BLOCK_DIRECTIVES = (".macro", ".endm", ".rept", ".endr", ".if", ".elif", ".else", ".endif")
