"""Assembly text to a program. Every mistake of a file is found in one go, and each is shown where it stands.

A line holds labels, then a directive or an instruction, then a comment. What an instruction takes is read from
its row: modifiers after the mnemonic, operands in the row's order.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from compiler.errors import Diagnostics, InputError, InvalidError, Place, Problem
from compiler.isa.declarations import Declarations
from compiler.isa.expansion import Expander
from compiler.isa.expressions import MAX_MAGNITUDE, Cursor, Scope, Symbol, did_you_mean
from compiler.isa.lexer import MAX_LINE_CHARS, Fault, Line, Token, fail, place, tokenize
from compiler.isa.model import Instr, Row
from compiler.isa.operands import Operands
from compiler.isa.program import MAX_INSTRUCTIONS, Program
from compiler.isa.table import by_mnemonic
from compiler.target import Chip

MAX_SOURCE_BYTES = 8 << 20
MAX_PROBLEMS = 500  # assembly stops here: a file with more is not assembly text


def assemble(
    text: str, *, file: str = "<text>", chip: Chip | None = None, defines: Mapping[str, int] | None = None
) -> Program:
    """The program that ``text`` describes; ``defines`` win over its ``.equ``. Raises InvalidError or InputError."""
    return _Assembler(text, file, chip, defines or {}).run()


def assemble_file(
    path: str | os.PathLike[str], *, chip: Chip | None = None, defines: Mapping[str, int] | None = None
) -> Program:
    """:func:`assemble` on a file, which may come from anyone: it is bounded and read once."""
    return assemble(read_source(path), file=os.fspath(path), chip=chip, defines=defines)


def read_source(path: str | os.PathLike[str]) -> str:
    """The text of an assembly file; InputError where it cannot be one."""
    shown = Place(os.fspath(path))
    # Without O_NONBLOCK, opening a pipe waits for a writer for ever.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    try:
        with os.fdopen(os.open(path, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InputError(Problem("TW1202", "an assembly file must be a regular file", shown))
            content = file.read(MAX_SOURCE_BYTES + 1)
    except IsADirectoryError as error:
        raise InputError(
            Problem("TW1202", "an assembly file must be a regular file, not a directory", shown)
        ) from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(Problem("TW1201", f"cannot read the assembly file: {reason}", shown)) from error
    except ValueError as error:  # a NUL in the path
        raise InputError(Problem("TW1201", "cannot read the assembly file: the path is not a name", shown)) from error
    try:
        return content[: MAX_SOURCE_BYTES + 1].decode("utf-8")
    except UnicodeDecodeError as error:
        if len(content) > MAX_SOURCE_BYTES:
            raise InputError(_too_large(shown)) from error
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        message = f"the file is not UTF-8: byte 0x{content[error.start]:02x} at offset {error.start}"
        raise InputError(Problem("TW1204", message, Place(shown.file, line, column))) from error


def _too_large(shown: Place) -> Problem:
    return Problem("TW1203", f"assembly text may have at most {MAX_SOURCE_BYTES} bytes", shown)


def _checked_lines(text: str, file: str) -> list[Line]:
    if len(text) > MAX_SOURCE_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_SOURCE_BYTES:
        raise InputError(_too_large(Place(file)))
    at = text.find("\0")
    if at >= 0:
        where = Place(file, text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))
        raise InputError(Problem("TW1204", "the text holds a NUL byte", where))
    return [Line(number, line) for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1)]


class _Jump(NamedTuple):
    """A target slot that waits for its label."""

    instr: int
    slot: int
    label: Token
    line: Line


class _TooManyProblems(Exception):
    pass


class _Assembler:
    def __init__(self, text: str, file: str, chip: Chip | None, defines: Mapping[str, int]) -> None:
        for name, value in defines.items():
            if abs(value) > MAX_MAGNITUDE:
                raise InvalidError(Problem("TW1213", f"-D {name} has {value.bit_length()} bits; allowed: up to 2**63"))
        self.file = file
        self.scope = Scope(defines, chip)
        self.declarations = Declarations(self.scope)
        self.problems = Diagnostics()
        self.seen: set[tuple[object, ...]] = set()
        self.instrs: list[Instr] = []
        self.lines: list[int] = []
        self.jumps: list[_Jump] = []
        self.rows = by_mnemonic()
        self.source = _checked_lines(text, file)
        self.expander = Expander(self._condition, self._report, self.rows.__contains__)

    def run(self) -> Program:
        try:
            for line in self.expander.expand(self.source):
                self._line(line)
            self._resolve_jumps()
            entries = self._entries()
        except _TooManyProblems:
            entries = ()
            self.problems.limit -= 1
            self.problems.add("TW1216", f"more than {MAX_PROBLEMS} problems: not assembly text?", None)
        for name in self.scope.defines:
            if not self.problems.problems and name not in self.scope.used_defines:
                constants = [known for known, symbol in self.scope.symbols.items() if symbol.kind == "constant"]
                self.problems.add("TW1220", f"-D {name}: the program has no constant of this name", Place(self.file),
                                  did_you_mean(name, constants))  # fmt: skip
        self.problems.raise_if_any()
        declared = self.declarations
        chip = declared.chip or (self.scope.chip.name if self.scope.chip and self.scope.read_chip else None)
        return Program(
            declared.name if declared.name is not None else Path(self.file).stem.strip("<>") or "program",
            chip,
            declared.cores,
            tuple(self.instrs),
            tuple(declared.buffers),
            tuple(declared.tiling),
            entries,
            tuple(self.lines),
            self.file,
            tuple((name, symbol.value) for name, symbol in self.scope.symbols.items() if symbol.kind == "label"),
        )

    def _report(self, line: Line, fault: Fault) -> None:
        key = (fault.code, fault.message, line.number, fault.column)
        if key in self.seen:
            return
        self.seen.add(key)
        calls: list[str] = []
        call = line.call
        while call is not None and len(calls) < 5:
            calls.append(call.what)
            call = call.parent
        message = f"{fault.message} ({', '.join(calls)})" if calls else fault.message
        where = place(self.file, line, fault.column, fault.width)
        self.problems.add(fault.code, message, where, fault.hint)
        if len(self.problems.problems) >= MAX_PROBLEMS:
            raise _TooManyProblems

    # ---- statements ---------------------------------------------------------------------------------------

    def _line(self, line: Line) -> None:
        try:
            if len(line.text) > MAX_LINE_CHARS:
                raise Fault("TW1216", f"a line has {len(line.text)} characters; allowed: {MAX_LINE_CHARS}")
            cursor = Cursor(tokenize(line.text))
            self._statement(line, cursor)
        except Fault as fault:
            self._report(line, fault)

    def _condition(self, cursor: Cursor) -> int:
        return self.declarations.integer(cursor, comparisons=True)

    def _statement(self, line: Line, cursor: Cursor) -> None:
        while cursor.token.kind == "name" and cursor.peek().text == ":":
            self._label(line, cursor.next())
            cursor.next()
        head = cursor.next()
        if head.kind == "directive":
            self.declarations.line = line.number
            self.declarations.read(head, cursor)
        elif head.kind == "name":
            self._instruction(line, head, cursor)
        elif head.kind != "end":
            fail("TW1206", f"expected a label, a directive or an instruction, found {head.shown}", head)

    def _label(self, line: Line, token: Token) -> None:
        if "." in token.text:
            fail("TW1206", f"`{token.text}` cannot be a label: names have letters, digits and _", token)
        self.scope.define(token, token.text, Symbol("label", len(self.instrs), line.number))

    def _instruction(self, line: Line, head: Token, cursor: Cursor) -> None:
        mnemonic, *mods = head.text.split(".")
        row = self.rows.get(mnemonic)
        if row is None:
            name = head._replace(text=mnemonic)
            hint = did_you_mean(mnemonic, [*self.rows, *self.expander.macros])
            fail("TW1207", f"there is no instruction `{mnemonic}`", name, hint)
        chosen = tuple(mods)
        _check_modifiers(row, chosen, head)
        operands = Operands(row, chosen, cursor, self.scope)
        operands.read()
        for fault in operands.faults:
            self._report(line, fault)
        if len(self.instrs) == MAX_INSTRUCTIONS:
            self.expander.stopped = True
            fail("TW1216", f"the program has more than {MAX_INSTRUCTIONS} instructions", head)
        for slot, label in operands.labels:
            self.jumps.append(_Jump(len(self.instrs), slot, label, line))
        self.instrs.append(Instr(row, chosen, tuple(operands.values)))
        self.lines.append(line.number)

    # ---- labels -------------------------------------------------------------------------------------------

    def _resolve_jumps(self) -> None:
        for jump in self.jumps:
            try:
                distance = self._label_index(jump.label) - jump.instr
            except Fault as fault:
                self._report(jump.line, fault)
                continue
            instr = self.instrs[jump.instr]
            values = (*instr.values[: jump.slot], distance, *instr.values[jump.slot + 1 :])
            self.instrs[jump.instr] = Instr(instr.row, instr.mods, values)

    def _label_index(self, token: Token) -> int:
        symbol = self.scope.symbols.get(token.text)
        if symbol is None or symbol.kind != "label":
            labels = [name for name, known in self.scope.symbols.items() if known.kind == "label"]
            what = f"`{token.text}` is a {symbol.kind}, not a label" if symbol else f"there is no label `{token.text}`"
            fail("TW1219", what, token, did_you_mean(token.text, labels))
        return symbol.value

    def _entries(self) -> tuple[int, ...]:
        entries = [0] * (self.declarations.cores or 0) if self.declarations.entries else []
        for number, entry in self.declarations.entries:
            try:
                entries[entry.core] = self._label_index(entry.label)
            except Fault as fault:
                self._report(self.source[number - 1], fault)
        return tuple(entries)


def _check_modifiers(row: Row, mods: tuple[str, ...], head: Token) -> None:
    pattern = "".join(f".{modifier.name}" for modifier in row.modifiers)
    column = head.column + len(row.mnemonic) + 1
    for modifier, choice in zip(row.modifiers, mods, strict=False):
        if choice not in modifier.choices:
            token = Token("name", choice, column)
            order = f"the order is {row.mnemonic}{pattern}"
            hint = order if any(choice in m.choices for m in row.modifiers) else did_you_mean(choice, modifier.choices)
            message = f"{row.mnemonic}: {modifier.name} is `{choice}`; allowed: {', '.join(modifier.choices)}"
            fail("TW1208", message, token, hint)
        column += len(choice) + 1
    if len(mods) > len(row.modifiers):
        takes = f"it is written {row.mnemonic}{pattern}" if pattern else "it has none"
        surplus = ".".join(mods[len(row.modifiers) :])
        fail("TW1208", f"{row.mnemonic} has too many modifiers; {takes}", Token("name", surplus, column))
    if len(mods) < len(row.modifiers):
        missing = row.modifiers[len(mods)]
        message = f"{row.mnemonic}: modifier {missing.name} is missing; allowed: {', '.join(missing.choices)}"
        fail("TW1208", message, head, f"it is written {row.mnemonic}{pattern}")
