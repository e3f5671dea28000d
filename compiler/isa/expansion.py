"""Macros, repetitions and conditions: the blocks of assembly text, expanded line by line and bounded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from compiler.isa.expressions import Cursor
from compiler.isa.lexer import MAX_LINE_CHARS, Call, Fault, Line, fail, is_name, tokenize, without_comment

MAX_EXPANDED_LINES = 1 << 18
MAX_EXPANDED_CHARS = 8 << 20
MAX_NESTING = 64

_CLOSERS = {"endm": "macro", "endr": "rept", "endif": "if"}
_ENDS = {opener: closer for closer, opener in _CLOSERS.items()}
_BLOCK_WORD = re.compile(r"\s*\.(macro|endm|rept|endr|if|elif|else|endif)\b", re.ASCII)
_HEAD = re.compile(r"((?:\s*[A-Za-z_]\w*\s*:)*)\s*([A-Za-z_]\w*)(?![\w.])", re.ASCII)
_PARAMETER = re.compile(r"\\(@|[A-Za-z_]\w*)", re.ASCII)


class Block(NamedTuple):
    """Where a block ends, and where an `.if` has its other branches."""

    end: int
    branches: tuple[int, ...]


@dataclass(frozen=True)
class Body:
    """The lines that a macro or repetition inserts; ``\\@`` of an inner block is not theirs to number."""

    lines: tuple[Line, ...]
    inner: tuple[bool, ...]


@dataclass(frozen=True)
class Macro:
    name: str
    parameters: tuple[str, ...]
    body: Body
    line: int


@dataclass
class Expander:
    """Turns lines with blocks into the lines to assemble, in order, so that conditions see what stands before them."""

    evaluate: Callable[[Cursor], int]
    report: Callable[[Line, Fault], None]
    is_mnemonic: Callable[[str], bool]
    macros: dict[str, Macro] = field(default_factory=dict)
    stopped: bool = False
    _expanded_lines: int = 0
    _expanded_chars: int = 0
    _serial: int = 0

    def expand(self, lines: Sequence[Line], depth: int = 0) -> Iterator[Line]:
        blocks = self._blocks(lines)
        index = 0
        while index < len(lines) and not self.stopped:
            line = lines[index]
            word = _block_word(line.text)
            following = index + 1
            groups: Iterator[Sequence[Line]] = iter(())
            try:
                if word is None:
                    label, groups = self._macro_call(line)
                    if label is None:
                        yield line
                    elif label.text:
                        yield label
                elif word in _ENDS:
                    block = blocks.get(index)
                    if block is not None:
                        following = block.end + 1
                        groups = self._open(word, lines, index, block)
                    elif word == "macro":
                        return
                if depth == MAX_NESTING:
                    self._only_outside(groups)
            except Fault as fault:
                self.report(line, fault)
                groups = iter(())
            while (group := self._next(line, groups)) is not None:
                yield from self.expand(group, depth + 1)
            index = following

    def _next(self, line: Line, groups: Iterator[Sequence[Line]]) -> Sequence[Line] | None:
        if self.stopped:
            return None
        try:
            return next(groups, None)
        except Fault as fault:
            self.report(line, fault)
            return None

    def _only_outside(self, groups: Iterator[Sequence[Line]]) -> None:
        if next(groups, None) is not None:
            self._stop(f"macros, repetitions and conditions are nested more than {MAX_NESTING} deep")

    def _stop(self, message: str) -> None:
        self.stopped = True
        raise Fault("TW1216", message)

    # ---- structure ----------------------------------------------------------------------------------------

    def _blocks(self, lines: Sequence[Line]) -> dict[int, Block]:
        """The end of every block in ``lines``; what has none, or is none's, is reported."""
        found: dict[int, Block] = {}
        open_blocks: list[tuple[int, str, list[int]]] = []
        for index, line in enumerate(lines):
            word = _block_word(line.text)
            if word is None:
                continue
            if word in _ENDS:
                open_blocks.append((index, word, []))
                continue
            wanted = _CLOSERS.get(word, "if")
            if not open_blocks or open_blocks[-1][1] != wanted:
                inside = open_blocks[-1] if open_blocks else None
                hint = f"line {lines[inside[0]].number} opened `.{inside[1]}`" if inside else ""
                self._report_word(line, f"`.{word}` without `.{wanted}`", hint)
                continue
            start, _, branches = open_blocks[-1]
            if word in _CLOSERS:
                open_blocks.pop()
                found[start] = Block(index, tuple(branches))
                continue
            if branches and _block_word(lines[branches[-1]].text) == "else":
                self._report_word(line, f"`.{word}` after `.else`")
            branches.append(index)
        for start, word, _ in open_blocks:
            self._report_word(lines[start], f"`.{word}` without `.{_ENDS[word]}`")
        return found

    def _report_word(self, line: Line, message: str, hint: str = "") -> None:
        start = line.text.index(".")
        self.report(line, Fault("TW1215", message, start, len(_block_word(line.text) or "") + 1, hint))

    def _open(self, word: str, lines: Sequence[Line], index: int, block: Block) -> Iterator[Sequence[Line]]:
        if word == "if":
            return self._condition(lines, index, block)
        body = lines[index + 1 : block.end]
        if word == "macro":
            self._define(lines[index], body)
            return iter(())
        return self._repetition(lines[index], body)

    # ---- conditions ---------------------------------------------------------------------------------------

    def _condition(self, lines: Sequence[Line], index: int, block: Block) -> Iterator[Sequence[Line]]:
        starts = (index, *block.branches)
        for start, end in zip(starts, (*block.branches, block.end), strict=True):
            cursor = self._after_word(lines[start])
            try:
                if _block_word(lines[start].text) == "else":
                    cursor.expect_end()
                    taken = True
                else:
                    taken = self.evaluate(cursor) != 0
                    cursor.expect_end()
            except Fault as fault:
                self.report(lines[start], fault)
                return iter(())
            if taken:
                return iter((lines[start + 1 : end],))
        return iter(())

    def _after_word(self, line: Line) -> Cursor:
        cursor = Cursor(tokenize(line.text))
        cursor.next()
        return cursor

    # ---- repetitions --------------------------------------------------------------------------------------

    def _repetition(self, line: Line, lines: Sequence[Line]) -> Iterator[Sequence[Line]]:
        cursor = self._after_word(line)
        start = cursor.token
        count = self.evaluate(cursor)
        parameter = cursor.name("the name that counts the repetitions")[1] if cursor.accept(",") else ""
        cursor.expect_end()
        if not 0 <= count:
            fail("TW1212", f"a repetition count is {count}; allowed: 0 or more", start)
        body = _body(lines)
        call = Call(f"in the repetition of line {line.number}", line.number, line.call)
        return (self._insert(body, {parameter: str(i)} if parameter else {}, call) for i in range(count))

    # ---- macros -------------------------------------------------------------------------------------------

    def _define(self, line: Line, lines: Sequence[Line]) -> None:
        cursor = self._after_word(line)
        token = cursor.next()
        if not (token.kind == "name" and is_name(token.text)):
            fail("TW1206", f"expected the name of the macro, found {token.shown}", token)
        if self.is_mnemonic(token.text):
            fail("TW1211", f"`{token.text}` is an instruction and cannot be a macro", token)
        if token.text in self.macros:
            fail(
                "TW1211", f"macro `{token.text}` is defined twice; first on line {self.macros[token.text].line}", token
            )
        parameters: list[str] = []
        while not cursor.at_end():
            if parameters:
                cursor.expect(",")
            parameter = cursor.next()
            if not (parameter.kind == "name" and is_name(parameter.text)):
                fail("TW1206", f"expected the name of a parameter, found {parameter.shown}", parameter)
            if parameter.text in parameters:
                fail("TW1211", f"parameter `{parameter.text}` is named twice", parameter)
            parameters.append(parameter.text)
        self.macros[token.text] = Macro(token.text, tuple(parameters), _body(lines), line.number)

    def _macro_call(self, line: Line) -> tuple[Line | None, Iterator[Sequence[Line]]]:
        """The labels before a call and what it inserts; no line where this is no call."""
        match = _HEAD.match(line.text) if self.macros else None
        macro = self.macros.get(match[2]) if match else None
        if match is None or macro is None or line.text[match.end() :].lstrip()[:1] == ":":
            return None, iter(())
        arguments = _arguments(without_comment(line.text), match.end())
        if len(arguments) != len(macro.parameters):
            wanted = f"{len(macro.parameters)} ({', '.join(macro.parameters)})" if macro.parameters else "none"
            message = f"macro `{macro.name}` has {len(arguments)} arguments here; it takes {wanted}"
            raise Fault("TW1209", message, match.start(2), len(macro.name))
        call = Call(f"in macro `{macro.name}` called on line {line.number}", line.number, line.call)
        given = dict(zip(macro.parameters, arguments, strict=True))
        groups = (self._insert(macro.body, given, call) for _ in range(1))
        return line._replace(text=match[1]), groups

    # ---- substitution -------------------------------------------------------------------------------------

    def _insert(self, body: Body, given: dict[str, str], call: Call) -> Sequence[Line]:
        serial = str(self._serial)
        self._serial += 1
        self._expanded_lines += max(1, len(body.lines))
        if self._expanded_lines > MAX_EXPANDED_LINES:
            self._stop(f"macros and repetitions expand to more than {MAX_EXPANDED_LINES} lines")
        inserted: list[Line] = []
        for line, inner in zip(body.lines, body.inner, strict=True):
            text = (
                _substitute(line.text, given if inner else {**given, "@": serial}) if "\\" in line.text else line.text
            )
            if len(text) > MAX_LINE_CHARS:
                raise Fault(
                    "TW1216", f"line {line.number} expands to {len(text)} characters; allowed: {MAX_LINE_CHARS}"
                )
            self._expanded_chars += len(text)
            inserted.append(Line(line.number, text, call))
        if self._expanded_chars > MAX_EXPANDED_CHARS:
            self._stop(f"macros and repetitions expand to more than {MAX_EXPANDED_CHARS} characters")
        return inserted


def _block_word(text: str) -> str | None:
    match = _BLOCK_WORD.match(text)
    return match[1] if match else None


def _body(lines: Sequence[Line]) -> Body:
    inner: list[bool] = []
    depth = 0
    for line in lines:
        word = _block_word(line.text)
        depth -= word in ("endm", "endr")
        inner.append(depth > 0)
        depth += word in ("macro", "rept")
    return Body(tuple(line._replace(text=without_comment(line.text)) for line in lines), tuple(inner))


def _substitute(text: str, given: dict[str, str]) -> str:
    """Parameters replaced by their arguments; unknown ones stay, for an inner block or for the lexer to refuse."""
    return _PARAMETER.sub(lambda match: given.get(match[1], match[0]), text)


def _arguments(text: str, start: int) -> list[str]:
    """The text after a macro's name, split at commas that stand in no bracket."""
    arguments: list[str] = []
    depth, begin, index = 0, start, start
    while index < len(text):
        char = text[index]
        if text[index : index + 2] in ("<<", ">>", "<=", ">="):
            index += 2
            continue
        if char in "([<":
            depth += 1
        elif char in ")]>":
            depth -= 1
        elif char == "," and depth <= 0:
            arguments.append(_argument(text, begin, index))
            begin = index + 1
        index += 1
    if arguments or text[begin:].strip():
        arguments.append(_argument(text, begin, len(text)))
    return arguments


def _argument(text: str, begin: int, end: int) -> str:
    argument = text[begin:end].strip()
    if not argument:
        raise Fault("TW1209", "an argument is empty", min(begin, max(0, len(text) - 1)), max(1, end - begin))
    return argument
